//! The structure of an archive: the end record, the directory, and every entry's own header.
//!
//! Readers of ZIP files disagree: some trust the directory, some the headers, some search for the end record from
//! behind and some from the front. A file that reads differently in two programs is a hole, so this reader accepts one
//! layout only, the one that our writer makes: entries sorted by name and back to back from the first byte, then the
//! directory, then the end record, then nothing. Every field has one permitted value or is compared with its twin.

use super::error::ArchiveError;
use super::limits::ArchiveLimits;
use super::names::{Clash, Seen, check_name};
use crate::constants::SIGNATURE_ENTRY;
use crate::text::excerpt;
use std::ops::Range;

const END_MAGIC: u32 = 0x0605_4b50;
const CENTRAL_MAGIC: u32 = 0x0201_4b50;
const LOCAL_MAGIC: u32 = 0x0403_4b50;
const ZIP64_LOCATOR_MAGIC: u32 = 0x0706_4b50;
const END_SIZE: usize = 22;
const CENTRAL_SIZE: usize = 46;
const LOCAL_SIZE: usize = 30;
const ZIP64_LOCATOR_SIZE: usize = 20;

pub(super) const STORED: u16 = 0;
pub(super) const DEFLATED: u16 = 8;
/// The method number that stands for an encrypted entry.
const AES: u16 = 99;
/// 1980-01-01, 00:00: the time of every entry.
const DATE: u16 = 0x0021;
/// A plain file that its owner writes and everybody reads, as UNIX writes it into the directory.
const PLAIN_FILE: u32 = 0o100_644 << 16;
/// "Made by UNIX".
const UNIX: u16 = 3 << 8;

/// Where an entry's content is, and what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Located {
    pub(super) name: String,
    /// Where its own header begins.
    pub(super) start: usize,
    /// Where its compressed content is.
    pub(super) content: Range<usize>,
    pub(super) method: u16,
    pub(super) size: usize,
    pub(super) checksum: u32,
}

/// Reads little-endian numbers out of a record whose length is known.
#[derive(Clone, Copy)]
struct Record<'a>(&'a [u8]);

impl Record<'_> {
    fn u16(self, at: usize) -> u16 {
        self.0.get(at..at + 2).and_then(|b| b.try_into().ok()).map_or(0, u16::from_le_bytes)
    }

    fn u32(self, at: usize) -> u32 {
        self.0.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
    }
}

fn record(bytes: &[u8], at: usize, size: usize) -> Option<Record<'_>> {
    bytes.get(at..at.checked_add(size)?).map(Record)
}

/// What an entry says of itself in the directory and, without the offset, again in its own header.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Header {
    needed: u16,
    flags: u16,
    method: u16,
    time: u16,
    date: u16,
    checksum: u32,
    compressed: u32,
    size: u32,
    name_length: usize,
    extra_length: usize,
}

impl Header {
    /// Both records hold the same fields in the same order, beginning at different places.
    fn read(record: Record<'_>, at: usize) -> Self {
        Self {
            needed: record.u16(at),
            flags: record.u16(at + 2),
            method: record.u16(at + 4),
            time: record.u16(at + 6),
            date: record.u16(at + 8),
            checksum: record.u32(at + 10),
            compressed: record.u32(at + 14),
            size: record.u32(at + 18),
            name_length: record.u16(at + 22).into(),
            extra_length: record.u16(at + 24).into(),
        }
    }

    /// The first field about which two headers disagree.
    fn disagreement(&self, other: &Self) -> Option<&'static str> {
        let fields = [
            (self.needed == other.needed, "version"),
            (self.flags == other.flags, "flags"),
            (self.method == other.method, "method"),
            (self.time == other.time && self.date == other.date, "time"),
            (self.checksum == other.checksum, "checksum"),
            (self.compressed == other.compressed, "compressed size"),
            (self.size == other.size, "size"),
            (self.name_length == other.name_length, "name"),
            (self.extra_length == other.extra_length, "extra fields"),
        ];
        fields.into_iter().find(|(same, _)| !same).map(|(_, field)| field)
    }
}

/// Finds every entry.
///
/// # Errors
/// What is wrong with the archive, by name.
pub(super) fn read_directory(bytes: &[u8], limits: &ArchiveLimits) -> Result<Vec<Located>, ArchiveError> {
    if bytes.len() > limits.archive_bytes {
        return Err(ArchiveError::TooLarge { bytes: bytes.len(), limit: limits.archive_bytes });
    }
    let (directory, count) = find_directory(bytes)?;
    if count == 0 || count > limits.entries {
        return Err(ArchiveError::EntryCount { count, limit: limits.entries });
    }
    let mut reader = Reader { bytes, limits, at: directory.start, end: directory.end, next: 0, total: 0 };
    let mut seen = Seen::default();
    let mut entries: Vec<Located> = Vec::with_capacity(count);
    for _ in 0..count {
        let entry = reader.entry(&entries)?;
        seen.add(&entry.name).map_err(|clash| clash_error(clash, entry.name.clone()))?;
        if entries.last().is_some_and(|last| !in_order(&last.name, &entry.name)) {
            return Err(ArchiveError::NotCanonical { entry: entry.name, field: "place among the entries" });
        }
        entries.push(entry);
    }
    if reader.at != directory.end {
        return Err(ArchiveError::Directory { what: "it is longer than its entries" });
    }
    if reader.next != directory.start {
        let bytes = directory.start.saturating_sub(reader.next);
        return Err(ArchiveError::Gap { entry: "the directory".to_owned(), bytes });
    }
    Ok(entries)
}

pub(super) fn clash_error(clash: Clash, entry: String) -> ArchiveError {
    match clash {
        Clash::Duplicate => ArchiveError::Duplicate { entry },
        Clash::CaseTwin => ArchiveError::CaseTwin { entry },
        Clash::FileAndDirectory => ArchiveError::FileAndDirectory { entry },
    }
}

/// Entries are sorted by name, the signature is the last.
fn in_order(before: &str, after: &str) -> bool {
    before != SIGNATURE_ENTRY && (after == SIGNATURE_ENTRY || before < after)
}

/// Reads the end record: where the directory is, and how many entries it has.
fn find_directory(bytes: &[u8]) -> Result<(Range<usize>, usize), ArchiveError> {
    let at = bytes.len().checked_sub(END_SIZE).ok_or(ArchiveError::NotAnArchive)?;
    let end = record(bytes, at, END_SIZE).ok_or(ArchiveError::NotAnArchive)?;
    if end.u32(0) != END_MAGIC {
        return Err(misplaced_end(bytes));
    }
    let locator = at.checked_sub(ZIP64_LOCATOR_SIZE).and_then(|at| record(bytes, at, ZIP64_LOCATOR_SIZE));
    if locator.is_some_and(|locator| locator.u32(0) == ZIP64_LOCATOR_MAGIC)
        || end.u16(10) == u16::MAX
        || end.u32(12) == u32::MAX
        || end.u32(16) == u32::MAX
    {
        return Err(ArchiveError::Zip64);
    }
    if end.u16(20) != 0 {
        return Err(ArchiveError::Directory { what: "the end record announces a comment that is not there" });
    }
    if end.u16(4) != 0 || end.u16(6) != 0 {
        return Err(ArchiveError::MultiDisk);
    }
    if end.u16(8) != end.u16(10) {
        return Err(ArchiveError::Directory { what: "the end record has two numbers of entries" });
    }
    let (size, start) = (end.u32(12) as usize, end.u32(16) as usize);
    let fitting = at.checked_sub(size).ok_or(ArchiveError::Directory { what: "it is larger than the archive" })?;
    if start == fitting {
        return Ok((start..at, end.u16(10).into()));
    }
    let shifted = record(bytes, fitting, 4).is_some_and(|record| record.u32(0) == CENTRAL_MAGIC);
    if shifted && fitting > start {
        return Err(ArchiveError::LeadingData { bytes: fitting - start });
    }
    Err(ArchiveError::Directory { what: "it is not where the end record says" })
}

/// The end record is not at the end: why.
fn misplaced_end(bytes: &[u8]) -> ArchiveError {
    let window = bytes.len().saturating_sub(END_SIZE + usize::from(u16::MAX));
    let tail = bytes.get(window..).unwrap_or_default();
    let found = tail.windows(4).rposition(|four| four == END_MAGIC.to_le_bytes());
    let Some(end) = found.and_then(|at| record(tail, at, END_SIZE).map(|end| (at, end))) else {
        return ArchiveError::NotAnArchive;
    };
    let behind = tail.len() - (end.0 + END_SIZE);
    match usize::from(end.1.u16(20)) {
        length if length == behind => ArchiveError::Comment { entry: String::new() },
        _ => ArchiveError::TrailingData { bytes: behind },
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    limits: &'a ArchiveLimits,
    /// Where the next record of the directory begins.
    at: usize,
    /// Where the directory ends.
    end: usize,
    /// Where the next entry must begin.
    next: usize,
    /// Inflated bytes so far.
    total: usize,
}

impl Reader<'_> {
    /// Reads the next record of the directory and the header that it points at.
    fn entry(&mut self, before: &[Located]) -> Result<Located, ArchiveError> {
        let cut = ArchiveError::Directory { what: "it ends in the middle of an entry" };
        let central = record(&self.bytes[..self.end], self.at, CENTRAL_SIZE).ok_or_else(|| cut.clone())?;
        if central.u32(0) != CENTRAL_MAGIC {
            return Err(ArchiveError::Directory { what: "a record does not begin like one" });
        }
        let header = Header::read(central, 6);
        let name_at = self.at + CENTRAL_SIZE;
        let comment_length = usize::from(central.u16(32));
        let next = name_at + header.name_length + header.extra_length + comment_length;
        if next > self.end {
            return Err(cut);
        }
        let raw_name = self.bytes.get(name_at..name_at + header.name_length).unwrap_or_default();
        let name = check_name(raw_name).map_err(|fault| {
            let entry = excerpt(&String::from_utf8_lossy(raw_name));
            ArchiveError::Name { entry, fault }
        })?;
        check_header(name, &header, self.bytes.get(name_at + header.name_length..next).unwrap_or_default())?;
        if comment_length != 0 {
            return Err(ArchiveError::Comment { entry: name.to_owned() });
        }
        check_attributes(name, central, &header)?;
        let entry = self.locate(name, &header, central.u32(42) as usize, before)?;
        self.at = next;
        Ok(entry)
    }

    /// Finds the content, and compares the entry's own header with the directory.
    fn locate(
        &mut self,
        name: &str,
        header: &Header,
        start: usize,
        before: &[Located],
    ) -> Result<Located, ArchiveError> {
        let entry = || name.to_owned();
        let (size, compressed) = (header.size as usize, header.compressed as usize);
        self.check_size(name, size, compressed)?;
        let content_at = start + LOCAL_SIZE + header.name_length;
        let content = content_at..content_at + compressed;
        if before.iter().any(|other| start < other.content.end && other.start < content.end) {
            return Err(ArchiveError::Overlap { entry: entry() });
        }
        if start > self.next {
            let bytes = start - self.next;
            let leading = before.is_empty();
            return Err(if leading {
                ArchiveError::LeadingData { bytes }
            } else {
                ArchiveError::Gap { entry: entry(), bytes }
            });
        }
        if start < self.next {
            return Err(ArchiveError::NotCanonical { entry: entry(), field: "place in the archive" });
        }
        let mismatch = |field| ArchiveError::HeaderMismatch { entry: entry(), field };
        let local = record(self.bytes, start, LOCAL_SIZE).ok_or_else(|| mismatch("place"))?;
        if local.u32(0) != LOCAL_MAGIC {
            return Err(mismatch("place"));
        }
        if let Some(field) = header.disagreement(&Header::read(local, 4)) {
            return Err(mismatch(field));
        }
        if self.bytes.get(start + LOCAL_SIZE..content_at) != Some(name.as_bytes()) {
            return Err(mismatch("name"));
        }
        if content.end > self.bytes.len() {
            return Err(ArchiveError::Directory { what: "an entry is longer than the archive" });
        }
        self.next = content.end;
        Ok(Located { name: entry(), start, content, method: header.method, size, checksum: header.checksum })
    }

    fn check_size(&mut self, name: &str, size: usize, compressed: usize) -> Result<(), ArchiveError> {
        let entry = || name.to_owned();
        if size > self.limits.entry_bytes {
            return Err(ArchiveError::EntryTooLarge { entry: entry(), bytes: size, limit: self.limits.entry_bytes });
        }
        self.total = self.total.saturating_add(size);
        if self.total > self.limits.total_bytes {
            return Err(ArchiveError::TotalTooLarge { limit: self.limits.total_bytes });
        }
        if size > ArchiveLimits::RATIO_FLOOR && size > compressed.saturating_mul(self.limits.ratio) {
            return Err(ArchiveError::Ratio { entry: entry(), limit: self.limits.ratio });
        }
        Ok(())
    }
}

/// Checks the fields that an entry's two headers share.
fn check_header(name: &str, header: &Header, extra: &[u8]) -> Result<(), ArchiveError> {
    let entry = || name.to_owned();
    let odd = |field| ArchiveError::NotCanonical { entry: entry(), field };
    // Bit 0 and 6: encrypted; bit 13: the directory is masked, which goes with encryption.
    if header.flags & 0x2041 != 0 || header.method == AES {
        return Err(ArchiveError::Encrypted { entry: entry() });
    }
    if header.flags & 0x0008 != 0 {
        return Err(ArchiveError::DataDescriptor { entry: entry() });
    }
    let sentinel = header.size == u32::MAX || header.compressed == u32::MAX;
    if sentinel || extra.get(..2) == Some(&[1, 0]) {
        return Err(ArchiveError::Zip64);
    }
    if header.extra_length != 0 {
        return Err(ArchiveError::ExtraField { entry: entry() });
    }
    let (method, needed) = if name == SIGNATURE_ENTRY { (STORED, 10) } else { (DEFLATED, 20) };
    if header.method != method {
        return Err(ArchiveError::Method { entry: entry(), method: header.method });
    }
    if method == STORED && header.size != header.compressed {
        return Err(ArchiveError::Content { entry: entry(), what: "it is stored, but has two sizes" });
    }
    let fields = [
        (header.flags == 0, "flags"),
        (header.needed == needed, "version"),
        (header.time == 0 && header.date == DATE, "time"),
    ];
    fields.into_iter().find(|(good, _)| !good).map_or(Ok(()), |(_, field)| Err(odd(field)))
}

/// Checks the fields that only the directory has.
fn check_attributes(name: &str, central: Record<'_>, header: &Header) -> Result<(), ArchiveError> {
    let entry = || name.to_owned();
    if central.u16(34) != 0 {
        return Err(ArchiveError::MultiDisk);
    }
    let attributes = central.u32(38);
    match attributes >> 16 & 0o170_000 {
        0o120_000 => return Err(ArchiveError::Symlink { entry: entry() }),
        _ if attributes != PLAIN_FILE => return Err(ArchiveError::SpecialFile { entry: entry() }),
        _ => {}
    }
    if central.u16(4) != UNIX | header.needed || central.u16(36) != 0 {
        return Err(ArchiveError::NotCanonical { entry: entry(), field: "origin" });
    }
    Ok(())
}

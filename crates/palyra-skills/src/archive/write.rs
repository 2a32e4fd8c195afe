//! Writing an archive: the same entries give the same bytes.
//!
//! Entries are sorted, have one fixed time and one fixed mode, and are deflated at one fixed level; the signature comes
//! last and is stored. It is asked for when everything before it is written, because it covers those bytes.

use super::error::ArchiveError;
use super::names::{Seen, check_name};
use super::{Archive, Entry};
use crate::constants::SIGNATURE_ENTRY;
use palyra_protocol::Digest;
use std::io::{Cursor, Write as _};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, System, ZipArchive, ZipWriter};

const LEVEL: i64 = 9;

/// Writes entries, sorted by name, and then the signature that `sign` makes for the digest of the bytes before it.
///
/// # Errors
/// A name is refused, or the archive breaks a limit.
pub fn write<E: From<ArchiveError>>(
    entries: &[Entry],
    sign: impl FnOnce(&Digest) -> Result<Vec<u8>, E>,
) -> Result<Vec<u8>, E> {
    let unsigned = write_entries(entries)?;
    let before = directory_start(&unsigned)?;
    let signature = sign(&Digest::of(unsigned.get(..before).unwrap_or_default()))?;
    let bytes = append_signature(unsigned, &signature)?;
    // What was written is read like a stranger's: a writer that strays from the format is found here, not by users.
    Archive::read(&bytes)?;
    Ok(bytes)
}

fn options() -> SimpleFileOptions {
    SimpleFileOptions::default()
        .last_modified_time(DateTime::default())
        .unix_permissions(0o644)
        .system(System::Unix)
        .large_file(false)
}

fn write_entries(entries: &[Entry]) -> Result<Vec<u8>, ArchiveError> {
    let mut sorted: Vec<&Entry> = entries.iter().collect();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    let mut seen = Seen::default();
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    let options = options().compression_method(CompressionMethod::Deflated).compression_level(Some(LEVEL));
    for entry in sorted {
        let refused = |fault| ArchiveError::Name { entry: crate::text::excerpt(&entry.name), fault };
        check_name(entry.name.as_bytes()).map_err(refused)?;
        if entry.name == SIGNATURE_ENTRY {
            return Err(ArchiveError::Duplicate { entry: entry.name.clone() });
        }
        seen.add(&entry.name).map_err(|clash| super::directory::clash_error(clash, entry.name.clone()))?;
        writer.start_file(entry.name.as_str(), options).map_err(|e| unwritable(&e))?;
        writer.write_all(&entry.content).map_err(|e| unwritable(&e))?;
    }
    Ok(writer.finish().map_err(|e| unwritable(&e))?.into_inner())
}

/// Copies the deflated entries as they are and adds the signature.
fn append_signature(unsigned: Vec<u8>, signature: &[u8]) -> Result<Vec<u8>, ArchiveError> {
    let entries = ZipArchive::new(Cursor::new(unsigned)).map_err(|e| unwritable(&e))?;
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    writer.merge_archive(entries).map_err(|e| unwritable(&e))?;
    let options = options().compression_method(CompressionMethod::Stored);
    writer.start_file(SIGNATURE_ENTRY, options).map_err(|e| unwritable(&e))?;
    writer.write_all(signature).map_err(|e| unwritable(&e))?;
    Ok(writer.finish().map_err(|e| unwritable(&e))?.into_inner())
}

/// Where the directory of an archive begins that we have just written: its last record says so.
fn directory_start(bytes: &[u8]) -> Result<usize, ArchiveError> {
    let at = bytes.len().checked_sub(6).and_then(|at| bytes.get(at..at + 4)).and_then(|b| b.try_into().ok());
    at.map(|at| u32::from_le_bytes(at) as usize).ok_or(ArchiveError::NotAnArchive)
}

fn unwritable(error: &impl ToString) -> ArchiveError {
    ArchiveError::Unwritable { reason: error.to_string() }
}

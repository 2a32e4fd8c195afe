//! A ZIP writer that writes whatever it is told, for archives that nobody should accept.

use flate2::{Compress, Compression, FlushCompress};
use palyra_skills::archive::Archive;

/// The fields that both headers of an entry have.
#[derive(Clone)]
pub(crate) struct Header {
    pub(crate) needed: u16,
    pub(crate) flags: u16,
    pub(crate) method: u16,
    pub(crate) time: u16,
    pub(crate) date: u16,
    pub(crate) checksum: u32,
    pub(crate) compressed: u32,
    pub(crate) size: u32,
    pub(crate) name: Vec<u8>,
    pub(crate) extra: Vec<u8>,
}

impl Header {
    fn write(&self, out: &mut Vec<u8>) {
        for number in [self.needed, self.flags, self.method, self.time, self.date] {
            out.extend(number.to_le_bytes());
        }
        for number in [self.checksum, self.compressed, self.size] {
            out.extend(number.to_le_bytes());
        }
        out.extend((self.name.len() as u16).to_le_bytes());
        out.extend((self.extra.len() as u16).to_le_bytes());
    }
}

/// One entry: what its own header says, what the directory says, and its bytes.
#[derive(Clone)]
pub(crate) struct Piece {
    pub(crate) local: Header,
    pub(crate) central: Header,
    pub(crate) data: Vec<u8>,
    pub(crate) made_by: u16,
    pub(crate) disk: u16,
    pub(crate) internal: u16,
    pub(crate) attributes: u32,
    pub(crate) comment: Vec<u8>,
    /// Bytes between the entry before and this one.
    pub(crate) before: Vec<u8>,
    /// An offset other than the true one.
    pub(crate) offset: Option<u32>,
}

impl Piece {
    pub(crate) fn new(name: &str, content: &[u8], is_stored: bool) -> Self {
        let data = if is_stored { content.to_vec() } else { deflated(content) };
        let needed = if is_stored { 10 } else { 20 };
        let header = Header {
            needed,
            flags: 0,
            method: if is_stored { 0 } else { 8 },
            time: 0,
            date: 0x21,
            checksum: crc32fast::hash(content),
            compressed: data.len() as u32,
            size: content.len() as u32,
            name: name.as_bytes().to_vec(),
            extra: vec![],
        };
        Self {
            local: header.clone(),
            central: header,
            data,
            made_by: 3 << 8 | needed,
            disk: 0,
            internal: 0,
            attributes: 0o100_644 << 16,
            comment: vec![],
            before: vec![],
            offset: None,
        }
    }

    /// Changes both headers alike.
    pub(crate) fn both(&mut self, change: impl Fn(&mut Header)) {
        change(&mut self.local);
        change(&mut self.central);
    }
}

pub(crate) fn deflated(content: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(content.len() + 64);
    Compress::new(Compression::new(9), false).compress_vec(content, &mut out, FlushCompress::Finish).unwrap();
    out
}

/// The end record.
#[derive(Clone)]
pub(crate) struct End {
    pub(crate) disk: u16,
    pub(crate) entries_here: u16,
    pub(crate) entries: u16,
    pub(crate) directory_size: u32,
    pub(crate) directory_start: u32,
    pub(crate) comment: Vec<u8>,
    /// Bytes between the directory and the end record.
    pub(crate) before: Vec<u8>,
}

/// The entries of an artifact as pieces.
pub(crate) fn pieces(artifact: &[u8]) -> Vec<Piece> {
    let archive = Archive::read(artifact).unwrap();
    let mut pieces: Vec<_> = archive.entries.iter().map(|e| Piece::new(&e.name, &e.content, false)).collect();
    pieces.push(Piece::new("signature.json", &archive.signature, true));
    pieces
}

pub(crate) fn assemble(pieces: &[Piece]) -> Vec<u8> {
    assemble_with(pieces, |_| {})
}

pub(crate) fn assemble_with(pieces: &[Piece], change: impl Fn(&mut End)) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for piece in pieces {
        out.extend(&piece.before);
        let start = piece.offset.unwrap_or(out.len() as u32);
        out.extend(0x0403_4b50_u32.to_le_bytes());
        piece.local.write(&mut out);
        out.extend(&piece.local.name);
        out.extend(&piece.local.extra);
        out.extend(&piece.data);
        directory.extend(0x0201_4b50_u32.to_le_bytes());
        directory.extend(piece.made_by.to_le_bytes());
        piece.central.write(&mut directory);
        for number in [piece.comment.len() as u16, piece.disk, piece.internal] {
            directory.extend(number.to_le_bytes());
        }
        directory.extend(piece.attributes.to_le_bytes());
        directory.extend(start.to_le_bytes());
        directory.extend(&piece.central.name);
        directory.extend(&piece.central.extra);
        directory.extend(&piece.comment);
    }
    let count = pieces.len() as u16;
    let mut end = End {
        disk: 0,
        entries_here: count,
        entries: count,
        directory_size: directory.len() as u32,
        directory_start: out.len() as u32,
        comment: vec![],
        before: vec![],
    };
    change(&mut end);
    out.extend(directory);
    out.extend(&end.before);
    out.extend(0x0605_4b50_u32.to_le_bytes());
    for number in [end.disk, end.disk, end.entries_here, end.entries] {
        out.extend(number.to_le_bytes());
    }
    out.extend(end.directory_size.to_le_bytes());
    out.extend(end.directory_start.to_le_bytes());
    out.extend((end.comment.len() as u16).to_le_bytes());
    out.extend(&end.comment);
    out
}

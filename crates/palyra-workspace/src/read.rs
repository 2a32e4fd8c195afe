//! Reading: a part of one regular file, and the digest of all of it.
//!
//! The digest is what a later write names as `expected_sha256`, so it must never cover less than the whole file: where
//! the file is too large to digest there is none.

use super::Workspace;
use super::error::{FileError, io_at};
use super::limits::{MAX_DIGEST_BYTES, MAX_READ_BYTES};
use super::path::ResolvedPath;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;

/// How much is read at a time while digesting.
const CHUNK: usize = 64 * 1024;

/// Which part of a file is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadRange {
    /// The first byte.
    pub offset: u64,
    /// The most bytes; beyond [`MAX_READ_BYTES`] it is cut.
    pub limit: usize,
}

impl Default for ReadRange {
    fn default() -> Self {
        Self { offset: 0, limit: MAX_READ_BYTES }
    }
}

/// A part of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileContent {
    /// The bytes from the offset on.
    pub bytes: Vec<u8>,
    /// The size of the whole file.
    pub total_bytes: u64,
    /// The file goes on behind the bytes returned.
    pub truncated: bool,
    /// The SHA-256 of the whole file in hexadecimal; nothing above [`MAX_DIGEST_BYTES`].
    pub sha256_hex: Option<String>,
}

impl Workspace {
    /// Reads a part of a regular file.
    pub fn read(&self, path: &ResolvedPath, range: ReadRange) -> Result<FileContent, FileError> {
        self.in_place()?;
        let (file, stat) = self.open_file(path)?;
        let file = File::from(file);
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let limit = range.limit.min(MAX_READ_BYTES);
        let mut content = match read_and_digest(&file, range.offset, limit).map_err(io_at(path.as_str()))? {
            Some(content) => content,
            None => {
                let bytes = read_window(&file, range.offset, limit).map_err(io_at(path.as_str()))?;
                FileContent { bytes, total_bytes: size, truncated: false, sha256_hex: None }
            }
        };
        let end = range.offset.saturating_add(content.bytes.len() as u64);
        content.truncated = end < content.total_bytes;
        Ok(content)
    }
}

/// One pass over the whole file; nothing if it is too large for that.
fn read_and_digest(mut file: &File, offset: u64, limit: usize) -> std::io::Result<Option<FileContent>> {
    if file.metadata()?.len() > MAX_DIGEST_BYTES {
        return Ok(None);
    }
    let (mut hasher, mut bytes, mut position) = (Sha256::new(), Vec::new(), 0_u64);
    let mut chunk = vec![0_u8; CHUNK];
    let wanted_end = offset.saturating_add(limit as u64);
    loop {
        let read = match file.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let part = chunk.get(..read).unwrap_or_default();
        hasher.update(part);
        let (from, to) = (offset.max(position) - position, wanted_end.saturating_sub(position).min(read as u64));
        if let (Ok(from), Ok(to)) = (usize::try_from(from), usize::try_from(to)) {
            bytes.extend_from_slice(part.get(from..to).unwrap_or_default());
        }
        position += read as u64;
        // A file that grows while it is read must not keep us here.
        if position > MAX_DIGEST_BYTES {
            return Ok(None);
        }
    }
    Ok(Some(FileContent { bytes, total_bytes: position, truncated: false, sha256_hex: Some(hex(&hasher.finalize())) }))
}

fn read_window(file: &File, mut offset: u64, limit: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0_u8; limit];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset) {
            Ok(0) => break,
            Ok(read) => {
                filled += read;
                offset = offset.saturating_add(read as u64);
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Reads a whole file of at most `most` bytes; nothing if it is larger.
pub(super) fn read_all(file: &File, most: u64) -> std::io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= most).then_some(bytes))
}

/// The SHA-256 of bytes, in hexadecimal.
pub(super) fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// The SHA-256 of what remains of a file, in hexadecimal.
pub(super) fn sha256_of(file: &mut File) -> std::io::Result<String> {
    let mut hasher = Sha256::new();
    let mut chunk = vec![0_u8; CHUNK];
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok(hex(&hasher.finalize())),
            Ok(read) => hasher.update(chunk.get(..read).unwrap_or_default()),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

//! The archive of an artifact: a ZIP file in one canonical form.
//!
//! [`Archive::read`] accepts only what [`write()`] makes: the same entries always give the same bytes, and an archive
//! that was packed again by another program is refused. Nothing is written to a disk here.

mod directory;
mod error;
mod limits;
pub mod names;
#[cfg(test)]
mod tests;
mod write;

pub use error::ArchiveError;
pub use limits::ArchiveLimits;
pub use write::write;

use crate::constants::SIGNATURE_ENTRY;
use directory::{Located, STORED, read_directory};
use flate2::{Decompress, FlushDecompress, Status};
use palyra_protocol::Digest;

/// One file of an artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name: a relative path.
    pub name: String,
    /// Its content.
    pub content: Vec<u8>,
    /// SHA-256 of the content.
    pub digest: Digest,
}

impl Entry {
    /// An entry of this content.
    #[must_use]
    pub fn new(name: impl Into<String>, content: Vec<u8>) -> Self {
        let digest = Digest::of(&content);
        Self { name: name.into(), content, digest }
    }
}

/// Everything that an archive holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Archive {
    /// The entries but the signature, sorted by name.
    pub entries: Vec<Entry>,
    /// The content of `signature.json`.
    pub signature: Vec<u8>,
    /// SHA-256 of every byte before the signature's own header.
    pub digest: Digest,
}

impl Archive {
    /// Reads an archive within the default limits.
    ///
    /// # Errors
    /// Why it is refused, by name.
    pub fn read(bytes: &[u8]) -> Result<Self, ArchiveError> {
        Self::read_within(bytes, &ArchiveLimits::default())
    }

    /// Reads an archive within limits of the caller's.
    ///
    /// # Errors
    /// Why it is refused, by name.
    pub fn read_within(bytes: &[u8], limits: &ArchiveLimits) -> Result<Self, ArchiveError> {
        let mut located = read_directory(bytes, limits)?;
        let signature = located.pop().filter(|last| last.name == SIGNATURE_ENTRY).ok_or(ArchiveError::Unsigned)?;
        let entries = located.into_iter().map(|entry| inflate(bytes, entry)).collect::<Result<_, _>>()?;
        let digest = Digest::of(bytes.get(..signature.start).unwrap_or_default());
        let signature = inflate(bytes, signature)?.content;
        Ok(Self { entries, signature, digest })
    }
}

/// Inflates one entry into memory that its checked size allows.
fn inflate(bytes: &[u8], entry: Located) -> Result<Entry, ArchiveError> {
    let fault = |what| ArchiveError::Content { entry: entry.name.clone(), what };
    let compressed = bytes.get(entry.content.clone()).ok_or_else(|| fault("it is cut off"))?;
    let content = if entry.method == STORED {
        compressed.to_vec()
    } else {
        let mut content = Vec::with_capacity(entry.size);
        let mut inflater = Decompress::new(false);
        // The buffer has exactly the size that the directory promises: what is longer does not come to its end.
        let status = inflater.decompress_vec(compressed, &mut content, FlushDecompress::Finish);
        match status {
            Err(_) => return Err(fault("it is not a deflated stream")),
            Ok(Status::StreamEnd) if content.len() == entry.size => {}
            Ok(_) => return Err(fault("it does not have the size that the directory says")),
        }
        if inflater.total_in() != compressed.len() as u64 {
            return Err(fault("there are bytes behind its end"));
        }
        content
    };
    if crc32fast::hash(&content) != entry.checksum {
        return Err(ArchiveError::Checksum { entry: entry.name });
    }
    Ok(Entry::new(entry.name, content))
}

//! Git's index, as far as it says which content a path was last added with.
//!
//! The file is the agent's to write: every length is checked, and what is not understood holds nothing. Versions 2 and
//! 3 are read, with SHA-1; other indexes count as empty.

use crate::Workspace;
use crate::beneath::DirUse;
use sha1::{Digest as _, Sha1};
use std::fs::File;
use std::io::Read as _;

/// The largest index that is read.
const MAX_INDEX_BYTES: u64 = 64 << 20;
const HEADER_BYTES: usize = 12;
/// An entry's numbers before its digest.
const NUMBERS_BYTES: usize = 40;
const DIGEST_BYTES: usize = 20;
/// In an entry's flags: there are two bytes more, and how long the name is.
const EXTENDED: u16 = 0x4000;
const NAME_LENGTH: u16 = 0x0fff;

/// An index that was read.
#[derive(Debug)]
pub(super) struct GitIndex(Vec<u8>);

/// The index of the repository at the workspace's top.
pub(super) fn read(workspace: &Workspace) -> Option<GitIndex> {
    let git = workspace.open_dir(".git", DirUse::Lookup).ok()?;
    let flags = rustix::fs::OFlags::RDONLY;
    let (file, _) = crate::beneath::open_regular(std::os::fd::AsFd::as_fd(&git), "index", ".git/index", flags).ok()?;
    let mut bytes = Vec::new();
    File::from(file).take(MAX_INDEX_BYTES + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= MAX_INDEX_BYTES).then_some(GitIndex(bytes))
}

impl GitIndex {
    /// Whether a path is in it with this content.
    pub(super) fn holds(&self, path: &str, content: &[u8]) -> bool {
        let mut hash = Sha1::new();
        hash.update(format!("blob {}\0", content.len()));
        hash.update(content);
        let digest = hash.finalize();
        entries(&self.0).any(|(name, held)| name == path.as_bytes() && held == digest.as_slice())
    }

    /// Whether a path is in it.
    pub(super) fn names(&self, path: &str) -> bool {
        entries(&self.0).any(|(name, _)| name == path.as_bytes())
    }
}

/// Names and digests of an index; none of what is not understood.
fn entries(bytes: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let number = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let known = bytes.starts_with(b"DIRC") && matches!(number(4), Some(2 | 3));
    let count = number(8).filter(|_| known).unwrap_or(0);
    let mut at = HEADER_BYTES;
    (0..count).map_while(move |_| {
        let (entry, length) = entry(bytes.get(at..)?)?;
        at += length;
        Some(entry)
    })
}

/// The first entry, and how many bytes it takes.
fn entry(bytes: &[u8]) -> Option<((&[u8], &[u8]), usize)> {
    let digest = bytes.get(NUMBERS_BYTES..NUMBERS_BYTES + DIGEST_BYTES)?;
    let at = NUMBERS_BYTES + DIGEST_BYTES;
    let flags = u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?);
    let from = at + if flags & EXTENDED == 0 { 2 } else { 4 };
    let rest = bytes.get(from..)?;
    let length = match flags & NAME_LENGTH {
        NAME_LENGTH => rest.iter().position(|byte| *byte == 0)?,
        short => usize::from(short),
    };
    let name = rest.get(..length)?;
    // Padded by one to eight zeros to a multiple of eight.
    let padded = (from + length + 8) & !7;
    bytes.get(padded - 1).filter(|byte| **byte == 0)?;
    Some(((name, digest), padded))
}

/// Reads the bytes as an index.
///
/// # Panics
/// When a name or digest is found outside of the bytes.
pub(crate) fn fuzz(bytes: &[u8]) {
    for (name, digest) in entries(bytes) {
        assert!(name.len() <= bytes.len() && digest.len() == DIGEST_BYTES);
    }
    assert!(!GitIndex(bytes.to_vec()).holds("\u{1}", b"no index holds this by accident"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(entries: &[(&str, &[u8])], version: u32) -> Vec<u8> {
        let mut bytes = b"DIRC".to_vec();
        bytes.extend(version.to_be_bytes());
        bytes.extend(u32::try_from(entries.len()).unwrap().to_be_bytes());
        for (name, content) in entries {
            let start = bytes.len();
            bytes.extend([0; NUMBERS_BYTES]);
            let mut hash = Sha1::new();
            hash.update(format!("blob {}\0", content.len()));
            hash.update(content);
            bytes.extend(hash.finalize());
            bytes.extend(u16::try_from(name.len().min(0xfff)).unwrap().to_be_bytes());
            bytes.extend(name.bytes());
            let length = bytes.len() - start;
            bytes.extend(vec![0; 8 - length % 8]);
        }
        bytes
    }

    #[test]
    fn a_path_is_held_with_the_very_content_alone() {
        let long = "d/".repeat(2100) + "x";
        let bytes = index(&[(".env", b"A=1\n"), (&long, b""), ("z", b"z")], 2);
        let index = GitIndex(bytes.clone());
        assert!(index.holds(".env", b"A=1\n") && index.holds(&long, b"") && index.holds("z", b"z"));
        assert!(!index.holds(".env", b"A=2\n") && !index.holds("z", b"A=1\n") && !index.holds("y", b"z"));
        for version in [1, 4, 5] {
            let mut other = bytes.clone();
            other[4..8].copy_from_slice(&u32::to_be_bytes(version));
            assert!(!GitIndex(other).holds(".env", b"A=1\n"), "{version}");
        }
    }

    #[test]
    fn an_index_that_is_cut_or_spoilt_holds_what_was_read_before() {
        let bytes = index(&[("a", b"1"), ("b", b"2")], 3);
        for length in 0..bytes.len() {
            fuzz(&bytes[..length]);
            let cut = GitIndex(bytes[..length].to_vec());
            assert!(!cut.holds("b", b"2"), "{length}");
        }
        for at in 0..bytes.len() {
            let mut spoilt = bytes.clone();
            spoilt[at] ^= 0xff;
            fuzz(&spoilt);
        }
    }
}

//! Git's index: which paths a repository tracks, and with which content each was last added.
//!
//! Rules tell a deleted source file from a deleted build by it ([`Tracked`]), and a file that git holds with the same
//! content is no secret to a run.
//!
//! The index lies in the workspace, so it is hostile: every length is checked. What this cannot read, and the forms that
//! name files elsewhere (split and sparse indexes, SHA-256), is an error as a whole, and each caller takes the safe side:
//! every path is tracked then, and every file that may be a secret is one.

use crate::Workspace;
use palyra_protocol::EffectPath;
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, Mode, OFlags, openat, statat};
use rustix::io::Errno;
use sha1::{Digest as _, Sha1};
use std::fs::File;
use std::io::Read as _;

/// The largest index that is read: a million files.
const MAX_BYTES: u64 = 128 << 20;

/// The paths that the repository at the workspace's top tracks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tracked {
    /// Those of its index.
    Index(GitIndex),
    /// It cannot be told: any.
    Unknown,
}

/// An index that was read: names and digests, in the order of names. A path that is being merged has several digests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GitIndex(Vec<(Vec<u8>, [u8; OBJECT])>);

/// An index that is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the index of the repository is damaged, or of a form that is not read")]
pub(crate) struct IndexError;

impl Tracked {
    /// No path, where nobody asks which.
    #[must_use]
    pub fn nothing() -> Self {
        Self::Index(GitIndex::default())
    }

    /// Reads the index of the repository in `.git`; without one nothing is tracked.
    #[must_use]
    pub fn of(workspace: &Workspace) -> Self {
        GitIndex::of(workspace).map_or(Self::Unknown, Self::Index)
    }

    /// Whether a path is tracked.
    #[must_use]
    pub fn holds(&self, path: &EffectPath) -> bool {
        match self {
            Self::Index(index) => index.names(path.as_bytes()),
            Self::Unknown => true,
        }
    }
}

impl GitIndex {
    /// The index of the repository in the workspace's `.git`; an empty one where there is none.
    pub(crate) fn of(workspace: &Workspace) -> Result<Self, IndexError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let git = match openat(workspace.root_fd(), ".git", flags | OFlags::DIRECTORY, Mode::empty()) {
            Ok(git) => git,
            Err(Errno::NOENT) => return Ok(Self::default()),
            // A worktree's `.git` is a file that says where the index is.
            Err(_) => return Err(IndexError),
        };
        match openat(&git, "index", flags, Mode::empty()) {
            Ok(index) => parse(&read(File::from(index))?),
            Err(Errno::NOENT) if statat(git.as_fd(), "HEAD", AtFlags::SYMLINK_NOFOLLOW).is_ok() => Ok(Self::default()),
            Err(_) => Err(IndexError),
        }
    }

    /// Whether a path is in it.
    pub(crate) fn names(&self, path: &[u8]) -> bool {
        !self.of_path(path).is_empty()
    }

    /// Whether a path is in it with this content.
    pub(crate) fn holds(&self, path: &[u8], content: &[u8]) -> bool {
        let mut hash = Sha1::new();
        hash.update(format!("blob {}\0", content.len()));
        hash.update(content);
        let digest = hash.finalize();
        self.of_path(path).iter().any(|(_, held)| held[..] == digest[..])
    }

    fn of_path(&self, path: &[u8]) -> &[(Vec<u8>, [u8; OBJECT])] {
        let begin = self.0.partition_point(|(name, _)| name.as_slice() < path);
        let count = self.0[begin..].iter().take_while(|(name, _)| name == path).count();
        &self.0[begin..begin + count]
    }
}

fn read(index: File) -> Result<Vec<u8>, IndexError> {
    let mut bytes = Vec::new();
    index.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|_| IndexError)?;
    if bytes.len() as u64 > MAX_BYTES { Err(IndexError) } else { Ok(bytes) }
}

/// An entry before its name: times, numbers, mode, owner and size; the object's id; flags.
const STAT: usize = 40;
const OBJECT: usize = 20;
const EXTENDED: u16 = 0x4000;
/// The length of the name; of a longer one, as much as fits.
const LENGTH: u16 = 0xfff;
/// What ends the file.
const CHECKSUM: usize = 20;

/// Reads an index.
fn parse(bytes: &[u8]) -> Result<GitIndex, IndexError> {
    let body = bytes.len().checked_sub(CHECKSUM).map(|end| &bytes[..end]).ok_or(IndexError)?;
    let number = |at: usize| -> Result<u32, IndexError> {
        let four = body.get(at..at + 4).and_then(|four| four.try_into().ok());
        four.map(u32::from_be_bytes).ok_or(IndexError)
    };
    let (version, count) = (number(4)?, number(8)?);
    if !body.starts_with(b"DIRC") || !(2..=4).contains(&version) {
        return Err(IndexError);
    }
    let (mut entries, mut name, mut at) = (Vec::new(), Vec::new(), 12);
    for _ in 0..count {
        let object =
            body.get(at + STAT..at + STAT + OBJECT).and_then(|bytes| bytes.try_into().ok()).ok_or(IndexError)?;
        let flags = body.get(at + STAT + OBJECT..at + STAT + OBJECT + 2).ok_or(IndexError)?;
        let flags = u16::from_be_bytes([flags[0], flags[1]]);
        let mut begin = at + STAT + OBJECT + if flags & EXTENDED != 0 { 4 } else { 2 };
        let kept = if version == 4 { prefix(body, &mut begin, name.len())? } else { 0 };
        let length = body.get(begin..).and_then(|rest| rest.iter().position(|b| *b == 0)).ok_or(IndexError)?;
        name.truncate(kept);
        name.extend_from_slice(&body[begin..begin + length]);
        // The length is said besides: with longer objects' ids everything stands elsewhere. And a directory of a sparse
        // index stands for files that are not listed.
        let said = usize::from(flags & LENGTH);
        if name.len().min(usize::from(LENGTH)) != said
            || name.is_empty()
            || name.ends_with(b"/")
            || name.len() > EffectPath::MAX_BYTES
        {
            return Err(IndexError);
        }
        entries.push((name.clone(), object));
        let end = begin + length;
        at = if version == 4 { end + 1 } else { at + (end - at) / 8 * 8 + 8 };
    }
    // A split index keeps its files elsewhere.
    while let Some(extension) = body.get(at..at + 4) {
        if extension == b"link" || extension == b"sdir" {
            return Err(IndexError);
        }
        let length = usize::try_from(number(at + 4)?).map_err(|_| IndexError)?;
        at = at.checked_add(8 + length).ok_or(IndexError)?;
    }
    entries.sort_unstable();
    Ok(GitIndex(entries))
}

/// Reads the bytes as an index.
///
/// # Panics
/// When there are more entries than bytes for them, or a content is found that none has.
pub(crate) fn fuzz(bytes: &[u8]) {
    let Ok(index) = parse(bytes) else { return };
    assert!(index.0.len() * 62 <= bytes.len(), "every path has an entry");
    assert!(index.0.iter().all(|(name, _)| index.names(name)), "every path is found");
    assert!(!index.holds(b"\x01", b"no index holds this by accident"));
}

/// How much of the name before is kept: the fourth version says how much is cut off.
fn prefix(body: &[u8], at: &mut usize, before: usize) -> Result<usize, IndexError> {
    let mut cut = 0_usize;
    for place in 0..5 {
        let byte = *body.get(*at).ok_or(IndexError)?;
        *at += 1;
        cut = (cut + usize::from(place > 0)) << 7 | usize::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return before.checked_sub(cut).ok_or(IndexError);
        }
    }
    Err(IndexError)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::process::Command;
    use tempfile::TempDir;

    fn git(root: &Path, args: &[&str]) {
        let done = Command::new("git").current_dir(root).args(args).output().unwrap();
        assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    }

    fn tracked(root: &Path) -> Tracked {
        Tracked::of(&Workspace::open(root).unwrap())
    }

    #[test]
    fn what_git_tracks_is_read_in_every_version() {
        for version in ["2", "3", "4"] {
            let dir = TempDir::new().unwrap();
            let names = ["a", "deep/down/b.rs", "deep/down/b.rs.long-name", "deep/e", "z ž", "new"];
            for name in names {
                let file = dir.path().join(name);
                std::fs::create_dir_all(file.parent().unwrap()).unwrap();
                std::fs::write(file, name).unwrap();
            }
            std::fs::write(dir.path().join("untracked"), "").unwrap();
            assert_eq!(tracked(dir.path()), Tracked::Index(GitIndex::default()), "no repository");
            git(dir.path(), &["init", "-q"]);
            assert_eq!(tracked(dir.path()), Tracked::Index(GitIndex::default()), "nothing added yet");
            git(dir.path(), &["add", "a", "deep", "z ž"]);
            // What is only intended has the longer flags of the third version.
            git(dir.path(), &["add", "-N", "new"]);
            git(dir.path(), &["update-index", "--index-version", version]);
            let index = GitIndex::of(&Workspace::open(dir.path()).unwrap()).unwrap();
            assert_eq!(index.0.len(), names.len(), "{version}");
            for name in names {
                // Of what is only intended there is no content yet.
                assert!(index.names(name.as_bytes()), "{version}: {name}");
                assert_eq!(index.holds(name.as_bytes(), name.as_bytes()), name != "new", "{version}: {name}");
                assert!(!index.holds(name.as_bytes(), b"other"), "{version}: {name}");
            }
            assert!(!index.names(b"untracked"), "{version}");
        }
    }

    #[test]
    fn what_cannot_be_read_leaves_every_path_tracked() {
        let dir = TempDir::new().unwrap();
        std::fs::write(dir.path().join("a"), "").unwrap();
        git(dir.path(), &["init", "-q"]);
        git(dir.path(), &["add", "a"]);
        let index = dir.path().join(".git/index");
        let good = std::fs::read(&index).unwrap();
        for bad in [&b""[..], b"DIRC", &good[..40], &[&b"TREE"[..], &good[4..]].concat()] {
            std::fs::write(&index, bad).unwrap();
            assert_eq!(tracked(dir.path()), Tracked::Unknown);
        }
        std::fs::write(&index, &good).unwrap();
        git(dir.path(), &["update-index", "--split-index"]);
        assert!(tracked(dir.path()).holds(&"anything".parse().unwrap()));
        std::fs::remove_dir_all(dir.path().join(".git")).unwrap();
        git(dir.path(), &["init", "-q", "--object-format=sha256"]);
        git(dir.path(), &["add", "a"]);
        assert_eq!(tracked(dir.path()), Tracked::Unknown);
        std::fs::remove_dir_all(dir.path().join(".git")).unwrap();
        std::fs::write(dir.path().join(".git"), "gitdir: /elsewhere\n").unwrap();
        assert_eq!(tracked(dir.path()), Tracked::Unknown);
        let claims_many = [&b"DIRC\0\0\0\x02\xff\xff\xff\xff"[..], &[0; 100]].concat();
        crate::fuzzing::git_index(&claims_many);
        crate::fuzzing::git_index(&good);
    }

    fn index(entries: &[(&str, &[u8])], version: u32) -> Vec<u8> {
        let mut bytes = b"DIRC".to_vec();
        bytes.extend(version.to_be_bytes());
        bytes.extend(u32::try_from(entries.len()).unwrap().to_be_bytes());
        for (name, content) in entries {
            let start = bytes.len();
            bytes.extend([0; STAT]);
            let mut hash = Sha1::new();
            hash.update(format!("blob {}\0", content.len()));
            hash.update(content);
            bytes.extend(hash.finalize());
            bytes.extend(u16::try_from(name.len().min(0xfff)).unwrap().to_be_bytes());
            bytes.extend(name.bytes());
            let length = bytes.len() - start;
            bytes.extend(vec![0; 8 - length % 8]);
        }
        bytes.extend([0; CHECKSUM]);
        bytes
    }

    #[test]
    fn a_path_is_held_with_the_very_content_alone() {
        let long = "d/".repeat(2040) + "a-name-in-full16";
        assert!(long.len() > 0xfff && long.len() <= EffectPath::MAX_BYTES);
        let bytes = index(&[(".env", b"A=1\n"), (".env", b"B=1\n"), (&long, b""), ("z", b"z")], 2);
        let held = |bytes: &[u8], path: &str, content: &[u8]| {
            parse(bytes).is_ok_and(|index| index.holds(path.as_bytes(), content))
        };
        assert!(held(&bytes, ".env", b"A=1\n") && held(&bytes, ".env", b"B=1\n"), "both sides of a merge");
        assert!(held(&bytes, &long, b"") && held(&bytes, "z", b"z"));
        assert!(!held(&bytes, ".env", b"A=2\n") && !held(&bytes, "z", b"A=1\n") && !held(&bytes, "y", b"z"));
        for version in [1, 4, 5] {
            let mut other = bytes.clone();
            other[4..8].copy_from_slice(&u32::to_be_bytes(version));
            assert_eq!(parse(&other), Err(IndexError), "{version}");
        }
    }

    #[test]
    fn an_index_that_is_cut_holds_nothing() {
        let bytes = index(&[("a", b"1"), ("b", b"2")], 3);
        for length in 0..bytes.len() {
            assert_eq!(parse(&bytes[..length]), Err(IndexError), "{length}");
        }
        for at in 0..bytes.len() {
            let mut spoilt = bytes.clone();
            spoilt[at] ^= 0xff;
            fuzz(&spoilt);
        }
    }
}

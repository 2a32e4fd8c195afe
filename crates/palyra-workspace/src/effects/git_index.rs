//! Git's index: which paths a repository tracks. A rule can then tell a deleted source file from a deleted build.
//!
//! The index lies in the workspace, so it is hostile. What this cannot read, and the forms that name files elsewhere
//! (split and sparse indexes), leave every path tracked: a rule that asks about tracked files asks then.

use crate::Workspace;
use palyra_protocol::EffectPath;
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, Mode, OFlags, openat, statat};
use rustix::io::Errno;
use std::collections::HashSet;
use std::fs::File;
use std::io::Read as _;

/// The largest index that is read: a million files.
const MAX_BYTES: u64 = 128 << 20;

/// The paths that the repository at the workspace's top tracks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tracked {
    /// These.
    Paths(HashSet<Vec<u8>>),
    /// It cannot be told: any.
    Unknown,
}

/// An index that is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the index of the repository is damaged, or of a form that is not read")]
pub(crate) struct IndexError;

impl Tracked {
    /// Reads the index of the repository in `.git`; without one nothing is tracked.
    #[must_use]
    pub fn of(workspace: &Workspace) -> Self {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let git = match openat(workspace.root_fd(), ".git", flags | OFlags::DIRECTORY, Mode::empty()) {
            Ok(git) => git,
            Err(Errno::NOENT) => return Self::Paths(HashSet::new()),
            // A worktree's `.git` is a file that says where the index is.
            Err(_) => return Self::Unknown,
        };
        match openat(&git, "index", flags, Mode::empty()) {
            Ok(index) => read(File::from(index)).and_then(|bytes| parse(&bytes)).map_or(Self::Unknown, Self::Paths),
            Err(Errno::NOENT) if statat(git.as_fd(), "HEAD", AtFlags::SYMLINK_NOFOLLOW).is_ok() => {
                Self::Paths(HashSet::new())
            }
            Err(_) => Self::Unknown,
        }
    }

    /// Whether a path is tracked.
    #[must_use]
    pub fn holds(&self, path: &EffectPath) -> bool {
        match self {
            Self::Paths(paths) => paths.contains(path.as_bytes()),
            Self::Unknown => true,
        }
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

/// The paths in an index.
pub(crate) fn parse(bytes: &[u8]) -> Result<HashSet<Vec<u8>>, IndexError> {
    let body = bytes.len().checked_sub(CHECKSUM).map(|end| &bytes[..end]).ok_or(IndexError)?;
    let number = |at: usize| -> Result<u32, IndexError> {
        let four = body.get(at..at + 4).and_then(|four| four.try_into().ok());
        four.map(u32::from_be_bytes).ok_or(IndexError)
    };
    let (version, count) = (number(4)?, number(8)?);
    if !body.starts_with(b"DIRC") || !(2..=4).contains(&version) {
        return Err(IndexError);
    }
    let (mut paths, mut name, mut at) = (HashSet::new(), Vec::new(), 12);
    for _ in 0..count {
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
        paths.insert(name.clone());
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
    Ok(paths)
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
            assert_eq!(tracked(dir.path()), Tracked::Paths(HashSet::new()), "no repository");
            git(dir.path(), &["init", "-q"]);
            assert_eq!(tracked(dir.path()), Tracked::Paths(HashSet::new()), "nothing added yet");
            git(dir.path(), &["add", "a", "deep", "z ž"]);
            // What is only intended has the longer flags of the third version.
            git(dir.path(), &["add", "-N", "new"]);
            git(dir.path(), &["update-index", "--index-version", version]);
            let expect = names.map(|name| name.as_bytes().to_vec());
            assert_eq!(tracked(dir.path()), Tracked::Paths(expect.into()), "{version}");
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
}

//! A file that is looked at: opened once, everything about it learnt through that one descriptor.
//!
//! A path that was looked at twice may have named two files. So a program is opened by its real path, following no
//! symlink, and its identity, its rights, its first bytes and whatever is compared come from there; at the end its
//! identity is taken again, and what changed meanwhile is refused. Nothing here may open the same path a second time.

use super::file::{self, FileIdentity};
use palyra_protocol::Digest;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// The kernel reads this much of a script's first line.
const HEAD_BYTES: usize = 256;

/// Larger files are known by their identity alone: what is executed of them is the file itself, too.
const MOST_READ_BYTES: u64 = 64 << 20;

/// One opened file.
#[derive(Debug)]
pub(crate) struct Opened {
    file: File,
    identity: FileIdentity,
    may_execute: bool,
    of_system: bool,
}

impl Opened {
    /// Opens the file at a real path.
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        let file = open(path)?;
        let metadata = file.metadata()?;
        let (may_execute, of_system) = (file::may_execute(&metadata), file::belongs_to_system(&metadata));
        Ok(Self { identity: FileIdentity::of_file(&file)?, may_execute, of_system, file })
    }

    pub(crate) fn identity(&self) -> FileIdentity {
        self.identity
    }

    pub(super) fn may_execute(&self) -> bool {
        self.may_execute
    }

    /// Whether nobody but the system's owner can change it, as far as its owner tells.
    pub(super) fn of_system(&self) -> bool {
        self.of_system
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// The descriptor itself.
    #[cfg(target_os = "linux")]
    pub(crate) fn into_file(self) -> File {
        self.file
    }

    /// The first bytes, no more than the kernel looks at.
    pub(super) fn head(&self) -> io::Result<Vec<u8>> {
        let mut head = vec![0; HEAD_BYTES];
        let length = read_at(&self.file, &mut head, 0)?;
        head.truncate(length);
        Ok(head)
    }

    /// What it holds; none of one that is too large to be read each time.
    pub(super) fn sha256(&self) -> io::Result<Option<Digest>> {
        sha256(&self.file)
    }

    /// Whether nothing was written to it since it was opened.
    pub(crate) fn is_unchanged(&self) -> bool {
        FileIdentity::of_file(&self.file).is_ok_and(|now| now == self.identity)
    }
}

/// Opens a file for reading, never waiting for a pipe's other end. No part of the path may be a symlink.
#[cfg(target_os = "linux")]
fn open(path: &Path) -> io::Result<File> {
    use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let plain = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(openat2(CWD, path, flags, Mode::empty(), plain)?.into())
}

#[cfg(all(unix, not(target_os = "linux")))]
fn open(path: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

#[cfg(not(unix))]
fn open(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// What a file holds; none of one that is too large to be read each time.
pub(super) fn sha256(mut file: &File) -> io::Result<Option<Digest>> {
    if file.metadata()?.len() > MOST_READ_BYTES {
        return Ok(None);
    }
    file.seek(SeekFrom::Start(0))?;
    // Not to the end of a file that grows.
    Digest::of_reader(file.take(MOST_READ_BYTES)).map(Some)
}

/// Fills as much of `buffer` as the file has from `offset` on.
pub(super) fn read_at(mut file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    file.seek(SeekFrom::Start(offset))?;
    let mut length = 0;
    while length < buffer.len() {
        match file.read(&mut buffer[length..]) {
            Ok(0) => break,
            Ok(n) => length += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    #[test]
    fn no_symlink_is_followed_and_no_pipe_waited_for() {
        let dir = TempDir::new().unwrap();
        let top = dir.path().canonicalize().unwrap();
        fs::create_dir(top.join("real")).unwrap();
        fs::write(top.join("real/file"), "x").unwrap();
        symlink("real", top.join("link")).unwrap();
        symlink("file", top.join("real/link")).unwrap();
        assert!(Opened::at(&top.join("real/file")).is_ok());
        assert!(Opened::at(&top.join("link/file")).is_err());
        assert!(Opened::at(&top.join("real/link")).is_err());
        rustix::fs::mknodat(rustix::fs::CWD, top.join("pipe"), rustix::fs::FileType::Fifo, 0o755.into(), 0).unwrap();
        assert!(!Opened::at(&top.join("pipe")).unwrap().may_execute());
    }

    #[test]
    fn what_is_written_meanwhile_shows() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().canonicalize().unwrap().join("file");
        fs::write(&path, "one").unwrap();
        let opened = Opened::at(&path).unwrap();
        assert!(opened.is_unchanged());
        fs::write(&path, "longer").unwrap();
        assert!(!opened.is_unchanged());
    }
}

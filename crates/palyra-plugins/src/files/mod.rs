//! Files beneath a directory: no link is followed and nothing above it is ever named.
//!
//! Every step of a path is one `openat` with `O_NOFOLLOW` from the directory before it, so that a link that somebody
//! puts in the way at the last moment is an error, not a way out. Only files and directories are opened; a pipe or
//! device that lies in the workspace is looked at and left alone.

use crate::doors::{FileFault, FilesDoor, OpenHow, Opened};
use crate::names::WorkspacePath;
use crate::record::{FileKind, FileStatus};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, mkdirat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The most entries of a directory that are told.
const MOST_ENTRIES: usize = 10_000;

/// A directory that stands for the workspace: changes count at once.
#[derive(Debug)]
pub struct DirectoryFiles {
    base: OwnedFd,
}

impl DirectoryFiles {
    /// The files beneath a directory.
    #[must_use]
    pub fn new(base: OwnedFd) -> Self {
        Self { base }
    }
}

fn text(path: &WorkspacePath) -> String {
    path.names().collect::<Vec<_>>().join("/")
}

impl FilesDoor for DirectoryFiles {
    fn open(&self, path: &WorkspacePath, how: OpenHow) -> Result<Opened, FileFault> {
        open(self.base.as_fd(), &text(path), how)
    }

    fn status(&self, path: &WorkspacePath) -> Result<FileStatus, FileFault> {
        status(self.base.as_fd(), &text(path))
    }

    fn entries(&self, path: &WorkspacePath) -> Result<Vec<(String, FileKind)>, FileFault> {
        entries(open_beneath(self.base.as_fd(), path)?.as_fd())
    }

    fn create_directory(&self, path: &WorkspacePath) -> Result<(), FileFault> {
        create_directory(self.base.as_fd(), &text(path))
    }

    fn remove(&self, path: &WorkspacePath, what: FileKind) -> Result<(), FileFault> {
        remove(self.base.as_fd(), &text(path), what)
    }

    fn rename(&self, from: &WorkspacePath, to: &WorkspacePath) -> Result<(), FileFault> {
        rename(self.base.as_fd(), &text(from), &text(to))
    }
}

/// Says what a failed system call means to a guest.
pub(crate) fn fault(error: Errno) -> FileFault {
    match error {
        Errno::NOENT => FileFault::NoEntry,
        Errno::EXIST => FileFault::Exists,
        Errno::LOOP | Errno::MLINK => FileFault::Link,
        Errno::ISDIR => FileFault::IsDirectory,
        Errno::NOTDIR => FileFault::NotDirectory,
        Errno::NOTEMPTY => FileFault::NotEmpty,
        Errno::ACCESS | Errno::PERM | Errno::ROFS => FileFault::Access,
        Errno::INVAL => FileFault::Invalid,
        Errno::NAMETOOLONG => FileFault::NameTooLong,
        Errno::NOSPC | Errno::DQUOT => FileFault::NoSpace,
        Errno::FBIG | Errno::OVERFLOW => FileFault::TooLarge,
        Errno::XDEV => FileFault::CrossDevice,
        _ => FileFault::Io,
    }
}

/// The directory that holds a path's last name, and that name; nothing for the base itself.
fn parent<'a>(base: BorrowedFd<'_>, path: &'a str) -> Result<Option<(OwnedFd, &'a str)>, FileFault> {
    let mut names = path.split('/').filter(|name| !name.is_empty()).peekable();
    let mut here = open_directory(base, ".")?;
    while let Some(name) = names.next() {
        if names.peek().is_none() {
            return Ok(Some((here, name)));
        }
        here = open_directory(here.as_fd(), name)?;
    }
    Ok(None)
}

fn open_directory(base: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, FileFault> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(base, name, flags, Mode::empty()).map_err(|error| match error {
        // With both flags a link is "not a directory".
        Errno::NOTDIR if is_link(base, name) => FileFault::Link,
        error => fault(error),
    })
}

fn is_link(base: BorrowedFd<'_>, name: &str) -> bool {
    statat(base, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|status| kind(&status) == FileKind::Link)
}

/// Opens a directory beneath another.
fn open_beneath(base: BorrowedFd<'_>, path: &WorkspacePath) -> Result<OwnedFd, FileFault> {
    path.names().try_fold(open_directory(base, ".")?, |here, name| open_directory(here.as_fd(), name))
}

/// Opens a file or directory.
fn open(base: BorrowedFd<'_>, path: &str, how: OpenHow) -> Result<Opened, FileFault> {
    let Some((parent, name)) = parent(base, path)? else {
        return if how.exclusive { Err(FileFault::Exists) } else { Ok(Opened::Directory) };
    };
    let there = match statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(status) => Some(kind(&status)),
        Err(Errno::NOENT) if how.create => None,
        Err(error) => return Err(fault(error)),
    };
    match there {
        Some(FileKind::Link) => return Err(FileFault::Link),
        Some(FileKind::Other) => return Err(FileFault::NotPermitted),
        Some(FileKind::Directory) if how.write => return Err(FileFault::IsDirectory),
        Some(FileKind::Directory) if !how.exclusive => return Ok(Opened::Directory),
        Some(FileKind::File) if how.directory => return Err(FileFault::NotDirectory),
        _ => {}
    }
    let mut flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    flags |= match (how.read, how.write) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        (_, false) => OFlags::RDONLY,
    };
    for (wanted, flag) in [(how.create, OFlags::CREATE), (how.exclusive, OFlags::EXCL), (how.truncate, OFlags::TRUNC)] {
        flags.set(flag, wanted);
    }
    let file = openat(&parent, name, flags, Mode::from_raw_mode(0o644)).map_err(fault)?;
    // What was looked at may have been replaced since.
    match kind(&fstat(&file).map_err(fault)?) {
        FileKind::File => Ok(Opened::File(file)),
        _ => Err(FileFault::NotPermitted),
    }
}

/// What is at a path; a link is told as a link.
fn status(base: BorrowedFd<'_>, path: &str) -> Result<FileStatus, FileFault> {
    let status = match parent(base, path)? {
        Some((parent, name)) => statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW),
        None => fstat(base),
    };
    Ok(told(&status.map_err(fault)?))
}

/// What an open file is.
pub(crate) fn status_of(file: BorrowedFd<'_>) -> Result<FileStatus, FileFault> {
    Ok(told(&fstat(file).map_err(fault)?))
}

/// Everything in a directory, in order. Names that are no text are left out.
fn entries(directory: BorrowedFd<'_>) -> Result<Vec<(String, FileKind)>, FileFault> {
    let mut found = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory).map_err(fault)? {
        let entry = entry.map_err(fault)?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        if matches!(name, "." | "..") {
            continue;
        }
        if found.len() == MOST_ENTRIES {
            return Err(FileFault::TooLarge);
        }
        let kind = match entry.file_type() {
            FileType::Unknown => {
                statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).map_or(FileKind::Other, |s| kind(&s))
            }
            known => kind_of(known),
        };
        found.push((name.to_owned(), kind));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}

/// Creates a directory.
fn create_directory(base: BorrowedFd<'_>, path: &str) -> Result<(), FileFault> {
    let (parent, name) = parent(base, path)?.ok_or(FileFault::Exists)?;
    mkdirat(&parent, name, Mode::from_raw_mode(0o755)).map_err(fault)
}

/// Removes a file, or an empty directory.
fn remove(base: BorrowedFd<'_>, path: &str, what: FileKind) -> Result<(), FileFault> {
    let (parent, name) = parent(base, path)?.ok_or(FileFault::NotPermitted)?;
    let flags = if what == FileKind::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    unlinkat(&parent, name, flags).map_err(fault)
}

/// Renames a file or directory.
fn rename(base: BorrowedFd<'_>, from: &str, to: &str) -> Result<(), FileFault> {
    let (old, old_name) = parent(base, from)?.ok_or(FileFault::NotPermitted)?;
    let (new, new_name) = parent(base, to)?.ok_or(FileFault::NotPermitted)?;
    renameat(&old, old_name, &new, new_name).map_err(fault)
}

fn told(status: &Stat) -> FileStatus {
    let seconds = u64::try_from(status.st_mtime).unwrap_or(0);
    // The type of nanoseconds differs between platforms.
    let ms = u64::try_from(i128::from(status.st_mtime_nsec)).unwrap_or(0) / 1_000_000;
    let kind = kind(status);
    let size = if kind == FileKind::File { u64::try_from(status.st_size).unwrap_or(0) } else { 0 };
    FileStatus { kind, size, modified_ms: seconds.saturating_mul(1000).saturating_add(ms) }
}

fn kind(status: &Stat) -> FileKind {
    kind_of(FileType::from_raw_mode(status.st_mode))
}

fn kind_of(file_type: FileType) -> FileKind {
    match file_type {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Link,
        _ => FileKind::Other,
    }
}

#[cfg(test)]
mod tests;

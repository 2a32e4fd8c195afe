//! Opening: from a resolved path to a descriptor, by a way on which no link is followed.
//!
//! On Linux the kernel does it in one step, `openat2` with `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
//! RESOLVE_NO_MAGICLINKS`; elsewhere, or where that call is missing or filtered, we walk component by component with
//! `O_NOFOLLOW`, which has the same outcome at the price of one call each. The last component of a file is opened from
//! its directory's descriptor with `O_NOFOLLOW`, after a look at what it is, so that no FIFO blocks us and no device
//! is disturbed. This file must never use an absolute path and never follow a link.

use super::Workspace;
use super::error::{FileError, at, shown};
use super::path::ResolvedPath;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;

/// What a directory's descriptor is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DirUse {
    /// To look names up in it; needs no right to read the directory.
    Lookup,
    /// To read its names, or to sync it.
    Content,
}

impl DirUse {
    fn flags(self) -> OFlags {
        let access = match self {
            #[cfg(any(target_os = "linux", target_os = "android"))]
            Self::Lookup => OFlags::PATH,
            #[cfg(not(any(target_os = "linux", target_os = "android")))]
            Self::Lookup => OFlags::RDONLY,
            Self::Content => OFlags::RDONLY,
        };
        access | OFlags::DIRECTORY | OFlags::CLOEXEC
    }
}

impl Workspace {
    /// Opens the directory at a path in normal form.
    pub(super) fn open_dir(&self, relative: &str, usage: DirUse) -> Result<OwnedFd, FileError> {
        let root = self.root_fd();
        if relative == "." {
            return openat(root, ".", usage.flags(), Mode::empty()).map_err(at(relative));
        }
        #[cfg(any(target_os = "linux", target_os = "android"))]
        match open_beneath(root, relative, usage.flags()) {
            // A missing call, or one that a container's filter refuses: the walk gives the same answer.
            Err(Errno::NOSYS | Errno::PERM) => {}
            other => return other.map_err(at(relative)),
        }
        walk_dir(root, relative, usage)
    }

    /// Opens the directory that holds `path`, and gives the name in it.
    pub(super) fn open_parent<'p>(
        &self,
        path: &'p ResolvedPath,
        usage: DirUse,
    ) -> Result<(OwnedFd, &'p str), FileError> {
        let Some((parent, name)) = path.split() else {
            return Err(FileError::IsDirectory { path: ".".to_owned() });
        };
        let dir = self.open_dir(parent, usage).map_err(|error| match error {
            FileError::NotFound { .. } => FileError::NotFound { path: shown(path.as_str()) },
            other => other,
        })?;
        Ok((dir, name))
    }

    /// Opens a regular file for reading.
    pub(super) fn open_file(&self, path: &ResolvedPath) -> Result<(OwnedFd, Stat), FileError> {
        let (dir, name) = self.open_parent(path, DirUse::Lookup)?;
        open_regular(dir.as_fd(), name, path.as_str(), OFlags::RDONLY)
    }
}

/// Opens the regular file `name` of a directory; anything else is a typed error.
pub(super) fn open_regular<P: rustix::path::Arg + Copy>(
    dir: BorrowedFd<'_>,
    name: P,
    shown_as: &str,
    access: OFlags,
) -> Result<(OwnedFd, Stat), FileError> {
    // The look before the open spares devices an open; the look after it is the one that counts.
    require_regular(&statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(at(shown_as))?, shown_as)?;
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat(dir, name, flags, Mode::empty()).map_err(at(shown_as))?;
    let stat = fstat(&file).map_err(at(shown_as))?;
    require_regular(&stat, shown_as)?;
    Ok((file, stat))
}

/// Refuses everything that is not a regular file.
pub(super) fn require_regular(stat: &Stat, path: &str) -> Result<(), FileError> {
    let path = || shown(path);
    match file_type(stat) {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(FileError::IsDirectory { path: path() }),
        FileType::Symlink => Err(FileError::SymlinkRace { path: path() }),
        FileType::Fifo => Err(FileError::NotRegular { path: path(), kind: "a named pipe" }),
        FileType::Socket => Err(FileError::NotRegular { path: path(), kind: "a socket" }),
        _ => Err(FileError::NotRegular { path: path(), kind: "a device" }),
    }
}

/// What kind of thing a stat describes.
pub(super) fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn open_beneath(root: BorrowedFd<'_>, relative: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    use rustix::fs::ResolveFlags;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(root, relative, flags, Mode::empty(), resolve)
}

/// The portable way: one `openat` per component, none of which may be a link.
pub(super) fn walk_dir(root: BorrowedFd<'_>, relative: &str, usage: DirUse) -> Result<OwnedFd, FileError> {
    let mut dir: Option<OwnedFd> = None;
    let mut components = relative.split('/').peekable();
    while let Some(name) = components.next() {
        let step = if components.peek().is_some() { DirUse::Lookup } else { usage };
        let from = dir.as_ref().map_or(root, AsFd::as_fd);
        dir = Some(open_subdir(from, name, relative, step)?);
    }
    dir.ok_or_else(|| FileError::InvalidPath { path: shown(relative), reason: "it is empty" })
}

/// Opens the directory `name` of a directory, refusing a link of that name.
pub(super) fn open_subdir<P: rustix::path::Arg + Copy>(
    from: BorrowedFd<'_>,
    name: P,
    shown_as: &str,
    usage: DirUse,
) -> Result<OwnedFd, FileError> {
    openat(from, name, usage.flags() | OFlags::NOFOLLOW, Mode::empty()).map_err(|errno| {
        // With `O_DIRECTORY` a link gives ENOTDIR on some kernels and ELOOP on others: look which it was.
        let is_link = matches!(errno, Errno::NOTDIR | Errno::LOOP | Errno::MLINK)
            && statat(from, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| file_type(&stat) == FileType::Symlink);
        if is_link { FileError::SymlinkRace { path: shown(shown_as) } } else { FileError::from_errno(shown_as, errno) }
    })
}

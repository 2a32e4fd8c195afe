//! The few system calls that effects are made of: opening beneath a directory, identities, renames between directories.
//!
//! Paths are bytes, because file names are. Nothing here follows a link or uses an absolute path.

use super::error::{EffectError, at};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, Stat, openat, statat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::ffi::CString;

/// Which entry it was, and in which state.
///
/// The change time is left out: a rename changes it, and renames are how entries move here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileId {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) size: i64,
    pub(super) modified: (i64, i64),
}

impl FileId {
    #[expect(clippy::useless_conversion, clippy::unnecessary_cast, reason = "the fields' types differ between systems")]
    pub(super) fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev as u64,
            inode: stat.st_ino.into(),
            size: stat.st_size,
            modified: (stat.st_mtime.into(), i64::try_from(stat.st_mtime_nsec).unwrap_or(0)),
        }
    }

    /// Whether it is the same entry, whatever its state. A directory's size and times change with what is in it.
    pub(super) fn is_same_entry(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

/// When an entry last changed in any way.
#[expect(clippy::useless_conversion, reason = "the fields' types differ between systems")]
pub(super) fn changed_at(stat: &Stat) -> (i64, i64) {
    (stat.st_ctime.into(), i64::try_from(stat.st_ctime_nsec).unwrap_or(0))
}

pub(super) fn kind_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// The permissions without set-id bits, which new content has not earned.
pub(super) fn plain_mode(stat: &Stat) -> u32 {
    stat.st_mode & 0o1777
}

/// Whether an entry would run, or make new entries, as another user.
pub(super) fn has_set_id(stat: &Stat) -> bool {
    stat.st_mode & 0o6000 != 0
}

/// Whether an upper layer's entry says that the lower one is deleted.
pub(super) fn is_whiteout(stat: &Stat) -> bool {
    kind_of(stat) == FileType::CharacterDevice && stat.st_rdev == 0
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

/// Opens a directory beneath another, following no link. Empty means the directory itself.
pub(super) fn open_dir(from: BorrowedFd<'_>, relative: &[u8]) -> Result<OwnedFd, Errno> {
    if relative.is_empty() {
        return openat(from, ".", DIRECTORY, Mode::empty());
    }
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        use rustix::fs::ResolveFlags;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(from, relative, DIRECTORY, Mode::empty(), resolve) {
            // A missing call, or one that a container's filter refuses: the walk gives the same answer.
            Err(Errno::NOSYS | Errno::PERM) => {}
            other => return other,
        }
    }
    let mut directory: Option<OwnedFd> = None;
    for part in relative.split(|b| *b == b'/') {
        let here = directory.as_ref().map_or(from, AsFd::as_fd);
        directory = Some(openat(here, part, DIRECTORY, Mode::empty())?);
    }
    directory.ok_or(Errno::NOENT)
}

/// What stands at a name; nothing if nothing does.
pub(super) fn look(directory: BorrowedFd<'_>, name: &[u8]) -> Result<Option<Stat>, EffectError> {
    match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(EffectError::at(name, errno)),
    }
}

/// The names in a directory, sorted.
pub(super) fn names(directory: &OwnedFd, what: &[u8]) -> Result<Vec<CString>, EffectError> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory).map_err(at(what))? {
        let entry = entry.map_err(at(what))?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Moves an entry; fails with `EEXIST` when something is in its place.
pub(super) fn move_new(from: (BorrowedFd<'_>, &[u8]), to: (BorrowedFd<'_>, &[u8])) -> Result<(), Errno> {
    rustix::fs::renameat_with(from.0, from.1, to.0, to.1, RenameFlags::NOREPLACE)
}

/// Exchanges two entries.
pub(super) fn exchange(one: (BorrowedFd<'_>, &[u8]), other: (BorrowedFd<'_>, &[u8])) -> Result<(), Errno> {
    rustix::fs::renameat_with(one.0, one.1, other.0, other.1, RenameFlags::EXCHANGE)
}

/// Changes the permissions of an entry that is not a link.
pub(super) fn set_mode(directory: BorrowedFd<'_>, name: &[u8], mode: u32) -> Result<(), Errno> {
    let file = openat(directory, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    if kind_of(&stat) == FileType::Symlink {
        return Err(Errno::LOOP);
    }
    set_mode_of(&file, mode)
}

/// Changes the permissions of what a descriptor was opened for as a path.
pub(super) fn set_mode_of(file: &OwnedFd, mode: u32) -> Result<(), Errno> {
    // `fchmod` refuses such a descriptor; the entry of the process's own descriptors does not.
    let itself = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
    rustix::fs::chmod(itself, Mode::from_raw_mode(mode))
}

/// Sets the modification time of a directory.
pub(super) fn set_directory_time(directory: &OwnedFd, modified: (i64, i64)) -> Result<(), Errno> {
    use rustix::fs::{Timespec, Timestamps, UTIME_OMIT, futimens};
    let keep = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let modified = Timespec { tv_sec: modified.0, tv_nsec: modified.1 };
    futimens(directory, &Timestamps { last_access: keep, last_modification: modified })
}

/// Gives a file a change time that is later than every change before this call; later changes are not earlier than it.
///
/// File systems take their time from a clock that moves every few milliseconds. Since Linux 6.13 a file whose time was
/// looked at gets an exact one with its next change; elsewhere this waits for the clock.
pub(super) fn mark_time(file: &OwnedFd) -> Result<(i64, i64), Errno> {
    let first = changed_at(&rustix::fs::fstat(file)?);
    loop {
        rustix::fs::fchmod(file, Mode::RUSR | Mode::WUSR)?;
        let now = changed_at(&rustix::fs::fstat(file)?);
        if now > first {
            return Ok(now);
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

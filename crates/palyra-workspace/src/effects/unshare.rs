//! Entries that wait for a person share no file with the workspace.
//!
//! A run can give one file two names, of which one waits and the other counts. Whoever writes the one in place would
//! change what a person is looking at, or has already approved. So a file that waits and has further names becomes a
//! file of its own.

use super::error::{EffectError, at};
use super::sys::{FileId, kind_of, look, names, open_dir, plain_mode, set_mode};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Gid, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps, Uid, openat};
use rustix::io::Errno;
use std::fs::File;

/// Gives every file of an entry of the store that has further names one of its own. The depth was looked at before.
pub(super) fn unshare(directory: BorrowedFd<'_>, name: &[u8]) -> Result<(), EffectError> {
    let Some(stat) = look(directory, name)? else { return Ok(()) };
    match kind_of(&stat) {
        FileType::RegularFile if stat.st_nlink > 1 => copied(directory, name, &stat),
        FileType::Directory => {
            let below = open_dir(directory, name).map_err(at(name))?;
            names(&below, name)?.iter().try_for_each(|entry| unshare(below.as_fd(), entry.to_bytes()))
        }
        _ => Ok(()),
    }
}

fn copied(directory: BorrowedFd<'_>, name: &[u8], stat: &Stat) -> Result<(), EffectError> {
    let mode = plain_mode(stat);
    if mode & 0o400 == 0 {
        set_mode(directory, name, mode | 0o400).map_err(at(name))?;
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut old = File::from(openat(directory, name, flags, Mode::empty()).map_err(at(name))?);
    let (fresh, file) = fresh(directory)?;
    let mut new = File::from(file);
    std::io::copy(&mut old, &mut new).map_err(|source| match Errno::from_io_error(&source) {
        Some(errno) => EffectError::at(name, errno),
        None => EffectError::Io { what: String::from_utf8_lossy(name).into_owned(), source },
    })?;
    if rustix::process::geteuid().is_root() {
        let owner = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
        rustix::fs::fchown(&new, Some(owner.0), Some(owner.1)).map_err(at(name))?;
    }
    rustix::fs::fchmod(&new, Mode::from_raw_mode(mode)).map_err(at(name))?;
    let (tv_sec, tv_nsec) = FileId::of(stat).modified;
    let last = Timespec { tv_sec, tv_nsec };
    rustix::fs::futimens(&new, &Timestamps { last_access: last, last_modification: last }).map_err(at(name))?;
    rustix::fs::renameat_with(directory, fresh.as_str(), directory, name, RenameFlags::empty()).map_err(at(name))
}

/// A new file under a name that nothing has.
fn fresh(directory: BorrowedFd<'_>) -> Result<(String, OwnedFd), EffectError> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for number in 0_u32.. {
        let name = format!(".unshared-{number}");
        match openat(directory, name.as_str(), flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => return Ok((name, file)),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(EffectError::at(name.as_bytes(), errno)),
        }
    }
    Err(EffectError::TooDeep)
}

//! Two renames that POSIX lacks: one that never replaces, and one that exchanges two names.
//!
//! Both stay inside one directory. Linux and macOS have them as one atomic step; other systems, and file systems that
//! refuse the flags, get the nearest thing built from links and plain renames. Neither may ever remove a file that was
//! not named.

use rustix::fd::BorrowedFd;
use rustix::fs::{AtFlags, linkat, unlinkat};
use rustix::io::Result;

/// Moves `from` to `to`; fails with `EEXIST` when `to` exists, whatever it is.
pub(super) fn rename_no_replace(dir: BorrowedFd<'_>, from: &str, to: &str) -> Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
    match rustix::fs::renameat_with(dir, from, dir, to, rustix::fs::RenameFlags::NOREPLACE) {
        Err(errno) if unsupported(errno) => {}
        other => return other,
    }
    link_then_unlink(dir, from, to)
}

/// Exchanges the two names.
pub(super) fn exchange(dir: BorrowedFd<'_>, one: &str, other: &str) -> Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
    match rustix::fs::renameat_with(dir, one, dir, other, rustix::fs::RenameFlags::EXCHANGE) {
        Err(errno) if unsupported(errno) => {}
        result => return result,
    }
    exchange_in_three(dir, one, other)
}

#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
fn unsupported(errno: rustix::io::Errno) -> bool {
    use rustix::io::Errno;
    // Two names for one number on Linux, two numbers elsewhere: hence no pattern.
    [Errno::INVAL, Errno::NOSYS, Errno::NOTSUP, Errno::OPNOTSUPP].contains(&errno)
}

/// A hard link never replaces anything.
pub(super) fn link_then_unlink(dir: BorrowedFd<'_>, from: &str, to: &str) -> Result<()> {
    linkat(dir, from, dir, to, AtFlags::empty())?;
    unlinkat(dir, from, AtFlags::empty())
}

/// For a moment `other` does not exist; a crash then leaves its content under the third name.
pub(super) fn exchange_in_three(dir: BorrowedFd<'_>, one: &str, other: &str) -> Result<()> {
    let third = format!("{one}-x");
    rename_no_replace(dir, other, &third)?;
    if let Err(errno) = rename_no_replace(dir, one, other) {
        rename_no_replace(dir, &third, other)?;
        return Err(errno);
    }
    rename_no_replace(dir, &third, one)
}

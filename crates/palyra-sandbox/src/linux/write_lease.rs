//! Keeping writers away from a program between the last look at it and its start.
//!
//! While a program runs, the kernel lets nobody open it for writing. Before that only a lease does: as long as it is
//! held, an `open` for writing waits. It belongs to the open file, so that it ends by itself when the command was
//! executed and the last descriptor closed. A lease cannot be had while somebody has the file open for writing already;
//! nor could the file be executed then.
#![expect(unsafe_code, reason = "rustix has no leases")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// How often a file that somebody writes to is tried again, and after what pause: longer than a start takes.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(5);

/// Takes a lease.
///
/// # Errors
/// `WouldBlock` when the file is open for writing; anything else when there are no leases here for us.
pub(super) fn take(file: &File) -> io::Result<()> {
    // The same on every architecture that Linux has; libc does not know it.
    const F_SETSIG: libc::c_int = 10;
    // The kernel tells the holder when somebody waits, by a signal that would end the daemon; this one is ignored by
    // default. SAFETY: numbers only.
    check(unsafe { libc::fcntl(file.as_raw_fd(), F_SETSIG, libc::SIGURG) })?;
    let mut tries = TRIES;
    loop {
        // SAFETY: numbers only.
        match check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) }) {
            // A process that is being started has copies of the daemon's descriptors for a moment, also of one by which
            // a file tool wrote this very file.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && tries > 0 => {
                tries -= 1;
                std::thread::sleep(PAUSE);
            }
            taken => return taken,
        }
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags};
    use rustix::io::Errno;

    #[test]
    fn nobody_writes_while_it_is_held_and_it_ends_with_the_file() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "x").unwrap();
        let write = || rustix::fs::open(&path, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty());
        let held = File::open(&path).unwrap();
        take(&held).unwrap();
        assert_eq!(write().unwrap_err(), Errno::WOULDBLOCK);
        drop(held);
        let writer = write().unwrap();
        let refused = take(&File::open(&path).unwrap()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        drop(writer);
    }
}

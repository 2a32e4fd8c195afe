//! Waiting for sockets, a deadline and the order to stop, whichever comes first.

use crate::CancelSignal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

/// What ended a wait.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Woken<const N: usize> {
    /// At least one descriptor has something; in the order given.
    Ready([PollFlags; N]),
    Timeout,
    Stopped,
}

/// Waits. A descriptor that nothing is wanted of is left out, so that its errors cannot make the wait spin.
pub(super) fn wait<const N: usize>(
    stop: &CancelSignal,
    wanted: [(BorrowedFd<'_>, PollFlags); N],
    deadline: Instant,
) -> io::Result<Woken<N>> {
    let mut fds = vec![PollFd::from_borrowed_fd(stop.fd(), PollFlags::IN)];
    let asked = wanted.iter().filter(|(_, flags)| !flags.is_empty());
    fds.extend(asked.map(|(fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)));
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: i64::from(i32::MAX), tv_nsec: 0 });
        match poll(&mut fds, Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(0) => return Ok(Woken::Timeout),
            Ok(_) if !fds[0].revents().is_empty() => return Ok(Woken::Stopped),
            Ok(_) => break,
        }
    }
    let mut answers = fds[1..].iter().map(PollFd::revents);
    Ok(Woken::Ready(wanted.map(|(_, flags)| {
        if flags.is_empty() { PollFlags::empty() } else { answers.next().unwrap_or(PollFlags::empty()) }
    })))
}

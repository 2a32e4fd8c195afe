//! Cancelling a run from another thread.
//!
//! The signal is an event descriptor that becomes readable and stays so: the runner polls it beside the pipes, so a
//! cancellation wakes it at once, and one that comes before the run starts is not lost. It is never read, hence one signal
//! can end several runs. It must never be replaced by a flag that somebody has to look at from time to time.

use crate::error::SandboxError;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Cancels.
#[derive(Debug, Clone)]
pub struct CancelHandle(Arc<OwnedFd>);

/// Is cancelled.
#[derive(Debug, Clone)]
pub struct CancelSignal(Arc<OwnedFd>);

impl CancelSignal {
    /// A handle and the signal that it gives.
    ///
    /// # Errors
    /// When the host is out of descriptors.
    pub fn new() -> Result<(CancelHandle, Self), SandboxError> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| SandboxError::Io { action: "create an event descriptor", source: e.into() })?;
        let fd = Arc::new(fd);
        Ok((CancelHandle(Arc::clone(&fd)), Self(fd)))
    }

    /// A signal that never comes.
    ///
    /// # Errors
    /// When the host is out of descriptors.
    pub fn never() -> Result<Self, SandboxError> {
        Self::new().map(|(_, signal)| signal)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl CancelHandle {
    /// Ends every run that was given the signal. Calling it again does nothing more.
    pub fn cancel(&self) {
        // The only failure is a counter at its maximum, and then the descriptor is readable already.
        let _written = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn readable(signal: &CancelSignal) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(signal.fd(), PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    }

    #[test]
    fn a_cancellation_stays() {
        let (handle, signal) = CancelSignal::new().unwrap();
        assert!(!readable(&signal));
        let other = handle.clone();
        other.cancel();
        handle.cancel();
        assert!(readable(&signal) && readable(&signal));
    }

    #[test]
    fn never_never_comes() {
        assert!(!readable(&CancelSignal::never().unwrap()));
    }
}

//! Cancelling a run from another thread.
//!
//! On unix the signal is a pipe that becomes readable and stays so: the runner polls it beside the others, so a
//! cancellation wakes it at once, and one that comes before the run starts is not lost. It is never read, hence one
//! signal can end several runs. Windows cannot wait for a pipe, but its runner waits for messages, and there a
//! cancellation is one of them. It must never be replaced by a flag that has to be polled.

#[cfg(not(unix))]
use messages::Signal;
#[cfg(unix)]
use pipe::Signal;
use std::io;
use std::sync::Arc;

/// Cancels.
#[derive(Debug, Clone)]
pub struct CancelHandle(Arc<Signal>);

/// Is cancelled.
#[derive(Debug, Clone)]
pub struct CancelSignal(Arc<Signal>);

impl CancelSignal {
    /// A handle and the signal that it gives.
    ///
    /// # Errors
    /// When the host is out of descriptors.
    pub fn new() -> io::Result<(CancelHandle, Self)> {
        let signal = Arc::new(Signal::new()?);
        Ok((CancelHandle(Arc::clone(&signal)), Self(signal)))
    }

    /// A signal that never comes.
    ///
    /// # Errors
    /// When the host is out of descriptors.
    pub fn never() -> io::Result<Self> {
        Self::new().map(|(_, signal)| signal)
    }

    /// Readable once it was cancelled.
    #[cfg(unix)]
    pub fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.fd()
    }

    /// Calls `told` when it is cancelled; at once if it was already.
    #[cfg(windows)]
    pub fn tell(&self, told: impl FnOnce() + Send + 'static) {
        self.0.tell(Box::new(told));
    }
}

impl CancelHandle {
    /// Ends every run that was given the signal. Calling it again does nothing more.
    pub fn cancel(&self) {
        self.0.give();
    }
}

#[cfg(unix)]
mod pipe {
    use std::io::{self, PipeReader, PipeWriter, Write};
    use std::os::fd::{AsFd, BorrowedFd};
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Both ends live as long as anybody has either half: a pipe whose writer is gone would look like a cancellation.
    #[derive(Debug)]
    pub(super) struct Signal {
        reader: PipeReader,
        writer: PipeWriter,
        given: AtomicBool,
    }

    impl Signal {
        pub(super) fn new() -> io::Result<Self> {
            let (reader, writer) = io::pipe()?;
            Ok(Self { reader, writer, given: AtomicBool::new(false) })
        }

        pub(super) fn fd(&self) -> BorrowedFd<'_> {
            self.reader.as_fd()
        }

        pub(super) fn give(&self) {
            if !self.given.swap(true, Ordering::Relaxed) {
                // One byte always fits into an empty pipe that has a reader.
                let _written = (&self.writer).write_all(&[1]);
            }
        }
    }
}

#[cfg(any(not(unix), test))]
mod messages {
    use std::fmt;
    use std::io;
    use std::sync::{Mutex, PoisonError};

    type Told = Box<dyn FnOnce() + Send>;

    /// Who wants to be told, or that it has happened.
    pub(super) struct Signal(Mutex<Option<Vec<Told>>>);

    impl fmt::Debug for Signal {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("Signal").finish_non_exhaustive()
        }
    }

    impl Signal {
        pub(super) fn new() -> io::Result<Self> {
            Ok(Self(Mutex::new(Some(Vec::new()))))
        }

        pub(super) fn tell(&self, told: Told) {
            let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            match waiting.as_mut() {
                Some(waiting) => waiting.push(told),
                None => told(),
            }
        }

        pub(super) fn give(&self) {
            let waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
            for told in waiting.into_iter().flatten() {
                told();
            }
        }
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::sync::mpsc;

    fn readable(signal: &CancelSignal) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(signal.fd(), PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    }

    #[test]
    fn a_cancellation_stays() {
        let (handle, signal) = CancelSignal::new().unwrap();
        assert!(!readable(&signal));
        let other = handle.clone();
        for _ in 0..100_000 {
            other.cancel();
        }
        handle.cancel();
        assert!(readable(&signal) && readable(&signal));
    }

    #[test]
    fn never_never_comes() {
        assert!(!readable(&CancelSignal::never().unwrap()));
    }

    #[test]
    fn a_handle_that_is_dropped_cancels_nothing() {
        let (handle, signal) = CancelSignal::new().unwrap();
        drop(handle);
        assert!(!readable(&signal));
    }

    #[test]
    fn everybody_is_told_once_before_and_after() {
        let signal = messages::Signal::new().unwrap();
        let (sender, told) = mpsc::channel();
        let teller = |name: &'static str| {
            let sender = sender.clone();
            Box::new(move || sender.send(name).unwrap())
        };
        signal.tell(teller("a"));
        signal.tell(teller("b"));
        assert!(told.try_recv().is_err());
        signal.give();
        signal.give();
        signal.tell(teller("late"));
        assert_eq!(told.try_iter().collect::<Vec<_>>(), ["a", "b", "late"]);
    }
}

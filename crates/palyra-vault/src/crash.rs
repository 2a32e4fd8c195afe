//! Crash points: where a test may end the process.
//!
//! Outside of unit tests a point is nothing at all. In them, a child process that was told a number sends itself
//! SIGKILL when it passes that many points, so that a test can end it at every instant that matters, one after the
//! other.

/// A place between two steps of a change.
#[cfg(not(test))]
#[inline(always)]
pub(crate) fn point(_: &'static str) {}

#[cfg(test)]
pub(crate) use counting::point;

#[cfg(test)]
pub(crate) mod counting {
    //! Counting points in a child process.

    use std::sync::atomic::{AtomicI64, Ordering};

    /// How many points are left to pass; negative: no end.
    static LEFT: AtomicI64 = AtomicI64::new(-1);

    /// Ends this process by SIGKILL at the point after `count` others.
    pub(crate) fn end_after(count: i64) {
        LEFT.store(count, Ordering::SeqCst);
    }

    /// A place between two steps of a change.
    pub(crate) fn point(_: &'static str) {
        if LEFT.load(Ordering::SeqCst) < 0 {
            return;
        }
        if LEFT.fetch_sub(1, Ordering::SeqCst) == 0 {
            #[cfg(unix)]
            let _unreachable = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
            std::process::abort();
        }
    }
}

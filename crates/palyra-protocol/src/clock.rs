//! Time, as something that is handed in: tests bring their own.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Milliseconds since the UNIX epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Wraps a number of milliseconds.
    #[must_use]
    pub fn from_unix_ms(ms: u64) -> Self {
        Self(ms)
    }

    /// The number of milliseconds.
    #[must_use]
    pub fn unix_ms(self) -> u64 {
        self.0
    }

    /// This time and so much later.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }

    /// How long until `later`; nothing when it has passed.
    #[must_use]
    pub fn until(self, later: Self) -> Duration {
        Duration::from_millis(later.0.saturating_sub(self.0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Where the time comes from.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The time now.
    fn now(&self) -> Timestamp;

    /// How long this process has run by a clock that nobody can set. A clock of a test stands still.
    fn run_time(&self) -> Duration {
        Duration::ZERO
    }
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        // A clock set before 1970 reads as the epoch: every deadline is then in the past, which refuses rather than
        // allows.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    fn run_time(&self) -> Duration {
        static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);
        STARTED.elapsed()
    }
}

/// A clock that never shows an earlier time than was recorded: whoever sets the machine's clock back brings nothing
/// back that has expired.
///
/// While the machine's clock is behind, time goes on from what was recorded last, by a clock that nobody can set. It
/// does not stand still, because nothing would expire then.
#[derive(Debug)]
pub struct SteadyClock {
    machine: Arc<dyn Clock>,
    /// The newest time on record, less how long the process had run by then: what is added to its run time, in
    /// milliseconds.
    offset: AtomicI64,
}

impl SteadyClock {
    /// Goes on from a time that is on record.
    #[must_use]
    pub fn new(machine: Arc<dyn Clock>, recorded: Timestamp) -> Self {
        let clock = Self { machine, offset: AtomicI64::new(i64::MIN) };
        clock.recorded(recorded);
        clock
    }

    /// A time was recorded: no earlier one is shown from now on.
    pub fn recorded(&self, at: Timestamp) {
        self.offset.fetch_max(signed(at.0).saturating_sub(self.run_ms()), Ordering::AcqRel);
    }

    fn run_ms(&self) -> i64 {
        i64::try_from(self.machine.run_time().as_millis()).unwrap_or(i64::MAX)
    }
}

impl Clock for SteadyClock {
    fn now(&self) -> Timestamp {
        let least = self.offset.load(Ordering::Acquire).saturating_add(self.run_ms());
        self.machine.now().max(Timestamp(u64::try_from(least).unwrap_or(0)))
    }

    fn run_time(&self) -> Duration {
        self.machine.run_time()
    }
}

fn signed(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    /// The time that the machine shows, and how long the process has run.
    #[derive(Debug, Default)]
    struct SetClock(AtomicU64, AtomicU64);

    impl Clock for SetClock {
        fn now(&self) -> Timestamp {
            Timestamp(self.0.load(Ordering::SeqCst))
        }

        fn run_time(&self) -> Duration {
            Duration::from_millis(self.1.load(Ordering::SeqCst))
        }
    }

    #[test]
    fn time_that_is_on_record_does_not_come_again() {
        let machine = Arc::new(SetClock::default());
        let set = |now: u64, run: u64| {
            machine.0.store(now, Ordering::SeqCst);
            machine.1.store(run, Ordering::SeqCst);
        };
        set(500, 0);
        let clock = SteadyClock::new(machine.clone(), Timestamp(1000));
        assert_eq!(clock.now(), Timestamp(1000), "the machine is behind the journal");
        set(560, 60);
        assert_eq!(clock.now(), Timestamp(1060), "and time goes on");
        set(5000, 70);
        assert_eq!(clock.now(), Timestamp(5000));
        set(4000, 80);
        assert_eq!(clock.now(), Timestamp(4000), "nothing was recorded at 5000");
        clock.recorded(Timestamp(4000));
        set(100, 90);
        assert_eq!(clock.now(), Timestamp(4010));
        clock.recorded(Timestamp(2000));
        assert_eq!(clock.now(), Timestamp(4010));
    }
}

//! How long something lives, by two clocks.
//!
//! The wall clock can be set; the machine's monotonic clock cannot. What lives for minutes is over when either says so,
//! and also when the wall clock stands before its beginning. So a clock that jumps ends codes and pairings early and
//! never revives one.

use palyra_protocol::Timestamp;
use std::time::{Duration, Instant};

/// From when to when something lives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lifetime {
    from: Timestamp,
    until: Timestamp,
    began: Instant,
    life: Duration,
}

impl Lifetime {
    pub(crate) fn new(now: Timestamp, life: Duration) -> Self {
        Self { from: now, until: now.plus(life), began: Instant::now(), life }
    }

    pub(crate) fn until(&self) -> Timestamp {
        self.until
    }

    pub(crate) fn is_over(&self, now: Timestamp) -> bool {
        now < self.from || now >= self.until || self.began.elapsed() >= self.life
    }

    /// How long it has lived, by the clock that says more.
    pub(crate) fn age(&self, now: Timestamp) -> Duration {
        self.from.until(now).max(self.began.elapsed())
    }

    /// How long it still lives, by the clock that says less.
    pub(crate) fn left(&self, now: Timestamp) -> Duration {
        if self.is_over(now) {
            return Duration::ZERO;
        }
        now.until(self.until).min(self.life.saturating_sub(self.began.elapsed()))
    }
}

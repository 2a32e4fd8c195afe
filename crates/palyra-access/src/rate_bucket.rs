//! A bucket of requests: so many a minute, refilled evenly, a minute's worth at most.

use palyra_protocol::Timestamp;
use std::time::Duration;

/// One request, in the unit that a rate of one a minute gains each millisecond.
const ONE: u64 = 60_000;

/// How much is left, and since when that is known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bucket {
    level: u64,
    at: Timestamp,
}

impl Bucket {
    /// A bucket from which nothing was taken yet.
    pub(crate) fn full(per_minute: u32, now: Timestamp) -> Self {
        Self { level: u64::from(per_minute) * ONE, at: now }
    }

    fn refill(&mut self, per_minute: u32, now: Timestamp) {
        // A clock that was set back refills nothing.
        let gained = u64::try_from(self.at.until(now).as_millis()).unwrap_or(u64::MAX);
        let most = u64::from(per_minute) * ONE;
        self.level = self.level.saturating_add(gained.saturating_mul(u64::from(per_minute))).min(most);
        self.at = now;
    }

    /// How many requests are left, and when all will be again.
    pub(crate) fn left(&mut self, per_minute: u32, now: Timestamp) -> (u64, Duration) {
        self.refill(per_minute, now);
        let missing = (u64::from(per_minute) * ONE).saturating_sub(self.level);
        (self.level / ONE, Duration::from_millis(missing.div_ceil(u64::from(per_minute.max(1)))))
    }

    /// Takes one request, or says how long until there is one.
    pub(crate) fn take(&mut self, per_minute: u32, now: Timestamp) -> Result<(), Duration> {
        self.refill(per_minute, now);
        match self.level.checked_sub(ONE) {
            Some(rest) => {
                self.level = rest;
                Ok(())
            }
            None => Err(Duration::from_millis((ONE - self.level).div_ceil(u64::from(per_minute.max(1))))),
        }
    }

    /// Whether nothing is missing.
    pub(crate) fn is_full(&self, per_minute: u32, now: Timestamp) -> bool {
        let mut later = *self;
        later.refill(per_minute, now);
        later.level >= u64::from(per_minute) * ONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minutes_worth_at_once_then_evenly() {
        let at = Timestamp::from_unix_ms;
        let mut bucket = Bucket::full(60, at(0));
        for _ in 0..60 {
            assert_eq!(bucket.take(60, at(0)), Ok(()));
        }
        assert_eq!(bucket.take(60, at(0)), Err(Duration::from_secs(1)));
        assert_eq!(bucket.take(60, at(1000)), Ok(()));
        assert!(bucket.take(60, at(1000)).is_err());
        assert!(bucket.take(60, at(500)).is_err(), "a clock set back gives nothing");
        assert!(bucket.is_full(60, at(200_000)));
        let mut slow = Bucket::full(1, at(0));
        assert_eq!(slow.take(1, at(0)), Ok(()));
        assert_eq!(slow.take(1, at(1)), Err(Duration::from_millis(59_999)));
    }
}

//! When a routine is due.
//!
//! A schedule is a cron pattern of five fields and a time zone. Its instants are slots: each runs at most once. What a
//! change of the clock does is what Vixie cron does:
//!
//! - A time that does not exist, because the clock jumps over it, runs right after the jump.
//! - A fixed time that exists twice runs once, the first time.
//! - A pattern with a wildcard in minutes or hours runs at each of its instants, also in the hour that comes twice.
//!
//! After a pause of the daemon only the latest slot is caught up, and only if it is no older than [`CATCH_UP`]; the
//! others are missed, and recorded as such.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;
use palyra_protocol::Timestamp;
use std::time::Duration;

/// How late a slot may still run.
pub const CATCH_UP: Duration = Duration::from_secs(10 * 60);
/// Missed slots that are counted one by one.
const MAX_COUNTED: u64 = 1000;
/// The longest pattern.
const MAX_PATTERN: usize = 128;

/// A schedule that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// Not a cron pattern.
    #[error("`{pattern}` is not a schedule: {reason}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Not a time zone.
    #[error("`{zone}` is not a time zone of this machine's database")]
    Zone {
        /// The zone.
        zone: String,
    },
    /// It has no instant.
    #[error("`{pattern}` never comes")]
    Never {
        /// The pattern.
        pattern: String,
    },
}

/// A schedule.
#[derive(Debug, Clone)]
pub struct Schedule {
    cron: Cron,
    zone: TimeZone,
    pattern: String,
    zone_name: String,
}

/// What a look at the clock found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Due {
    /// The slot that is to run now.
    pub run: Option<Timestamp>,
    /// How many slots passed without running; at most a thousand are counted.
    pub missed: u64,
    /// The latest of those.
    pub last_missed: Option<Timestamp>,
}

impl Schedule {
    /// Reads a pattern and a time zone such as `Europe/Prague` or `UTC`.
    ///
    /// # Errors
    /// One of them is none, or no instant fits the pattern.
    pub fn parse(pattern: &str, zone: &str) -> Result<Self, ScheduleError> {
        let wrong =
            |reason: String| ScheduleError::Pattern { pattern: pattern.chars().take(MAX_PATTERN).collect(), reason };
        if pattern.len() > MAX_PATTERN {
            return Err(wrong("it is too long".to_owned()));
        }
        if pattern.contains('@') && !pattern.starts_with('@') {
            return Err(wrong("a nickname stands alone".to_owned()));
        }
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let cron = parser.parse(pattern).map_err(|error| wrong(error.to_string()))?;
        let unknown = |_| ScheduleError::Zone { zone: zone.to_owned() };
        let time_zone = TimeZone::get(zone).map_err(unknown)?;
        let schedule = Self { cron, zone: time_zone, pattern: pattern.trim().to_owned(), zone_name: zone.to_owned() };
        match schedule.next_after(Timestamp::from_unix_ms(0)) {
            Some(_) => Ok(schedule),
            None => Err(ScheduleError::Never { pattern: pattern.to_owned() }),
        }
    }

    /// The pattern.
    #[must_use]
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// The time zone's name.
    #[must_use]
    pub fn zone(&self) -> &str {
        &self.zone_name
    }

    /// The pattern in words.
    #[must_use]
    pub fn describe(&self) -> String {
        self.cron.describe()
    }

    /// The first slot after an instant.
    #[must_use]
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let next = self.cron.find_next_occurrence(&self.zoned(after)?, false).ok()?;
        instant(&next)
    }

    /// The last slot at or before an instant.
    pub(super) fn last_until(&self, until: Timestamp) -> Option<Timestamp> {
        let last = self.cron.find_previous_occurrence(&self.zoned(until)?, true).ok()?;
        instant(&last)
    }

    /// What is due at `now`, if every slot up to `seen` was dealt with. A clock that was set back makes nothing due.
    #[must_use]
    pub fn due(&self, seen: Timestamp, now: Timestamp) -> Due {
        let latest = self.last_until(now).filter(|latest| *latest > seen);
        let Some(latest) = latest else { return Due::default() };
        let run = (latest.until(now) <= CATCH_UP).then_some(latest);
        let end = if run.is_some() { latest } else { Timestamp::from_unix_ms(latest.unix_ms() + 1) };
        let (mut missed, mut last_missed, mut at) = (0, None, seen);
        while missed < MAX_COUNTED {
            match self.next_after(at).filter(|next| *next < end) {
                Some(next) => (missed, last_missed, at) = (missed + 1, Some(next), next),
                None => break,
            }
        }
        if missed == MAX_COUNTED {
            last_missed = if run.is_some() { last_missed } else { Some(latest) };
        }
        Due { run, missed, last_missed }
    }

    fn zoned(&self, at: Timestamp) -> Option<jiff::Zoned> {
        let ms = i64::try_from(at.unix_ms()).ok()?;
        Some(jiff::Timestamp::from_millisecond(ms).ok()?.to_zoned(self.zone.clone()))
    }
}

fn instant(zoned: &jiff::Zoned) -> Option<Timestamp> {
    u64::try_from(zoned.timestamp().as_millisecond()).ok().map(Timestamp::from_unix_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        let instant: jiff::Timestamp = text.parse().unwrap();
        Timestamp::from_unix_ms(u64::try_from(instant.as_millisecond()).unwrap())
    }

    fn slots(pattern: &str, zone: &str, from: &str, count: usize) -> Vec<String> {
        let schedule = Schedule::parse(pattern, zone).unwrap();
        let mut slots = Vec::new();
        let mut after = at(from);
        while slots.len() < count {
            after = schedule.next_after(after).unwrap();
            let ms = i64::try_from(after.unix_ms()).unwrap();
            slots.push(jiff::Timestamp::from_millisecond(ms).unwrap().to_string());
        }
        slots
    }

    #[test]
    fn a_time_in_the_gap_runs_right_after_it() {
        // 2026-03-29, 02:00 becomes 03:00 in Prague.
        let found = slots("30 2 * * *", "Europe/Prague", "2026-03-28T12:00:00Z", 2);
        assert_eq!(found, ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]);
    }

    #[test]
    fn a_time_that_comes_twice_runs_once_and_a_wildcard_always() {
        // 2026-10-25, 03:00 becomes 02:00 in Prague.
        let found = slots("30 2 * * *", "Europe/Prague", "2026-10-24T12:00:00Z", 2);
        assert_eq!(found, ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
        let hourly = slots("30 * * * *", "Europe/Prague", "2026-10-24T23:40:00Z", 3);
        assert_eq!(hourly, ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:30:00Z"]);
    }

    #[test]
    fn only_the_latest_slot_is_caught_up_and_only_for_a_while() {
        let hourly = Schedule::parse("0 * * * *", "UTC").unwrap();
        let due = |seen: &str, now: &str| hourly.due(at(seen), at(now));
        assert_eq!(due("2026-01-01T10:00:00Z", "2026-01-01T10:59:59Z"), Due::default());
        let on_time = due("2026-01-01T10:00:00Z", "2026-01-01T11:00:00Z");
        assert_eq!(on_time, Due { run: Some(at("2026-01-01T11:00:00Z")), ..Due::default() });
        let late = due("2026-01-01T10:00:00Z", "2026-01-01T14:09:00Z");
        assert_eq!((late.run, late.missed), (Some(at("2026-01-01T14:00:00Z")), 3));
        assert_eq!(late.last_missed, Some(at("2026-01-01T13:00:00Z")));
        let too_late = due("2026-01-01T10:00:00Z", "2026-01-01T14:11:00Z");
        assert_eq!((too_late.run, too_late.missed, too_late.last_missed), (None, 4, Some(at("2026-01-01T14:00:00Z"))));
        let set_back = due("2026-01-01T14:00:00Z", "2026-01-01T11:00:00Z");
        assert_eq!(set_back, Due::default());
        let years = due("2020-01-01T00:00:00Z", "2026-01-01T14:11:00Z");
        assert_eq!((years.missed, years.last_missed), (1000, Some(at("2026-01-01T14:00:00Z"))));
    }

    #[test]
    fn what_is_no_schedule_is_refused() {
        for bad in [
            "",
            "x",
            "61 * * * *",
            "* * * *",
            "0 0 30 2 *",
            "* * * * * *",
            "* * * * * 2026",
            "a@daily",
            &"*".repeat(200),
        ] {
            assert!(Schedule::parse(bad, "UTC").is_err(), "{bad}");
        }
        assert!(matches!(Schedule::parse("@daily", "Mars/Olympus"), Err(ScheduleError::Zone { .. })));
        assert_eq!(
            Schedule::parse("@daily", "UTC").unwrap().next_after(at("2026-01-01T00:00:00Z")),
            Some(at("2026-01-02T00:00:00Z"))
        );
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig { failure_persistence: None, ..proptest::prelude::ProptestConfig::with_cases(256) })]

        #[test]
        fn no_pattern_breaks_a_schedule(pattern in "[0-9*/,LW#@a-zA-Z ?\\-]{0,40}", zone in "(UTC|Europe/Prague|\\PC{0,12})") {
            if let Ok(schedule) = Schedule::parse(&pattern, &zone) {
                let now = at("2026-03-29T00:59:30Z");
                if let Some(next) = schedule.next_after(now) {
                    proptest::prop_assert!(next > now);
                }
                let due = schedule.due(Timestamp::from_unix_ms(now.unix_ms() - 3_600_000), now);
                proptest::prop_assert!(due.run.is_none_or(|at| at <= now));
            }
        }
    }
}

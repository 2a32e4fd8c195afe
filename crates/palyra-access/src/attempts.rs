//! What was tried in vain, counted: limited per source, and told to the journal in sums.
//!
//! A guess costs the guesser one request and the daemon one hash; an event for each would cost the daemon a disk write
//! and its journal a line. So refusals are counted by source and reason, the first is recorded at once, and what
//! follows once a minute, however many they are.
//!
//! A source that is over its limit has to wait. Tokens that are right still open from there: a secret of 256 bits
//! is not found by trying, and a lock on the source would only let one caller shut out its neighbours.

use crate::rate_bucket::Bucket;
use palyra_protocol::{JournalEvent, Timestamp};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How many refusals a minute a source may collect before it is told to wait.
const PER_MINUTE: u32 = 30;
/// How many sources are told apart.
const MAX_SOURCES: usize = 1024;
/// The name under which all others are counted.
const OTHERS: &str = "others";
/// How many events one flush writes.
const MAX_EVENTS: usize = 32;
/// The longest name of a source.
const MAX_NAME: usize = 96;

#[derive(Debug)]
struct Count {
    since: Timestamp,
    limit: Bucket,
    refused: BTreeMap<&'static str, u64>,
}

/// The counts of all sources.
#[derive(Debug, Default)]
pub struct Attempts(Mutex<HashMap<String, Count>>);

impl Attempts {
    /// Counts one refusal; tells how long the source should wait if it is over its limit.
    pub fn count(&self, source: &str, reason: &'static str, now: Timestamp) -> Option<Duration> {
        let mut sources = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let name: String = source.chars().filter(|c| !c.is_control()).take(MAX_NAME).collect();
        if sources.len() >= MAX_SOURCES && !sources.contains_key(&name) {
            // Sources with nothing to tell and their limit to spare are forgotten first.
            sources.retain(|_, count| !count.refused.is_empty() || !count.limit.is_full(PER_MINUTE, now));
        }
        let name = if sources.len() >= MAX_SOURCES && !sources.contains_key(&name) { OTHERS.to_owned() } else { name };
        let fresh = || Count { since: now, limit: Bucket::full(PER_MINUTE, now), refused: BTreeMap::new() };
        let count = sources.entry(name).or_insert_with(fresh);
        if count.refused.is_empty() {
            count.since = now;
        }
        *count.refused.entry(reason).or_default() += 1;
        count.limit.take(PER_MINUTE, now).err()
    }

    /// Takes out what is to be recorded. The loudest sources have an event each, the others share one.
    pub fn drain(&self) -> Vec<JournalEvent> {
        let mut sources = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut told: Vec<(String, Timestamp, BTreeMap<&'static str, u64>)> = sources
            .iter_mut()
            .filter(|(_, count)| !count.refused.is_empty())
            .map(|(name, count)| (name.clone(), count.since, std::mem::take(&mut count.refused)))
            .collect();
        drop(sources);
        told.sort_by_key(|(_, _, refused)| std::cmp::Reverse(refused.values().sum::<u64>()));
        let quiet = told.split_off(told.len().min(MAX_EVENTS - 1));
        let rest = quiet.into_iter().reduce(|(_, since, mut sum), (_, other, more)| {
            for (reason, count) in more {
                *sum.entry(reason).or_default() += count;
            }
            (OTHERS.to_owned(), since.min(other), sum)
        });
        let event = |(source, since, refused): (String, Timestamp, BTreeMap<&'static str, u64>)| {
            let refused = refused.into_iter().map(|(reason, count)| (reason.to_owned(), count)).collect();
            JournalEvent::AccessAttempts { source, since, refused }
        };
        told.into_iter().chain(rest).map(event).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_unix_ms(ms)
    }

    #[test]
    fn guessing_at_speed_is_limited_and_told_in_sums() {
        let attempts = Attempts::default();
        let waits: Vec<_> = (0..1000).map(|n| attempts.count("unix", "unknown", at(n))).collect();
        assert!(waits[..30].iter().all(Option::is_none), "a person who mistypes is not made to wait");
        assert!(waits[40..].iter().all(Option::is_some));
        assert!(attempts.count("elsewhere", "unknown", at(1000)).is_none(), "sources are told apart");
        let events = attempts.drain();
        assert_eq!(events.len(), 2);
        let JournalEvent::AccessAttempts { source, refused, .. } = &events[0] else { panic!("{events:?}") };
        assert_eq!((source.as_str(), refused["unknown"]), ("unix", 1000));
        assert!(attempts.drain().is_empty());
        assert!(attempts.count("unix", "unknown", at(61_000)).is_none(), "the limit recovers");
    }

    #[test]
    fn many_sources_cost_a_bounded_place_and_bounded_events() {
        let attempts = Attempts::default();
        for n in 0..10_000 {
            let _wait = attempts.count(&format!("ip:{n}"), "unknown", at(n));
        }
        assert!(attempts.0.lock().unwrap().len() <= MAX_SOURCES + 1);
        let events = attempts.drain();
        assert!(events.len() <= MAX_EVENTS);
        let sum: u64 = events
            .iter()
            .map(|e| match e {
                JournalEvent::AccessAttempts { refused, .. } => refused.values().sum::<u64>(),
                other => panic!("{other:?}"),
            })
            .sum();
        assert_eq!(sum, 10_000, "nothing is lost in the sums");
    }
}

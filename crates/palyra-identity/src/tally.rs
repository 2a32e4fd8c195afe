//! What was refused, counted: the first of a kind is an event at once, the rest follow in sums.
//!
//! A refused handshake costs its sender one connection. An event for each would cost the daemon a disk write and its
//! journal a line, so refusals are counted by source and code, and how many sources are told apart is bounded.

use crate::journal::IdentityEvent;
use palyra_protocol::{Timestamp, display};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

/// How many sources are told apart.
const MAX_SOURCES: usize = 256;
/// The name under which all others are counted.
const OTHERS: &str = "others";
/// How many events one flush writes.
const MAX_EVENTS: usize = 32;
/// The longest name of a source, in characters.
const MAX_NAME: usize = 96;

#[derive(Debug)]
struct Count {
    since: Timestamp,
    refused: BTreeMap<&'static str, u64>,
}

/// The counts of all sources since they were last written.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<HashMap<String, Count>>);

impl Tally {
    /// Counts one refusal. The first of its kind since the last flush comes back as an event, and is not counted again.
    pub(crate) fn count(&self, source: &str, code: &'static str, now: Timestamp) -> Option<IdentityEvent> {
        let mut sources = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let name: String = display::safe(source).chars().take(MAX_NAME).collect();
        let known = sources.contains_key(&name) || sources.len() < MAX_SOURCES;
        let name = if known { name } else { OTHERS.to_owned() };
        let count = sources.entry(name.clone()).or_insert_with(|| Count { since: now, refused: BTreeMap::new() });
        match count.refused.get_mut(code) {
            Some(sum) => {
                *sum += 1;
                None
            }
            None => {
                count.refused.insert(code, 0);
                let refused = BTreeMap::from([(code.to_owned(), 1)]);
                Some(IdentityEvent::Refused { source: name, since: now, refused })
            }
        }
    }

    /// Takes out what is to be recorded. The loudest sources have an event each, the others share one.
    pub(crate) fn drain(&self) -> Vec<IdentityEvent> {
        let sources = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let mut told: Vec<_> = sources
            .into_iter()
            .map(|(name, count)| (name, count.since, count.refused))
            .filter(|(_, _, refused)| refused.values().any(|sum| *sum > 0))
            .collect();
        told.sort_by_key(|(_, _, refused)| std::cmp::Reverse(refused.values().sum::<u64>()));
        let quiet = told.split_off(told.len().min(MAX_EVENTS - 1));
        let rest = quiet.into_iter().reduce(|(_, since, mut sum), (_, other, more)| {
            for (code, count) in more {
                *sum.entry(code).or_default() += count;
            }
            (OTHERS.to_owned(), since.min(other), sum)
        });
        let event = |(source, since, refused): (String, Timestamp, BTreeMap<&'static str, u64>)| {
            let counted = refused.into_iter().filter(|(_, sum)| *sum > 0);
            let refused = counted.map(|(code, sum)| (code.to_owned(), sum)).collect();
            IdentityEvent::Refused { source, since, refused }
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

    fn sum(events: &[IdentityEvent]) -> u64 {
        let of = |event: &IdentityEvent| match event {
            IdentityEvent::Refused { refused, .. } => refused.values().sum::<u64>(),
            other => panic!("{other:?}"),
        };
        events.iter().map(of).sum()
    }

    #[test]
    fn the_first_is_told_at_once_and_a_flood_in_sums() {
        let tally = Tally::default();
        let first: Vec<_> = (0..1000).filter_map(|n| tally.count("ip:1", "wrong_code", at(n))).collect();
        assert_eq!((first.len(), sum(&first)), (1, 1));
        assert!(tally.count("ip:1", "busy", at(0)).is_some(), "another kind");
        let told = tally.drain();
        assert_eq!((told.len(), sum(&told)), (1, 999));
        assert!(tally.drain().is_empty());
        assert!(tally.count("ip:1", "wrong_code", at(0)).is_some(), "told anew after a flush");
    }

    #[test]
    fn many_sources_cost_a_bounded_place_and_nothing_is_lost() {
        let tally = Tally::default();
        let mut told = Vec::new();
        for n in 0..10_000 {
            told.extend(tally.count(&format!("ip:{}", n % 5000), "busy", at(n)));
        }
        assert!(tally.0.lock().unwrap().len() <= MAX_SOURCES + 1);
        let drained = tally.drain();
        assert!(drained.len() <= MAX_EVENTS);
        assert_eq!(sum(&told) + sum(&drained), 10_000);
    }
}

//! What is due when: a heap, so that the earliest is found at once and entering costs the same with one and with ten
//! thousand.

use palyra_protocol::Timestamp;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::Hash;

/// Each key with the one time at which it is due.
#[derive(Debug)]
pub struct Agenda<K> {
    heap: BinaryHeap<Reverse<(Timestamp, u64, K)>>,
    /// The newest entry of each key; older ones in the heap do not count.
    current: HashMap<K, u64>,
    entered: u64,
}

impl<K: Ord> Default for Agenda<K> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), current: HashMap::new(), entered: 0 }
    }
}

impl<K: Ord + Hash + Clone> Agenda<K> {
    /// Enters when a key is due, in place of what was entered for it before.
    pub fn enter(&mut self, key: K, at: Timestamp) {
        self.entered += 1;
        self.current.insert(key.clone(), self.entered);
        self.heap.push(Reverse((at, self.entered, key)));
    }

    /// Has a key not due any more.
    pub fn remove(&mut self, key: &K) {
        self.current.remove(key);
    }

    /// The earliest time.
    pub fn earliest(&mut self) -> Option<Timestamp> {
        while let Some(Reverse((at, entered, key))) = self.heap.peek() {
            if self.current.get(key) == Some(entered) {
                return Some(*at);
            }
            self.heap.pop();
        }
        None
    }

    /// Takes the key out that is due first, if one is due by now.
    pub fn pop_due(&mut self, now: Timestamp) -> Option<(K, Timestamp)> {
        self.earliest().filter(|at| *at <= now)?;
        let Reverse((at, _, key)) = self.heap.pop()?;
        self.current.remove(&key);
        Some((key, at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_unix_ms(ms)
    }

    #[test]
    fn the_earliest_comes_first_and_what_was_replaced_never() {
        let mut agenda = Agenda::default();
        agenda.enter("a", at(5));
        agenda.enter("b", at(3));
        agenda.enter("a", at(1));
        assert_eq!(agenda.earliest(), Some(at(1)));
        assert_eq!(agenda.pop_due(at(0)), None);
        assert_eq!(agenda.pop_due(at(9)), Some(("a", at(1))));
        agenda.enter("c", at(4));
        agenda.remove(&"b");
        assert_eq!(agenda.pop_due(at(9)), Some(("c", at(4))));
        assert_eq!(agenda.pop_due(at(9)), None, "the first entry of `a` does not count");
    }
}

//! Connections that have not shown who they are: few, and never waited for.
//!
//! Whoever reaches the port can connect. Such connections share a fixed number of places. The one that has waited
//! longest makes room for the next: a device that means it is through in a moment.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_util::sync::CancellationToken;

/// Every connection that has not shown who it is.
#[derive(Debug, Clone)]
pub(super) struct HalfOpen {
    most: usize,
    waiting: Arc<Mutex<Waiting>>,
}

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    places: VecDeque<(u64, CancellationToken)>,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    half_open: HalfOpen,
    number: u64,
    leave: CancellationToken,
}

impl HalfOpen {
    pub(super) fn new(most: usize) -> Self {
        Self { most, waiting: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place; the one that has waited longest leaves if there is none.
    pub(super) fn enter(&self) -> Place {
        let leave = CancellationToken::new();
        let mut waiting = self.lock();
        if waiting.places.len() >= self.most
            && let Some((_, oldest)) = waiting.places.pop_front()
        {
            oldest.cancel();
        }
        waiting.next += 1;
        let number = waiting.next;
        waiting.places.push_back((number, leave.clone()));
        Place { half_open: self.clone(), number, leave }
    }
}

impl Place {
    /// Comes when the connection has to make room for another.
    pub(super) async fn dismissed(&self) {
        self.leave.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut waiting = self.half_open.lock();
        if let Ok(at) = waiting.places.binary_search_by_key(&self.number, |(number, _)| *number) {
            waiting.places.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_makes_room() {
        let half_open = HalfOpen::new(3);
        let places: Vec<_> = (0..10).map(|_| half_open.enter()).collect();
        let gone: Vec<_> = places.iter().map(|place| place.leave.is_cancelled()).collect();
        assert_eq!(gone.iter().filter(|gone| **gone).count(), 7);
        assert!(gone[..7].iter().all(|gone| *gone));
        assert_eq!(half_open.lock().places.len(), 3);
        drop(places);
        assert!(half_open.lock().places.is_empty(), "nobody is remembered who has gone");
    }
}

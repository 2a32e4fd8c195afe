//! The alarm: interrupts guests whose time is over.
//!
//! Compiled code looks at a counter, the engine's epoch, at every loop and function entry. The alarm's thread sleeps
//! until the earliest deadline and then raises the counter once. That wakes every running guest for a moment; each
//! looks at its own deadline and goes on unless that has passed, so one guest's expiry never ends a neighbour. With no
//! deadline pending the thread sleeps for good: nothing polls.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use wasmtime::Engine;

/// Raises an engine's epoch when a deadline passes.
#[derive(Debug)]
pub(crate) struct Alarm(Arc<Shared>);

struct Shared {
    engine: Engine,
    state: Mutex<State>,
    changed: Condvar,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alarm").finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct State {
    deadlines: BTreeSet<(Instant, u64)>,
    last: u64,
    /// When the thread looks again by itself.
    wakes_at: Option<Instant>,
    started: bool,
    closed: bool,
}

/// A deadline that is watched for as long as this lives.
#[derive(Debug)]
pub(crate) struct Watched<'a> {
    alarm: &'a Shared,
    entry: (Instant, u64),
}

impl Alarm {
    pub(crate) fn new(engine: Engine) -> Self {
        Self(Arc::new(Shared { engine, state: Mutex::default(), changed: Condvar::new() }))
    }

    /// Watches a deadline. The store's own deadline must have been set before, one epoch from now.
    pub(crate) fn watch(&self, deadline: Instant) -> std::io::Result<Watched<'_>> {
        let mut state = self.0.lock();
        if !state.started {
            let shared = Arc::clone(&self.0);
            std::thread::Builder::new()
                .name("palyra-alarm".into())
                .stack_size(128 << 10)
                .spawn(move || shared.run())?;
            state.started = true;
        }
        state.last += 1;
        let entry = (deadline, state.last);
        state.deadlines.insert(entry);
        let too_late = state.wakes_at.is_none_or(|wakes_at| wakes_at > deadline);
        drop(state);
        if too_late {
            self.0.changed.notify_one();
        }
        Ok(Watched { alarm: &self.0, entry })
    }

    /// Makes every running guest look at its own state now.
    pub(crate) fn ring(&self) {
        self.0.engine.increment_epoch();
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.changed.notify_one();
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.alarm.lock().deadlines.remove(&self.entry);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut state = self.lock();
        while !state.closed {
            let now = Instant::now();
            let later = state.deadlines.split_off(&(now, u64::MAX));
            let expired = std::mem::replace(&mut state.deadlines, later);
            if !expired.is_empty() {
                self.engine.increment_epoch();
            }
            let next = state.deadlines.first().map(|(deadline, _)| *deadline);
            state.wakes_at = next;
            state = match next {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(next) => {
                    let pause = next.saturating_duration_since(now);
                    self.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

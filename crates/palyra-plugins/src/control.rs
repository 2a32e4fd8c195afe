//! One call's time and its cancellation, as the guest's thread, the doors and the caller share them.

use crate::alarm::Alarm;
use crate::error::Stop;
use crate::limits::Limit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How much time a call has left, and whether anybody still wants it.
#[derive(Debug)]
pub struct CallControl {
    wall_clock: Duration,
    started: OnceLock<Instant>,
    cancelled: AtomicBool,
    finished: AtomicBool,
    gate: Mutex<()>,
    woken: Condvar,
    alarm: Weak<Alarm>,
}

impl CallControl {
    pub(crate) fn new(wall_clock_ms: u64, alarm: &Arc<Alarm>) -> Self {
        Self {
            wall_clock: Duration::from_millis(wall_clock_ms),
            started: OnceLock::new(),
            cancelled: AtomicBool::new(false),
            finished: AtomicBool::new(false),
            gate: Mutex::new(()),
            woken: Condvar::new(),
            alarm: Arc::downgrade(alarm),
        }
    }

    /// The clock runs from here on; waiting in the queue does not count.
    pub(crate) fn start(&self) -> Instant {
        *self.started.get_or_init(Instant::now)
    }

    /// When the call must have ended.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.started.get().copied().unwrap_or_else(Instant::now) + self.wall_clock
    }

    /// How much time is left.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.deadline().saturating_duration_since(Instant::now())
    }

    /// Whether the caller withdrew. A door that waits for long asks this from time to time.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Ends the call: at once if it waits, at the next look at the epoch if it computes.
    pub fn cancel(&self) {
        if self.finished.load(Ordering::Acquire) || self.cancelled.swap(true, Ordering::AcqRel) {
            return;
        }
        // Whoever is about to sleep holds the gate, so that it is not missed.
        drop(self.gate.lock().unwrap_or_else(PoisonError::into_inner));
        self.woken.notify_all();
        if let Some(alarm) = self.alarm.upgrade() {
            alarm.ring();
        }
    }

    /// The call has ended; cancelling it disturbs nobody any more.
    pub(crate) fn finish(&self) {
        self.finished.store(true, Ordering::Release);
    }

    /// Whether the guest may go on.
    pub(crate) fn check(&self) -> Result<(), Stop> {
        if self.is_cancelled() {
            return Err(Stop::Cancelled);
        }
        if Instant::now() >= self.deadline() {
            return Err(Stop::Limit(Limit::WallClockMs, self.wall_clock.as_millis().try_into().unwrap_or(u64::MAX)));
        }
        Ok(())
    }

    /// Sleeps until then, or until the call is over.
    pub(crate) fn sleep_until(&self, then: Instant) -> Result<(), Stop> {
        let mut gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            self.check()?;
            let pause = then.min(self.deadline()).saturating_duration_since(Instant::now());
            if pause.is_zero() && Instant::now() >= then {
                return Ok(());
            }
            gate = self.woken.wait_timeout(gate, pause).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

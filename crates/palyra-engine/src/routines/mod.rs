//! Routines: calls and prompts on a schedule.
//!
//! A routine's action is a tool call, which goes the one path like any other call, or a prompt for an agent, which a
//! [`StartRun`] carries out. One task sleeps until the earliest slot ([`scheduler`]); the slots wait in a heap, so that
//! looking at the next one costs the same with one routine and with ten thousand. What there is follows from the
//! journal's events ([`book`]).
//!
//! INVARIANT (slot_runs_once): a slot is recorded as started before its call is proposed, the journal refuses a
//! scheduled slot that is not later than its newest, and the call's idempotency key is made from routine and slot. So
//! neither a restart nor a clock that was set back runs a slot twice.

mod agenda;
mod book;
mod manage;
mod schedule;
mod scheduler;
mod slots;

pub use agenda::Agenda;
pub use manage::{RoutineView, SlotView, StartedSlot};
pub use schedule::{CATCH_UP, Due, Schedule, ScheduleError};

use book::Book;
use palyra_protocol::{CallId, Principal, Problem, RoutineRecord, SlotKey};
use std::collections::HashSet;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::Notify;

/// The channel of calls that routines make.
pub const ROUTINE_CHANNEL: &str = "routine";
/// Failures one after the other after which a routine is paused.
pub const MAX_FAILURES: u32 = 3;
/// Slots of one routine that may wait for a person at a time.
const MAX_WAITING: usize = 4;
/// The most routines.
pub const MAX_ROUTINES: usize = 10_000;

/// What carries out a routine's prompt: an agent's run, every call of which goes the one path.
pub trait StartRun: std::fmt::Debug + Send + Sync {
    /// Runs it to its end. A run of the same slot is started at most once, whatever happens to the daemon.
    fn run(&self, order: RunOrder) -> Pin<Box<dyn Future<Output = Result<(), Problem>> + Send>>;
}

/// A prompt that is due.
#[derive(Debug, Clone)]
pub struct RunOrder {
    /// The routine.
    pub routine: Arc<RoutineRecord>,
    /// The slot; the run's id is made from it.
    pub slot: SlotKey,
    /// In whose name.
    pub principal: Principal,
    /// The task.
    pub prompt: String,
    /// The model, where the routine names one.
    pub model: Option<String>,
}

/// The routines of a running daemon.
#[derive(Debug, Default)]
pub(crate) struct Routines {
    book: Mutex<Book>,
    /// Told when the earliest slot may be another.
    changed: Notify,
    /// Calls of rehearsals: a yes to one of them is a grant for the routine.
    rehearsing: Mutex<HashSet<CallId>>,
    runs: OnceLock<Arc<dyn StartRun>>,
    /// Held by whoever changes the set: one change at a time.
    changing: tokio::sync::Mutex<()>,
}

impl Routines {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a call belongs to a rehearsal.
    pub(crate) fn rehearses(&self, call: &CallId) -> bool {
        self.rehearsing.lock().unwrap_or_else(PoisonError::into_inner).contains(call)
    }

    fn rehearsal(&self, call: &CallId, under_way: bool) {
        let mut calls = self.rehearsing.lock().unwrap_or_else(PoisonError::into_inner);
        if under_way {
            calls.insert(call.clone());
        } else {
            calls.remove(call);
        }
    }
}

impl crate::Engine {
    /// Says what carries out prompts. The first word counts.
    pub fn set_run_starter(&self, runs: Arc<dyn StartRun>) {
        if self.routine_room().runs.set(runs).is_err() {
            tracing::warn!("what carries out prompts was said before");
        }
    }
}

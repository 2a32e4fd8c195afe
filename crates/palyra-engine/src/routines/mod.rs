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

use crate::access::VerifiedPeer;
use book::Book;
use palyra_protocol::{CallId, Problem, RoutinePlan, RoutineRecord, RunId, SessionId};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::{Notify, watch};

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
    /// Whether a prompt of this routine could be carried out: its agent or its model is there.
    ///
    /// # Errors
    /// Why it could not.
    fn check(&self, routine: &RoutinePlan) -> Result<(), Problem>;

    /// Carries a run out to its end: begins it, or goes on with what is on record under its id.
    fn run(&self, order: RunOrder) -> Pin<Box<dyn Future<Output = SlotEnd> + Send>>;
}

/// A prompt that is due.
#[derive(Debug)]
pub struct RunOrder {
    /// The routine: its agent, its task, its budget.
    pub routine: Arc<RoutineRecord>,
    /// The run of this slot, and of no other.
    pub run: RunId,
    /// The routine's own session.
    pub session: SessionId,
    /// As whom the run's calls are proposed.
    pub peer: VerifiedPeer,
    /// Where the scheduler hears how the run stands.
    pub progress: watch::Sender<RunProgress>,
}

/// How a prompt's run stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RunProgress {
    /// It is not on record yet.
    #[default]
    Beginning,
    /// It goes on.
    Running,
    /// The next turn does not come before a person answers: this is one of the calls that wait.
    Waiting(CallId),
}

/// How a slot's action ended.
#[derive(Debug)]
pub enum SlotEnd {
    /// It came to its end.
    Done(Result<(), Problem>),
    /// The daemon ends: the next start takes it up.
    LeftOpen,
}

/// The routines of a running daemon.
#[derive(Debug, Default)]
pub(crate) struct Routines {
    book: Mutex<Book>,
    /// Told when the earliest slot may be another.
    changed: Notify,
    runs: OnceLock<Arc<dyn StartRun>>,
    /// Held by whoever changes the set: one change at a time.
    changing: tokio::sync::Mutex<()>,
}

impl Routines {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
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

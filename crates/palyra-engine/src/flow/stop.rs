//! Why a call goes no further on the path. Every step returns it as its error, so that the path is one line of steps.

use crate::error::EngineError;
use crate::flow::resolve::Refusal;
use crate::flow::unrecorded::Unrecorded;
use palyra_journal::{JournalError, KeyHolder, NotOpened};
use palyra_protocol::{CallId, ToolOutcome};

/// What stops a call.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It has ended without running, and that is on record.
    Ended(Box<ToolOutcome>),
    /// It is this earlier call, by its idempotency key.
    Repeats(CallId),
    /// Its idempotency key belongs to this earlier call, which is another.
    KeyTaken(CallId),
    /// It is no call, or not now. That is not on record yet.
    Refused(Refusal),
    /// It has ended, and that could not be recorded yet.
    Unrecorded(Box<Unrecorded>, JournalError),
    /// Nothing can be said of it but that it did not run.
    Failed(EngineError),
}

impl From<EngineError> for Stop {
    fn from(error: EngineError) -> Self {
        Self::Failed(error)
    }
}

impl From<JournalError> for Stop {
    fn from(error: JournalError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<KeyHolder> for Stop {
    fn from(holder: KeyHolder) -> Self {
        match holder {
            KeyHolder::SameCall(call_id) => Self::Repeats(call_id),
            KeyHolder::OtherCall(call_id) => Self::KeyTaken(call_id),
        }
    }
}

impl From<NotOpened> for Stop {
    fn from(not_opened: NotOpened) -> Self {
        match not_opened {
            NotOpened::KeyHeld(holder) => holder.into(),
            NotOpened::OverBudget(outcome) => Self::Ended(outcome),
        }
    }
}

//! What has happened and is not on record yet: tried again until it is.
//!
//! A disk can be full when a call's end is to be recorded. If the call ran, the effect cannot be taken back, and
//! whoever waits must not be told that nothing happened. So the call stays under way: everybody who asks learns that it
//! is not on record yet, and recording is tried again, ever more slowly, for as long as the daemon lives. A daemon that
//! ends tries once more, then records that nobody knows; if that fails too, the next start does it.
//!
//! An outcome that is not durable is never told to anybody.

use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use crate::live::LiveCall;
use palyra_journal::{Finish, JournalError, Resolve};
use palyra_protocol::{ApprovalState, CallId, CallState, Problem};
use std::sync::Arc;
use std::time::Duration;

/// How long to wait before the first repetition; each wait is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest wait: how late a call ends at most once there is room.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What has happened to a call and is to be recorded.
#[derive(Debug)]
pub(crate) enum Unrecorded {
    /// It ran, and this is how it ended.
    Outcome(Finish),
    /// It ends here.
    End { from: CallState, state: CallState, problem: Problem },
    /// Its approval ended without an answer.
    Approval(Box<Resolve>),
}

impl Unrecorded {
    /// The call ran, and nobody will know how it ended.
    pub(crate) fn unknown_outcome() -> Self {
        let problem = Problem::new(
            "indeterminate",
            "the call ran, and its outcome could not be recorded; it is not run again",
            "look at what it was about to change, then propose it anew if it is still wanted",
        );
        Self::End { from: CallState::Executing, state: CallState::Indeterminate, problem }
    }

    /// The call was approved and does not start.
    pub(crate) fn cancelled(problem: Problem) -> Self {
        Self::End { from: CallState::Approved, state: CallState::Cancelled, problem }
    }

    /// What everybody who asks about the call is told until it is on record.
    fn problem(&self, call_id: &CallId, cause: &JournalError) -> (ErrorKind, Problem) {
        let why = match cause {
            JournalError::DiskFull => "the journal's disk is full",
            _ => "the journal cannot be written",
        };
        let ran = match self {
            Self::Outcome(_) => true,
            Self::End { from, .. } => *from == CallState::Executing,
            Self::Approval(_) => false,
        };
        if ran {
            let message = format!("the call ran, but its outcome is not on record yet: {why}");
            let hint = format!("do not repeat it; make room, then `palyra calls follow {call_id}` tells how it ended");
            return (ErrorKind::Unrecorded, Problem::new("outcome_not_recorded", message, hint));
        }
        let message = format!("the call did not run, and that is not on record yet: {why}");
        let hint = format!("make room, then look at it: `palyra calls show {call_id}`");
        (ErrorKind::Unavailable, Problem::new(cause.code(), message, hint))
    }
}

impl Engine {
    /// Keeps a call under way until its end is on record; the error is for those who wait.
    pub(crate) fn keep(
        &self,
        call_id: &CallId,
        live: &Arc<LiveCall>,
        unrecorded: Unrecorded,
        cause: &JournalError,
    ) -> EngineError {
        tracing::error!(error = cause as &dyn std::error::Error, %call_id, "a call's end is not on record yet");
        let (kind, problem) = unrecorded.problem(call_id, cause);
        let told = Arc::new((kind, problem.clone()));
        live.update(|now| now.unrecorded = Some(told));
        let (engine, id, live) = (self.clone(), call_id.clone(), Arc::clone(live));
        tokio::spawn(async move { engine.keep_trying(id, live, unrecorded).await });
        EngineError::new(kind, problem)
    }

    async fn keep_trying(&self, call_id: CallId, live: Arc<LiveCall>, unrecorded: Unrecorded) {
        let mut pause = FIRST_PAUSE;
        loop {
            let last = tokio::select! {
                () = tokio::time::sleep(pause) => false,
                () = self.closing().cancelled() => true,
            };
            pause = (pause * 2).min(LONGEST_PAUSE);
            let Err(error) = self.record(&call_id, &unrecorded).await else { break };
            if error.may_pass() && !last {
                continue;
            }
            // Smaller than an outcome, so it may fit where that did not.
            let unknown = matches!(unrecorded, Unrecorded::Outcome(_)).then(Unrecorded::unknown_outcome);
            let ended = match &unknown {
                Some(unknown) => self.record(&call_id, unknown).await,
                None => Err(error),
            };
            if let Err(error) = ended {
                let error = &error as &dyn std::error::Error;
                tracing::error!(error, %call_id, "a call's end was not recorded; the next start does it");
            }
            break;
        }
        self.tell_recorded_end(&call_id, &live).await;
        self.live().leave(&call_id);
    }

    async fn record(&self, call_id: &CallId, unrecorded: &Unrecorded) -> Result<(), JournalError> {
        match unrecorded {
            Unrecorded::Outcome(finish) => self.journal().finish_call(finish).await.map(drop),
            Unrecorded::End { from, state, problem } => {
                self.journal().end_call(call_id, *from, *state, problem.clone()).await.map(drop)
            }
            Unrecorded::Approval(unanswered) => match self.settle_approval(unanswered.as_ref().clone(), None).await {
                // Somebody said yes meanwhile. It was too late: nobody waits to start the call any more.
                Err(JournalError::AlreadyResolved { state: ApprovalState::Allowed }) => {
                    let problem = Problem::plain("cancelled", "the call had ended when the answer came");
                    let (from, state) = (CallState::Approved, CallState::Cancelled);
                    self.journal().end_call(call_id, from, state, problem).await.map(drop)
                }
                Ok(_) | Err(JournalError::AlreadyResolved { .. }) => Ok(()),
                Err(error) => Err(error),
            },
        }
    }

    async fn tell_recorded_end(&self, call_id: &CallId, live: &LiveCall) {
        match self.journal().call(call_id).await {
            Ok(view) if view.state.is_terminal() => live.update(|now| {
                now.state = view.state;
                now.outcome = view.outcome.map(Arc::new);
                now.unrecorded = None;
            }),
            Ok(view) => tracing::error!(%call_id, state = view.state.as_str(), "a call was let go before its end"),
            Err(error) => tracing::error!(error = &error as &dyn std::error::Error, %call_id, "a call cannot be read"),
        }
    }
}

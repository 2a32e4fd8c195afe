//! Calls that are under way in this process: who follows them, and how to cancel them.
//!
//! What is here is only news. The truth is in the journal: a follower that comes late, or after a restart, finds
//! everything there.

use crate::output::LiveOutput;
use palyra_protocol::{ApprovalRecord, CallId, CallState, Origin, RunId, SessionId, ToolDecision, ToolOutcome};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

/// More than the states that one call can pass through, so that no follower of a call misses one.
const BACKLOG: usize = 16;

/// Where a call stands, with all that is known by then.
#[derive(Debug, Clone)]
pub struct CallUpdate {
    /// The call.
    pub call_id: CallId,
    /// Where it stands.
    pub state: CallState,
    /// The tool as it was named.
    pub tool: String,
    /// Its session.
    pub session: SessionId,
    /// Its run.
    pub run: RunId,
    /// The decision, once there is one.
    pub decision: Option<Arc<ToolDecision>>,
    /// The approval, while or after a human is asked.
    pub approval: Option<Arc<ApprovalRecord>>,
    /// The outcome, once the call has ended.
    pub outcome: Option<Arc<ToolOutcome>>,
    /// The call was known already, by its idempotency key.
    pub replayed: bool,
}

/// One call under way.
#[derive(Debug)]
pub(crate) struct LiveCall {
    cancel: CancellationToken,
    news: broadcast::Sender<CallUpdate>,
    latest: Mutex<CallUpdate>,
    output: LiveOutput,
}

impl LiveCall {
    /// The token that ends it.
    pub(crate) fn cancel(&self) -> &CancellationToken {
        &self.cancel
    }

    /// Where its process writes to.
    pub(crate) fn output(&self) -> &LiveOutput {
        &self.output
    }

    /// Changes what is known and tells the followers.
    pub(crate) fn update(&self, change: impl FnOnce(&mut CallUpdate)) {
        let mut latest = lock(&self.latest);
        change(&mut latest);
        // Nobody listening is fine: the journal has it.
        drop(self.news.send(latest.clone()));
    }

    /// Where it stands now, and everything that follows.
    pub(crate) fn follow(&self) -> (CallUpdate, broadcast::Receiver<CallUpdate>) {
        let latest = lock(&self.latest);
        (latest.clone(), self.news.subscribe())
    }
}

/// All calls under way.
#[derive(Debug, Default)]
pub(crate) struct LiveCalls {
    calls: Mutex<HashMap<CallId, Arc<LiveCall>>>,
}

impl LiveCalls {
    /// Enters a call that is about to be decided.
    pub(crate) fn enter(&self, call_id: &CallId, tool: &str, origin: &Origin, state: CallState) -> Arc<LiveCall> {
        let update = CallUpdate {
            call_id: call_id.clone(),
            state,
            tool: tool.to_owned(),
            session: origin.session.clone(),
            run: origin.run.clone(),
            decision: None,
            approval: None,
            outcome: None,
            replayed: false,
        };
        let live = Arc::new(LiveCall {
            cancel: CancellationToken::new(),
            news: broadcast::Sender::new(BACKLOG),
            latest: Mutex::new(update),
            output: LiveOutput::default(),
        });
        lock(&self.calls).insert(call_id.clone(), Arc::clone(&live));
        live
    }

    /// Removes a call that has ended; its followers' streams end.
    pub(crate) fn leave(&self, call_id: &CallId) {
        lock(&self.calls).remove(call_id);
    }

    /// A call under way.
    pub(crate) fn get(&self, call_id: &CallId) -> Option<Arc<LiveCall>> {
        lock(&self.calls).get(call_id).cloned()
    }

    /// Every call under way.
    pub(crate) fn all(&self) -> Vec<Arc<LiveCall>> {
        lock(&self.calls).values().cloned().collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

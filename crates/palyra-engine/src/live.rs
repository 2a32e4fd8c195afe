//! Calls that are under way in this process: who follows them, and how to cancel them.
//!
//! What is here is only news. The truth is in the journal: a follower that comes late, or after a restart, finds
//! everything there.

use crate::config::CallLimits;
use crate::error::{EngineError, ErrorKind};
use crate::flow::handover::{StartGate, gate_of};
use crate::load::Load;
use crate::output::LiveOutput;
use palyra_protocol::{
    ApprovalRecord, CallId, CallState, Origin, Principal, Problem, RunId, SessionId, Ticket, ToolDecision, ToolOutcome,
    WorkspaceId,
};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
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
    /// What whoever waits is told while the call's end is not on record.
    pub unrecorded: Option<Arc<(ErrorKind, Problem)>>,
    /// The call was known already, by its idempotency key.
    pub replayed: bool,
}

impl CallUpdate {
    /// The error of a call whose end is not on record.
    pub(crate) fn unrecorded(&self) -> Option<EngineError> {
        self.unrecorded.as_deref().map(|(kind, problem)| EngineError::new(*kind, problem.clone()))
    }
}

/// Why a call is to end before its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Withdrawal {
    /// Somebody withdrew it.
    By(Principal),
    /// The daemon ends.
    ShuttingDown,
}

/// One call under way.
#[derive(Debug)]
pub(crate) struct LiveCall {
    cancel: CancellationToken,
    withdrawn: OnceLock<Withdrawal>,
    news: broadcast::Sender<CallUpdate>,
    latest: Mutex<CallUpdate>,
    output: LiveOutput,
    /// Where it waits for its ticket, if it has one.
    gate: Option<Arc<StartGate>>,
}

impl LiveCall {
    /// The token that ends it.
    pub(crate) fn cancel(&self) -> &CancellationToken {
        &self.cancel
    }

    /// Has it end; the first reason counts.
    pub(crate) fn withdraw(&self, why: Withdrawal) {
        self.withdrawn.get_or_init(|| why);
        self.cancel.cancel();
    }

    /// Why it was to end, if it was.
    pub(crate) fn withdrawn(&self) -> Option<&Withdrawal> {
        self.withdrawn.get()
    }

    /// Where it waits for its ticket; none for a call that starts at once.
    pub(crate) fn gate(&self) -> Option<&StartGate> {
        self.gate.as_deref()
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
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    calls: HashMap<CallId, Entry>,
    load: Load,
}

#[derive(Debug)]
struct Entry {
    live: Arc<LiveCall>,
    who: Principal,
    workspace: Option<WorkspaceId>,
    /// The size of its question, while that waits.
    question: Option<usize>,
}

impl LiveCalls {
    /// Enters a call that is about to be decided. One that finds too many others is not counted, and comes back with
    /// the reason for its refusal.
    pub(crate) fn enter(
        &self,
        call_id: &CallId,
        (tool, state): (&str, CallState),
        origin: &Origin,
        limits: Option<&CallLimits>,
    ) -> (Arc<LiveCall>, Option<Problem>) {
        let (gate, without) = match gate_of(origin.carrier) {
            Ok(gate) => (gate, None),
            Err(problem) => (None, Some(problem)),
        };
        let update = CallUpdate {
            call_id: call_id.clone(),
            state,
            tool: tool.to_owned(),
            session: origin.session.clone(),
            run: origin.run.clone(),
            decision: None,
            approval: None,
            outcome: None,
            unrecorded: None,
            replayed: false,
        };
        let live = Arc::new(LiveCall {
            cancel: CancellationToken::new(),
            withdrawn: OnceLock::new(),
            news: broadcast::Sender::new(BACKLOG),
            latest: Mutex::new(update),
            output: LiveOutput::default(),
            gate,
        });
        let who = origin.principal.clone();
        let mut inner = lock(&self.inner);
        if let Err(refused) = without.map_or_else(|| inner.load.call(&who, limits), Err) {
            return (live, Some(refused));
        }
        let workspace = origin.workspace.clone();
        inner.calls.insert(call_id.clone(), Entry { live: Arc::clone(&live), who, workspace, question: None });
        (live, None)
    }

    /// Counts the question that a call is about to put to a person.
    pub(crate) fn ask(&self, call_id: &CallId, bytes: usize, limits: Option<&CallLimits>) -> Result<(), Problem> {
        let Inner { calls, load } = &mut *lock(&self.inner);
        let Some(entry) = calls.get_mut(call_id).filter(|entry| entry.question.is_none()) else { return Ok(()) };
        load.question(&entry.who, bytes, limits)?;
        entry.question = Some(bytes);
        Ok(())
    }

    /// Counts an approval that is about no call.
    pub(crate) fn ask_by_itself(
        &self,
        who: &Principal,
        bytes: usize,
        limits: Option<&CallLimits>,
    ) -> Result<(), Problem> {
        lock(&self.inner).load.question(who, bytes, limits)
    }

    /// An approval that is about no call has ended.
    pub(crate) fn answered_by_itself(&self, who: &Principal, bytes: usize) {
        lock(&self.inner).load.answered(who, bytes);
    }

    /// A call's question has ended.
    pub(crate) fn answered(&self, call_id: &CallId) {
        let Inner { calls, load } = &mut *lock(&self.inner);
        if let Some(entry) = calls.get_mut(call_id)
            && let Some(bytes) = entry.question.take()
        {
            load.answered(&entry.who, bytes);
        }
    }

    /// Removes a call that has ended; its followers' streams end.
    pub(crate) fn leave(&self, call_id: &CallId) {
        let Inner { calls, load } = &mut *lock(&self.inner);
        let Some(entry) = calls.remove(call_id) else { return };
        if let Some(bytes) = entry.question {
            load.answered(&entry.who, bytes);
        }
        load.ended(&entry.who);
    }

    /// A call under way.
    pub(crate) fn get(&self, call_id: &CallId) -> Option<Arc<LiveCall>> {
        lock(&self.inner).calls.get(call_id).map(|entry| Arc::clone(&entry.live))
    }

    /// A call under way, if it is of this principal in this workspace, and of this tool.
    pub(crate) fn like(&self, call_id: &CallId, origin: &Origin, tool: &str) -> Option<Arc<LiveCall>> {
        let inner = lock(&self.inner);
        let own = |entry: &&Entry| entry.who == origin.principal && entry.workspace == origin.workspace;
        let entry = inner.calls.get(call_id).filter(own)?;
        let live = Arc::clone(&entry.live);
        drop(inner);
        let is_of_tool = lock(&live.latest).tool == tool;
        is_of_tool.then_some(live)
    }

    /// How many calls of a tool run for a principal.
    pub(crate) fn running_of(&self, who: &Principal, tool: &str) -> usize {
        let inner = lock(&self.inner);
        let runs = |entry: &&Entry| {
            let latest = lock(&entry.live.latest);
            entry.who == *who && latest.tool == tool && latest.state == CallState::Executing
        };
        inner.calls.values().filter(runs).count()
    }

    /// The call under way that a ticket was made for. Those that wait for theirs are few.
    pub(crate) fn by_ticket(&self, ticket: &Ticket) -> Option<(CallId, Arc<LiveCall>)> {
        let inner = lock(&self.inner);
        let held = |entry: &&Entry| entry.live.gate().is_some_and(|gate| gate.ticket() == ticket);
        let (id, entry) = inner.calls.iter().find(|(_, entry)| held(entry))?;
        Some((id.clone(), Arc::clone(&entry.live)))
    }

    /// How many calls are under way in a workspace.
    pub(crate) fn in_workspace(&self, workspace: &WorkspaceId) -> usize {
        lock(&self.inner).calls.values().filter(|entry| entry.workspace.as_ref() == Some(workspace)).count()
    }

    /// Every call under way.
    pub(crate) fn all(&self) -> Vec<Arc<LiveCall>> {
        lock(&self.inner).calls.values().map(|entry| Arc::clone(&entry.live)).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

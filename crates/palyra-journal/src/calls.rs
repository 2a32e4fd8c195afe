//! Calls after their opening: starting one that was approved, finishing it, looking it up. Each change is one
//! transaction.

use crate::call_rows::{CallRow, CallView, advance, by_key, end, insert, view, workspace_of_session};
use crate::error::JournalError;
use crate::history::HistoryFault;
use crate::recorded::Recorded;
use crate::store::JournalStore;
use crate::writer::PreparedEvent;
use palyra_protocol::{
    ApprovalRecord, Authority, CallId, CallState, Digest, EgressRecord, FinishedCall, IdempotencyKey, JournalEvent,
    Origin, Principal, Problem, SessionId, Timestamp, ToolOutcome, WorkspaceId,
};
use std::sync::Arc;

/// An outcome on its way into the journal, kept whole until it is there.
#[derive(Debug)]
pub struct Finish {
    finished: Arc<FinishedCall>,
    prepared: Arc<Finishing>,
}

#[derive(Debug)]
struct Finishing {
    connections: Vec<PreparedEvent>,
    finished: PreparedEvent,
}

impl Finish {
    /// An outcome, and the connections of its call that are not on record yet.
    ///
    /// # Errors
    /// It has no form that can be recorded.
    pub fn new(finished: FinishedCall, connections: &[EgressRecord]) -> Result<Self, JournalError> {
        let finished = Arc::new(finished);
        let connections = connection_events(&finished.call_id, connections)?;
        let event = PreparedEvent::new(&JournalEvent::ToolFinished(Arc::clone(&finished)))?;
        Ok(Self { finished, prepared: Arc::new(Finishing { connections, finished: event }) })
    }

    /// The outcome, recorded at this time.
    #[must_use]
    pub fn into_outcome(self, ended_at: Timestamp) -> ToolOutcome {
        Arc::unwrap_or_clone(self.finished).into_outcome(ended_at)
    }
}

fn connection_events(call_id: &CallId, connections: &[EgressRecord]) -> Result<Vec<PreparedEvent>, JournalError> {
    let event = |connection: &EgressRecord| {
        let (call_id, connection) = (call_id.clone(), Box::new(connection.clone()));
        PreparedEvent::new(&JournalEvent::EgressConnection { call_id, connection })
    };
    connections.iter().map(event).collect()
}

impl JournalStore {
    /// Records that the call of an approval starts now.
    ///
    /// # Errors
    /// The call is not waiting to start, or nothing could be recorded.
    pub async fn start_approved<P: Send>(
        &self,
        approval: &ApprovalRecord,
        permit: P,
    ) -> Result<Recorded<P>, JournalError> {
        let id = approval.call_id.clone();
        let event = PreparedEvent::new(&JournalEvent::ToolStarted {
            call_id: id.clone(),
            authority: Authority::Approval(approval.approval_id.clone()),
            call_digest: Some(approval.call_digest),
        })?;
        self.write(move |tx| {
            advance(tx, &id, CallState::Approved, CallState::Executing)?;
            tx.append(&event)
        })
        .await?;
        Ok(Recorded::after_commit(permit))
    }

    /// Records the outcome of an execution. It is only lent: one that finds no room is tried again.
    ///
    /// # Errors
    /// The call is not executing, or nothing could be recorded.
    pub async fn finish_call(&self, finish: &Finish) -> Result<Timestamp, JournalError> {
        let prepared = Arc::clone(&finish.prepared);
        let (id, state) = (finish.finished.call_id.clone(), finish.finished.state);
        self.write(move |tx| {
            for connection in &prepared.connections {
                tx.append(connection)?;
            }
            let seq = tx.append(&prepared.finished)?;
            end(tx, &id, CallState::Executing, state, seq)?;
            Ok(tx.now)
        })
        .await
    }

    /// Records connections of a running call, all of them or none.
    ///
    /// # Errors
    /// Nothing was recorded.
    pub async fn record_egress(&self, call_id: &CallId, connections: &[EgressRecord]) -> Result<(), JournalError> {
        let events = connection_events(call_id, connections)?;
        self.write(move |tx| events.iter().try_for_each(|event| tx.append(event).map(drop))).await
    }

    /// Records the end of a call that did not run, or of which nobody knows.
    ///
    /// # Errors
    /// The call is not in the state it is expected in, or nothing could be recorded.
    pub async fn end_call(
        &self,
        call_id: &CallId,
        from: CallState,
        state: CallState,
        problem: Problem,
    ) -> Result<Box<ToolOutcome>, JournalError> {
        let ended = JournalEvent::ToolEnded { call_id: call_id.clone(), state, problem: problem.clone(), grant: None };
        let event = PreparedEvent::new(&ended)?;
        let id = call_id.clone();
        self.write(move |tx| {
            let seq = tx.append(&event)?;
            end(tx, &id, from, state, seq)?;
            Ok(Box::new(ToolOutcome::without_output(id.clone(), state, problem.clone(), tx.now)))
        })
        .await
    }

    /// Records a proposal that never became a call.
    ///
    /// # Errors
    /// Nothing was recorded.
    pub async fn refuse_call(&self, refused: RefusedCall) -> Result<Refused, JournalError> {
        let RefusedCall { call_id, tool, input_sha256, origin, state, problem, idempotency_key } = refused;
        let event = PreparedEvent::new(&JournalEvent::ToolRejected {
            call_id: call_id.clone(),
            tool: tool.clone(),
            input_sha256,
            origin: Box::new(origin.clone()),
            state,
            problem: problem.clone(),
            idempotency_key: idempotency_key.clone(),
        })?;
        self.write(move |tx| {
            if let Some(key) = &idempotency_key
                && let Some((earlier, _)) = by_key(tx.connection, &origin.principal.to_string(), key.as_str())?
            {
                return Ok(Refused::KeyHeld(earlier));
            }
            let seq = tx.append(&event)?;
            let row = CallRow {
                call_id: &call_id,
                origin: &origin,
                tool: &tool,
                digest: &input_sha256,
                key: idempotency_key.as_ref(),
                state,
                opened: seq,
                ended: Some(seq),
            };
            insert(tx, &row)?;
            let outcome = ToolOutcome::without_output(call_id.clone(), state, problem.clone(), tx.now);
            Ok(Refused::Recorded(Box::new(outcome)))
        })
        .await
    }

    /// A call and where it stands.
    ///
    /// # Errors
    /// There is no such call, or it cannot be read.
    pub async fn call(&self, call_id: &CallId) -> Result<CallView, JournalError> {
        let id = call_id.clone();
        self.read(move |c| view(c, &id)).await
    }

    /// How a call ended.
    ///
    /// # Errors
    /// There is no such call, it has not ended, or it cannot be read.
    pub async fn outcome(&self, call_id: &CallId) -> Result<Box<ToolOutcome>, JournalError> {
        let CallView { state, outcome, .. } = self.call(call_id).await?;
        outcome.map(Box::new).ok_or(JournalError::CallMoved { state })
    }

    /// The calls that by their events have not ended: what a restart has to take care of, oldest first.
    ///
    /// # Errors
    /// They cannot be read, or a table says what their events do not.
    pub async fn open_calls(&self) -> Result<Vec<CallView>, JournalError> {
        self.read(|c| {
            // One snapshot, so that what is appended meanwhile does not look like a contradiction.
            let snapshot = c.unchecked_transaction()?;
            let ids = crate::tables::check_open(&snapshot)?;
            ids.iter().map(|id| view(&snapshot, id)).collect()
        })
        .await
    }

    /// Where the first call of a session was proposed: the workspace, or its path where only that was recorded; none for
    /// a session that has none.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn workspace_of_session(
        &self,
        principal: &Principal,
        session: &SessionId,
    ) -> Result<Option<Result<WorkspaceId, String>>, JournalError> {
        let (principal, session) = (principal.to_string(), session.clone());
        self.read(move |c| workspace_of_session(c, &principal, session.as_str())).await
    }

    /// The earlier call that an idempotency key belongs to.
    ///
    /// # Errors
    /// It cannot be read, or a table says what its events do not.
    pub async fn call_by_key(
        &self,
        principal: &Principal,
        key: &IdempotencyKey,
    ) -> Result<Option<CallView>, JournalError> {
        let (principal, key) = (principal.to_string(), key.to_string());
        self.read(move |c| {
            let Some((call_id, _)) = by_key(c, &principal, &key)? else { return Ok(None) };
            let call = view(c, &call_id)?;
            if (call.principal.to_string(), call.key.as_ref().map(IdempotencyKey::as_str)) == (principal, Some(&key)) {
                return Ok(Some(call));
            }
            Err(HistoryFault::table("calls", format!("`{call_id}` does not have this idempotency key")))
        })
        .await
    }
}

/// A proposal that never became a call.
#[derive(Debug)]
pub struct RefusedCall {
    /// Its id.
    pub call_id: CallId,
    /// The tool's name as it was sent, cut to a printable excerpt.
    pub tool: String,
    /// SHA-256 of the input as it was sent.
    pub input_sha256: Digest,
    /// Who asked, from where.
    pub origin: Origin,
    /// `rejected` or `denied`.
    pub state: CallState,
    /// Why.
    pub problem: Problem,
    /// The key under which a repetition gets the same refusal; none for a refusal that only holds for now.
    pub idempotency_key: Option<IdempotencyKey>,
}

/// What became of a refusal.
#[derive(Debug)]
pub enum Refused {
    /// It is recorded.
    Recorded(Box<ToolOutcome>),
    /// The idempotency key belongs to this earlier call of the same principal. Nothing was recorded.
    KeyHeld(CallId),
}

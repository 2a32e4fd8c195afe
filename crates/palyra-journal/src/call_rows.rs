//! The projection of calls: a row each, kept in the same transaction as the events it follows from.

use crate::error::JournalError;
use crate::history::HistoryFault;
use crate::prepared_statements::Hot;
use crate::writer::{Transaction, digest};
use palyra_protocol::{
    CallId, CallRecord, CallState, Digest, IdempotencyKey, JournalEvent, Origin, Principal, RunId, SessionId,
    Timestamp, ToolOutcome, WorkspaceId,
};
use rusqlite::{Connection, OptionalExtension, Row};
use std::sync::Arc;

/// A call as the journal knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct CallView {
    /// Its id.
    pub call_id: CallId,
    /// In whose name it was made.
    pub principal: Principal,
    /// Its session.
    pub session: SessionId,
    /// Its run.
    pub run: RunId,
    /// The tool, as it was named.
    pub tool: String,
    /// What it would do.
    pub digest: Digest,
    /// The caller's idempotency key.
    pub key: Option<IdempotencyKey>,
    /// Where it stands.
    pub state: CallState,
    /// Where it was proposed, as far as that was named.
    pub workspace: Option<WorkspaceId>,
    /// The proposal as it was recorded; absent for one that never became a call.
    pub record: Option<CallRecord>,
    /// How it ended, if it has.
    pub outcome: Option<ToolOutcome>,
}

/// What the projection keeps of a call.
pub(crate) struct CallRow<'a> {
    pub(crate) call_id: &'a CallId,
    pub(crate) origin: &'a Origin,
    pub(crate) tool: &'a str,
    pub(crate) digest: &'a Digest,
    pub(crate) key: Option<&'a IdempotencyKey>,
    pub(crate) state: CallState,
    pub(crate) opened: u64,
    pub(crate) ended: Option<u64>,
}

pub(crate) fn insert(tx: &mut Transaction<'_>, row: &CallRow<'_>) -> Result<(), JournalError> {
    if row.ended.is_none() {
        tx.open_calls.opened(row.call_id, row.opened);
    }
    tx.hot.execute(
        Hot::InsertCall,
        rusqlite::params![
            row.call_id.as_str(),
            row.origin.principal.to_string(),
            row.origin.session.as_str(),
            row.origin.run.as_str(),
            row.tool,
            row.digest.as_bytes(),
            row.key.map(IdempotencyKey::as_str),
            row.state.as_str(),
            row.opened,
            row.ended,
        ],
    )?;
    Ok(())
}

/// Moves a call from the state it is expected in to the next, or says where it is.
pub(crate) fn advance(
    tx: &mut Transaction<'_>,
    call_id: &CallId,
    from: CallState,
    to: CallState,
) -> Result<(), JournalError> {
    step(tx, call_id, from, to, None)
}

/// Moves a call to its end, which event `seq` states.
pub(crate) fn end(
    tx: &mut Transaction<'_>,
    call_id: &CallId,
    from: CallState,
    to: CallState,
    seq: u64,
) -> Result<(), JournalError> {
    step(tx, call_id, from, to, Some(seq))
}

fn step(
    tx: &mut Transaction<'_>,
    call_id: &CallId,
    from: CallState,
    to: CallState,
    ended: Option<u64>,
) -> Result<(), JournalError> {
    let states = (from.as_str(), to.as_str());
    let moved = tx.hot.execute(Hot::MoveCall, rusqlite::params![call_id.as_str(), states.0, states.1, ended])?;
    if moved == 1 {
        if ended.is_some() {
            tx.open_calls.ended(call_id);
        }
        return Ok(());
    }
    match state_of(tx.connection, call_id)? {
        Some(state) => Err(JournalError::CallMoved { state }),
        None => Err(JournalError::NotFound { what: "call", id: call_id.to_string() }),
    }
}

fn state_of(connection: &Connection, call_id: &CallId) -> Result<Option<CallState>, JournalError> {
    let state: Option<String> = connection
        .prepare_cached("SELECT state FROM calls WHERE call_id = ?1")?
        .query_row([call_id.as_str()], |r| r.get(0))
        .optional()?;
    state.map(|s| CallState::parse(&s).ok_or_else(|| unreadable(&s))).transpose()
}

pub(crate) fn by_key(
    connection: &Connection,
    principal: &str,
    key: &str,
) -> Result<Option<(CallId, Digest)>, JournalError> {
    let found: Option<(String, [u8; 32])> = connection
        .prepare_cached("SELECT call_id, digest FROM calls WHERE principal = ?1 AND key = ?2")?
        .query_row((principal, key), |r| Ok((r.get(0)?, r.get(1)?)))
        .optional()?;
    found.map(|(id, bytes)| Ok((parse(&id)?, digest(bytes)))).transpose()
}

/// A call by its row, held against the events that the row leads to.
///
/// INVARIANT (founded_in_events): a row that leads to another call's events answers for no call.
pub(crate) fn view(connection: &Connection, call_id: &CallId) -> Result<CallView, JournalError> {
    let row = connection
        .prepare_cached(
            "SELECT principal, session, run, tool, digest, key, state, opened_seq, ended_seq
             FROM calls WHERE call_id = ?1",
        )?
        .query_row([call_id.as_str()], columns)
        .optional()?
        .ok_or_else(|| JournalError::NotFound { what: "call", id: call_id.to_string() })?;
    let outcome = match row.ended {
        Some(seq) => {
            let (event, at) = crate::events::event_at(connection, seq)?;
            outcome_of(event, at)
        }
        None => None,
    };
    let opened = crate::events::event_at(connection, row.opened)?.0;
    let ended_here = match &outcome {
        Some(outcome) => outcome.call_id == *call_id && outcome.state.as_str() == row.state,
        None => row.ended.is_none(),
    };
    if !row.is_of(call_id, &opened) || !ended_here {
        let reason = format!("`{call_id}` is another call there than its events say");
        return Err(HistoryFault::table("calls", reason));
    }
    let (workspace, record) = match opened {
        JournalEvent::ToolProposed { call } => (call.origin.workspace.clone(), Some(Arc::unwrap_or_clone(call))),
        JournalEvent::ToolRejected { origin, .. } => (origin.workspace, None),
        _ => (None, None),
    };
    Ok(CallView {
        call_id: call_id.clone(),
        principal: row.principal.parse().map_err(|_| unreadable(&row.principal))?,
        session: row.session.parse().map_err(|_| unreadable(&row.session))?,
        run: row.run.parse().map_err(|_| unreadable(&row.run))?,
        tool: row.tool,
        digest: digest(row.digest),
        key: row.key.map(|key| key.parse().map_err(|_| unreadable(&key))).transpose()?,
        state: CallState::parse(&row.state).ok_or_else(|| unreadable(&row.state))?,
        workspace,
        record,
        outcome,
    })
}

/// Where the first call of a session was proposed: the workspace, or its path where only that was recorded. None for a
/// session without calls; those that never became calls and named no workspace do not count.
pub(crate) fn workspace_of_session(
    connection: &Connection,
    principal: &str,
    session: &str,
) -> Result<Option<Result<WorkspaceId, String>>, JournalError> {
    let mut statement = connection.prepare_cached(
        "SELECT opened_seq FROM calls INDEXED BY calls_by_session WHERE principal = ?1 AND session = ?2",
    )?;
    let mut rows = statement.query((principal, session))?;
    while let Some(row) = rows.next()? {
        let found = match crate::events::event_at(connection, row.get(0)?)?.0 {
            JournalEvent::ToolProposed { call } => {
                Some(call.origin.workspace.clone().ok_or_else(|| call.workspace_root.clone()))
            }
            JournalEvent::ToolRejected { origin, .. } => origin.workspace.map(Ok),
            _ => None,
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

struct Columns {
    principal: String,
    session: String,
    run: String,
    tool: String,
    digest: [u8; 32],
    key: Option<String>,
    state: String,
    opened: u64,
    ended: Option<u64>,
}

impl Columns {
    /// Whether the event that opened a call says what the row says.
    fn is_of(&self, call_id: &CallId, opened: &JournalEvent) -> bool {
        let (id, tool, digest, origin, key) = match opened {
            JournalEvent::ToolProposed { call } => {
                (&call.call_id, call.tool.as_str(), &call.digest, &call.origin, &call.idempotency_key)
            }
            JournalEvent::ToolRejected { call_id, tool, input_sha256, origin, idempotency_key, .. } => {
                (call_id, tool.as_str(), input_sha256, &**origin, idempotency_key)
            }
            _ => return false,
        };
        (id, tool, digest.as_bytes()) == (call_id, self.tool.as_str(), &self.digest)
            && self.key.as_deref() == key.as_ref().map(IdempotencyKey::as_str)
            && self.principal == origin.principal.to_string()
            && (self.session.as_str(), self.run.as_str()) == (origin.session.as_str(), origin.run.as_str())
    }
}

fn columns(r: &Row<'_>) -> Result<Columns, rusqlite::Error> {
    Ok(Columns {
        principal: r.get(0)?,
        session: r.get(1)?,
        run: r.get(2)?,
        tool: r.get(3)?,
        digest: r.get(4)?,
        key: r.get(5)?,
        state: r.get(6)?,
        opened: r.get(7)?,
        ended: r.get(8)?,
    })
}

/// The outcome that an ending event states.
fn outcome_of(event: JournalEvent, ended_at: Timestamp) -> Option<ToolOutcome> {
    match event {
        JournalEvent::ToolFinished(finished) => Some(Arc::unwrap_or_clone(finished).into_outcome(ended_at)),
        JournalEvent::ToolEnded { call_id, state, problem, .. }
        | JournalEvent::ToolRejected { call_id, state, problem, .. } => {
            Some(ToolOutcome::without_output(call_id, state, problem, ended_at))
        }
        _ => None,
    }
}

pub(crate) fn parse(id: &str) -> Result<CallId, JournalError> {
    id.parse().map_err(|_| unreadable(id))
}

pub(crate) fn unreadable(what: &str) -> JournalError {
    JournalError::Event { reason: format!("`{what}` is not what a projection should hold") }
}

//! Calls as a list: filtered, newest first, a bounded part of the table at a time.

use crate::call_rows::unreadable;
use crate::error::JournalError;
use crate::page::Listing;
use crate::store::JournalStore;
use palyra_protocol::{CallId, CallState, Facets, GrantId, Principal, ShownCall, Timestamp};
use rusqlite::Connection;
use serde::{Deserialize, Serialize};

/// How many rows one question looks at; who wants more asks again from where it ended.
const SCANNED: u32 = 20_000;

/// A call on one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallSummary {
    /// The call.
    pub call_id: CallId,
    /// In whose name it was made.
    pub principal: Principal,
    /// Its session.
    pub session: String,
    /// The tool, as it was named.
    pub tool: String,
    /// Where it stands.
    pub state: CallState,
    /// When it was proposed.
    pub at: Timestamp,
    /// What it would do, or did, on one line that may be cut.
    pub what: String,
    /// The real path of the workspace that it acts in; none for a proposal that never became a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
}

/// Which calls.
#[derive(Debug, Clone, Default)]
pub struct CallFilter {
    /// Only those of this principal.
    pub principal: Option<Principal>,
    /// Only those of this tool.
    pub tool: Option<String>,
    /// Only those of this session.
    pub session: Option<String>,
    /// Only those that stand so.
    pub state: Option<CallState>,
    /// Only those that were proposed since.
    pub since: Option<Timestamp>,
    /// Only those before this one.
    pub before: Option<CallId>,
    /// At most so many.
    pub most: u32,
}

#[derive(Deserialize)]
struct Opened {
    call: OpenedCall,
}

#[derive(Deserialize)]
struct OpenedCall {
    facets: Facets,
    workspace_root: String,
}

impl JournalStore {
    /// Calls, newest first, and the last that was looked at where others may follow.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn calls(&self, filter: CallFilter) -> Result<(Listing<CallSummary>, Option<CallId>), JournalError> {
        self.read(move |c| listed(c, &filter)).await
    }

    /// The newest calls that a grant answered: those that started by it, or that it denied.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn calls_of_grant(&self, grant: &GrantId, most: u32) -> Result<Vec<CallSummary>, JournalError> {
        let grant = grant.clone();
        self.read(move |c| {
            // No grant holds for more than a day, so this looks at a day of events at most.
            let mut statement = c.prepare_cached(
                "SELECT call_id FROM events WHERE seq > (SELECT created_seq FROM grants WHERE grant_id = ?1)
                 AND at <= coalesce((SELECT expires_at FROM grants WHERE grant_id = ?1), 9223372036854775807)
                 AND kind IN ('tool.started', 'tool.ended') AND instr(body, ?1) > 0 ORDER BY seq DESC LIMIT ?2",
            )?;
            let ids = statement.query_map((grant.as_str(), most), |r| r.get::<_, String>(0))?;
            ids.map(|id| summary(c, &id?)).collect()
        })
        .await
    }
}

fn listed(c: &Connection, filter: &CallFilter) -> Result<(Listing<CallSummary>, Option<CallId>), JournalError> {
    let before = filter.before.as_ref().map_or("~", CallId::as_str);
    let mut statement = c.prepare_cached(
        "SELECT call_id, principal, tool, session, state, (SELECT at FROM events WHERE seq = opened_seq) FROM calls
         WHERE call_id < ?1 ORDER BY call_id DESC LIMIT ?2",
    )?;
    let mut rows = statement.query((before, SCANNED))?;
    let (mut records, mut looked, mut last) = (Vec::new(), 0, None);
    while let Some(row) = rows.next()? {
        let (id, principal, tool): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let (session, state, at): (String, String, u64) = (row.get(3)?, row.get(4)?, row.get(5)?);
        if filter.since.is_some_and(|since| at < since.unix_ms()) {
            return Ok((Listing { records, more: false }, None));
        }
        looked += 1;
        let fits = filter.principal.as_ref().is_none_or(|wanted| wanted.to_string() == principal)
            && filter.tool.as_ref().is_none_or(|wanted| *wanted == tool)
            && filter.session.as_ref().is_none_or(|wanted| *wanted == session)
            && filter.state.is_none_or(|wanted| wanted.as_str() == state);
        if fits && records.len() >= filter.most as usize {
            return Ok((Listing { records, more: true }, last));
        }
        last = Some(id.parse().map_err(|_| unreadable(&id))?);
        if fits {
            records.push(summary(c, &id)?);
        }
    }
    let more = looked == SCANNED;
    Ok((Listing { records, more }, last.filter(|_| more)))
}

fn summary(c: &Connection, id: &str) -> Result<CallSummary, JournalError> {
    let row = c
        .prepare_cached(
            "SELECT principal, session, tool, state, at, body FROM calls JOIN events ON seq = opened_seq
             WHERE calls.call_id = ?1",
        )?
        .query_row([id], |r| {
            let texts: (String, String, String, String) = (r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?);
            Ok((texts, r.get::<_, u64>(4)?, r.get::<_, String>(5)?))
        })?;
    let ((principal, session, tool, state), at, body) = row;
    // A proposal that never became a call has none.
    let opened = serde_json::from_str::<Opened>(&body).map(|opened| opened.call).ok();
    let (what, workspace) = opened.map(|call| (ShownCall::of(&call.facets).what, call.workspace_root)).unzip();
    Ok(CallSummary {
        call_id: id.parse().map_err(|_| unreadable(id))?,
        principal: principal.parse().map_err(|_| unreadable(&principal))?,
        session,
        tool,
        state: CallState::parse(&state).ok_or_else(|| unreadable(&state))?,
        at: Timestamp::from_unix_ms(at),
        what: what.unwrap_or_default(),
        workspace,
    })
}

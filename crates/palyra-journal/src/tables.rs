//! Holding the tables against what the events say.
//!
//! Calls and runs are as many as history is long, so they are not looked up one by one: what follows from the events
//! and what stands in the table are each summed up, and the sums compared. The sum adds a 128-bit hash of every row
//! under a key that is drawn anew each time, so that an attacker cannot prepare rows that cancel each other out. Only
//! when sums differ is the row looked for that is to blame.

use crate::error::JournalError;
use crate::grants::OTHER_RULES;
use crate::history::{CallFacts, Deaf, Grant, History, HistoryFault, Ledger, Open};
use palyra_protocol::{ApprovalRecord, CallId, CallState, Digest, GrantRecord, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row};
use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash, RandomState};

/// Rows, whatever their order, as one number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sum {
    rows: u64,
    hashes: u128,
}

#[derive(Debug, Default)]
struct Keys(RandomState, RandomState);

impl Keys {
    fn add(&self, sum: &mut Sum, row: &impl Hash, times: u64) {
        let hash = (u128::from(self.0.hash_one(row)) << 64) | u128::from(self.1.hash_one(row));
        sum.hashes = sum.hashes.wrapping_add(hash.wrapping_mul(u128::from(times)));
        sum.rows += 1;
    }
}

/// Sums up what follows from the events.
pub(crate) struct Sums<'c> {
    connection: &'c Connection,
    keys: Keys,
    calls: Sum,
    runs: Sum,
    approvals: u64,
}

impl<'c> Sums<'c> {
    pub(crate) fn new(connection: &'c Connection) -> Self {
        Self { connection, keys: Keys::default(), calls: Sum::default(), runs: Sum::default(), approvals: 0 }
    }

    /// Compares with the tables. `Ok(false)`: calls or runs differ, and [`Search`] finds which.
    pub(crate) fn agree(&self, history: &History) -> Result<bool, JournalError> {
        self.approvals_agree()?;
        grants_agree(self.connection, history)?;
        meta_agrees(self.connection, history)?;
        Ok(self.calls_agree()? && self.runs_agree()?)
    }

    fn calls_agree(&self) -> Result<bool, JournalError> {
        let mut sum = Sum::default();
        let mut statement = self.connection.prepare(&format!("{CALL_COLUMNS} FROM calls"))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            self.keys.add(&mut sum, &call_row(row)?, 1);
        }
        Ok(sum == self.calls)
    }

    fn runs_agree(&self) -> Result<bool, JournalError> {
        let mut hashes = Sum::default();
        let mut statement = self.connection.prepare("SELECT principal, run, calls FROM runs")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (principal, run): (String, String) = (row.get(0)?, row.get(1)?);
            let Ok(calls) = u64::try_from(row.get::<_, i64>(2)?) else { return Ok(false) };
            self.keys.add(&mut hashes, &(principal.as_str(), run.as_str()), calls);
        }
        Ok(hashes.hashes == self.runs.hashes)
    }

    fn approvals_agree(&self) -> Result<(), JournalError> {
        let rows: u64 = self.connection.query_row("SELECT count(*) FROM approvals", [], |r| r.get(0))?;
        if rows == self.approvals {
            return Ok(());
        }
        let reason = format!("it has {rows} rows, and {} questions were asked", self.approvals);
        Err(HistoryFault::table("approvals", reason))
    }
}

impl Ledger for Sums<'_> {
    fn call(&mut self, facts: &CallFacts) -> Result<(), JournalError> {
        self.keys.add(&mut self.calls, facts, 1);
        Ok(())
    }

    fn counted(&mut self, principal: &str, run: &str) {
        self.keys.add(&mut self.runs, &(principal, run), 1);
    }

    fn approval(&mut self, record: &ApprovalRecord) -> Result<(), JournalError> {
        self.approvals += 1;
        approval_agrees(self.connection, record)
    }
}

/// Looks for the row of `calls` or `runs` that is to blame.
pub(crate) struct Search<'c> {
    connection: &'c Connection,
    runs: HashMap<(String, String), u64>,
}

impl<'c> Search<'c> {
    pub(crate) fn new(connection: &'c Connection) -> Self {
        Self { connection, runs: HashMap::new() }
    }

    /// After every event: what is left is a row that no event justifies.
    pub(crate) fn blame(&self) -> Result<JournalError, JournalError> {
        let stray: Option<String> = self
            .connection
            .query_row(
                "SELECT c.call_id FROM calls c LEFT JOIN events e ON e.seq = c.opened_seq AND e.call_id = c.call_id
                 WHERE e.seq IS NULL LIMIT 1",
                [],
                |r| r.get(0),
            )
            .optional()?;
        if let Some(id) = stray {
            return Ok(HistoryFault::table("calls", format!("no event opens `{id}`")));
        }
        let mut statement = self.connection.prepare("SELECT principal, run, calls FROM runs")?;
        let mut rows = statement.query([])?;
        let mut seen = 0;
        while let Some(row) = rows.next()? {
            let (key, found): ((String, String), i64) = ((row.get(0)?, row.get(1)?), row.get(2)?);
            let counted = self.runs.get(&key).copied();
            seen += usize::from(counted.is_some());
            if u64::try_from(found) != Ok(counted.unwrap_or(0)) {
                let (principal, run) = key;
                let counted = counted.unwrap_or(0);
                let reason = format!("run `{run}` of `{principal}` has {found} calls there, and had {counted}");
                return Ok(HistoryFault::table("runs", reason));
            }
        }
        if seen < self.runs.len() {
            return Ok(HistoryFault::table("runs", "a run is missing"));
        }
        Ok(HistoryFault::table("calls", "rows and events differ"))
    }
}

impl Ledger for Search<'_> {
    fn call(&mut self, facts: &CallFacts) -> Result<(), JournalError> {
        call_agrees(self.connection, facts)
    }

    fn counted(&mut self, principal: &str, run: &str) {
        *self.runs.entry((principal.to_owned(), run.to_owned())).or_default() += 1;
    }

    fn approval(&mut self, _record: &ApprovalRecord) -> Result<(), JournalError> {
        Ok(())
    }
}

/// The calls that a start takes up, oldest first: those that their events leave open. Their rows and approvals have to
/// say the same.
///
/// INVARIANT (founded_in_events): nothing that a table says alone is ever run.
pub(crate) fn check_open(connection: &Connection) -> Result<Vec<CallId>, JournalError> {
    let mut history = History::of_open_calls();
    crate::open_calls::replay(connection, &mut |link| history.step(link, &mut Deaf))?;
    let mut open: Vec<_> = std::mem::take(&mut history.open).into_values().collect();
    open.sort_by_key(|call| call.facts.opened);
    for Open { facts, approval, .. } in &open {
        call_agrees(connection, facts)?;
        if let Some(record) = approval {
            approval_agrees(connection, record)?;
        }
    }
    for (_, record) in history.asked.values() {
        approval_agrees(connection, record)?;
    }
    open.iter().map(|call| crate::call_rows::parse(&call.facts.call_id)).collect()
}

const CALL_COLUMNS: &str = "SELECT call_id, principal, session, run, tool, digest, key, state, opened_seq, ended_seq";

fn call_row(row: &Row<'_>) -> Result<CallFacts, JournalError> {
    let state: String = row.get(7)?;
    Ok(CallFacts {
        call_id: row.get(0)?,
        principal: row.get(1)?,
        session: row.get(2)?,
        run: row.get(3)?,
        tool: row.get(4)?,
        digest: Digest::from_bytes(row.get(5)?),
        key: row.get(6)?,
        state: CallState::parse(&state)
            .ok_or_else(|| HistoryFault::table("calls", format!("`{state}` is no state of a call")))?,
        opened: row.get(8)?,
        ended: row.get(9)?,
    })
}

fn call_agrees(connection: &Connection, facts: &CallFacts) -> Result<(), JournalError> {
    let mut statement = connection.prepare_cached(&format!("{CALL_COLUMNS} FROM calls WHERE call_id = ?1"))?;
    let mut rows = statement.query([&facts.call_id])?;
    let id = &facts.call_id;
    let Some(row) = rows.next()? else {
        return Err(HistoryFault::table("calls", format!("`{id}` is missing")));
    };
    let row = call_row(row)?;
    if row == *facts {
        return Ok(());
    }
    let (there, by_events) = (row.state.as_str(), facts.state.as_str());
    let reason = if there == by_events {
        format!("`{id}` is another call there than its events say")
    } else {
        format!("`{id}` is {there} there, and by its events it is {by_events}")
    };
    Err(HistoryFault::table("calls", reason))
}

fn approval_agrees(connection: &Connection, record: &ApprovalRecord) -> Result<(), JournalError> {
    let id = record.approval_id.as_str();
    let row: Option<(String, String, u64, String)> = connection
        .prepare_cached("SELECT call_id, state, expires_at, record FROM approvals WHERE approval_id = ?1")?
        .query_row([id], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?)))
        .optional()?;
    let Some((call_id, state, expires_at, text)) = row else {
        return Err(HistoryFault::table("approvals", format!("`{id}` is missing")));
    };
    let stored: Option<ApprovalRecord> = serde_json::from_str(&text).ok();
    if stored.as_ref() == Some(record)
        && call_id == record.call_id.as_str()
        && state == record.state.as_str()
        && expires_at == record.expires_at.unix_ms()
    {
        return Ok(());
    }
    let by_events = record.state.as_str();
    let reason = if state == by_events {
        format!("`{id}` asks something else there than its events say")
    } else {
        format!("`{id}` is {state} there, and by its events it is {by_events}")
    };
    Err(HistoryFault::table("approvals", reason))
}

fn grants_agree(connection: &Connection, history: &History) -> Result<(), JournalError> {
    let mut statement = connection.prepare(
        "SELECT grant_id, principal, session, match_key, policy_hash, expires_at, revoked_at, uses, record, created_seq, void
         FROM grants",
    )?;
    let mut rows = statement.query([])?;
    let mut seen = 0;
    while let Some(row) = rows.next()? {
        let id: String = row.get(0)?;
        seen += 1;
        let Some(grant) = history.grants.get(&id) else {
            return Err(HistoryFault::table("grants", format!("nobody gave `{id}`")));
        };
        if !grant_agrees(row, grant)? {
            return Err(HistoryFault::table("grants", format!("`{id}` is not there as it was given and used")));
        }
    }
    if seen == history.grants.len() {
        return Ok(());
    }
    Err(HistoryFault::table("grants", "a grant is missing"))
}

fn grant_agrees(row: &Row<'_>, grant: &Grant) -> Result<bool, JournalError> {
    let revoked_at: Option<u64> = row.get(6)?;
    let uses: i64 = row.get(7)?;
    let text: String = row.get(8)?;
    let (created, void): (Option<u64>, Option<String>) = (row.get(9)?, row.get(10)?);
    let stored: Option<GrantRecord> = serde_json::from_str(&text).ok();
    Ok(is_row_of(row, &grant.record)?
        && stored.as_ref() == Some(&grant.record)
        && u64::try_from(uses) == Ok(grant.uses)
        && revoked_at == grant.ended_at.map(Timestamp::unix_ms)
        && created == Some(grant.created)
        && void.as_deref() == grant.void.then_some(OTHER_RULES))
}

/// Whether the columns that grants are found by are those of the record. Columns: id, principal, session, key, policy,
/// end.
pub(crate) fn is_row_of(row: &Row<'_>, record: &GrantRecord) -> Result<bool, rusqlite::Error> {
    let (principal, session): (String, Option<String>) = (row.get(1)?, row.get(2)?);
    let (key, policy): ([u8; 32], [u8; 32]) = (row.get(3)?, row.get(4)?);
    let expires_at: Option<u64> = row.get(5)?;
    Ok(principal == record.principal.to_string()
        && session.as_deref() == record.session.as_ref().map(|session| session.as_str())
        // What an older version gave has its key in the table alone.
        && record.match_key.is_none_or(|expected| *expected.as_bytes() == key)
        && *record.policy_hash.as_bytes() == policy
        && expires_at == record.expires_at.map(Timestamp::unix_ms))
}

/// The journal is the one that the daemon's starts have named, and nothing else is said of it.
fn meta_agrees(connection: &Connection, history: &History) -> Result<(), JournalError> {
    let keys: Vec<String> = connection
        .prepare("SELECT key FROM meta ORDER BY key")?
        .query_map([], |r| r.get(0))?
        .collect::<Result<_, _>>()?;
    if keys != ["format", "origin"] {
        return Err(HistoryFault::table("meta", format!("it says {}", keys.join(", "))));
    }
    let origin = crate::schema::origin(connection)?;
    match &history.journal {
        Some(journal) if *journal != origin.as_str() => Err(HistoryFault::table(
            "meta",
            format!("the journal is `{origin}` there, and the daemon opened `{journal}`"),
        )),
        _ => Ok(()),
    }
}

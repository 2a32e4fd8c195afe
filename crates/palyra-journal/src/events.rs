//! Reading events back.

use crate::error::JournalError;
use crate::store::JournalStore;
use crate::writer::digest;
use palyra_protocol::{CallId, ChainedEvent, JournalEvent, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row};

const COLUMNS: &str = "SELECT seq, at, kind, call_id, body, prev, hash FROM events";

impl JournalStore {
    /// Events from `first` on, at most `limit`.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn events(&self, first: u64, limit: u32) -> Result<Vec<ChainedEvent>, JournalError> {
        self.read(move |c| {
            let mut statement = c.prepare_cached(&format!("{COLUMNS} WHERE seq >= ?1 ORDER BY seq LIMIT ?2"))?;
            let events = statement.query_map((first, limit), event)?.collect::<Result<_, _>>()?;
            Ok(events)
        })
        .await
    }

    /// One event.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub async fn event(&self, seq: u64) -> Result<ChainedEvent, JournalError> {
        let found = self.events(seq, 1).await?.into_iter().find(|e| e.seq == seq);
        found.ok_or_else(|| JournalError::NotFound { what: "event", id: seq.to_string() })
    }

    /// Every event about a call.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn events_of_call(&self, call: &CallId) -> Result<Vec<ChainedEvent>, JournalError> {
        let id = call.to_string();
        self.read(move |c| {
            let range: Option<(u64, Option<u64>)> = c
                .prepare_cached("SELECT opened_seq, ended_seq FROM calls WHERE call_id = ?1")?
                .query_row([&id], |r| Ok((r.get(0)?, r.get(1)?)))
                .optional()?;
            let (opened, ended) = range.ok_or_else(|| JournalError::NotFound { what: "call", id: id.clone() })?;
            let ended = ended.map_or(i64::MAX, |seq| i64::try_from(seq).unwrap_or(i64::MAX));
            let mut statement =
                c.prepare_cached(&format!("{COLUMNS} WHERE seq BETWEEN ?1 AND ?2 AND call_id = ?3 ORDER BY seq"))?;
            let events = statement.query_map((opened, ended, id), event)?.collect::<Result<_, _>>()?;
            Ok(events)
        })
        .await
    }

    /// The newest change of the access registry.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn last_access_change(&self) -> Result<Option<JournalEvent>, JournalError> {
        self.read(|c| {
            let body: Option<String> = c
                .prepare_cached("SELECT body FROM events WHERE kind = 'access.changed' ORDER BY seq DESC LIMIT 1")?
                .query_row([], |r| r.get(0))
                .optional()?;
            Ok(body.map(|body| serde_json::from_str(&body)).transpose()?)
        })
        .await
    }
}

fn event(row: &Row<'_>) -> Result<ChainedEvent, rusqlite::Error> {
    Ok(ChainedEvent {
        seq: row.get(0)?,
        at: Timestamp::from_unix_ms(row.get(1)?),
        kind: row.get(2)?,
        call_id: row.get(3)?,
        body: row.get(4)?,
        prev: digest(row.get(5)?),
        hash: digest(row.get(6)?),
    })
}

/// The event at a place, parsed, and when it was recorded.
pub(crate) fn event_at(connection: &Connection, seq: u64) -> Result<(JournalEvent, Timestamp), JournalError> {
    let found: Option<(String, u64)> = connection
        .prepare_cached("SELECT body, at FROM events WHERE seq = ?1")?
        .query_row([seq], |r| Ok((r.get(0)?, r.get(1)?)))
        .optional()?;
    let (body, at) = found.ok_or_else(|| JournalError::NotFound { what: "event", id: seq.to_string() })?;
    Ok((serde_json::from_str(&body)?, Timestamp::from_unix_ms(at)))
}

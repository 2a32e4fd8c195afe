//! Past decisions, streamed in order: what was asked, and what was answered.
//!
//! Read on a connection of its own, row by row, so that a journal of any length costs no memory. Nothing here
//! interprets what policy said.

use crate::error::JournalError;
use crate::schema;
use palyra_protocol::Timestamp;
use rusqlite::Connection;
use std::ops::ControlFlow;
use std::path::Path;

/// One event of a decision: `tool.proposed` holds the call, `tool.decided`, which follows it, the answer.
#[derive(Debug, Clone, Copy)]
pub struct DecisionEvent<'r> {
    /// When it was recorded.
    pub at: Timestamp,
    /// `tool.proposed` or `tool.decided`.
    pub kind: &'r str,
    /// The call.
    pub call_id: &'r str,
    /// The event's body.
    pub body: &'r str,
}

/// Hands every proposal and decision since a time to `each`, oldest first, until it has seen enough.
///
/// # Errors
/// The journal cannot be read.
pub fn scan_decisions(
    path: &Path,
    since: Timestamp,
    each: &mut dyn FnMut(DecisionEvent<'_>) -> Result<ControlFlow<()>, JournalError>,
) -> Result<(), JournalError> {
    let connection = schema::open_reader(path)?;
    let first = first_since(&connection, since)?;
    let mut statement = connection.prepare(
        "SELECT at, kind, call_id, body FROM events
         WHERE seq >= ?1 AND kind IN ('tool.proposed', 'tool.decided') ORDER BY seq",
    )?;
    let mut rows = statement.query([first])?;
    while let Some(row) = rows.next()? {
        let text = |column| row.get_ref(column)?.as_str().map_err(rusqlite::Error::from);
        let event = DecisionEvent {
            at: Timestamp::from_unix_ms(row.get(0)?),
            kind: text(1)?,
            call_id: text(2)?,
            body: text(3)?,
        };
        if each(event)?.is_break() {
            break;
        }
    }
    Ok(())
}

/// The first event at or after a time: times grow with places, so it is found by halving.
fn first_since(connection: &Connection, since: Timestamp) -> Result<u64, JournalError> {
    let mut at = connection.prepare("SELECT at FROM events WHERE seq >= ?1 ORDER BY seq LIMIT 1")?;
    let size: u64 = connection.query_row("SELECT coalesce(max(seq), 0) FROM events", [], |r| r.get(0))?;
    let (mut low, mut high) = (1, size + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        let then: u64 = at.query_row([middle], |r| r.get(0))?;
        if then < since.unix_ms() {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

//! Whether the indexes lead to what the tables hold.
//!
//! The daemon finds keys, the newest change of access and the ends of grants by index. Somebody who empties one, and
//! leaves the table alone, makes the daemon forget. The small tables are held against their indexes by SQLite itself;
//! of the events, whose indexes hold few rows each, those few are counted while all are read.

use crate::error::JournalError;
use crate::history::HistoryFault;
use palyra_protocol::chain::Link;
use rusqlite::Connection;

/// Each partial index of `events`, with the kinds that it holds.
pub(crate) const EVENT_INDEXES: [(&str, &[&str]); 14] = [
    ("events_access_changed", &["access.changed"]),
    (
        "events_consoles",
        &["console.opened", "console.ended", "console.used", "console.passkey_added", "console.passkey_removed"],
    ),
    ("events_devices_changed", &["devices.changed"]),
    ("events_key", &["daemon.started", "daemon.key_accepted", "journal.begun_anew"]),
    ("events_grants_ended", &["grant.revoked", "grant.voided"]),
    ("events_settled", &["calls.settled"]),
    ("events_memory", &["memory.retained", "memory.forgotten"]),
    ("events_routines", &["routine.changed", "routine.slot"]),
    ("events_of_run", &["run.opened", "run.turn", "run.results", "run.resumed", "run.ended"]),
    ("events_of_session", &["run.opened"]),
    ("events_runs", &["run.opened", "runs.settled"]),
    ("events_skills", &["skill.installed", "skill.status", "skill.current", "skill.removed"]),
    ("events_skill_trust", &["skill.trust"]),
    ("events_vault", &["vault.accessed", "vault.changed"]),
];

/// What an index is sorted by: for most, the place of the event alone.
pub(crate) fn columns(index: &str) -> &'static str {
    match index {
        "events_of_run" => "json_extract(body, '$.run'), seq",
        "events_of_session" => "json_extract(body, '$.session'), seq",
        _ => "seq",
    }
}

/// The condition of a partial index. An `IN` of three would build a table at every insert.
pub(crate) fn condition(kinds: &[&str]) -> String {
    kinds.iter().map(|kind| format!("kind = '{kind}'")).collect::<Vec<_>>().join(" OR ")
}

/// How many events each index must hold, and the sum of their places.
#[derive(Debug, Default)]
pub(crate) struct Indexed([(u64, u64); EVENT_INDEXES.len()]);

impl Indexed {
    /// Counts an event.
    pub(crate) fn count(&mut self, link: &Link<'_>) {
        for ((count, places), (_, kinds)) in self.0.iter_mut().zip(EVENT_INDEXES) {
            if kinds.contains(&link.kind) {
                *count += 1;
                *places = places.wrapping_add(link.seq);
            }
        }
    }

    /// Compares with the indexes.
    pub(crate) fn agree(&self, connection: &Connection) -> Result<(), JournalError> {
        for (counted, (index, kinds)) in self.0.iter().zip(EVENT_INDEXES) {
            let query = format!("SELECT count(*), sum(seq) FROM events INDEXED BY {index} WHERE {}", condition(kinds));
            let found = connection.query_row(&query, [], |r| Ok((r.get(0)?, r.get::<_, Option<u64>>(1)?.unwrap_or(0))));
            match found {
                Ok(found) if found == *counted => {}
                Ok((found, _)) => {
                    return Err(disagrees(format!("`{index}` holds {found} events, and there are {}", counted.0)));
                }
                Err(error) => return Err(disagrees(format!("`{index}`: {error}"))),
            }
        }
        for table in ["calls", "approvals", "grants"] {
            let checked = connection.query_row(&format!("PRAGMA integrity_check({table})"), [], |r| r.get(0));
            let checked: String = checked.unwrap_or_else(|error| error.to_string());
            if checked != "ok" {
                return Err(disagrees(format!("`{table}`: {checked}")));
            }
        }
        Ok(())
    }
}

fn disagrees(reason: String) -> JournalError {
    JournalError::Unfounded(HistoryFault::Index { reason })
}

//! Reading events back.

use crate::error::JournalError;
use crate::history::HistoryFault;
use crate::page::Page;
use crate::store::JournalStore;
use crate::writer::digest;
use palyra_protocol::{CallId, ChainFault, ChainedEvent, JournalEvent, RoutineId, SlotRecord, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row};

/// The most bytes of bodies that are read at once.
const PAGE_BYTES: usize = 4 << 20;

pub(crate) const COLUMNS: &str = "SELECT seq, at, kind, call_id, body, prev, hash FROM events";

impl JournalStore {
    /// Events from `first` on, at most `limit`, and at most so many that they fit into memory many times over.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn events(&self, first: u64, limit: u32) -> Result<Vec<ChainedEvent>, JournalError> {
        self.read(move |c| {
            let mut statement = c.prepare_cached(&format!("{COLUMNS} WHERE seq >= ?1 ORDER BY seq"))?;
            let mut rows = statement.query([first])?;
            let mut room = Page { records: limit, bytes: PAGE_BYTES }.start();
            let mut events = Vec::new();
            while let Some(row) = rows.next()? {
                let size = row.get_ref(4)?.as_bytes().map_err(rusqlite::Error::from)?.len();
                if !room.takes(size) {
                    break;
                }
                events.push(event(row)?);
            }
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

    /// Every event about a call: from its opening to its end, and what became of its effect after that.
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
            let mut statement = c.prepare_cached(&format!(
                "{COLUMNS} WHERE call_id = ?3 AND (seq BETWEEN ?1 AND ?2
                 OR seq > ?2 AND kind IN ('effect.intended', 'effect.settled', 'effect.undone')) ORDER BY seq"
            ))?;
            let events = statement.query_map((opened, ended, id), event)?.collect::<Result<_, _>>()?;
            Ok(events)
        })
        .await
    }

    /// The newest events about the vault that a caller picks, at most `limit`, the newest first. An index has them: the
    /// cost does not grow with the rest of history.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn vault_events(
        &self,
        limit: usize,
        picks: impl Fn(&JournalEvent) -> bool + Send + 'static,
    ) -> Result<Vec<(u64, Timestamp, JournalEvent)>, JournalError> {
        self.read(move |c| {
            let kinds = "kind = 'vault.accessed' OR kind = 'vault.changed'";
            let mut statement = c.prepare_cached(&format!("{COLUMNS} WHERE {kinds} ORDER BY seq DESC"))?;
            let mut rows = statement.query([])?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                let (event, at) = unchanged(row)?;
                if picks(&event) {
                    found.push((row.get(0)?, at, event));
                }
                if found.len() >= limit {
                    break;
                }
            }
            Ok(found)
        })
        .await
    }

    /// The newest change of the access registry.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn last_access_change(&self) -> Result<Option<JournalEvent>, JournalError> {
        self.read(|c| Ok(newest(c, "kind = 'access.changed'")?.map(|(_, event)| event))).await
    }

    /// The newest change of the device registry.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn last_device_change(&self) -> Result<Option<JournalEvent>, JournalError> {
        self.read(|c| Ok(newest(c, "kind = 'devices.changed'")?.map(|(_, event)| event))).await
    }

    /// The newest change of the skill trust store.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn last_skill_trust_change(&self) -> Result<Option<JournalEvent>, JournalError> {
        self.read(|c| Ok(newest(c, "kind = 'skill.trust'")?.map(|(_, event)| event))).await
    }

    /// Every list of a registry of skills that was seen, in order.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn skill_registries(&self) -> Result<Vec<(Timestamp, JournalEvent)>, JournalError> {
        self.read(|c| in_order(c, "kind = 'skill.registry'")).await
    }

    /// Every event about installed skills, in order. An index has them: the cost does not grow with the rest of
    /// history.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn skill_events(&self) -> Result<Vec<(Timestamp, JournalEvent)>, JournalError> {
        self.read(|c| {
            let kinds = "kind = 'skill.installed' OR kind = 'skill.status' OR kind = 'skill.current' \
                OR kind = 'skill.removed'";
            in_order(c, kinds)
        })
        .await
    }

    /// The newest event that says which key signs.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn last_key_event(&self) -> Result<Option<JournalEvent>, JournalError> {
        let kinds = "kind = 'daemon.started' OR kind = 'daemon.key_accepted' OR kind = 'journal.begun_anew'";
        self.read(move |c| match newest(c, kinds)? {
            // Before a journal's first start there is none. An index that was emptied says the same, so the table is
            // asked.
            None if any(c, kinds)? => {
                let reason = "`events_key` finds no event, and there are some".to_owned();
                Err(JournalError::Unfounded(HistoryFault::Index { reason }))
            }
            found => Ok(found.map(|(_, event)| event)),
        })
        .await
    }
}

/// The newest event of some kinds, which an index has, and its place.
pub(crate) fn newest(connection: &Connection, kinds: &str) -> Result<Option<(u64, JournalEvent)>, JournalError> {
    let mut statement = connection.prepare_cached(&format!("{COLUMNS} WHERE {kinds} ORDER BY seq DESC LIMIT 1"))?;
    let mut rows = statement.query([])?;
    rows.next()?.map(|row| Ok((row.get(0)?, unchanged(row)?.0))).transpose()
}

/// Every event of some kinds, which an index has, in order.
fn in_order(connection: &Connection, kinds: &str) -> Result<Vec<(Timestamp, JournalEvent)>, JournalError> {
    let mut statement = connection.prepare_cached(&format!("{COLUMNS} WHERE {kinds} ORDER BY seq"))?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let (event, at) = unchanged(row)?;
        found.push((at, event));
    }
    Ok(found)
}

/// Whether there is any event of some kinds, whatever an index says.
fn any(connection: &Connection, kinds: &str) -> Result<bool, JournalError> {
    let query = format!("SELECT EXISTS (SELECT 1 FROM events NOT INDEXED WHERE {kinds})");
    Ok(connection.query_row(&query, [], |r| r.get(0))?)
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
    let mut statement = connection.prepare_cached(&format!("{COLUMNS} WHERE seq = ?1"))?;
    let mut rows = statement.query([seq])?;
    let row = rows.next()?.ok_or_else(|| JournalError::NotFound { what: "event", id: seq.to_string() })?;
    unchanged(row)
}

/// An event that is acted upon is held against its own hash first.
pub(crate) fn unchanged(row: &Row<'_>) -> Result<(JournalEvent, Timestamp), JournalError> {
    let stored = crate::verify::read(row)?;
    if stored.link.hash(&stored.prev) != stored.hash {
        return Err(JournalError::Damaged(ChainFault::Content { seq: stored.link.seq }));
    }
    Ok((serde_json::from_str(stored.link.body)?, stored.link.at))
}

/// The newest slots of a routine, the newest first; each with its latest state only.
pub(crate) fn routine_slot(
    connection: &Connection,
    routine: &RoutineId,
    limit: usize,
) -> Result<Vec<(Timestamp, SlotRecord)>, JournalError> {
    let kinds = "kind = 'routine.changed' OR kind = 'routine.slot'";
    let mut statement = connection.prepare_cached(&format!("{COLUMNS} WHERE {kinds} ORDER BY seq DESC"))?;
    let mut rows = statement.query([])?;
    let (mut seen, mut found) = (std::collections::HashSet::new(), Vec::new());
    while let Some(row) = rows.next()? {
        // A routine's id stands in the body of each of its slots; the bodies of others need not be read.
        let body = row.get_ref(4)?.as_str().map_err(rusqlite::Error::from)?;
        if !body.contains(routine.as_str()) {
            continue;
        }
        match unchanged(row)? {
            (JournalEvent::RoutineSlot { slot }, at) if slot.routine_id == *routine && seen.insert(slot.slot) => {
                found.push((at, *slot));
            }
            (
                JournalEvent::RoutineChanged {
                    change: palyra_protocol::RoutineChange::Added { routine: added }, ..
                },
                _,
            ) if added.routine_id == *routine => {
                break;
            }
            _ => {}
        }
        if found.len() >= limit {
            break;
        }
    }
    Ok(found)
}

//! Agent runs: found by their events, through indexes of their own.
//!
//! A run has no row. Its events are the truth, an index leads from a run to them, and another from a session to its
//! runs, so neither costs more with a longer history.

use crate::error::JournalError;
use crate::events::{COLUMNS, newest, unchanged};
use crate::indexes::{EVENT_INDEXES, condition};
use crate::store::JournalStore;
use palyra_protocol::{JournalEvent, RunId, RunOpened, SessionId, Timestamp};
use rusqlite::{Connection, OptionalExtension as _};

/// After so many runs that were looked at in vain, a start notes where the next one may begin.
const WORTH_A_MARK: usize = 256;

/// The beginning of a run.
#[derive(Debug, Clone)]
pub struct OpenedRun {
    /// The place of the event.
    pub seq: u64,
    /// When it was recorded.
    pub at: Timestamp,
    /// What was recorded.
    pub opened: RunOpened,
}

/// A run, from its beginning to its newest event.
#[derive(Debug, Clone)]
pub struct RunHistory {
    /// The beginning.
    pub opened: OpenedRun,
    /// What followed, each with its time.
    pub events: Vec<(Timestamp, JournalEvent)>,
}

impl JournalStore {
    /// A run with everything that was recorded of it.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub async fn run_history(&self, run: &RunId) -> Result<RunHistory, JournalError> {
        let id = run.to_string();
        self.read(move |c| {
            let kinds = kinds_of("events_of_run");
            let query = format!("{COLUMNS} WHERE ({kinds}) AND json_extract(body, '$.run') = ?1 ORDER BY seq");
            let mut statement = c.prepare_cached(&query)?;
            let mut rows = statement.query([&id])?;
            let mut opened = None;
            let mut events = Vec::new();
            while let Some(row) = rows.next()? {
                let seq = row.get(0)?;
                match unchanged(row)? {
                    (JournalEvent::RunOpened(first), at) if opened.is_none() => {
                        opened = Some(OpenedRun { seq, at, opened: *first });
                    }
                    (event, at) => events.push((at, event)),
                }
            }
            let opened = opened.ok_or(JournalError::NotFound { what: "run", id })?;
            Ok(RunHistory { opened, events })
        })
        .await
    }

    /// The newest run of a session.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn last_run_of(&self, session: &SessionId) -> Result<Option<OpenedRun>, JournalError> {
        let id = session.to_string();
        self.read(move |c| {
            let query = format!(
                "{COLUMNS} WHERE kind = 'run.opened' AND json_extract(body, '$.session') = ?1 ORDER BY seq DESC LIMIT 1"
            );
            let mut statement = c.prepare_cached(&query)?;
            let mut rows = statement.query([&id])?;
            rows.next()?.map(opened_at).transpose().map(Option::flatten)
        })
        .await
    }

    /// Runs, the newest first, that were opened before an event; at most `most`.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn runs_before(&self, before: Option<u64>, most: u32) -> Result<Vec<OpenedRun>, JournalError> {
        let before = before.map_or(i64::MAX, |seq| i64::try_from(seq).unwrap_or(i64::MAX));
        self.read(move |c| {
            let query = format!(
                "{COLUMNS} INDEXED BY events_runs WHERE kind = 'run.opened' AND seq < ?1 ORDER BY seq DESC LIMIT ?2"
            );
            let mut statement = c.prepare_cached(&query)?;
            let mut rows = statement.query((before, most))?;
            let mut runs = Vec::new();
            while let Some(row) = rows.next()? {
                runs.extend(opened_at(row)?);
            }
            Ok(runs)
        })
        .await
    }

    /// The runs that have not ended, the oldest first. A start asks this once, before any run begins.
    ///
    /// # Errors
    /// They cannot be read, or the note for the next start cannot be recorded.
    pub async fn open_runs(&self) -> Result<Vec<RunId>, JournalError> {
        let (open, mark) = self
            .read(|c| {
                let from = match newest(c, "kind = 'runs.settled'")? {
                    Some((_, JournalEvent::RunsSettled { before })) => before,
                    _ => 0,
                };
                let query =
                    format!("{COLUMNS} INDEXED BY events_runs WHERE kind = 'run.opened' AND seq >= ?1 ORDER BY seq");
                let mut statement = c.prepare(&query)?;
                let mut rows = statement.query([from])?;
                let (mut open, mut oldest, mut seen, mut last) = (Vec::new(), None, 0, from);
                while let Some(row) = rows.next()? {
                    let Some(run) = opened_at(row)? else { continue };
                    (seen, last) = (seen + 1, run.seq + 1);
                    if !has_ended(c, &run.opened.run)? {
                        oldest.get_or_insert(run.seq);
                        open.push(run.opened.run);
                    }
                }
                let mark = Some(oldest.unwrap_or(last)).filter(|_| seen - open.len() >= WORTH_A_MARK);
                Ok((open, mark))
            })
            .await?;
        if let Some(before) = mark {
            self.note(&JournalEvent::RunsSettled { before }).await?;
        }
        Ok(open)
    }
}

fn opened_at(row: &rusqlite::Row<'_>) -> Result<Option<OpenedRun>, JournalError> {
    let seq = row.get(0)?;
    let (event, at) = unchanged(row)?;
    Ok(match event {
        JournalEvent::RunOpened(opened) => Some(OpenedRun { seq, at, opened: *opened }),
        _ => None,
    })
}

/// Whether a run's newest event is its end.
fn has_ended(connection: &Connection, run: &RunId) -> Result<bool, JournalError> {
    let kinds = kinds_of("events_of_run");
    let query = format!(
        "SELECT kind FROM events WHERE ({kinds}) AND json_extract(body, '$.run') = ?1 ORDER BY seq DESC LIMIT 1"
    );
    let newest: Option<String> =
        connection.prepare_cached(&query)?.query_row([run.as_str()], |r| r.get(0)).optional()?;
    Ok(newest.as_deref() == Some("run.ended"))
}

fn kinds_of(index: &str) -> String {
    EVENT_INDEXES.iter().find(|(name, _)| *name == index).map_or_else(String::new, |(_, kinds)| condition(kinds))
}

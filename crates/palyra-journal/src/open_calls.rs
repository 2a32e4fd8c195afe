//! Which calls have not ended, without an index of them.
//!
//! A restart must find the calls that were under way. An index over them would cost each call two more pages on the disk,
//! one when it opens and one when it ends. Instead the writer knows them, and `meta` holds a mark: no call that is open
//! has an id before it. Ids grow with time, so what a restart has to look through is as long as the time since the
//! oldest open call began, not as the history.
//!
//! INVARIANT (open_calls_are_found): the mark is moved up only past calls whose end is committed, and moved down in the
//! very transaction that opens a call before it.

use crate::error::JournalError;
use palyra_protocol::CallId;
use rusqlite::Connection;
use std::collections::BTreeSet;

/// How many calls are opened before the mark is moved up again.
const EVERY: usize = if cfg!(test) { 16 } else { 1024 };

/// The calls that are open as of the last commit, and what the group under way changes.
#[derive(Debug, Default)]
pub(crate) struct OpenCalls {
    open: BTreeSet<CallId>,
    mark: String,
    since: usize,
    changes: Changes,
}

/// What a group of transactions has done so far.
#[derive(Debug, Default)]
struct Changes {
    opened: Vec<CallId>,
    ended: Vec<CallId>,
    mark: Option<String>,
}

/// A point to return to when a job of a group is undone.
#[derive(Debug)]
pub(crate) struct Savepoint {
    opened: usize,
    ended: usize,
    mark: Option<String>,
}

impl OpenCalls {
    /// Reads them at the start.
    pub(crate) fn read(connection: &Connection) -> Result<Self, JournalError> {
        let mark: String = connection.query_row("SELECT value FROM meta WHERE key = 'open_from'", [], |r| r.get(0))?;
        let open = ids(connection)?.into_iter().collect();
        Ok(Self { open, mark, ..Self::default() })
    }

    /// Those that are open as of the last commit.
    pub(crate) fn ids(&self) -> Vec<CallId> {
        self.open.iter().cloned().collect()
    }

    /// A call opens in this transaction.
    pub(crate) fn opened(&mut self, connection: &Connection, call_id: &CallId) -> Result<(), JournalError> {
        if call_id.as_str() < self.changes.mark.as_ref().unwrap_or(&self.mark).as_str() {
            self.set_mark(connection, call_id)?;
        }
        self.changes.opened.push(call_id.clone());
        Ok(())
    }

    /// A call ends in this transaction.
    pub(crate) fn ended(&mut self, call_id: &CallId) {
        self.changes.ended.push(call_id.clone());
    }

    /// Moves the mark up, if it is time.
    pub(crate) fn before_commit(&mut self, connection: &Connection) -> Result<(), JournalError> {
        if self.since + self.changes.opened.len() < EVERY {
            return Ok(());
        }
        let opened = self.changes.opened.iter();
        let oldest = self.open.iter().chain(opened).filter(|id| !self.changes.ended.contains(id)).min();
        let Some(oldest) = oldest.cloned() else { return Ok(()) };
        self.since = 0;
        self.set_mark(connection, &oldest)
    }

    fn set_mark(&mut self, connection: &Connection, call_id: &CallId) -> Result<(), JournalError> {
        connection.prepare_cached("UPDATE meta SET value = ?1 WHERE key = 'open_from'")?.execute([call_id.as_str()])?;
        self.changes.mark = Some(call_id.to_string());
        Ok(())
    }

    /// The group is committed.
    pub(crate) fn committed(&mut self) {
        let Changes { opened, ended, mark } = std::mem::take(&mut self.changes);
        self.since += opened.len();
        self.open.extend(opened);
        for call_id in &ended {
            self.open.remove(call_id);
        }
        if let Some(mark) = mark {
            self.mark = mark;
        }
    }

    /// The group is undone.
    pub(crate) fn undone(&mut self) {
        self.changes = Changes::default();
    }

    /// Where one job of the group begins.
    pub(crate) fn savepoint(&self) -> Savepoint {
        let Changes { opened, ended, mark } = &self.changes;
        Savepoint { opened: opened.len(), ended: ended.len(), mark: mark.clone() }
    }

    /// That job is undone.
    pub(crate) fn back_to(&mut self, savepoint: Savepoint) {
        self.changes.opened.truncate(savepoint.opened);
        self.changes.ended.truncate(savepoint.ended);
        self.changes.mark = savepoint.mark;
    }
}

/// The open calls as the tables tell, oldest first.
pub(crate) fn ids(connection: &Connection) -> Result<Vec<CallId>, JournalError> {
    let mut statement = connection.prepare_cached(
        "SELECT call_id FROM calls
         WHERE call_id >= (SELECT value FROM meta WHERE key = 'open_from') AND ended_seq IS NULL ORDER BY opened_seq",
    )?;
    let found: Vec<String> = statement.query_map([], |r| r.get(0))?.collect::<Result<_, _>>()?;
    found.iter().map(|id| crate::call_rows::parse(id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tables() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(include_str!("schema.sql")).unwrap();
        connection.execute("INSERT INTO meta VALUES ('open_from', '')", []).unwrap();
        connection
    }

    fn open(connection: &Connection, calls: &mut OpenCalls, id: &CallId) {
        calls.opened(connection, id).unwrap();
        let insert = "INSERT INTO calls VALUES (?1, '', '', '', '', x'', NULL, 'executing', 1, NULL)";
        connection.execute(insert, [id.as_str()]).unwrap();
    }

    proptest! {
        /// Whatever opens and ends in whatever order of ids, with jobs and groups undone in between, the tables alone
        /// tell which calls are open.
        #[test]
        fn open_calls_are_found(steps in proptest::collection::vec((0..8_u8, 0..64_usize), 1..64)) {
            let connection = tables();
            let mut calls = OpenCalls::read(&connection).unwrap();
            let mut pool: Vec<CallId> = (0..64).map(|_| CallId::mint()).collect();
            pool.sort();
            let mut expected = BTreeSet::new();
            for (what, n) in steps {
                connection.execute_batch("BEGIN").unwrap();
                let before = expected.clone();
                // One call opens, others open and end beside it so that the mark moves.
                let burst = if what == 0 { EVERY } else { 1 };
                for id in pool.iter().cycle().skip(n).take(burst) {
                    let known: bool = connection
                        .query_row("SELECT EXISTS (SELECT 1 FROM calls WHERE call_id = ?1)", [id.as_str()], |r| r.get(0))
                        .unwrap();
                    if !known {
                        open(&connection, &mut calls, id);
                        expected.insert(id.clone());
                    } else if expected.remove(id) {
                        calls.ended(id);
                        connection.execute("UPDATE calls SET ended_seq = 2 WHERE call_id = ?1", [id.as_str()]).unwrap();
                    }
                }
                if what == 7 {
                    connection.execute_batch("ROLLBACK").unwrap();
                    calls.undone();
                    expected = before;
                } else {
                    calls.before_commit(&connection).unwrap();
                    connection.execute_batch("COMMIT").unwrap();
                    calls.committed();
                }
                let found: BTreeSet<_> = ids(&connection).unwrap().into_iter().collect();
                prop_assert_eq!(&found, &expected);
                prop_assert_eq!(&found, &calls.open);
            }
        }
    }
}

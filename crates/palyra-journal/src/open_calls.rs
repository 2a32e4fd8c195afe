//! Which calls have not ended, by the events alone.
//!
//! A restart must find the calls that were under way, whatever was written into the tables meanwhile. Replaying all
//! events would do, and takes as long as history is. So the writer, which knows what is open, appends `calls.settled`
//! now and then: every call that was opened before the event it names has ended. A restart replays what follows. An
//! index of open calls would cost each call two more pages on the disk; a mark in a table could be moved by whoever can
//! write there.
//!
//! INVARIANT (open_calls_are_found): what a `calls.settled` event passes over has ended, and is on record.

use crate::error::JournalError;
use crate::history::{Deaf, History};
use crate::writer::PreparedEvent;
use palyra_protocol::chain::Link;
use palyra_protocol::{ApprovalRecord, ApprovalState, CallId, ChainVerifier, JournalEvent};
use rusqlite::Connection;
use std::collections::HashMap;

/// How many calls are opened before the next mark: about as many events as a start checks at the journal's end anyway.
const EVERY: usize = 16;

/// The calls that are open as of the last commit, each with the event that opened it, and what the group under way
/// changes.
#[derive(Debug, Default)]
pub(crate) struct OpenCalls {
    open: HashMap<CallId, u64>,
    /// Every call that was opened before this event has ended.
    settled: u64,
    /// How many calls were opened since that was recorded.
    since: usize,
    changes: Changes,
}

/// What a group of transactions has done so far.
#[derive(Debug, Default)]
struct Changes {
    opened: Vec<(CallId, u64)>,
    ended: Vec<CallId>,
    settled: Option<u64>,
}

/// A point to return to when a job of a group is undone.
#[derive(Debug)]
pub(crate) struct Savepoint {
    opened: usize,
    ended: usize,
}

impl OpenCalls {
    /// Learns from the events which calls are open, and which approvals wait.
    pub(crate) fn read(connection: &Connection) -> Result<(Self, Vec<ApprovalRecord>), JournalError> {
        let settled = settled(connection)?.map_or(1, |mark| mark.before);
        let (mut history, mut since) = (History::of_open_calls(), 0);
        replay(connection, &mut |link| {
            since += usize::from(link.kind == "tool.proposed");
            match history.step(link, &mut Deaf) {
                // What contradicts itself is found when the calls are taken up, and named there.
                Err(JournalError::Unfounded(_)) | Ok(()) => Ok(()),
                Err(error) => Err(error),
            }
        })?;
        let mut open = HashMap::new();
        let mut waiting = Vec::new();
        for (id, call) in history.open {
            open.insert(crate::call_rows::parse(&id)?, call.facts.opened);
            waiting.extend(call.approval.filter(|asked| asked.state == ApprovalState::Pending));
        }
        for (id, (opened, asked)) in history.asked {
            open.insert(crate::call_rows::parse(&id)?, opened);
            waiting.push(asked);
        }
        Ok((Self { open, settled, since, changes: Changes::default() }, waiting))
    }

    /// A call opens in this transaction.
    pub(crate) fn opened(&mut self, call_id: &CallId, seq: u64) {
        self.changes.opened.push((call_id.clone(), seq));
    }

    /// A call ends in this transaction.
    pub(crate) fn ended(&mut self, call_id: &CallId) {
        self.changes.ended.push(call_id.clone());
    }

    /// What is to be recorded with the group, if it is time; `size` is how many events there are by now.
    pub(crate) fn mark(&mut self, size: u64) -> Result<Option<PreparedEvent>, JournalError> {
        if self.since + self.changes.opened.len() < EVERY {
            return Ok(None);
        }
        let opened = self.changes.opened.iter().map(|(id, seq)| (id, *seq));
        let all = self.open.iter().map(|(id, seq)| (id, *seq)).chain(opened);
        let oldest = all.filter(|(id, _)| !self.changes.ended.contains(id)).map(|(_, seq)| seq).min();
        let before = oldest.unwrap_or(size + 1);
        self.changes.settled = Some(before.max(self.settled));
        // Where the oldest has not ended since, there is nothing new to say.
        let news = (before > self.settled).then(|| PreparedEvent::new(&JournalEvent::CallsSettled { before }));
        news.transpose()
    }

    /// The group is committed.
    pub(crate) fn committed(&mut self) {
        let Changes { opened, ended, settled } = std::mem::take(&mut self.changes);
        self.since += opened.len();
        self.open.extend(opened);
        for call_id in &ended {
            self.open.remove(call_id);
        }
        if let Some(before) = settled {
            (self.settled, self.since) = (before, 0);
        }
    }

    /// The group is undone.
    pub(crate) fn undone(&mut self) {
        self.changes = Changes::default();
    }

    /// Where one job of the group begins.
    pub(crate) fn savepoint(&self) -> Savepoint {
        Savepoint { opened: self.changes.opened.len(), ended: self.changes.ended.len() }
    }

    /// That job is undone.
    pub(crate) fn back_to(&mut self, savepoint: &Savepoint) {
        self.changes.opened.truncate(savepoint.opened);
        self.changes.ended.truncate(savepoint.ended);
    }
}

/// The newest `calls.settled`.
struct Mark {
    seq: u64,
    before: u64,
}

fn settled(connection: &Connection) -> Result<Option<Mark>, JournalError> {
    let newest = crate::events::newest(connection, "kind = 'calls.settled'")?;
    Ok(newest.and_then(|(seq, event)| match event {
        JournalEvent::CallsSettled { before } if before <= seq => Some(Mark { seq, before }),
        // Something else than a mark, or one that nobody wrote: everything is replayed.
        _ => None,
    }))
}

/// Follows the chain from where open calls can have begun. The mark itself is followed too, so that one that was put in
/// its place breaks the chain.
pub(crate) fn replay(
    connection: &Connection,
    each: &mut dyn FnMut(&Link<'_>) -> Result<(), JournalError>,
) -> Result<(), JournalError> {
    let mark = settled(connection)?;
    let first = mark.as_ref().map_or(1, |mark| mark.before.min(mark.seq));
    let mut verifier = ChainVerifier::default();
    crate::verify::follow(connection, first, &mut verifier, &mut |_, link| each(link))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{JournalStore, Opening};
    use palyra_protocol::{CallState, DecisionKind, Problem, SystemClock};
    use palyra_testkit::records;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    fn opening() -> Opening {
        let call = records::call(records::origin(), serde_json::json!({}), None);
        let decision = Arc::new(records::decision(&call, DecisionKind::Allow));
        Opening { call, decision, run_limit: u64::from(u32::MAX) }
    }

    /// What was opened and has not ended.
    type Expected = BTreeSet<CallId>;

    async fn open(store: &JournalStore, expected: &mut Expected) {
        let opening = opening();
        expected.insert(opening.call.call_id.clone());
        store.start(opening, ()).await.unwrap().unwrap();
    }

    async fn end(store: &JournalStore, expected: &mut Expected, which: usize) {
        let Some(id) = expected.iter().nth(which % expected.len().max(1)).cloned() else { return };
        expected.remove(&id);
        let problem = Problem::plain("x", "x");
        store.end_call(&id, CallState::Executing, CallState::Indeterminate, problem).await.unwrap();
    }

    async fn check(steps: Vec<(u8, usize)>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.db");
        let mut store = JournalStore::open(&path, Arc::new(SystemClock)).unwrap();
        let mut expected = Expected::new();
        for (what, n) in steps {
            match what {
                // Enough calls open and end for the mark to move.
                0 => {
                    for _ in 0..EVERY {
                        open(&store, &mut expected).await;
                        let newest = expected.len() - 1;
                        end(&store, &mut expected, newest).await;
                    }
                }
                1..4 => open(&store, &mut expected).await,
                4..7 => end(&store, &mut expected, n).await,
                _ => {
                    drop(store);
                    store = JournalStore::open(&path, Arc::new(SystemClock)).unwrap();
                }
            }
        }
        let found: Expected = store.open_calls().await.unwrap().into_iter().map(|call| call.call_id).collect();
        assert_eq!(found, expected);
        drop(store);
        let verdict = crate::verify(&path, None, &mut |_| {}).unwrap();
        assert!(matches!(verdict, crate::Verdict::Intact(_)), "{verdict:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        /// Whatever opens and ends, in whatever order and across restarts, the events alone tell which calls are open.
        #[test]
        fn open_calls_are_found(steps in proptest::collection::vec((0..8_u8, 0..64_usize), 1..24)) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(check(steps));
        }
    }

    /// What a start replays does not grow with history: the mark moves, and no further than the oldest open call.
    #[tokio::test]
    async fn a_start_replays_from_the_oldest_open_call() {
        let dir = tempfile::tempdir().unwrap();
        let store = JournalStore::open(&dir.path().join("journal.db"), Arc::new(SystemClock)).unwrap();
        let mut ended = Expected::new();
        let mark = || async { store.read(|c| Ok(settled(c)?.map(|mark| mark.before))).await.unwrap() };
        for _ in 0..2 * EVERY {
            open(&store, &mut ended).await;
            end(&store, &mut ended, 0).await;
        }
        let first = mark().await.unwrap();
        assert!(first > 3 * EVERY as u64, "{first}");
        let mut open_calls = Expected::new();
        open(&store, &mut open_calls).await;
        let opened = store.head().borrow().size - 2;
        for _ in 0..3 * EVERY {
            open(&store, &mut ended).await;
            end(&store, &mut ended, 0).await;
        }
        assert_eq!(mark().await, Some(opened), "the oldest open call is not passed over");
    }

    /// Somebody who puts another mark in the journal's middle breaks the chain, and nothing is hidden by it.
    #[tokio::test]
    async fn a_mark_that_was_put_there_hides_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.db");
        let store = JournalStore::open(&path, Arc::new(SystemClock)).unwrap();
        let mut waiting = Expected::new();
        open(&store, &mut waiting).await;
        for _ in 0..100 {
            store.note(&JournalEvent::DaemonStopped {}).await.unwrap();
        }
        drop(store);
        let connection = Connection::open(&path).unwrap();
        connection.execute_batch("DROP TRIGGER events_are_never_updated").unwrap();
        let (at, prev): (u64, [u8; 32]) = connection
            .query_row("SELECT at, prev FROM events WHERE seq = 10", [], |r| Ok((r.get(0)?, r.get(1)?)))
            .unwrap();
        let body = r#"{"event":"calls.settled","before":10}"#;
        let at_time = palyra_protocol::Timestamp::from_unix_ms(at);
        let link = Link { seq: 10, at: at_time, kind: "calls.settled", call_id: "", body };
        let hash = link.hash(&Digest::from_bytes(prev));
        let edit = "UPDATE events SET kind = 'calls.settled', body = ?1, hash = ?2 WHERE seq = 10";
        connection.execute(edit, (body, hash.as_bytes())).unwrap();
        let started = JournalStore::open(&path, Arc::new(SystemClock));
        assert!(matches!(started, Err(JournalError::Damaged(_))), "{started:?}");
    }
}

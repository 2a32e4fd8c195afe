//! The one writer: a thread that turns many callers' transactions into few commits.
//!
//! Every commit waits for the disk, so with one commit per caller the disk's latency would be the throughput. Jobs that
//! arrive while a commit is under way are gathered and committed together; no caller is answered before the commit that
//! holds their job. A job that fails leaves the others of its group untouched: the group is undone and run again, then
//! each job in a savepoint of its own, which is too dear for the many groups in which nothing fails.

use crate::error::JournalError;
use crate::open_approvals::{OpenApprovalBook, OpenApprovals};
use crate::open_calls::OpenCalls;
use crate::prepared_statements::{Execute, Hot, HotStatements};
use crate::schema::{self, Head};
use palyra_protocol::chain::Link;
use palyra_protocol::{CallId, Clock as _, Digest, JournalEvent, SteadyClock, Timestamp};
use rusqlite::{Connection, params};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use tokio::sync::{oneshot, watch};

/// The most jobs in one commit: bounds how long the first of them waits for the last.
const MAX_GROUP: usize = 256;

/// How many jobs are committed before the log is brought into the database: some thousand pages.
const JOBS_PER_CHECKPOINT: usize = 256;

/// Room for the text of an ordinary event, so that writing it seldom moves it.
const EVENT_BYTES: usize = 1536;

/// An event in the form the table takes, made by the caller's thread so that the writer only hashes and inserts.
#[derive(Debug)]
pub(crate) struct PreparedEvent {
    kind: &'static str,
    call_id: Option<CallId>,
    body: String,
}

impl PreparedEvent {
    pub(crate) fn new(event: &JournalEvent) -> Result<Self, JournalError> {
        Ok(Self {
            kind: event.kind(),
            call_id: event.call_id().cloned(),
            body: palyra_protocol::json::text(event, EVENT_BYTES)?,
        })
    }
}

/// What a job sees: the connection inside the group's transaction, and the end of the chain.
pub(crate) struct Transaction<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) now: Timestamp,
    pub(crate) open_calls: &'a mut OpenCalls,
    pub(crate) questions: &'a mut OpenApprovalBook,
    pub(crate) hot: &'a mut (dyn Execute + 'a),
    head: &'a mut Head,
}

impl Transaction<'_> {
    /// Appends an event and returns its place.
    pub(crate) fn append(&mut self, event: &PreparedEvent) -> Result<u64, JournalError> {
        let seq = self.head.size + 1;
        let PreparedEvent { kind, call_id, body } = event;
        let call_id = call_id.as_ref().map_or("", CallId::as_str);
        let hash = Link { seq, at: self.now, kind, call_id, body }.hash(&self.head.hash);
        let (at, prev) = (self.now.unix_ms(), self.head.hash.as_bytes());
        self.hot.execute(Hot::Append, params![seq, at, kind, call_id, body, prev, hash.as_bytes()])?;
        *self.head = Head { size: seq, hash };
        Ok(seq)
    }
}

trait Job: Send {
    /// Runs inside the group's transaction, again if the group is undone; tells whether its writes are to be kept.
    fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Abort>;
    /// Answers the caller, after the commit or its failure.
    fn answer(self: Box<Self>, commit: Result<(), JournalError>);
}

/// A job whose writes are to be undone; its own result says why.
struct Abort;

struct TypedJob<F, R> {
    work: F,
    result: Option<Result<R, JournalError>>,
    reply: oneshot::Sender<Result<R, JournalError>>,
}

impl<F, R> Job for TypedJob<F, R>
where
    F: FnMut(&mut Transaction<'_>) -> Result<R, JournalError> + Send,
    R: Send,
{
    fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Abort> {
        let result = (self.work)(transaction);
        let kept = result.is_ok();
        self.result = Some(result);
        if kept { Ok(()) } else { Err(Abort) }
    }

    fn answer(self: Box<Self>, commit: Result<(), JournalError>) {
        let result = match (commit, self.result) {
            (_, Some(Err(own))) => Err(own),
            (Ok(()), Some(Ok(value))) => Ok(value),
            (Err(error), _) => Err(error),
            (Ok(()), None) => Err(JournalError::Closed),
        };
        // The caller may have gone; what was committed stays committed, and its record answers whoever asks later.
        drop(self.reply.send(result));
    }
}

/// What the writer is asked to do.
enum Order {
    /// Run this in the next group.
    Job(Box<dyn Job>),
    /// Bring everything into the one file.
    Settle(oneshot::Sender<Result<(), JournalError>>),
}

/// The handle that callers hold.
#[derive(Debug)]
pub(crate) struct Writer {
    jobs: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
    head: watch::Receiver<Head>,
    alive: watch::Receiver<()>,
    questions: OpenApprovals,
}

impl Writer {
    pub(crate) fn start(connection: Connection, head: Head, clock: Arc<SteadyClock>) -> Result<Self, JournalError> {
        let (open_calls, waiting) = OpenCalls::read(&connection)?;
        let book = OpenApprovalBook::default();
        book.reset(waiting);
        let questions = book.for_readers();
        let (jobs, queue) = channel();
        let (announce, watch) = watch::channel(head);
        let (living, alive) = watch::channel(());
        let (ready, prepared) = channel();
        let thread = std::thread::Builder::new()
            .name("palyra-journal".to_owned())
            .spawn(move || {
                // Dropped when the thread ends, in whatever way.
                let _living = living;
                let hot = HotStatements::prepare(&connection).map_err(|error| drop(ready.send(error)));
                let Ok(hot) = hot else { return };
                drop(ready);
                let (connection, committed) = (&connection, Some(head));
                let (since_checkpoint, questions) = (0, book);
                Loop { connection, hot, head, committed, open_calls, questions, since_checkpoint, clock, announce }
                    .run(&queue);
            })
            .map_err(|e| JournalError::Event { reason: format!("the writer thread did not start: {e}") })?;
        // An error comes, or the other end is let go because all is well.
        if let Ok(error) = prepared.recv() {
            return Err(error.into());
        }
        Ok(Self { jobs: Some(jobs), thread: Some(thread), head: watch, alive, questions })
    }

    /// The end of the chain as last committed; can be awaited for changes.
    pub(crate) fn head(&self) -> watch::Receiver<Head> {
        self.head.clone()
    }

    /// The questions that wait, as of the last commit.
    pub(crate) fn questions(&self) -> &OpenApprovals {
        &self.questions
    }

    /// Returns when the writer has ended.
    pub(crate) async fn gone(&self) {
        let mut alive = self.alive.clone();
        while alive.changed().await.is_ok() {}
    }

    /// Runs `work` in a transaction and answers after it is durable.
    pub(crate) async fn write<R: Send + 'static>(
        &self,
        work: impl FnMut(&mut Transaction<'_>) -> Result<R, JournalError> + Send + 'static,
    ) -> Result<R, JournalError> {
        let (reply, answer) = oneshot::channel();
        let job = TypedJob { work, result: None, reply };
        let jobs = self.jobs.as_ref().ok_or(JournalError::Closed)?;
        jobs.send(Order::Job(Box::new(job))).map_err(|_| JournalError::Closed)?;
        answer.await.map_err(|_| JournalError::Closed)?
    }
}

impl Writer {
    /// Brings what is in the write-ahead log into the database, so that the one file is the whole journal.
    pub(crate) async fn settle(&self) -> Result<(), JournalError> {
        let (reply, answer) = oneshot::channel();
        let jobs = self.jobs.as_ref().ok_or(JournalError::Closed)?;
        jobs.send(Order::Settle(reply)).map_err(|_| JournalError::Closed)?;
        answer.await.map_err(|_| JournalError::Closed)?
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Closing the queue lets the thread finish what it has, then end.
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

struct Loop<'c> {
    connection: &'c Connection,
    hot: HotStatements<'c>,
    /// The end of the chain with what the group under way has appended.
    head: Head,
    /// The end of the chain on the disk; none after a failure, until it has been read again.
    committed: Option<Head>,
    open_calls: OpenCalls,
    questions: OpenApprovalBook,
    since_checkpoint: usize,
    clock: Arc<SteadyClock>,
    announce: watch::Sender<Head>,
}

impl Loop<'_> {
    fn run(mut self, queue: &Receiver<Order>) {
        while let Ok(first) = queue.recv() {
            let mut group = Vec::new();
            let mut settle = None;
            let mut next = Some(first);
            while let Some(order) = next.take() {
                match order {
                    Order::Job(job) => group.push(job),
                    Order::Settle(reply) => settle = Some(reply),
                }
                if group.len() < MAX_GROUP && settle.is_none() {
                    next = queue.try_recv().ok();
                }
            }
            self.since_checkpoint += group.len();
            self.serve(group);
            if self.since_checkpoint >= JOBS_PER_CHECKPOINT {
                // After the answers, so that nobody waits for it. What it does not get done, the next one does.
                self.since_checkpoint = 0;
                drop(self.connection.execute_batch("PRAGMA wal_checkpoint(PASSIVE)"));
            }
            if let Some(reply) = settle {
                let settled = self.connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)");
                drop(reply.send(settled.map_err(Into::into)));
            }
        }
    }

    fn serve(&mut self, mut group: Vec<Box<dyn Job>>) {
        if !group.is_empty() {
            let outcome = self.known_end().and_then(|()| self.commit(&mut group));
            match outcome {
                Ok(()) => {
                    self.committed = Some(self.head);
                    self.open_calls.committed();
                    self.questions.committed();
                    self.announce.send_replace(self.head);
                }
                Err(_) => self.recover(),
            }
            let mut outcome = Some(outcome);
            for job in group {
                // The first gets the error itself, the rest its kind.
                let own = match outcome.take() {
                    Some(Ok(())) => {
                        outcome = Some(Ok(()));
                        Ok(())
                    }
                    Some(Err(error)) => {
                        outcome = Some(Err(same_kind(&error)));
                        Err(error)
                    }
                    None => Err(JournalError::Closed),
                };
                job.answer(own);
            }
        }
    }

    fn commit(&mut self, group: &mut [Box<dyn Job>]) -> Result<(), JournalError> {
        let before = self.head;
        let now = self.begin()?;
        for job in &mut *group {
            if self.run_one(job.as_mut(), now)?.is_err() {
                self.connection.prepare_cached("ROLLBACK")?.execute([])?;
                self.head = before;
                self.open_calls.undone();
                self.questions.undone();
                return self.commit_the_rest(group);
            }
        }
        self.end(now)
    }

    /// Commits a group of which some jobs fail: each is undone by itself.
    fn commit_the_rest(&mut self, group: &mut [Box<dyn Job>]) -> Result<(), JournalError> {
        if group.len() == 1 {
            // It has failed, and there is no rest.
            return Ok(());
        }
        let now = self.begin()?;
        for job in group {
            self.connection.prepare_cached("SAVEPOINT job")?.execute([])?;
            let before = (self.head, self.open_calls.savepoint(), self.questions.savepoint());
            if self.run_one(job.as_mut(), now)?.is_err() {
                self.head = before.0;
                self.open_calls.back_to(&before.1);
                self.questions.back_to(before.2);
                self.connection.prepare_cached("ROLLBACK TO job")?.execute([])?;
            }
            self.connection.prepare_cached("RELEASE job")?.execute([])?;
        }
        self.end(now)
    }

    /// Begins a transaction; all of its events have one time, which is never before that of an earlier event.
    fn begin(&mut self) -> Result<Timestamp, JournalError> {
        self.hot.execute(Hot::Begin, &[])?;
        Ok(self.clock.now())
    }

    fn end(&mut self, now: Timestamp) -> Result<(), JournalError> {
        if let Some(mark) = self.open_calls.mark(self.head.size)? {
            self.transaction(now).append(&mark)?;
        }
        if self.committed != Some(self.head) {
            self.clock.recorded(now);
        }
        self.hot.execute(Hot::Commit, &[])?;
        Ok(())
    }

    fn transaction(&mut self, now: Timestamp) -> Transaction<'_> {
        let Self { connection, hot, head, open_calls, questions, .. } = self;
        Transaction { connection, now, open_calls, questions, hot, head }
    }

    fn run_one(&mut self, job: &mut dyn Job, now: Timestamp) -> Result<Result<(), Abort>, JournalError> {
        let kept = job.run(&mut self.transaction(now));
        if self.connection.is_autocommit() {
            // SQLite has rolled the whole group back by itself: out of space, or an I/O error.
            return Err(JournalError::DiskFull);
        }
        Ok(kept)
    }

    /// After a failed commit: undo what is left of the transaction. Whether it reached the disk all the same, only the
    /// disk can say.
    fn recover(&mut self) {
        if !self.connection.is_autocommit() {
            drop(self.connection.execute_batch("ROLLBACK"));
        }
        self.open_calls.undone();
        self.questions.undone();
        self.committed = None;
    }

    /// Makes sure that the chain's end is known before anything is appended to it: after a failure it is read again,
    /// and until that succeeds nothing is written.
    fn known_end(&mut self) -> Result<(), JournalError> {
        if self.committed.is_some() {
            return Ok(());
        }
        let (open_calls, waiting) = OpenCalls::read(self.connection)?;
        self.open_calls = open_calls;
        self.questions.reset(waiting);
        self.head = schema::head(self.connection)?;
        self.committed = Some(self.head);
        self.announce.send_replace(self.head);
        Ok(())
    }
}

fn same_kind(error: &JournalError) -> JournalError {
    match error {
        JournalError::DiskFull => JournalError::DiskFull,
        JournalError::Database(e) => JournalError::Database(rusqlite::Error::SqliteFailure(
            e.sqlite_error().copied().unwrap_or_else(|| rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR)),
            Some(e.to_string()),
        )),
        other => JournalError::Event { reason: other.to_string() },
    }
}

/// The hash type of stored digests.
pub(crate) fn digest(bytes: [u8; 32]) -> Digest {
    Digest::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use palyra_protocol::SystemClock;

    fn clock() -> Arc<SteadyClock> {
        Arc::new(SteadyClock::new(Arc::new(SystemClock), Timestamp::from_unix_ms(0)))
    }

    async fn limit_pages(writer: &Writer, pages: u32) {
        let limit = move |tx: &mut Transaction<'_>| {
            let pragma = format!("PRAGMA max_page_count = {pages}");
            Ok(tx.connection.query_row(&pragma, [], |r| r.get::<_, u32>(0))?)
        };
        writer.write(limit).await.unwrap();
    }

    /// A disk that is full in the middle of a group leaves no gap and no lie in the chain, also for what comes after.
    #[tokio::test]
    async fn a_failed_commit_leaves_the_chain_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.db");
        let (connection, _) = schema::open_writer(&path).unwrap();
        let writer = Writer::start(connection, Head { size: 0, hash: Digest::ZERO }, clock()).unwrap();
        let append = |size: usize| {
            let body = "x".repeat(size);
            let event = PreparedEvent { kind: "daemon.stopped", call_id: None, body };
            writer.write(move |tx| tx.append(&event))
        };
        assert_eq!(append(10).await.unwrap(), 1);
        limit_pages(&writer, 1).await;
        for _ in 0..3 {
            let (small, large) = tokio::join!(append(10), append(1 << 20));
            assert!(matches!(large, Err(JournalError::DiskFull)), "{large:?}");
            drop(small);
        }
        let before = writer.head().borrow().size;
        limit_pages(&writer, 1_000_000).await;
        assert_eq!(append(1 << 20).await.unwrap(), before + 1);
        drop(writer);
        let reader = schema::open_reader(&path).unwrap();
        let mut verifier = palyra_protocol::ChainVerifier::default();
        crate::verify::follow(&reader, 1, &mut verifier, &mut |_, _| Ok(())).unwrap();
        assert_eq!(verifier.size(), before + 1);
    }

    #[tokio::test]
    async fn a_writer_that_breaks_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let (connection, _) = schema::open_writer(&dir.path().join("journal.db")).unwrap();
        let writer = Writer::start(connection, Head { size: 0, hash: Digest::ZERO }, clock()).unwrap();
        let broken = writer.write(|_| -> Result<(), JournalError> { std::panic::panic_any("a bug") }).await;
        assert!(matches!(broken, Err(JournalError::Closed)), "{broken:?}");
        writer.gone().await;
    }
}

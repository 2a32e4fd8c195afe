//! A call's connections, on their way into the journal.
//!
//! A connection is recorded when it is over, while its call may still run for long: after a crash the journal knows all
//! that had ended by then. Those that come while the disk is busy are written together. Before the call's outcome is
//! recorded the log is closed, so a call's connections stand between its start and its end.
//!
//! A record is never dropped. What a run writes can fill the disk that the journal is on, and make room again: a log
//! that let go of what it could not write would let a run choose which of its connections are remembered. So the first
//! write that fails ends the run, what is left is tried again, and what is still left then goes with the outcome, in
//! one transaction: a call never has an outcome that is silent about its connections.

use crate::engine::Engine;
use crate::vault::clean_record;
use palyra_egress::EgressObserver;
use palyra_protocol::{CallId, EgressRecord, Problem};
use palyra_vault::Redactor;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How many records are written at once.
const BATCH: usize = 256;
/// How long is waited before a failed write is tried again, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How often a write is tried again when the call has nothing else to wait for: for about five seconds.
const LAST_TRIES: usize = 10;

/// Connections that are lost.
#[derive(Debug, thiserror::Error)]
#[error("connections of the call could not be recorded")]
pub(crate) struct Unrecorded;

impl Unrecorded {
    /// What is said of a call that ends this way.
    pub(crate) fn problem(&self) -> Problem {
        Problem::new(
            "egress_unrecorded",
            "connections that the call made could not be recorded; it was ended, and what it did is not known in full",
            "make room where the daemon's state is, then look at what the call was about to reach and change",
        )
    }
}

/// Writes one call's connections.
#[derive(Debug)]
pub(crate) struct EgressLog {
    // What is on its way is bounded by the connections that one run may make.
    sender: mpsc::UnboundedSender<EgressRecord>,
    writer: JoinHandle<Vec<EgressRecord>>,
    stop: CancellationToken,
    closing: CancellationToken,
    failed: Arc<AtomicBool>,
    /// Finds what was released to the run: paths of requests may hold it.
    redactor: Arc<OnceLock<Arc<Redactor>>>,
}

/// The writing half.
struct Writer {
    engine: Engine,
    call_id: CallId,
    /// Ends the run.
    stop: CancellationToken,
    /// The run has ended: what does not succeed soon is left to the outcome.
    closing: CancellationToken,
    failed: Arc<AtomicBool>,
}

impl EgressLog {
    /// Opens the log of a running call that ends when `cancelled` is.
    pub(crate) fn open(engine: Engine, call_id: CallId, cancelled: &CancellationToken) -> Self {
        let (sender, records) = mpsc::unbounded_channel();
        let (stop, closing, failed) = (cancelled.child_token(), CancellationToken::new(), Arc::default());
        let writer =
            Writer { engine, call_id, stop: stop.clone(), closing: closing.clone(), failed: Arc::clone(&failed) };
        Self {
            sender,
            writer: tokio::spawn(writer.write_all(records)),
            stop,
            closing,
            failed,
            redactor: Arc::default(),
        }
    }

    /// What the run has to obey: it is ended with its call, and when a connection cannot be recorded.
    pub(crate) fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// Somebody to tell of each connection, from any thread.
    pub(crate) fn observer(&self) -> EgressObserver {
        let (sender, redactor) = (self.sender.clone(), Arc::clone(&self.redactor));
        Arc::new(move |record| {
            let mut record = record.clone();
            if let Some(redactor) = redactor.get() {
                clean_record(&mut record, redactor);
            }
            // The writer lives until every observer is gone.
            let _sent = sender.send(record);
        })
    }

    /// Has records cleaned of what was released.
    pub(crate) fn redact(&self, redactor: &Arc<Redactor>) {
        self.redactor.get_or_init(|| Arc::clone(redactor));
    }

    /// Waits until everything is written, or was tried for a while. Every observer has to be gone by now.
    ///
    /// # Errors
    /// The writer broke, and nobody knows what it had.
    pub(crate) async fn close(self) -> Result<Closed, Unrecorded> {
        drop(self.sender);
        self.closing.cancel();
        match self.writer.await {
            Ok(left) => Ok(Closed { left, late: self.failed.load(Ordering::Acquire) }),
            Err(error) => {
                tracing::error!(%error, "the writer of connections broke");
                Err(Unrecorded)
            }
        }
    }
}

/// How a call's connections came into the journal.
#[derive(Debug)]
pub(crate) struct Closed {
    /// Those that are not there yet: they go with the outcome.
    pub(crate) left: Vec<EgressRecord>,
    /// A write failed, which ended the run.
    pub(crate) late: bool,
}

impl Writer {
    /// Writes what comes; returns what it could not.
    async fn write_all(self, mut records: mpsc::UnboundedReceiver<EgressRecord>) -> Vec<EgressRecord> {
        let mut batch = Vec::new();
        while records.recv_many(&mut batch, BATCH).await > 0 {
            if !self.write(&batch).await {
                while records.recv_many(&mut batch, BATCH).await > 0 {}
                break;
            }
            batch.clear();
        }
        batch
    }

    /// Writes a batch, however long that takes while the run lasts.
    async fn write(&self, batch: &[EgressRecord]) -> bool {
        let (mut pause, mut last_tries) = (FIRST_PAUSE, LAST_TRIES);
        loop {
            let Err(error) = self.engine.journal().record_egress(&self.call_id, batch).await else {
                return true;
            };
            if !self.failed.swap(true, Ordering::AcqRel) {
                tracing::error!(error = &error as &dyn std::error::Error, call = %self.call_id, "a connection could not be recorded; the call is ended");
            }
            self.stop.cancel();
            if self.closing.is_cancelled() {
                if last_tries == 0 {
                    return false;
                }
                last_tries -= 1;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

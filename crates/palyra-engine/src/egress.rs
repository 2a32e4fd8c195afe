//! A call's connections, on their way into the journal.
//!
//! A connection is recorded when it is over, while its call may still run for long: after a crash the journal knows all that had
//! ended by then. Those that come while the disk is busy are written together. Before the call's outcome is recorded the log is closed,
//! so a call's connections stand between its start and its end.
//!
//! A record is never dropped. What a run writes can fill the disk that the journal is on, and make room again: a log that let go of what
//! it could not write would let a run choose which of its connections are remembered. So the first write that fails ends the run, what is
//! left is tried again, and a call whose connections cannot be written at all does not get an outcome that is silent about them.

use crate::engine::Engine;
use palyra_journal::JournalError;
use palyra_protocol::{CallId, EgressRecord, Problem};
use palyra_sandbox::egress::EgressObserver;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// Connections that are not in the journal.
#[derive(Debug, thiserror::Error)]
#[error("connections of the call could not be recorded")]
pub(crate) struct Unrecorded {
    #[source]
    source: Option<JournalError>,
}

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
    writer: JoinHandle<Result<(), JournalError>>,
    stop: CancellationToken,
    closing: CancellationToken,
    failed: Arc<AtomicBool>,
}

/// The writing half.
struct Writer {
    engine: Engine,
    call_id: CallId,
    /// Ends the run.
    stop: CancellationToken,
    /// The run has ended: what does not succeed soon is given up.
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
        Self { sender, writer: tokio::spawn(writer.write_all(records)), stop, closing, failed }
    }

    /// What the run has to obey: it is ended with its call, and when a connection cannot be recorded.
    pub(crate) fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// Somebody to tell of each connection, from any thread.
    pub(crate) fn observer(&self) -> EgressObserver {
        let sender = self.sender.clone();
        Arc::new(move |record| {
            // The writer lives until every observer is gone.
            let _sent = sender.send(record.clone());
        })
    }

    /// Waits until everything is written; whether that took more than one attempt. Every observer has to be gone by now.
    ///
    /// # Errors
    /// Something is not written, and it was tried for a while.
    pub(crate) async fn close(self) -> Result<Written, Unrecorded> {
        drop(self.sender);
        self.closing.cancel();
        match self.writer.await {
            Ok(Ok(())) if self.failed.load(Ordering::Acquire) => Ok(Written::Late),
            Ok(Ok(())) => Ok(Written::AtOnce),
            Ok(Err(error)) => Err(Unrecorded { source: Some(error) }),
            Err(error) => {
                tracing::error!(%error, "the writer of connections broke");
                Err(Unrecorded { source: None })
            }
        }
    }
}

/// How a call's connections came into the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    AtOnce,
    /// A write failed, which ended the run; what was left was written afterwards.
    Late,
}

impl Writer {
    async fn write_all(self, mut records: mpsc::UnboundedReceiver<EgressRecord>) -> Result<(), JournalError> {
        let mut batch = Vec::new();
        while records.recv_many(&mut batch, BATCH).await > 0 {
            self.write(&batch).await?;
            batch.clear();
        }
        Ok(())
    }

    /// Writes a batch, however long that takes while the run lasts.
    async fn write(&self, batch: &[EgressRecord]) -> Result<(), JournalError> {
        let (mut pause, mut last_tries) = (FIRST_PAUSE, LAST_TRIES);
        loop {
            let Err(error) = self.engine.journal().record_egress(&self.call_id, batch.to_vec()).await else {
                return Ok(());
            };
            if !self.failed.swap(true, Ordering::AcqRel) {
                tracing::error!(error = &error as &dyn std::error::Error, call = %self.call_id, "a connection could not be recorded; the call is ended");
            }
            self.stop.cancel();
            if self.closing.is_cancelled() {
                if last_tries == 0 {
                    return Err(error);
                }
                last_tries -= 1;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

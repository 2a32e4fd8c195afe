//! A call's connections, on their way into the journal.
//!
//! A connection is recorded when it is over, while its call may still run for long: after a crash the journal knows all that had
//! ended by then. Those that come while the disk is busy are written together. Before the call's outcome is recorded the log is closed,
//! so a call's connections stand between its start and its end.

use crate::engine::Engine;
use palyra_protocol::{CallId, EgressRecord};
use palyra_sandbox::egress::EgressObserver;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// How many records are written at once.
const BATCH: usize = 256;

/// Writes one call's connections.
#[derive(Debug)]
pub(crate) struct EgressLog {
    // What is on its way is bounded by the connections that one run may make.
    sender: mpsc::UnboundedSender<EgressRecord>,
    writer: JoinHandle<Vec<EgressRecord>>,
}

impl EgressLog {
    /// Opens the log of a running call.
    pub(crate) fn open(engine: Engine, call_id: CallId) -> Self {
        let (sender, mut records) = mpsc::unbounded_channel();
        let writer = tokio::spawn(async move {
            let mut batch = Vec::new();
            while records.recv_many(&mut batch, BATCH).await > 0 {
                match engine.journal().record_egress(&call_id, &batch).await {
                    Ok(()) => batch.clear(),
                    // They wait for the next ones, and at last for the outcome.
                    Err(error) => {
                        tracing::warn!(error = &error as &dyn std::error::Error, %call_id, "connections wait to be recorded");
                    }
                }
            }
            batch
        });
        Self { sender, writer }
    }

    /// Somebody to tell of each connection, from any thread.
    pub(crate) fn observer(&self) -> EgressObserver {
        let sender = self.sender.clone();
        Arc::new(move |record| {
            // The writer lives until every observer is gone.
            let _sent = sender.send(record.clone());
        })
    }

    /// Waits until everything is written, and returns what could not be: it goes with the outcome. Every observer has to be
    /// gone by now.
    pub(crate) async fn close(self) -> Vec<EgressRecord> {
        drop(self.sender);
        self.writer.await.unwrap_or_else(|error| {
            tracing::error!(%error, "the writer of connections broke");
            Vec::new()
        })
    }
}

//! How the doors end: nobody new is let in, everybody who is owed an answer gets it, and only then are lines cut.
//!
//! Three moments, in this order: [`Ending::close`], the engine's own shutting down, [`Ending::settle`]. A transport
//! that hears of the end before the engine has said how its calls go can only break off, and a client that is broken
//! off tries again.

use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// How long answers may take to go out after everything else has ended.
pub(crate) const DRAIN: Duration = Duration::from_secs(2);

/// The doors' end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ending {
    closing: CancellationToken,
    ended: CancellationToken,
    owed: TaskTracker,
    clients: TaskTracker,
}

impl Ending {
    /// Cancelled when the daemon is about to end: nobody new is let in, and whoever waits for a person is answered.
    pub(crate) fn closing(&self) -> &CancellationToken {
        &self.closing
    }

    /// Cancelled when everything has its answer: what is still open has nothing to wait for.
    pub(crate) fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    /// An answer that is owed, until this is dropped.
    pub(crate) fn owe(&self) -> TaskTrackerToken {
        self.owed.token()
    }

    /// Connections that end when they are told to.
    pub(crate) fn clients(&self) -> &TaskTracker {
        &self.clients
    }

    /// Lets nobody new in.
    pub(crate) fn close(&self) {
        self.closing.cancel();
    }

    /// Waits until the last answers are out, for as long as that may take, and ends what is still open.
    pub(crate) async fn settle(&self) {
        self.owed.close();
        self.clients.close();
        if tokio::time::timeout(DRAIN, self.owed.wait()).await.is_err() {
            tracing::warn!(left = self.owed.len(), "answers were cut off at the end");
        }
        self.ended.cancel();
        if tokio::time::timeout(DRAIN, self.clients.wait()).await.is_err() {
            tracing::warn!(left = self.clients.len(), "clients were cut off at the end");
        }
    }
}

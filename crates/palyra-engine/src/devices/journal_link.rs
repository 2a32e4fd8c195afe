//! The device registry's place in the journal.
//!
//! Changes of the registry are recorded before they count, by threads that may wait. Everything else that happens to
//! devices is noted by handshakes that may not: it goes through a bounded queue, and what finds no room there is
//! counted.

use crate::engine::{Engine, WeakEngine};
use palyra_identity::{IdentityEvent, IdentityJournal, JournalFailure, RecordedRegistry, RegistryChange};
use palyra_journal::JournalError;
use palyra_protocol::{Digest, JournalEvent};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

/// How many events may wait to be recorded.
const QUEUE: usize = 1024;
/// How long the end waits for the queue to be recorded.
const LAST_WORDS: Duration = Duration::from_secs(2);

#[derive(Debug)]
enum Word {
    Event(IdentityEvent),
    Flushed(oneshot::Sender<()>),
}

/// The journal, as the device registry needs it.
#[derive(Debug)]
pub(super) struct JournalLink {
    engine: WeakEngine,
    runtime: Handle,
    queue: mpsc::Sender<Word>,
    lost: AtomicU64,
}

impl JournalLink {
    /// A link, and the task that records what is noted.
    pub(super) fn start(engine: WeakEngine) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let runtime = Handle::current();
        runtime.spawn(write_down(engine.clone(), waiting));
        Self { engine, runtime, queue, lost: AtomicU64::new(0) }
    }

    /// Waits until what was noted so far is recorded.
    pub(super) async fn flush(&self) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if let (true, Some(engine)) = (lost > 0, self.engine.upgrade()) {
            record(&engine, "identity.notes_lost", json!({ "count": lost })).await;
        }
        let (flushed, done) = oneshot::channel();
        let flushing = async {
            if self.queue.send(Word::Flushed(flushed)).await.is_ok() {
                drop(done.await);
            }
        };
        if tokio::time::timeout(LAST_WORDS, flushing).await.is_err() {
            tracing::warn!("events of devices were not recorded in time");
        }
    }

    fn engine(&self) -> Result<Engine, JournalFailure> {
        self.engine.upgrade().ok_or_else(|| JournalFailure(Box::new(JournalError::Closed)))
    }
}

async fn write_down(engine: WeakEngine, mut waiting: mpsc::Receiver<Word>) {
    while let Some(word) = waiting.recv().await {
        let event = match word {
            Word::Event(event) => event,
            Word::Flushed(done) => {
                if done.send(()).is_err() {
                    tracing::debug!("nobody waits for the events of devices any more");
                }
                continue;
            }
        };
        let Some(engine) = engine.upgrade() else { return };
        match serde_json::to_value(&event) {
            Ok(mut detail) => {
                if let Some(fields) = detail.as_object_mut() {
                    fields.remove("event");
                }
                record(&engine, event.kind(), detail).await;
            }
            Err(error) => tracing::error!(%error, "an event of devices has no document"),
        }
    }
}

async fn record(engine: &Engine, what: &str, detail: Value) {
    let event = JournalEvent::DevicesNoted { what: what.to_owned(), detail };
    if let Err(error) = engine.journal().note(&event).await {
        tracing::warn!(error = &error as &dyn std::error::Error, "an event of devices could not be recorded");
    }
}

/// The registry that the journal knows; nothing where there was none, or where it was given up since.
pub(super) async fn recorded(engine: &Engine) -> Result<Option<RecordedRegistry>, JournalError> {
    Ok(match engine.journal().last_device_change().await? {
        Some(JournalEvent::DevicesChanged { revision, after, .. }) if after != Digest::ZERO => {
            Some(RecordedRegistry { revision, digest: after })
        }
        _ => None,
    })
}

fn failure(error: JournalError) -> JournalFailure {
    JournalFailure(Box::new(error))
}

impl IdentityJournal for JournalLink {
    fn newest(&self) -> Result<Option<RecordedRegistry>, JournalFailure> {
        let engine = self.engine()?;
        self.runtime.block_on(recorded(&engine)).map_err(failure)
    }

    fn record(&self, change: &RegistryChange) -> Result<(), JournalFailure> {
        let RegistryChange { by, change, revision, before, after } = change.clone();
        let event = JournalEvent::DevicesChanged { by, change, revision, before, after };
        let engine = self.engine()?;
        self.runtime.block_on(engine.journal().note(&event)).map(drop).map_err(failure)
    }

    fn note(&self, event: IdentityEvent) {
        if self.queue.try_send(Word::Event(event)).is_err() && self.lost.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!("more happens to devices than can be recorded; what is lost is counted");
        }
    }
}

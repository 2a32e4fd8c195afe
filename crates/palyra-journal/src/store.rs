//! The store itself: opening, closing, reading.

use crate::error::JournalError;
use crate::open_approvals::OpenApprovals;
use crate::routines::SlotMarks;
use crate::schema::{self, Head};
use crate::writer::{PreparedEvent, Transaction, Writer};
use palyra_protocol::{Checkpoint, Clock, DaemonKey, JournalEvent, JournalId, SteadyClock};
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// How many idle read connections are kept.
const MAX_IDLE_READERS: usize = 8;

/// The journal on embedded SQLite.
#[derive(Debug)]
pub struct JournalStore {
    path: PathBuf,
    origin: JournalId,
    mended: Vec<String>,
    clock: Arc<SteadyClock>,
    writer: Writer,
    readers: Arc<Mutex<Vec<Connection>>>,
    slot_marks: Arc<SlotMarks>,
}

impl JournalStore {
    /// Opens the journal, making it if there is none, and checks the end of its chain. Time goes on from its newest
    /// event, also where the machine's clock was set back.
    ///
    /// # Errors
    /// The file cannot be opened, is of another format, or its newest events do not fit together.
    pub fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, JournalError> {
        let (connection, mended) = schema::open_writer(path)?;
        let origin = schema::founded_origin(&connection)?;
        let head = schema::check_tail(&connection)?;
        let clock = Arc::new(SteadyClock::new(clock, schema::newest_time(&connection)?));
        let writer = Writer::start(connection, head, Arc::clone(&clock))?;
        Ok(Self {
            path: path.to_owned(),
            origin,
            mended,
            clock,
            writer,
            readers: Arc::default(),
            slot_marks: Arc::default(),
        })
    }

    /// The indexes, views and triggers that somebody had removed or changed, and that are as they were again.
    #[must_use]
    pub fn mended(&self) -> &[String] {
        &self.mended
    }

    /// The journal's identity.
    #[must_use]
    pub fn origin(&self) -> &JournalId {
        &self.origin
    }

    /// The time, never before the newest event's.
    #[must_use]
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::<SteadyClock>::clone(&self.clock)
    }

    /// The database file, for whoever verifies it on a connection of its own.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The end of the chain as last committed; can be awaited for changes.
    #[must_use]
    pub fn head(&self) -> watch::Receiver<Head> {
        self.writer.head()
    }

    /// Returns when nothing can be recorded any more, because the writer broke.
    pub async fn gone(&self) {
        self.writer.gone().await;
    }

    /// A signed statement of how long the journal is now and what its last hash is.
    #[must_use]
    pub fn checkpoint(&self, key: &DaemonKey) -> Checkpoint {
        let head = *self.head().borrow();
        Checkpoint::sign(self.origin.clone(), head.size, head.hash, self.clock.now(), key)
    }

    /// Records an event that changes no projection.
    ///
    /// # Errors
    /// It could not be made durable.
    pub async fn note(&self, event: &JournalEvent) -> Result<u64, JournalError> {
        let event = PreparedEvent::new(event)?;
        self.write(move |tx| tx.append(&event)).await
    }

    /// Brings everything into the one database file: what a copy of it then holds is the whole journal.
    ///
    /// # Errors
    /// The log could not be written back; nothing is lost, it is done at the next opening.
    pub async fn settle(&self) -> Result<(), JournalError> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.writer.settle().await
    }

    /// The newest slots of routines.
    pub(crate) fn slot_marks(&self) -> Arc<SlotMarks> {
        Arc::clone(&self.slot_marks)
    }

    /// The questions that wait.
    pub(crate) fn questions(&self) -> &OpenApprovals {
        self.writer.questions()
    }

    pub(crate) async fn write<R: Send + 'static>(
        &self,
        work: impl FnMut(&mut Transaction<'_>) -> Result<R, JournalError> + Send + 'static,
    ) -> Result<R, JournalError> {
        self.writer.write(work).await
    }

    /// Runs a query on a read connection, off the async threads.
    pub(crate) async fn read<R: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<R, JournalError> + Send + 'static,
    ) -> Result<R, JournalError> {
        let readers = Arc::clone(&self.readers);
        let path = self.path.clone();
        let work = move || {
            let idle = readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let connection = idle.map_or_else(|| schema::open_reader(&path), Ok)?;
            let result = query(&connection);
            let mut idle = readers.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.len() < MAX_IDLE_READERS {
                idle.push(connection);
            }
            result
        };
        tokio::task::spawn_blocking(work).await.map_err(|_| JournalError::Closed)?
    }
}

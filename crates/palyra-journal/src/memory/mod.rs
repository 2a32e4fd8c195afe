//! The memory's own database: texts, their keys and the index that finds them. It lies beside the journal because it
//! must be able to forget, and the journal must not.
//!
//! An entry is staged here, recorded in the journal, then settled. Forgetting is recorded first and destroyed then. A
//! start compares the two ([`MemoryStore::pending`], [`MemoryStore::applied`]) and finishes what a crash interrupted.
//!
//! Destroying overwrites: `secure_delete` zeroes freed pages, FTS5's own `secure-delete` takes tokens out of the index
//! at once, and the write-ahead log is truncated before a caller hears that an entry is gone. All of it blocks;
//! callers use a thread for blocking work.

mod search;

pub use search::{MAX_QUERY, MemoryQuery};

use crate::error::JournalError;
use palyra_protocol::{MemoryId, MemoryRecord, MemoryScope, MemorySource, MemoryTrust, Principal, SessionId};
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, Transaction, TransactionBehavior, params};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How many idle read connections are kept.
const MAX_IDLE_READERS: usize = 4;
/// How often the write-ahead log is tried to be truncated while somebody reads.
const TRUNCATE_TRIES: usize = 5;
/// The most entries of one page.
pub const MEMORY_PAGE: u32 = 100;

/// How much one scope, and one principal over all its scopes, may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryQuota {
    /// Entries of one scope.
    pub scope_entries: u64,
    /// Entries that one principal retained.
    pub holder_entries: u64,
    /// Bytes of text that one principal retained.
    pub holder_bytes: u64,
}

impl Default for MemoryQuota {
    fn default() -> Self {
        Self { scope_entries: 10_000, holder_entries: 20_000, holder_bytes: 32 << 20 }
    }
}

/// An entry with its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryEntry {
    /// Everything but the text.
    pub record: MemoryRecord,
    /// The text.
    pub text: String,
}

/// An entry that is to be kept.
#[expect(missing_debug_implementations, reason = "it holds a key")]
pub struct NewMemory<'a> {
    /// Everything but the text.
    pub record: &'a MemoryRecord,
    /// The text.
    pub text: &'a str,
    /// The key that opens the journal's ciphertext of it.
    pub key: &'a [u8; 32],
}

/// Where a session's content may come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSource {
    /// The source.
    pub source: MemorySource,
    /// How far it is trusted.
    pub trust: MemoryTrust,
    /// Whether it was recalled from memory.
    pub recalled: bool,
}

/// The memory on embedded SQLite.
#[derive(Debug)]
pub struct MemoryStore {
    path: PathBuf,
    writer: Mutex<Connection>,
    readers: Mutex<Vec<Connection>>,
}

impl MemoryStore {
    /// Opens the memory, making it if there is none.
    ///
    /// # Errors
    /// The file cannot be opened or is of another format.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        crate::schema::make_private(path)?;
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "secure_delete", "ON")?;
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        connection.pragma_update(None, "trusted_schema", "OFF")?;
        connection.pragma_update(None, "cell_size_check", "ON")?;
        connection.busy_timeout(Duration::from_secs(5))?;
        let exists: bool =
            connection
                .query_row("SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'meta')", [], |r| r.get(0))?;
        if !exists {
            connection.execute_batch(&format!("BEGIN IMMEDIATE;\n{}\nCOMMIT;", include_str!("schema.sql")))?;
        }
        let found: String = connection.query_row("SELECT value FROM meta WHERE key = 'format'", [], |r| r.get(0))?;
        if found != "1" {
            return Err(JournalError::Format { found: format!("memory {found}"), expected: 1 });
        }
        let store = Self { path: path.to_owned(), writer: Mutex::new(connection), readers: Mutex::default() };
        store.truncate_log()?;
        Ok(store)
    }

    /// Keeps an entry that the journal does not know yet. It is not found before it is settled.
    ///
    /// # Errors
    /// A quota is used up, or it could not be made durable.
    pub fn stage(&self, new: NewMemory<'_>, quota: &MemoryQuota) -> Result<(), JournalError> {
        let mut connection = self.writer();
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        stage(&tx, new, quota)?;
        Ok(tx.commit()?)
    }

    /// Keeps many entries at once and has them found.
    ///
    /// # Errors
    /// A quota is used up, or they could not be made durable; then none is kept.
    pub fn add_all<'a>(
        &self,
        new: impl Iterator<Item = NewMemory<'a>>,
        quota: &MemoryQuota,
    ) -> Result<(), JournalError> {
        let mut connection = self.writer();
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for new in new {
            let id = &new.record.entry_id;
            stage(&tx, new, quota)?;
            settle(&tx, id, 0)?;
        }
        Ok(tx.commit()?)
    }

    /// Has an entry found from now on: the journal has it as this event.
    ///
    /// # Errors
    /// It could not be made durable.
    pub fn settle(&self, id: &MemoryId, seq: u64) -> Result<(), JournalError> {
        let mut connection = self.writer();
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        settle(&tx, id, seq)?;
        Ok(tx.commit()?)
    }

    /// Destroys an entry: its key, its text, and what the index holds of it. Tells whether there was one.
    ///
    /// # Errors
    /// Something of it may still be on the disk; destroying it again is safe.
    pub fn destroy(&self, id: &MemoryId) -> Result<bool, JournalError> {
        let found = {
            let mut connection = self.writer();
            let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let found = tx
                .prepare_cached("SELECT n, scope, holder, pending, text FROM entries WHERE entry_id = ?1")?
                .query_row([id.as_str()], |r| {
                    Ok((r.get::<_, i64>(0)?, r.get(1)?, r.get(2)?, r.get::<_, bool>(3)?, r.get(4)?))
                })
                .optional()?;
            if let Some((n, scope, holder, pending, text)) = &found {
                let (scope, holder, text): (&String, &String, &String) = (scope, holder, text);
                for table in ["words", "grams"].into_iter().filter(|_| !pending) {
                    let delete = format!("INSERT INTO {table} ({table}, rowid, text) VALUES ('delete', ?1, ?2)");
                    tx.execute(&delete, params![n, text])?;
                }
                tx.execute("DELETE FROM entries WHERE n = ?1", [n])?;
                count(&tx, scope, -1, -signed(text))?;
                count(&tx, &format!("by {holder}"), -1, -signed(text))?;
            }
            tx.commit()?;
            found.is_some()
        };
        // Also where there was none: an earlier attempt may have been cut off before this.
        self.truncate_log()?;
        Ok(found)
    }

    /// Entries that were staged and not settled.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn pending(&self) -> Result<Vec<MemoryId>, JournalError> {
        let connection = self.writer();
        let mut statement = connection.prepare("SELECT entry_id FROM entries WHERE pending = 1")?;
        let ids = statement.query_map([], |r| r.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
        ids.iter().map(|id| id.parse().map_err(|_| unreadable("an entry's id"))).collect()
    }

    /// The place in the journal up to which the memory follows it.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn applied(&self) -> Result<u64, JournalError> {
        let connection = self.writer();
        let value: String = connection.query_row("SELECT value FROM meta WHERE key = 'applied'", [], |r| r.get(0))?;
        value.parse().map_err(|_| unreadable("the memory's place in the journal"))
    }

    /// Says that the memory follows the journal up to a place.
    ///
    /// # Errors
    /// It could not be made durable.
    pub fn set_applied(&self, seq: u64) -> Result<(), JournalError> {
        self.writer().execute("UPDATE meta SET value = ?1 WHERE key = 'applied'", [seq.to_string()])?;
        Ok(())
    }

    /// One entry.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn entry(&self, id: &MemoryId) -> Result<Option<MemoryEntry>, JournalError> {
        self.read(|connection| {
            let mut statement =
                connection.prepare_cached("SELECT record, text FROM entries WHERE entry_id = ?1 AND pending = 0")?;
            let mut rows = statement.query([id.as_str()])?;
            rows.next()?.map(entry).transpose()
        })
    }

    /// The key of an entry, and the journal's event whose ciphertext it opens.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn key(&self, id: &MemoryId) -> Result<Option<(Vec<u8>, u64)>, JournalError> {
        self.read(|connection| {
            let key = connection
                .prepare_cached("SELECT key, seq FROM entries WHERE entry_id = ?1 AND pending = 0")?
                .query_row([id.as_str()], |r| Ok((r.get(0)?, r.get(1)?)))
                .optional()?;
            Ok(key)
        })
    }

    /// A page of entries, newest first, of one scope or of all, before an entry.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn page(
        &self,
        scope: Option<&MemoryScope>,
        before: Option<&MemoryId>,
    ) -> Result<Vec<MemoryEntry>, JournalError> {
        let scope = scope.map(ToString::to_string);
        self.read(|connection| {
            let before: i64 = match before {
                None => i64::MAX,
                Some(id) => connection
                    .query_row("SELECT n FROM entries WHERE entry_id = ?1", [id.as_str()], |r| r.get(0))
                    .optional()?
                    .unwrap_or(i64::MAX),
            };
            let of_scope = if scope.is_some() { "AND scope = ?2" } else { "AND ?2 IS NULL" };
            let query = format!(
                "SELECT record, text FROM entries WHERE n < ?1 {of_scope} AND pending = 0 ORDER BY n DESC LIMIT {MEMORY_PAGE}"
            );
            let mut statement = connection.prepare_cached(&query)?;
            let mut rows = statement.query(params![before, scope])?;
            let mut entries = Vec::new();
            while let Some(row) = rows.next()? {
                entries.push(entry(row)?);
            }
            Ok(entries)
        })
    }

    /// Records where a session's content may come from. A source that is known keeps the lower trust.
    ///
    /// # Errors
    /// It could not be made durable.
    pub fn note_sources(
        &self,
        principal: &Principal,
        session: &SessionId,
        sources: &[SessionSource],
    ) -> Result<(), JournalError> {
        let mut connection = self.writer();
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for SessionSource { source, trust, recalled } in sources {
            tx.prepare_cached(
                "INSERT INTO sources (principal, session, source, trust, recalled) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT DO NOTHING",
            )?
            .execute(params![
                principal.to_string(),
                session.as_str(),
                source.as_str(),
                trust.as_str(),
                recalled
            ])?;
        }
        Ok(tx.commit()?)
    }

    /// The sources of one session.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn sources(&self, principal: &Principal, session: &SessionId) -> Result<Vec<SessionSource>, JournalError> {
        self.read(|connection| {
            let mut statement = connection
                .prepare_cached("SELECT source, trust, recalled FROM sources WHERE principal = ?1 AND session = ?2")?;
            let mut rows = statement.query(params![principal.to_string(), session.as_str()])?;
            let mut sources = Vec::new();
            while let Some(row) = rows.next()? {
                let trust = row.get::<_, String>(1)?.parse().map_err(|_| unreadable("a source's trust"))?;
                let source = MemorySource::new(&row.get::<_, String>(0)?);
                sources.push(SessionSource { source, trust, recalled: row.get(2)? });
            }
            Ok(sources)
        })
    }

    /// Every session with sources: whose, which, and each source.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn sessions(&self, mut each: impl FnMut(Principal, SessionId, SessionSource)) -> Result<(), JournalError> {
        self.read(|connection| {
            let mut statement =
                connection.prepare("SELECT principal, session, source, trust, recalled FROM sources")?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let text = |at: usize| row.get::<_, String>(at);
                let principal = text(0)?.parse().map_err(|_| unreadable("a session's principal"))?;
                let session = text(1)?.parse().map_err(|_| unreadable("a session's name"))?;
                let trust = text(3)?.parse().map_err(|_| unreadable("a source's trust"))?;
                let source = SessionSource { source: MemorySource::new(&text(2)?), trust, recalled: row.get(4)? };
                each(principal, session, source);
            }
            Ok(())
        })
    }

    fn writer(&self) -> MutexGuard<'_, Connection> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<R>(&self, query: impl FnOnce(&Connection) -> Result<R, JournalError>) -> Result<R, JournalError> {
        let idle = self.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match idle {
            Some(connection) => connection,
            None => self.reader()?,
        };
        let result = query(&connection);
        let mut idle = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE_READERS {
            idle.push(connection);
        }
        result
    }

    fn reader(&self) -> Result<Connection, JournalError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.pragma_update(None, "query_only", "ON")?;
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        connection.busy_timeout(Duration::from_secs(5))?;
        Ok(connection)
    }

    /// Writes the log back and cuts it to nothing: what it held of destroyed entries is gone then.
    fn truncate_log(&self) -> Result<(), JournalError> {
        let connection = self.writer();
        for _ in 0..TRUNCATE_TRIES {
            let busy: i64 = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |r| r.get(0))?;
            if busy == 0 {
                return Ok(());
            }
        }
        Err(JournalError::Event { reason: "the memory's log is in use and was not cut; try again".to_owned() })
    }
}

fn stage(tx: &Transaction<'_>, new: NewMemory<'_>, quota: &MemoryQuota) -> Result<(), JournalError> {
    let NewMemory { record, text, key } = new;
    let (scope, holder) = (record.scope.to_string(), record.principal.to_string());
    let by_holder = format!("by {holder}");
    let bytes = signed(text);
    for (name, most, most_bytes) in
        [(&scope, quota.scope_entries, u64::MAX), (&by_holder, quota.holder_entries, quota.holder_bytes)]
    {
        let used: Option<(u64, u64)> = tx
            .prepare_cached("SELECT entries, bytes FROM usage WHERE name = ?1")?
            .query_row([name], |r| Ok((r.get(0)?, r.get(1)?)))
            .optional()?;
        let (used, used_bytes) = used.unwrap_or_default();
        if used >= most || used_bytes.saturating_add(text.len() as u64) > most_bytes {
            return Err(JournalError::MemoryFull { name: name.clone() });
        }
        count(tx, name, 1, bytes)?;
    }
    tx.prepare_cached(
        "INSERT INTO entries (entry_id, scope, holder, pending, record, text, key) VALUES (?1, ?2, ?3, 1, ?4, ?5, ?6)",
    )?
    .execute(params![record.entry_id.as_str(), scope, holder, serde_json::to_string(record)?, text, &key[..]])?;
    Ok(())
}

fn settle(tx: &Transaction<'_>, id: &MemoryId, seq: u64) -> Result<(), JournalError> {
    let changed = tx
        .prepare_cached("UPDATE entries SET pending = 0, seq = ?2 WHERE entry_id = ?1 AND pending = 1")?
        .execute(params![id.as_str(), seq])?;
    for table in ["words", "grams"].into_iter().filter(|_| changed == 1) {
        tx.prepare_cached(&format!(
            "INSERT INTO {table} (rowid, text) SELECT n, text FROM entries WHERE entry_id = ?1"
        ))?
        .execute([id.as_str()])?;
    }
    Ok(())
}

fn signed(text: &str) -> i64 {
    i64::try_from(text.len()).unwrap_or(i64::MAX)
}

fn count(tx: &Transaction<'_>, name: &str, entries: i64, bytes: i64) -> Result<(), JournalError> {
    tx.prepare_cached(
        "INSERT INTO usage (name, entries, bytes) VALUES (?1, ?2, ?3)
         ON CONFLICT DO UPDATE SET entries = entries + ?2, bytes = bytes + ?3",
    )?
    .execute(params![name, entries, bytes])?;
    tx.execute("DELETE FROM usage WHERE name = ?1 AND entries <= 0", [name])?;
    Ok(())
}

fn entry(row: &Row<'_>) -> Result<MemoryEntry, JournalError> {
    let record: String = row.get(0)?;
    Ok(MemoryEntry { record: serde_json::from_str(&record)?, text: row.get(1)? })
}

fn unreadable(what: &str) -> JournalError {
    JournalError::Event { reason: format!("{what} cannot be read") }
}

#[cfg(test)]
mod tests;

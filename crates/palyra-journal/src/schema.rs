//! Opening the database: pragmas, tables, identity.

use crate::error::JournalError;
use crate::history::HistoryFault;
use crate::indexes::{EVENT_INDEXES, columns, condition};
use crate::migrate::migrate;
use palyra_protocol::{ChainVerifier, Digest, JournalId, Timestamp};
use rusqlite::{Connection, OpenFlags, OptionalExtension};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// The format of the tables and of the chain.
pub(crate) const FORMAT: u32 = 3;
/// How large the write-ahead log stays.
const LOG_BYTES: i64 = 64 << 20;
/// How many of the newest events are checked at every start.
const TAIL: u64 = 64;

/// Everything that a journal's database is made of.
fn definitions() -> String {
    let mut script = include_str!("schema.sql").to_owned();
    // What is looked for among all events; these indexes hold nothing else.
    for (index, kinds) in EVENT_INDEXES {
        script += &format!("CREATE INDEX {index} ON events ({}) WHERE {};\n", columns(index), condition(kinds));
    }
    script
}

/// Opens the database for its one writer; tells what of its schema had to be mended.
pub(crate) fn open_writer(path: &Path) -> Result<(Connection, Vec<String>), JournalError> {
    make_private(path)?;
    let mut connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // FULL makes every commit wait for the disk: acknowledged means durable.
    connection.pragma_update(None, "synchronous", "FULL")?;
    // The writer does it itself, after it has answered.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    // A log that grew while somebody read for long shrinks again.
    connection.pragma_update(None, "journal_size_limit", LOG_BYTES)?;
    connection.pragma_update(None, "trusted_schema", "OFF")?;
    connection.pragma_update(None, "cell_size_check", "ON")?;
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.set_prepared_statement_cache_capacity(64);
    initialise(&connection)?;
    migrate(&mut connection)?;
    check_format(&connection)?;
    let mended = mend(&connection)?;
    Ok((connection, mended))
}

/// Makes the file for its owner alone before SQLite does; what SQLite puts beside it takes the same mode.
pub(crate) fn make_private(path: &Path) -> Result<(), JournalError> {
    let mut options = std::fs::OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let made = options.open(path);
    made.map(drop).map_err(|e| match e.kind() {
        std::io::ErrorKind::StorageFull => JournalError::DiskFull,
        _ => JournalError::Event { reason: format!("`{}` cannot be opened: {e}", path.display()) },
    })
}

/// Opens the database for reading.
pub(crate) fn open_reader(path: &Path) -> Result<Connection, JournalError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.pragma_update(None, "query_only", "ON")?;
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

fn initialise(connection: &Connection) -> Result<(), JournalError> {
    let exists: bool =
        connection.query_row("SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'meta')", [], |r| r.get(0))?;
    if !exists {
        // One transaction: a crash in the middle leaves an empty file, not half a schema.
        let script = format!(
            "BEGIN IMMEDIATE;\n{}\nINSERT INTO meta VALUES ('format', '{FORMAT}'), ('origin', '{}');\nCOMMIT;",
            definitions(),
            JournalId::mint(),
        );
        connection.execute_batch(&script)?;
    }
    Ok(())
}

/// Refuses a journal of another format.
pub(crate) fn check_format(connection: &Connection) -> Result<(), JournalError> {
    let found = meta(connection, "format")?;
    if found == FORMAT.to_string() { Ok(()) } else { Err(JournalError::Format { found, expected: FORMAT }) }
}

/// A table, an index, a view or a trigger: its kind and its text.
pub(crate) type Definition = (String, String);

/// How each should be, by name.
pub(crate) fn model() -> Result<BTreeMap<String, Definition>, JournalError> {
    let model = Connection::open_in_memory()?;
    model.execute_batch(&definitions())?;
    defined(&model)
}

fn defined(connection: &Connection) -> Result<BTreeMap<String, Definition>, JournalError> {
    // What SQLite adds for itself has a name of its own kind, and no text or one that is not ours.
    let query = "SELECT name, type, coalesce(sql, '') FROM sqlite_master WHERE name NOT LIKE 'sqlite!_%' ESCAPE '!'";
    let mut statement = connection.prepare(query)?;
    let found = statement.query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// What is not as the journal was made with: missing, changed, or nobody's.
#[derive(Debug, Default)]
pub(crate) struct Differences {
    /// What is there instead, by name.
    found: BTreeMap<String, Definition>,
    /// What should be there, by name.
    meant: BTreeMap<String, Definition>,
}

impl Differences {
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.found.keys().chain(self.meant.keys()).cloned().collect();
        names.sort();
        names.dedup();
        names
    }
}

/// Compares a journal's schema with the one it was made with.
pub(crate) fn differences(connection: &Connection) -> Result<Differences, JournalError> {
    let (mut meant, mut found) = (model()?, defined(connection)?);
    let same: Vec<String> =
        meant.iter().filter(|(name, own)| found.get(*name) == Some(*own)).map(|(n, _)| n.clone()).collect();
    for name in same {
        meant.remove(&name);
        found.remove(&name);
    }
    Ok(Differences { found, meant })
}

/// Makes indexes, views and triggers again what they were, in one transaction; returns which were not. A table that is
/// another cannot be mended.
fn mend(connection: &Connection) -> Result<Vec<String>, JournalError> {
    let wrong = differences(connection)?;
    let names = wrong.names();
    if names.is_empty() {
        return Ok(names);
    }
    let is_table = |(kind, _): &Definition| kind == "table";
    if wrong.found.values().chain(wrong.meant.values()).any(is_table) {
        return Err(JournalError::Unfounded(HistoryFault::Schema { names: names.join(", ") }));
    }
    let mut script = "BEGIN IMMEDIATE;\n".to_owned();
    for (name, (kind, _)) in &wrong.found {
        script += &format!("DROP {kind} IF EXISTS \"{}\";\n", name.replace('"', "\"\""));
    }
    script.extend(wrong.meant.values().map(|(_, text)| format!("{text};\n")));
    connection.execute_batch(&(script + "COMMIT;"))?;
    Ok(names)
}

fn meta(connection: &Connection, key: &str) -> Result<String, JournalError> {
    connection
        .query_row("SELECT value FROM meta WHERE key = ?1", [key], |r| r.get(0))
        .optional()?
        .ok_or_else(|| HistoryFault::table("meta", format!("the journal lacks its `{key}`")))
}

/// The journal's identity, as its table has it.
pub(crate) fn origin(connection: &Connection) -> Result<JournalId, JournalError> {
    meta(connection, "origin")?.parse().map_err(|e| HistoryFault::table("meta", format!("{e}")))
}

/// The journal's identity, if the newest start of the daemon named the same.
pub(crate) fn founded_origin(connection: &Connection) -> Result<JournalId, JournalError> {
    let origin = origin(connection)?;
    let started = crate::events::newest(connection, "kind = 'daemon.started'")?;
    match started {
        Some((_, palyra_protocol::JournalEvent::DaemonStarted { journal: Some(journal), .. })) if journal != origin => {
            let reason = format!("the journal is `{origin}` there, and the daemon opened `{journal}`");
            Err(HistoryFault::table("meta", reason))
        }
        _ => Ok(origin),
    }
}

/// The end of the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// How many events there are.
    pub size: u64,
    /// The hash of the last one.
    pub hash: Digest,
}

/// Reads the end of the chain as it stands in the table.
pub(crate) fn head(connection: &Connection) -> Result<Head, JournalError> {
    let row = connection
        .prepare_cached("SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1")?
        .query_row([], |r| Ok((r.get(0)?, r.get::<_, [u8; 32]>(1)?)))
        .optional()?;
    Ok(match row {
        Some((size, hash)) => Head { size, hash: Digest::from_bytes(hash) },
        None => Head { size: 0, hash: Digest::ZERO },
    })
}

/// When the newest event was recorded; the epoch where there is none.
pub(crate) fn newest_time(connection: &Connection) -> Result<Timestamp, JournalError> {
    let at: Option<u64> =
        connection.query_row("SELECT at FROM events ORDER BY seq DESC LIMIT 1", [], |r| r.get(0)).optional()?;
    Ok(Timestamp::from_unix_ms(at.unwrap_or(0)))
}

/// Checks the newest events, so that nothing is appended to a damaged end. The whole chain is `verify`'s business.
pub(crate) fn check_tail(connection: &Connection) -> Result<Head, JournalError> {
    let end = head(connection)?;
    let first = end.size.saturating_sub(TAIL - 1).max(1);
    let mut verifier = ChainVerifier::default();
    crate::verify::follow(connection, first, &mut verifier, &mut |_, _| Ok(()))?;
    Ok(end)
}

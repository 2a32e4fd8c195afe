//! Opening the database: pragmas, tables, identity.

use crate::error::JournalError;
use crate::indexes::{EVENT_INDEXES, condition};
use palyra_protocol::{ChainVerifier, Digest, JournalId};
use rusqlite::{Connection, OpenFlags, OptionalExtension};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

const SCHEMA: &str = include_str!("schema.sql");

/// The format of the tables and of the chain.
const FORMAT: u32 = 2;
/// How large the write-ahead log stays.
const LOG_BYTES: i64 = 64 << 20;
/// How many of the newest events are checked at every start.
const TAIL: u64 = 64;

/// Opens the database for its one writer; tells which of its triggers had to be mended.
pub(crate) fn open_writer(path: &Path) -> Result<(Connection, Vec<String>), JournalError> {
    make_private(path)?;
    let connection = Connection::open(path)?;
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
    let mended = mend_guards(&connection)?;
    Ok((connection, mended))
}

/// Makes the file for its owner alone before SQLite does; what SQLite puts beside it takes the same mode.
fn make_private(path: &Path) -> Result<(), JournalError> {
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
            "BEGIN IMMEDIATE;\n{}\nINSERT INTO meta VALUES ('format', '{FORMAT}'), ('origin', '{}'), ('open_from', '');\nCOMMIT;",
            SCHEMA,
            JournalId::mint(),
        );
        connection.execute_batch(&script)?;
    }
    let found = meta(connection, "format")?;
    if found != FORMAT.to_string() {
        return Err(JournalError::Format { found, expected: FORMAT });
    }
    // What is looked for among all events; these indexes hold nothing else.
    for (index, kinds) in EVENT_INDEXES {
        let create = format!("CREATE INDEX IF NOT EXISTS {index} ON events (seq) WHERE {}", condition(kinds));
        connection.execute_batch(&create)?;
    }
    connection.execute_batch("DROP INDEX IF EXISTS approvals_waiting; DROP INDEX IF EXISTS approvals_pending;")?;
    add_column(connection, "grants", "created_seq", "INTEGER")?;
    add_column(connection, "grants", "void", "TEXT")
}

/// The triggers that are not as the journal was made with: missing, changed, or nobody's. By name, with what makes each right.
pub(crate) fn wrong_guards(connection: &Connection) -> Result<BTreeMap<String, Option<String>>, JournalError> {
    let model = Connection::open_in_memory()?;
    model.execute_batch(SCHEMA)?;
    let mut right = triggers(&model)?;
    let mut wrong = BTreeMap::new();
    for (name, text) in triggers(connection)? {
        match right.remove(&name) {
            Some(meant) if meant == text => {}
            meant => drop(wrong.insert(name, meant)),
        }
    }
    wrong.extend(right.into_iter().map(|(name, meant)| (name, Some(meant))));
    Ok(wrong)
}

fn triggers(connection: &Connection) -> Result<BTreeMap<String, String>, JournalError> {
    let mut statement = connection.prepare("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")?;
    let found = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// Makes the triggers again what they were, in one transaction; returns which were not.
fn mend_guards(connection: &Connection) -> Result<Vec<String>, JournalError> {
    let wrong = wrong_guards(connection)?;
    if wrong.is_empty() {
        return Ok(Vec::new());
    }
    let mut script = "BEGIN IMMEDIATE;\n".to_owned();
    for (name, meant) in &wrong {
        script += &format!("DROP TRIGGER IF EXISTS \"{}\";\n", name.replace('"', "\"\""));
        script.extend(meant.iter().map(|meant| format!("{meant};\n")));
    }
    connection.execute_batch(&(script + "COMMIT;"))?;
    Ok(wrong.into_keys().collect())
}

/// Adds a column that journals of an earlier version lack; their rows have nothing in it.
fn add_column(connection: &Connection, table: &str, column: &str, kind: &str) -> Result<(), JournalError> {
    let known: bool = connection.query_row(
        "SELECT EXISTS (SELECT 1 FROM pragma_table_info(?1) WHERE name = ?2)",
        (table, column),
        |r| r.get(0),
    )?;
    if !known {
        connection.execute_batch(&format!("ALTER TABLE {table} ADD COLUMN {column} {kind}"))?;
    }
    Ok(())
}

fn meta(connection: &Connection, key: &str) -> Result<String, JournalError> {
    connection
        .query_row("SELECT value FROM meta WHERE key = ?1", [key], |r| r.get(0))
        .optional()?
        .ok_or_else(|| JournalError::Event { reason: format!("the journal lacks its `{key}`") })
}

/// The journal's identity.
pub(crate) fn origin(connection: &Connection) -> Result<JournalId, JournalError> {
    meta(connection, "origin")?.parse().map_err(|e| JournalError::Event { reason: format!("{e}") })
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

/// Checks the newest events, so that nothing is appended to a damaged end. The whole chain is `verify`'s business.
pub(crate) fn check_tail(connection: &Connection) -> Result<Head, JournalError> {
    let end = head(connection)?;
    let first = end.size.saturating_sub(TAIL - 1).max(1);
    let mut verifier = ChainVerifier::default();
    crate::verify::follow(connection, first, &mut verifier, &mut |_, _| Ok(()))?;
    Ok(end)
}

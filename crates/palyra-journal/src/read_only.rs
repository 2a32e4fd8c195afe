//! Opening a journal where nothing may be written: on a read-only mount, or for a user who may only read.
//!
//! SQLite wants to make a small file beside a database with a write-ahead log, even to read it. Where it cannot, nobody
//! else has the journal open either. If the log is empty, the database alone is the whole journal and is read as a file
//! that does not change; whether it did is checked afterwards. If the log holds something, both are copied to a private
//! directory and read there.

use crate::error::JournalError;
use crate::schema::open_reader;
use palyra_protocol::JournalId;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A journal that is read and never written.
#[derive(Debug)]
pub(crate) struct ReadOnly {
    pub(crate) connection: Connection,
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// The journal itself, as everybody else sees it.
    Shared,
    /// The journal's file, which has to stay as it was.
    Frozen { path: PathBuf, was: (u64, SystemTime) },
    /// A copy, which is removed afterwards.
    Copy(#[expect(dead_code, reason = "removed when it is dropped")] Scratch),
}

impl ReadOnly {
    /// Opens a journal for reading, wherever it lies.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn open(path: &Path) -> Result<Self, JournalError> {
        let shared = open_reader(path).and_then(|connection| probe(&connection).map(|()| connection));
        match shared {
            Ok(connection) => Ok(Self { connection, source: Source::Shared }),
            Err(error) if wants_to_write(&error) => Self::open_alone(path),
            Err(error) => Err(error),
        }
    }

    fn open_alone(path: &Path) -> Result<Self, JournalError> {
        let unreadable = |e: std::io::Error| JournalError::Unreadable { path: path.to_owned(), reason: e.to_string() };
        if log_is_empty(path).map_err(unreadable)? {
            let was = state(path).map_err(unreadable)?;
            let connection = open_unchanging(path)?;
            probe(&connection)?;
            return Ok(Self { connection, source: Source::Frozen { path: path.to_owned(), was } });
        }
        let (scratch, copy) = Scratch::holding(path).map_err(unreadable)?;
        let connection = open_reader(&copy)?;
        probe(&connection)?;
        Ok(Self { connection, source: Source::Copy(scratch) })
    }

    /// Says that what was read is what there is.
    ///
    /// # Errors
    /// Somebody wrote meanwhile what this reader could not see.
    pub(crate) fn still_holds(&self) -> Result<(), JournalError> {
        let Source::Frozen { path, was } = &self.source else { return Ok(()) };
        let same = log_is_empty(path).unwrap_or(false) && state(path).is_ok_and(|now| now == *was);
        if same {
            return Ok(());
        }
        let reason = "another program wrote to it while it was read; try again".to_owned();
        Err(JournalError::Unreadable { path: path.clone(), reason })
    }
}

/// Reads something, which is when SQLite opens the files.
fn probe(connection: &Connection) -> Result<(), JournalError> {
    Ok(connection.query_row("SELECT count(*) FROM sqlite_master", [], |_| Ok(()))?)
}

fn wants_to_write(error: &JournalError) -> bool {
    let JournalError::Database(error) = error else { return false };
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied))
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

fn log_is_empty(path: &Path) -> std::io::Result<bool> {
    match std::fs::metadata(beside(path, "-wal")) {
        Ok(log) => Ok(log.len() == 0),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

fn state(path: &Path) -> std::io::Result<(u64, SystemTime)> {
    let file = std::fs::metadata(path)?;
    Ok((file.len(), file.modified()?))
}

/// Opens a database that nobody changes while it is read.
fn open_unchanging(path: &Path) -> Result<Connection, JournalError> {
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' => uri.push(char::from(*byte)),
            byte => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri.push_str("?immutable=1");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    Ok(Connection::open_with_flags(uri, flags)?)
}

/// A private directory that is removed with everything in it.
#[derive(Debug)]
struct Scratch(PathBuf);

impl Scratch {
    /// With a copy of a journal and its log, and where that copy is.
    fn holding(journal: &Path) -> std::io::Result<(Self, PathBuf)> {
        let directory = std::env::temp_dir().join(format!("palyra-verify-{}", JournalId::mint()));
        let mut builder = std::fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&directory)?;
        let scratch = Self(directory);
        let copy = scratch.0.join("journal.db");
        std::fs::copy(journal, &copy)?;
        std::fs::copy(beside(journal, "-wal"), beside(&copy, "-wal"))?;
        Ok((scratch, copy))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left behind is private, and in a directory that is emptied now and then.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

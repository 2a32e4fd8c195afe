//! Following the whole chain, holding the tables against it, and comparing it with a checkpoint.

use crate::error::JournalError;
use crate::history::{History, HistoryFault};
use crate::indexes::Indexed;
use crate::read_only::ReadOnly;
use crate::schema::{self, Head};
use crate::tables::{Search, Sums};
use palyra_protocol::chain::Link;
use palyra_protocol::{
    ChainFault, ChainVerifier, Checkpoint, CheckpointFault, Digest, JournalId, PublicKey, Timestamp,
};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};
use std::path::Path;

/// How many events between two reports of progress.
const PROGRESS: u64 = 50_000;

/// What a verification found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Every event fits, and the checkpoint, if one was given, too.
    Intact(Head),
    /// The first event that does not fit.
    Broken(ChainFault),
    /// The chain holds, but an event or a table says what cannot have happened.
    Unfounded(HistoryFault),
    /// The chain holds but contradicts the checkpoint.
    Contradicts(CheckpointFault),
}

/// A checkpoint to compare with, and the key it must be signed by.
#[derive(Debug, Clone)]
pub struct Against {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// The daemon's key.
    pub key: PublicKey,
}

/// Verifies a journal from its first event, on a connection of its own.
///
/// # Errors
/// The database cannot be opened or read at all; what is wrong with its content is a [`Verdict`].
pub fn verify(path: &Path, against: Option<&Against>, progress: &mut dyn FnMut(u64)) -> Result<Verdict, JournalError> {
    let journal = ReadOnly::open(path)?;
    // One snapshot: what is appended meanwhile is not part of this verification.
    journal.connection.execute_batch("BEGIN")?;
    if let Some(fault) = fault_of(schema::check_format(&journal.connection))? {
        return Ok(Verdict::Unfounded(fault));
    }
    let verdict = verify_all(&journal.connection, against, progress);
    journal.still_holds()?;
    verdict
}

fn verify_all(
    connection: &Connection,
    against: Option<&Against>,
    progress: &mut dyn FnMut(u64),
) -> Result<Verdict, JournalError> {
    if let Some(fault) = against.and_then(|a| checkpoint_itself(a, schema::origin(connection))) {
        return Ok(Verdict::Contradicts(fault));
    }
    let seen = against.map(|a| a.checkpoint.size);
    let mut at_checkpoint = (seen == Some(0)).then_some(Digest::ZERO);
    let mut verifier = ChainVerifier::default();
    let mut history = History::default();
    let mut sums = Sums::new(connection);
    let mut indexed = Indexed::default();
    let mut unfounded = None;
    let followed = follow(connection, 1, &mut verifier, &mut |v, link| {
        if Some(v.size()) == seen {
            at_checkpoint = Some(v.head());
        }
        if v.size().is_multiple_of(PROGRESS) {
            progress(v.size());
        }
        indexed.count(link);
        // The chain is followed to its end all the same: that it is broken is worse.
        if unfounded.is_none() {
            unfounded = fault_of(history.step(link, &mut sums))?;
        }
        Ok(())
    });
    match followed {
        Err(JournalError::Damaged(fault)) => return Ok(Verdict::Broken(fault)),
        other => other?,
    }
    let wrong = schema::differences(connection)?.names();
    if unfounded.is_none() && !wrong.is_empty() {
        unfounded = Some(HistoryFault::Schema { names: wrong.join(", ") });
    }
    if unfounded.is_none() {
        unfounded = fault_of(tables_agree(connection, &mut history, &mut sums))?;
    }
    if unfounded.is_none() {
        unfounded = fault_of(indexed.agree(connection))?;
    }
    let head = Head { size: verifier.size(), hash: verifier.head() };
    let contradicts = against.and_then(|Against { checkpoint, .. }| match at_checkpoint {
        None => Some(CheckpointFault::Truncated { found: head.size, expected: checkpoint.size }),
        Some(hash) => (hash != checkpoint.head).then_some(CheckpointFault::Rewritten { seq: checkpoint.size }),
    });
    Ok(match (contradicts, unfounded) {
        (Some(fault), _) => Verdict::Contradicts(fault),
        (None, Some(fault)) => Verdict::Unfounded(fault),
        (None, None) => Verdict::Intact(head),
    })
}

/// What was found to be wrong, if that is all that is wrong.
fn fault_of(result: Result<(), JournalError>) -> Result<Option<HistoryFault>, JournalError> {
    match result {
        Ok(()) => Ok(None),
        Err(JournalError::Unfounded(fault)) => Ok(Some(fault)),
        Err(error) => Err(error),
    }
}

fn tables_agree(connection: &Connection, history: &mut History, sums: &mut Sums<'_>) -> Result<(), JournalError> {
    history.finish(sums)?;
    if sums.agree(history)? { Ok(()) } else { Err(search(connection)?) }
}

/// Which row of the tables is to blame; every event is known to fit.
fn search(connection: &Connection) -> Result<JournalError, JournalError> {
    let mut history = History::default();
    let mut search = Search::new(connection);
    let mut each = |_: &ChainVerifier, link: &Link<'_>| history.step(link, &mut search);
    follow(connection, 1, &mut ChainVerifier::default(), &mut each)?;
    history.finish(&mut search)?;
    search.blame()
}

fn checkpoint_itself(against: &Against, origin: Result<JournalId, JournalError>) -> Option<CheckpointFault> {
    let Against { checkpoint, key } = against;
    if checkpoint.verify_signature().is_err() {
        return Some(CheckpointFault::Signature);
    }
    if checkpoint.public_key != *key {
        return Some(CheckpointFault::OtherKey { found: checkpoint.public_key, expected: *key });
    }
    match origin {
        Ok(expected) if expected != checkpoint.origin => {
            Some(CheckpointFault::OtherJournal { found: checkpoint.origin.clone(), expected })
        }
        Ok(_) => None,
        // A journal that has lost its identity has been tampered with.
        Err(_) => Some(CheckpointFault::Rewritten { seq: 0 }),
    }
}

/// What is done with each event that fits.
pub(crate) type Each<'a> = &'a mut dyn FnMut(&ChainVerifier, &Link<'_>) -> Result<(), JournalError>;

/// Follows the chain from event `first`, trusting what comes before it.
pub(crate) fn follow(
    connection: &Connection,
    first: u64,
    verifier: &mut ChainVerifier,
    each: Each<'_>,
) -> Result<(), JournalError> {
    let mut statement = connection
        .prepare("SELECT seq, at, kind, call_id, body, prev, hash FROM events WHERE seq >= ?1 ORDER BY seq")?;
    let mut rows = statement.query([first])?;
    while let Some(row) = next(&mut rows, verifier)? {
        let seq = row.get(0)?;
        let link = read(row).map_err(|e| damaged(seq, &e))?;
        if verifier.size() == 0 && first > 1 {
            *verifier = ChainVerifier::starting_after(first - 1, link.prev);
        }
        verifier.follow(link.link, &link.prev, &link.hash).map_err(JournalError::Damaged)?;
        each(verifier, &link.link)?;
    }
    Ok(())
}

fn next<'r>(rows: &'r mut rusqlite::Rows<'_>, verifier: &ChainVerifier) -> Result<Option<&'r Row<'r>>, JournalError> {
    rows.next().map_err(|e| damaged(verifier.size() + 1, &e))
}

fn damaged(seq: u64, error: &rusqlite::Error) -> JournalError {
    JournalError::Damaged(ChainFault::Unreadable { seq, reason: error.to_string() })
}

/// A row of `events`.
pub(crate) struct Stored<'a> {
    pub(crate) link: Link<'a>,
    pub(crate) prev: Digest,
    pub(crate) hash: Digest,
}

/// Reads a row: seq, at, kind, call_id, body, prev, hash.
pub(crate) fn read<'a>(row: &'a Row<'_>) -> Result<Stored<'a>, rusqlite::Error> {
    Ok(Stored {
        link: Link {
            seq: row.get(0)?,
            at: Timestamp::from_unix_ms(row.get(1)?),
            kind: text(row, 2)?,
            call_id: text(row, 3)?,
            body: text(row, 4)?,
        },
        prev: Digest::from_bytes(row.get(5)?),
        hash: Digest::from_bytes(row.get(6)?),
    })
}

fn text<'a>(row: &'a Row<'_>, column: usize) -> Result<&'a str, rusqlite::Error> {
    match row.get_ref(column)? {
        ValueRef::Text(bytes) => std::str::from_utf8(bytes).map_err(|e| rusqlite::Error::Utf8Error(column, e)),
        other => Err(rusqlite::Error::InvalidColumnType(column, "text".to_owned(), other.data_type())),
    }
}

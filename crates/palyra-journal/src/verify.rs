//! Following the whole chain, and comparing it with a checkpoint.

use crate::error::JournalError;
use crate::schema::{self, Head};
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
    let connection = schema::open_reader(path)?;
    // One snapshot: what is appended meanwhile is not part of this verification.
    connection.execute_batch("BEGIN")?;
    if let Some(fault) = against.and_then(|a| checkpoint_itself(a, schema::origin(&connection))) {
        return Ok(Verdict::Contradicts(fault));
    }
    let seen = against.map(|a| a.checkpoint.size);
    let mut at_checkpoint = (seen == Some(0)).then_some(Digest::ZERO);
    let mut verifier = ChainVerifier::default();
    let followed = follow(&connection, 1, &mut verifier, &mut |v| {
        if Some(v.size()) == seen {
            at_checkpoint = Some(v.head());
        }
        if v.size().is_multiple_of(PROGRESS) {
            progress(v.size());
        }
    });
    match followed {
        Err(JournalError::Damaged(fault)) => return Ok(Verdict::Broken(fault)),
        other => other?,
    }
    let head = Head { size: verifier.size(), hash: verifier.head() };
    let Some(Against { checkpoint, .. }) = against else { return Ok(Verdict::Intact(head)) };
    Ok(match at_checkpoint {
        None => Verdict::Contradicts(CheckpointFault::Truncated { found: head.size, expected: checkpoint.size }),
        Some(hash) if hash != checkpoint.head => {
            Verdict::Contradicts(CheckpointFault::Rewritten { seq: checkpoint.size })
        }
        Some(_) => Verdict::Intact(head),
    })
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

/// Follows the chain from event `first`, trusting what comes before it.
pub(crate) fn follow(
    connection: &Connection,
    first: u64,
    verifier: &mut ChainVerifier,
    each: &mut dyn FnMut(&ChainVerifier),
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
        each(verifier);
    }
    Ok(())
}

fn next<'r>(rows: &'r mut rusqlite::Rows<'_>, verifier: &ChainVerifier) -> Result<Option<&'r Row<'r>>, JournalError> {
    rows.next().map_err(|e| damaged(verifier.size() + 1, &e))
}

fn damaged(seq: u64, error: &rusqlite::Error) -> JournalError {
    JournalError::Damaged(ChainFault::Unreadable { seq, reason: error.to_string() })
}

struct Stored<'a> {
    link: Link<'a>,
    prev: Digest,
    hash: Digest,
}

fn read<'a>(row: &'a Row<'_>) -> Result<Stored<'a>, rusqlite::Error> {
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

//! Bringing a journal of the format before up to date, in one transaction.
//!
//! Events stay as they are. What a table gained since is filled in from them.

use crate::error::JournalError;
use crate::grants::OTHER_RULES;
use crate::schema::{FORMAT, model};
use palyra_protocol::JournalEvent;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};

/// Migrates a journal of format 2; leaves any other as it is.
pub(crate) fn migrate(connection: &mut Connection) -> Result<(), JournalError> {
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let format: Option<String> =
        tx.query_row("SELECT value FROM meta WHERE key = 'format'", [], |r| r.get(0)).optional()?;
    if format.as_deref() != Some("2") {
        return Ok(());
    }
    rebuild_grants(&tx)?;
    tx.execute("DELETE FROM meta WHERE key = 'open_from'", [])?;
    tx.execute("UPDATE meta SET value = ?1 WHERE key = 'format'", [FORMAT.to_string()])?;
    rebuild_the_rest(&tx)?;
    Ok(tx.commit()?)
}

/// Grants know by which event each was created, and whether it ended with its rules.
fn rebuild_grants(tx: &Transaction<'_>) -> Result<(), JournalError> {
    let model = model()?;
    let (_, create) = model.get("grants").ok_or_else(|| crate::call_rows::unreadable("grants"))?;
    tx.execute_batch("ALTER TABLE grants RENAME TO grants_before")?;
    tx.execute_batch(create)?;
    let kept = "grant_id, principal, session, match_key, policy_hash, expires_at, revoked_at, uses, record";
    tx.execute_batch(&format!(
        "INSERT INTO grants ({kept}) SELECT {kept} FROM grants_before; DROP TABLE grants_before"
    ))?;
    let mut events =
        tx.prepare("SELECT seq FROM events WHERE kind = 'grant.created' OR kind = 'grant.voided' ORDER BY seq")?;
    let seqs: Vec<u64> = events.query_map([], |r| r.get(0))?.collect::<Result<_, _>>()?;
    for seq in seqs {
        match crate::events::event_at(tx, seq)?.0 {
            JournalEvent::GrantCreated { grant } => {
                let id = grant.grant_id.as_str();
                tx.execute("UPDATE grants SET created_seq = ?2 WHERE grant_id = ?1", (id, seq))?;
            }
            JournalEvent::GrantsVoided { grants, .. } => {
                for id in grants {
                    tx.execute("UPDATE grants SET void = ?2 WHERE grant_id = ?1", (id.as_str(), OTHER_RULES))?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Indexes, views and triggers are made anew: earlier versions had others.
fn rebuild_the_rest(tx: &Transaction<'_>) -> Result<(), JournalError> {
    let mut old = tx.prepare("SELECT type, name FROM sqlite_master WHERE type != 'table' AND sql IS NOT NULL")?;
    let old: Vec<(String, String)> = old.query_map([], |r| Ok((r.get(0)?, r.get(1)?)))?.collect::<Result<_, _>>()?;
    for (kind, name) in old {
        tx.execute_batch(&format!("DROP {kind} \"{}\"", name.replace('"', "\"\"")))?;
    }
    for (kind, text) in model()?.values() {
        if kind != "table" {
            tx.execute_batch(text)?;
        }
    }
    Ok(())
}

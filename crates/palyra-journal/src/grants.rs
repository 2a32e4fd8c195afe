//! Grants: standing answers, found by one indexed look-up, counted and revocable.

use crate::error::JournalError;
use crate::store::JournalStore;
use crate::writer::{PreparedEvent, Transaction};
use palyra_protocol::{
    CallRecord, Digest, GrantId, GrantRecord, JournalEvent, MatchKey, Principal, SessionId, Timestamp,
};
use rusqlite::{Connection, OptionalExtension, Row, params_from_iter};

impl JournalStore {
    /// A live grant that covers a call with these keys, if there is one.
    ///
    /// # Errors
    /// Grants cannot be read.
    pub async fn live_grant(
        &self,
        principal: &Principal,
        session: &SessionId,
        policy_hash: Digest,
        keys: Vec<MatchKey>,
        now: Timestamp,
    ) -> Result<Option<GrantId>, JournalError> {
        let (principal, session) = (principal.to_string(), session.to_string());
        self.read(move |c| {
            for MatchKey(key) in keys {
                let found: Option<String> = c
                    .prepare_cached(
                        "SELECT grant_id FROM grants WHERE revoked_at IS NULL AND principal = ?1 AND match_key = ?2
                         AND policy_hash = ?3 AND (session IS NULL OR session = ?4)
                         AND (expires_at IS NULL OR expires_at > ?5) LIMIT 1",
                    )?
                    .query_row((&principal, key.as_bytes(), policy_hash.as_bytes(), &session, now.unix_ms()), |r| {
                        r.get(0)
                    })
                    .optional()?;
                if let Some(id) = found {
                    return Ok(Some(id.parse().map_err(|_| crate::call_rows::unreadable(&id))?));
                }
            }
            Ok(None)
        })
        .await
    }

    /// Grants, newest last.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn grants(&self, limit: u32) -> Result<Vec<GrantRecord>, JournalError> {
        self.read(move |c| {
            let mut statement = c.prepare_cached(
                "SELECT record, uses, revoked_at FROM
                 (SELECT grant_id, record, uses, revoked_at FROM grants ORDER BY grant_id DESC LIMIT ?1)
                 ORDER BY grant_id",
            )?;
            let rows = statement.query_map(params_from_iter([limit]), row)?;
            rows.map(|r| record(r?)).collect()
        })
        .await
    }

    /// One grant.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub async fn grant(&self, id: &GrantId) -> Result<GrantRecord, JournalError> {
        let id = id.clone();
        self.read(move |c| find(c, &id)).await
    }

    /// Withdraws a grant.
    ///
    /// # Errors
    /// There is none, it was revoked before, or nothing could be recorded.
    pub async fn revoke_grant(&self, id: &GrantId, by: &Principal) -> Result<GrantRecord, JournalError> {
        let event = PreparedEvent::new(&JournalEvent::GrantRevoked { grant_id: id.clone(), by: by.clone() })?;
        let id = id.clone();
        self.write(move |tx| {
            let mut grant = find(tx.connection, &id)?;
            if grant.revoked_at.is_some() {
                return Err(JournalError::AlreadyRevoked);
            }
            tx.connection
                .prepare_cached("UPDATE grants SET revoked_at = ?2 WHERE grant_id = ?1")?
                .execute((id.as_str(), tx.now.unix_ms()))?;
            tx.append(&event)?;
            grant.revoked_at = Some(tx.now);
            Ok(grant)
        })
        .await
    }
}

type Stored = (String, u64, Option<u64>);

fn row(r: &Row<'_>) -> Result<Stored, rusqlite::Error> {
    Ok((r.get(0)?, r.get(1)?, r.get(2)?))
}

fn record((record, uses, revoked_at): Stored) -> Result<GrantRecord, JournalError> {
    let grant: GrantRecord = serde_json::from_str(&record)?;
    Ok(GrantRecord { uses, revoked_at: revoked_at.map(Timestamp::from_unix_ms), ..grant })
}

fn find(connection: &Connection, id: &GrantId) -> Result<GrantRecord, JournalError> {
    let found = connection
        .prepare_cached("SELECT record, uses, revoked_at FROM grants WHERE grant_id = ?1")?
        .query_row([id.as_str()], row)
        .optional()?;
    record(found.ok_or_else(|| JournalError::NotFound { what: "grant", id: id.to_string() })?)
}

pub(crate) fn insert(tx: &mut Transaction<'_>, grant: &GrantRecord, key: &MatchKey) -> Result<(), JournalError> {
    tx.append(&PreparedEvent::new(&JournalEvent::GrantCreated { grant: Box::new(grant.clone()) })?)?;
    tx.connection
        .prepare_cached(
            "INSERT INTO grants (grant_id, principal, session, match_key, policy_hash, expires_at, revoked_at, uses, record)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, NULL, 0, ?7)",
        )?
        .execute((
            grant.grant_id.as_str(),
            grant.principal.to_string(),
            grant.session.as_ref().map(SessionId::as_str),
            key.0.as_bytes(),
            grant.policy_hash.as_bytes(),
            grant.expires_at.map(Timestamp::unix_ms),
            serde_json::to_string(grant)?,
        ))?;
    Ok(())
}

/// Counts a use of a grant, if it still covers the call now.
pub(crate) fn use_one(
    tx: &Transaction<'_>,
    grant: &GrantId,
    call: &CallRecord,
    policy_hash: &Digest,
) -> Result<bool, JournalError> {
    let used = tx
        .connection
        .prepare_cached(
            "UPDATE grants SET uses = uses + 1 WHERE grant_id = ?1 AND revoked_at IS NULL AND principal = ?2
             AND policy_hash = ?3 AND (session IS NULL OR session = ?4) AND (expires_at IS NULL OR expires_at > ?5)",
        )?
        .execute((
            grant.as_str(),
            call.origin.principal.to_string(),
            policy_hash.as_bytes(),
            call.origin.session.as_str(),
            tx.now.unix_ms(),
        ))?;
    Ok(used == 1)
}

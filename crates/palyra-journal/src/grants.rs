//! Grants: standing answers, found by one indexed look-up, counted and revocable.

use crate::error::JournalError;
use crate::history::HistoryFault;
use crate::page::{Listing, Page};
use crate::store::JournalStore;
use crate::tables::is_row_of;
use crate::writer::{PreparedEvent, Transaction};
use palyra_protocol::{
    CallRecord, Digest, GrantId, GrantRecord, JournalEvent, MatchKey, Principal, SessionId, Timestamp,
};
use rusqlite::{Connection, OptionalExtension, Row};

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
    ) -> Result<Option<GrantId>, JournalError> {
        let (principal, session, now) = (principal.to_string(), session.to_string(), self.clock().now());
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

    /// A page of grants before the one named, newest first, whether they hold or not.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn grants(&self, before: Option<&GrantId>, page: Page) -> Result<Listing<GrantRecord>, JournalError> {
        let before = before.map_or_else(|| LAST.to_owned(), ToString::to_string);
        self.read(move |c| {
            let query = "SELECT record, uses, revoked_at, void FROM grants WHERE grant_id < ?1 ORDER BY grant_id DESC";
            let mut statement = c.prepare_cached(query)?;
            let mut rows = statement.query([before])?;
            let mut grants = Vec::new();
            let mut room = page.start();
            while let Some(row) = rows.next()? {
                let stored = stored(row)?;
                if !room.takes(stored.0.len()) {
                    return Ok(Listing { records: grants, more: true });
                }
                grants.push(record(stored)?);
            }
            Ok(Listing { records: grants, more: false })
        })
        .await
    }

    /// Records an event after which other rules decide, and ends every grant that was given under others, for good:
    /// rules that come back do not bring it back.
    ///
    /// # Errors
    /// Nothing was recorded.
    pub async fn note_rules(&self, event: &JournalEvent, policy_hash: Digest) -> Result<(), JournalError> {
        let event = PreparedEvent::new(event)?;
        self.write(move |tx| {
            tx.append(&event)?;
            void_all_but(tx, policy_hash)
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

/// After every id.
const LAST: &str = "~";

/// Why a grant ends that nobody revoked.
pub(crate) const OTHER_RULES: &str = "the rules changed";

type Stored = (String, u64, Option<u64>, Option<String>);

fn stored(r: &Row<'_>) -> Result<Stored, rusqlite::Error> {
    Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?))
}

fn record((record, uses, revoked_at, void): Stored) -> Result<GrantRecord, JournalError> {
    let grant: GrantRecord = serde_json::from_str(&record)?;
    // Before workspaces were part of what a grant covers, it might have covered any: none of those is found any more.
    let older = || grant.workspace.is_none().then(|| "it was given before grants were bound to a workspace".to_owned());
    let void = void.or_else(older);
    Ok(GrantRecord { uses, revoked_at: revoked_at.map(Timestamp::from_unix_ms), void, ..grant })
}

fn void_all_but(tx: &mut Transaction<'_>, policy_hash: Digest) -> Result<(), JournalError> {
    let ids: Vec<String> = tx
        .connection
        .prepare_cached(
            "SELECT grant_id FROM grants WHERE revoked_at IS NULL AND policy_hash != ?1
             AND (expires_at IS NULL OR expires_at > ?2) ORDER BY grant_id",
        )?
        .query_map((policy_hash.as_bytes(), tx.now.unix_ms()), |r| r.get(0))?
        .collect::<Result<_, _>>()?;
    if ids.is_empty() {
        return Ok(());
    }
    let mut end = tx.connection.prepare_cached("UPDATE grants SET revoked_at = ?2, void = ?3 WHERE grant_id = ?1")?;
    for id in &ids {
        end.execute((id, tx.now.unix_ms(), OTHER_RULES))?;
    }
    drop(end);
    let parse = |id: &String| id.parse().map_err(|_| crate::call_rows::unreadable(id));
    let grants = ids.iter().map(parse).collect::<Result<_, _>>()?;
    tx.append(&PreparedEvent::new(&JournalEvent::GrantsVoided { grants, policy_hash })?).map(drop)
}

fn find(connection: &Connection, id: &GrantId) -> Result<GrantRecord, JournalError> {
    let found = connection
        .prepare_cached("SELECT record, uses, revoked_at, void FROM grants WHERE grant_id = ?1")?
        .query_row([id.as_str()], stored)
        .optional()?;
    record(found.ok_or_else(|| JournalError::NotFound { what: "grant", id: id.to_string() })?)
}

pub(crate) fn insert(tx: &mut Transaction<'_>, grant: &GrantRecord, key: &MatchKey) -> Result<(), JournalError> {
    let grant = &GrantRecord { match_key: Some(key.0), ..grant.clone() };
    let seq = tx.append(&PreparedEvent::new(&JournalEvent::GrantCreated { grant: Box::new(grant.clone()) })?)?;
    tx.connection
        .prepare_cached(
            "INSERT INTO grants (grant_id, principal, session, match_key, policy_hash, expires_at, revoked_at, uses, record, created_seq)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, NULL, 0, ?7, ?8)",
        )?
        .execute((
            grant.grant_id.as_str(),
            grant.principal.to_string(),
            grant.session.as_ref().map(SessionId::as_str),
            key.0.as_bytes(),
            grant.policy_hash.as_bytes(),
            grant.expires_at.map(Timestamp::unix_ms),
            serde_json::to_string(grant)?,
            seq,
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
    if used != 1 {
        return Ok(false);
    }
    founded(tx.connection, grant).map(|()| true)
}

/// Whether an event after its creation ended a grant, whatever the table says.
fn has_ended(connection: &Connection, grant: &GrantId, created: u64) -> Result<bool, JournalError> {
    let mut statement = connection.prepare_cached(
        "SELECT seq FROM events WHERE (kind = 'grant.revoked' OR kind = 'grant.voided') AND seq > ?1 ORDER BY seq",
    )?;
    let mut rows = statement.query([created])?;
    while let Some(row) = rows.next()? {
        let ended = match crate::events::event_at(connection, row.get(0)?)?.0 {
            JournalEvent::GrantRevoked { grant_id, .. } => grant_id == *grant,
            JournalEvent::GrantsVoided { grants, .. } => grants.contains(grant),
            _ => false,
        };
        if ended {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A grant covers a call only if it stands in the table as a person's answer created it, and nothing has ended it
/// since.
fn founded(connection: &Connection, grant: &GrantId) -> Result<(), JournalError> {
    let unfounded = || HistoryFault::table("grants", format!("`{grant}` is not there as it was given"));
    let mut statement = connection.prepare_cached(
        "SELECT grant_id, principal, session, match_key, policy_hash, expires_at, created_seq, record
         FROM grants WHERE grant_id = ?1",
    )?;
    let mut rows = statement.query([grant.as_str()])?;
    let row = rows.next()?.ok_or_else(unfounded)?;
    let created: u64 = row.get::<_, Option<u64>>(6)?.ok_or_else(unfounded)?;
    let text: String = row.get(7)?;
    let JournalEvent::GrantCreated { grant: given } = crate::events::event_at(connection, created)?.0 else {
        return Err(unfounded());
    };
    let same = given.grant_id == *grant && given.match_key.is_some() && is_row_of(row, &given)?;
    let same = same && serde_json::from_str::<GrantRecord>(&text)? == *given;
    if same && !has_ended(connection, grant, created)? { Ok(()) } else { Err(unfounded()) }
}

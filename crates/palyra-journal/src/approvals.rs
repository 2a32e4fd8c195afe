//! Approvals: questions that outlive the daemon and are answered exactly once.

use crate::call_rows::{advance, end, unreadable};
use crate::error::JournalError;
use crate::grants;
use crate::page::{Listing, Page};
use crate::store::JournalStore;
use crate::writer::{PreparedEvent, Transaction};
use palyra_protocol::access::ShownToken;
use palyra_protocol::{
    ApprovalId, ApprovalRecord, ApprovalResolution, ApprovalState, CallState, Digest, GivenApproval, GrantRecord,
    JournalEvent, MatchKey, Principal, Problem,
};
use rusqlite::{Connection, OptionalExtension};

/// Which approvals to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalFilter {
    /// Those that wait for an answer.
    Pending,
    /// The newest so many of all.
    Newest(u32),
}

/// How an approval is to end.
#[derive(Debug)]
pub struct Resolve {
    /// The approval.
    pub approval_id: ApprovalId,
    /// Its final state.
    pub state: ApprovalState,
    /// By whom, when, how wide.
    pub resolution: ApprovalResolution,
    /// The standing answer it leaves, and the key it is found by.
    pub grant: Option<(GrantRecord, MatchKey)>,
    /// Why the call ends, when it does not go on.
    pub problem: Option<Problem>,
}

/// A question that other rules ask in the same way.
#[derive(Debug)]
pub struct Rebind {
    /// The approval.
    pub approval_id: ApprovalId,
    /// The rules that ask now.
    pub policy_hash: Digest,
}

impl JournalStore {
    /// Binds a question that waits to other rules.
    ///
    /// # Errors
    /// There is none, it has ended, or nothing could be recorded.
    pub async fn rebind_approval(&self, rebind: Rebind) -> Result<ApprovalRecord, JournalError> {
        self.write(move |tx| apply_rebind(tx, &rebind)).await
    }

    /// Ends an approval: once, whoever comes first. A yes to a question that needs several people is recorded, and the
    /// question stays pending until the last of them.
    ///
    /// # Errors
    /// There is none, it has ended already, or nothing could be recorded.
    pub async fn resolve_approval(&self, resolve: Resolve) -> Result<ApprovalRecord, JournalError> {
        self.write(move |tx| apply(tx, &resolve)).await
    }

    /// One approval.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub async fn approval(&self, id: &ApprovalId) -> Result<ApprovalRecord, JournalError> {
        let id = id.clone();
        self.read(move |c| find(c, &id)).await
    }

    /// The approval of a call.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub async fn approval_of_call(&self, call: &palyra_protocol::CallId) -> Result<ApprovalRecord, JournalError> {
        let id = call.to_string();
        self.read(move |c| {
            let record: Option<String> = c
                .prepare_cached("SELECT record FROM approvals WHERE call_id = ?1")?
                .query_row([&id], |r| r.get(0))
                .optional()?;
            Ok(serde_json::from_str(&record.ok_or(JournalError::NotFound { what: "approval of call", id })?)?)
        })
        .await
    }

    /// How many questions wait.
    ///
    /// # Errors
    /// They cannot be counted.
    pub async fn pending_approvals(&self) -> Result<u64, JournalError> {
        self.read(|c| {
            let mut count = c.prepare_cached("SELECT count(*) FROM approvals WHERE state = 'pending'")?;
            Ok(count.query_row([], |r| r.get(0))?)
        })
        .await
    }

    /// A page of approvals after the one named, oldest question first.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn approvals(
        &self,
        filter: ApprovalFilter,
        after: Option<&ApprovalId>,
        page: Page,
    ) -> Result<Listing<ApprovalRecord>, JournalError> {
        let after = after.map(ToString::to_string);
        self.read(move |c| {
            let after = match (after, filter) {
                (Some(after), _) => after,
                (None, ApprovalFilter::Pending) => String::new(),
                (None, ApprovalFilter::Newest(count)) => before_newest(c, count)?,
            };
            let query = match filter {
                ApprovalFilter::Pending => {
                    "SELECT record FROM approvals INDEXED BY approvals_waiting
                     WHERE state = 'pending' AND approval_id > ?1 ORDER BY approval_id"
                }
                ApprovalFilter::Newest(_) => "SELECT record FROM approvals WHERE approval_id > ?1 ORDER BY approval_id",
            };
            let mut statement = c.prepare_cached(query)?;
            let mut rows = statement.query([after])?;
            let mut approvals = Vec::new();
            let mut room = page.start();
            while let Some(row) = rows.next()? {
                let text = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
                if !room.takes(text.len()) {
                    return Ok(Listing { records: approvals, more: true });
                }
                approvals.push(serde_json::from_str(text)?);
            }
            Ok(Listing { records: approvals, more: false })
        })
        .await
    }
}

/// The approval after which the newest so many follow.
fn before_newest(connection: &Connection, count: u32) -> Result<String, JournalError> {
    let mut statement =
        connection.prepare_cached("SELECT approval_id FROM approvals ORDER BY approval_id DESC LIMIT 1 OFFSET ?1")?;
    Ok(statement.query_row([count], |r| r.get(0)).optional()?.unwrap_or_default())
}

pub(crate) fn insert(tx: &Transaction<'_>, approval: &ApprovalRecord, record: &str) -> Result<(), JournalError> {
    tx.connection
        .prepare_cached(
            "INSERT INTO approvals (approval_id, call_id, state, expires_at, record) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute((
            approval.approval_id.as_str(),
            approval.call_id.as_str(),
            approval.state.as_str(),
            approval.expires_at.unix_ms(),
            record,
        ))?;
    Ok(())
}

fn find(connection: &Connection, id: &ApprovalId) -> Result<ApprovalRecord, JournalError> {
    let record: Option<String> = connection
        .prepare_cached("SELECT record FROM approvals WHERE approval_id = ?1")?
        .query_row([id.as_str()], |r| r.get(0))
        .optional()?;
    let record = record.ok_or_else(|| JournalError::NotFound { what: "approval", id: id.to_string() })?;
    Ok(serde_json::from_str(&record)?)
}

fn apply(tx: &mut Transaction<'_>, resolve: &Resolve) -> Result<ApprovalRecord, JournalError> {
    let mut record = find(tx.connection, &resolve.approval_id)?;
    // INVARIANT (resolved_once): compare-and-swap on the pending state, in the one writer's transaction.
    if record.state != ApprovalState::Pending {
        return Err(JournalError::AlreadyResolved { state: record.state });
    }
    if resolve.state == ApprovalState::Allowed && !is_last(&record, &resolve.resolution)? {
        return give(tx, record, resolve.resolution.clone());
    }
    record.state = resolve.state;
    record.resolution = Some(resolve.resolution.clone());
    let swapped = tx
        .connection
        .prepare_cached("UPDATE approvals SET state = ?2, record = ?3 WHERE approval_id = ?1 AND state = 'pending'")?
        .execute((record.approval_id.as_str(), record.state.as_str(), serde_json::to_string(&record)?))?;
    if swapped != 1 {
        return Err(unreadable("an approval's state"));
    }
    tx.append(&PreparedEvent::new(&JournalEvent::ApprovalResolved {
        approval_id: record.approval_id.clone(),
        call_id: record.call_id.clone(),
        state: record.state,
        resolution: Box::new(resolve.resolution.clone()),
    })?)?;
    if let Some((grant, key)) = &resolve.grant {
        grants::insert(tx, grant, key)?;
    }
    move_call(tx, &record, resolve.problem.clone())?;
    Ok(record)
}

fn apply_rebind(tx: &mut Transaction<'_>, rebind: &Rebind) -> Result<ApprovalRecord, JournalError> {
    let mut record = find(tx.connection, &rebind.approval_id)?;
    if record.state != ApprovalState::Pending {
        return Err(JournalError::AlreadyResolved { state: record.state });
    }
    let from = std::mem::replace(&mut record.policy_hash, rebind.policy_hash);
    store_pending(tx, &record)?;
    tx.append(&PreparedEvent::new(&JournalEvent::ApprovalRebound {
        approval_id: record.approval_id.clone(),
        call_id: record.call_id.clone(),
        from,
        to: rebind.policy_hash,
    })?)?;
    Ok(record)
}

/// Writes a question that goes on waiting.
fn store_pending(tx: &Transaction<'_>, record: &ApprovalRecord) -> Result<(), JournalError> {
    let updated = tx
        .connection
        .prepare_cached("UPDATE approvals SET record = ?2 WHERE approval_id = ?1 AND state = 'pending'")?
        .execute((record.approval_id.as_str(), serde_json::to_string(record)?))?;
    if updated == 1 { Ok(()) } else { Err(unreadable("an approval's state")) }
}

/// Whether this yes is the last that was needed.
///
/// INVARIANT (people_are_counted_once): each yes comes from another person, and all are in the journal before the call starts.
fn is_last(record: &ApprovalRecord, yes: &ApprovalResolution) -> Result<bool, JournalError> {
    let missing = record.people.saturating_sub(u32::try_from(record.given.len()).unwrap_or(u32::MAX));
    if record.given.iter().any(|given| given.by == yes.by) {
        return Err(JournalError::AlreadyGiven { by: yes.by.clone(), missing });
    }
    if record.people > 1
        && let Some(other) = same_hand(record, &yes.by, yes.token.as_ref())
    {
        return Err(JournalError::SameHand { by: yes.by.clone(), other: other.clone(), missing });
    }
    Ok(missing <= 1)
}

/// Whoever issued a token can speak by it. So a yes by a token whose issuer has said yes, or made the proposal, need not be
/// another person's; nor is one by somebody who issued the token that an earlier yes came by.
pub(crate) fn same_hand<'r>(
    record: &'r ApprovalRecord,
    by: &Principal,
    token: Option<&ShownToken>,
) -> Option<&'r Principal> {
    let issued = |token: Option<&ShownToken>, speaker: &Principal, who: &Principal| {
        who != speaker && token.is_some_and(|token| token.issuers.contains(who))
    };
    if issued(token, by, &record.proposed_by) {
        return Some(&record.proposed_by);
    }
    let mut given = record.given.iter();
    let same = given.find(|given| issued(token, by, &given.by) || issued(given.token.as_ref(), &given.by, by));
    same.map(|given| &given.by)
}

/// Records one yes of several; the question stays open for the others.
fn give(
    tx: &mut Transaction<'_>,
    mut record: ApprovalRecord,
    yes: ApprovalResolution,
) -> Result<ApprovalRecord, JournalError> {
    let given = GivenApproval { by: yes.by, token: yes.token, at: yes.at, reason: yes.reason };
    record.given.push(given.clone());
    store_pending(tx, &record)?;
    tx.append(&PreparedEvent::new(&JournalEvent::ApprovalGiven {
        approval_id: record.approval_id.clone(),
        call_id: record.call_id.clone(),
        given,
        count: u32::try_from(record.given.len()).unwrap_or(u32::MAX),
        people: record.people,
    })?)?;
    Ok(record)
}

fn move_call(tx: &mut Transaction<'_>, record: &ApprovalRecord, problem: Option<Problem>) -> Result<(), JournalError> {
    let state = match record.state {
        ApprovalState::Pending => return Err(unreadable("a resolution that leaves the approval pending")),
        ApprovalState::Allowed => CallState::Approved,
        ApprovalState::Denied => CallState::Denied,
        ApprovalState::Expired => CallState::Expired,
        ApprovalState::Cancelled => CallState::Cancelled,
    };
    if state == CallState::Approved {
        return advance(tx, &record.call_id, CallState::AwaitingApproval, state);
    }
    let problem =
        problem.unwrap_or_else(|| Problem::plain(state.as_str(), format!("the approval was {}", state.as_str())));
    let ended = JournalEvent::ToolEnded { call_id: record.call_id.clone(), state, problem };
    let seq = tx.append(&PreparedEvent::new(&ended)?)?;
    end(tx, &record.call_id, CallState::AwaitingApproval, state, seq)
}

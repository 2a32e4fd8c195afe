//! Approvals: questions that outlive the daemon and are answered exactly once.

use crate::call_rows::{advance, end, unreadable};
use crate::error::JournalError;
use crate::grants;
use crate::history::HistoryFault;
use crate::open_approvals::OpenApprovals;
use crate::page::{Listing, Page};
use crate::store::JournalStore;
use crate::writer::{PreparedEvent, Transaction};
use palyra_protocol::access::ShownToken;
use palyra_protocol::{
    ApprovalId, ApprovalRecord, ApprovalResolution, ApprovalState, ApprovalSubject, CallId, CallState, Digest, Facets,
    GivenApproval, GrantRecord, JournalEvent, MatchKey, Principal, Problem, ToolName,
};
use rusqlite::{Connection, OptionalExtension};
use serde::Deserialize;
use std::sync::Arc;

/// Which approvals to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalFilter {
    /// Those that wait for an answer.
    Pending,
    /// The newest so many of all.
    Newest(u32),
}

/// As much of an approval that has ended as tells what a grant would have answered. The input, which is most of one, is
/// passed over.
#[derive(Debug, Clone, Deserialize)]
pub struct PastApproval {
    /// The approval.
    pub approval_id: ApprovalId,
    /// The tool.
    pub tool: ToolName,
    /// The digest of the call.
    pub call_digest: Digest,
    /// Whose call it was.
    pub principal: Principal,
    /// What it would have touched.
    pub facets: Facets,
    /// How it ended.
    pub state: ApprovalState,
    #[serde(default)]
    subject: ApprovalSubject,
}

/// How an approval is to end.
#[derive(Debug, Clone)]
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
    /// Records that people are asked about something that is no call that waits to run.
    ///
    /// # Errors
    /// It is about a call, or nothing could be recorded.
    pub async fn request_approval(&self, approval: Arc<ApprovalRecord>) -> Result<(), JournalError> {
        if approval.subject.is_call() || approval.state != ApprovalState::Pending {
            return Err(unreadable("an approval that is asked for by itself"));
        }
        let event = PreparedEvent::new(&JournalEvent::ApprovalRequested { approval: Arc::clone(&approval) })?;
        let row = serde_json::to_string(&approval)?;
        self.write(move |tx| {
            let seq = tx.append(&event)?;
            insert(tx, &approval, &row)?;
            tx.open_calls.opened(&approval.call_id, seq);
            tx.questions.waits(Arc::clone(&approval));
            Ok(())
        })
        .await
    }

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

    /// The newest approvals of calls of one principal that a person allowed or denied, newest first. At most `count` of
    /// all approvals are looked at, and at most so many bytes of them.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn past_approvals(
        &self,
        principal: &Principal,
        count: u32,
        bytes: usize,
    ) -> Result<Vec<PastApproval>, JournalError> {
        let principal = principal.clone();
        self.read(move |c| past(c, &principal, count, bytes)).await
    }

    /// One approval.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub async fn approval(&self, id: &ApprovalId) -> Result<ApprovalRecord, JournalError> {
        if let Some(asked) = self.questions().find(id) {
            return Ok(Arc::unwrap_or_clone(asked));
        }
        let id = id.clone();
        self.read(move |c| ended(c, &id)).await
    }

    /// The approval of a call.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub async fn approval_of_call(&self, call: &CallId) -> Result<ApprovalRecord, JournalError> {
        if let Some(asked) = self.questions().of_call(call) {
            return Ok(Arc::unwrap_or_clone(asked));
        }
        let id = call.clone();
        let text = self.read(move |c| text_of(c, "call_id", id.as_str())).await?;
        let record = text.map(|text| serde_json::from_str::<ApprovalRecord>(&text)).transpose()?;
        // One that waits by its row alone was asked a moment ago, or by nobody.
        let record = record.filter(|record| record.state != ApprovalState::Pending);
        record.ok_or_else(|| JournalError::NotFound { what: "approval of call", id: call.to_string() })
    }

    /// How many questions wait.
    #[must_use]
    pub fn pending_approvals(&self) -> u64 {
        self.questions().count() as u64
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
        match filter {
            ApprovalFilter::Pending => pending(&self.questions().after(after), page),
            ApprovalFilter::Newest(count) => {
                let after = after.map(ToString::to_string);
                let questions = self.questions().clone();
                self.read(move |c| newest(c, count, after, page, &questions)).await
            }
        }
    }
}

fn pending(waiting: &[Arc<ApprovalRecord>], page: Page) -> Result<Listing<ApprovalRecord>, JournalError> {
    let mut records = Vec::new();
    let mut room = page.start();
    for asked in waiting {
        if !room.takes(serde_json::to_vec(asked)?.len()) {
            return Ok(Listing { records, more: true });
        }
        records.push(ApprovalRecord::clone(asked));
    }
    Ok(Listing { records, more: false })
}

fn newest(
    connection: &Connection,
    count: u32,
    after: Option<String>,
    page: Page,
    questions: &OpenApprovals,
) -> Result<Listing<ApprovalRecord>, JournalError> {
    let after = match after {
        Some(after) => after,
        None => before_newest(connection, count)?,
    };
    let query = "SELECT record, approval_id FROM approvals WHERE approval_id > ?1 ORDER BY approval_id";
    let mut statement = connection.prepare_cached(query)?;
    let mut rows = statement.query([after])?;
    let mut records = Vec::new();
    let mut room = page.start();
    while let Some(row) = rows.next()? {
        let text = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
        if !room.takes(text.len()) {
            return Ok(Listing { records, more: true });
        }
        let id: String = row.get(1)?;
        let id = id.parse().map_err(|_| unreadable(&id))?;
        records.push(match questions.find(&id) {
            Some(asked) => Arc::unwrap_or_clone(asked),
            None => serde_json::from_str(text)?,
        });
    }
    Ok(Listing { records, more: false })
}

fn past(
    connection: &Connection,
    principal: &Principal,
    count: u32,
    mut bytes: usize,
) -> Result<Vec<PastApproval>, JournalError> {
    let query = "SELECT record FROM approvals ORDER BY approval_id DESC LIMIT ?1";
    let mut statement = connection.prepare_cached(query)?;
    let mut rows = statement.query([count])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let text = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
        let Some(left) = bytes.checked_sub(text.len()) else { break };
        bytes = left;
        let record: PastApproval = serde_json::from_str(text)?;
        let answered = matches!(record.state, ApprovalState::Allowed | ApprovalState::Denied);
        if answered && record.subject.is_call() && record.principal == *principal {
            found.push(record);
        }
    }
    Ok(found)
}

/// The text of a row that is not known to wait.
fn text_of(connection: &Connection, column: &str, value: &str) -> Result<Option<String>, JournalError> {
    let query = format!("SELECT record FROM approvals WHERE {column} = ?1");
    Ok(connection.prepare_cached(&query)?.query_row([value], |r| r.get(0)).optional()?)
}

/// A question that has ended, as its row has it. One that waits by its row alone waits for nobody.
fn ended(connection: &Connection, id: &ApprovalId) -> Result<ApprovalRecord, JournalError> {
    let text = text_of(connection, "approval_id", id.as_str())?;
    let text = text.ok_or_else(|| JournalError::NotFound { what: "approval", id: id.to_string() })?;
    let record: ApprovalRecord = serde_json::from_str(&text)?;
    if record.state == ApprovalState::Pending {
        return Err(HistoryFault::table("approvals", format!("`{id}` waits there, and by its events it does not")));
    }
    Ok(record)
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

/// A question that waits, or where it is instead.
fn find(tx: &Transaction<'_>, id: &ApprovalId) -> Result<ApprovalRecord, JournalError> {
    // INVARIANT (resolved_once): compare-and-swap on what waits, in the one writer's transaction.
    if let Some(asked) = tx.questions.find(id) {
        return Ok(Arc::unwrap_or_clone(asked));
    }
    Err(JournalError::AlreadyResolved { state: ended(tx.connection, id)?.state })
}

fn apply(tx: &mut Transaction<'_>, resolve: &Resolve) -> Result<ApprovalRecord, JournalError> {
    let mut record = find(tx, &resolve.approval_id)?;
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
    tx.questions.ended(&record.approval_id);
    tx.append(&PreparedEvent::new(&JournalEvent::ApprovalResolved {
        approval_id: record.approval_id.clone(),
        call_id: record.call_id.clone(),
        state: record.state,
        resolution: Box::new(resolve.resolution.clone()),
    })?)?;
    if let Some((grant, key)) = &resolve.grant {
        grants::insert(tx, grant, key)?;
    }
    if record.subject.is_call() {
        move_call(tx, &record, resolve.problem.clone())?;
    } else {
        tx.open_calls.ended(&record.call_id);
    }
    Ok(record)
}

fn apply_rebind(tx: &mut Transaction<'_>, rebind: &Rebind) -> Result<ApprovalRecord, JournalError> {
    let mut record = find(tx, &rebind.approval_id)?;
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
fn store_pending(tx: &mut Transaction<'_>, record: &ApprovalRecord) -> Result<(), JournalError> {
    let updated = tx
        .connection
        .prepare_cached("UPDATE approvals SET record = ?2 WHERE approval_id = ?1 AND state = 'pending'")?
        .execute((record.approval_id.as_str(), serde_json::to_string(record)?))?;
    if updated != 1 {
        return Err(unreadable("an approval's state"));
    }
    tx.questions.waits(Arc::new(record.clone()));
    Ok(())
}

/// Whether this yes is the last that was needed.
///
/// INVARIANT (people_are_counted_once): each yes comes from another person, and all are in the journal before the call
/// starts.
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

/// Whoever issued a token can speak by it. So a yes by a token whose issuer has said yes, or made the proposal, need
/// not be another person's; nor is one by somebody who issued the token that an earlier yes came by.
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
    let given =
        GivenApproval { by: yes.by, token: yes.token, at: yes.at, reason: yes.reason, signature: yes.signature };
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
    let ended = JournalEvent::ToolEnded { call_id: record.call_id.clone(), state, problem, grant: None };
    let seq = tx.append(&PreparedEvent::new(&ended)?)?;
    end(tx, &record.call_id, CallState::AwaitingApproval, state, seq)
}

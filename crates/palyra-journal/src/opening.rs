//! Opening a call: a proposal, the decision about it and what follows from it, recorded in one transaction.
//!
//! Three things can follow: the call is denied, it starts, or a person is asked. Each has a function of its own, whose
//! result holds what can come of it and nothing else.

use crate::call_rows::{CallRow, by_key, insert};
use crate::error::JournalError;
use crate::grants;
use crate::prepared_statements::Hot;
use crate::recorded::Recorded;
use crate::store::JournalStore;
use crate::writer::{PreparedEvent, Transaction};
use palyra_protocol::{
    ApprovalRecord, Authority, CallId, CallRecord, CallState, GrantId, JournalEvent, Problem, RunId, ToolDecision,
    ToolOutcome,
};
use std::sync::Arc;

/// A decided call that is to be recorded.
#[derive(Debug, Clone)]
pub struct Opening {
    /// The call.
    pub call: Arc<CallRecord>,
    /// The decision about it.
    pub decision: Arc<ToolDecision>,
    /// How many calls its run may have.
    pub run_limit: u64,
}

/// The earlier call of the same principal that an idempotency key belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyHolder {
    /// It would do the same.
    SameCall(CallId),
    /// It would do something else.
    OtherCall(CallId),
}

/// Why a call did not open.
#[derive(Debug, Clone, PartialEq)]
pub enum NotOpened {
    /// Its idempotency key belongs to an earlier call. Nothing was recorded.
    KeyHeld(KeyHolder),
    /// Its run has had all its calls. The denial is recorded.
    OverBudget(Box<ToolOutcome>),
}

/// Why a call did not start by a grant.
#[derive(Debug, Clone, PartialEq)]
pub enum NotByGrant {
    /// The grant was revoked, has expired or ended with its rules. Nothing was recorded.
    GrantGone,
    /// The call did not open.
    NotOpened(NotOpened),
}

/// The events of an opening, serialised before the writer sees them.
struct Events {
    proposed: PreparedEvent,
    decided: PreparedEvent,
    last: PreparedEvent,
}

impl Opening {
    fn events(&self, last: &JournalEvent) -> Result<Events, JournalError> {
        let (call_id, decision) = (self.call.call_id.clone(), Arc::clone(&self.decision));
        Ok(Events {
            proposed: PreparedEvent::new(&JournalEvent::ToolProposed { call: Arc::clone(&self.call) })?,
            decided: PreparedEvent::new(&JournalEvent::ToolDecided { call_id, decision })?,
            last: PreparedEvent::new(last)?,
        })
    }

    fn started(&self, authority: Authority) -> Result<Events, JournalError> {
        let (call_id, call_digest) = (self.call.call_id.clone(), Some(self.call.digest));
        self.events(&JournalEvent::ToolStarted { call_id, authority, call_digest })
    }
}

impl JournalStore {
    /// Records that a call was proposed and denied.
    ///
    /// # Errors
    /// Nothing was recorded.
    pub async fn deny(
        &self,
        opening: Opening,
        problem: Problem,
    ) -> Result<Result<Box<ToolOutcome>, KeyHolder>, JournalError> {
        let (call_id, state) = (opening.call.call_id.clone(), CallState::Denied);
        let ended = JournalEvent::ToolEnded { call_id, state, problem: problem.clone(), grant: None };
        let events = opening.events(&ended)?;
        self.write(move |tx| {
            if let Some(holder) = key_holder(tx, &opening.call)? {
                return Ok(Err(holder));
            }
            record(tx, &opening.call, state, &events, &events.last)?;
            let call_id = opening.call.call_id.clone();
            Ok(Ok(Box::new(ToolOutcome::without_output(call_id, state, problem.clone(), tx.now))))
        })
        .await
    }

    /// Records that a call was proposed and that a person's standing no denies it. The grant is counted in the same
    /// transaction.
    ///
    /// # Errors
    /// Nothing was recorded.
    pub async fn deny_by_grant(
        &self,
        opening: Opening,
        grant: GrantId,
        problem: Problem,
    ) -> Result<Result<Box<ToolOutcome>, NotByGrant>, JournalError> {
        let (call_id, state) = (opening.call.call_id.clone(), CallState::Denied);
        let ended = JournalEvent::ToolEnded { call_id, state, problem: problem.clone(), grant: Some(grant.clone()) };
        let events = opening.events(&ended)?;
        self.write(move |tx| {
            if let Some(holder) = key_holder(tx, &opening.call)? {
                return Ok(Err(NotByGrant::NotOpened(NotOpened::KeyHeld(holder))));
            }
            let Opening { call, decision, .. } = &opening;
            if !grants::use_one(tx, &grant, call, &decision.policy_hash)? {
                return Ok(Err(NotByGrant::GrantGone));
            }
            record(tx, call, state, &events, &events.last)?;
            Ok(Ok(Box::new(ToolOutcome::without_output(call.call_id.clone(), state, problem.clone(), tx.now))))
        })
        .await
    }

    /// Records that a call was proposed, that policy allows it and that it starts.
    ///
    /// # Errors
    /// Nothing was recorded.
    pub async fn start<P: Send>(
        &self,
        opening: Opening,
        permit: P,
    ) -> Result<Result<Recorded<P>, NotOpened>, JournalError> {
        let events = opening.started(Authority::Policy)?;
        let started = self
            .write(move |tx| {
                if let Err(why) = open(tx, &opening, &events)? {
                    return Ok(Err(why));
                }
                record(tx, &opening.call, CallState::Executing, &events, &events.last).map(Ok)
            })
            .await?;
        Ok(started.map(|()| Recorded::after_commit(permit)))
    }

    /// Records that a call was proposed, that a grant covers it and that it starts. The grant is used in the same
    /// transaction.
    ///
    /// # Errors
    /// Nothing was recorded.
    pub async fn start_by_grant<P: Send>(
        &self,
        opening: Opening,
        grant: GrantId,
        permit: P,
    ) -> Result<Result<Recorded<P>, NotByGrant>, JournalError> {
        let events = opening.started(Authority::Grant(grant.clone()))?;
        let started = self
            .write(move |tx| {
                if let Err(why) = open(tx, &opening, &events)? {
                    return Ok(Err(NotByGrant::NotOpened(why)));
                }
                let Opening { call, decision, .. } = &opening;
                if !grants::use_one(tx, &grant, call, &decision.policy_hash)? {
                    uncount_call(tx, call)?;
                    return Ok(Err(NotByGrant::GrantGone));
                }
                record(tx, call, CallState::Executing, &events, &events.last).map(Ok)
            })
            .await?;
        Ok(started.map(|()| Recorded::after_commit(permit)))
    }

    /// Records that a call was proposed and that a person is asked about it.
    ///
    /// # Errors
    /// Nothing was recorded.
    pub async fn ask(
        &self,
        opening: Opening,
        approval: Arc<ApprovalRecord>,
    ) -> Result<Result<(), NotOpened>, JournalError> {
        let events = opening.events(&JournalEvent::ApprovalRequested { approval: Arc::clone(&approval) })?;
        let row = serde_json::to_string(&approval)?;
        self.write(move |tx| {
            if let Err(why) = open(tx, &opening, &events)? {
                return Ok(Err(why));
            }
            record(tx, &opening.call, CallState::AwaitingApproval, &events, &events.last)?;
            crate::approvals::insert(tx, &approval, &row)?;
            tx.questions.waits(Arc::clone(&approval));
            Ok(Ok(()))
        })
        .await
    }
}

/// The earlier call that this one's key belongs to.
fn key_holder(tx: &Transaction<'_>, call: &CallRecord) -> Result<Option<KeyHolder>, JournalError> {
    let Some(key) = &call.idempotency_key else { return Ok(None) };
    let held = by_key(tx.connection, &call.origin.principal.to_string(), key.as_str())?;
    Ok(held.map(
        |(call_id, digest)| {
            if digest == call.digest { KeyHolder::SameCall(call_id) } else { KeyHolder::OtherCall(call_id) }
        },
    ))
}

/// Whether a call may open: nobody has its key, and its run's budget pays for it.
fn open(tx: &mut Transaction<'_>, opening: &Opening, events: &Events) -> Result<Result<(), NotOpened>, JournalError> {
    let Opening { call, run_limit, .. } = opening;
    if let Some(holder) = key_holder(tx, call)? {
        return Ok(Err(NotOpened::KeyHeld(holder)));
    }
    // INVARIANT (budget_holds): counting and refusing happen in the transaction that opens the call, so neither
    // concurrent calls nor a restart can exceed the run's limit.
    if count_call(tx, call, *run_limit)? {
        return Ok(Ok(()));
    }
    let (state, problem) = (CallState::Denied, over_budget(&call.origin.run, *run_limit));
    let ended = JournalEvent::ToolEnded { call_id: call.call_id.clone(), state, problem: problem.clone(), grant: None };
    record(tx, call, state, events, &PreparedEvent::new(&ended)?)?;
    let outcome = ToolOutcome::without_output(call.call_id.clone(), state, problem, tx.now);
    Ok(Err(NotOpened::OverBudget(Box::new(outcome))))
}

fn record(
    tx: &mut Transaction<'_>,
    call: &CallRecord,
    state: CallState,
    events: &Events,
    last: &PreparedEvent,
) -> Result<(), JournalError> {
    let opened = tx.append(&events.proposed)?;
    tx.append(&events.decided)?;
    let last = tx.append(last)?;
    insert(
        tx,
        &CallRow {
            call_id: &call.call_id,
            origin: &call.origin,
            tool: call.tool.as_str(),
            digest: &call.digest,
            key: call.idempotency_key.as_ref(),
            state,
            opened,
            ended: state.is_terminal().then_some(last),
        },
    )
}

fn over_budget(run: &RunId, limit: u64) -> Problem {
    Problem::new(
        "budget_exhausted",
        format!("run `{run}` has had all of its {limit} calls"),
        "a run is what its caller names; the operator can raise `max_calls_per_run` in palyra.toml",
    )
}

fn count_call(tx: &mut Transaction<'_>, call: &CallRecord, run_limit: u64) -> Result<bool, JournalError> {
    if run_limit == 0 {
        return Ok(false);
    }
    let principal = call.origin.principal.to_string();
    let parameters = rusqlite::params![principal, call.origin.run.as_str(), run_limit];
    Ok(tx.hot.execute(Hot::CountCall, parameters)? == 1)
}

fn uncount_call(tx: &Transaction<'_>, call: &CallRecord) -> Result<(), JournalError> {
    tx.connection
        .prepare_cached("UPDATE runs SET calls = calls - 1 WHERE principal = ?1 AND run = ?2")?
        .execute((call.origin.principal.to_string(), call.origin.run.as_str()))?;
    Ok(())
}

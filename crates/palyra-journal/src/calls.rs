//! Calls: opening one, starting it, finishing it. Each is one transaction: events and projections together.

use crate::call_rows::{CallRow, CallView, advance, by_key, end, insert, outcome_of, view};
use crate::error::JournalError;
use crate::grants;
use crate::hot::Hot;
use crate::recorded::Recorded;
use crate::store::JournalStore;
use crate::writer::{PreparedEvent, Transaction};
use palyra_protocol::{
    ApprovalId, ApprovalRecord, Authority, CallId, CallRecord, CallState, Digest, EgressRecord, IdempotencyKey,
    JournalEvent, Origin, Principal, Problem, RunId, Timestamp, ToolAttestation, ToolDecision, ToolOutcome,
};
use std::sync::Arc;

/// A call to be opened: what was proposed, what was decided, and what follows.
#[derive(Debug)]
pub struct OpenCall<P> {
    /// The call.
    pub call: Arc<CallRecord>,
    /// The decision about it.
    pub decision: Arc<ToolDecision>,
    /// How many calls its run may have.
    pub run_limit: u64,
    /// What follows from the decision.
    pub opening: Opening<P>,
}

/// What follows from a decision.
#[derive(Debug)]
pub enum Opening<P> {
    /// Nothing: the call is denied.
    Deny(Problem),
    /// It starts at once.
    Start {
        /// The permit, which is given back as [`Recorded`].
        permit: P,
        /// Policy alone, or a grant, which is used up or found gone in the same transaction.
        authority: Authority,
    },
    /// A human is asked.
    Ask(Arc<ApprovalRecord>),
}

/// What became of opening a call.
#[derive(Debug)]
pub enum Opened<P> {
    /// It is recorded as denied.
    Denied,
    /// The intent is durable; it may be carried out.
    Started(Recorded<P>),
    /// The question is durable; a human may answer.
    Asked,
    /// The idempotency key belongs to an earlier call of this principal. Nothing was recorded.
    Duplicate {
        /// The earlier call.
        call_id: CallId,
        /// What it would do or did.
        digest: Digest,
    },
    /// The run has had all its calls; the denial is recorded.
    OverBudget(Problem),
    /// The grant was revoked, expired or used by a policy change meanwhile. Nothing was recorded.
    GrantGone,
}

/// The events of an opening, serialised before the writer sees them.
struct OpeningEvents {
    proposed: PreparedEvent,
    decided: PreparedEvent,
    follow_up: PreparedEvent,
}

fn over_budget(run: &RunId, limit: u64) -> Problem {
    Problem::new(
        "budget_exhausted",
        format!("run `{run}` has had all of its {limit} calls"),
        "a run is what its caller names; the operator can raise `max_calls_per_run` in palyra.toml",
    )
}

impl<P> OpenCall<P> {
    fn events(&self) -> Result<OpeningEvents, JournalError> {
        let call_id = self.call.call_id.clone();
        let follow_up = match &self.opening {
            Opening::Deny(problem) => {
                JournalEvent::ToolEnded { call_id: call_id.clone(), state: CallState::Denied, problem: problem.clone() }
            }
            Opening::Start { authority, .. } => {
                JournalEvent::ToolStarted { call_id: call_id.clone(), authority: authority.clone() }
            }
            Opening::Ask(approval) => JournalEvent::ApprovalRequested { approval: Arc::clone(approval) },
        };
        Ok(OpeningEvents {
            proposed: PreparedEvent::new(&JournalEvent::ToolProposed { call: Arc::clone(&self.call) })?,
            decided: PreparedEvent::new(&JournalEvent::ToolDecided { call_id, decision: Arc::clone(&self.decision) })?,
            follow_up: PreparedEvent::new(&follow_up)?,
        })
    }
}

/// An outcome on its way into the journal, kept whole until it is there.
#[derive(Debug)]
pub struct Finish {
    call_id: CallId,
    state: CallState,
    event: JournalEvent,
    prepared: Arc<Finishing>,
}

#[derive(Debug)]
struct Finishing {
    connections: Vec<PreparedEvent>,
    finished: PreparedEvent,
}

impl Finish {
    /// An outcome, and the connections of its call that are not on record yet.
    ///
    /// # Errors
    /// It has no form that can be recorded.
    pub fn new(
        state: CallState,
        output: serde_json::Value,
        problem: Option<Problem>,
        attestation: ToolAttestation,
        connections: &[EgressRecord],
    ) -> Result<Self, JournalError> {
        let call_id = attestation.statement.call_id.clone();
        let attestation = Box::new(attestation);
        let event = JournalEvent::ToolFinished { call_id: call_id.clone(), state, output, problem, attestation };
        let finished = PreparedEvent::new(&event)?;
        let connections = connection_events(&call_id, connections)?;
        Ok(Self { call_id, state, event, prepared: Arc::new(Finishing { connections, finished }) })
    }

    /// The outcome, once it is recorded.
    ///
    /// # Errors
    /// Never: what is made of a finished call is an outcome.
    pub fn into_outcome(self, ended_at: Timestamp) -> Result<ToolOutcome, JournalError> {
        outcome_of(self.event, ended_at)
            .ok_or_else(|| JournalError::Event { reason: "a finished call has no outcome".to_owned() })
    }
}

fn connection_events(call_id: &CallId, connections: &[EgressRecord]) -> Result<Vec<PreparedEvent>, JournalError> {
    let event = |connection: &EgressRecord| {
        let (call_id, connection) = (call_id.clone(), Box::new(connection.clone()));
        PreparedEvent::new(&JournalEvent::EgressConnection { call_id, connection })
    };
    connections.iter().map(event).collect()
}

/// What an opening did, inside its transaction.
enum Effect {
    Denied,
    Started,
    Asked,
    Duplicate(CallId, Digest),
    OverBudget,
    GrantGone,
}

impl JournalStore {
    /// Records a proposal, the decision and what follows from it, durably and at once.
    ///
    /// # Errors
    /// Nothing was recorded.
    pub async fn open_call<P: Send + 'static>(&self, open: OpenCall<P>) -> Result<Opened<P>, JournalError> {
        let events = open.events()?;
        let OpenCall { call, decision, run_limit, opening } = open;
        let run = call.origin.run.clone();
        let plan = match &opening {
            Opening::Deny(_) => Plan::Deny,
            Opening::Start { authority, .. } => Plan::Start(authority.clone()),
            Opening::Ask(approval) => Plan::Ask(serde_json::to_string(approval)?, Arc::clone(approval)),
        };
        let policy_hash = decision.policy_hash;
        let effect = self.write(move |tx| apply_opening(tx, &call, &policy_hash, run_limit, &plan, &events)).await?;
        Ok(match (effect, opening) {
            (Effect::Started, Opening::Start { permit, .. }) => Opened::Started(Recorded::after_commit(permit)),
            (Effect::Asked, _) => Opened::Asked,
            (Effect::Duplicate(call_id, digest), _) => Opened::Duplicate { call_id, digest },
            (Effect::OverBudget, _) => Opened::OverBudget(over_budget(&run, run_limit)),
            (Effect::GrantGone, _) => Opened::GrantGone,
            (Effect::Denied | Effect::Started, _) => Opened::Denied,
        })
    }

    /// Records that an approved call starts now.
    ///
    /// # Errors
    /// The call is not waiting to start, or nothing could be recorded.
    pub async fn start_approved<P: Send + 'static>(
        &self,
        call_id: &CallId,
        approval: &ApprovalId,
        permit: P,
    ) -> Result<Recorded<P>, JournalError> {
        let authority = Authority::Approval(approval.clone());
        let event = PreparedEvent::new(&JournalEvent::ToolStarted { call_id: call_id.clone(), authority })?;
        let id = call_id.clone();
        self.write(move |tx| {
            advance(tx, &id, CallState::Approved, CallState::Executing)?;
            tx.append(&event)
        })
        .await?;
        Ok(Recorded::after_commit(permit))
    }

    /// Records the outcome of an execution. It is only lent: one that finds no room is tried again.
    ///
    /// # Errors
    /// The call is not executing, or nothing could be recorded.
    pub async fn finish_call(&self, finish: &Finish) -> Result<Timestamp, JournalError> {
        let prepared = Arc::clone(&finish.prepared);
        let (id, state) = (finish.call_id.clone(), finish.state);
        self.write(move |tx| {
            for connection in &prepared.connections {
                tx.append(connection)?;
            }
            let seq = tx.append(&prepared.finished)?;
            end(tx, &id, CallState::Executing, state, seq)?;
            Ok(tx.now)
        })
        .await
    }

    /// Records connections of a running call, all of them or none.
    ///
    /// # Errors
    /// Nothing was recorded.
    pub async fn record_egress(&self, call_id: &CallId, connections: &[EgressRecord]) -> Result<(), JournalError> {
        let events = connection_events(call_id, connections)?;
        self.write(move |tx| events.iter().try_for_each(|event| tx.append(event).map(drop))).await
    }

    /// Records the end of a call that did not run, or of which nobody knows.
    ///
    /// # Errors
    /// The call is not in the state it is expected in, or nothing could be recorded.
    pub async fn end_call(
        &self,
        call_id: &CallId,
        from: CallState,
        state: CallState,
        problem: Problem,
    ) -> Result<(), JournalError> {
        let event = PreparedEvent::new(&JournalEvent::ToolEnded { call_id: call_id.clone(), state, problem })?;
        let id = call_id.clone();
        self.write(move |tx| {
            let seq = tx.append(&event)?;
            end(tx, &id, from, state, seq)
        })
        .await
    }

    /// Records a proposal that never became a call.
    ///
    /// # Errors
    /// Nothing was recorded.
    pub async fn refuse_call(&self, refused: RefusedCall) -> Result<Refused, JournalError> {
        let RefusedCall { call_id, tool, input_sha256, origin, state, problem, idempotency_key } = refused;
        let event = JournalEvent::ToolRejected {
            call_id: call_id.clone(),
            tool: tool.clone(),
            input_sha256,
            origin: Box::new(origin.clone()),
            state,
            problem,
            idempotency_key: idempotency_key.clone(),
        };
        let prepared = PreparedEvent::new(&event)?;
        let recorded = self
            .write(move |tx| {
                if let Some(key) = &idempotency_key
                    && let Some((earlier, _)) = by_key(tx.connection, &origin.principal.to_string(), key.as_str())?
                {
                    return Ok(Err(earlier));
                }
                let seq = tx.append(&prepared)?;
                let row = CallRow {
                    call_id: &call_id,
                    origin: &origin,
                    tool: &tool,
                    digest: &input_sha256,
                    key: idempotency_key.as_ref(),
                    state,
                    opened: seq,
                    ended: Some(seq),
                };
                insert(tx, &row)?;
                Ok(Ok(tx.now))
            })
            .await?;
        match recorded {
            Err(earlier) => Ok(Refused::Duplicate(earlier)),
            Ok(ended_at) => outcome_of(event, ended_at)
                .map(|outcome| Refused::Recorded(Box::new(outcome)))
                .ok_or_else(|| JournalError::Event { reason: "a refused call has no outcome".to_owned() }),
        }
    }

    /// A call and where it stands.
    ///
    /// # Errors
    /// There is no such call, or it cannot be read.
    pub async fn call(&self, call_id: &CallId) -> Result<CallView, JournalError> {
        let id = call_id.clone();
        self.read(move |c| view(c, &id)).await
    }

    /// The calls that have not ended: what a restart has to take care of. Their rows and questions are held against their
    /// events first.
    ///
    /// # Errors
    /// They cannot be read, or a table says what their events do not.
    pub async fn open_calls(&self) -> Result<Vec<CallView>, JournalError> {
        self.read(|c| {
            // One snapshot, so that what is appended meanwhile does not look like a contradiction.
            let snapshot = c.unchecked_transaction()?;
            let ids = crate::open_calls::ids(&snapshot)?;
            crate::tables::check_open(&snapshot, &ids)?;
            ids.iter().map(|id| view(&snapshot, id)).collect()
        })
        .await
    }

    /// The earlier call that an idempotency key belongs to.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn call_by_key(
        &self,
        principal: &Principal,
        key: &IdempotencyKey,
    ) -> Result<Option<(CallId, Digest)>, JournalError> {
        let (principal, key) = (principal.to_string(), key.to_string());
        self.read(move |c| by_key(c, &principal, &key)).await
    }
}

/// A proposal that never became a call.
#[derive(Debug)]
pub struct RefusedCall {
    /// Its id.
    pub call_id: CallId,
    /// The tool's name as it was sent, cut to a printable excerpt.
    pub tool: String,
    /// SHA-256 of the input as it was sent.
    pub input_sha256: Digest,
    /// Who asked, from where.
    pub origin: Origin,
    /// `rejected` or `denied`.
    pub state: CallState,
    /// Why.
    pub problem: Problem,
    /// The key under which a repetition gets the same refusal; none for a refusal that only holds for now.
    pub idempotency_key: Option<IdempotencyKey>,
}

/// What became of a refusal.
#[derive(Debug)]
pub enum Refused {
    /// It is recorded.
    Recorded(Box<ToolOutcome>),
    /// The idempotency key belongs to an earlier call of this principal. Nothing was recorded.
    Duplicate(CallId),
}

enum Plan {
    Deny,
    Start(Authority),
    Ask(String, Arc<ApprovalRecord>),
}

fn apply_opening(
    tx: &mut Transaction<'_>,
    call: &CallRecord,
    policy_hash: &Digest,
    run_limit: u64,
    plan: &Plan,
    events: &OpeningEvents,
) -> Result<Effect, JournalError> {
    let principal = call.origin.principal.to_string();
    if let Some(key) = &call.idempotency_key
        && let Some((call_id, digest)) = by_key(tx.connection, &principal, key.as_str())?
    {
        return Ok(Effect::Duplicate(call_id, digest));
    }
    if matches!(plan, Plan::Deny) {
        return open_as(tx, call, CallState::Denied, events, &events.follow_up).map(|()| Effect::Denied);
    }
    // INVARIANT (budget_holds): counting and refusing happen in the transaction that opens the call, so neither
    // concurrent calls nor a restart can exceed the run's limit.
    if !count_call(tx, &principal, call, run_limit)? {
        let problem = over_budget(&call.origin.run, run_limit);
        let ended = JournalEvent::ToolEnded { call_id: call.call_id.clone(), state: CallState::Denied, problem };
        let ended = PreparedEvent::new(&ended)?;
        return open_as(tx, call, CallState::Denied, events, &ended).map(|()| Effect::OverBudget);
    }
    match plan {
        Plan::Start(Authority::Grant(grant)) if !grants::use_one(tx, grant, call, policy_hash)? => {
            uncount_call(tx, &principal, call)?;
            Ok(Effect::GrantGone)
        }
        Plan::Start(_) => open_as(tx, call, CallState::Executing, events, &events.follow_up).map(|()| Effect::Started),
        Plan::Ask(record, approval) => {
            open_as(tx, call, CallState::AwaitingApproval, events, &events.follow_up)?;
            crate::approvals::insert(tx, approval, record)?;
            tx.questions.waits(Arc::clone(approval));
            Ok(Effect::Asked)
        }
        Plan::Deny => Ok(Effect::Denied),
    }
}

fn open_as(
    tx: &mut Transaction<'_>,
    call: &CallRecord,
    state: CallState,
    events: &OpeningEvents,
    follow_up: &PreparedEvent,
) -> Result<(), JournalError> {
    let opened = tx.append(&events.proposed)?;
    tx.append(&events.decided)?;
    let last = tx.append(follow_up)?;
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

fn count_call(
    tx: &mut Transaction<'_>,
    principal: &str,
    call: &CallRecord,
    run_limit: u64,
) -> Result<bool, JournalError> {
    if run_limit == 0 {
        return Ok(false);
    }
    let parameters = rusqlite::params![principal, call.origin.run.as_str(), run_limit];
    let counted = tx.hot.execute(Hot::CountCall, parameters)?;
    Ok(counted == 1)
}

fn uncount_call(tx: &Transaction<'_>, principal: &str, call: &CallRecord) -> Result<(), JournalError> {
    tx.connection
        .prepare_cached("UPDATE runs SET calls = calls - 1 WHERE principal = ?1 AND run = ?2")?
        .execute((principal, call.origin.run.as_str()))?;
    Ok(())
}

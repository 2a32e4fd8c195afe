//! Clear: from a decision to a recorded permit, by policy, by a standing grant, or by a human's answer.

use crate::approvals::reconsider::policy_changed;
use crate::config::CallLimits;
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use crate::flow::decide::denial;
use crate::flow::permit::Permit;
use crate::flow::resolve::ResolvedCall;
use crate::flow::unrecorded::Owed;
use crate::live::{LiveCall, Withdrawal};
use palyra_journal::{JournalError, OpenCall, Opened, Opening, Recorded};
use palyra_protocol::{
    ApprovalId, ApprovalRecord, ApprovalState, Authority, CallId, CallRecord, CallState, DecisionKind, Digest, GrantId,
    MatchKey, Principal, Problem, ToolCall, ToolDecision, ToolOutcome,
};
use std::sync::Arc;
use tokio::sync::oneshot;

/// What became of a decided call.
#[derive(Debug)]
pub(crate) enum Cleared {
    /// It may be carried out; the intent is durable.
    Permitted(Recorded<Permit>),
    /// It has ended without running.
    Ended(Box<ToolOutcome>),
    /// It is an earlier call, by its idempotency key.
    Earlier(CallId),
    /// It has ended, and that is not on record yet.
    Owing(Owed, JournalError),
    /// A person would have to be asked, and too many questions wait.
    Crowded(Problem),
}

/// The code of another call under a known key.
pub(crate) const KEY_REUSED: &str = "idempotency_key_reused";

/// How a question ends that nobody answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum QuestionEnd {
    /// Its time is over.
    Expired,
    /// The call was withdrawn.
    Withdrawn(Principal),
    /// What would run is no longer what was shown.
    Changed(Problem),
    /// The token that the call was proposed with opens nothing any more.
    TokenGone(Problem),
}

impl Engine {
    /// Takes a decided call to its permit, or to its end.
    pub(crate) async fn clear(
        &self,
        resolved: ResolvedCall,
        decision: Arc<ToolDecision>,
        live: &LiveCall,
    ) -> Result<Cleared, EngineError> {
        let resolved = match Permit::by_policy(resolved, &decision) {
            Ok(permit) => return self.start(permit, decision).await?.or_ended(),
            Err(resolved) => *resolved,
        };
        if decision.decision == DecisionKind::Deny {
            let problem = denial(&resolved.call, &decision);
            return self.open(resolved.call.record(), decision, Opening::<()>::Deny(problem)).await?.ended(self).await;
        }
        // A grant is one person's standing answer; where several people are needed it is none.
        if decision.people > 1 {
            return self.ask(resolved, decision, live).await;
        }
        match self.by_grant(resolved, &decision).await? {
            Attempt::Done(cleared) => Ok(cleared),
            Attempt::NotCovered(resolved) => self.ask(resolved, decision, live).await,
        }
    }

    /// Starts a call that policy alone, or a grant, permits.
    async fn start(&self, permit: Permit, decision: Arc<ToolDecision>) -> Result<Attempt, EngineError> {
        let record = permit.call().record();
        let authority = permit.authority().clone();
        let by_grant = matches!(authority, Authority::Grant(_)).then(|| Arc::clone(&record));
        let opened = self.open(record, decision, Opening::Start { permit, authority }).await?;
        match (opened, by_grant) {
            (Outcome { inner: Opened::Started(permit), .. }, _) => Ok(Attempt::Done(Cleared::Permitted(permit))),
            (Outcome { inner: Opened::GrantGone, .. }, Some(record)) => {
                Ok(Attempt::NotCovered(self.resolve_again(&record)?))
            }
            (other, _) => other.ended(self).await.map(Attempt::Done),
        }
    }

    async fn by_grant(&self, resolved: ResolvedCall, decision: &Arc<ToolDecision>) -> Result<Attempt, EngineError> {
        let grant = self.live_grant(&resolved.call, decision.policy_hash).await?;
        let Some(grant) = grant else { return Ok(Attempt::NotCovered(resolved)) };
        let basis = (decision.decision, decision.decision_id.clone());
        match Permit::by_human(resolved, basis, Authority::Grant(grant)) {
            Ok(permit) => self.start(permit, Arc::clone(decision)).await,
            Err(resolved) => Ok(Attempt::NotCovered(*resolved)),
        }
    }

    /// The standing answer that covers a call, if there is one.
    pub(crate) async fn live_grant(&self, call: &ToolCall, policy: Digest) -> Result<Option<GrantId>, EngineError> {
        let keys = MatchKey::candidates(call.workspace_root(), call.tool(), &call.digest(), call.facets());
        let (origin, now) = (call.origin(), self.clock().now());
        Ok(self.journal().live_grant(&origin.principal, &origin.session, policy, keys, now).await?)
    }

    /// Asks a human and waits for the answer.
    async fn ask(
        &self,
        resolved: ResolvedCall,
        decision: Arc<ToolDecision>,
        live: &LiveCall,
    ) -> Result<Cleared, EngineError> {
        let approval = Arc::new(self.question(&resolved.call, &decision));
        if let Err(crowded) = self.count_question(&approval, Some(&self.config().limits)) {
            return Ok(Cleared::Crowded(crowded));
        }
        let answer = self.await_approval(&approval.approval_id);
        let opened = self.open(resolved.call.record(), decision, Opening::<()>::Ask(Arc::clone(&approval))).await;
        if !opened.as_ref().is_ok_and(|opened| matches!(opened.inner, Opened::Asked)) {
            self.forget_approval(&approval.approval_id);
            self.live().answered(&approval.call_id);
            return opened?.ended(self).await;
        }
        live.update(|now| {
            now.state = CallState::AwaitingApproval;
            now.approval = Some(Arc::clone(&approval));
        });
        drop(self.approval_news().send(Arc::clone(&approval)));
        if let Some(problem) = self.token_gone(approval.token.as_ref()) {
            // Withdrawn while the question was on its way to the journal, where whoever withdrew it did not see it.
            let end = QuestionEnd::TokenGone(problem);
            match self.record_question_end(&approval, &end).await {
                Ok(_) | Err(JournalError::AlreadyResolved { .. }) => {}
                Err(error) => return Ok(Cleared::Owing(Owed::Question { approval, end }, error)),
            }
        }
        self.after_answer(resolved, approval, answer, live).await
    }

    /// Waits for a question's end, and starts the call if the answer is yes. A restart comes back in here.
    pub(crate) async fn after_answer(
        &self,
        resolved: ResolvedCall,
        approval: Arc<ApprovalRecord>,
        answer: oneshot::Receiver<Arc<ApprovalRecord>>,
        live: &LiveCall,
    ) -> Result<Cleared, EngineError> {
        let answered = match self.wait(&approval, answer, live).await? {
            Waited::Answered(answered) => answered,
            Waited::Over(end) => match self.record_question_end(&approval, &end).await {
                Ok(ended) => ended,
                Err(JournalError::AlreadyResolved { .. }) => {
                    Arc::new(self.journal().approval(&approval.approval_id).await?)
                }
                Err(error) => return Ok(Cleared::Owing(Owed::Question { approval, end }, error)),
            },
        };
        self.live().answered(&answered.call_id);
        live.update(|now| now.approval = Some(Arc::clone(&answered)));
        if answered.state != ApprovalState::Allowed {
            return self.recorded_end(&answered.call_id).await;
        }
        self.start_approved(resolved, &answered).await
    }

    /// Starts a call that a human has allowed, if it is still the call that was shown, under the same policy, and the token
    /// it was proposed with still opens.
    pub(crate) async fn start_approved(
        &self,
        resolved: ResolvedCall,
        approval: &ApprovalRecord,
    ) -> Result<Cleared, EngineError> {
        // Until the start is recorded, no other rules take over.
        let _rules_stay = self.running_policy().stay().await;
        let gone = self.token_gone(approval.token.as_ref());
        if let Some(problem) = gone.or_else(|| void(approval, &resolved.call, self.policy_hash())) {
            let (from, state) = (CallState::Approved, CallState::Cancelled);
            return match self.journal().end_call(&approval.call_id, from, state, problem.clone()).await {
                Err(error) if error.may_pass() => Ok(Cleared::Owing(Owed::End { from, state, problem }, error)),
                ended => {
                    ended?;
                    self.recorded_end(&approval.call_id).await
                }
            };
        }
        let basis = (DecisionKind::NeedsApproval, approval.decision_id.clone());
        let authority = Authority::Approval(approval.approval_id.clone());
        let permit = Permit::by_human(resolved, basis, authority).map_err(|_| {
            EngineError::new(ErrorKind::Internal, Problem::plain("internal", "an approval did not become a permit"))
        })?;
        match self.journal().start_approved(&approval.call_id, &approval.approval_id, permit).await {
            Ok(recorded) => Ok(Cleared::Permitted(recorded)),
            Err(error) if error.may_pass() => {
                // A yes is for now. The call does not start by itself whenever there happens to be room.
                let problem = Problem::new(
                    "start_not_recorded",
                    "the call was approved, but its start could not be recorded, so it did not run",
                    "propose the call again",
                );
                let owed = Owed::End { from: CallState::Approved, state: CallState::Cancelled, problem };
                Ok(Cleared::Owing(owed, error))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn wait(
        &self,
        approval: &ApprovalRecord,
        answer: oneshot::Receiver<Arc<ApprovalRecord>>,
        live: &LiveCall,
    ) -> Result<Waited, EngineError> {
        let left = self.clock().now().until(approval.expires_at);
        tokio::select! {
            answered = answer => Ok(Waited::Answered(match answered {
                Ok(record) => record,
                Err(_) => Arc::new(self.journal().approval(&approval.approval_id).await?),
            })),
            () = tokio::time::sleep(left) => Ok(Waited::Over(QuestionEnd::Expired)),
            () = live.cancel().cancelled() => Ok(Waited::Over(QuestionEnd::Withdrawn(match live.withdrawn() {
                Some(Withdrawal::By(who)) => who.clone(),
                Some(Withdrawal::ShuttingDown) | None => Principal::daemon(),
            }))),
            () = self.closing().cancelled() => Err(EngineError::new(
                ErrorKind::Unavailable,
                Problem::new(
                    "shutting_down",
                    "the daemon is shutting down; the question stays open",
                    format!("after the restart, decide it: `palyra approvals show {}`", approval.approval_id),
                ),
            )),
        }
    }

    /// Ends a question that nobody answered, and tells everybody who waits or watches. One whose token is gone ends for
    /// that reason.
    pub(crate) async fn record_question_end(
        &self,
        approval: &ApprovalRecord,
        end: &QuestionEnd,
    ) -> Result<Arc<ApprovalRecord>, JournalError> {
        let gone = self.token_gone(approval.token.as_ref()).map(QuestionEnd::TokenGone);
        let (state, by, problem) = match gone.as_ref().unwrap_or(end) {
            QuestionEnd::Expired => {
                let hint = "propose the call again when somebody can answer";
                let problem = Problem::new("approval_expired", "nobody answered the approval in time", hint);
                (ApprovalState::Expired, Principal::daemon(), problem)
            }
            QuestionEnd::Withdrawn(who) => {
                let message = format!("`{who}` withdrew the call before anybody answered");
                (ApprovalState::Cancelled, who.clone(), Problem::plain("cancelled", message))
            }
            QuestionEnd::Changed(problem) | QuestionEnd::TokenGone(problem) => {
                (ApprovalState::Cancelled, Principal::daemon(), problem.clone())
            }
        };
        self.settle_question(self.unanswered(approval, state, by, problem), None).await
    }

    /// Counts a question that is about to wait, unless too many do.
    pub(crate) fn count_question(&self, approval: &ApprovalRecord, limits: Option<&CallLimits>) -> Result<(), Problem> {
        let bytes = serde_json::to_vec(approval).map_err(|e| Problem::plain("internal", e.to_string()))?.len();
        self.live().ask(&approval.call_id, bytes, limits)
    }

    fn question(&self, call: &ToolCall, decision: &ToolDecision) -> ApprovalRecord {
        let now = self.clock().now();
        let origin = call.origin();
        let patience = now.plus(self.config().approval_timeout);
        let token_expiry = origin.token.as_ref().and_then(|token| self.token_expiry(token));
        ApprovalRecord {
            approval_id: ApprovalId::mint(),
            call_id: call.id().clone(),
            subject_id: call.subject_id(),
            tool: call.tool().clone(),
            call_digest: call.digest(),
            decision_id: decision.decision_id.clone(),
            policy_hash: decision.policy_hash,
            risk: self.metadata(call.tool()).risk,
            principal: origin.principal.clone(),
            proposed_by: origin.proposed_by.clone(),
            token: origin.token.clone(),
            session: origin.session.clone(),
            input: call.input().clone(),
            facets: call.facets().clone(),
            why: decision.summary.clone(),
            requested_at: now,
            // No question outlives the token that it was proposed with.
            expires_at: token_expiry.map_or(patience, |expiry| expiry.min(patience)),
            people: decision.people.max(1),
            given: Vec::new(),
            state: ApprovalState::Pending,
            resolution: None,
        }
    }

    async fn open<P: Send + 'static>(
        &self,
        call: Arc<CallRecord>,
        decision: Arc<ToolDecision>,
        opening: Opening<P>,
    ) -> Result<Outcome<P>, EngineError> {
        let (call_id, digest) = (call.call_id.clone(), call.digest);
        // INVARIANT (decided_by_rules_in_force): nothing is opened by rules that others have replaced in the journal.
        let _rules_stay = self.running_policy().stay().await;
        if decision.policy_hash != self.policy_hash() {
            return Err(EngineError::new(ErrorKind::Conflict, policy_changed()));
        }
        let open = OpenCall { call, decision, run_limit: self.config().max_calls_per_run, opening };
        let inner = self.journal().open_call(open).await?;
        Ok(Outcome { inner, call_id, digest })
    }

    /// The end that the journal holds for a call.
    async fn recorded_end(&self, call_id: &CallId) -> Result<Cleared, EngineError> {
        let outcome = self.journal().call(call_id).await?.outcome.ok_or_else(|| {
            EngineError::new(ErrorKind::Internal, Problem::plain("internal", "a call ended without an outcome"))
        })?;
        Ok(Cleared::Ended(Box::new(outcome)))
    }

    /// A grant vanished between finding and using it: the call is resolved afresh, because its permit was spent.
    fn resolve_again(&self, record: &CallRecord) -> Result<ResolvedCall, EngineError> {
        let id = record.call_id.clone();
        let proposal = crate::flow::recover::proposal_of(record.clone());
        self.resolver().resolve(id, &proposal).map_err(|refusal| EngineError::new(ErrorKind::Conflict, refusal.problem))
    }
}

/// The caller promised that two calls are one, and they are not.
pub(crate) fn key_reused(earlier: &CallId) -> EngineError {
    EngineError::new(
        ErrorKind::Conflict,
        Problem::new(
            KEY_REUSED,
            format!("this idempotency key belongs to `{earlier}`, which is another call"),
            "use a new key for a new call",
        ),
    )
}

/// Why an approval no longer holds for the call that would run.
fn void(approval: &ApprovalRecord, call: &ToolCall, policy_hash: Digest) -> Option<Problem> {
    if approval.policy_hash != policy_hash {
        return Some(Problem::new(
            "policy_changed",
            "the policy changed after this call was shown, so the answer no longer holds",
            "propose the call again",
        ));
    }
    (approval.call_digest != call.digest()).then(|| {
        Problem::new(
            "call_changed",
            "what would run is no longer what was shown and approved: a file or program it names has changed",
            "propose the call again",
        )
    })
}

/// What waiting for an answer came to.
enum Waited {
    Answered(Arc<ApprovalRecord>),
    Over(QuestionEnd),
}

/// Trying to clear a call without asking.
enum Attempt {
    Done(Cleared),
    NotCovered(ResolvedCall),
}

impl Attempt {
    /// For a start that no grant is involved in.
    fn or_ended(self) -> Result<Cleared, EngineError> {
        match self {
            Self::Done(cleared) => Ok(cleared),
            Self::NotCovered(_) => Err(EngineError::new(
                ErrorKind::Internal,
                Problem::plain("internal", "a call that policy allows was not started"),
            )),
        }
    }
}

/// What opening a call came to, with what is needed to tell it.
struct Outcome<P> {
    inner: Opened<P>,
    call_id: CallId,
    digest: Digest,
}

impl<P> Outcome<P> {
    /// The end of a call that was opened and does not start.
    async fn ended(self, engine: &Engine) -> Result<Cleared, EngineError> {
        match self.inner {
            Opened::Denied | Opened::OverBudget(_) => engine.recorded_end(&self.call_id).await,
            Opened::Duplicate { call_id, digest } if digest == self.digest => Ok(Cleared::Earlier(call_id)),
            Opened::Duplicate { call_id, .. } => Err(key_reused(&call_id)),
            Opened::Started(_) | Opened::Asked | Opened::GrantGone => Err(EngineError::new(
                ErrorKind::Internal,
                Problem::plain("internal", "a call was opened in a way that nobody asked for"),
            )),
        }
    }
}

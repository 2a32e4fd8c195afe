//! Clear: from a decision to a recorded permit, by policy, by a standing grant, or by a human's answer.

use crate::decide::denial;
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use crate::live::LiveCall;
use crate::permit::Permit;
use crate::reconsider::policy_changed;
use crate::resolve::ResolvedCall;
use palyra_journal::{JournalError, OpenCall, Opened, Opening, Recorded, Resolve};
use palyra_protocol::{
    ApprovalId, ApprovalRecord, ApprovalResolution, ApprovalScope, ApprovalState, Authority, CallId, CallRecord,
    CallState, DecisionKind, Digest, GrantId, GrantMatcher, MatchKey, Principal, Problem, ToolCall, ToolDecision,
    ToolOutcome,
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
        let keys = MatchKey::candidates(call.tool(), &call.digest(), call.facets());
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
        let approval = self.question(&resolved.call, &decision);
        let answer = self.await_approval(&approval.approval_id);
        let opened =
            self.open(resolved.call.record(), decision, Opening::<()>::Ask(Box::new(approval.clone()))).await?;
        if !matches!(opened.inner, Opened::Asked) {
            self.forget_approval(&approval.approval_id);
            return opened.ended(self).await;
        }
        live.update(|now| {
            now.state = CallState::AwaitingApproval;
            now.approval = Some(Arc::new(approval.clone()));
        });
        drop(self.approval_news().send(approval.clone()));
        if self.token_gone(approval.token.as_ref()).is_some() {
            // Withdrawn while the question was on its way to the journal, where whoever withdrew it did not see it.
            self.end_question(&approval, ApprovalState::Cancelled).await?;
        }
        self.after_answer(resolved, approval, answer, live).await
    }

    /// Waits for a question's end, and starts the call if the answer is yes. A restart comes back in here.
    pub(crate) async fn after_answer(
        &self,
        resolved: ResolvedCall,
        approval: ApprovalRecord,
        answer: oneshot::Receiver<ApprovalRecord>,
        live: &LiveCall,
    ) -> Result<Cleared, EngineError> {
        let answered = self.wait(&approval, answer, live).await?;
        live.update(|now| now.approval = Some(Arc::new(answered.clone())));
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
            self.journal().end_call(&approval.call_id, CallState::Approved, CallState::Cancelled, problem).await?;
            return self.recorded_end(&approval.call_id).await;
        }
        let basis = (DecisionKind::NeedsApproval, approval.decision_id.clone());
        let authority = Authority::Approval(approval.approval_id.clone());
        let permit = Permit::by_human(resolved, basis, authority).map_err(|_| {
            EngineError::new(ErrorKind::Internal, Problem::plain("internal", "an approval did not become a permit"))
        })?;
        let recorded = self.journal().start_approved(&approval.call_id, &approval.approval_id, permit).await?;
        Ok(Cleared::Permitted(recorded))
    }

    async fn wait(
        &self,
        approval: &ApprovalRecord,
        answer: oneshot::Receiver<ApprovalRecord>,
        live: &LiveCall,
    ) -> Result<ApprovalRecord, EngineError> {
        let left = self.clock().now().until(approval.expires_at);
        tokio::select! {
            answered = answer => match answered {
                Ok(record) => Ok(record),
                Err(_) => Ok(self.journal().approval(&approval.approval_id).await?),
            },
            () = tokio::time::sleep(left) => self.end_question(approval, ApprovalState::Expired).await,
            () = live.cancel().cancelled() => self.end_question(approval, ApprovalState::Cancelled).await,
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

    /// Ends a question that nobody answered; whoever was faster wins. One whose token is gone ends for that reason.
    pub(crate) async fn end_question(
        &self,
        approval: &ApprovalRecord,
        state: ApprovalState,
    ) -> Result<ApprovalRecord, EngineError> {
        let gone = self.token_gone(approval.token.as_ref());
        let state = if gone.is_some() { ApprovalState::Cancelled } else { state };
        let problem = gone.unwrap_or_else(|| match state {
            ApprovalState::Expired => Problem::new(
                "approval_expired",
                "nobody answered the approval in time",
                "propose the call again when somebody can answer",
            ),
            _ => Problem::plain("cancelled", "the call was withdrawn before anybody answered"),
        });
        let resolve = Resolve {
            approval_id: approval.approval_id.clone(),
            state,
            resolution: ApprovalResolution {
                by: Principal::daemon(),
                token: None,
                at: self.clock().now(),
                scope: ApprovalScope::Once,
                matcher: GrantMatcher::ExactCall,
                reason: None,
                grant: None,
            },
            grant: None,
            problem: Some(problem),
        };
        match self.journal().resolve_approval(resolve).await {
            Ok(record) => {
                self.announce_approval(&record);
                Ok(record)
            }
            Err(JournalError::AlreadyResolved { .. }) => Ok(self.journal().approval(&approval.approval_id).await?),
            Err(error) => Err(error.into()),
        }
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
        let proposal = crate::recovery::proposal_of(record.clone());
        self.resolver().resolve(id, &proposal).map_err(|refusal| EngineError::new(ErrorKind::Conflict, refusal.problem))
    }
}

/// The caller promised that two calls are one, and they are not.
pub(crate) fn key_reused(earlier: &CallId) -> EngineError {
    EngineError::new(
        ErrorKind::Conflict,
        Problem::new(
            "idempotency_key_reused",
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

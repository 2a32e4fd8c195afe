//! Asking: an approval is recorded, people see it, and the call waits until it is answered, expires or is withdrawn.

use crate::config::CallLimits;
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use crate::flow::clear::Cleared;
use crate::flow::decide::{AskableCall, Decided};
use crate::flow::permit::{NotApproved, Permit};
use crate::flow::resolve::{Refusal, ResolvedCall};
use crate::flow::stop::Stop;
use crate::flow::unrecorded::Unrecorded;
use crate::live::{LiveCall, Withdrawal};
use palyra_journal::{JournalError, Recorded, Resolve};
use palyra_protocol::routine::ROUTINE_SESSION;
use palyra_protocol::{
    ApprovalId, ApprovalRecord, ApprovalResolution, ApprovalScope, ApprovalState, ApprovalSubject, CallState,
    GrantMatcher, Principal, Problem,
};
use std::sync::Arc;
use tokio::sync::oneshot;

impl Engine {
    /// Asks people about a call, waits for their answer and starts the call if it is yes.
    pub(crate) async fn ask(&self, call: AskableCall, live: &LiveCall) -> Cleared {
        let approval = Arc::new(self.approval_about(&call));
        self.count_approval(&approval, Some(&self.config().limits)).map_err(Refusal::for_now)?;
        let answer = self.await_approval(&approval.approval_id);
        let recorded = self.record_approval(&call, &approval).await;
        if !matches!(recorded, Ok(Some(()))) {
            self.forget_approval(&approval.approval_id);
            self.live().answered(&approval.call_id);
        }
        let Some(()) = recorded? else { return Ok(None) };
        live.update(|now| {
            now.state = CallState::AwaitingApproval;
            now.approval = Some(Arc::clone(&approval));
        });
        drop(self.approval_news().send(Arc::clone(&approval)));
        if let Some(problem) = self.token_gone(approval.token.as_ref()) {
            // Withdrawn while the approval was on its way to the journal, where whoever withdrew the token did not see
            // it.
            self.end_unanswered(&approval, self.cancelled(&approval, problem)).await?;
        }
        self.after_answer(call.into_resolved(), approval, answer, live).await.map(Some)
    }

    /// Records that people are asked; nothing where other rules have taken over.
    async fn record_approval(&self, call: &AskableCall, approval: &Arc<ApprovalRecord>) -> Result<Option<()>, Stop> {
        let Some(_rules_stay) = self.rules_of(call.decision()).await else { return Ok(None) };
        let opening = call.opening(self.config().max_calls_per_run);
        Ok(Some(self.journal().ask(opening, Arc::clone(approval)).await??))
    }

    /// Waits for an approval's end, and starts the call if the answer is yes. A restart comes back in here.
    pub(crate) async fn after_answer(
        &self,
        call: ResolvedCall,
        approval: Arc<ApprovalRecord>,
        answer: oneshot::Receiver<Arc<ApprovalRecord>>,
        live: &LiveCall,
    ) -> Result<Recorded<Permit>, Stop> {
        let answered = self.wait(&approval, answer, live).await?;
        self.live().answered(&answered.call_id);
        live.update(|now| now.approval = Some(Arc::clone(&answered)));
        if answered.state != ApprovalState::Allowed {
            return Err(Stop::Ended(self.journal().outcome(&answered.call_id).await?));
        }
        self.start_approved(call, &answered).await
    }

    /// Starts a call that people have approved, if policy still asks for just that approval of just this call, and the
    /// token it was proposed with still opens.
    pub(crate) async fn start_approved(
        &self,
        call: ResolvedCall,
        approval: &ApprovalRecord,
    ) -> Result<Recorded<Permit>, Stop> {
        // Until the start is recorded, no other rules take over.
        let _rules_stay = self.running_policy().stay().await;
        if let Some(problem) = self.token_gone(approval.token.as_ref()) {
            return Err(self.cancel_approved(approval, problem).await);
        }
        let permit = match self.decide(call) {
            Decided::Askable(call) => Permit::by_approval(call, approval),
            Decided::Grantable(call) => Permit::by_approval(call.without_grant(), approval),
            Decided::Allowed(_) | Decided::Denied(_) => Err(NotApproved::OtherRules),
        };
        let permit = match permit {
            Ok(permit) => permit,
            Err(why) => return Err(self.cancel_approved(approval, why.into()).await),
        };
        match self.journal().start_approved(approval, permit).await {
            Ok(recorded) => Ok(recorded),
            Err(error) if error.may_pass() => {
                // A yes is for now. The call does not start by itself whenever there happens to be room.
                let problem = Problem::new(
                    "start_not_recorded",
                    "the call was approved, but its start could not be recorded, so it did not run",
                    "propose the call again",
                );
                Err(Stop::Unrecorded(Box::new(Unrecorded::cancelled(problem)), error))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Ends a call that was approved and does not start.
    async fn cancel_approved(&self, approval: &ApprovalRecord, problem: Problem) -> Stop {
        let (from, state) = (CallState::Approved, CallState::Cancelled);
        match self.journal().end_call(&approval.call_id, from, state, problem.clone()).await {
            Ok(outcome) => Stop::Ended(outcome),
            Err(error) if error.may_pass() => Stop::Unrecorded(Box::new(Unrecorded::cancelled(problem)), error),
            Err(error) => error.into(),
        }
    }

    /// Waits until an approval has ended, in whatever way.
    async fn wait(
        &self,
        approval: &ApprovalRecord,
        answer: oneshot::Receiver<Arc<ApprovalRecord>>,
        live: &LiveCall,
    ) -> Result<Arc<ApprovalRecord>, Stop> {
        let left = self.clock().now().until(approval.expires_at);
        let unanswered = tokio::select! {
            answered = answer => return Ok(match answered {
                Ok(record) => record,
                Err(_) => Arc::new(self.journal().approval(&approval.approval_id).await?),
            }),
            () = tokio::time::sleep(left) => self.expired(approval),
            () = live.cancel().cancelled() => self.withdrawn(approval, match live.withdrawn() {
                Some(Withdrawal::By(who)) => who.clone(),
                Some(Withdrawal::ShuttingDown) | None => Principal::daemon(),
            }),
            () = self.closing().cancelled() => return Err(Stop::Failed(EngineError::new(
                ErrorKind::Unavailable,
                Problem::new(
                    "shutting_down",
                    "the daemon is shutting down; the approval stays open",
                    format!("after the restart, decide it: `palyra approvals show {}`", approval.approval_id),
                ),
            ))),
        };
        self.end_unanswered(approval, unanswered).await
    }

    /// Ends an approval that nobody answered, unless somebody was faster.
    async fn end_unanswered(
        &self,
        approval: &ApprovalRecord,
        unanswered: Resolve,
    ) -> Result<Arc<ApprovalRecord>, Stop> {
        match self.settle_approval(unanswered.clone(), None).await {
            Ok(ended) => Ok(ended),
            Err(JournalError::AlreadyResolved { .. }) => {
                Ok(Arc::new(self.journal().approval(&approval.approval_id).await?))
            }
            Err(error) => Err(Stop::Unrecorded(Box::new(Unrecorded::Approval(Box::new(unanswered))), error)),
        }
    }

    /// How an approval ends whose time is over.
    pub(crate) fn expired(&self, approval: &ApprovalRecord) -> Resolve {
        let hint = "propose the call again when a person can answer";
        let problem = Problem::new("approval_expired", "no person answered the approval in time", hint);
        self.unanswered(approval, ApprovalState::Expired, Principal::daemon(), problem)
    }

    /// How an approval ends whose call somebody withdrew.
    fn withdrawn(&self, approval: &ApprovalRecord, who: Principal) -> Resolve {
        let problem = Problem::plain("cancelled", format!("`{who}` withdrew the call before anybody answered"));
        self.unanswered(approval, ApprovalState::Cancelled, who, problem)
    }

    /// How an approval ends that the daemon takes back.
    pub(crate) fn cancelled(&self, approval: &ApprovalRecord, problem: Problem) -> Resolve {
        self.unanswered(approval, ApprovalState::Cancelled, Principal::daemon(), problem)
    }

    /// How an approval ends without an answer. One whose token is gone ends for that reason.
    fn unanswered(&self, approval: &ApprovalRecord, state: ApprovalState, by: Principal, problem: Problem) -> Resolve {
        let (state, by, problem) = match self.token_gone(approval.token.as_ref()) {
            Some(gone) => (ApprovalState::Cancelled, Principal::daemon(), gone),
            None => (state, by, problem),
        };
        Resolve {
            approval_id: approval.approval_id.clone(),
            state,
            resolution: ApprovalResolution {
                by,
                token: None,
                at: self.clock().now(),
                scope: ApprovalScope::Once,
                matcher: GrantMatcher::ExactCall,
                reason: None,
                grant: None,
                signature: None,
            },
            grant: None,
            problem: Some(problem),
        }
    }

    /// Counts an approval that is about to wait, unless too many do.
    pub(crate) fn count_approval(&self, approval: &ApprovalRecord, limits: Option<&CallLimits>) -> Result<(), Problem> {
        let bytes = serde_json::to_vec(approval).map_err(|e| Problem::plain("internal", e.to_string()))?.len();
        self.live().ask(&approval.call_id, bytes, limits)
    }

    fn approval_about(&self, asked: &AskableCall) -> ApprovalRecord {
        let (call, decision) = (asked.call(), asked.decision());
        let (now, origin) = (self.clock().now(), call.origin());
        // Nobody watches a routine: its questions wait as long as changes do.
        let of_routine = call.origin().session.as_str().starts_with(ROUTINE_SESSION);
        let config = self.config();
        let wait = if of_routine { config.effects.approval_timeout } else { config.approval_timeout };
        let patience = now.plus(wait.max(config.approval_timeout));
        let token_expiry = origin.token.as_ref().and_then(|token| self.token_expiry(token));
        ApprovalRecord {
            approval_id: ApprovalId::mint(),
            call_id: call.id().clone(),
            subject_id: call.subject_id(),
            subject: ApprovalSubject::ToolCall,
            tool: call.tool().clone(),
            call_digest: call.digest(),
            decision_id: decision.decision_id.clone(),
            policy_hash: decision.policy_hash,
            risk: self.metadata(call.tool()).risk,
            principal: origin.principal.clone(),
            proposed_by: origin.proposed_by.clone(),
            token: origin.token.clone(),
            workspace: origin.workspace.clone(),
            session: origin.session.clone(),
            input: call.input().clone(),
            facets: call.facets().clone(),
            why: decision.summary.clone(),
            requested_at: now,
            // No approval outlives the token that its call was proposed with.
            expires_at: token_expiry.map_or(patience, |expiry| expiry.min(patience)),
            people: decision.people.max(1),
            fresh: decision.fresh,
            given: Vec::new(),
            state: ApprovalState::Pending,
            resolution: None,
        }
    }
}

impl From<NotApproved> for Problem {
    fn from(why: NotApproved) -> Self {
        let again = "propose the call again";
        match why {
            NotApproved::OtherRules => Self::new(
                "policy_changed",
                "the policy changed after this call was shown, so the answer no longer holds",
                again,
            ),
            NotApproved::OtherCall => Self::new(
                "call_changed",
                "what would run is no longer what was shown and approved: a file or program it names has changed",
                again,
            ),
        }
    }
}

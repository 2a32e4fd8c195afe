//! The permit: the witness that a call may be carried out.

use crate::flow::decide::{AllowedCall, AskableCall, GrantableCall};
use crate::flow::resolve::ResolvedCall;
use crate::work::Work;
use palyra_protocol::{ApprovalRecord, ApprovalState, Authority, DecisionId, GrantId, ToolCall};

/// A call that was decided and, where policy says so, approved.
///
/// INVARIANT (no_execution_without_permit): private fields, no `Clone`, and three constructors, all in this file. Each
/// takes a call together with the decision about it: one that allows, or one that needs people together with their
/// authority. An executor takes `Recorded<Permit>` by value, so a permit is carried out at most once and only after its
/// intent is durable.
#[derive(Debug)]
pub struct Permit {
    resolved: ResolvedCall,
    decision_id: DecisionId,
    authority: Authority,
}

/// Why an approval is none for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotApproved {
    /// Other rules ask, or ask for more people.
    OtherRules,
    /// It is about another call, or about what this one was before.
    OtherCall,
}

impl Permit {
    /// Policy allows the call.
    pub(crate) fn by_policy(call: AllowedCall) -> Self {
        let (resolved, decision_id) = call.into_parts();
        Self { resolved, decision_id, authority: Authority::Policy }
    }

    /// A grant covers the call. Whether it still does is found out in the transaction that uses it.
    pub(crate) fn by_grant(call: GrantableCall, grant: GrantId) -> Self {
        let (resolved, decision_id) = call.into_parts();
        Self { resolved, decision_id, authority: Authority::Grant(grant) }
    }

    /// People approved this very call.
    ///
    /// # Errors
    /// They approved something else, or under other rules.
    pub(crate) fn by_approval(call: AskableCall, approval: &ApprovalRecord) -> Result<Self, NotApproved> {
        let decision = call.decision();
        if approval.policy_hash != decision.policy_hash || approval.people < decision.people {
            return Err(NotApproved::OtherRules);
        }
        let shown = (&approval.call_id, approval.call_digest, approval.state);
        if shown != (call.call().id(), call.call().digest(), ApprovalState::Allowed) || !approval.subject.is_call() {
            return Err(NotApproved::OtherCall);
        }
        let authority = Authority::Approval(approval.approval_id.clone());
        // The decision that is on record is the one that people were asked under.
        Ok(Self { resolved: call.into_resolved(), decision_id: approval.decision_id.clone(), authority })
    }

    /// The call.
    #[must_use]
    pub fn call(&self) -> &ToolCall {
        &self.resolved.call
    }

    /// What allowed it besides policy.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The decision that allowed it.
    #[must_use]
    pub fn decision_id(&self) -> &DecisionId {
        &self.decision_id
    }

    /// Spends the permit for the work it permits.
    pub(crate) fn spend(self) -> (ToolCall, DecisionId, Authority, Work) {
        (self.resolved.call, self.decision_id, self.authority, self.resolved.work)
    }
}

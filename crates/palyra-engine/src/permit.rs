//! The permit: the witness that a call may be carried out.

use crate::resolve::ResolvedCall;
use crate::work::Work;
use palyra_protocol::{Authority, DecisionId, DecisionKind, ToolCall, ToolDecision};

/// A call that was decided and, where policy says so, approved.
///
/// INVARIANT (no_execution_without_permit): private fields, no `Clone`, and two constructors, both in this file: one takes
/// a decision that allows, the other the authority of a human. An executor takes `Recorded<Permit>` by value, so a
/// permit is carried out at most once and only after its intent is durable.
#[derive(Debug)]
pub struct Permit {
    resolved: ResolvedCall,
    decision_id: DecisionId,
    authority: Authority,
}

impl Permit {
    /// Policy allows the call as things stand.
    ///
    /// # Errors
    /// The decision does not allow it; the call is given back.
    pub(crate) fn by_policy(resolved: ResolvedCall, decision: &ToolDecision) -> Result<Self, ResolvedCall> {
        match decision.decision {
            DecisionKind::Allow => {
                Ok(Self { resolved, decision_id: decision.decision_id.clone(), authority: Authority::Policy })
            }
            DecisionKind::NeedsApproval | DecisionKind::Deny => Err(resolved),
        }
    }

    /// Policy allows the call with a human's approval, and there is one: an answer, or a grant that came of one.
    ///
    /// # Errors
    /// The decision denies whatever a human says, or the authority is not a human's; the call is given back.
    pub(crate) fn by_human(
        resolved: ResolvedCall,
        decision: (DecisionKind, DecisionId),
        authority: Authority,
    ) -> Result<Self, ResolvedCall> {
        match (decision, &authority) {
            ((DecisionKind::NeedsApproval, decision_id), Authority::Approval(_) | Authority::Grant(_)) => {
                Ok(Self { resolved, decision_id, authority })
            }
            _ => Err(resolved),
        }
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

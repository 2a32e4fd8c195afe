//! The permit: the witness that a call may be carried out.

use crate::flow::resolve::ResolvedCall;
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
    pub(crate) fn by_policy(resolved: ResolvedCall, decision: &ToolDecision) -> Result<Self, Box<ResolvedCall>> {
        match decision.decision {
            DecisionKind::Allow => {
                Ok(Self { resolved, decision_id: decision.decision_id.clone(), authority: Authority::Policy })
            }
            DecisionKind::NeedsApproval | DecisionKind::Deny => Err(Box::new(resolved)),
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
    ) -> Result<Self, Box<ResolvedCall>> {
        match (decision, &authority) {
            ((DecisionKind::NeedsApproval, decision_id), Authority::Approval(_) | Authority::Grant(_)) => {
                Ok(Self { resolved, decision_id, authority })
            }
            _ => Err(Box::new(resolved)),
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

#[cfg(test)]
mod tests {
    use super::*;
    use palyra_protocol::call::ToolCallParts;
    use palyra_protocol::{ApprovalId, CallId, CanonicalJson, Digest, Facets, GrantId, Origin, Principal};

    fn resolved() -> ResolvedCall {
        let origin = Origin {
            principal: "agent:demo".parse().unwrap(),
            proposed_by: Principal::local_owner(),
            channel: "cli".parse().unwrap(),
            device: None,
            session: "s".parse().unwrap(),
            run: "r".parse().unwrap(),
            request: None,
            token: None,
        };
        let call = ToolCall::new(ToolCallParts {
            id: CallId::mint(),
            tool: "palyra.echo".parse().unwrap(),
            input: CanonicalJson::parse(b"{}").unwrap(),
            workspace_root: "/srv".to_owned(),
            facets: Facets::default(),
            origin,
            idempotency_key: None,
        });
        ResolvedCall { call: call.unwrap(), work: Work::Echo { text: String::new() } }
    }

    fn decision(decision: DecisionKind) -> ToolDecision {
        ToolDecision {
            decision_id: DecisionId::mint(),
            decision,
            policy_hash: Digest::ZERO,
            rules: vec![],
            summary: String::new(),
            people: 0,
            basis: None,
            denial: None,
            explanation: serde_json::Value::Null,
        }
    }

    #[test]
    fn no_execution_without_permit() {
        use DecisionKind::{Allow, Deny, NeedsApproval};
        for (kind, permitted) in [(Allow, true), (NeedsApproval, false), (Deny, false)] {
            assert_eq!(Permit::by_policy(resolved(), &decision(kind)).is_ok(), permitted, "{kind:?} by policy");
        }
        let humans = [Authority::Approval(ApprovalId::mint()), Authority::Grant(GrantId::mint())];
        for (kind, permitted) in [(Allow, false), (NeedsApproval, true), (Deny, false)] {
            for authority in &humans {
                let permit = Permit::by_human(resolved(), (kind, DecisionId::mint()), authority.clone());
                assert_eq!(permit.is_ok(), permitted, "{kind:?} by a human");
            }
        }
        let nobody = Permit::by_human(resolved(), (NeedsApproval, DecisionId::mint()), Authority::Policy);
        assert!(nobody.is_err(), "policy is not a human");
    }
}

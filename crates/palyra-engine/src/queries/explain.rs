//! What would be decided about a call, and why.

use crate::access::VerifiedPeer;
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use crate::flow::decide::{Asked, Detail, decide};
use crate::flow::propose::Proposal;
use palyra_policy::{PolicyAction, PolicyEngine, PolicyFile, PolicyResource};
use palyra_protocol::{CallId, CallRecord, DecisionKind, ToolCall, ToolDecision};
use std::sync::Arc;

impl Engine {
    /// What would be decided about a call, and why. Nothing is recorded or carried out.
    ///
    /// # Errors
    /// The proposal is no call, or the peer may not ask.
    pub async fn explain(
        &self,
        peer: &VerifiedPeer,
        proposal: Proposal,
    ) -> Result<(Arc<CallRecord>, ToolDecision), EngineError> {
        self.explain_by(peer, proposal, None).await
    }

    /// The same by the rules of a candidate, whose cases are not run.
    ///
    /// # Errors
    /// As for [`Engine::explain`]; or the candidate's rules may not run.
    pub async fn explain_by(
        &self,
        peer: &VerifiedPeer,
        proposal: Proposal,
        candidate: Option<Vec<PolicyFile>>,
    ) -> Result<(Arc<CallRecord>, ToolDecision), EngineError> {
        // The owner who asks about an agent's call asks in their own name.
        self.authorize_as(peer.principal(), peer, PolicyAction::PolicyExplain, PolicyResource::PolicySet, None)?;
        let policy = match candidate {
            None => self.policy(),
            Some(files) => {
                self.authorize_as(
                    peer.principal(),
                    peer,
                    PolicyAction::PolicySimulate,
                    PolicyResource::PolicySet,
                    None,
                )?;
                self.untried_candidate(files).await?
            }
        };
        let room = self.room_for_call(peer, &proposal.tool);
        let token = room.as_ref().map_or_else(|_| peer.token().cloned(), Clone::clone);
        let here = self.in_workspace_of(peer)?;
        let (call, mut decision) = match here.resolve(&CallId::mint(), &here.alleged(peer, token, proposal)).await {
            Ok(resolved) => {
                let mut decision = decide(&policy, self.tool_facts(), &resolved.call, Detail::Full);
                self.explain_waivers(&policy, &resolved.call, &mut decision);
                (resolved.call, decision)
            }
            Err(refusal) => {
                let denied = self.decide_unresolved(&policy, refusal, Detail::Full);
                let denied = denied.map_err(|refusal| EngineError::new(ErrorKind::Invalid, refusal.problem))?;
                (denied.call().clone(), denied.decision().clone())
            }
        };
        // What stops the call before policy is asked is the truth about it, whatever policy would say.
        if let Err(barred) = room {
            decision.decision = DecisionKind::Deny;
            decision.rules.clear();
            decision.denial = None;
            (decision.people, decision.fresh) = (0, false);
            decision.summary = barred.problem.message.clone();
            decision.explanation = serde_json::json!({ "decided_by": barred.problem.code, "problem": barred.problem });
        }
        if decision.decision == DecisionKind::NeedsApproval
            && let Some(denial) = self.live_denial(&call, decision.policy_hash).await?
        {
            let problem = self.denied_before(&denial).await?;
            decision.decision = DecisionKind::Deny;
            decision.summary = format!("{} (`{denial}`). Without it: {}", problem.message, decision.summary);
        } else if decision.decision == DecisionKind::NeedsApproval && !decision.fresh {
            self.explain_grant(&call, &mut decision).await?;
        }
        Ok((call.record(), decision))
    }

    /// Says of a call that a person would have to approve which rules nearly stood in for them, and what they wait for.
    fn explain_waivers(&self, policy: &PolicyEngine, call: &ToolCall, decision: &mut ToolDecision) {
        if decision.decision != DecisionKind::NeedsApproval {
            return;
        }
        let basis = self.tool_facts().basis(call.tool(), call.facets());
        let (tool, workspace, origin, facets) = (call.tool(), call.workspace_root(), call.origin(), call.facets());
        let (request, context) = Asked { tool, workspace, origin, facets, basis: &basis }.question();
        let nearly = policy.nearly_waived(&request, &context);
        let nearly = serde_json::to_value(nearly).unwrap_or_else(|e| serde_json::json!(e.to_string()));
        if let Some(fields) = decision.explanation.as_object_mut() {
            fields.insert("nearly_waived".to_owned(), nearly);
        }
    }

    /// Says of a call that a person would have to approve that one has: a standing grant covers it.
    async fn explain_grant(&self, call: &ToolCall, decision: &mut ToolDecision) -> Result<(), EngineError> {
        let Some(grant) = self.live_grant(call, decision.policy_hash).await? else { return Ok(()) };
        decision.decision = DecisionKind::Allow;
        decision.people = 0;
        decision.summary = format!("A grant covers this call: `{grant}`. Without it: {}", decision.summary);
        if let Some(fields) = decision.explanation.as_object_mut() {
            fields.insert("grant".to_owned(), serde_json::json!(grant));
        }
        Ok(())
    }
}

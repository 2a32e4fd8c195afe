//! Decide: Cedar is asked as things stand, and as they would stand with a human's approval.

use crate::engine::Engine;
use palyra_policy::{PolicyAction, PolicyExplanation, PolicyRequest, PolicyRequestContext, PolicyResource};
use palyra_protocol::{DecisionId, DecisionKind, Problem, ToolCall, ToolDecision};

impl Engine {
    /// What policy says about a call, explained as far as the journal and the caller need it.
    pub(crate) fn decide(&self, call: &ToolCall) -> ToolDecision {
        self.ask_policy(call, Detail::AsNeeded)
    }

    /// What policy says about a call, fully explained.
    pub(crate) fn decide_in_full(&self, call: &ToolCall) -> ToolDecision {
        self.ask_policy(call, Detail::Full)
    }

    fn ask_policy(&self, call: &ToolCall, detail: Detail) -> ToolDecision {
        let (request, context) = self.policy_question(call);
        let policy = self.policy();
        let verdict = policy.decide(&request, &context);
        let (decision, explanation) = (verdict.kind(), verdict.explanation());
        ToolDecision {
            decision_id: DecisionId::mint(),
            decision,
            policy_hash: policy.policy_hash(),
            rules: explanation.rule_ids(),
            summary: explanation.summary(),
            explanation: document(explanation, decision, detail),
        }
    }

    fn policy_question(&self, call: &ToolCall) -> (PolicyRequest, PolicyRequestContext) {
        let origin = call.origin();
        let request = PolicyRequest {
            principal: origin.principal.clone(),
            action: PolicyAction::ToolExecute,
            resource: PolicyResource::Tool(call.tool().as_str().to_owned()),
        };
        let metadata = self.metadata(call.tool());
        let context = PolicyRequestContext {
            device_id: origin.device.clone(),
            session_id: Some(origin.session.clone()),
            run_id: Some(origin.run.clone()),
            proposed_by: Some(origin.proposed_by.clone()),
            tool: Some(call.tool().as_str().to_owned()),
            is_allowlisted_tool: self.config().allowed_tools.contains(call.tool()),
            ..PolicyRequestContext::for_tool(origin.channel.clone(), metadata, call.facets().clone())
        };
        (request, context)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Detail {
    AsNeeded,
    Full,
}

/// The explanation as a document; for a plain yes only the rules matter, and the hot path does not pay for more.
fn document(explanation: &PolicyExplanation, decision: DecisionKind, detail: Detail) -> serde_json::Value {
    if decision == DecisionKind::Allow && detail == Detail::AsNeeded {
        return serde_json::Value::Null;
    }
    let record = explanation.record(match detail {
        Detail::AsNeeded => palyra_policy::Detail::Brief,
        Detail::Full => palyra_policy::Detail::WithRuleText,
    });
    serde_json::to_value(record).unwrap_or_else(|e| serde_json::json!({ "error": e.to_string() }))
}

/// What a caller whose call was denied is told.
pub(crate) fn denial(call: &ToolCall, decision: &ToolDecision) -> Problem {
    Problem::new(
        "policy_denied",
        format!("policy denies `{}` for `{}`: {}", call.tool(), call.origin().principal, decision.summary),
        "see why and what would change it: `palyra policy explain` with the same call",
    )
}

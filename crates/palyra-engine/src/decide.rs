//! Decide: Cedar is asked as things stand, and as they would stand with a human's approval.

use crate::config::ToolCallConfig;
use crate::engine::Engine;
use palyra_policy::{PolicyAction, PolicyEngine, PolicyRequest, PolicyRequestContext, PolicyResource, Verdict};
use palyra_protocol::{
    DecisionBasis, DecisionId, Facets, Origin, Problem, RiskLevel, ToolCall, ToolCapability, ToolDecision,
    ToolMetadata, ToolName,
};
use std::collections::HashMap;
use std::sync::LazyLock;

impl Engine {
    /// What policy says about a call, explained as far as the journal and the caller need it.
    pub(crate) fn decide(&self, call: &ToolCall) -> ToolDecision {
        decide(&self.policy(), self.tool_facts(), call, Detail::AsNeeded)
    }

    /// What policy says about a call that has turned out to touch something else than it named.
    pub(crate) fn decide_again(&self, call: &ToolCall, facets: &Facets) -> ToolDecision {
        decide_about(&self.policy(), self.tool_facts(), (call, facets), Detail::AsNeeded)
    }

    /// What policy says about a call, fully explained.
    pub(crate) fn decide_in_full(&self, call: &ToolCall) -> ToolDecision {
        decide(&self.policy(), self.tool_facts(), call, Detail::Full)
    }
}

/// What policy needs to know of tools besides what a call says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ToolFacts<'a> {
    pub(crate) metadata: &'a HashMap<ToolName, ToolMetadata>,
    pub(crate) config: &'a ToolCallConfig,
}

/// A tool without an entry counts as having every capability.
pub(crate) fn known_or_worst<'m>(known: &'m HashMap<ToolName, ToolMetadata>, tool: &ToolName) -> &'m ToolMetadata {
    static WORST: LazyLock<ToolMetadata> =
        LazyLock::new(|| ToolMetadata { capabilities: ToolCapability::ALL.into(), risk: RiskLevel::Critical });
    known.get(tool).unwrap_or(&WORST)
}

impl ToolFacts<'_> {
    pub(crate) fn basis(self, tool: &ToolName) -> DecisionBasis {
        let metadata = known_or_worst(self.metadata, tool);
        DecisionBasis {
            allowlisted: self.config.allowed_tools.contains(tool),
            capabilities: metadata.capabilities.iter().copied().collect(),
            risk: metadata.risk,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    AsNeeded,
    Full,
}

/// What a set of rules says about a call.
pub(crate) fn decide(policy: &PolicyEngine, facts: ToolFacts<'_>, call: &ToolCall, detail: Detail) -> ToolDecision {
    decide_about(policy, facts, (call, call.facets()), detail)
}

/// What a set of rules says about a call, if this is what it touches.
fn decide_about(
    policy: &PolicyEngine,
    facts: ToolFacts<'_>,
    (call, facets): (&ToolCall, &Facets),
    detail: Detail,
) -> ToolDecision {
    let basis = facts.basis(call.tool());
    let asked =
        Asked { tool: call.tool(), workspace: call.workspace_root(), origin: call.origin(), facets, basis: &basis };
    let (request, context) = asked.question();
    let verdict = policy.decide(&request, &context);
    ToolDecision {
        decision_id: DecisionId::mint(),
        decision: verdict.kind(),
        policy_hash: policy.policy_hash(),
        rules: verdict.rule_ids(),
        summary: verdict.summary(),
        people: verdict.people(),
        denial: match &verdict {
            Verdict::Deny(explanation) => Some(Box::new(explanation.denial())),
            Verdict::Allow(_) | Verdict::Waived { .. } | Verdict::NeedsApproval { .. } => None,
        },
        explanation: document(&verdict, detail),
        basis: Some(basis),
    }
}

/// A call as policy is asked about it: now, or again from the journal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) tool: &'a ToolName,
    pub(crate) workspace: &'a str,
    pub(crate) origin: &'a Origin,
    pub(crate) facets: &'a Facets,
    pub(crate) basis: &'a DecisionBasis,
}

impl Asked<'_> {
    /// The question, with everything that the daemon knows about the call.
    pub(crate) fn question(self) -> (PolicyRequest, PolicyRequestContext) {
        let Self { tool, workspace, origin, facets, basis } = self;
        let request = PolicyRequest {
            principal: origin.principal.clone(),
            action: PolicyAction::ToolExecute,
            resource: PolicyResource::Tool(tool.as_str().to_owned()),
        };
        let issuers = origin.token.as_ref().map_or_else(Vec::new, |token| token.issuers.clone());
        // A token limits its own principal; whoever acts as an agent has the agent's place.
        let limited = origin.token.as_ref().filter(|_| origin.principal == origin.proposed_by);
        let context = PolicyRequestContext {
            role: limited.map(|token| token.role),
            issued_by: issuers.clone(),
            proposal_issued_by: issuers,
            device_id: origin.device.clone(),
            workspace: Some(workspace.to_owned()),
            session_id: Some(origin.session.clone()),
            run_id: Some(origin.run.clone()),
            proposed_by: Some(origin.proposed_by.clone()),
            tool: Some(tool.as_str().to_owned()),
            capabilities: basis.capabilities.clone(),
            risk: Some(basis.risk),
            is_sensitive_action: basis.capabilities.iter().any(|capability| capability.is_sensitive()),
            is_allowlisted_tool: basis.allowlisted,
            facets: facets.clone(),
            ..PolicyRequestContext::new(origin.channel.clone())
        };
        (request, context)
    }
}

/// The explanation as a document; for a plain yes only the rules matter, and the hot path does not pay for more.
fn document(verdict: &Verdict, detail: Detail) -> serde_json::Value {
    let plain = matches!(verdict, Verdict::Allow(_));
    if plain && detail == Detail::AsNeeded {
        return serde_json::Value::Null;
    }
    let detail = match detail {
        Detail::AsNeeded => palyra_policy::Detail::Brief,
        Detail::Full => palyra_policy::Detail::WithRuleText,
    };
    let record = serde_json::to_value(verdict.explanation().record(detail));
    let mut document = record.unwrap_or_else(|e| serde_json::json!({ "error": e.to_string() }));
    if let (Some(waiver), Some(fields)) = (verdict.waiver(), document.as_object_mut()) {
        fields.insert("waiver".to_owned(), serde_json::to_value(waiver.record(detail)).unwrap_or_default());
    }
    document
}

/// What a caller whose call was denied is told.
pub(crate) fn denial(call: &ToolCall, decision: &ToolDecision) -> Problem {
    let message = format!("policy denies `{}` for `{}`: {}", call.tool(), call.origin().principal, decision.summary);
    let hint = decision.denial.as_ref().map(|denial| denial.ask_for.clone());
    Problem { hint, denial: decision.denial.clone(), ..Problem::plain("policy_denied", message) }
}

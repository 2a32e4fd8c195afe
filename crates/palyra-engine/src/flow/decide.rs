//! Decide: Cedar is asked as things stand, as they would stand with a grant, and as they would stand with people's
//! approval.
//!
//! INVARIANT (decision_belongs_to_call): [`Engine::decide`] takes a resolved call and gives back one value that holds
//! the call and the decision about it. The fields are private to this file, so nobody can put another call beside a
//! decision. Permits, approvals and records of the journal are made from that value alone.

use crate::catalog::ToolCatalog;
use crate::config::ToolCallConfig;
use crate::engine::Engine;
use crate::flow::resolve::{Refusal, ResolvedCall};
use crate::memory::Memory;
use palyra_journal::Opening;
use palyra_policy::{
    EffectUse, PolicyAction, PolicyEngine, PolicyRequest, PolicyRequestContext, PolicyResource, Questions, SkillTrust,
    Verdict,
};
use palyra_protocol::{
    ByClient, CallRecord, DecisionBasis, DecisionId, DecisionKind, Facets, MemoryVerb, Origin, Problem, SecretCaller,
    SecretRef, SecretUse, ToolCall, ToolCapability, ToolDecision, ToolName, ToolSource, WorkspaceId,
};
use std::sync::Arc;

/// A call with what policy decided about it, by what may follow.
#[derive(Debug)]
pub(crate) enum Decided {
    /// Policy allows it.
    Allowed(AllowedCall),
    /// A person has to approve it, or a grant that covers it.
    Grantable(GrantableCall),
    /// People have to approve this very call.
    Askable(AskableCall),
    /// Policy denies it, whatever anybody says.
    Denied(DeniedCall),
}

/// A call that policy allows.
#[derive(Debug)]
pub(crate) struct AllowedCall(Judged<ResolvedCall>);

/// A call that a grant may cover.
#[derive(Debug)]
pub(crate) struct GrantableCall(Judged<ResolvedCall>);

/// A call that people are to be asked about.
#[derive(Debug)]
pub(crate) struct AskableCall(Judged<ResolvedCall>);

/// A call that is denied; it need not be one that could be carried out.
#[derive(Debug)]
pub(crate) struct DeniedCall(Judged<ToolCall>);

#[derive(Debug)]
struct Judged<C> {
    call: C,
    decision: Arc<ToolDecision>,
}

impl Judged<ResolvedCall> {
    fn opening(&self, run_limit: u64) -> Opening {
        Opening { call: self.call.call.record(), decision: Arc::clone(&self.decision), run_limit }
    }
}

impl Decided {
    /// The decision.
    pub(crate) fn decision(&self) -> &Arc<ToolDecision> {
        match self {
            Self::Allowed(AllowedCall(judged))
            | Self::Grantable(GrantableCall(judged))
            | Self::Askable(AskableCall(judged)) => &judged.decision,
            Self::Denied(DeniedCall(judged)) => &judged.decision,
        }
    }
}

impl AllowedCall {
    pub(crate) fn decision(&self) -> &ToolDecision {
        &self.0.decision
    }

    /// What the journal records when it starts.
    pub(crate) fn opening(&self, run_limit: u64) -> Opening {
        self.0.opening(run_limit)
    }

    /// For the permit.
    pub(super) fn into_parts(self) -> (ResolvedCall, DecisionId) {
        (self.0.call, self.0.decision.decision_id.clone())
    }
}

impl GrantableCall {
    pub(crate) fn call(&self) -> &ToolCall {
        &self.0.call.call
    }

    pub(crate) fn decision(&self) -> &ToolDecision {
        &self.0.decision
    }

    /// What the journal records when it starts.
    pub(crate) fn opening(&self, run_limit: u64) -> Opening {
        self.0.opening(run_limit)
    }

    /// No grant covers it: a person is asked.
    pub(crate) fn without_grant(self) -> AskableCall {
        AskableCall(self.0)
    }

    /// For the permit.
    pub(super) fn into_parts(self) -> (ResolvedCall, DecisionId) {
        (self.0.call, self.0.decision.decision_id.clone())
    }
}

impl AskableCall {
    pub(crate) fn call(&self) -> &ToolCall {
        &self.0.call.call
    }

    pub(crate) fn decision(&self) -> &ToolDecision {
        &self.0.decision
    }

    /// What the journal records when a person is asked.
    pub(crate) fn opening(&self, run_limit: u64) -> Opening {
        self.0.opening(run_limit)
    }

    /// The call alone: whoever wants a permit for it has it decided again.
    pub(crate) fn into_resolved(self) -> ResolvedCall {
        self.0.call
    }
}

impl DeniedCall {
    /// What the journal records, and what the caller is told.
    pub(crate) fn into_opening(self, run_limit: u64) -> (Opening, Problem) {
        let Judged { call, decision } = self.0;
        let problem = denial(&call, &decision);
        (Opening { call: call.record(), decision, run_limit }, problem)
    }

    pub(crate) fn call(&self) -> &ToolCall {
        &self.0.call
    }

    pub(crate) fn decision(&self) -> &ToolDecision {
        &self.0.decision
    }
}

impl Engine {
    /// What policy says about a call, explained as far as the journal and the caller need it.
    pub(crate) fn decide(&self, call: ResolvedCall) -> Decided {
        let decision = Arc::new(decide(&self.policy(), self.tool_facts(), &call.call, Detail::AsNeeded));
        match decision.decision {
            DecisionKind::Allow => Decided::Allowed(AllowedCall(Judged { call, decision })),
            DecisionKind::NeedsApproval if decision.fresh => Decided::Askable(AskableCall(Judged { call, decision })),
            DecisionKind::NeedsApproval => Decided::Grantable(GrantableCall(Judged { call, decision })),
            DecisionKind::Deny => Decided::Denied(DeniedCall(Judged { call: call.call, decision })),
        }
    }

    /// What is told about a proposal that is no call: where policy forbids what it names, that, and nothing of what is
    /// there.
    pub(crate) fn decide_unresolved(
        &self,
        policy: &PolicyEngine,
        refusal: Refusal,
        detail: Detail,
    ) -> Result<DeniedCall, Refusal> {
        let Some(call) = refusal.named.as_deref().cloned() else { return Err(refusal) };
        let decision = decide(policy, self.tool_facts(), &call, detail);
        match decision.decision {
            DecisionKind::Deny => Ok(DeniedCall(Judged { call, decision: Arc::new(decision) })),
            DecisionKind::Allow | DecisionKind::NeedsApproval => Err(refusal),
        }
    }

    /// What policy says about a call that has turned out to touch something else than it named. No permit comes of it.
    pub(crate) fn decide_again(&self, call: &ToolCall, facets: &Facets) -> ToolDecision {
        decide_about(&self.policy(), self.tool_facts(), (call, facets), Detail::AsNeeded)
    }
}

/// What policy needs to know of tools besides what a call says.
#[derive(Debug)]
pub(crate) struct ToolFacts<'a> {
    pub(crate) catalog: Arc<ToolCatalog>,
    pub(crate) config: &'a ToolCallConfig,
    /// None where calls are only tried out.
    pub(crate) memory: Option<&'a Memory>,
}

impl ToolFacts<'_> {
    pub(crate) fn basis(&self, tool: &ToolName, facets: &Facets) -> DecisionBasis {
        let metadata = self.catalog.metadata(tool);
        let mut capabilities = metadata.capabilities_of(facets);
        if !facets.secrets.is_empty() && !capabilities.contains(&ToolCapability::SecretsRead) {
            capabilities.push(ToolCapability::SecretsRead);
        }
        let allowlisted = self.config.allowed_tools.contains(tool);
        DecisionBasis { allowlisted, capabilities, risk: metadata.risk, recalled_trust: None }
    }

    /// The same with what the caller's session has recalled by now.
    pub(crate) fn basis_now(&self, tool: &ToolName, facets: &Facets, origin: &Origin) -> DecisionBasis {
        let recalled_trust = self.memory.and_then(|memory| memory.recalled_trust(origin));
        DecisionBasis { recalled_trust, ..self.basis(tool, facets) }
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
    let basis = facts.basis_now(call.tool(), facets, call.origin());
    let asked =
        Asked { tool: call.tool(), workspace: call.workspace_root(), origin: call.origin(), facets, basis: &basis };
    let verdict = match asked.questions() {
        Ok(questions) => policy.decide_all(&questions),
        Err(out_of_scope) => return refused_by_scope(policy, call, basis, out_of_scope),
    };
    ToolDecision {
        decision_id: DecisionId::mint(),
        decision: verdict.kind(),
        policy_hash: policy.policy_hash(),
        call_digest: Some(call.digest()),
        rules: verdict.rule_ids(),
        summary: verdict.summary(),
        people: verdict.people(),
        fresh: verdict.is_fresh() || writes_guarded(facets),
        denial: match &verdict {
            Verdict::Deny(explanation) => Some(Box::new(explanation.denial())),
            Verdict::Allow(_) | Verdict::Waived { .. } | Verdict::NeedsApproval { .. } => None,
        },
        explanation: document(&verdict, detail),
        basis: Some(basis),
    }
}

/// The memory and the routine that a call uses, as policy is asked about them.
fn of_own_things(
    request: &PolicyRequest,
    context: &PolicyRequestContext,
    workspace: Option<&WorkspaceId>,
) -> impl Iterator<Item = (PolicyRequest, PolicyRequestContext)> {
    let facets = &context.facets;
    let of_memory = facets.memory.as_ref().map(|used| {
        let kind = used.scope_kind.as_deref().unwrap_or("principal");
        let action = match used.verb {
            MemoryVerb::Search => PolicyAction::MemorySearch,
            MemoryVerb::Retain => PolicyAction::MemoryRetain,
        };
        let scope = match (kind, workspace, &context.session_id) {
            ("workspace", Some(workspace), _) => format!("workspace:{workspace}"),
            ("session", _, Some(session)) => format!("session:{}/{session}", request.principal),
            ("principal", ..) => format!("principal:{}", request.principal),
            _ => kind.to_owned(),
        };
        (action, PolicyResource::Memory(scope), kind != "workspace")
    });
    let of_routine =
        facets.routine.as_ref().map(|used| (used.action, PolicyResource::CronJob(used.routine.clone()), true));
    of_memory.into_iter().chain(of_routine).map(|(action, resource, owned)| {
        let owned_by = owned.then(|| request.principal.clone());
        let asked = PolicyRequest { principal: request.principal.clone(), action, resource };
        (asked, PolicyRequestContext { owned_by, ..context.clone() })
    })
}

/// Whether the client would write guarded paths: no grant for other files covers that.
pub(crate) fn writes_guarded(facets: &Facets) -> bool {
    facets.by_client.as_ref().is_some_and(|by| !by.guarded.is_empty())
}

/// The decision about a call that wants a secret of others: no rule can lift that.
fn refused_by_scope(policy: &PolicyEngine, call: &ToolCall, basis: DecisionBasis, secret: SecretRef) -> ToolDecision {
    let origin = call.origin();
    let summary = format!(
        "`{secret}` is released to callers of its scope `{}`, and `{}` through `{}` is none",
        secret.scope(),
        origin.principal,
        origin.channel
    );
    ToolDecision {
        decision_id: DecisionId::mint(),
        decision: DecisionKind::Deny,
        policy_hash: policy.policy_hash(),
        call_digest: Some(call.digest()),
        rules: Vec::new(),
        summary,
        people: 0,
        fresh: false,
        denial: None,
        explanation: serde_json::Value::Null,
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

impl<'a> Asked<'a> {
    /// A call as it was recorded.
    pub(crate) fn recorded(call: &'a CallRecord, basis: &'a DecisionBasis) -> Self {
        Self { tool: &call.tool, workspace: &call.workspace_root, origin: &call.origin, facets: &call.facets, basis }
    }

    /// What policy is asked: about the call, and about each thing that it uses.
    ///
    /// # Errors
    /// The call wants a secret of others, which no rule can lift.
    pub(crate) fn questions(self) -> Result<Questions, SecretRef> {
        let workspace = self.origin.workspace.clone();
        let (request, context) = self.question();
        let about = |action, resource| PolicyRequest { principal: request.principal.clone(), action, resource };
        let mut uses = Vec::new();
        // The skill comes first: what stands in for the tool's approval stands in for the skill's.
        if let Some(skill) = &context.skill_id {
            uses.push((about(PolicyAction::SkillExecute, PolicyResource::Skill(skill.clone())), context.clone()));
        }
        uses.extend(of_own_things(&request, &context, workspace.as_ref()));
        for SecretUse { secret, .. } in &context.facets.secrets {
            let skill = context.skill_id.as_deref();
            if !secret.scope().admits(SecretCaller { principal: &request.principal, channel: &context.channel, skill })
            {
                return Err(secret.clone());
            }
            // Sensitive: neither a rule that waives approvals of a tool nor a yes to other calls covers it.
            uses.push((about(PolicyAction::VaultGet, PolicyResource::Secret(secret.to_string())), context.clone()));
        }
        if let Some(ByClient { guarded }) = context.facets.by_client.as_ref().filter(|by| !by.guarded.is_empty()) {
            let effect = EffectUse { guarded: guarded.clone(), ..EffectUse::default() };
            let context = PolicyRequestContext { is_sensitive_action: false, effect, ..context.clone() };
            uses.push((PolicyRequest { action: PolicyAction::EffectApply, ..request.clone() }, context));
        }
        Ok(Questions { call: (request, context), uses })
    }

    /// The question about the call itself, with everything that the daemon knows about the call.
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
        let skill = match ToolSource::of(tool) {
            Some(ToolSource::Skill(id)) => Some(id),
            _ => None,
        };
        let publisher = skill.as_deref().and_then(|id| id.split('.').next());
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
            recalled_trust: basis.recalled_trust,
            facets: facets.clone(),
            skill_id: skill.as_deref().map(str::to_owned),
            publisher: publisher.map(str::to_owned),
            trust: facets.skill.as_ref().map(|skill| trust(&skill.trust)),
            ..PolicyRequestContext::new(origin.channel.clone())
        };
        (request, context)
    }
}

/// How far a skill is trusted, as rules name it.
fn trust(word: &str) -> SkillTrust {
    match word {
        "verified" => SkillTrust::Verified,
        "trusted" => SkillTrust::Trusted,
        _ => SkillTrust::Unknown,
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
fn denial(call: &ToolCall, decision: &ToolDecision) -> Problem {
    let message = format!("policy denies `{}` for `{}`: {}", call.tool(), call.origin().principal, decision.summary);
    let hint = decision.denial.as_ref().map(|denial| denial.ask_for.clone());
    Problem { hint, denial: decision.denial.clone(), ..Problem::plain("policy_denied", message) }
}

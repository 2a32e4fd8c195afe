//! What holds for every request, whoever invents it.

use crate::{membership, with_rules};
use cedar_policy::{Authorizer, Decision, Schema};
use palyra_policy::{
    EffectUse, PolicyAction, PolicyDecision, PolicyEngine, PolicyRequest, PolicyRequestContext, PolicyResource,
    PolicySource, SCHEMA_SRC, SkillTrust, Verdict,
};
use palyra_protocol::{
    ApprovalDecision, Containment, ContainmentTier, DecisionKind, Digest, EffectCounts, Environment, Facets,
    NetworkReach, Principal, PrincipalKind, RiskLevel, ToolCapability, WorkspaceRole, WorkspaceUse,
};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use std::sync::LazyLock;

/// Rules that look at everything, so that leaving something out would show.
const NOSY: &str = r#"
@id("nosy_permit") @reason("r") permit (principal is Agent, action == Action::"tool.execute", resource == Tool::"a")
when { context has risk && context.risk == "low" && context.argv_prefixes.contains("a b") };
@id("nosy_forbid") @reason("r") forbid (principal in Group::"tool_callers", action == Action::"tool.execute", resource in Capability::"network")
unless { context has session && context.session == "s" || context.paths_written.isEmpty() };
@id("nosy_paths") @reason("r") forbid (principal, action in [Action::"tool.execute", Action::"skill.execute"], resource)
when { context.written_under.contains("a") && context has read_root && context.read_root like "b*" };
@id("nosy_everywhere") @reason("r") permit (principal == User::"b", action, resource) when { context has device };
@id("nosy_own") @reason("r") permit (principal, action == Action::"grant.list", resource is Grant) when { resource in principal };
@id("nosy_waive") @reason("r") permit (principal, action == Action::"approval.waive", resource)
when { context has workspace && context.workspace.root like "/srv/*" || resource is Skill && resource has trust };
@id("nosy_count") @reason("r") forbid (principal is Agent, action == Action::"tool.execute", resource)
when { context.argv.contains("b") } unless { context.approval_count >= 3 };
@id("nosy_skill") @reason("r") forbid (principal, action, resource is Skill) when { context has proposed_by };
"#;

static DEFAULTS: LazyLock<PolicyEngine> = LazyLock::new(|| PolicyEngine::with_defaults(&membership()).unwrap());
static NOSY_ENGINE: LazyLock<PolicyEngine> = LazyLock::new(|| with_rules(NOSY));

fn principal() -> impl Strategy<Value = Principal> {
    (select(PrincipalKind::ALL.to_vec()), select(vec!["local", "demo", "a", "b"]))
        .prop_map(|(kind, name)| Principal::new(kind, name).unwrap())
}

fn resource(action: PolicyAction) -> BoxedStrategy<PolicyResource> {
    let name = prop_oneof![select(vec!["a", "b"]).prop_map(str::to_owned), any::<String>()];
    let fits = move |name: String| match action {
        PolicyAction::ToolExecute | PolicyAction::ApprovalWaive | PolicyAction::EffectApply => {
            PolicyResource::Tool(name)
        }
        PolicyAction::SkillExecute | PolicyAction::SkillManage => PolicyResource::Skill(name),
        PolicyAction::ApprovalDecide => PolicyResource::Approval(name),
        PolicyAction::GrantList | PolicyAction::GrantRevoke => PolicyResource::Grant(name),
        PolicyAction::CallRead | PolicyAction::CallCancel | PolicyAction::EffectRead | PolicyAction::EffectUndo => {
            PolicyResource::Call(name)
        }
        PolicyAction::VaultGet | PolicyAction::VaultPut | PolicyAction::VaultDelete => PolicyResource::Secret(name),
        PolicyAction::MemorySearch | PolicyAction::MemoryRetain | PolicyAction::MemoryForget => {
            PolicyResource::Memory(name)
        }
        PolicyAction::CronCreate | PolicyAction::CronRun | PolicyAction::CronDelete => PolicyResource::CronJob(name),
        PolicyAction::RunRead | PolicyAction::RunCancel => PolicyResource::Run(name),
        PolicyAction::ModelInvoke => PolicyResource::Model(name),
        PolicyAction::ActAs => PolicyResource::Agent(name),
        PolicyAction::TokenRotate | PolicyAction::TokenRevoke => PolicyResource::Token(name),
        PolicyAction::DeviceRevoke => PolicyResource::Device(name),
        PolicyAction::PolicyExplain
        | PolicyAction::PolicyShow
        | PolicyAction::PolicyReload
        | PolicyAction::PolicySimulate => PolicyResource::PolicySet,
        PolicyAction::JournalRead | PolicyAction::JournalVerify | PolicyAction::JournalCheckpoint => {
            PolicyResource::Journal
        }
        PolicyAction::ToolList
        | PolicyAction::VaultList
        | PolicyAction::VaultManage
        | PolicyAction::DaemonStatus
        | PolicyAction::DaemonStop
        | PolicyAction::ApprovalList
        | PolicyAction::AccessRead
        | PolicyAction::TokenCreate
        | PolicyAction::TokenList
        | PolicyAction::MemberList
        | PolicyAction::MemberManage
        | PolicyAction::AgentManage
        | PolicyAction::FeatureList
        | PolicyAction::FeatureSet
        | PolicyAction::DeviceList
        | PolicyAction::CronList
        | PolicyAction::SkillList
        | PolicyAction::DevicePair
        | PolicyAction::RunStart
        | PolicyAction::CompatChatCreate
        | PolicyAction::CompatModelsList
        | PolicyAction::ConsoleOpen
        | PolicyAction::ConsoleManage
        | PolicyAction::WorkspaceManage => PolicyResource::Daemon,
    };
    name.prop_map(fits).boxed()
}

fn request() -> impl Strategy<Value = PolicyRequest> {
    (principal(), select(PolicyAction::ALL.to_vec())).prop_flat_map(|(principal, action)| {
        resource(action).prop_map(move |resource| PolicyRequest { principal: principal.clone(), action, resource })
    })
}

fn texts() -> impl Strategy<Value = Vec<String>> {
    proptest::collection::vec(
        prop_oneof![select(vec!["a", "b", "a/b", "b/c", "../a"]).prop_map(str::to_owned), any::<String>()],
        0..4,
    )
}

prop_compose! {
    fn containment()(
        tier in select(vec![ContainmentTier::B, ContainmentTier::C]),
        network in select(vec![NetworkReach::None, NetworkReach::Filtered, NetworkReach::Host]),
        workspace in select(vec![WorkspaceUse::View, WorkspaceUse::Live, WorkspaceUse::Direct]),
        hosts in texts(),
        (other_roots, reversible, secrets) in any::<(bool, bool, bool)>(),
    ) -> Containment {
        Containment { tier, network, hosts, workspace, other_roots, reversible, secrets }
    }
}

prop_compose! {
    fn facets()(
        executable in option::of(any::<String>()),
        executables in texts(),
        argv in texts(),
        working_directory in option::of(any::<String>()),
        (names, fed, trees_read, outside) in (texts(), any::<bool>(), texts(), texts()),
        paths_read in texts(),
        paths_written in texts(),
        hosts in texts(),
        (method, containment) in (option::of(any::<String>()), option::of(containment())),
    ) -> Facets {
        let environment = Environment::new(names.iter().map(|name| (name.as_str(), "1")));
        let stdin_sha256 = fed.then_some(Digest::ZERO);
        Facets { executable, executables, argv, working_directory, environment, stdin_sha256, paths_read, trees_read, paths_written, outside, hosts, method, containment, ..Facets::default() }
    }
}

prop_compose! {
    fn context()(
        (channel, device, session, run) in (select(vec!["cli", "web"]), option::of(Just("d")), option::of(select(vec!["s", "t"])), option::of(Just("r"))),
        (proposed_by, owned_by) in (option::of(principal()), option::of(principal())),
        (issued_by, proposal_issued_by) in (
            proptest::collection::vec(principal(), 0..3),
            proptest::collection::vec(principal(), 0..3),
        ),
        (tool, skill_id, publisher) in (option::of(any::<String>()), option::of(any::<String>()), option::of(any::<String>())),
        capabilities in subsequence(ToolCapability::ALL.to_vec(), 0..=4),
        risk in option::of(select(vec![RiskLevel::Low, RiskLevel::High])),
        (is_sensitive_action, is_allowlisted_tool, allow_sensitive_tools) in any::<(bool, bool, bool)>(),
        facets in facets(),
        (workspace, trust, roles, role, approval_count, answer) in (
            option::of(select(vec!["/srv/a", "b"]).prop_map(str::to_owned)),
            option::of(select(vec![SkillTrust::Unknown, SkillTrust::Verified])),
            subsequence(WorkspaceRole::ALL.to_vec(), 0..=3),
            option::of(select(WorkspaceRole::ALL.to_vec())),
            0..3u32,
            option::of(select(vec![ApprovalDecision::Allow, ApprovalDecision::Deny])),
        ),
        (deletes, guarded, bytes) in (texts(), texts(), any::<u64>()),
        (recalled_trust, memory_trust) in (
            option::of(select(palyra_protocol::MemoryTrust::ALL.to_vec())),
            option::of(select(palyra_protocol::MemoryTrust::ALL.to_vec())),
        ),
    ) -> PolicyRequestContext {
        PolicyRequestContext {
            channel: channel.parse().unwrap(),
            device_id: device.map(|d| d.parse().unwrap()),
            session_id: session.map(|s| s.parse().unwrap()),
            run_id: run.map(|r| r.parse().unwrap()),
            proposed_by, owned_by, tool, skill_id, publisher, capabilities, risk,
            is_sensitive_action, is_allowlisted_tool, allow_sensitive_tools, facets,
            recalled_trust, memory_trust,
            workspace, trust, roles, role, issued_by, proposal_issued_by, approval_count, answer,
            effect: EffectUse { deletes, guarded, counts: EffectCounts { deleted: bytes, ..EffectCounts::default() }, bytes },
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(192) })]

    #[test]
    fn nothing_sensitive_is_allowed_without_a_person(request in request(), mut context in context()) {
        // Nobody does this: it is asked about calls, which are what is sensitive.
        prop_assume!(request.action != PolicyAction::ApprovalWaive);
        context.is_sensitive_action = true;
        context.allow_sensitive_tools = false;
        for engine in [&*DEFAULTS, &*NOSY_ENGINE] {
            let evaluation = engine.evaluate_with_context(&request, &context);
            prop_assert_eq!(evaluation.decision, PolicyDecision::DenyByDefault);
            prop_assert!(!matches!(engine.decide(&request, &context), Verdict::Allow(_)));
        }
    }

    #[test]
    fn power_is_sensitive_even_if_nobody_says_so(mut request in request(), mut context in context(), name in any::<String>()) {
        prop_assume!(!context.capabilities.is_empty());
        request.action = PolicyAction::ToolExecute;
        request.resource = PolicyResource::Tool(name);
        context.is_sensitive_action = false;
        context.allow_sensitive_tools = false;
        prop_assert!(!matches!(DEFAULTS.decide(&request, &context), Verdict::Allow(_)));
    }

    #[test]
    fn programs_never_approve(mut request in request(), context in context(), id in any::<String>()) {
        prop_assume!(request.principal.kind() != PrincipalKind::User);
        request.action = PolicyAction::ApprovalDecide;
        request.resource = PolicyResource::Approval(id);
        for engine in [&*DEFAULTS, &*NOSY_ENGINE] {
            prop_assert!(matches!(engine.decide(&request, &context), Verdict::Deny(_)));
        }
    }

    /// Leaving out rules of other scenes and attributes that no rule mentions shows nowhere, and what we build fits the
    /// schema: plain Cedar, with every rule and every attribute, validated, says the same for the same reasons.
    #[test]
    fn cedar_itself_agrees(request in request(), context in context()) {
        // The second time, and with the defaults alone, some answers are remembered.
        for engine in [&*NOSY_ENGINE, &*DEFAULTS, &*DEFAULTS] {
            let raw = engine.raw_parts(&request, &context).unwrap();
            let response = Authorizer::new().is_authorized(&raw.request, raw.all, &raw.entities);
            let evaluation = engine.evaluate_with_context(&request, &context);
            prop_assert_eq!(evaluation.decision == PolicyDecision::Allow, response.decision() == Decision::Allow);
            let mut reasons: Vec<String> = response.diagnostics().reason().map(ToString::to_string).collect();
            reasons.sort();
            prop_assert_eq!(evaluation.explanation.rule_ids(), reasons);
            prop_assert!(evaluation.explanation.errors().is_empty());
        }
    }

    /// A denial always says what would change it, and an allowance never does.
    #[test]
    fn denials_say_what_would_change_them(request in request(), context in context()) {
        let explanation = DEFAULTS.evaluate_with_context(&request, &context).explanation;
        let denied = explanation.decision() == PolicyDecision::DenyByDefault;
        // No default rule waives an approval: nothing short of a new rule would change that, whatever else forbids it.
        if request.action != PolicyAction::ApprovalWaive {
            prop_assert_eq!(denied, !explanation.what_would_change().is_empty());
        }
        prop_assert!(explanation.what_would_change().iter().all(|change| !change.conditions.is_empty()));
        prop_assert!(serde_json::to_value(&explanation).is_ok());
    }

    /// The answer alone is the answer that is explained (kind_is_decide).
    #[test]
    fn kind_is_decide(request in request(), context in context()) {
        prop_assert_eq!(NOSY_ENGINE.kind(&request, &context), NOSY_ENGINE.decide(&request, &context).kind());
    }

    /// A grant never does more than a person's approval, and where a rule counts people it does nothing.
    #[test]
    fn a_grant_is_no_person(request in request(), context in context()) {
        let verdict = NOSY_ENGINE.decide(&request, &context);
        let granted = NOSY_ENGINE.decide_with_grant(&request, &context);
        let covered = verdict.kind() == DecisionKind::NeedsApproval && !verdict.is_fresh();
        let expected = if covered { DecisionKind::Allow } else { verdict.kind() };
        prop_assert_eq!(granted.kind(), expected);
        prop_assert_eq!(granted.is_fresh(), verdict.is_fresh());
    }

    /// Asking with an approval never turns a yes into a no.
    #[test]
    fn approval_never_takes_away(request in request(), mut context in context()) {
        context.allow_sensitive_tools = false;
        let now = DEFAULTS.evaluate_with_context(&request, &context).decision;
        context.allow_sensitive_tools = true;
        let approved = DEFAULTS.evaluate_with_context(&request, &context).decision;
        prop_assert!(now == PolicyDecision::DenyByDefault || approved == PolicyDecision::Allow);
    }

}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn no_text_makes_loading_fail_otherwise_than_by_saying_why(text in any::<String>()) {
        let sources = [PolicySource::defaults(), PolicySource::new("x", text)];
        if let Err(error) = PolicyEngine::load(&sources, &membership()) {
            prop_assert!(!error.flaws().is_empty());
            prop_assert!(error.flaws().iter().all(|flaw| flaw.at.line >= 1 && !flaw.render().is_empty()));
        }
    }
}

#[test]
fn the_schema_has_every_action_and_no_groups_of_them() {
    let (schema, warnings) = Schema::from_cedarschema_str(SCHEMA_SRC).unwrap();
    assert_eq!(warnings.count(), 0);
    let mut in_schema: Vec<_> = schema.actions().map(|uid| uid.id().unescaped().to_owned()).collect();
    let mut ours: Vec<_> = PolicyAction::ALL.iter().map(|action| action.as_str().to_owned()).collect();
    in_schema.sort();
    ours.sort();
    assert_eq!(in_schema, ours);
    assert_eq!(schema.action_groups().count(), 0);
}

#[test]
fn many_names_do_not_grow_anything_and_decide_alike() {
    let context =
        PolicyRequestContext { is_allowlisted_tool: true, ..PolicyRequestContext::new("cli".parse().unwrap()) };
    for n in 0..5_000 {
        let request = PolicyRequest {
            principal: "agent:demo".parse().unwrap(),
            action: PolicyAction::ToolExecute,
            resource: PolicyResource::Tool(format!("tool{}", n % 2_500)),
        };
        assert_eq!(DEFAULTS.evaluate_with_context(&request, &context).decision, PolicyDecision::Allow);
    }
}

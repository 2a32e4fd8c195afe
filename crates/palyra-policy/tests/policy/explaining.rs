//! What explanations say: the rules, the facts, what would change the answer.

use crate::{ask, defaults, listed, with_rules, words};
use palyra_policy::{
    Detail, Effect, ExplanationRecord, Needs, PolicyAction, PolicyDecision, PolicyRequestContext, PolicyResource,
    Verdict,
};
use palyra_protocol::{DecisionKind, Facets};

const ECHO: &str = "tool:palyra.echo";

fn fact<'r>(record: &'r ExplanationRecord, name: &str) -> &'r str {
    &record.facts.iter().find(|fact| fact.name == name).unwrap_or_else(|| panic!("{name} in {record:#?}")).value
}

#[test]
fn an_allowance_names_its_rule_and_facts() {
    let evaluation = defaults().evaluate_with_context(&ask("agent:demo", PolicyAction::ToolExecute, ECHO), &listed());
    assert_eq!(evaluation.decision, PolicyDecision::Allow);
    let record = evaluation.explanation.record(Detail::Brief);
    assert_eq!(record.rules.iter().map(|rule| rule.id.as_str()).collect::<Vec<_>>(), ["allowlisted_execution"]);
    assert_eq!(fact(&record, "principal"), "agent:demo");
    assert_eq!(fact(&record, "principal in Group::\"tool_callers\""), "true");
    assert_eq!(fact(&record, "context.channel in Group::\"tool_channels\""), "true");
    assert_eq!(fact(&record, "context.is_allowlisted_tool"), "true");
    assert_eq!(fact(&record, "context.channel"), "Channel::\"cli\"");
    assert!(record.what_would_change.is_empty() && record.errors.is_empty());
}

#[test]
fn a_forbid_names_the_exception_that_was_not_met() {
    let context = PolicyRequestContext { is_sensitive_action: true, ..listed() };
    let verdict = defaults().decide(&ask("agent:demo", PolicyAction::ToolExecute, ECHO), &context);
    let json = serde_json::to_value(verdict.record(Detail::Brief)).unwrap();
    assert_eq!(json["decision"], "needs_approval");
    assert_eq!(json["explanation"]["rules"][0]["id"], "deny_sensitive");
    assert_eq!(json["with_approval"]["rules"][0]["id"], "allowlisted_execution");
    let Verdict::NeedsApproval { now, approved, people: 1, fresh: false } = verdict else { panic!("{verdict:?}") };
    let record = now.record(Detail::Brief);
    assert_eq!(record.what_would_change.len(), 1, "the permit already applies");
    let change = &record.what_would_change[0];
    assert_eq!((change.rule.as_str(), change.effect, change.needs), ("deny_sensitive", Effect::Forbid, Needs::Any));
    assert_eq!(change.conditions[0].condition, "context.allow_sensitive_tools");
    assert_eq!(change.conditions[0].hint.as_deref(), Some("a person must approve it"));
    assert_eq!(fact(&record, "context.is_sensitive_action"), "true");
    assert_eq!(approved.rule_ids(), ["allowlisted_execution"]);
    assert_eq!(
        now.to_string(),
        "This action is sensitive and no person has approved it. (deny_sensitive)\n\
         `deny_sensitive` would not forbid it if `context.allow_sensitive_tools` (a person must approve it)."
    );
}

#[test]
fn a_default_denial_names_exactly_what_is_missing() {
    let context = PolicyRequestContext::new("cli".parse().unwrap());
    let request = ask("agent:stranger", PolicyAction::ToolExecute, ECHO);
    let explanation = defaults().evaluate_with_context(&request, &context).explanation;
    let record = explanation.record(Detail::Brief);
    assert!(record.rules.is_empty());
    assert_eq!(record.summary, "No rule permits this.");
    assert_eq!(record.what_would_change.len(), 1);
    let change = &record.what_would_change[0];
    assert_eq!((change.rule.as_str(), change.needs), ("allowlisted_execution", Needs::All));
    let missing: Vec<_> = change.conditions.iter().map(|c| (c.condition.as_str(), c.hint.as_deref())).collect();
    assert_eq!(
        missing,
        [
            ("principal in Group::\"tool_callers\"", Some("add `agent:stranger` to `tool_callers`")),
            ("context.is_allowlisted_tool", Some("add `palyra.echo` to `allowed_tools`")),
        ]
    );
    assert_eq!(fact(&record, "principal in Group::\"tool_callers\""), "false");
}

#[test]
fn a_forbidden_and_unpermitted_request_needs_both() {
    let context =
        PolicyRequestContext { is_sensitive_action: true, ..PolicyRequestContext::new("web".parse().unwrap()) };
    let explanation =
        defaults().evaluate_with_context(&ask("agent:demo", PolicyAction::ToolExecute, ECHO), &context).explanation;
    let changes = explanation.what_would_change();
    assert_eq!(
        changes.iter().map(|change| change.rule.as_str()).collect::<Vec<_>>(),
        ["deny_sensitive", "allowlisted_execution"]
    );
    let hints: Vec<_> = changes[1].conditions.iter().filter_map(|c| c.hint.as_deref()).collect();
    assert_eq!(hints, ["add `palyra.echo` to `allowed_tools`", "add the channel `web` to `tool_channels`"]);
}

#[test]
fn rules_about_somebody_else_are_not_offered() {
    let rules: String = (0..20)
        .map(|n| {
            format!(
                "@id(\"other_{n}\") @reason(\"r\") permit (principal == Agent::\"x{n}\", action == Action::\"tool.execute\", resource);\n"
            )
        })
        .collect();
    let context = PolicyRequestContext::new("cli".parse().unwrap());
    let explanation = with_rules(&rules)
        .evaluate_with_context(&ask("agent:demo", PolicyAction::ToolExecute, ECHO), &context)
        .explanation;
    assert_eq!(
        explanation.what_would_change().iter().map(|c| c.rule.clone()).collect::<Vec<_>>(),
        ["allowlisted_execution"]
    );
}

#[test]
fn of_many_permits_the_nearest_few_are_offered() {
    let rules: String = (0..200)
        .map(|n| {
            let more = if n == 20 { "" } else { " && context.allow_sensitive_tools" };
            format!(
                "@id(\"near_{n}\") @reason(\"r\") permit (principal, action == Action::\"grant.revoke\", resource) when {{ context has run && context.run == \"{n}\"{more} }};\n"
            )
        })
        .collect();
    let context = PolicyRequestContext::new("cli".parse().unwrap());
    let explanation = with_rules(&rules)
        .evaluate_with_context(&ask("user:mia", PolicyAction::GrantRevoke, "grant:g"), &context)
        .explanation;
    let changes = explanation.what_would_change();
    assert_eq!(changes.len(), 5);
    assert!(changes[..2].iter().any(|change| change.rule == "near_20"), "{changes:?}");
    assert!(changes.windows(2).all(|pair| pair[0].conditions.len() <= pair[1].conditions.len()));
}

#[test]
fn only_people_is_said_when_nothing_else_can_be() {
    let context = PolicyRequestContext::new("cli".parse().unwrap());
    let explanation = defaults()
        .evaluate_with_context(&ask("agent:demo", PolicyAction::JournalRead, "journal"), &context)
        .explanation;
    let changes = explanation.what_would_change();
    assert_eq!(changes[0].conditions[0].condition, "principal is User");
    let owner =
        defaults().evaluate_with_context(&ask("user:mia", PolicyAction::GrantRevoke, "grant:g"), &context).explanation;
    assert!(owner.to_string().contains("ask an owner"), "{owner}");
}

#[test]
fn conditions_that_depend_on_an_absent_attribute_are_unmet() {
    let engine = with_rules(
        "@id(\"get_only\") @reason(\"r\") permit (principal, action == Action::\"tool.execute\", resource)
         when { context has method && context.method == \"GET\" && context.hosts.contains(\"a\") }
         unless { context.risk == \"high\" || context.argv.contains(\"x\") };"
            .replace("context.risk ==", "context has risk && context.risk ==")
            .as_str(),
    );
    let mut context = PolicyRequestContext::new("cli".parse().unwrap());
    context.facets = Facets { argv: words("a x"), hosts: words("a"), ..Facets::default() };
    let explanation =
        engine.evaluate_with_context(&ask("device:d", PolicyAction::ToolExecute, ECHO), &context).explanation;
    let change = explanation.what_would_change().into_iter().find(|c| c.rule == "get_only").unwrap();
    let states: Vec<_> = change.conditions.iter().map(|c| (c.condition.as_str(), c.must_be)).collect();
    assert_eq!(
        states,
        [("context has method", true), ("context.method == \"GET\"", true), ("context.argv.contains(\"x\")", false)]
    );
}

#[test]
fn evaluation_errors_deny_and_say_so() {
    let overflow = "context.is_allowlisted_tool && 9223372036854775807 + 1 == 0";
    // Cedar itself would skip a forbid that cannot be evaluated, and allow.
    let engine = with_rules(&format!(
        "@id(\"broken\") @reason(\"r\") forbid (principal, action == Action::\"tool.execute\", resource) when {{ {overflow} }};"
    ));
    let request = ask("agent:demo", PolicyAction::ToolExecute, ECHO);
    let evaluation = engine.evaluate_with_context(&request, &listed());
    assert_eq!(evaluation.decision, PolicyDecision::DenyByDefault);
    assert!(evaluation.explanation.errors()[0].contains("broken"), "{:?}", evaluation.explanation.errors());
    // Callers are told that much; what fails is for those who may see explanations.
    assert_eq!(evaluation.explanation.summary(), "Denied because policy could not be evaluated.");
    assert!(!serde_json::to_string(&evaluation.explanation.denial()).unwrap().contains("9223"));
    assert!(evaluation.explanation.rule_ids().is_empty(), "a permit did not decide a denial");
    assert!(matches!(engine.decide(&request, &listed()), Verdict::Deny(_)));
}

#[test]
fn what_the_schema_does_not_combine_is_denied() {
    let engine = with_rules("@id(\"all\") @reason(\"r\") permit (principal, action, resource);");
    for (action, resource) in
        [(PolicyAction::ToolExecute, "journal"), (PolicyAction::ActAs, "daemon"), (PolicyAction::DaemonStatus, ECHO)]
    {
        let evaluation = engine.evaluate_with_context(&ask("user:local", action, resource), &listed());
        assert_eq!(evaluation.decision, PolicyDecision::DenyByDefault, "{action} {resource}");
        assert_eq!(evaluation.explanation.errors().len(), 1);
        assert_eq!(evaluation.explanation.facts().len(), 3);
    }
}

#[test]
fn a_path_too_deep_to_judge_is_denied() {
    let engine = with_rules(
        "@id(\"infra\") @reason(\"r\") forbid (principal, action == Action::\"tool.execute\", resource) when { context.written_under.contains(\"infra\") };",
    );
    let request = ask("agent:demo", PolicyAction::ToolExecute, ECHO);
    // Whether any rule looks at paths makes no difference, nor does what a person says.
    for engine in [&engine, &defaults()] {
        let mut context = PolicyRequestContext { is_sensitive_action: true, ..listed() };
        context.facets.paths_written = vec!["x/".repeat(100)];
        assert_eq!(engine.decide(&request, &context).kind(), DecisionKind::NeedsApproval, "a workspace has such paths");
        context.facets.paths_written = vec!["x/".repeat(129)];
        let verdict = engine.decide(&request, &context);
        assert_eq!(verdict.kind(), DecisionKind::Deny);
        assert_eq!(engine.kind(&request, &context), DecisionKind::Deny);
        assert!(verdict.summary().contains("128 components"), "{}", verdict.summary());
    }
}

#[test]
fn hostile_names_inject_nothing() {
    let engine = with_rules(
        "@id(\"vip\") @reason(\"r\") permit (principal, action == Action::\"tool.execute\", resource == Tool::\"vip\");",
    );
    let hostile = [
        "vip\"",
        "\"vip",
        "Tool::\"vip\"",
        "vip\" || true || \"",
        "vip\0",
        "v\u{202e}ip",
        "VIP",
        " vip",
        "x::vip",
        "\\\"vip",
        "🦀",
        "",
    ];
    for name in hostile {
        let request = palyra_policy::PolicyRequest {
            principal: "agent:demo".parse().unwrap(),
            action: PolicyAction::ToolExecute,
            resource: PolicyResource::Tool(name.to_owned()),
        };
        let mut context = PolicyRequestContext::new("cli".parse().unwrap());
        context.skill_id = Some(name.to_owned());
        context.publisher = Some(name.to_owned());
        context.facets = Facets {
            argv: vec![name.to_owned()],
            hosts: vec![name.to_owned()],
            paths_read: vec![name.to_owned()],
            ..Facets::default()
        };
        let evaluation = engine.evaluate_with_context(&request, &context);
        assert_eq!(evaluation.decision, PolicyDecision::DenyByDefault, "{name:?}");
        let record = evaluation.explanation.record(Detail::WithRuleText);
        assert!(record.errors.is_empty(), "{record:?}");
        let shown = fact(&record, "resource").to_owned();
        assert!(!shown.chars().any(|c| c.is_control() || c == '\u{202e}'), "{shown:?}");
    }
    assert_eq!(
        engine
            .evaluate_with_context(
                &ask("agent:demo", PolicyAction::ToolExecute, "tool:vip"),
                &PolicyRequestContext::new("cli".parse().unwrap())
            )
            .decision,
        PolicyDecision::Allow
    );
}

#[test]
fn the_record_keeps_its_shape() {
    let context = PolicyRequestContext { is_sensitive_action: true, ..listed() };
    let explanation =
        defaults().evaluate_with_context(&ask("agent:demo", PolicyAction::ToolExecute, ECHO), &context).explanation;
    let json = serde_json::to_value(explanation.record(Detail::Brief)).unwrap();
    assert_eq!(
        json,
        serde_json::json!({
            "decision": "deny_by_default",
            "summary": "This action is sensitive and no person has approved it. (deny_sensitive)",
            "rules": [{
                "id": "deny_sensitive",
                "effect": "forbid",
                "reason": "This action is sensitive and no person has approved it.",
                "source": format!("default.cedar:{}", defaults().rule("deny_sensitive").unwrap().position().line),
            }],
            "facts": [
                {"name": "principal", "value": "agent:demo"},
                {"name": "action", "value": "tool.execute"},
                {"name": "resource", "value": "tool:palyra.echo"},
                {"name": "context.is_sensitive_action", "value": "true"},
                {"name": "context.allow_sensitive_tools", "value": "false"},
            ],
            "what_would_change": [{
                "rule": "deny_sensitive",
                "effect": "forbid",
                "needs": "any",
                "conditions": [{
                    "condition": "context.allow_sensitive_tools",
                    "must_be": true,
                    "code": "persons_approval",
                    "hint": "a person must approve it",
                }],
                "remedy": "Ask a person to approve it.",
            }],
        })
    );
    let back: ExplanationRecord = serde_json::from_value(json).unwrap();
    assert_eq!(back, explanation.record(Detail::Brief));
    let full = serde_json::to_value(&explanation).unwrap();
    assert!(full["rules"][0]["text"].as_str().unwrap().contains("unless { context.allow_sensitive_tools }"));
}

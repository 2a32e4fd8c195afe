//! Rules that stand in for a person, rules that count people, and what past answers suggest.

use crate::{ask, listed, membership, with_rules, words};
use palyra_policy::{
    Detail, EffectUse, PastAnswer, PastDecision, PolicyAction, PolicyEngine, PolicyRequest, PolicyRequestContext,
    Questions, Replay, Verdict, suggest,
};
use palyra_protocol::{
    AskWhom, CallId, DecisionKind, Environment, Facets, MissingCode, RiskLevel, Timestamp, ToolCapability,
};

const WAIVE: &str = r#"
@id("demo_tests") @reason("Testing needs nobody.")
permit (principal == Agent::"demo", action == Action::"approval.waive", resource == Tool::"run")
when { context.argv_prefixes.contains("cargo test") };
"#;
const ALWAYS_ASK: &str = r#"
@id("infra_asks") @reason("Infra asks.")
forbid (principal, action in [Action::"tool.execute", Action::"approval.waive"], resource)
when { context.written_under.contains("infra") } unless { context.allow_sensitive_tools };
"#;
const TWO: &str = r#"
@id("two") @reason("Two people.")
forbid (principal, action == Action::"tool.execute", resource)
when { context.written_under.contains("prod") } unless { context.approval_count >= 2 };
"#;

fn running(line: &str, written: &[&str]) -> PolicyRequestContext {
    let facets = Facets {
        argv: words(line),
        paths_written: written.iter().map(|path| (*path).to_owned()).collect(),
        ..Facets::default()
    };
    PolicyRequestContext {
        capabilities: vec![ToolCapability::ProcessExec],
        is_sensitive_action: true,
        facets,
        ..listed()
    }
}

fn decide(engine: &PolicyEngine, who: &str, context: &PolicyRequestContext) -> Verdict {
    let verdict = engine.decide(&ask(who, PolicyAction::ToolExecute, "tool:run"), context);
    assert_eq!(verdict.kind(), engine.kind(&ask(who, PolicyAction::ToolExecute, "tool:run"), context));
    verdict
}

#[test]
fn a_rule_stands_in_for_a_person_and_says_so() {
    let engine = with_rules(WAIVE);
    let verdict = decide(&engine, "agent:demo", &running("cargo test -q", &[]));
    assert!(matches!(verdict, Verdict::Waived { .. }), "{verdict:?}");
    assert_eq!(verdict.rule_ids(), ["allowlisted_execution", "demo_tests"]);
    assert_eq!(verdict.summary(), "No person is asked: Testing needs nobody. (demo_tests)");
    let record = verdict.record(Detail::WithRuleText);
    assert_eq!(record.decision, DecisionKind::Allow);
    assert!(record.waiver.unwrap().rules[0].text.as_ref().unwrap().contains("approval.waive"));
    for (who, line) in [("agent:demo", "cargo publish"), ("user:mia", "cargo test"), ("agent:demo", "cargo")] {
        assert_eq!(decide(&engine, who, &running(line, &[])).kind(), DecisionKind::NeedsApproval, "{who} {line}");
    }
}

#[test]
fn a_waiver_permits_nothing_by_itself() {
    let wide = r#"@id("wide") @reason("r") permit (principal, action == Action::"approval.waive", resource);"#;
    let forbid = r#"@id("never") @reason("r") forbid (principal, action == Action::"tool.execute", resource) when { context.argv_prefixes.contains("rm") };"#;
    let engine = with_rules(&format!("{wide}\n{forbid}"));
    assert_eq!(decide(&engine, "agent:demo", &running("ls", &[])).kind(), DecisionKind::Allow);
    // Forbidden, not allow-listed, not a caller: a waiver is only an approval.
    assert_eq!(decide(&engine, "agent:demo", &running("rm x", &[])).kind(), DecisionKind::Deny);
    let unlisted = PolicyRequestContext { is_allowlisted_tool: false, ..running("ls", &[]) };
    assert_eq!(decide(&engine, "agent:demo", &unlisted).kind(), DecisionKind::Deny);
    assert_eq!(decide(&engine, "agent:stranger", &running("ls", &[])).kind(), DecisionKind::Deny);
}

#[test]
fn always_asking_wins_over_a_waiver() {
    let engine = with_rules(&format!("{WAIVE}{ALWAYS_ASK}"));
    let verdict = decide(&engine, "agent:demo", &running("cargo test", &["infra/x"]));
    assert_eq!(verdict.kind(), DecisionKind::NeedsApproval);
    assert_eq!(verdict.rule_ids(), ["deny_sensitive", "infra_asks"]);
    assert_eq!(decide(&engine, "agent:demo", &running("cargo test", &["src/x"])).kind(), DecisionKind::Allow);
}

#[test]
fn people_are_counted() {
    let wide = r#"@id("wide") @reason("r") permit (principal, action == Action::"approval.waive", resource);"#;
    for text in [TWO.to_owned(), format!("{TWO}{wide}")] {
        let engine = with_rules(&text);
        let verdict = decide(&engine, "agent:demo", &running("deploy", &["prod/x"]));
        assert_eq!((verdict.kind(), verdict.people()), (DecisionKind::NeedsApproval, 2), "a rule is no second person");
        assert!(verdict.summary().ends_with("2 different people have to approve."), "{}", verdict.summary());
        for (people, kind) in [(0, DecisionKind::Deny), (1, DecisionKind::Deny), (2, DecisionKind::Allow)] {
            let context = PolicyRequestContext {
                allow_sensitive_tools: true,
                approval_count: people,
                ..running("deploy", &["prod/x"])
            };
            assert_eq!(decide(&engine, "agent:demo", &context).kind(), kind, "{people} people");
        }
    }
    // A plain 9 is refused when the rule is read.
    let too_many = with_rules(&TWO.replace(">= 2", ">= 4 + 5"));
    assert_eq!(decide(&too_many, "agent:demo", &running("deploy", &["prod/x"])).kind(), DecisionKind::Deny);
}

/// Where a rule counts people, be it one, grants and waivers count for nobody: this very call is shown to a person.
#[test]
fn one_fresh_answer_can_be_demanded() {
    let wide = r#"@id("wide") @reason("r") permit (principal, action == Action::"approval.waive", resource);"#;
    let one = TWO.replace(">= 2", ">= 1");
    let request = |who: &str| ask(who, PolicyAction::ToolExecute, "tool:run");
    for text in [one.clone(), format!("{one}{wide}")] {
        let engine = with_rules(&text);
        let counted = running("deploy", &["prod/x"]);
        for verdict in [
            engine.decide(&request("agent:demo"), &counted),
            engine.decide_with_grant(&request("agent:demo"), &counted),
        ] {
            assert_eq!((verdict.kind(), verdict.people(), verdict.is_fresh()), (DecisionKind::NeedsApproval, 1, true));
            assert!(verdict.summary().ends_with("A person has to approve this very call."), "{}", verdict.summary());
        }
        let given = PolicyRequestContext { allow_sensitive_tools: true, approval_count: 1, ..counted };
        assert_eq!(engine.decide(&request("agent:demo"), &given).kind(), DecisionKind::Allow);
        let elsewhere = running("deploy", &["test/x"]);
        let verdict = engine.decide(&request("agent:demo"), &elsewhere);
        let waived = text.contains("wide");
        assert_eq!((verdict.kind() == DecisionKind::Allow, verdict.is_fresh()), (waived, false));
        assert_eq!(engine.decide_with_grant(&request("agent:demo"), &elsewhere).kind(), DecisionKind::Allow);
    }
    let never = with_rules(&TWO.replace("unless { context.approval_count >= 2 }", ""));
    let forbidden = never.decide_with_grant(&request("agent:demo"), &running("deploy", &["prod/x"]));
    assert_eq!(forbidden.kind(), DecisionKind::Deny, "a grant lifts no forbid");
}

/// What a call uses is asked about too, and the strictest answer counts in each respect: how many people, and whether
/// a grant would do.
#[test]
fn the_strictest_answer_counts_also_among_those_that_ask() {
    let counted = |id: &str, action: &str, people: u32| {
        format!(
            r#"@id("{id}") @reason("r") forbid (principal, action == Action::"{action}", resource)
            unless {{ context.approval_count >= {people} }};"#
        )
    };
    type Asked = (PolicyRequest, PolicyRequestContext);
    let about = |action, resource: &str| (ask("agent:demo", action, resource), running("ls", &[]));
    let skill = || about(PolicyAction::SkillExecute, "skill:acme.weather");
    let secret = || about(PolicyAction::VaultGet, "secret:vault://global/key");
    let guarded = || {
        let (request, context) = about(PolicyAction::EffectApply, "tool:run");
        let effect = EffectUse { guarded: vec![".git/hooks/pre-commit".to_owned()], ..EffectUse::default() };
        (request, PolicyRequestContext { effect, is_sensitive_action: false, ..context })
    };
    let verdict = |rules: &[&str], used: Asked| {
        let call = about(PolicyAction::ToolExecute, "tool:run");
        let verdict = with_rules(&rules.concat()).decide_all(&Questions { call, uses: vec![used] });
        (verdict.kind(), verdict.people(), verdict.is_fresh())
    };
    let needs = |people, fresh| (DecisionKind::NeedsApproval, people, fresh);
    assert_eq!(verdict(&[], skill()), needs(1, false));
    let (two, one) = (counted("skill", "skill.execute", 2), counted("skill", "skill.execute", 1));
    assert_eq!(verdict(&[&two], skill()), needs(2, true), "the tool asks one person, the skill two");
    assert_eq!(verdict(&[&one], skill()), needs(1, true), "a grant of the tool is none of the skill");
    let waive = |on: &str| {
        format!(r#"@id("waive") @reason("r") permit (principal, action == Action::"approval.waive", resource{on});"#)
    };
    for on in ["", r#" == Tool::"run""#] {
        assert_eq!(verdict(&[&waive(on)], skill()).0, DecisionKind::Allow, "one waiver is for both");
        assert_eq!(verdict(&[&waive(on), &one], skill()), needs(1, true), "a waiver is no person");
    }
    let tool = counted("tool", "tool.execute", 2);
    assert_eq!(verdict(&[&tool], guarded()), needs(2, true), "guarded paths take no person away");
    assert_eq!(verdict(&[&waive("")], guarded()).0, DecisionKind::NeedsApproval);
    let never = r#"@id("never") @reason("r") forbid (principal, action == Action::"vault.get", resource);"#;
    assert_eq!(verdict(&[&waive(""), never], secret()).0, DecisionKind::Deny);
}

/// The waiver of a sensitive call is asked about as what it is: a rule that speaks of sensitive calls holds for it.
#[test]
fn the_waive_question_knows_what_is_sensitive() {
    let wide = r#"@id("wide") @reason("r") permit (principal, action == Action::"approval.waive", resource);"#;
    let asks = r#"@id("asks") @reason("r")
        forbid (principal, action in [Action::"tool.execute", Action::"approval.waive"], resource)
        when { context.is_sensitive_action && context.written_under.contains("infra") }
        unless { context.allow_sensitive_tools };"#;
    let engine = with_rules(&format!("{wide}{asks}"));
    let verdict = decide(&engine, "agent:demo", &running("x", &["infra/x"]));
    assert_eq!(
        (verdict.kind(), verdict.rule_ids()),
        (DecisionKind::NeedsApproval, vec!["asks".into(), "deny_sensitive".into()])
    );
    assert_eq!(decide(&engine, "agent:demo", &running("x", &["src/x"])).kind(), DecisionKind::Allow);
}

#[test]
fn a_denial_tells_what_to_do_and_nothing_of_others() {
    let secret = r#"@id("boss_only") @reason("The boss may.") permit (principal == Agent::"boss", action == Action::"tool.execute", resource == Tool::"run") when { context has session && context.session == "s3cret" };"#;
    let engine = with_rules(secret);
    let denial = |who: &str, context: &PolicyRequestContext| match decide(&engine, who, context) {
        Verdict::Deny(explanation) => explanation.denial(),
        other => panic!("{other:?}"),
    };
    let unlisted = PolicyRequestContext { is_allowlisted_tool: false, ..running("ls", &[]) };
    let told = denial("agent:demo", &unlisted);
    assert_eq!(told.missing.iter().map(|m| m.code).collect::<Vec<_>>(), [MissingCode::ToolNotAllowlisted]);
    assert_eq!((told.ask, told.ask_for.as_str()), (AskWhom::Operator, "ask the operator to allow the tool `run`"));
    let told = denial("agent:stranger", &running("ls", &[]));
    assert_eq!(told.missing[0].code, MissingCode::CallerNotAuthorised);
    let json = serde_json::to_string(&told).unwrap();
    for secret in ["boss", "s3cret", "tool_callers", "Group::"] {
        assert!(!json.contains(secret), "{json}");
    }
    let forbid = with_rules(
        r#"@id("never") @reason("Never here.") @remedy("Use staging.") forbid (principal, action == Action::"tool.execute", resource);"#,
    );
    let Verdict::Deny(explanation) = decide(&forbid, "agent:demo", &running("ls", &[])) else { panic!() };
    let told = explanation.denial();
    assert_eq!((told.rules, told.ask_for), (vec!["never".to_owned()], "Use staging.".to_owned()));
    assert_eq!((told.missing[0].code, told.missing[0].message.as_str()), (MissingCode::ForbiddenByRule, "Never here."));
}

#[test]
fn a_replay_tells_what_shifts() {
    let mut replay = Replay::new(with_rules(&format!("{WAIVE}{TWO}")), 2);
    let call = CallId::mint();
    let mut feed = |who: &str, context: &PolicyRequestContext, decided| {
        let asked = ask(who, PolicyAction::ToolExecute, "tool:run");
        let questions = Questions { call: (asked, context.clone()), uses: vec![] };
        let at = Timestamp::from_unix_ms(1);
        replay.feed(&PastDecision { call_id: &call, at, questions: &questions, decided });
    };
    for _ in 0..5 {
        feed("agent:demo", &running("cargo test", &[]), DecisionKind::NeedsApproval);
    }
    feed("agent:demo", &running("ls", &[]), DecisionKind::NeedsApproval);
    feed("agent:demo", &running("ls", &[]), DecisionKind::Allow);
    feed("agent:stranger", &running("ls", &[]), DecisionKind::NeedsApproval);
    let report = replay.finish();
    assert_eq!((report.replayed, report.unchanged), (8, 1));
    assert_eq!((report.newly_allowed.count, report.newly_allowed.examples.len()), (5, 1), "no two examples alike");
    assert_eq!((report.newly_asking.count, report.newly_denied.count), (1, 1));
    assert_eq!(report.newly_allowed.examples[0].what, "cargo test");
    assert_eq!(report.newly_allowed.examples[0].rules, ["allowlisted_execution", "demo_tests"]);
}

fn answer(who: &str, line: &str, allowed: bool) -> PastAnswer {
    PastAnswer {
        principal: who.parse().unwrap(),
        tool: "run".to_owned(),
        workspace: Some("/srv/pro\"ject".to_owned()),
        channel: "cli".parse().unwrap(),
        capabilities: vec![ToolCapability::ProcessExec],
        risk: Some(RiskLevel::High),
        facets: Facets {
            executable: Some("/usr/bin/make".to_owned()),
            argv: words(line),
            working_directory: Some(".".to_owned()),
            ..Facets::default()
        },
        allowed,
    }
}

#[test]
fn what_was_approved_again_and_again_is_suggested_narrowly() {
    let engine = crate::defaults();
    let mut answers = vec![answer("agent:demo", "make test", true); 4];
    answers.push(answer("agent:demo", "make deploy", true));
    answers.extend(vec![answer("user:mia", "make test", true); 2]);
    let suggested = suggest(&engine, &answers, 3);
    assert_eq!(suggested.len(), 1);
    let suggestion = &suggested[0];
    assert_eq!((suggestion.id.as_str(), suggestion.spared), ("waive_demo_make_test", 4));
    assert_eq!(suggestion.covers, ["make test"]);
    assert!(suggestion.holds(&membership()), "{}\n{}", suggestion.rule, suggestion.cases);
    let tried = engine.with_rules(palyra_policy::PolicySource::new("s.cedar", suggestion.rule.as_str())).unwrap();
    let kind = |past: &PastAnswer| {
        let context =
            PolicyRequestContext { workspace: past.workspace.clone(), facets: past.facets.clone(), ..running("", &[]) };
        tried.kind(&ask(&past.principal.to_string(), PolicyAction::ToolExecute, "tool:run"), &context)
    };
    assert_eq!(kind(&answer("agent:demo", "make test", true)), DecisionKind::Allow);
    for other in [answer("agent:demo", "make deploy", true), answer("user:mia", "make test", true)] {
        assert_eq!(kind(&other), DecisionKind::NeedsApproval);
    }
    let elsewhere = PastAnswer { workspace: Some("/".to_owned()), ..answer("agent:demo", "make test", true) };
    assert_eq!(kind(&elsewhere), DecisionKind::NeedsApproval);
    let mut set = answer("agent:demo", "make test", true);
    set.facets.environment = Environment::new([("MAKEFLAGS", "--eval=x")]);
    assert_eq!(kind(&set), DecisionKind::NeedsApproval, "a variable makes another command");
    assert!(suggest(&engine, &vec![set; 5], 3).is_empty(), "no rule could be as narrow as these approvals");
}

#[test]
fn rules_are_suggested_for_paths_in_other_alphabets() {
    let engine = crate::defaults();
    let there = |line: &str| {
        let mut answer = answer("agent:demo", line, true);
        answer.workspace = Some("/srv/иван/project".to_owned());
        answer.facets.working_directory = Some("документы/plan".to_owned());
        answer
    };
    let suggested = suggest(&engine, &vec![there("make отчёт-final"); 3], 3);
    assert_eq!(suggested.len(), 1);
    assert!(suggested[0].holds(&membership()), "{}\n{}", suggested[0].rule, suggested[0].cases);
    assert!(suggested[0].rule.contains("/srv/иван/project"), "{}", suggested[0].rule);
}

#[test]
fn nothing_is_suggested_that_a_person_denied_or_that_asks_for_good_reason() {
    let mut answers = vec![answer("agent:demo", "make test", true); 5];
    answers.push(answer("agent:demo", "make test", false));
    assert!(suggest(&crate::defaults(), &answers, 3).is_empty());
    let always =
        with_rules(r#"@id("always") @reason("r") forbid (principal, action == Action::"approval.waive", resource);"#);
    assert!(suggest(&always, &vec![answer("agent:demo", "make test", true); 5], 3).is_empty());
    let many: Vec<_> = (0..60).map(|n| answer("agent:demo", &format!("make t{}", n % 20), true)).collect();
    assert!(suggest(&crate::defaults(), &many, 3).is_empty(), "twenty commands are no habit");
}

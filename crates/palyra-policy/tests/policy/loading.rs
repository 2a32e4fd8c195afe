//! What is refused, where it says so, and what a set's hash depends on.

use crate::membership;
use palyra_policy::{
    Effect, Flaw, FlawKind, Membership, PolicyAction, PolicyEngine, PolicyError, PolicyFile, PolicyFiles,
    PolicyRequestContext, PolicySource,
};

/// The flaws of the defaults with one operator's file.
fn flaws(text: &str) -> Vec<Flaw> {
    let sources = [PolicySource::defaults(), PolicySource::new("ops/x.cedar", text)];
    match PolicyEngine::load(&sources, &membership()) {
        Err(PolicyError::Flawed(flaws)) => flaws,
        other => panic!("expected flaws, got {other:?}"),
    }
}

/// There is a flaw of this kind where the mark first stands.
fn check(text: &str, kind: FlawKind, mark: &str) {
    let before = &text[..text.find(mark).unwrap()];
    let line = before.matches('\n').count() + 1;
    let column = before.lines().last().filter(|_| !before.ends_with('\n')).map_or(0, |line| line.chars().count()) + 1;
    let found: Vec<_> = flaws(text).into_iter().map(|flaw| (flaw.kind, flaw.at.to_string())).collect();
    assert!(found.contains(&(kind, format!("ops/x.cedar:{line}:{column}"))), "{line}:{column} not in {found:?}");
}

const GOOD: &str = "@id(\"a\") @reason(\"r\") permit (principal, action == Action::\"tool.list\", resource);";

#[test]
fn defaults_load_and_each_rule_knows_its_place() {
    let engine = crate::defaults();
    let first = engine.rule("deny_sensitive").unwrap();
    assert_eq!(first.effect(), Effect::Forbid);
    assert!(first.text().starts_with("@id(\"deny_sensitive\")") && first.text().ends_with(';'));
    for rule in engine.rules() {
        let line = palyra_policy::DEFAULT_POLICY_SRC.lines().nth(rule.position().line - 1).unwrap();
        assert_eq!(line, format!("@id(\"{}\")", rule.id()));
        assert!(rule.reason().ends_with('.'), "{}", rule.reason());
    }
}

#[test]
fn syntax_errors_have_a_place_and_an_excerpt() {
    let text = "// ü\n@id(\"x\") @reason(\"r\")\npermit (principal, action, resource) when { a b };";
    check(text, FlawKind::Syntax, "b };");
    let flaw = &flaws(text)[0];
    assert_eq!(flaw.excerpt, "permit (principal, action, resource) when { a b };");
    assert!(flaw.render().contains(&format!("3 | {}", flaw.excerpt)), "{}", flaw.render());
    assert_eq!(flaws("permit (")[0].at.to_string(), "ops/x.cedar:1:9");
}

#[test]
fn rules_must_fit_the_schema() {
    let rule = |head: &str, when: &str| format!("@id(\"x\") @reason(\"r\")\npermit ({head}) when {{ {when} }};");
    let execute = "principal, action == Action::\"tool.execute\", resource";
    check(&rule(execute, "context.nope"), FlawKind::Invalid, "context.nope");
    check(&rule(execute, "context.risk == \"low\""), FlawKind::Invalid, "context.risk");
    check(&rule(execute, "context has risk && context.risk == 3"), FlawKind::Invalid, "context.risk == 3");
    check(
        &rule("principal, action == Action::\"tool.run\", resource", "true"),
        FlawKind::Invalid,
        "Action::\"tool.run",
    );
    // The arguments of a call are not known when tools are listed.
    check(
        &rule("principal, action == Action::\"tool.list\", resource", "context.argv.contains(\"x\")"),
        FlawKind::Invalid,
        "context.argv",
    );
    // Nobody executes a journal.
    check(
        &rule("principal, action == Action::\"tool.execute\", resource is Journal", "true"),
        FlawKind::Suspicious,
        "@",
    );
    check(&rule(execute, "principal is User && principal is Agent"), FlawKind::Suspicious, "@");
}

#[test]
fn text_that_hides_what_it_says_is_refused() {
    let text = "@id(\"x\") @reason(\"r\") permit (principal == Agent::\"de\u{202e}mo\", action == Action::\"tool.list\", resource);";
    assert!(flaws(text).iter().any(|flaw| flaw.kind == FlawKind::Suspicious));
}

#[test]
fn rules_need_a_name_and_a_reason() {
    check("@reason(\"r\") permit (principal, action == Action::\"tool.list\", resource);", FlawKind::MissingId, "@");
    check("@id(\"x\") permit (principal, action == Action::\"tool.list\", resource);", FlawKind::MissingReason, "@");
    check(&GOOD.replace("\"a\"", "\"A b\""), FlawKind::BadId, "@");
    assert_eq!(
        flaws(&format!("{GOOD}\n{GOOD}")).iter().map(|f| (f.kind, f.at.line)).collect::<Vec<_>>(),
        [(FlawKind::DuplicateId, 2)]
    );
    check(&GOOD.replace("\"a\"", "\"deny_sensitive\""), FlawKind::DuplicateId, "@");
    check(&format!("@resaon(\"typo\") {GOOD}"), FlawKind::UnknownAnnotation, "@");
    check(&format!("@locked(\"mine\") {GOOD}"), FlawKind::UnknownAnnotation, "@");
}

#[test]
fn templates_and_unknown_groups_are_refused() {
    check("@id(\"x\") @reason(\"r\") permit (principal == ?principal, action, resource);", FlawKind::Template, "@");
    let group = GOOD.replace("principal,", "principal in Group::\"tool_caller\",");
    check(&group, FlawKind::UnknownGroup, "Group::\"tool_caller");
    check(&GOOD.replace("principal,", "principal in Role::\"ownr\","), FlawKind::UnknownGroup, "Role::\"ownr");
}

#[test]
fn a_rule_that_can_never_match_is_refused_where_it_stands() {
    let rule = |when: &str| {
        format!(
            "@id(\"x\") @reason(\"infra/ low POST\")\nforbid (principal, action == Action::\"tool.execute\", resource)\nwhen {{\n  {when}\n}};"
        )
    };
    for (when, mark) in [
        ("context.written_under.contains(\"infra/\")", "\"infra/\")"),
        ("context.read_under.contains(\"~/.ssh\")", "\"~/.ssh\""),
        ("context has written_root && context.written_root like \"./src/*\"", "\"./src/*"),
        ("[\"a.example\", \"B.example\"].containsAll(context.hosts)", "\"B.example"),
        ("context.host_domains.containsAny([\"a.example:443\"])", "\"a.example:443"),
        ("context has risk && context.risk == \"hihg\"", "\"hihg\""),
        ("context.capabilities.contains(\"proces_exec\")", "\"proces_exec\""),
        ("context has method && \"post\" == context.method", "\"post\""),
        ("context.argv_prefixes.contains(\"a b c d e f g h i\")", "\"a b"),
        ("context.env_names.contains(\"A=1\")", "\"A=1\""),
        ("context.channel == Channel::\"CLI\"", "Channel::\"CLI"),
        ("context.executables.contains(\"curl\")", "\"curl\""),
        ("context.hosts.contains(\"пример.example\")", "\"пример.example"),
        ("principal == Agent::\"Coder\"", "Agent::\"Coder"),
        ("context has proposed_by && context.proposed_by == User::\"Mia Müller\"", "User::\"Mia"),
        ("context has workspace && context.workspace == Workspace::\"/srv/me/project/\"", "Workspace::\"/srv"),
        ("context.approval_count >= 9", "approval_count >= 9"),
        ("9 <= context.approval_count", "approval_count"),
        ("context.approval_count == 12", "approval_count"),
        ("!(context.approval_count >= 0)", "approval_count"),
    ] {
        check(&rule(when), FlawKind::Suspicious, mark);
        let help = flaws(&rule(when))[0].help.clone();
        assert!(help.is_some_and(|help| !help.is_empty()), "{when}");
    }
    // What the schema lists by name, Cedar finds.
    check(&rule("resource in Capability::\"netwrk\""), FlawKind::Invalid, "Capability::\"netwrk");
}

#[test]
fn rules_name_what_is_called_in_other_alphabets() {
    let rule = |when: &str| {
        format!(
            "@id(\"x\") @reason(\"r\") forbid (principal, action == Action::\"tool.execute\", resource) when {{ {when} }};"
        )
    };
    let loaded = |when: &str| {
        let files = PolicyFiles::new(vec![PolicyFile { name: "x.cedar".to_owned(), bytes: rule(when).into_bytes() }]);
        files.unwrap().check(&membership(), None)
    };
    let said = |when: &str| {
        let notes = loaded(when).unwrap_or_else(|error| panic!("{when}: {error}")).notes;
        notes.into_iter().map(|note| note.message).filter(|message| message.contains("alphabets")).collect::<Vec<_>>()
    };
    for fine in [
        "context has workspace && context.workspace == Workspace::\"/srv/иван/project\"",
        "context.written_under.contains(\"документы/plan\")",
        "context has written_root && context.written_root like \"документы/plan*\"",
        "context has workspace && context.workspace == Workspace::\"/srv/me/🚀 launch\"",
        "context has command_line && context.command_line == \"cat 'größe über.txt' 日本語.md\"",
    ] {
        assert_eq!(said(fine), [""; 0], "{fine}");
    }
    assert_eq!(
        said("context.paths_written.contains(\"pаypal/x\")"),
        ["`pаypal` mixes alphabets: is it what you mean?"]
    );
    for hidden in [
        "context has workspace && context.workspace == Workspace::\"/srv/иван/pro\u{200b}ject\"",
        "context.paths_written.contains(\"\u{202e}gnp.exe\")",
    ] {
        assert!(loaded(hidden).is_err(), "{hidden:?}");
    }
}

#[test]
fn all_flaws_are_reported_at_once() {
    let text = format!("{GOOD}\n@id(\"b\") permit (principal, action == Action::\"tool.list\", resource);\n{GOOD}");
    let flaws = flaws(&text);
    assert_eq!(
        flaws.iter().map(|f| (f.kind, f.at.line)).collect::<Vec<_>>(),
        [(FlawKind::MissingReason, 2), (FlawKind::DuplicateId, 3)]
    );
    assert!(PolicyError::Flawed(flaws).to_string().ends_with("(and 1 more)"));
}

#[test]
fn rules_are_replaced_by_id_and_only_on_purpose() {
    let replacing = |id: &str| GOOD.replace("@reason", &format!("@replaces(\"{id}\") @reason"));
    let load = |text: &str| {
        PolicyEngine::load(&[PolicySource::defaults(), PolicySource::new("ops/x.cedar", text)], &membership())
    };
    let engine = load(&replacing("programs_may_look")).unwrap();
    assert!(engine.rule("a").is_some() && engine.rule("programs_may_look").is_none());
    let same_id = replacing("programs_may_look").replace("@id(\"a\")", "@id(\"programs_may_look\")");
    assert_eq!(load(&same_id).unwrap().rule("programs_may_look").unwrap().position().source, "ops/x.cedar");

    check(&replacing("no_such_rule"), FlawKind::UnknownReplaced, "@");
    check(
        &format!("{}\n{}", replacing("programs_may_look"), replacing("programs_may_look").replace("\"a\"", "\"b\"")),
        FlawKind::UnknownReplaced,
        "@id(\"b\")",
    );
    // A permit in the place of a forbid would be a way to switch the forbid off.
    check(&replacing("deny_sensitive"), FlawKind::Locked, "@");
    let approve = "@id(\"a\") @reason(\"r\") @replaces(\"agents_never_approve\") forbid (principal, action == Action::\"approval.decide\", resource) when { principal is System };";
    check(approve, FlawKind::Locked, "@");
}

#[test]
fn the_hash_names_the_set() {
    let load = |text: &str, membership: &Membership| {
        PolicyEngine::load(&[PolicySource::defaults(), PolicySource::new("x", text)], membership).unwrap().policy_hash()
    };
    let base = load(GOOD, &membership());
    assert_eq!(base, load(&format!("\n\n// moved\n{GOOD}"), &membership()));
    assert_ne!(base, load(&GOOD.replace("tool.list", "daemon.status"), &membership()));
    assert_ne!(base, load("", &membership()));
    assert_ne!(base, load(GOOD, &membership().with_principals("tool_callers", &["agent:x"]).unwrap()));
    let two = GOOD.replace("\"a\"", "\"b\"");
    assert_eq!(load(&format!("{GOOD}\n{two}"), &membership()), load(&format!("{two}\n{GOOD}"), &membership()));
}

#[test]
fn hostile_sources_are_refused_and_not_fatal() {
    for text in ["\0", "\u{feff}permit", "permit(principal,action,resource);", "}}}}", "@id(\"", "\u{202e}"] {
        assert!(!flaws(text).is_empty(), "{text:?}");
    }
    let rule = |condition: String| {
        format!("@id(\"x\") @reason(\"r\") permit (principal, action, resource) when {{ {condition} }};")
    };
    for (before, after) in
        [("(", ")"), ("!", ""), ("true && ", ""), ("if true then true else ", ""), ("[", "]"), ("{a: ", "}.a")]
    {
        let deep = rule(format!("{}true{}", before.repeat(5_000), after.repeat(5_000)));
        assert_eq!(flaws(&deep)[0].kind, FlawKind::TooComplex, "{before}");
    }
    assert!(!flaws(&"x".repeat(17 * 1024 * 1024)).is_empty());
}

#[test]
fn the_deepest_rules_that_pass_are_carried_everywhere() {
    let branches =
        format!("{}context.is_sensitive_action", "if context.is_sensitive_action then false else ".repeat(24));
    let joined = vec!["context.is_sensitive_action || context.allow_sensitive_tools"; 64].join(" || ");
    let nested =
        format!("{}context.is_sensitive_action{}", "(context.is_sensitive_action || ".repeat(22), ")".repeat(22));
    let engines = [branches, joined, nested].map(|condition| {
        crate::with_rules(&format!(
            "@id(\"x\") @reason(\"r\") permit (principal, action == Action::\"tool.list\", resource) when {{ {condition} }};"
        ))
    });
    let explain = move || {
        for engine in engines {
            let context = PolicyRequestContext::new("cli".parse().unwrap());
            let request = crate::ask("user:mia", PolicyAction::ToolList, "tool:x");
            let explanation = engine.evaluate_with_context(&request, &context).explanation;
            assert!(explanation.errors().is_empty(), "{explanation}");
        }
    };
    // Loading had to do with a test's ordinary stack; evaluating without optimisation takes more.
    std::thread::Builder::new().stack_size(64 << 20).spawn(explain).unwrap().join().unwrap();
}

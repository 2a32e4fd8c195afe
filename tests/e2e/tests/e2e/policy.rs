//! The operator's policies: loaded whole or not at all, and obeyed.

use palyra_e2e::{Host, text};
use serde_json::json;
use std::fs;

/// A host with these policy files, not yet started.
pub(crate) fn with_policies(files: &[(&str, &str)]) -> Host {
    let host = Host::idle();
    fs::create_dir(host.path("policies")).unwrap();
    for (name, content) in files {
        fs::write(host.path("policies").join(name), content).unwrap();
    }
    host.configure(&format!("policy_dir = {:?}\n", host.path("policies")));
    host
}

const NOT_ONES_OWN: &str = r#"
@id("not_ones_own")
@reason("Somebody else must approve what one has proposed.")
@remedy("Ask a colleague.")
forbid (principal is User, action == Action::"approval.decide", resource)
when { context has proposed_by && context.proposed_by == principal };
"#;

#[test]
fn a_policy_that_does_not_parse_stops_the_start_with_file_and_line() {
    for (content, line) in [
        ("\n\npermit (principal, action, ressource);\n", 3),
        ("// fine\nforbid (principal, action, resource) when { context.no_such_fact };\n", 2),
        ("@id(\"x\") @reason(\"y\")\npermit (principal, action, resource)\nwhen { 1 + };\n", 3),
        ("@reason(\"no id\")\npermit (principal, action, resource);\n", 1),
    ] {
        let host = with_policies(&[("a.cedar", "// nothing\n"), ("broken.cedar", content)]);
        let refused = host.refused();
        assert_eq!(refused.code, Some(1), "{content}");
        let place = format!("broken.cedar:{line}");
        assert!(refused.log.contains(&place), "expected {place}: {}", refused.log);
        let mut check = host.daemon_command();
        check.arg("check");
        let checked = palyra_e2e::cli::run(check, &[]).exits(1);
        assert!(checked.stderr.contains(&place), "{checked:?}");
    }
}

#[test]
fn a_locked_rule_cannot_be_replaced() {
    let host = with_policies(&[(
        "a.cedar",
        "@id(\"agents_may\")\n@reason(\"Let them.\")\n@replaces(\"agents_never_approve\")\n\
         permit (principal, action == Action::\"approval.decide\", resource);\n",
    )]);
    let refused = host.refused();
    assert!(refused.log.contains("agents_never_approve"), "{}", refused.log);
}

#[test]
fn nobody_approves_what_they_proposed_not_even_in_an_agents_name() {
    let mut host = with_policies(&[("own.cedar", NOT_ONES_OWN)]);
    host.start();
    let ls = json!({ "argv": ["ls"] });
    for name in [&[][..], &["--as", "agent:demo"]] {
        let (_, own) = host.ask("palyra.process.run", &ls, name);
        let error = host.decide(&own, "allow", &[]).fails(10, "forbidden");
        assert!(text(&error, "/message").contains("not_ones_own"), "{error}");
        assert_eq!(host.palyra(&["approvals", "show", &own]).good()["state"], "pending");
    }
}

#[test]
fn one_may_not_approve_ones_own_call_but_an_agents() {
    let own_calls =
        NOT_ONES_OWN.replace("context has proposed_by && context.proposed_by == principal", "resource in principal");
    let mut host = with_policies(&[("own.cedar", &own_calls)]);
    host.start();
    let ls = json!({ "argv": ["ls"] });
    let (_, own) = host.ask("palyra.process.run", &ls, &[]);
    host.decide(&own, "allow", &[]).fails(10, "forbidden");
    let (call, agents) = host.ask("palyra.process.run", &ls, &["--as", "agent:demo"]);
    host.decide(&agents, "allow", &[]).exits(0).done();
    host.palyra(&["calls", "follow", &call]).exits(0).done();
}

#[test]
fn without_such_a_rule_one_may_approve_ones_own() {
    let host = Host::up();
    let (call, own) = host.ask("palyra.process.run", &json!({ "argv": ["ls"] }), &[]);
    host.decide(&own, "allow", &[]).exits(0).done();
    host.palyra(&["calls", "follow", &call]).exits(0).done();
}

#[test]
fn what_no_human_may_wave_through_is_denied_without_asking() {
    let mut host = with_policies(&[(
        "push.cedar",
        "@id(\"nobody_pushes\")\n@reason(\"Nobody pushes from here.\")\n\
         forbid (principal, action == Action::\"tool.execute\", resource)\n\
         when { context.argv_prefixes.contains(\"git push\") };\n",
    )]);
    host.start();
    let push = host.call("palyra.process.run", &json!({ "argv": ["git", "push"] }), &[]);
    assert_eq!(push.json()["state"], "denied");
    assert_eq!(text(&push.json(), "/decision/decision"), "deny");
    let call = text(&push.json(), "/call_id").to_owned();
    let error = push.fails(3, "policy_denied");
    assert!(text(&error, "/message").contains("Nobody pushes from here"), "{error}");
    let events = host.palyra(&["journal", "show", &call]).exits(0).json_lines();
    let kinds: Vec<_> = events.iter().map(|e| text(e, "/kind")).collect();
    assert_eq!(kinds, ["tool.proposed", "tool.decided", "tool.ended"], "a denial is journalled like a success");
    let input = r#"{"argv":["git","push"]}"#;
    let explained = host.palyra(&["policy", "explain", "palyra.process.run", "--input", input]).good();
    let rules: Vec<_> = explained["decision"]["rules"].as_array().unwrap().iter().filter_map(|r| r.as_str()).collect();
    assert!(rules.contains(&"nobody_pushes"), "{rules:?}");
    drop(host.ask("palyra.process.run", &json!({ "argv": ["git", "status"] }), &[]));
}

#[test]
fn a_tool_that_is_not_allow_listed_is_denied() {
    let host = Host::with("[tool_call]\nallowed_tools = [\"palyra.echo\"]\n");
    for (tool, input) in [
        ("palyra.fs.list", json!({})),
        ("palyra.process.run", json!({ "argv": ["ls"] })),
        ("palyra.fs.write", json!({ "path": "x", "content": "x" })),
    ] {
        let denied = host.call(tool, &input, &[]);
        assert_eq!(denied.json()["state"], "denied");
        denied.fails(3, "policy_denied");
        assert_eq!(host.palyra(&["tools", "show", tool]).good()["allowlisted"], false);
    }
    host.call("palyra.echo", &json!({ "text": "x" }), &[]).exits(0).done();
    assert!(!host.work("x").exists());
}

#[test]
fn a_principal_or_channel_that_is_not_allowed_is_denied() {
    let host = Host::with("[tool_call]\nallowed_principals = [\"user:*\", \"agent:good\"]\n");
    let echo = json!({ "text": "x" });
    host.call("palyra.echo", &echo, &["--as", "agent:good"]).exits(0).done();
    host.call("palyra.echo", &echo, &["--as", "agent:bad"]).fails(3, "policy_denied");
    host.call("palyra.echo", &echo, &["--as", "agent:goodish"]).fails(3, "policy_denied");
    let closed = Host::with("[tool_call]\nallowed_channels = [\"mcp\"]\n");
    closed.call("palyra.echo", &echo, &[]).fails(3, "policy_denied");
}

//! What people do with rules: check, try, decide, replay, compare, suggest; and what agents are told.

use crate::policy::with_policies;
use palyra_e2e::{Host, Proposal, text};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const WAIVE: &str = "@id(\"lister_lists\")\n@reason(\"Listing needs nobody.\")\n\
    permit (principal == Agent::\"lister\", action == Action::\"approval.waive\", resource == Tool::\"palyra.process.run\")\n\
    when { context.argv_prefixes.contains(\"ls\") };\n";
const TWO: &str = "@id(\"two_people\")\n@reason(\"Two people.\")\n\
    forbid (principal, action == Action::\"tool.execute\", resource)\n\
    when { context has command_line && context.command_line like \"ls*\" }\n\
    unless { context.approval_count >= 2 };\n";

fn directory(host: &Host, name: &str, files: &[(&str, &str)]) -> String {
    let dir = host.path(name);
    fs::create_dir(&dir).unwrap();
    for (file, content) in files {
        fs::write(dir.join(file), content).unwrap();
    }
    dir.to_str().unwrap().to_owned()
}

#[test]
fn every_example_passes_the_check() {
    let host = Host::idle();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/examples");
    for example in fs::read_dir(examples).unwrap() {
        let example = example.unwrap().path();
        for command in ["check", "test"] {
            let checked = host.palyra(&["policy".as_ref(), command.as_ref(), example.as_os_str()]).good();
            assert_eq!((&checked["ok"], checked["cases"].as_u64().unwrap() > 4), (&json!(true), true), "{checked}");
        }
    }
}

/// What the personal set says of itself, asked about calls that go around it.
#[test]
fn the_personal_example_holds_against_calls_that_go_around_it() {
    let host = Host::idle();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/examples/personal-coding-agent");
    let lines = [
        r#"{"tool":"palyra.fs.search","input":{"pattern":"PRIVATE KEY"},"principal":"agent:coder"}"#,
        r#"{"tool":"palyra.fs.list","input":{"depth":3},"principal":"agent:coder"}"#,
        r#"{"tool":"palyra.process.run","input":{"argv":["git","status"],"env":{"GIT_AUTHOR_NAME":"x"}},"principal":"agent:coder"}"#,
        r#"{"tool":"palyra.process.run","input":{"argv":["git","status"]},"principal":"agent:coder"}"#,
    ];
    let work = host.path("w");
    let args =
        ["policy", "decide", "--jsonl", "--candidate", dir.to_str().unwrap(), "--workspace", work.to_str().unwrap()];
    let answers = host.palyra_fed(&args, lines.join("\n").as_bytes()).exits(0).json_lines();
    let gist: Vec<_> = answers.iter().map(|answer| text(answer, "/decision")).collect();
    assert_eq!(gist, ["deny", "deny", "needs_approval", "allow"]);
}

#[test]
fn a_check_shows_the_place_and_fails() {
    let host = Host::idle();
    let dir = directory(
        &host,
        "p",
        &[("a.cedar", "@id(\"x\")\npermit (principal, action, resource)\nwhen { context.nope };\n")],
    );
    let checked = host.palyra(&["policy", "check", &dir]).exits(8);
    assert_eq!(checked.json()["flaws"][0]["kind"], "missing_reason");
    let shown = host.palyra_text(&["policy", "check", &dir]).exits(8);
    assert!(shown.stdout.contains("a.cedar:1:1") && shown.stdout.contains("1 | @id(\"x\")"), "{shown:?}");
    host.palyra(&["policy", "check", host.path("nowhere").to_str().unwrap()]).exits(8).done();
}

#[test]
fn a_stream_of_calls_is_decided_without_a_daemon() {
    let host = Host::idle();
    let dir = directory(&host, "p", &[("a.cedar", WAIVE)]);
    let work = host.path("w");
    let lines = [
        r#"{"id":1,"tool":"palyra.process.run","input":{"argv":["ls"]},"principal":"agent:lister"}"#,
        r#"{"id":"b","tool":"palyra.process.run","input":{"argv":["ls"]},"principal":"agent:other"}"#,
        r#"{"tool":"palyra.fs.read","input":{"path":"../x"},"principal":"agent:other"}"#,
        r#"{"principal":"agent:x","action":"journal.read","resource":"journal","context":{"channel":"cli"}}"#,
        "not json",
        r#"{"tool":"palyra.echo","principal":"agent:x","surprise":1}"#,
    ];
    let mut input = lines.join("\n").into_bytes();
    input.push(b'\n');
    input.extend(std::iter::repeat_n(b'x', 5 << 20));
    input.extend(b"\n{\"tool\":\"palyra.echo\",\"input\":{\"text\":\"last\"},\"principal\":\"agent:x\"}");
    let args = ["policy", "decide", "--jsonl", "--candidate", &dir, "--workspace", work.to_str().unwrap()];
    let answers = host.palyra_fed(&args, &input).exits(6).json_lines();
    let gist: Vec<_> =
        answers.iter().map(|a| a["decision"].as_str().or(a["error"]["code"].as_str()).unwrap()).collect();
    assert_eq!(
        gist,
        ["allow", "needs_approval", "rejected", "deny", "line_malformed", "line_malformed", "line_too_long", "allow"]
    );
    assert_eq!((&answers[0]["id"], &answers[1]["id"]), (&json!(1), &json!("b")));
    assert_eq!(answers[0]["rules"], json!(["allowlisted_execution", "lister_lists"]));
    assert_eq!(answers[2]["error"]["code"], "path_outside_workspace");
    assert_eq!(answers[7]["line"], 8);
    assert!(answers[1]["explanation"]["what_would_change"].is_array());
    assert!(!host.state().exists(), "nothing was recorded");
    host.palyra_fed(&args, lines[0].as_bytes()).exits(0).done();
}

#[test]
fn a_rule_that_stands_in_for_a_person_is_obeyed_and_recorded() {
    let mut host = with_policies(&[("a.cedar", WAIVE)]);
    host.start();
    let ls = json!({ "argv": ["ls"] });
    let ran = host.call("palyra.process.run", &ls, &["--as", "agent:lister"]).good();
    let events = host.palyra(&["journal", "show", text(&ran, "/call_id")]).exits(0).json_lines();
    let kinds: Vec<_> = events.iter().map(|event| text(event, "/kind")).collect();
    assert_eq!(kinds, ["tool.proposed", "tool.decided", "tool.started", "tool.finished"], "nobody was asked");
    let decided: &Value = &events[1]["body"];
    assert_eq!(decided["decision"]["rules"], json!(["allowlisted_execution", "lister_lists"]));
    assert_eq!(decided["decision"]["explanation"]["waiver"]["rules"][0]["id"], "lister_lists");
    drop(host.ask("palyra.process.run", &ls, &["--as", "agent:other"]));
}

#[test]
fn past_decisions_are_replayed_and_sets_compared() {
    let mut host = with_policies(&[]);
    host.start();
    let echo = json!({ "text": "x" });
    host.call("palyra.echo", &echo, &["--as", "agent:lister"]).exits(0).done();
    drop(host.ask("palyra.process.run", &json!({ "argv": ["ls"] }), &["--as", "agent:lister"]));
    let no_echo = "@id(\"no_echo\")\n@reason(\"Quiet.\")\nforbid (principal, action == Action::\"tool.execute\", resource == Tool::\"palyra.echo\");\n";
    let dir = directory(&host, "candidate", &[("a.cedar", WAIVE), ("b.cedar", no_echo)]);
    let report = host.palyra(&["policy", "simulate", "--since", "1h", "--candidate", &dir]).good();
    assert_eq!((&report["replayed"], &report["unchanged"]), (&json!(2), &json!(0)));
    assert_eq!(report["newly_allowed"]["examples"][0]["what"], "ls");
    assert_eq!(report["newly_denied"]["examples"][0]["rules"], json!(["no_echo"]));
    assert_eq!(report["newly_asking"]["count"], 0);
    let future = host.palyra(&["policy", "simulate", "--since", "2100-01-01", "--candidate", &dir]).good();
    assert_eq!(future["replayed"], 0);
    let shown = host.palyra_text(&["policy", "simulate", "--candidate", &dir]).exits(0);
    assert!(shown.stdout.contains("newly denied 1"), "{shown:?}");

    let diff = host.palyra(&["policy", "diff", &dir]).exits(1);
    assert_eq!(diff.json()["added"].as_array().unwrap().len(), 2);
    host.palyra(&["policy", "diff"]).exits(0).done();
    let bad = directory(&host, "bad", &[("a.cedar", "permit")]);
    host.palyra(&["policy", "simulate", "--candidate", &bad]).fails(10, "policy_refused");
    host.palyra(&["--as", "agent:x", "policy", "simulate", "--candidate", &dir]).fails(10, "forbidden");
    assert_eq!(host.palyra(&["status"]).good()["policy"]["operator_rules"], 0, "nothing was applied");
}

#[test]
fn what_is_approved_again_and_again_is_suggested() {
    let mut host = with_policies(&[]);
    host.start();
    let ls = json!({ "argv": ["ls", "-1"] });
    for _ in 0..3 {
        let (call, asked) = host.ask("palyra.process.run", &ls, &["--as", "agent:lister"]);
        host.decide(&asked, "allow", &[]).exits(0).done();
        host.palyra(&["calls", "follow", &call]).exits(0).done();
    }
    let suggested = host.palyra(&["policy", "suggest"]).good();
    assert_eq!(suggested.as_array().unwrap().len(), 1, "{suggested}");
    assert_eq!(suggested[0]["spared"], 3);
    drop(host.ask("palyra.process.run", &ls, &["--as", "agent:lister"]));
    let id = text(&suggested[0], "/id");
    fs::write(host.path("policies").join(format!("{id}.cedar")), text(&suggested[0], "/rule")).unwrap();
    fs::write(host.path("policies").join(format!("{id}.cases.toml")), text(&suggested[0], "/cases")).unwrap();
    host.palyra(&["policy", "reload"]).exits(0).done();
    assert!(host.palyra(&["status"]).good()["policy"]["cases"].as_u64().unwrap() >= 4);
    host.call("palyra.process.run", &ls, &["--as", "agent:lister"]).exits(0).done();
    assert_eq!(host.palyra(&["policy", "suggest"]).good(), json!([]));
    assert_eq!(host.palyra(&["policy", "show", id]).good()["rules"][0]["effect"], "permit");
    let error = host.palyra(&["policy", "show", "lister_list"]).fails(10, "rule_not_found");
    assert!(text(&error, "/hint").contains("did you mean"), "{error}");
}

#[test]
fn one_person_is_not_two() {
    let mut host = with_policies(&[("a.cedar", TWO)]);
    host.start();
    let ls = json!({ "argv": ["ls"] });
    // Neither a wide grant from elsewhere nor the same person twice is a second person.
    let (other, asked) = host.ask("palyra.process.run", &json!({ "argv": ["true"] }), &["--session", "s"]);
    host.decide(&asked, "allow", &["--scope", "session", "--match", "tool"]).exits(0).done();
    host.palyra(&["calls", "follow", &other]).exits(0).done();
    let (call, asked) = host.ask("palyra.process.run", &ls, &["--session", "s"]);
    host.decide(&asked, "allow", &["--scope", "session"]).fails(10, "approval_scope");
    let record = host.decide(&asked, "allow", &["--reason", "looks fine"]).good();
    assert_eq!(
        (&record["state"], &record["people"], &record["given"][0]["by"]),
        (&json!("pending"), &json!(2), &json!("user:local"))
    );
    host.decide(&asked, "allow", &[]).fails(10, "approval_already_given");
    let events = host.palyra(&["journal", "show", &call]).exits(0).json_lines();
    assert_eq!(text(events.last().unwrap(), "/kind"), "approval.given");
    let card = host.palyra_text(&["approvals", "show", &asked]).exits(0);
    assert!(card.stdout.contains("2 different people; approved so far by user:local"), "{card:?}");
    host.decide(&asked, "deny", &[]).exits(0).done();
    host.palyra(&["calls", "follow", &call]).fails(3, "approval_denied");
}

#[tokio::test]
async fn an_agent_learns_what_to_do_and_nothing_of_others() {
    let boss = "@id(\"boss_only\")\n@reason(\"The boss may.\")\npermit (principal == Agent::\"boss\", action == Action::\"tool.execute\", resource)\nwhen { context has session && context.session == \"s3cret\" };\n";
    let host = with_policies(&[("a.cedar", boss)]);
    let config = fs::read_to_string(host.config()).unwrap();
    host.configure(&format!("{config}[tool_call]\nallowed_tools = [\"palyra.echo\"]\n"));
    let mut host = host;
    host.start();
    let listing = || Proposal::new("palyra.fs.list", &json!({}));
    let mut told = Vec::new();
    for caller in [host.agent("agent:demo").await, host.owner().await] {
        let mut underway = caller.propose(listing()).await.unwrap();
        let mut updates = String::new();
        while let Some(update) = underway.next().await.unwrap() {
            updates.push_str(&update.decision_json);
            updates.push_str(&update.outcome_json);
        }
        told.push(updates);
    }
    assert!(
        told[0].contains("\"code\":\"tool_not_allowlisted\"") && told[0].contains("\"ask\":\"operator\""),
        "{}",
        told[0]
    );
    for secret in ["boss", "s3cret", "tool_callers", "what_would_change"] {
        assert!(!told[0].contains(secret), "{secret}: {}", told[0]);
    }
    assert!(told[1].contains("what_would_change"), "whoever may ask why is told: {}", told[1]);
}

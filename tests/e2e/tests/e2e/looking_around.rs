//! What people look up before and after they answer: calls, the journal, the configuration, and what rules would say.

use palyra_e2e::{Host, text};
use serde_json::{Value, json};

fn tee(name: &str) -> Value {
    json!({ "argv": ["tee", "-a", name], "stdin": "x\n" })
}

/// A host with a call that ran, one that was denied and one that waits.
fn busy() -> (Host, [String; 3]) {
    let host = Host::up();
    host.put("a.txt", "one\ntwo\n");
    let change = json!({ "path": "a.txt", "content": "one\n2\n" });
    let (ran, yes) = host.ask("palyra.fs.write", &change, &["--as", "agent:writer", "--session", "work"]);
    host.decide(&yes, "allow", &[]).exits(0).done();
    host.palyra(&["calls", "follow", &ran]).exits(0).done();
    let (denied, no) = host.ask("palyra.process.run", &tee("b"), &["--session", "work"]);
    host.decide(&no, "deny", &["--reason", "not now"]).exits(0).done();
    host.palyra(&["calls", "follow", &denied]).exits(3).done();
    let (waiting, _) = host.ask("palyra.process.run", &tee("c"), &["--session", "other"]);
    (host, [ran, denied, waiting])
}

#[test]
fn calls_are_listed_by_what_is_looked_for() {
    let (host, [ran, denied, waiting]) = busy();
    let listed = |filter: &[&str]| -> Vec<String> {
        let list = host.palyra(&[&["calls", "list"], filter].concat()).good();
        list.as_array().unwrap().iter().map(|call| text(call, "/call_id").to_owned()).collect()
    };
    assert_eq!(listed(&[]), [ran.clone(), denied.clone(), waiting.clone()]);
    assert_eq!(listed(&["--principal", "agent:writer"]), [ran.clone()]);
    assert_eq!(listed(&["--tool", "palyra.process.run"]), [denied.clone(), waiting.clone()]);
    assert_eq!(listed(&["--session", "work"]), [ran.clone(), denied.clone()]);
    assert_eq!(listed(&["--state", "denied"]), [denied.clone()]);
    assert_eq!(listed(&["--since", "1h", "--last", "1"]), [waiting]);
    assert_eq!(listed(&["--since", "2100-01-01"]), [""; 0]);
    host.palyra(&["calls", "list", "--state", "asleep"]).exits(2).done();
}

#[test]
fn a_call_is_shown_with_its_input_its_difference_and_its_walls() {
    let (host, [ran, denied, _]) = busy();
    // What the call returned is on standard output, and all else beside it.
    let shown = host.palyra_text(&["calls", "show", &ran]).exits(0).stderr;
    for fact in ["agent:writer", "a.txt", "-two", "+2", "allowed by user:local", "workspace_root", "attested"] {
        assert!(shown.contains(fact), "`{fact}` is not shown:\n{shown}");
    }
    let shown = host.palyra_text(&["calls", "show", &denied]).exits(3);
    assert!(shown.stderr.contains("tee -a b") && shown.stderr.contains("not now"), "{shown:?}");
}

#[test]
fn the_journal_is_read_by_what_is_looked_for() {
    let (host, [ran, denied, _]) = busy();
    let tail =
        |filter: &[&str]| host.palyra(&[&["journal", "tail", "-n", "100"], filter].concat()).exits(0).json_lines();
    let calls = |filter: &[&str]| -> Vec<String> {
        let proposed = tail(filter).into_iter().filter(|event| event["kind"] == "tool.proposed");
        proposed.map(|event| text(&event, "/call_id").to_owned()).collect()
    };
    assert_eq!(calls(&["--principal", "agent:writer"]), [ran.clone()]);
    assert_eq!(calls(&["--tool", "palyra.fs.write"]), [ran.clone()]);
    let asked = calls(&["--verdict", "needs-approval", "--tool", "palyra.process.run"]);
    assert_eq!((asked.len(), &asked[0]), (2, &denied));
    assert_eq!(calls(&["--verdict", "deny"]), [""; 0]);
    assert!(tail(&["--since", "2100-01-01"]).is_empty());
    let events = tail(&["--principal", "agent:writer", "--since", "1h"]);
    assert!(events.iter().any(|event| event["kind"] == "tool.finished"), "to its end: {events:?}");
}

#[test]
fn a_command_is_proposed_as_it_is_typed() {
    let host = Host::up();
    let asked = host.palyra(&["exec", "--detach", "--env", "A=b c", "--", "tee", "-a", "two words"]).good();
    let input = &host.palyra(&["approvals", "show", text(&asked, "/approval/approval_id")]).good()["review"]["input"];
    assert_eq!(*input, json!({ "argv": ["tee", "-a", "two words"], "env": { "A": "b c" } }));
    host.palyra(&["exec", "--env", "novalue", "--", "true"]).fails(2, "usage");
    host.palyra(&["exec", "--"]).fails(2, "usage");
}

#[test]
fn the_configuration_is_found_shown_and_checked() {
    let host = Host::idle();
    let config = host.config();
    let given = ["--config", config.to_str().unwrap()];
    let run = |command: &str| host.palyra(&[&["config", command], &given[..]].concat());
    std::fs::write(&config, "[egress]\nallowed_hosts = [\"example.com\"]\n").unwrap();
    assert_eq!(text(&run("path").good(), "/path"), config.to_str().unwrap());
    let work = host.path("w");
    let check = ["config", "check", "--workspace", work.to_str().unwrap()];
    let checked = host.palyra(&[&check[..], &given[..]].concat());
    checked.exits(0).done();
    assert!(run("show").exits(0).stdout.contains("example.com"));
    std::fs::write(&config, "[egress]\nallowed_host = []\n").unwrap();
    let refused = run("check").exits(1).error();
    assert!(refused.to_string().contains("did you mean"), "{refused}");
}

/// A waiver that fits all but the channel, beside a case that fails.
const NEARLY: &str = "@id(\"nearly\")\n@reason(\"Agents may, through MCP.\")\n\
    permit (principal is Agent, action == Action::\"approval.waive\", resource == Tool::\"palyra.process.run\")\n\
    when { context.channel == Channel::\"mcp\" };\n";

#[test]
fn rules_can_be_tried_although_their_cases_fail() {
    let host = Host::up();
    let dir = host.path("candidate");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("a.cedar"), NEARLY).unwrap();
    let case = "[[case]]\nname = \"wrong\"\nprincipal = \"agent:x\"\nexpect = \"allow\"\n\
        call = { tool = \"palyra.process.run\", input = { argv = [\"true\"] } }\n";
    std::fs::write(dir.join("a.cases.toml"), case).unwrap();
    let dir = dir.to_str().unwrap();
    host.palyra(&["policy", "check", dir]).exits(8).done();
    let input = json!({ "argv": ["git", "push"], "env": { "A": "b" } }).to_string();
    let asked = ["policy", "explain", "palyra.process.run", "--input", &input, "--as", "agent:x", "--candidate", dir];
    let explained = host.palyra_text(&asked).exits(0).stdout;
    for fact in ["rules that nearly stood in for a person", "nearly", "context.channel == Channel::\"mcp\""] {
        assert!(explained.contains(fact), "`{fact}` is not told:\n{explained}");
    }
    // Each fact of the call that a rule could speak of.
    for fact in ["argv = [\"git\",\"push\"]", "channel = cli", "working_directory = .", "containment", "environment"] {
        assert!(explained.contains(fact), "`{fact}` is not told:\n{explained}");
    }
    let work = host.path("w");
    let decide = ["policy", "decide", "--jsonl", "--candidate", dir, "--workspace", work.to_str().unwrap()];
    let line = br#"{"tool":"palyra.process.run","input":{"argv":["true"]},"principal":"agent:x"}"#;
    let decided = host.palyra_fed(&decide, line).exits(0).json_lines();
    assert_eq!(decided[0]["decision"], "needs_approval");
    assert_eq!(host.palyra(&["status"]).good()["policy"]["operator_rules"], 0, "nothing was applied");
}

#[test]
fn a_suggested_rule_is_written_with_its_cases_and_passes_them() {
    let host = Host::up();
    for _ in 0..3 {
        let (call, asked) = host.ask("palyra.process.run", &json!({ "argv": ["ls", "-1"] }), &["--as", "agent:lister"]);
        host.decide(&asked, "allow", &[]).exits(0).done();
        host.palyra(&["calls", "follow", &call]).exits(0).done();
    }
    let dir = host.path("rules");
    let to = dir.to_str().unwrap();
    host.palyra(&["policy", "suggest", "--to", to]).exits(1).done();
    std::fs::create_dir(&dir).unwrap();
    host.palyra(&["policy", "suggest", "--to", to]).exits(0).done();
    let mut written: Vec<_> =
        std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    written.sort();
    assert!(written.len() == 2 && written[0].ends_with(".cases.toml") && written[1].ends_with(".cedar"), "{written:?}");
    let checked = host.palyra(&["policy", "check", to]).good();
    assert!(checked["cases"].as_u64().unwrap() > 0, "{checked}");
    host.palyra(&["policy", "suggest", "--to", to]).exits(1).done();
}

//! Grants: standing answers, as long and as wide as the person chose, and never more.

use palyra_e2e::host::Restart;
use palyra_e2e::{Host, text};
use serde_json::{Value, json};

fn run(argv: &[&str]) -> Value {
    json!({ "argv": argv })
}

/// Whether a call is covered: it runs without anybody being asked.
fn covered(host: &Host, tool: &str, input: &Value, options: &[&str]) -> bool {
    let call = host.call(tool, input, &[&["--detach"], options].concat());
    match text(&call.json(), "/state") {
        "awaiting_approval" => {
            // Nothing is left waiting.
            let id = text(&call.json(), "/approval/approval_id").to_owned();
            host.decide(&id, "deny", &[]).exits(0).done();
            false
        }
        "executing" | "succeeded" | "failed" => true,
        // What the sandbox refuses is covered by nothing.
        "denied" => false,
        other => panic!("{other}: {call:?}"),
    }
}

/// A yes with these options, for this call.
fn granted(host: &Host, tool: &str, input: &Value, options: &[&str], answer: &[&str]) -> String {
    let (call, approval) = host.ask(tool, input, options);
    let decided = host.decide(&approval, "allow", answer).good();
    host.palyra(&["calls", "follow", &call]).done();
    text(&decided, "/resolution/grant").to_owned()
}

fn uses(host: &Host, grant: &str) -> u64 {
    let grants = host.palyra(&["grants", "list"]).good();
    let found = grants.as_array().unwrap().iter().find(|g| g["grant_id"] == grant).unwrap();
    found["uses"].as_u64().unwrap()
}

const RUN: &str = "palyra.process.run";
const WRITE: &str = "palyra.fs.write";

#[test]
fn once_leaves_nothing() {
    let host = Host::up();
    let (call, approval) = host.ask(RUN, &run(&["ls"]), &["--session", "s"]);
    host.decide(&approval, "allow", &[]).exits(0).done();
    host.palyra(&["calls", "follow", &call]).exits(0).done();
    assert!(!covered(&host, RUN, &run(&["ls"]), &["--session", "s"]));
    assert_eq!(host.palyra(&["grants", "list"]).good(), json!([]));
}

#[test]
fn a_no_stands_only_where_it_says_so() {
    let host = Host::up();
    let (_, approval) = host.ask(RUN, &run(&["ls"]), &["--session", "s"]);
    host.decide(&approval, "deny", &[]).exits(0).done();
    assert_eq!(host.palyra(&["grants", "list"]).good(), json!([]), "a no is about one call");
    let (_, again) = host.ask(RUN, &run(&["ls"]), &["--session", "s"]);
    host.decide(&again, "deny", &["--scope", "session", "--match", "tool"]).exits(0).done();
    let standing = host.palyra(&["grants", "list"]).good();
    assert_eq!((&standing[0]["effect"], &standing[0]["matcher"]), (&json!("deny"), &json!("tool")));
    host.call(RUN, &run(&["ls", "-l"]), &["--session", "s"]).exits(3).done();
    // It is taken back like any grant, and then the person is asked again.
    host.palyra(&["grants", "revoke", text(&standing[0], "/grant_id")]).exits(0).done();
    drop(host.ask(RUN, &run(&["ls", "-l"]), &["--session", "s"]));
}

#[test]
fn a_session_grant_holds_for_this_call_this_session_and_this_principal() {
    let host = Host::up();
    let grant = granted(&host, RUN, &run(&["ls", "-l"]), &["--session", "s"], &["--scope", "session"]);
    let same = run(&["ls", "-l"]);
    assert!(covered(&host, RUN, &same, &["--session", "s"]));
    for (input, options) in [
        (run(&["ls"]), &["--session", "s"][..]),
        (run(&["ls", "-la"]), &["--session", "s"]),
        (json!({ "argv": ["ls", "-l"], "env": { "A": "b" } }), &["--session", "s"]),
        (json!({ "argv": ["ls", "-l"], "stdin": "x" }), &["--session", "s"]),
        (same.clone(), &["--session", "other"]),
        (same.clone(), &[]),
        (same, &["--session", "s", "--as", "agent:demo"]),
    ] {
        assert!(!covered(&host, RUN, &input, options), "{input} {options:?}");
    }
    assert!(!covered(&host, WRITE, &json!({ "path": "x", "content": "x" }), &["--session", "s"]));
    assert!(uses(&host, &grant) >= 1);
}

#[test]
fn an_agents_grant_is_the_agents_alone() {
    let host = Host::up();
    let demo = ["--session", "s", "--as", "agent:demo"];
    granted(&host, RUN, &run(&["ls"]), &demo, &["--scope", "session", "--match", "tool"]);
    assert!(covered(&host, RUN, &run(&["ls", "-a"]), &demo));
    assert!(!covered(&host, RUN, &run(&["ls", "-a"]), &["--session", "s", "--as", "agent:other"]));
    assert!(!covered(&host, RUN, &run(&["ls", "-a"]), &["--session", "s"]), "nor its owner's");
}

#[test]
fn an_argv_prefix_matches_whole_words() {
    let host = Host::up();
    std::fs::create_dir(host.work("sub")).unwrap();
    let answer = ["--scope", "session", "--match", "argv-prefix", "--words", "2"];
    granted(&host, RUN, &run(&["git", "status"]), &["--session", "s"], &answer);
    for (argv, expected) in [
        (&["git", "status"][..], true),
        (&["git", "status", "--short"], true),
        (&["git", "status", "-s", "."], true),
        (&["git", "push"], false),
        (&["git"], false),
        (&["git", "statusx"], false),
        (&["git", "status && git push"], false),
        (&["git status"], false),
        (&["git", "-C", "sub", "status"], false),
        (&["ls", "git", "status"], false),
    ] {
        let ran = host.call(RUN, &run(argv), &["--session", "s", "--detach"]);
        if ran.code == 6 {
            assert!(!expected, "{argv:?}: {ran:?}");
            continue;
        }
        assert_eq!(covered(&host, RUN, &run(argv), &["--session", "s"]), expected, "{argv:?}");
    }
    let elsewhere = json!({ "argv": ["git", "status"], "cwd": "sub" });
    assert!(!covered(&host, RUN, &elsewhere, &["--session", "s"]), "another directory is another answer");
    for surroundings in [
        json!({ "argv": ["git", "status"], "env": { "GIT_AUTHOR_NAME": "x" } }),
        json!({ "argv": ["git", "status"], "stdin": "x" }),
    ] {
        assert!(!covered(&host, RUN, &surroundings, &["--session", "s"]), "{surroundings}");
    }
}

/// Puts a program into the workspace, as a build does: another file under the same name.
fn build(host: &Host, name: &str, from: &str) {
    let (made, place) = (host.work("made"), host.work(name));
    std::fs::copy(from, &made).unwrap();
    std::fs::rename(made, place).unwrap();
}

#[test]
fn a_program_of_the_workspace_is_covered_as_it_was_shown_and_not_rewritten() {
    let mut host = Host::up();
    build(&host, "tool", "/usr/bin/true");
    for (session, width) in [("exact", &[][..]), ("prefix", &["--match", "argv-prefix", "--words", "1"])] {
        let session = ["--session", session];
        granted(&host, RUN, &run(&["./tool"]), &session, &[&["--scope", "session"], width].concat());
        assert!(covered(&host, RUN, &run(&["./tool"]), &session));
        build(&host, "tool", "/usr/bin/false");
        assert!(!covered(&host, RUN, &run(&["./tool"]), &session), "another program: {session:?}");
        build(&host, "tool", "/usr/bin/true");
        assert!(covered(&host, RUN, &run(&["./tool"]), &session), "built again, the same: {session:?}");
        host.restart(Restart::Kill);
        assert!(covered(&host, RUN, &run(&["./tool"]), &session));
    }
}

#[test]
fn a_program_that_is_rewritten_while_a_person_thinks_does_not_run() {
    let mut host = Host::up();
    build(&host, "tool", "/usr/bin/true");
    let (now, first) = host.ask(RUN, &run(&["./tool"]), &[]);
    let (later, _) = host.ask(RUN, &run(&["./tool", "later"]), &[]);
    build(&host, "tool", "/usr/bin/false");
    host.decide(&first, "allow", &[]).exits(0).done();
    let ended = host.palyra(&["calls", "follow", &now]);
    assert_eq!(ended.error()["code"], "sandbox_executable_changed", "{ended:?}");
    host.restart(Restart::Kill);
    let ended = host.palyra(&["calls", "follow", &later]);
    assert_eq!(ended.error()["code"], "call_changed", "{ended:?}");
}

#[test]
fn a_prefix_needs_a_command_and_fits_the_one_shown() {
    let host = Host::up();
    let (_, write) = host.ask(WRITE, &json!({ "path": "x", "content": "x" }), &[]);
    let answer = ["--scope", "session", "--match", "argv-prefix", "--words", "1"];
    let refused = host.decide(&write, "allow", &answer);
    assert_eq!(refused.error()["code"], "approval_scope", "{refused:?}");
    let (_, ls) = host.ask(RUN, &run(&["ls"]), &[]);
    for words in ["0", "2"] {
        let refused = host.decide(&ls, "allow", &["--scope", "session", "--match", "argv-prefix", "--words", words]);
        assert_eq!(refused.error()["code"], "approval_scope", "{refused:?}");
    }
    assert_eq!(host.palyra(&["approvals", "list"]).good().as_array().unwrap().len(), 2, "the questions stay");
}

#[test]
fn a_tool_grant_covers_the_tool_and_no_other() {
    let host = Host::up();
    granted(&host, RUN, &run(&["ls"]), &["--session", "s"], &["--scope", "session", "--match", "tool"]);
    assert!(covered(&host, RUN, &run(&["cat", "/dev/null"]), &["--session", "s"]));
    assert!(!covered(&host, WRITE, &json!({ "path": "x", "content": "x" }), &["--session", "s"]));
    let bash = host.call(RUN, &run(&["bash", "-c", "ls"]), &["--session", "s"]);
    assert_eq!(bash.code, 3, "no grant lifts what the sandbox refuses");
}

#[test]
fn a_window_holds_in_every_session_until_it_ends() {
    let host = Host::up();
    let grant = granted(&host, RUN, &run(&["ls"]), &["--session", "one"], &["--scope", "window", "--for", "30m"]);
    assert!(covered(&host, RUN, &run(&["ls"]), &["--session", "two"]));
    assert!(!covered(&host, RUN, &run(&["ls"]), &["--session", "two", "--as", "agent:demo"]));
    assert!(!covered(&host, RUN, &run(&["ls", "-l"]), &["--session", "one"]));
    let listed = host.palyra(&["grants", "list"]).good();
    let lasts = listed[0]["expires_at"].as_u64().unwrap() - listed[0]["created_at"].as_u64().unwrap();
    assert_eq!((text(&listed[0], "/grant_id"), lasts), (grant.as_str(), 30 * 60 * 1000));
    assert!(listed[0]["session"].is_null());
    let short = granted(&host, RUN, &run(&["pwd"]), &[], &["--scope", "window", "--for", "1s"]);
    // The daemon's own sleep outlasts the window.
    host.call("palyra.sleep", &json!({ "duration_ms": 1100 }), &[]).exits(0).done();
    assert!(!covered(&host, RUN, &run(&["pwd"]), &[]), "{short} has ended");
    let (_, approval) = host.ask(RUN, &run(&["ls", "-a"]), &[]);
    host.decide(&approval, "allow", &["--scope", "window", "--for", "25h"]).fails(10, "approval_scope");
}

#[test]
fn a_revoked_grant_asks_again() {
    let host = Host::up();
    let grant = granted(&host, RUN, &run(&["ls"]), &["--session", "s"], &["--scope", "session"]);
    assert_eq!(uses(&host, &grant), 0);
    for n in 1..=3 {
        host.call(RUN, &run(&["ls"]), &["--session", "s"]).exits(0).done();
        assert_eq!(uses(&host, &grant), n);
    }
    host.palyra(&["grants", "revoke", &grant, "--as", "agent:demo"]).fails(10, "forbidden");
    host.palyra(&["grants", "revoke", &grant]).exits(0).done();
    host.palyra(&["grants", "revoke", &grant]).fails(10, "grant_already_revoked");
    assert!(!covered(&host, RUN, &run(&["ls"]), &["--session", "s"]));
    assert_eq!(uses(&host, &grant), 3);
    let kinds = host.palyra(&["journal", "tail", "-n", "100"]).exits(0).json_lines();
    let count = |kind: &str| kinds.iter().filter(|event| event["kind"] == kind).count();
    assert_eq!((count("grant.created"), count("grant.revoked")), (1, 1));
}

#[test]
fn a_grant_that_ended_with_its_rules_stays_ended_and_the_list_says_so() {
    let mut host = Host::with("[tool_call]\nallowed_principals = [\"user:*\", \"agent:*\"]\n");
    let answer = ["--scope", "window", "--for", "30m", "--match", "argv-prefix", "--words", "1"];
    let grant = granted(&host, RUN, &run(&["ls", "-l"]), &[], &answer);
    let listed = host.palyra_text(&["grants", "list"]).exits(0).stdout;
    for told in ["commands that begin with `ls`", "/ls", "in .", host.path("w").to_str().unwrap()] {
        assert!(listed.contains(told), "{told}: {listed}");
    }
    for principals in ["[\"user:*\", \"agent:*\", \"user:x\"]", "[\"user:*\", \"agent:*\"]"] {
        host.configure(&format!("[tool_call]\nallowed_principals = {principals}\n"));
        host.restart(Restart::Terminate);
    }
    assert!(!covered(&host, RUN, &run(&["ls"]), &[]), "{grant} came back with the rules");
    let listed = host.palyra_text(&["grants", "list"]).exits(0).stdout;
    assert!(listed.contains("void: the rules changed"), "{listed}");
    assert_eq!(host.palyra(&["journal", "verify"]).good()["intact"], true);
}

#[test]
fn grants_survive_a_restart_and_so_does_their_withdrawal() {
    for by in [Restart::Terminate, Restart::Kill] {
        let mut host = Host::up();
        let grant = granted(&host, RUN, &run(&["ls"]), &["--session", "s"], &["--scope", "session"]);
        host.restart(by);
        let call = host.call(RUN, &run(&["ls"]), &["--session", "s"]).good();
        assert_eq!(text(&call, "/attestation/authority/grant"), grant);
        assert_eq!(uses(&host, &grant), 1);
        host.palyra(&["grants", "revoke", &grant]).exits(0).done();
        host.restart(by);
        assert!(!covered(&host, RUN, &run(&["ls"]), &["--session", "s"]));
    }
}

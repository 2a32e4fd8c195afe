//! Every command: its document, its exit code, and that people get an answer too.

use palyra_e2e::host::signal;
use palyra_e2e::{Host, fields, text};
use serde_json::{Value, json};
use std::process::Stdio;

const STATUS: [&str; 18] = [
    "config_path",
    "effects",
    "http_url",
    "journal",
    "open_calls",
    "pending_approvals",
    "pid",
    "policy",
    "principal",
    "process_runner",
    "public_key",
    "remote_address",
    "started_at",
    "state_dir",
    "tools",
    "version",
    "workspace_root",
    "workspaces",
];
const TOOL: [&str; 11] = [
    "allowlisted",
    "capabilities",
    "description",
    "example",
    "executor",
    "input_schema",
    "name",
    "output_schema",
    "risk",
    "sensitive",
    "summary",
];
const EVENT: [&str; 7] = ["at", "body", "call_id", "hash", "kind", "prev", "seq"];

#[test]
fn status_tells_who_where_and_by_which_policy() {
    let host = Host::up();
    let status = host.palyra(&["status"]).good();
    assert_eq!(fields(&status), STATUS);
    assert_eq!(status["pid"], host.pid());
    assert_eq!(status["principal"], "user:local");
    assert_eq!(status["state_dir"], host.state().to_str().unwrap());
    assert_eq!(status["workspace_root"], host.work("").to_str().unwrap().trim_end_matches('/'));
    assert_eq!(status["process_runner"], json!({ "tier": "c", "egress": "strict" }));
    assert_eq!(fields(&status["journal"]), ["head", "origin", "size"]);
    assert_eq!(fields(&status["policy"]), ["cases", "files", "hash", "loaded_at", "operator_rules", "rules"]);
    assert_eq!((&status["open_calls"], &status["pending_approvals"]), (&json!(0), &json!(0)));
    let agents = host.palyra(&["status", "--as", "agent:demo"]).good();
    assert_eq!(agents["principal"], "agent:demo");
}

#[test]
fn doctor_checks_everything_and_says_what_is_missing() {
    let host = Host::up();
    let checks = host.palyra(&["doctor"]).good();
    let names: Vec<_> = checks.as_array().unwrap().iter().map(|c| text(c, "/name")).collect();
    for expected in ["daemon", "version", "workspace", "policy", "process tier", "state directory"] {
        assert!(names.contains(&expected), "{expected} is not in {names:?}");
    }
    let idle = Host::idle();
    let unwell = idle.palyra(&["doctor"]);
    assert_eq!(unwell.json()[0]["finding"], "bad");
    assert_eq!(unwell.json()[0]["fix"], "palyra up");
    unwell.fails(1, "unwell");
}

#[test]
fn tools_are_listed_and_shown_from_one_definition() {
    let host = Host::up();
    let tools = host.palyra(&["tools", "list"]).good();
    let names: Vec<_> = tools.as_array().unwrap().iter().map(|tool| text(tool, "/name")).collect();
    assert_eq!(
        names,
        [
            "palyra.echo",
            "palyra.fs.apply_patch",
            "palyra.fs.list",
            "palyra.fs.read",
            "palyra.fs.search",
            "palyra.fs.write",
            "palyra.http.fetch",
            "palyra.memory.retain",
            "palyra.memory.search",
            "palyra.process.read",
            "palyra.process.run",
            "palyra.process.start",
            "palyra.process.stop",
            "palyra.routine.add",
            "palyra.routine.list",
            "palyra.routine.remove",
            "palyra.routine.run",
            "palyra.sleep",
        ]
    );
    for listed in tools.as_array().unwrap() {
        assert_eq!(fields(listed), TOOL);
        let shown = host.palyra(&["tools", "show", text(listed, "/name")]).good();
        assert_eq!(shown, *listed);
        assert_eq!(listed["sensitive"], json!(!listed["capabilities"].as_array().unwrap().is_empty()));
    }
}

#[test]
fn a_call_is_one_document() {
    let host = Host::up();
    let call = host.call("palyra.echo", &json!({ "text": "grüße €" }), &["--session", "work", "--run", "r1"]).good();
    let expected = [
        "attestation",
        "call_id",
        "decision",
        "ended_at",
        "output",
        "problem",
        "replayed",
        "run",
        "session",
        "state",
        "tool",
    ];
    assert_eq!(fields(&call), expected);
    assert_eq!(call["output"], json!({ "text": "grüße €" }));
    assert_eq!((text(&call, "/session"), text(&call, "/run")), ("work", "r1"));
    assert_eq!((&call["replayed"], &call["problem"]), (&json!(false), &Value::Null));
    let shown = host.palyra(&["calls", "show", text(&call, "/call_id")]).good();
    let followed = host.palyra(&["calls", "follow", text(&call, "/call_id")]).good();
    for later in [&shown, &followed] {
        for field in ["call_id", "state", "output", "attestation", "ended_at", "session", "run"] {
            assert_eq!(later[field], call[field], "{field}");
        }
    }
}

#[test]
fn approvals_and_grants_are_documents() {
    let host = Host::up();
    assert_eq!(host.palyra(&["approvals", "list"]).good(), json!([]));
    assert_eq!(host.palyra(&["grants", "list"]).good(), json!([]));
    let (call, approval) = host.ask("palyra.process.run", &json!({ "argv": ["ls"] }), &["--session", "s"]);
    let listed = host.palyra(&["approvals", "list"]).good();
    let mut shown = host.palyra(&["approvals", "show", &approval]).good();
    let review = shown.as_object_mut().unwrap().remove("review").unwrap();
    assert_eq!((&review["approval_id"], &review["tool"]), (&json!(approval), &json!("palyra.process.run")));
    assert_eq!(listed[0], shown, "the record is the same; only one that is looked at has its review");
    let expected = [
        "approval_id",
        "call_digest",
        "call_id",
        "decision_id",
        "expires_at",
        "facets",
        "input",
        "policy_hash",
        "principal",
        "proposed_by",
        "requested_at",
        "risk",
        "session",
        "state",
        "subject_id",
        "tool",
        "why",
        "workspace",
    ];
    assert_eq!(fields(&shown), expected);
    assert_eq!(text(&shown, "/subject_id"), "tool:palyra.process.run");
    assert_eq!(text(&shown, "/call_id"), call);
    assert!(text(&shown, "/facets/executable").starts_with('/'), "what will really run is shown");
    let decided = host.decide(&approval, "allow", &["--scope", "session", "--reason", "it only looks"]).good();
    assert_eq!(fields(&decided["resolution"]), ["at", "by", "grant", "matcher", "reason", "scope"]);
    assert_eq!(text(&decided, "/resolution/by"), "user:local");
    assert_eq!(text(&decided, "/resolution/reason"), "it only looks");
    let grants = host.palyra(&["grants", "list"]).good();
    let grant = text(&grants[0], "/grant_id");
    assert_eq!(grant, text(&decided, "/resolution/grant"));
    let revoked = host.palyra(&["grants", "revoke", grant]).good();
    assert!(revoked["revoked_at"].is_number(), "{revoked}");
    assert_eq!(host.palyra(&["approvals", "list"]).good(), json!([]));
    assert_eq!(host.palyra(&["approvals", "list", "--all"]).good()[0]["state"], "allowed");
}

#[test]
fn the_journal_is_read_event_by_event() {
    let host = Host::up();
    let call = host.call("palyra.echo", &json!({ "text": "hi" }), &[]).good();
    let call_id = text(&call, "/call_id");
    let tail = host.palyra(&["journal", "tail"]).exits(0).json_lines();
    let kinds: Vec<_> = tail.iter().map(|event| text(event, "/kind")).collect();
    assert_eq!(kinds, ["daemon.started", "tool.proposed", "tool.decided", "tool.started", "tool.finished"]);
    for event in &tail {
        assert_eq!(fields(event), EVENT);
    }
    assert_eq!(host.palyra(&["journal", "tail", "-n", "2"]).exits(0).json_lines(), tail[3..]);
    let of_call = host.palyra(&["journal", "show", call_id]).exits(0).json_lines();
    assert_eq!(of_call.len(), 4);
    let one = host.palyra(&["journal", "show", "5"]).good();
    assert_eq!(one, of_call[3]);
    assert_eq!(one["body"]["output"], json!({ "text": "hi" }), "a shown event's body is a document, not a text");
    let verified = host.palyra(&["journal", "verify"]).good();
    let expected = ["compared_with_checkpoint", "events", "fault", "fault_seq", "head", "intact", "origin"];
    assert_eq!(fields(&verified), expected);
    assert_eq!((&verified["intact"], &verified["events"]), (&json!(true), &json!(5)));
    assert_eq!(of_call, tail[1..], "an event has one shape wherever it is read");
    let mut exported = host.palyra(&["journal", "export"]).exits(0).json_lines();
    for event in &mut exported {
        event["body"] = serde_json::from_str(text(event, "/body")).unwrap();
    }
    assert_eq!(exported, tail, "an export has the very text that was hashed");
    let checkpoint = host.palyra(&["journal", "checkpoint"]).good();
    assert_eq!(fields(&checkpoint), ["at", "head", "origin", "public_key", "signature", "size"]);
    assert_eq!(checkpoint["head"], verified["head"]);
}

#[test]
fn following_the_journal_shows_what_comes_and_ends_by_ctrl_c() {
    let host = Host::up();
    let tail = host.palyra_started(&["journal", "tail", "--follow"]);
    assert_eq!(tail.json()["kind"], "daemon.started");
    host.call("palyra.echo", &json!({ "text": "hi" }), &[]).exits(0).done();
    let kinds: Vec<_> = (0..4).map(|_| text(&tail.json(), "/kind").to_owned()).collect();
    assert_eq!(kinds, ["tool.proposed", "tool.decided", "tool.started", "tool.finished"]);
    tail.interrupt();
    tail.end().exits(0).done();
}

#[test]
fn watching_approvals_ends_by_ctrl_c() {
    let host = Host::up();
    let watch = host.palyra_started(&["approvals", "watch"]);
    let (_, approval) = host.ask("palyra.process.run", &json!({ "argv": ["ls"] }), &[]);
    assert_eq!(text(&watch.json(), "/approval_id"), approval);
    host.decide(&approval, "deny", &[]).exits(0).done();
    assert_eq!(watch.json()["state"], "denied");
    watch.interrupt();
    watch.end().exits(0).done();
}

#[test]
fn policy_is_explained_without_recording_or_running() {
    let host = Host::up();
    let before = host.palyra(&["status"]).good()["journal"]["size"].clone();
    let input = r#"{"argv":["git","push"]}"#;
    for name in [&[][..], &["--as", "agent:demo"]] {
        let args = [&["policy", "explain", "palyra.process.run", "--input", input], name].concat();
        let explained = host.palyra(&args).good();
        assert_eq!(fields(&explained), ["call", "decision"]);
        assert_eq!(text(&explained, "/decision/decision"), "needs_approval");
        assert_eq!(explained["decision"]["rules"], json!(["deny_sensitive"]));
        let explanation = &explained["decision"]["explanation"];
        assert!(!explanation["facts"].as_array().unwrap().is_empty(), "{explanation}");
        assert!(!explanation["what_would_change"].as_array().unwrap().is_empty(), "{explanation}");
    }
    assert_eq!(host.palyra(&["status"]).good()["journal"]["size"], before);
    host.palyra(&["policy", "explain", "palyra.nonsense"]).fails(6, "unknown_tool");
}

#[test]
fn completions_need_no_daemon() {
    let host = Host::idle();
    for shell in ["bash", "zsh", "fish"] {
        let script = host.palyra(&["completions", shell]).exits(0).stdout;
        assert!(script.contains("palyra") && script.contains("COMPLETE"), "{shell}");
    }
}

#[test]
fn completions_know_ids_tools_and_principals() {
    let host = Host::up();
    let input = serde_json::json!({ "argv": ["git", "status"] });
    let (call, approval) = host.ask("palyra.process.run", &input, &[]);
    let complete = |words: &[&str]| {
        let mut command = host.command("palyra");
        command = {
            let mut plain = std::process::Command::new(command.get_program());
            plain.env("COMPLETE", "fish").env("PALYRA_STATE_DIR", host.state()).args(["--", "palyra"]).args(words);
            plain
        };
        let done = command.output().unwrap();
        String::from_utf8(done.stdout).unwrap()
    };
    for (words, known) in [
        (&["approvals", "show", ""][..], approval.as_str()),
        (&["approvals", "decide", "lat"], "latest"),
        (&["calls", "show", ""], call.as_str()),
        (&["call", "palyra.fs"], "palyra.fs.read"),
        (&["calls", "list", "--principal", ""], "user:local"),
        (&["appr"], "approvals"),
    ] {
        let found = complete(words);
        assert!(found.contains(known), "{words:?}: {found}");
    }
}

#[test]
fn help_documents_every_exit_code() {
    let help = Host::idle().palyra_text(&["--help"]).exits(0).stdout;
    for code in 0..=10 {
        let documented = help.lines().any(|line| line.trim_start().split(' ').next() == Some(&code.to_string()));
        assert!(documented, "{code} is not in the help:\n{help}");
    }
}

/// Kills the daemon that `palyra up` left in the background, however the test ends.
struct InBackground(u32);

impl Drop for InBackground {
    fn drop(&mut self) {
        signal(self.0, rustix::process::Signal::KILL);
    }
}

#[test]
fn up_starts_once_and_down_stops() {
    let host = Host::idle();
    let workspace = host.work("");
    let up = ["up", "--workspace", workspace.to_str().unwrap()];
    let started = host.palyra(&up).good();
    let guard = InBackground(u32::try_from(started["pid"].as_u64().unwrap()).unwrap());
    assert_eq!(fields(&started), STATUS);
    assert_eq!(host.palyra(&up).good()["pid"], started["pid"], "it is not started twice");
    host.call("palyra.echo", &json!({ "text": "hi" }), &[]).exits(0).done();
    let stopped = host.palyra(&["down"]).good();
    assert_eq!(stopped, json!({ "stopped": started["pid"] }));
    std::mem::forget(guard);
    host.palyra(&["status"]).fails(7, "daemon_unreachable");
    host.palyra(&["down"]).fails(7, "daemon_unreachable");
}

/// Whoever may not end the daemon does not, though the program that asks runs as the daemon's own user.
#[test]
fn only_those_who_may_end_the_daemon() {
    let mut host = Host::up();
    host.palyra(&["access", "agent", "add", "agent:ci"]).exits(0).done();
    let token = |args: &[&str]| {
        let args = [&["access", "token", "create"], args].concat();
        text(&host.palyra(&args).good(), "/token").to_owned()
    };
    let agents = token(&["agent:ci"]);
    let narrow = token(&["user:local", "--role", "owner", "--scope", "daemon.status"]);
    let wide = token(&["user:local", "--role", "owner", "--scope", "daemon.stop"]);
    host.palyra(&["--token", &agents, "down"]).fails(10, "forbidden");
    host.palyra(&["--as", "agent:ci", "down"]).fails(10, "forbidden");
    host.palyra(&["--token", &narrow, "down"]).fails(10, "scope_missing");
    host.palyra(&["--token", "palyra_nonsense", "down"]).fails(10, "unauthenticated");
    let pid = host.palyra(&["status"]).good()["pid"].clone();
    assert_eq!(pid, host.pid(), "it goes on");
    assert_eq!(host.palyra(&["--token", &wide, "down"]).good(), json!({ "stopped": pid }));
    assert_eq!(host.terminate_ended().code, Some(0));
}

#[test]
fn up_says_why_the_daemon_does_not_start() {
    let host = Host::idle();
    host.configure("[tool_call]\nmax_call_per_run = 1\n");
    let error = host.palyra(&["up", "--config", host.config().to_str().unwrap()]).fails(1, "daemon_did_not_start");
    assert!(text(&error, "/message").contains("did you mean `max_calls_per_run`?"), "{error}");
}

#[test]
fn without_a_daemon_every_command_says_how_to_start_it() {
    let host = Host::idle();
    let id = "01K0000000000000000000000A";
    let (call, approval, grant) = (format!("call_{id}"), format!("apr_{id}"), format!("grant_{id}"));
    for args in [
        &["status"][..],
        &["tools", "list"],
        &["tools", "show", "palyra.echo"],
        &["call", "palyra.echo"],
        &["calls", "show", &call],
        &["calls", "follow", &call],
        &["calls", "cancel", &call],
        &["approvals", "list"],
        &["approvals", "show", &approval],
        &["approvals", "decide", &approval, "allow"],
        &["approvals", "watch"],
        &["grants", "list"],
        &["grants", "revoke", &grant],
        &["policy", "explain", "palyra.echo"],
        &["journal", "tail"],
        &["journal", "show", "1"],
        &["journal", "verify"],
        &["journal", "export"],
        &["journal", "checkpoint"],
    ] {
        let error = host.palyra(args).fails(7, "daemon_unreachable");
        assert!(text(&error, "/hint").contains("palyra up"), "{args:?}: {error}");
    }
    let error = host.palyra(&["down"]).fails(7, "daemon_unreachable");
    assert!(text(&error, "/hint").contains("nothing to stop"), "{error}");
}

#[test]
fn what_is_not_there_is_refused() {
    let host = Host::up();
    let id = "01K0000000000000000000000A";
    let (call, approval, grant) = (format!("call_{id}"), format!("apr_{id}"), format!("grant_{id}"));
    for args in [
        &["calls", "show", &call][..],
        &["calls", "follow", &call],
        &["calls", "cancel", &call],
        &["approvals", "show", &approval],
        &["approvals", "decide", &approval, "allow"],
        &["approvals", "decide", &approval, "deny"],
        &["grants", "revoke", &grant],
        &["journal", "show", "999"],
        &["journal", "show", &call],
    ] {
        host.palyra(args).fails(10, "not_found");
    }
    host.palyra(&["tools", "show", "palyra.nonsense"]).fails(6, "unknown_tool");
}

#[test]
fn a_command_line_that_is_not_understood_is_exit_2() {
    let host = Host::idle();
    for args in [
        &["dance"][..],
        &["calls", "show", "nonsense"],
        &["approvals", "decide", "call_01K0000000000000000000000A", "allow"],
        &["approvals", "decide", "apr_01K0000000000000000000000A", "perhaps"],
        &["approvals", "decide", "apr_01K0000000000000000000000A", "allow", "--scope", "window"],
        &["approvals", "decide", "apr_01K0000000000000000000000A", "allow", "--match", "argv-prefix"],
        &["approvals", "decide", "apr_01K0000000000000000000000A", "allow", "--for", "30m"],
        &["approvals", "decide", "apr_01K0000000000000000000000A", "allow", "--scope", "session", "--words", "1"],
        &["approvals", "decide", "apr_01K0000000000000000000000A", "allow", "--scope", "window", "--for", "1y"],
        &["call", "palyra.echo", "--session", "no spaces"],
        &["call", "palyra.echo", "--idempotency-key", ""],
        &["status", "--as", "nobody"],
    ] {
        let ran = host.palyra(args);
        assert_eq!(ran.stdout, "", "data on standard output only");
        let error = ran.fails(2, "usage");
        assert!(error["hint"].is_string() && !text(&error, "/message").contains('\n'), "{args:?}: {error}");
        let ran = host.palyra_text(args).exits(2);
        assert!(ran.stderr.contains("error:"), "{args:?}: {ran:?}");
    }
}

#[test]
fn people_get_text_where_programs_get_json() {
    let host = Host::up();
    let call = host.palyra_text(&["call", "palyra.echo", "--input", r#"{"text":"hello"}"#]).exits(0);
    assert!(call.stdout.contains("hello") && call.stderr.contains("succeeded"), "{call:?}");
    let (call_id, approval) = host.ask("palyra.process.run", &json!({ "argv": ["ls", "-l"] }), &["--session", "s"]);
    let card = host.palyra_text(&["approvals", "show", &approval]).exits(0);
    assert!(card.stdout.contains("ls -l") && card.stdout.contains("risk         high"), "{card:?}");
    assert!(host.palyra_text(&["approvals", "list"]).exits(0).stdout.contains(&approval));
    assert!(host.palyra_text(&["calls", "show", &call_id]).exits(0).stdout.contains("awaiting_approval"));
    assert!(host.palyra_text(&["status"]).exits(0).stdout.contains("approvals list"));
    let decided = host.palyra_text(&["approvals", "decide", &approval, "allow", "--scope", "session"]).exits(0);
    assert!(decided.stdout.contains("allowed") && decided.stderr.contains("grants revoke"), "{decided:?}");
    for (args, shown) in [
        (&["tools", "list"][..], "palyra.fs.read"),
        (&["tools", "show", "palyra.echo"], "example"),
        (&["grants", "list"], "exactly this call"),
        (&["doctor"], "process tier"),
        (&["policy", "explain", "palyra.echo", "--input", r#"{"text":"x"}"#], "allowlisted_execution"),
        (&["journal", "tail"], "tool.finished"),
        (&["journal", "show", "1"], "daemon.started"),
        (&["journal", "verify"], "fit together"),
        (&["journal", "checkpoint"], "signature"),
    ] {
        let ran = host.palyra_text(args).exits(0);
        assert!(ran.stdout.contains(shown), "{args:?}: {ran:?}");
        assert!(!ran.stdout.contains('\u{1b}'), "colour only on a terminal: {args:?}");
    }
    let failed = host.palyra_text(&["call", "palyra.nonsense"]).exits(6);
    assert!(failed.stderr.contains("error:") && failed.stderr.contains("code: unknown_tool"), "{failed:?}");
}

#[test]
fn ctrl_c_while_following_leaves_the_call_alone() {
    let host = Host::up();
    let (call, approval) = host.ask("palyra.process.run", &json!({ "argv": ["true"] }), &[]);
    let mut follow = host.command("palyra");
    follow.args(["calls", "follow", &call]);
    let follow = palyra_e2e::Running::start(follow);
    follow.told("waiting for approval");
    follow.interrupt();
    let ran = follow.end().exits(5);
    assert!(ran.stderr.contains("the call goes on"), "{ran:?}");
    assert_eq!(host.palyra(&["calls", "show", &call]).good()["state"], "awaiting_approval");
    host.decide(&approval, "allow", &[]).exits(0).done();
    host.palyra(&["calls", "follow", &call]).exits(0).done();
}

#[test]
fn an_answer_that_cannot_be_written_is_a_failure_and_a_reader_that_left_is_not() {
    let host = Host::up();
    let to_full = |args: &[&str]| {
        let mut command = host.command("palyra");
        command.args(args).stdout(std::fs::File::create("/dev/full").unwrap()).stderr(Stdio::piped());
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let echo = r#"{"text":"x"}"#;
    for args in [
        &["journal", "checkpoint"][..],
        &["-o", "json", "call", "palyra.echo", "--input", echo],
        &["call", "palyra.echo", "--input", echo],
        &["journal", "export"],
        &["journal", "tail"],
        &["status"],
        &["completions", "bash"],
    ] {
        let (code, said) = to_full(args);
        assert_eq!(code, Some(1), "{args:?}: {said}");
        assert!(said.contains("No space left"), "{args:?}: {said}");
    }
    for args in [&["completions", "bash"][..], &["journal", "export"], &["-o", "json", "tools", "list"]] {
        let mut child =
            host.command("palyra").args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let ended = child.wait_with_output().unwrap();
        assert_eq!((ended.status.code(), ended.stderr), (Some(0), Vec::new()), "{args:?}");
    }
}

#[test]
fn a_watcher_is_told_that_the_daemon_ended() {
    for args in [&["approvals", "watch"][..], &["journal", "tail", "--follow"]] {
        let mut host = Host::up();
        drop(host.ask("palyra.process.run", &json!({ "argv": ["true"] }), &[]));
        let watch = host.palyra_started(args);
        drop(watch.line());
        host.kill();
        let error = watch.end();
        assert_eq!(error.code, 7, "{args:?}: {error:?}");
        assert!(text(&error.error(), "/message").contains("the daemon has ended"), "{error:?}");
        assert!(text(&error.error(), "/hint").contains("palyra up"), "{error:?}");
    }
}

#[test]
fn many_who_start_the_daemon_at_once_get_one() {
    let host = Host::idle();
    let up = || {
        let mut command = host.command("palyra");
        command.args(["--output", "json", "up", "--workspace"]).arg(host.work(""));
        palyra_e2e::Running::start(command)
    };
    let started: Vec<_> = (0..4).map(|_| up()).collect();
    let pids: Vec<_> = started.into_iter().map(|up| up.end().good()["pid"].clone()).collect();
    assert!(pids.iter().all(|pid| *pid == pids[0]), "{pids:?}");
    // One that is just ending is waited for; what it executes gets some time.
    let asleep = host.palyra_started(&["call", "palyra.sleep", "--input", r#"{"duration_ms":1500}"#]);
    while host.palyra(&["status"]).good()["open_calls"] != 1 {}
    signal(u32::try_from(pids[0].as_u64().unwrap()).unwrap(), rustix::process::Signal::TERM);
    while host.palyra(&["status"]).code == 0 {}
    assert_ne!(up().end().good()["pid"], pids[0]);
    drop(asleep);
    host.palyra(&["down"]).exits(0).done();
}

#[test]
fn an_input_too_large_to_read_is_not_cut_and_sent() {
    let host = Host::up();
    let input = vec![b' '; (8 << 20) + 10];
    let error = host.palyra_fed(&["call", "palyra.echo", "--input", "-"], &input).fails(6, "input_too_large");
    assert!(text(&error, "/message").contains("more than 8388608"), "{error}");
}

//! A client that keeps its own tools: its hook asks, its commands run in the sandbox by a ticket, and it does not
//! approve itself.

use palyra_e2e::cli::{Ran, Running, run};
use palyra_e2e::{Host, text};
use serde_json::{Value, json};
use std::fs;
use std::process::Command;

const BASH: &str = "[process_runner]\ntier = \"c\"\nallow_interpreters = [\"bash\"]\n";
/// What needs nobody: contained commands, and files of `src`. Nobody pushes.
const RULES: &str = r#"
@id("contained_runs") @reason("Nothing leaves the view.")
permit (principal, action == Action::"approval.waive", resource)
when { context has containment && context.containment.contained };
@id("sources_are_written") @reason("Sources are the agent's.")
permit (principal, action == Action::"approval.waive", resource)
when { context has written_root && (context.written_root like "src/*" || context.written_root like "*.toml") };
@id("nobody_pushes") @reason("Nobody pushes.")
forbid (principal, action == Action::"tool.execute", resource)
when { context has command_line && context.command_line like "*git push*" };
"#;

fn connected(rules: &str) -> Host {
    let mut host = Host::idle();
    fs::create_dir(host.path("rules")).unwrap();
    fs::write(host.path("rules/mine.cedar"), rules).unwrap();
    host.configure(&format!("policy_dir = {:?}\n{BASH}", host.path("rules")));
    host.start();
    fs::create_dir(host.work("sub")).unwrap();
    let project = host.path("w");
    host.palyra(&["connect", "claude-code", "--hooks", "--project", project.to_str().unwrap()]).exits(0).done();
    host
}

/// What the settings have Claude Code run.
fn handler(host: &Host) -> Vec<String> {
    let settings: Value = serde_json::from_str(&host.content(".claude/settings.local.json")).unwrap();
    let handler = &settings["hooks"]["PreToolUse"][0]["hooks"][0];
    assert_eq!((&handler["onFailure"], &handler["type"]), (&json!("block"), &json!("command")));
    let args = handler["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap().to_owned());
    std::iter::once(text(handler, "/command").to_owned()).chain(args).collect()
}

/// The hook as a client runs it: `timeout` is the client's process.
fn hook(host: &Host) -> Command {
    let mut command = client(host);
    command.args(handler(host));
    command
}

/// A process that stands for the client, and runs what follows.
fn client(host: &Host) -> Command {
    let mut command = Command::new("timeout");
    command.arg("600").env("HOME", host.path("home")).env_remove("PALYRA_TOKEN").env_remove("PALYRA_HOST");
    command
}

/// Another use of a tool has another name.
fn id_of(input: &Value) -> String {
    palyra_protocol::Digest::of(input.to_string().as_bytes()).to_string()[..16].to_owned()
}

fn question(host: &Host, tool: &str, input: &Value) -> Value {
    json!({
        "hook_event_name": "PreToolUse", "session_id": "s-1", "tool_use_id": format!("toolu_{tool}_{}", id_of(input)),
        "cwd": host.path("w"), "tool_name": tool, "tool_input": input,
    })
}

fn asked(host: &Host, tool: &str, input: &Value) -> Ran {
    run(hook(host), question(host, tool, input).to_string().as_bytes())
}

/// A hook that waits for a person.
fn asking(host: &Host, tool: &str, input: &Value) -> Running {
    fs::write(host.path("question"), question(host, tool, input).to_string()).unwrap();
    let words: Vec<String> = handler(host).iter().map(|word| format!("'{word}'")).collect();
    let mut command = client(host);
    command.args(["bash", "-c", &format!("{} < '{}'", words.join(" "), host.path("question").display())]);
    Running::start(command)
}

/// The command that the client is given in place of the agent's.
fn wrapped(answer: &Ran) -> String {
    let answer: Value = serde_json::from_str(&answer.stdout).unwrap();
    assert_eq!(answer["hookSpecificOutput"]["permissionDecision"], "allow");
    text(&answer, "/hookSpecificOutput/updatedInput/command").to_owned()
}

/// Runs a command in the client's shell.
fn shell(host: &Host, line: &str) -> Ran {
    let mut bash = Command::new("bash");
    bash.args(["-c", line]).current_dir(host.path("w"));
    run(bash, b"")
}

#[test]
fn an_allowed_command_runs_in_the_sandbox_by_its_ticket_and_once() {
    let host = connected(RULES);
    let input = json!({ "command": "cd sub && echo out && echo err >&2 && touch made && ls /home; exit 3", "description": "d" });
    let answer = asked(&host, "Bash", &input).exits(0);
    let document: Value = serde_json::from_str(&answer.stdout).unwrap();
    assert_eq!(document["hookSpecificOutput"]["updatedInput"]["description"], "d", "the rest of the input stays");
    assert!(!host.work("sub/made").exists(), "nothing runs before the client starts it");
    let line = wrapped(&answer);
    let ran = shell(&host, &format!("{line}; echo \"code=$? in $PWD\""));
    let stands = host.work("sub");
    assert_eq!(ran.stdout, format!("out\ncode=3 in {}\n", stands.display()), "{ran:?}");
    assert!(ran.stderr.starts_with("err\n") && ran.stderr.contains("cannot access '/home'"), "{ran:?}");
    assert!(!ran.stderr.contains("palyra-directory"), "{ran:?}");
    assert!(host.work("sub/made").exists(), "what it changed counts");
    let again = shell(&host, &line).exits(125);
    assert!(again.stderr.contains("starts nothing"), "{again:?}");
    let calls = host.palyra(&["calls", "list"]).good();
    assert_eq!((calls.as_array().unwrap().len(), &calls[0]["state"]), (1, &json!("failed")), "{calls}");
    host.palyra(&["journal", "verify"]).exits(0).done();
}

#[test]
fn a_command_that_policy_denies_is_blocked_with_its_reason() {
    let host = connected(RULES);
    let denied = asked(&host, "Bash", &json!({ "command": "git push" })).exits(2);
    assert!(denied.stdout.is_empty() && denied.stderr.contains("Nobody pushes"), "{denied:?}");
}

#[test]
fn a_person_is_asked_in_place_of_the_clients_own_prompt() {
    let host = connected("");
    let watch = host.palyra_started(&["approvals", "watch"]);
    let asking = asking(&host, "Bash", &json!({ "command": "echo approved" }));
    let approval = watch.json();
    host.decide(text(&approval, "/approval_id"), "allow", &[]).exits(0).done();
    let line = wrapped(&asking.end().exits(0));
    assert_eq!(shell(&host, &line).exits(0).stdout, "approved\n");
}

#[test]
fn file_tools_are_decided_and_recorded_as_the_clients_own() {
    let host = connected(RULES);
    fs::create_dir(host.work("src")).unwrap();
    host.put("src/a.rs", "fn one() {}\n");
    let file = host.work("src/a.rs");
    let edit = json!({ "file_path": file, "old_string": "one", "new_string": "two" });
    asked(&host, "Edit", &edit).exits(0).done();
    assert_eq!(host.content("src/a.rs"), "fn one() {}\n", "Palyra decides, the client writes");
    let calls = host.palyra(&["calls", "list"]).good();
    let call = host.palyra(&["calls", "show", text(&calls[0], "/call_id")]).good();
    assert_eq!((&call["tool"], &call["output"]), (&json!("palyra.fs.write"), &json!({ "carried_out_by": "client" })));
    assert_eq!(call["attestation"]["executor"], "client", "{call}");
    assert_eq!(call["attestation"]["sandbox_enforcement"]["backend"], "client");
    let mut told = question(&host, "Edit", &edit);
    told["hook_event_name"] = json!("PostToolUse");
    run(hook(&host), told.to_string().as_bytes()).exits(0).done();
    let journal = host.palyra_text(&["journal", "tail"]).exits(0).stdout;
    assert!(journal.contains("client.reported"), "{journal}");
    host.palyra(&["journal", "verify"]).exits(0).done();
    for (tool, input) in [
        ("Read", json!({ "file_path": "/etc/passwd" })),
        ("Write", json!({ "file_path": host.path("palyra.toml"), "content": "" })),
        ("WebFetch", json!({ "url": "https://example.org/" })),
    ] {
        let refused = asked(&host, tool, &input).exits(2);
        assert!(refused.stdout.is_empty() && refused.stderr.starts_with("Palyra: "), "{tool}: {refused:?}");
    }
}

#[test]
fn a_tool_that_resembles_none_is_recorded_if_it_is_harmless_and_asked_about_otherwise() {
    let host = connected(RULES);
    for (tool, input) in [
        ("TodoWrite", json!({ "todos": [] })),
        ("Agent", json!({ "prompt": "look around", "description": "d" })),
        ("Skill", json!({ "skill": "review" })),
        ("ToolSearch", json!({ "query": "x" })),
        ("WebSearch", json!({ "query": "x" })),
    ] {
        let answer = asked(&host, tool, &input).exits(0);
        assert!(answer.stdout.contains("\"permissionDecision\":\"allow\""), "{tool}: {answer:?}");
    }
    // The client asks its person by these: its own dialog stays.
    assert_eq!(asked(&host, "ExitPlanMode", &json!({ "plan": "p" })).exits(0).stdout, "");
    let calls = host.palyra(&["calls", "list"]).good();
    assert_eq!(calls.as_array().unwrap().len(), 6, "{calls}");
    let call = host.palyra(&["calls", "show", text(&calls[0], "/call_id")]).good();
    assert_eq!(
        (&call["tool"], &call["output"]),
        (&json!("palyra.client.plan"), &json!({ "carried_out_by": "client" }))
    );
    assert_eq!(call["attestation"]["executor"], "client", "{call}");
    // What is not known asks, and a yes to one is a yes to no other.
    let watch = host.palyra_started(&["approvals", "watch"]);
    let first = asking(&host, "mcp__tracker__list", &json!({}));
    let approval = watch.json();
    assert!(approval.to_string().contains("mcp__tracker__list"), "{approval}");
    let wide = ["--scope", "session", "--match", "tool"];
    host.decide(text(&approval, "/approval_id"), "allow", &wide).exits(0).done();
    assert!(first.end().exits(0).stdout.contains("\"permissionDecision\":\"allow\""));
    asked(&host, "mcp__tracker__list", &json!({ "page": 2 })).exits(0).done();
    let watch = host.palyra_started(&["approvals", "watch"]);
    let other = asking(&host, "mcp__tracker__delete", &json!({}));
    let approval = watch.json();
    host.decide(text(&approval, "/approval_id"), "deny", &["--reason", "no"]).exits(0).done();
    assert!(other.end().exits(2).stderr.contains("denied the call"));
    host.palyra(&["journal", "verify"]).exits(0).done();
}

#[test]
fn a_hook_that_is_stopped_while_it_waits_refuses_and_withdraws_its_call() {
    let host = connected("");
    let watch = host.palyra_started(&["approvals", "watch"]);
    fs::write(host.path("question"), question(&host, "Bash", &json!({ "command": "echo late" })).to_string()).unwrap();
    let mut waiting = hook(&host);
    waiting.stdin(fs::File::open(host.path("question")).unwrap()).stdout(std::process::Stdio::piped());
    let stopping = waiting.stderr(std::process::Stdio::piped()).spawn().unwrap();
    drop(watch.json());
    // A client whose patience ends stops its hook.
    let stopped = Command::new("kill").args(["-TERM", &stopping.id().to_string()]).status().unwrap();
    assert!(stopped.success());
    let ended = stopping.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stdout.as_slice()), (Some(2), &b""[..]), "{ended:?}");
    let calls = host.palyra(&["calls", "list"]).good();
    assert_eq!(calls[0]["state"], "cancelled", "there is nothing left to allow: {calls}");
}

#[test]
fn a_client_whose_hooks_fail_open_is_not_connected() {
    let host = Host::up();
    let bin = host.path("bin");
    fs::create_dir(&bin).unwrap();
    let program = |version: &str| {
        fs::write(bin.join("claude"), format!("#!/bin/sh\necho '{version} (Claude Code)'\n")).unwrap();
        fs::set_permissions(bin.join("claude"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    };
    let connect = || {
        let mut command = host.command("palyra");
        let path = format!("{}:/usr/bin:/bin", bin.display());
        command.args(["-o", "json", "connect", "claude-code", "--hooks", "--project"]).arg(host.path("w"));
        run(
            {
                command.env("PATH", path);
                command
            },
            b"",
        )
    };
    program("2.1.197");
    connect().fails(10, "client_too_old");
    assert!(!host.work(".claude").exists(), "nothing was written");
    program("2.1.326");
    connect().exits(0).done();
    host.palyra(&["disconnect", "claude-code"]).exits(0).done();
}

#[test]
fn a_client_is_asked_about_the_secrets_that_it_would_read() {
    let host = connected(RULES);
    host.put(".env", "API_KEY=sk-very-secret\n");
    host.put("src.txt", "nothing\n");
    asked(&host, "Read", &json!({ "file_path": host.work("src.txt") })).exits(0).done();
    for (tool, input) in [
        ("Read", json!({ "file_path": host.work(".env") })),
        ("Grep", json!({ "pattern": "KEY" })),
        ("Bash", json!({ "command": "source .env; echo $API_KEY" })),
    ] {
        let watch = host.palyra_started(&["approvals", "watch"]);
        let asking = asking(&host, tool, &input);
        let approval = watch.json();
        assert!(text(&approval, "/why").contains("secret_files_ask"), "{tool}: {approval}");
        host.decide(text(&approval, "/approval_id"), "deny", &["--reason", "no"]).exits(0).done();
        asking.end().exits(2).done();
    }
    // What no word names is not there.
    let line = wrapped(&asked(&host, "Bash", &json!({ "command": "cat .e*" })).exits(0));
    let ran = shell(&host, &line);
    assert!(ran.stdout.contains("Palyra withholds") && !ran.stdout.contains("sk-very"), "{ran:?}");
}

#[test]
fn a_guarded_file_is_asked_about_whatever_waives_other_files() {
    let host =
        connected(r#"@id("all") @reason("All.") permit (principal, action == Action::"approval.waive", resource);"#);
    let made = json!({ "file_path": host.work("x.txt"), "old_string": "", "new_string": "x" });
    asked(&host, "Edit", &made).exits(0).done();
    let watch = host.palyra_started(&["approvals", "watch"]);
    let input = json!({ "file_path": host.work(".claude/settings.json"), "content": "{\"disableAllHooks\":true}" });
    let asking = asking(&host, "Write", &input);
    let approval = watch.json();
    assert!(text(&approval, "/why").contains("guarded_paths_wait"), "{approval}");
    host.decide(text(&approval, "/approval_id"), "deny", &["--reason", "no"]).exits(0).done();
    let refused = asking.end().exits(2);
    assert!(refused.stderr.contains("denied the call"), "{refused:?}");
}

#[test]
fn a_hook_that_cannot_ask_blocks_and_says_how_to_mend_it() {
    let mut host = connected(RULES);
    for nonsense in ["", "{", "{}", "{\"hook_event_name\":\"PreToolUse\"}"] {
        run(hook(&host), nonsense.as_bytes()).exits(2).done();
    }
    let change = run(hook(&host), br#"{"hook_event_name":"ConfigChange","source":"user_settings"}"#).exits(2);
    assert!(change.stderr.contains("started again"), "{change:?}");
    host.terminate();
    let down = asked(&host, "Bash", &json!({ "command": "true" })).exits(2);
    assert!(down.stdout.is_empty() && down.stderr.contains(" up`"), "{down:?}");
}

#[test]
fn an_agent_does_not_approve_itself() {
    let host = connected("");
    let palyra = palyra_e2e::host::binary("palyra");
    let (call, approval) = host.ask("palyra.process.run", &json!({ "argv": ["true"] }), &["--as", "agent:claude-code"]);
    // The client's process: it asks by its hook, and its shell tries to answer.
    let question = question(&host, "TodoWrite", &json!({}));
    let read = question.to_string().replace("TodoWrite", "Glob");
    fs::write(host.path("question"), read).unwrap();
    let hook: Vec<String> = handler(&host).iter().map(|word| format!("'{word}'")).collect();
    let answer = |words: &str| format!("'{}' --state-dir '{}' {words}", palyra.display(), host.state().display());
    let script = format!(
        "{} < '{}' >&2; {}; echo \"decided $?\"; (setsid {}; echo \"token $?\"); \
         {}; echo \"console $?\"; {}; echo \"memory $?\"; {}; echo \"routine $?\"; exit 0",
        hook.join(" "),
        host.path("question").display(),
        answer(&format!("approvals decide {approval} allow")),
        answer("access token create user:local"),
        // Whoever opens a console could answer there, and what a person adds is trusted.
        answer("console --print"),
        answer("memory add 'always approve'"),
        answer(
            "routines add n --schedule @hourly --agent agent:claude-code --call palyra.echo --input '{\"text\":\"x\"}'"
        ),
    );
    let mut tries = client(&host);
    tries.args(["bash", "-c", &script]);
    let tried = run(tries, b"").exits(0);
    for refused in ["decided 10", "token 10", "console 10", "memory 10", "routine 10"] {
        assert!(tried.stdout.contains(refused), "{refused}: {tried:?}");
    }
    assert!(tried.stderr.contains("agents_never_approve"), "{tried:?}");
    let journal = host.palyra_text(&["journal", "tail"]).exits(0).stdout;
    assert!(journal.contains("access.refused"), "{journal}");
    assert_eq!(host.palyra(&["approvals", "list"]).good()[0]["approval_id"], json!(approval), "it still waits");
    host.decide(&approval, "allow", &[]).exits(0).done();
    host.palyra(&["calls", "follow", &call]).exits(0).done();
}

#[test]
fn what_connecting_makes_is_not_committed_and_is_taken_back() {
    let host = Host::up();
    let git = |words: &[&str]| {
        let mut git = Command::new("git");
        git.args(words).current_dir(host.path("w"));
        run(git, b"").exits(0).stdout
    };
    git(&["init", "-q"]);
    let exclude = host.content(".git/info/exclude");
    let project = host.path("w");
    let text_of =
        |words: &[&str]| host.palyra_text(&[words, &["--project", project.to_str().unwrap()]].concat()).exits(0);
    let plain = text_of(&["connect", "claude-code"]);
    assert!(plain.stderr.contains("act past Palyra"), "{plain:?}");
    git(&["add", "-A"]);
    assert_eq!(git(&["status", "--short"]), "", "nothing of it is committed");
    assert!(host.content(".mcp.json").contains("\"alwaysLoad\": true"));
    host.palyra(&["disconnect", "claude-code"]).exits(0).done();
    assert_eq!(host.content(".git/info/exclude"), exclude);
    let hooks = text_of(&["connect", "claude-code", "--hooks"]);
    assert!(!hooks.stderr.contains("act past Palyra") && hooks.stdout.contains("limits"), "{hooks:?}");
    assert!(!host.work(".mcp.json").exists(), "the client keeps its own tools");
    host.palyra(&["disconnect", "claude-code"]).exits(0).done();
    assert!(!host.work(".claude").exists());
}

#[test]
fn a_process_that_works_in_the_workspace_must_end_before_a_client_is_connected() {
    let host = Host::up();
    let input = json!({ "argv": ["sleep", "600"], "workspace": "live" });
    let (call, approval) = host.ask("palyra.process.start", &input, &["--as", "agent:demo", "--session", "s"]);
    host.decide(&approval, "allow", &[]).exits(0).done();
    while host.palyra(&["calls", "list"]).good()[0]["state"] != "executing" {
        std::thread::yield_now();
    }
    let project = host.path("w");
    let connect = ["connect", "claude-code", "--project", project.to_str().unwrap()];
    host.palyra(&connect).fails(10, "process_running");
    assert!(!host.work(".mcp.json").exists(), "nothing was written");
    host.palyra(&["calls", "cancel", &call]).exits(5).done();
    host.palyra(&["calls", "follow", &call]).done();
    host.palyra(&connect).exits(0).done();
    host.palyra(&["disconnect", "claude-code"]).exits(0).done();
}

#[test]
fn a_rule_demands_an_approver_on_another_device() {
    let host = connected(
        r#"@id("approved_elsewhere") @reason("Approvals are given on a paired device.")
        forbid (principal, action == Action::"approval.decide", resource)
        when { context has answer && context.answer == "allow" }
        unless { context has device };"#,
    );
    let (_, approval) = host.ask("palyra.process.run", &json!({ "argv": ["true"] }), &["--as", "agent:claude-code"]);
    let refused = host.decide(&approval, "allow", &[]).fails(10, "forbidden");
    assert!(refused.to_string().contains("paired device"), "{refused}");
    host.decide(&approval, "deny", &[]).exits(0).done();
}

//! `palyra.process.run`: what comes back, what is refused, and that nothing outlives its call.

use palyra_e2e::{Host, Proposal, api, text};
use palyra_testkit::serve;
use rustix::event::{PollFd, PollFlags, poll};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, symlink};

/// Runs a program that somebody says yes to.
fn run(host: &Host, input: &Value) -> palyra_e2e::Ran {
    let (call, approval) = host.ask("palyra.process.run", input, &[]);
    host.decide(&approval, "allow", &[]).exits(0).done();
    host.palyra(&["calls", "follow", &call])
}

#[test]
fn both_streams_come_back_and_what_was_enforced_is_attested() {
    let host = Host::up();
    host.put("there", "x");
    let ran = run(&host, &json!({ "argv": ["ls", "there", "nowhere"] })).exits(1);
    let call = ran.json();
    assert_eq!(call["problem"]["code"], "nonzero_exit");
    assert_eq!(call["output"]["exit_code"], 2);
    assert_eq!(text(&call, "/output/stdout"), "there\n");
    assert!(text(&call, "/output/stderr").contains("nowhere"), "{call}");
    assert_eq!(text(&call, "/attestation/exit"), "code 2");
    let enforcement = &call["attestation"]["sandbox_enforcement"];
    assert_eq!((&enforcement["tier"], &enforcement["backend"]), (&json!("c"), &json!("bubblewrap")));
    let applied = |name: &str| {
        enforcement["layers"].as_array().unwrap().iter().any(|l| l["name"] == name && l["applied"] == true)
    };
    for layer in ["network_namespace", "mount_namespace", "seccomp", "no_new_privileges", "rlimits"] {
        assert!(applied(layer), "{layer}: {enforcement}");
    }
}

#[test]
fn standard_input_environment_and_directory_arrive() {
    let host = Host::up();
    fs::create_dir(host.work("sub")).unwrap();
    assert_eq!(run(&host, &json!({ "argv": ["cat"], "stdin": "grüße" })).good()["output"]["stdout"], "grüße");
    let printed = run(&host, &json!({ "argv": ["printenv", "GREETING"], "env": { "GREETING": "hi" } })).good();
    assert_eq!(printed["output"]["stdout"], "hi\n");
    let where_at = run(&host, &json!({ "argv": ["pwd"], "cwd": "sub" })).good();
    assert!(text(&where_at, "/output/stdout").trim_end().ends_with("/sub"), "{where_at}");
}

#[test]
fn binary_output_is_base64_and_truncation_is_counted() {
    let host = Host::with("[process_runner]\nmax_output_bytes = 1000\n");
    host.put("raw", b"\xff\x00\xfe");
    host.put("long", "x".repeat(5000));
    let raw = run(&host, &json!({ "argv": ["cat", "raw"] })).good();
    assert_eq!((text(&raw, "/output/stdout_encoding"), text(&raw, "/output/stdout")), ("base64", "/wD+"));
    let long = run(&host, &json!({ "argv": ["cat", "long"] }));
    let output = &long.json()["output"];
    assert_eq!(output["stdout_truncated"], true, "{output}");
    assert_eq!(output["stdout_total_bytes"], 5000, "{output}");
    assert_eq!(text(output, "/stdout"), "x".repeat(1000));
}

#[test]
fn shells_and_interpreters_are_refused_under_any_name() {
    let host = Host::up();
    fs::copy("/bin/sh", host.work("innocent")).unwrap();
    host.put("script", "#!/bin/sh\ntouch owned\n");
    for name in ["innocent", "script"] {
        fs::set_permissions(host.work(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    symlink("/bin/sh", host.work("link")).unwrap();
    let before = host.palyra(&["status"]).good()["pending_approvals"].clone();
    for argv in [
        &["bash", "-c", "touch owned"][..],
        &["sh", "-c", "touch owned"],
        &["/bin/sh", "-c", "touch owned"],
        &["./innocent", "-c", "touch owned"],
        &["./script"],
        &["./link", "-c", "touch owned"],
        &["python3", "-c", "open('owned','w')"],
        &["perl", "-e", "1"],
        &["env", "sh", "-c", "touch owned"],
        &["env", "A=b", "bash", "-c", "touch owned"],
        &["nice", "sh", "-c", "touch owned"],
        &["timeout", "5", "sh", "-c", "touch owned"],
        &["awk", "BEGIN{system(\"touch owned\")}"],
        &["find", ".", "-maxdepth", "0", "-exec", "sh", "-c", "touch owned", ";"],
    ] {
        let ran = host.call("palyra.process.run", &json!({ "argv": argv }), &["--detach"]);
        assert_eq!(ran.code, 3, "{argv:?}: {ran:#?}");
        assert_eq!(text(&ran.error(), "/code"), "sandbox_interpreter_denied", "{argv:?}");
        assert_eq!(ran.json()["state"], "denied", "{argv:?}");
    }
    assert!(!host.work("owned").exists());
    assert_eq!(host.palyra(&["status"]).good()["pending_approvals"], before, "nobody is asked about it");
}

#[test]
fn what_starts_a_shell_by_itself_fails_and_is_told_how_to_allow_it() {
    let host = Host::up();
    host.put("Makefile", "all:\n\techo one > owned; true\n");
    host.put("script", "one\n");
    for argv in [
        &["make"][..],
        &["sed", "1e touch owned", "script"],
        &["git", "-c", "alias.x=!touch owned; true", "x"],
        &["env", "-S", "sh -c 'touch owned'"],
        &["find", "script", "-exec", "env", "-S", "sh -c 'touch owned'", ";"],
    ] {
        let ran = run(&host, &json!({ "argv": argv }));
        let call = ran.json();
        assert!(!host.work("owned").exists(), "{argv:?}: {call}");
        let said = text(&call, "/output/stderr");
        assert!(said.contains("palyra: `sh` is not allowed here"), "{argv:?}: {call}");
        if call["state"] == "failed" {
            let hint = text(&call, "/problem/hint");
            assert!(hint.contains("`sh` is not allowed here") && hint.contains("`allow_interpreters`"), "{hint}");
        }
    }
    let call = run(&host, &json!({ "argv": ["make"] })).json();
    assert_eq!((&call["state"], text(&call, "/problem/code")), (&json!("failed"), "nonzero_exit"));
    let layers = call["attestation"]["sandbox_enforcement"]["layers"].as_array().unwrap();
    let hidden = layers.iter().find(|layer| layer["name"] == "hidden_programs").unwrap();
    assert!(hidden["applied"] == true && text(hidden, "/detail").contains("name(s) gone"), "{hidden}");
}

#[test]
fn what_cannot_run_is_told_before_anybody_is_asked() {
    let host = Host::with("[process_runner]\nallowed_executables = [\"ls\"]\n");
    host.put("plain", "not a program");
    let call = |argv: Value| host.call("palyra.process.run", &json!({ "argv": argv }), &["--detach"]);
    call(json!(["no-such-program"])).fails(6, "sandbox_executable_not_found");
    call(json!(["./plain"])).fails(6, "sandbox_not_executable");
    call(json!(["cat", "plain"])).fails(3, "sandbox_executable_not_allowed");
    call(json!(["ls"])).exits(0).done();
    for name in ["LD_PRELOAD", "PATH"] {
        let input = json!({ "argv": ["ls"], "env": { name: "x" } });
        host.call("palyra.process.run", &input, &["--detach"]).fails(3, "sandbox_environment_refused");
    }
}

#[test]
fn the_sandbox_sees_neither_the_state_nor_the_network() {
    let host = Host::up();
    let key = host.state().join("signing.key");
    let ran = run(&host, &json!({ "argv": ["xargs", "cat"], "stdin": key.to_str().unwrap() }));
    assert_eq!(ran.json()["state"], "failed", "{ran:?}");
    assert!(text(&ran.json(), "/output/stderr").contains("No such file"), "{ran:?}");
    let devices = run(&host, &json!({ "argv": ["cat", "/proc/net/dev"] })).good();
    let devices: Vec<_> = text(&devices, "/output/stdout").lines().skip(2).collect();
    assert!(devices.len() == 1 && devices[0].trim_start().starts_with("lo:"), "{devices:?}");
}

#[tokio::test]
async fn a_running_process_is_cancelled_and_timed_out() {
    let host = Host::with("[tool_call]\nexecution_timeout_ms = 1000\n");
    let owner = host.owner().await;
    for argv in [json!(["sleep", "1000"]), json!(["tail", "-f", "/dev/null"])] {
        let mut call = owner.propose(Proposal::new("palyra.process.run", &json!({ "argv": argv }))).await.unwrap();
        let question = call.question().await;
        owner.allow(question.approval_id.as_str()).await.unwrap();
        let outcome = api::outcome(&call.end().await.unwrap());
        assert_eq!((&outcome["state"], &outcome["problem"]["code"]), (&json!("failed"), &json!("execution_timeout")));
        assert!(outcome["attestation"].is_object(), "it ran, so it is attested");
    }
    let shorter = json!({ "argv": ["sleep", "1000"], "timeout_ms": 1 });
    let mut call = owner.propose(Proposal::new("palyra.process.run", &shorter)).await.unwrap();
    owner.allow(call.question().await.approval_id.as_str()).await.unwrap();
    let outcome = api::outcome(&call.end().await.unwrap());
    assert_eq!(outcome["problem"]["code"], "execution_timeout");
    assert!(text(&outcome, "/problem/hint").contains("`timeout_ms`"), "{outcome}");
}

#[tokio::test]
async fn cancelling_a_running_process_ends_it() {
    let mut host = Host::up();
    let (call, reader) = reading_a_pipe(&host).await;
    let cancelled = host.palyra(&["calls", "cancel", &call]);
    assert_eq!(cancelled.json()["state"], "cancelled");
    assert!(cancelled.json()["attestation"].is_object(), "it ran, so it is attested: {cancelled:?}");
    cancelled.exits(5).done();
    gone(&reader);
    host.palyra(&["calls", "cancel", &call]).fails(10, "call_moved");
    host.kill();
}

#[tokio::test]
async fn a_process_does_not_outlive_a_killed_daemon() {
    let mut host = Host::up();
    let (call, reader) = reading_a_pipe(&host).await;
    host.kill();
    gone(&reader);
    host.start();
    host.palyra(&["calls", "show", &call]).fails(9, "indeterminate");
}

#[tokio::test]
async fn a_process_that_does_not_end_is_ended_with_the_daemon() {
    let mut host = Host::up();
    let (call, reader) = reading_a_pipe(&host).await;
    assert_eq!(host.terminate().code, Some(0));
    gone(&reader);
    host.start();
    let shown = host.palyra(&["calls", "show", &call]);
    assert_eq!(shown.json()["state"], "cancelled", "its outcome was recorded before the end");
    shown.exits(5).done();
}

/// A process in the sandbox that waits on a pipe, and our end of that pipe.
async fn reading_a_pipe(host: &Host) -> (String, File) {
    let made = std::process::Command::new("mkfifo").arg("-m").arg("666").arg(host.work("pipe")).status().unwrap();
    assert!(made.success());
    let owner = host.owner().await;
    let mut call = owner
        .propose(Proposal::new("palyra.process.run", &json!({ "argv": ["cat", "pipe"], "workspace": "live" })))
        .await
        .unwrap();
    let question = call.question().await;
    owner.allow(question.approval_id.as_str()).await.unwrap();
    let path = host.work("pipe");
    // Opening waits until somebody reads: from here on the process is known to run.
    let ours = tokio::task::spawn_blocking(move || File::options().write(true).open(path).unwrap());
    let ours = api::patiently("the reader", ours).await.unwrap();
    (question.call_id.to_string(), ours)
}

/// Waits until nobody reads the pipe any more.
fn gone(ours: &File) {
    let limit = rustix::event::Timespec { tv_sec: 180, tv_nsec: 0 };
    let mut watched = [PollFd::new(ours, PollFlags::empty())];
    assert_eq!(poll(&mut watched, Some(&limit)).unwrap(), 1, "the process still reads");
    assert!(watched[0].revents().contains(PollFlags::ERR));
}

#[test]
fn a_program_reaches_allowed_hosts_alone_and_its_connections_are_journalled() {
    let (port, server) =
        serve(vec!["HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\na page\n".to_owned()]);
    let host = Host::with(&format!("[egress]\nallowed_hosts = [\"localhost:{port}\"]\n"));
    let input = json!({
        "argv": ["curl", "-sS", format!("http://localhost:{port}/page"), "http://denied.example/x"],
        "requested_egress_hosts": [format!("localhost:{port}")],
    });
    let (call, approval) = host.ask("palyra.process.run", &input, &[]);
    let card = host.palyra_text(&["approvals", "show", &approval]).stdout;
    assert!(card.contains(&format!("localhost:{port}")) && card.contains("denied.example:80"), "{card}");
    host.decide(&approval, "allow", &[]).exits(0).done();
    let ran = host.palyra(&["calls", "follow", &call]).good();
    let said = text(&ran, "/output/stdout");
    assert!(said.starts_with("a page\n") && said.contains("allowed_hosts"), "{said}");
    let egress = &ran["output"]["egress"];
    assert_eq!((&egress["allowed"], &egress["denied"]), (&json!(1), &json!(1)));
    assert_eq!(egress["denials"][0]["host"], "denied.example");
    assert!(server.join().unwrap()[0].starts_with("GET /page HTTP/1.1\r\n"));
    let layers = ran["attestation"]["sandbox_enforcement"]["layers"].as_array().unwrap().clone();
    assert!(layers.iter().any(|l| l["name"] == "egress_proxy" && l["applied"] == true), "{layers:?}");
    let events = host.palyra(&["journal", "show", &call]).json_lines();
    let kinds: Vec<_> = events.iter().map(|event| event["kind"].as_str().unwrap()).collect();
    let at = |kind: &str| kinds.iter().position(|found| *found == kind).unwrap();
    assert!(at("tool.started") < at("egress.connection") && at("egress.connection") < at("tool.finished"), "{kinds:?}");
    let verdicts: Vec<_> = events.iter().filter(|event| event["kind"] == "egress.connection").collect();
    let verdict =
        |n: usize| (text(verdicts[n], "/body/connection/host"), text(verdicts[n], "/body/connection/verdict"));
    let mut found = [verdict(0), verdict(1)];
    found.sort_unstable();
    assert_eq!(found, [("denied.example", "denied"), ("localhost", "allowed")]);
    // What it says it needs must be allowed before anybody is asked.
    let input = json!({ "argv": ["true"], "requested_egress_hosts": ["elsewhere.example"] });
    let error = host.call("palyra.process.run", &input, &["--detach"]).fails(3, "sandbox_host_not_allowed");
    assert!(text(&error, "/hint").contains("allowed_hosts"), "{error}");
}

#[test]
fn a_program_that_fails_for_want_of_a_host_is_told_what_to_ask_for() {
    let host = Host::with("[egress]\nallowed_hosts = [\"example.org\"]\n");
    let (call, approval) =
        host.ask("palyra.process.run", &json!({ "argv": ["curl", "-sS", "https://denied.example/x"] }), &[]);
    host.decide(&approval, "allow", &[]).exits(0).done();
    let ran = host.palyra(&["calls", "follow", &call]).exits(1).json();
    let [denial] = &ran["output"]["egress"]["denials"].as_array().unwrap()[..] else { panic!("{ran}") };
    assert_eq!(
        (text(denial, "/host"), &denial["port"], text(denial, "/code")),
        ("denied.example", &json!(443), "egress_denied")
    );
    assert!(text(denial, "/hint").contains("add `denied.example:443` to allowed_hosts"), "{denial}");
    assert!(text(&ran, "/problem/hint").contains("denied.example:443"), "{ran}");
    let shown = host.palyra_text(&["calls", "show", &call]).exits(1);
    assert!(shown.stderr.contains("no rule allows denied.example:443"), "{shown:?}");
}

#[test]
fn the_daemons_state_cannot_be_named() {
    let host = Host::up();
    for path in ["signing.key", "journal.db", "not/there"] {
        let input = json!({ "argv": ["cat", host.state().join(path)] });
        host.call("palyra.process.run", &input, &["--detach"]).fails(3, "sandbox_argument_outside");
    }
}

#[test]
fn the_card_names_every_file_that_would_run_and_no_other_runs() {
    let host = Host::up();
    let (tool, program) = (host.work("tool"), host.work("program"));
    let shell = ["-c", "echo SHELL$BASH_VERSION"];
    symlink("/usr/bin/echo", &tool).unwrap();
    fs::copy("/usr/bin/echo", &program).unwrap();

    // A link that leads elsewhere by the time of the answer: what was shown is what runs.
    let (call, approval) = host.ask("palyra.process.run", &json!({ "argv": ["./tool", shell[0], shell[1]] }), &[]);
    assert!(host.palyra_text(&["approvals", "show", &approval]).stdout.contains("runs         /usr/bin/echo\n"));
    fs::remove_file(&tool).unwrap();
    symlink("/bin/bash", &tool).unwrap();
    host.decide(&approval, "allow", &[]).exits(0).done();
    let ran = host.palyra(&["calls", "follow", &call]).good();
    assert_eq!(text(&ran, "/output/stdout"), "-c echo SHELL$BASH_VERSION\n");

    // A program behind a wrapper is shown, held and refused when it is another one.
    let input = json!({ "argv": ["nice", "./program", shell[0], shell[1]] });
    let (call, approval) = host.ask("palyra.process.run", &input, &[]);
    let shown = format!("runs         /usr/bin/nice, {}\n", program.canonicalize().unwrap().display());
    assert!(host.palyra_text(&["approvals", "show", &approval]).stdout.contains(&shown));
    fs::copy("/bin/bash", &program).unwrap();
    host.decide(&approval, "allow", &[]).exits(0).done();
    let ran = host.palyra(&["calls", "follow", &call]);
    assert_eq!(text(&ran.json(), "/problem/code"), "sandbox_executable_changed", "{ran:?}");
}

/// A directory that was moved away, with another one in its place: neither file tools nor processes go on in one of
/// them.
#[test]
fn a_workspace_that_was_replaced_is_noticed_by_tools_and_runs_alike() {
    let host = Host::up();
    host.put("mark", "old");
    let (waiting, approval) = host.ask("palyra.process.run", &json!({ "argv": ["touch", "made"] }), &[]);
    fs::rename(host.path("w"), host.path("w.old")).unwrap();
    fs::create_dir(host.path("w")).unwrap();
    for (tool, input) in [
        ("palyra.fs.read", json!({ "path": "mark" })),
        ("palyra.fs.list", json!({})),
        ("palyra.fs.write", json!({ "path": "new", "content": "x" })),
        ("palyra.process.run", json!({ "argv": ["touch", "made"] })),
    ] {
        let refused = host.call(tool, &input, &["--detach"]);
        let error = refused.error();
        assert_eq!(error["code"], "workspace_replaced", "{tool}: {error}");
        assert!(text(&error, "/message").contains(&host.path("w").display().to_string()), "{error}");
        assert!(text(&error, "/hint").contains("palyra up --workspace"), "{error}");
    }
    // What was approved meanwhile does not run in the other one either.
    host.decide(&approval, "allow", &[]).exits(0).done();
    let ended = host.palyra(&["calls", "follow", &waiting]);
    assert_eq!(ended.json()["problem"]["code"], "workspace_replaced", "{ended:?}");
    assert!(!host.work("made").exists() && !host.path("w.old/made").exists());
    host.call("palyra.echo", &json!({ "text": "x" }), &[]).exits(0).done();
    let unwell = host.palyra_text(&["doctor"]).exits(1);
    assert!(unwell.stdout.contains("✘ workspace") && unwell.stdout.contains("replaced"), "{unwell:?}");
    assert!(host.palyra_text(&["status"]).exits(0).stdout.contains("replaced"));
    fs::remove_dir(host.path("w")).unwrap();
    fs::rename(host.path("w.old"), host.path("w")).unwrap();
    assert_eq!(host.call("palyra.fs.read", &json!({ "path": "mark" }), &[]).good()["output"]["content"], "old");
}

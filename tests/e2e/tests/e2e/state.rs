//! The state directory and what the daemon refuses to start on.

use palyra_e2e::cli::run;
use palyra_e2e::host::{binary, mode, signal};
use palyra_e2e::{Host, text};
use serde_json::json;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

#[test]
fn nobody_else_can_look_in() {
    let mut host = Host::idle();
    // A directory that was open to all is closed.
    fs::create_dir(host.state()).unwrap();
    fs::set_permissions(host.state(), Permissions::from_mode(0o777)).unwrap();
    host.start();
    assert_eq!(mode(&host.state()), 0o700);
    assert_eq!(mode(&host.socket()), 0o600);
    assert_eq!(mode(&host.state().join("signing.key")), 0o600);
    let fresh = Host::up();
    assert_eq!(mode(&fresh.state()), 0o700);
}

#[test]
fn a_second_daemon_on_the_same_state_is_refused() {
    let host = Host::up();
    let refused = host.refused();
    assert_eq!(refused.code, Some(75));
    assert_eq!(refused.log.matches("another daemon already serves").count(), 1, "it is said once: {}", refused.log);
    assert!(refused.log.contains("palyra down"), "it says what to do: {}", refused.log);
    host.call("palyra.echo", &json!({ "text": "still here" }), &[]).exits(0).done();
    assert_eq!(host.palyra(&["journal", "verify"]).good()["intact"], true);
}

#[test]
fn a_lock_file_that_was_removed_lets_no_second_daemon_in() {
    let host = Host::up();
    fs::remove_file(host.state().join("palyrad.lock")).unwrap();
    let refused = host.refused();
    assert_eq!(refused.code, Some(75), "{}", refused.log);
    host.call("palyra.echo", &json!({ "text": "still here" }), &[]).exits(0).done();
}

#[test]
fn another_user_of_the_machine_gets_nothing() {
    let host = Host::up();
    // A copy that everybody may run.
    let program = host.path("palyra");
    fs::copy(binary("palyra"), &program).unwrap();
    for path in [host.path(""), program.clone()] {
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }
    let stranger = |args: &[&str]| {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
        command.args(["--output", "json", "--state-dir"]).arg(host.state()).args(args);
        run(command, &[])
    };
    let error = stranger(&["status"]).fails(7, "daemon_unreachable");
    assert!(text(&error, "/message").contains("Permission denied"), "{error}");
    assert!(text(&error, "/hint").contains("another user's"), "{error}");
    // Even if the file modes were wrong, the daemon asks the kernel who is there.
    fs::set_permissions(host.state(), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(host.socket(), Permissions::from_mode(0o666)).unwrap();
    for args in [
        &["status"][..],
        &["tools", "list"],
        &["call", "palyra.echo", "--input", r#"{"text":"x"}"#],
        &["approvals", "list"],
        &["approvals", "watch"],
        &["grants", "list"],
        &["policy", "explain", "palyra.echo", "--input", r#"{"text":"x"}"#],
        &["journal", "tail"],
        &["journal", "verify"],
        &["journal", "checkpoint"],
        &["status", "--as", "agent:demo"],
        &["status", "--as", "user:local"],
    ] {
        stranger(args).fails(10, "foreign_user");
    }
    assert_eq!(host.palyra(&["status"]).good()["journal"]["size"], 1, "nothing was recorded for them");
}

#[test]
fn unknown_keys_and_values_get_the_nearest() {
    for (config, line, nearest) in [
        ("worksapce_root = \"x\"\n", 1, "`workspace_root`"),
        ("[tool_call]\nmax_call_per_run = 3\n", 2, "`max_calls_per_run`"),
        ("\n[proces_runner]\n", 2, "`process_runner`"),
        ("[process_runner]\nteir = \"c\"\n", 2, "`tier`"),
        ("[process_runner]\negress = \"strickt\"\n", 2, "`strict`"),
    ] {
        let host = Host::idle();
        host.configure(config);
        let refused = host.refused();
        assert_eq!(refused.code, Some(1));
        let expected = format!("line {line}: ");
        assert!(
            refused.log.contains(&expected) && refused.log.contains(&format!("did you mean {nearest}?")),
            "{}",
            refused.log
        );
        let mut check = host.daemon_command();
        check.arg("check");
        let checked = run(check, &[]).exits(1);
        assert!(checked.stderr.contains(nearest), "`palyrad check` says the same: {checked:?}");
        assert!(!host.socket().exists());
    }
}

#[test]
fn senseless_configurations_are_refused_with_their_key() {
    for (config, said) in [
        ("[tool_call]\napproval_timeout_ms = 0\n", "tool_call.approval_timeout_ms"),
        ("[process_runner]\ntier = \"b\"\n", "process_runner.egress"),
        ("[tool_call]\nallowed_tools = [\"palyra.nonsense\"]\n", "palyra.nonsense"),
        ("[tool_call]\napproval_timeout_ms = 9223372036854775807\n", "at most"),
        ("[process_runner]\nread_roots = [\"/no/such/root\"]\n", "/no/such/root"),
        ("[process_runner]\nread_roots = [\"/usr/lib\"]\nwrite_roots = [\"/usr\"]\n", "`/usr/lib` is reached through"),
        ("policy_dir = \"/no/such/dir\"\n", "/no/such/dir"),
        ("this is not toml", "line 1"),
    ] {
        let host = Host::idle();
        host.configure(config);
        let refused = host.refused();
        assert_eq!(refused.code, Some(1), "{config}");
        assert!(refused.log.contains(said), "{config}: {}", refused.log);
        let mut check = host.daemon_command();
        check.arg("check");
        let checked = run(check, &[]).exits(1);
        assert!(checked.stderr.contains(said), "`palyrad check` says the same: {checked:?}");
    }
}

#[test]
fn a_workspace_that_holds_the_state_is_refused() {
    let host = Host::idle();
    let mut command = host.daemon_command();
    command.arg("--workspace").arg(host.path(""));
    let refused = run(command, &[]).exits(1);
    assert!(refused.stderr.contains("overlap"), "{refused:?}");
}

#[test]
fn a_damaged_key_is_never_silently_replaced() {
    let mut host = Host::up();
    host.kill();
    fs::write(host.state().join("signing.key"), "short").unwrap();
    let refused = host.refused();
    assert_eq!(refused.code, Some(1));
    assert!(refused.log.contains("signing key"), "{}", refused.log);
    assert_eq!(fs::read(host.state().join("signing.key")).unwrap(), b"short");
}

#[test]
fn a_state_directory_too_long_for_a_socket_is_refused() {
    let host = Host::idle();
    let mut command = std::process::Command::new(binary("palyrad"));
    command.arg("--state-dir").arg(host.path(&"x".repeat(120))).arg("--workspace").arg(host.work(""));
    let refused = run(command, &[]).exits(1);
    assert!(refused.stderr.contains("shorter `--state-dir`"), "{refused:?}");
}

/// `palyrad` with a command of its own.
fn palyrad(host: &Host, args: &[&str]) -> palyra_e2e::Ran {
    let mut command = host.daemon_command();
    command.args(args);
    run(command, &[])
}

#[test]
fn a_key_that_is_gone_or_another_is_not_replaced_in_silence() {
    let mut host = Host::up();
    let before = text(&host.palyra(&["status"]).good(), "/public_key").to_owned();
    host.kill();
    fs::remove_file(host.state().join("signing.key")).unwrap();
    let refused = host.refused();
    assert_eq!(refused.code, Some(1));
    assert!(refused.log.contains("palyrad key accept"), "it says what to do: {}", refused.log);
    palyrad(&host, &["key", "accept"]).exits(0).done();
    host.start();
    assert_ne!(text(&host.palyra(&["status"]).good(), "/public_key"), before);
    let events = host.palyra_text(&["journal", "tail"]).exits(0).stdout;
    assert!(events.contains("daemon.key_accepted"), "{events}");
    host.kill();
    fs::write(host.state().join("signing.key"), [3; 32]).unwrap();
    assert!(host.refused().log.contains("another key"));
}

#[test]
fn a_journal_that_is_gone_is_not_begun_anew_in_silence() {
    let mut host = Host::up();
    assert_eq!(host.terminate().code, Some(0));
    palyrad(&host, &["journal", "begin"]).exits(1).done();
    fs::remove_file(host.state().join("journal.db")).unwrap();
    let refused = host.refused();
    assert_eq!(refused.code, Some(1));
    assert!(refused.log.contains("palyrad journal begin"), "it says what to do: {}", refused.log);
    palyrad(&host, &["journal", "begin"]).exits(0).done();
    host.start();
    let events = host.palyra_text(&["journal", "tail"]).exits(0).stdout;
    assert!(events.contains("journal.begun_anew"), "{events}");
    assert_eq!(host.palyra(&["journal", "verify"]).good()["intact"], true);
}

#[test]
fn a_hangup_ends_it_in_good_order() {
    let mut host = Host::up();
    let asleep = host.palyra_started(&["call", "palyra.sleep", "--input", r#"{"duration_ms":1}"#]);
    asleep.end().exits(0).done();
    signal(host.pid(), rustix::process::Signal::HUP);
    assert_eq!(host.terminate_ended().code, Some(0));
    host.start();
    let events = host.palyra(&["journal", "tail", "-n", "2"]).exits(0).json_lines();
    assert_eq!(text(&events[0], "/kind"), "daemon.stopped");
}

#[test]
fn an_address_that_cannot_be_written_down_keeps_nobody_out() {
    let mut host = Host::idle();
    fs::create_dir_all(host.state().join("http.url")).unwrap();
    host.start();
    let status = host.palyra(&["status"]).good();
    assert!(text(&status, "/http_url").starts_with("http://127.0.0.1:"), "{status}");
}

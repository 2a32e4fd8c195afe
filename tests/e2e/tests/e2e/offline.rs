//! Commands that need no daemon, and those that must work though it is unwell.

use palyra_e2e::cli::run;
use palyra_e2e::host::binary;
use palyra_e2e::{Host, text};
use serde_json::json;
use std::fs;
use std::process::{Command, Stdio};

/// A command typed in the directory that the state is in, as at home with the default state directory.
fn at_home(host: &Host, args: &[&str]) -> Command {
    let mut command = host.command("palyra");
    command.args(args).current_dir(host.path(""));
    command
}

#[test]
fn rules_are_read_wherever_one_is() {
    let host = Host::idle();
    let rules = host.path("rules");
    fs::create_dir(&rules).unwrap();
    fs::write(rules.join("a.cedar"), "@id(\"x\")\n@reason(\"y\")\nforbid (principal, action, resource);\n").unwrap();
    let rules = rules.to_str().unwrap();
    for command in ["check", "test"] {
        let checked = run(at_home(&host, &["-o", "json", "policy", command, rules]), &[]).good();
        assert_eq!(checked["ok"], true, "{checked}");
    }
    // Calls are resolved in a workspace, and here there can be none.
    let decide = ["-o", "json", "policy", "decide", "--jsonl", "--candidate", rules];
    let error = run(at_home(&host, &decide), &[]).fails(1, "workspace_overlaps_state");
    assert!(text(&error, "/hint").contains("--workspace DIR"), "{error}");
    let workspace = host.work("");
    run(at_home(&host, &[&decide[..], &["--workspace", workspace.to_str().unwrap()]].concat()), &[]).exits(0).done();
}

#[test]
fn a_sandbox_in_the_wrong_place_names_the_option_that_helps() {
    let host = Host::idle();
    let explain = |options: &[&str]| {
        run(at_home(&host, &[&["-o", "json", "sandbox", "explain"], options, &["--", "ls"]].concat()), &[])
    };
    let error = explain(&[]).fails(125, "workspace_overlaps_state");
    assert!(text(&error, "/hint").contains("--workspace DIR"), "{error}");
    explain(&["--workspace", host.work("").to_str().unwrap()]).exits(0).done();
}

#[test]
fn a_configuration_is_a_file_and_its_errors_are_documents() {
    let host = Host::idle();
    let pipe = host.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for config in [pipe.to_str().unwrap(), "/dev/zero"] {
        let check = ["-o", "json", "policy", "check", "--config", config];
        let error = run(at_home(&host, &check), &[]).fails(1, "configuration");
        assert!(text(&error, "/message").contains("not a regular file"), "{error}");
        let error = host.palyra(&["up", "--config", config]).fails(1, "daemon_did_not_start");
        assert!(text(&error, "/message").contains("not a regular file"), "{error}");
    }
}

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let asked = [("palyra", "--help"), ("palyra", "--version"), ("palyrad", "--help")];
    for help in asked {
        let mut program = Command::new(binary(help.0));
        let status = program.arg(help.1).stdout(full.try_clone().unwrap()).stderr(Stdio::null()).status().unwrap();
        assert_eq!(status.code(), Some(1), "{help:?}");
    }
}

#[test]
fn a_daemon_whose_journal_is_damaged_tells_how_it_is_and_can_be_ended() {
    let mut host = Host::up();
    host.tamper(&["ALTER TABLE approvals RENAME TO elsewhere"]);
    assert_eq!(host.palyra(&["status"]).good()["pending_approvals"], 0);
    let error = host.palyra(&["journal", "verify"]).fails(8, "journal_broken");
    assert!(text(&error, "/message").contains("approvals, elsewhere"), "{error}");
    assert_eq!(host.palyra(&["down"]).good(), json!({ "stopped": host.pid() }));
    assert_eq!(host.terminate_ended().code, Some(0));
}

#[test]
fn a_prefix_of_no_command_is_told_as_such() {
    let host = Host::up();
    let (_, approval) = host.ask("palyra.fs.write", &json!({ "path": "f", "content": "x" }), &[]);
    let prefix = ["--scope", "session", "--match", "argv-prefix", "--words", "1"];
    let error = host.decide(&approval, "allow", &prefix).fails(10, "approval_scope");
    assert!(text(&error, "/message").contains("runs no command"), "{error}");
}

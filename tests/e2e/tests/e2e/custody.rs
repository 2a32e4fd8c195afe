//! What decides lies where no agent can write: refused at the start and when rules are read anew, and out of reach of a
//! run that tries.

use crate::policy::with_policies;
use palyra_e2e::cli::run;
use palyra_e2e::{Host, Running, text};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;

const NO_PUSH: &str = "@id(\"no_push\")\n@reason(\"Nobody pushes.\")\n\
    forbid (principal, action == Action::\"tool.execute\", resource)\n\
    when { context.argv_prefixes.contains(\"git push\") };\n";
/// What an agent would like to have in force.
const WAIVED: &str = "@id(\"mine\")\n@reason(\"Mine.\")\n\
    permit (principal, action == Action::\"approval.waive\", resource);\n";

/// The daemon does not start, and says why and what to do.
fn refused(host: &Host, what: &str, at: &str) {
    let refused = host.refused();
    assert_eq!(refused.code, Some(1), "{}", refused.log);
    for said in [what, at, "agents could change", "keep it outside the workspace and every `write_roots` entry"] {
        assert!(refused.log.contains(said), "`{said}`: {}", refused.log);
    }
    let mut check = host.daemon_command();
    check.arg("--workspace").arg(host.path("w")).arg("check");
    let checked = run(check, &[]);
    assert!(checked.code == 1 && checked.stderr.contains("agents could change"), "{checked:?}");
}

fn following(host: &Host) -> Running {
    host.palyra_started(&["journal", "tail", "--last", "0", "--follow"])
}

fn next(journal: &Running, kind: &str) -> Value {
    loop {
        let event = journal.json();
        if event["kind"] == kind {
            return event["body"].clone();
        }
    }
}

fn explained(host: &Host, argv: &[&str]) -> String {
    let input = json!({ "argv": argv }).to_string();
    let explained = host.palyra(&["policy", "explain", "palyra.process.run", "--input", &input]).good();
    text(&explained, "/decision/decision").to_owned()
}

/// Runs a program that somebody says yes to.
fn approved(host: &Host, argv: &[&str]) -> palyra_e2e::Ran {
    let (call, approval) = host.ask("palyra.process.run", &json!({ "argv": argv }), &[]);
    host.decide(&approval, "allow", &[]).exits(0).done();
    host.palyra(&["calls", "follow", &call])
}

#[test]
fn a_configuration_that_agents_could_write_is_not_obeyed() {
    // In the workspace, by a link into it, by a link that lies in it, through a directory of a write root.
    let host = Host::idle();
    host.put("palyra.toml", "");
    symlink(host.work("palyra.toml"), host.config()).unwrap();
    refused(&host, "the configuration", &host.work("palyra.toml").display().to_string());

    let host = Host::idle();
    fs::create_dir(host.path("etc")).unwrap();
    fs::write(host.path("etc/palyra.toml"), "").unwrap();
    symlink(host.path("etc"), host.work("out")).unwrap();
    symlink(host.work("out/palyra.toml"), host.config()).unwrap();
    refused(&host, "the configuration", &host.work("out").display().to_string());

    let host = Host::idle();
    fs::create_dir(host.path("built")).unwrap();
    let written = format!("[process_runner]\nwrite_roots = [{:?}]\n", host.path("built"));
    fs::write(host.path("built/palyra.toml"), written).unwrap();
    symlink(host.path("built/palyra.toml"), host.config()).unwrap();
    refused(&host, "the configuration", &host.path("built").display().to_string());

    // Another name of the same file.
    let host = Host::idle();
    host.configure("");
    fs::hard_link(host.config(), host.work("innocent.toml")).unwrap();
    let gave_up = host.refused();
    assert!(gave_up.log.contains("2 names") && gave_up.log.contains("copy it"), "{}", gave_up.log);
}

#[test]
fn a_run_cannot_rewrite_what_decides() {
    let mut host = with_policies(&[("a.cedar", NO_PUSH)]);
    host.start();
    let config = fs::read(host.config()).unwrap();
    host.put("mine.cedar", WAIVED);
    host.put("mine.toml", "[process_runner]\ntier = \"b\"\negress = \"none\"\n");
    let policies = host.path("policies");
    for (from, to) in [
        ("mine.cedar", policies.join("mine.cedar")),
        ("mine.cedar", policies.join("a.cedar")),
        ("mine.toml", host.config()),
        ("mine.toml", host.state().join("access_registry.json")),
    ] {
        let to = to.display().to_string();
        let denied = host.call("palyra.process.run", &json!({ "argv": ["cp", from, &to] }), &["--detach"]);
        if denied.code == 0 {
            // Shown to a person who says yes: the walls hold, whatever the run has of its own under that name.
            approved(&host, &["cp", from, &to]).done();
        }
        let written = host.call("palyra.fs.write", &json!({ "path": to, "content": "x" }), &["--detach"]);
        assert_ne!(written.code, 0, "{written:?}");
    }
    // By a link of the agent's own.
    symlink(&policies, host.work("door")).unwrap();
    let through = host.call("palyra.fs.write", &json!({ "path": "door/mine.cedar", "content": WAIVED }), &["--detach"]);
    assert_ne!(through.code, 0, "{through:?}");
    assert_eq!(fs::read(host.config()).unwrap(), config);
    assert_eq!(fs::read_dir(&policies).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(policies.join("a.cedar")).unwrap(), NO_PUSH);
    assert!(!host.state().join("access_registry.json").exists());
}

#[test]
fn rules_that_agents_could_write_do_not_start() {
    // Below a write root.
    let host = with_policies(&[("a.cedar", NO_PUSH)]);
    let config = fs::read_to_string(host.config()).unwrap();
    host.configure(&format!("{config}\n[process_runner]\nwrite_roots = [{:?}]\n", host.path("policies")));
    refused(&host, "policy_dir", &host.path("policies").display().to_string());

    // One file, or the directory of cases, is a link into the workspace.
    for name in ["b.cedar", "b.cases.toml", "groups.toml", "cases"] {
        let host = with_policies(&[("a.cedar", NO_PUSH)]);
        let inside = host.work(name);
        match name {
            "cases" => fs::create_dir(&inside).unwrap(),
            _ => fs::write(&inside, "").unwrap(),
        }
        symlink(&inside, host.path("policies").join(name)).unwrap();
        refused(&host, name, &inside.display().to_string());
        fs::remove_file(host.path("policies").join(name)).unwrap();
        // The same, elsewhere, is fine.
        fs::rename(&inside, host.path(name)).unwrap();
        symlink(host.path(name), host.path("policies").join(name)).unwrap();
        let mut host = host;
        host.start();
    }
}

#[test]
fn rules_that_agents_could_write_are_not_taken_up() {
    let mut host = with_policies(&[("a.cedar", NO_PUSH)]);
    host.start();
    let journal = following(&host);
    host.put("mine.cedar", WAIVED);
    symlink(host.work("mine.cedar"), host.path("policies/mine.cedar")).unwrap();
    let rejected = next(&journal, "policy.rejected");
    assert!(text(&rejected, "/flaws/0").contains("mine.cedar") && rejected.to_string().contains("agents could"));
    let reloaded = host.palyra(&["policy", "reload"]).exits(8);
    assert_eq!(reloaded.json()["outcome"]["flaws"][0]["kind"], "in_reach", "{reloaded:?}");
    assert!(text(&reloaded.json(), "/outcome/flaws/0/help").contains("write_roots"), "{reloaded:?}");
    assert_eq!(explained(&host, &["git", "push"]), "deny", "the set before goes on");
    let unwell = host.palyra_text(&["doctor"]).exits(1);
    assert!(unwell.stdout.contains("agents could change"), "{unwell:?}");
    fs::remove_file(host.path("policies/mine.cedar")).unwrap();
    // The whole directory, exchanged for a link into the workspace.
    fs::rename(host.path("policies"), host.path("before")).unwrap();
    fs::create_dir(host.work("rules")).unwrap();
    symlink(host.work("rules"), host.path("policies")).unwrap();
    let reloaded = host.palyra(&["policy", "reload"]).exits(8);
    assert_eq!(reloaded.json()["outcome"]["flaws"][0]["kind"], "in_reach", "{reloaded:?}");
    assert_eq!(explained(&host, &["git", "push"]), "deny");
}

#[test]
fn a_linked_directory_of_rules_that_is_switched_is_noticed() {
    let mut host = with_policies(&[]);
    for name in ["v1", "v2"] {
        fs::create_dir(host.path(name)).unwrap();
    }
    fs::write(host.path("v1/a.cedar"), NO_PUSH).unwrap();
    fs::remove_dir_all(host.path("policies")).unwrap();
    symlink("current", host.path("policies")).unwrap();
    symlink("v1", host.path("current")).unwrap();
    host.start();
    let journal = following(&host);
    assert_eq!(explained(&host, &["git", "push"]), "deny");
    let switch = |to: &str| {
        symlink(to, host.path("next")).unwrap();
        fs::rename(host.path("next"), host.path("current")).unwrap();
    };
    switch("v2");
    next(&journal, "policy.reloaded");
    assert_eq!(explained(&host, &["git", "push"]), "needs_approval");
    // What it leads to now is watched as well.
    fs::write(host.path("v2/b.cedar"), NO_PUSH).unwrap();
    next(&journal, "policy.reloaded");
    assert_eq!(explained(&host, &["git", "push"]), "deny");
    fs::create_dir(host.path("v3")).unwrap();
    switch("v3");
    // Whether the watch or the command is first: the same set decides afterwards.
    assert_ne!(host.palyra(&["policy", "reload"]).good()["outcome"]["outcome"], "refused");
    assert_eq!(explained(&host, &["git", "push"]), "needs_approval");
}

#[test]
fn a_state_directory_that_is_found_through_the_workspace_is_refused() {
    let host = Host::idle();
    fs::create_dir(host.path("real")).unwrap();
    symlink(host.path("real"), host.work("state")).unwrap();
    symlink(host.work("state"), host.state()).unwrap();
    let gave_up = host.refused();
    assert!(gave_up.log.contains("the state directory: agents could change"), "{}", gave_up.log);
}

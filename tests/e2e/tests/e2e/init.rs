//! Day one: `palyra init` on a fresh home, then a coding session that asks nobody and is refused nothing.

use palyra_e2e::{Host, text};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const AGENT: &[&str] = &["--as", "agent:coder", "--session", "day-one"];

/// A home with a project and a name to commit by, and nothing of Palyra's.
fn fresh() -> Host {
    let host = Host::idle();
    fs::create_dir(host.path("home")).unwrap();
    fs::write(host.path("home/.gitconfig"), "[user]\n\tname = Ada\n\temail = ada@a.test\n").unwrap();
    host.put("Makefile", "test:\n\tsh check.sh\n");
    host.put("check.sh", "grep -q 'answer = 42' answer.txt && echo passed\n");
    host.put("answer.txt", "answer = 41\n");
    host.put(".env", "API_KEY=abcdefghijklmnop\n");
    host.put(".gitignore", ".env\n");
    for words in [&["init", "-q", "-b", "main"][..], &["add", "-A"], &["commit", "-q", "-m", "begin"]] {
        git(&host, words);
    }
    host
}

fn git(host: &Host, words: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args(words).current_dir(host.path("w")).env("HOME", host.path("home"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn init(host: &Host, more: &[&str]) -> palyra_e2e::cli::Ran {
    let workspace = host.path("w");
    let words = [&["init", "--yes", "--no-client", "--workspace", workspace.to_str().unwrap()], more].concat();
    host.palyra(&words)
}

/// Makes a call that must succeed without anybody being asked.
fn unasked(host: &Host, tool: &str, input: &Value) -> Value {
    let outcome = host.call(tool, input, AGENT).good();
    assert_eq!(outcome["state"], "succeeded", "{tool} {input}: {outcome}");
    outcome
}

fn shell(host: &Host, line: &str) -> String {
    let outcome = unasked(host, "palyra.process.run", &json!({ "argv": ["bash", "-c", line] }));
    text(&outcome, "/output/stdout").to_owned()
}

fn waiting(host: &Host) -> usize {
    let list = host.palyra(&["approvals", "list"]).good();
    list.as_array().or_else(|| list["approvals"].as_array()).map_or(0, Vec::len)
}

#[test]
fn a_coding_session_asks_nobody_and_what_leaves_the_sandbox_asks() {
    let host = fresh();
    let made = init(&host, &[]).good();
    assert_eq!((&made["proof"]["decision"], &made["git"]["name"]), (&json!("allow"), &json!("Ada")), "{made}");

    // Fifteen steps: explore, search, edit, test, commit.
    unasked(&host, "palyra.fs.list", &json!({ "path": "." }));
    unasked(&host, "palyra.fs.read", &json!({ "path": "Makefile" }));
    unasked(&host, "palyra.fs.search", &json!({ "pattern": "answer" }));
    assert!(shell(&host, "ls -la && git log --oneline | head -3").contains("begin"));
    assert_eq!(shell(&host, "git status --short"), "");
    let failed = host.call("palyra.process.run", &json!({ "argv": ["bash", "-c", "make test"] }), AGENT);
    assert_eq!(failed.json()["output"]["exit_code"], 2, "the test fails, and ran: {failed:?}");
    shell(&host, "git checkout -q -b fix");
    let patch = "--- a/answer.txt\n+++ b/answer.txt\n@@ -1 +1 @@\n-answer = 41\n+answer = 42\n";
    unasked(&host, "palyra.fs.apply_patch", &json!({ "patch": patch }));
    unasked(&host, "palyra.fs.write", &json!({ "path": "notes.md", "content": "fixed\n" }));
    assert!(shell(&host, "make test").contains("passed"));
    assert!(shell(&host, "python3 -c 'print(6 * 7)'").contains("42"));
    assert!(shell(&host, "git diff --stat | cat; awk '{print $3}' answer.txt | xargs echo").contains("42"));
    shell(&host, "git add -A && git commit -q -m 'Fix the answer'");
    shell(&host, "git checkout -q main && git merge -q fix && git branch -d fix");
    shell(&host, "git stash list; git remote add origin https://git.invalid/x.git; git branch -m main trunk");
    assert_eq!(git(&host, &["log", "-1", "--format=%an <%ae> %s"]).trim(), "Ada <ada@a.test> Fix the answer");
    assert_eq!(git(&host, &["branch", "--show-current"]).trim(), "trunk");
    assert_eq!(waiting(&host), 0, "nobody was asked");

    // A push reaches nothing unasked, and says why; with its host it asks.
    let push = json!({ "argv": ["git", "push", "origin", "trunk"] });
    let refused = host.call("palyra.process.run", &push, AGENT);
    let problem = refused.json()["problem"].to_string();
    assert!(problem.contains("requested_egress_hosts"), "{problem}");
    let mut named = push;
    named["requested_egress_hosts"] = json!(["git.invalid:443"]);
    let (_, approval) = host.ask("palyra.process.run", &named, AGENT);
    host.decide(&approval, "deny", &[]).exits(0).done();

    // Deleting everything is undone.
    shell(&host, "rm -rf ./* .git");
    assert!(!host.work("answer.txt").exists() && !host.work(".git").exists());
    host.palyra(&["undo", "day-one"]).done();
    host.palyra(&["down"]).exits(0).done();
}

#[test]
fn deleting_everything_is_undone_and_a_hook_waits() {
    let host = fresh();
    init(&host, &[]).exits(0).done();
    let wiped = unasked(&host, "palyra.process.run", &json!({ "argv": ["bash", "-c", "rm -rf ./* .git"] }));
    assert!(!host.work("answer.txt").exists());
    host.palyra(&["undo", text(&wiped, "/call_id")]).exits(0).done();
    assert_eq!(host.content("answer.txt"), "answer = 41\n");
    assert_eq!(git(&host, &["status", "--short"]), "");
    // What would run as code later waits for a person.
    shell(&host, "printf '#!/bin/sh\\n' > .git/hooks/pre-commit && chmod +x .git/hooks/pre-commit");
    assert!(!host.work(".git/hooks/pre-commit").exists());
    assert_eq!(waiting(&host), 1);
    // Nothing of the home is there but what a run needs, and the live workspace asks.
    fs::write(host.path("home/.netrc"), "machine x password y").unwrap();
    let home = shell(&host, "echo $HOME; cat ~/.gitconfig; cat ~/.netrc 2>&1 || true");
    assert!(home.contains("Ada") && home.contains("No such file"), "{home}");
    let secret = host.path("home/.netrc");
    let (call, approval) = host.ask("palyra.fs.read", &json!({ "path": secret }), AGENT);
    host.decide(&approval, "allow", &[]).exits(0).done();
    let read = host.palyra(&["calls", "follow", &call]).good();
    assert!(text(&read, "/output/content").contains("password"), "{read}");
    // One answer is no other's, and the daemon's own files are never read.
    let (_, approval) = host.ask("palyra.fs.read", &json!({ "path": secret }), AGENT);
    host.decide(&approval, "deny", &[]).exits(0).done();
    for own in [host.state().join("palyrad.log"), host.path("")] {
        let refused = host.call("palyra.fs.search", &json!({ "pattern": "x", "path": own }), AGENT);
        refused.fails(3, "path_outside_workspace");
    }
    let live = json!({ "argv": ["true"], "workspace": "live" });
    let (_, approval) = host.ask("palyra.process.run", &live, AGENT);
    host.decide(&approval, "deny", &[]).exits(0).done();
    host.palyra(&["down"]).exits(0).done();
}

#[test]
fn init_is_repeated_kept_and_taken_back() {
    let host = fresh();
    let config: PathBuf = host.path("home/.config/palyra/palyra.toml");
    let printed = host.palyra(&["init", "--print", "--workspace", host.path("w").to_str().unwrap()]).good();
    assert!(printed["files"].as_array().unwrap().len() == 3 && !config.exists(), "{printed}");
    init(&host, &[]).exits(0).done();
    let states = |made: &Value| {
        let files = made["files"].as_array().unwrap().iter().map(|file| text(file, "/state").to_owned());
        files.collect::<Vec<_>>()
    };
    assert_eq!(states(&init(&host, &[]).good()), ["as it was"; 3]);
    // What somebody edits is theirs, and another configuration does not slip under a daemon that runs.
    let edited = format!("{}# mine\n", fs::read_to_string(&config).unwrap());
    fs::write(&config, &edited).unwrap();
    assert_eq!(states(&init(&host, &[]).good())[2], "yours");
    assert_eq!(fs::read_to_string(&config).unwrap(), edited);
    let undone = host.palyra(&["init", "--undo"]).good();
    assert_eq!(undone["stopped"], true, "{undone}");
    assert!(
        undone["removed"].as_array().unwrap().is_empty(),
        "rules that an edited configuration names stay: {undone}"
    );
    host.palyra(&["init", "--undo"]).fails(10, "not_found");
    init(&host, &[]).fails(10, "configured_already");
    fs::remove_dir_all(host.path("home/.config")).unwrap();
    init(&host, &["--git-name", "Eve", "--git-email", "eve@e.test"]).exits(0).done();
    let undone = host.palyra(&["init", "--undo"]).good();
    assert_eq!(undone["removed"].as_array().unwrap().len(), 3, "{undone}");
    assert!(!host.path("home/.config/palyra").exists());
    host.palyra(&["status"]).fails(7, "daemon_unreachable");
}

#[test]
fn a_workspace_that_holds_the_configuration_is_refused_and_nothing_is_written() {
    let host = fresh();
    let home = host.path("home");
    let words = ["init", "--yes", "--no-client", "--workspace", home.to_str().unwrap()];
    host.palyra(&words).fails(10, "workspace_holds_configuration");
    host.palyra(&["init"]).fails(2, "usage");
    init(&host, &["--toolchain", "cobol"]).fails(1, "config_refused");
    assert!(!host.path("home/.config/palyra").exists());
}

#[test]
fn a_workspace_without_git_and_a_broken_toolchain_are_fine() {
    let host = fresh();
    fs::remove_dir_all(host.work(".git")).unwrap();
    std::os::unix::fs::symlink("/nowhere", host.path("home/.cargo")).unwrap();
    fs::remove_file(host.path("home/.gitconfig")).unwrap();
    let made = init(&host, &["--toolchain", "rust"]).good();
    assert_eq!(made["git"], Value::Null);
    assert!(shell(&host, "make -n test").contains("check.sh"));
    host.palyra(&["init", "--undo"]).exits(0).done();
}

#[test]
fn a_toolchain_is_seen_without_its_credentials_and_its_cache_is_filled_beside_the_hosts() {
    let host = fresh();
    for directory in [".cargo/bin", ".cargo/registry"] {
        fs::create_dir_all(host.path("home").join(directory)).unwrap();
    }
    fs::write(host.path("home/.cargo/credentials.toml"), "token = \"secret\"").unwrap();
    fs::write(host.path("home/.cargo/registry/known"), "host's\n").unwrap();
    let program = host.path("home/.cargo/bin/palyra-test-tool");
    fs::copy("/bin/echo", &program).unwrap();
    init(&host, &["--toolchain", "rust"]).exits(0).done();
    assert_eq!(shell(&host, "palyra-test-tool found"), "found\n");
    let seen = shell(&host, "ls -A ~/.cargo; cat ~/.cargo/registry/known; touch ~/.cargo/bin/x 2>&1 || true");
    assert!(seen.contains("host's") && seen.contains("Read-only") && !seen.contains("credentials"), "{seen}");
    shell(&host, "echo run > ~/.cargo/registry/known; echo new > ~/.cargo/registry/fetched");
    assert_eq!(shell(&host, "cat ~/.cargo/registry/known ~/.cargo/registry/fetched"), "run\nnew\n");
    assert_eq!(fs::read_to_string(host.path("home/.cargo/registry/known")).unwrap(), "host's\n");
    assert!(!host.path("home/.cargo/registry/fetched").exists());
    host.palyra(&["init", "--undo"]).exits(0).done();
}

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
fn a_secret_of_the_workspace_asks_and_no_run_sees_it_unasked() {
    let host = fresh();
    init(&host, &[]).exits(0).done();
    fs::create_dir(host.work("config")).unwrap();
    host.put("config/.env.local", "API_KEY=second-secret\n");
    let hidden =
        shell(&host, "cat .e* config/.e*; grep -r API_KEY . ; cp .e* /tmp/x; tar c . | strings; git status --short");
    assert!(hidden.contains("# Palyra withholds this file"), "{hidden}");
    assert!(!hidden.contains("abcdefghijklmnop") && !hidden.contains("second-secret"), "{hidden}");
    let found = unasked(&host, "palyra.fs.search", &json!({ "pattern": "API_KEY", "include_ignored": true }));
    assert_eq!((&found["output"]["matches"], &found["output"]["skipped_secret"]), (&json!([]), &json!(2)), "{found}");
    // Nothing moves it to another name: neither a run nor a patch.
    let moved = host.call("palyra.process.run", &json!({ "argv": ["bash", "-c", "mv .e* x; cat x"] }), AGENT);
    assert!(!moved.stdout.contains("abcdefghijklmnop") && !host.work("x").exists(), "{moved:?}");
    fs::write(host.work("settings.txt"), "API_KEY=third-secret\n").unwrap();
    std::os::unix::fs::symlink("settings.txt", host.work("link.env")).unwrap();
    let rename = "diff --git a/.env b/x\nsimilarity index 100%\nrename from .env\nrename to x\n";
    let calls = [
        ("palyra.fs.read", json!({ "path": ".env" })),
        ("palyra.fs.read", json!({ "path": "./config/../config/.env.local" })),
        ("palyra.fs.read", json!({ "path": "link.env" })),
        ("palyra.fs.search", json!({ "pattern": "KEY", "path": ".env" })),
        ("palyra.fs.apply_patch", json!({ "patch": rename })),
        ("palyra.process.run", json!({ "argv": ["cat", ".env"] })),
        ("palyra.process.run", json!({ "argv": ["python3", "-c", "print(open('.env').read())"] })),
        ("palyra.process.run", json!({ "argv": ["true"], "secret_files": [".env"] })),
    ];
    for (tool, input) in calls {
        let (_, approval) = host.ask(tool, &input, AGENT);
        host.decide(&approval, "deny", &[]).exits(0).done();
    }
    // With a person's yes the run sees that file, and no other.
    let named = json!({ "argv": ["bash", "-c", "cat .env config/.e*"] });
    let (call, approval) = host.ask("palyra.process.run", &named, AGENT);
    host.decide(&approval, "allow", &["--scope", "session", "--match", "exact"]).exits(0).done();
    let read = host.palyra(&["calls", "follow", &call]).good();
    let shown = text(&read, "/output/stdout");
    assert!(shown.contains("abcdefghijklmnop") && !shown.contains("second-secret"), "{read}");
    unasked(&host, "palyra.process.run", &named);
    // What a call wrote is no secret to its agent.
    shell(&host, "printf 'PORT=3000\\n' > new.env");
    assert_eq!(shell(&host, "cat new.e*"), "PORT=3000\n");
    host.put("new.env", "PORT=secret-port\n");
    assert!(!shell(&host, "cat new.e*").contains("secret-port"), "somebody changed it since");
    // What git holds with the same content is no secret to a run.
    fs::write(host.work(".env.shared"), "COLOUR=blue\n").unwrap();
    git(&host, &["add", "-f", ".env.shared"]);
    assert_eq!(shell(&host, "cat .env.shared"), "COLOUR=blue\n");
    // An agent's index is not believed: the file stays withheld, and nothing takes the notice for it.
    let forged = host.call(
        "palyra.process.run",
        &json!({ "argv": ["bash", "-c", "git add -f .e* && git commit -q -m x"] }),
        AGENT,
    );
    let again =
        host.call("palyra.process.run", &json!({ "argv": ["bash", "-c", "cat .e*; git show HEAD:./.en*"] }), AGENT);
    assert!(!again.stdout.contains("abcdefghijklmnop"), "{forged:?} {again:?}");
    assert_eq!(host.content(".env"), "API_KEY=abcdefghijklmnop\n", "nobody changed it");
    host.palyra(&["init", "--undo"]).exits(0).done();
}

#[test]
fn an_init_that_is_killed_at_any_point_is_taken_back() {
    let host = fresh();
    let config = host.path("home/.config/palyra");
    let points = [
        config.join(".init.lock"),
        config.join("init.json"),
        config.join("policies/coding.cedar"),
        config.join("palyra.toml"),
        host.state().join("palyrad.lock"),
        host.state().join("clients"),
        host.work(".mcp.json"),
        host.work(".claude/settings.local.json"),
    ];
    for point in points {
        let mut command = host.command("palyra");
        command.args(["init", "--yes", "--client", "claude-code", "--workspace"]).arg(host.path("w"));
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut init = command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
        while !point.exists() && init.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        // Everything that it has started, but the daemon, which has a group of its own.
        let killed = Command::new("kill").args(["-KILL", "--", &format!("-{}", init.id())]).status().unwrap();
        let ended = init.wait().unwrap();
        assert!(killed.success() && !ended.success(), "it ended before it was killed at {}", point.display());
        let undone = host.palyra(&["init", "--undo"]);
        assert!([0, 10].contains(&undone.code), "{}: {undone:?}", point.display());
        assert!(!config.exists(), "{}: {:?}", point.display(), fs::read_dir(&config).unwrap().collect::<Vec<_>>());
        assert!(!host.work(".mcp.json").exists() && !host.work(".claude").exists(), "{}", point.display());
        host.palyra(&["status"]).fails(7, "daemon_unreachable");
    }
    init(&host, &[]).exits(0).done();
    host.palyra(&["init", "--undo"]).exits(0).done();
}

#[test]
fn two_inits_at_once_leave_one_whole() {
    let host = fresh();
    let start = || {
        let mut command = host.command("palyra");
        command.args(["-o", "json", "init", "--yes", "--no-client", "--workspace"]).arg(host.path("w"));
        palyra_e2e::cli::Running::start(command)
    };
    let ended = [start(), start()].map(palyra_e2e::cli::Running::end);
    let good = ended.iter().filter(|ran| ran.code == 0).count();
    assert!(good >= 1, "{ended:?}");
    for ran in ended.iter().filter(|ran| ran.code != 0) {
        assert!(ran.stderr.contains("init_under_way") || ran.stderr.contains("daemon_running"), "{ran:?}");
    }
    assert_eq!(shell(&host, "echo whole"), "whole\n");
    assert_eq!(host.palyra(&["init", "--undo"]).good()["removed"].as_array().unwrap().len(), 3);
}

#[test]
fn ordinary_commands_run_as_they_would_without_palyra() {
    let host = fresh();
    fs::create_dir(host.work("lib")).unwrap();
    init(&host, &[]).exits(0).done();
    for (path, content) in
        [("p.txt", "a/b\nc/d\n"), ("lib/mod.py", "x = 1\n"), ("Makefile.x", "all:\n\t@echo $(PREFIX)\n")]
    {
        host.put(path, content);
    }
    let run = |argv: &[&str]| unasked(&host, "palyra.process.run", &json!({ "argv": argv }));
    let told = |argv: &[&str], expected: &str| {
        let ran = run(argv);
        assert_eq!(text(&ran, "/output/stdout").trim_end(), expected, "{argv:?}");
    };
    told(&["cut", "-d/", "-f1", "p.txt"], "a\nc");
    told(&["sort", "-t/", "-k2", "-r", "p.txt"], "c/d\na/b");
    told(&["grep", "-c", "/", "p.txt"], "2");
    told(&["egrep", "-c", "a|c", "p.txt"], "2");
    told(&["awk", "-F/", "{print $2}", "p.txt"], "b\nd");
    told(&["make", "-f", "Makefile.x", "PREFIX=/opt/x"], "/opt/x");
    told(&["env", "PYTHONPATH=lib", "python3", "-c", "import mod; print(mod.x)"], "1");
    assert!(text(&run(&["which", "git"]), "/output/stdout").ends_with("git\n"));
    assert!(text(&run(&["ldd", "/bin/ls"]), "/output/stdout").contains("libc"));
    shell(&host, "gzip -k p.txt && zcat p.txt.gz | tr / _ > q.txt && rm p.txt && gunzip p.txt.gz");
    assert_eq!((host.content("q.txt"), host.content("p.txt")), ("a_b\nc_d\n".to_owned(), "a/b\nc/d\n".to_owned()));
    shell(&host, "find . -name 'p.txt' | xargs sed -i s/a/z/ && ls p.txt | xargs git add && tar cf p.tar p.txt lib");
    for line in [
        "git config user.name Eve && git -c alias.st=status st",
        "git checkout -q -b feature && git commit -q --allow-empty -m one && git checkout -q main",
        "git branch -m feature topic && git rebase -q main topic && git checkout -q main && git merge -q --no-edit topic && git branch -d topic",
        "git remote add origin https://git.invalid/x.git && git remote set-url origin https://git.invalid/y.git && git remote remove origin",
        "git stash -q -u && git stash pop -q && git tag v1 && git worktree list",
    ] {
        let ran = unasked(&host, "palyra.process.run", &json!({ "argv": ["bash", "-ec", line] }));
        assert!(!ran["output"].to_string().contains("busy"), "{line}: {ran}");
    }
    assert_eq!(git(&host, &["branch", "--format=%(refname:short)"]).trim(), "main");
    assert_eq!(waiting(&host), 0);
    host.palyra(&["init", "--undo"]).exits(0).done();
}

#[test]
fn what_lies_outside_is_changed_after_a_persons_yes_alone() {
    let host = fresh();
    init(&host, &[]).exits(0).done();
    let other = host.path("home/other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("a.txt"), "one\n").unwrap();
    let file = other.join("a.txt").display().to_string();
    let write = json!({ "path": file, "content": "two\n" });
    let (_, approval) = host.ask("palyra.fs.write", &write, AGENT);
    host.decide(&approval, "deny", &[]).exits(0).done();
    assert_eq!(fs::read_to_string(&file).unwrap(), "one\n");
    let (call, approval) = host.ask("palyra.fs.write", &write, AGENT);
    let asked = host.palyra(&["approvals", "show", &approval]).good();
    assert!(
        asked["review"]["writes"].to_string().contains(&file) || asked["writes"].to_string().contains(&file),
        "{asked}"
    );
    host.decide(&approval, "allow", &[]).exits(0).done();
    host.palyra(&["calls", "follow", &call]).exits(0).done();
    let patch = format!("--- {file}\n+++ {file}\n@@ -1 +1 @@\n-two\n+three\n");
    let (call, approval) = host.ask("palyra.fs.apply_patch", &json!({ "patch": patch }), AGENT);
    host.decide(&approval, "allow", &[]).exits(0).done();
    host.palyra(&["calls", "follow", &call]).exits(0).done();
    assert_eq!(fs::read_to_string(&file).unwrap(), "three\n");
    // A command in another directory sees it, and changes nothing there.
    let run = json!({ "argv": ["bash", "-c", "cat a.txt; echo x > b.txt"], "cwd": other });
    let (call, approval) = host.ask("palyra.process.run", &run, AGENT);
    host.decide(&approval, "allow", &[]).exits(0).done();
    let ran = host.palyra(&["calls", "follow", &call]).json();
    assert_eq!(ran["output"]["stdout"], "three\n", "{ran}");
    assert!(!other.join("b.txt").exists(), "{ran}");
    // No answer opens what is the daemon's own, or shows a whole home.
    for (tool, input) in [
        ("palyra.fs.write", json!({ "path": host.state().join("x"), "content": "x" })),
        ("palyra.process.run", json!({ "argv": ["ls"], "cwd": host.path("home") })),
        ("palyra.process.run", json!({ "argv": ["ls"], "cwd": host.state() })),
    ] {
        host.call(tool, &input, AGENT).fails(3, "path_outside_workspace");
    }
    // The notes of the agent's own client are the agent's.
    fs::create_dir_all(host.path("home/.claude/plans")).unwrap();
    fs::write(host.path("home/.claude/plans/a-plan.md"), "first this\n").unwrap();
    let plan = unasked(&host, "palyra.fs.read", &json!({ "path": host.path("home/.claude/plans/a-plan.md") }));
    assert_eq!(plan["output"]["content"], "first this\n");
    let next = json!({ "path": host.path("home/.claude/plans/a-plan.md"), "content": "then that\n" });
    unasked(&host, "palyra.fs.write", &next);
    let settings = json!({ "path": host.path("home/.claude/settings.json"), "content": "{}" });
    let (_, approval) = host.ask("palyra.fs.write", &settings, AGENT);
    host.decide(&approval, "deny", &[]).exits(0).done();
    host.palyra(&["init", "--undo"]).exits(0).done();
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

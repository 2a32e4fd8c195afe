//! Effects: what a call changes is known before it counts, waits where it must, and can be put back to the byte.

use palyra_e2e::host::Restart;
use palyra_e2e::{Host, Ran, text};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What an undo has to bring back: kind and mode, times, content or target.
pub(crate) type Snapshot = BTreeMap<PathBuf, (u32, i64, i64, Vec<u8>)>;

pub(crate) fn snapshot(root: &Path) -> Snapshot {
    let mut all = BTreeMap::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(path) = waiting.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let content = if meta.is_dir() {
            waiting.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            Vec::new()
        } else if meta.is_symlink() {
            fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
        } else {
            fs::read(&path).unwrap()
        };
        all.insert(path, (meta.mode(), meta.mtime(), meta.mtime_nsec(), content));
    }
    all
}

pub(crate) const BASH: &str = "[process_runner]\nallow_interpreters = [\"bash\", \"sh\"]\n";

/// Runs a script that somebody says yes to; gives the call and its outcome.
pub(crate) fn run(host: &Host, script: &str) -> (String, Value) {
    run_as(host, json!({ "argv": ["bash", "-c", script] }), &[])
}

pub(crate) fn run_as(host: &Host, input: Value, args: &[&str]) -> (String, Value) {
    let (call, approval) = host.ask("palyra.process.run", &input, args);
    host.decide(&approval, "allow", &[]).exits(0).done();
    let ran = host.palyra(&["calls", "follow", &call]);
    (call, ran.json())
}

pub(crate) fn undo(host: &Host, id: &str) -> Ran {
    host.palyra(&["undo", id])
}

/// A workspace with files, modes, links and a repository.
pub(crate) fn furnished(config: &str) -> Host {
    let host = Host::with(config);
    let root = host.work("");
    for name in ["src/a.rs", "src/deep/b.rs", "doc/read.me", "generated/out.txt"] {
        fs::create_dir_all(host.work(name).parent().unwrap()).unwrap();
        host.put(name, format!("fn {}() {{ }}\n", name.len()));
    }
    fs::set_permissions(host.work("src/a.rs"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("src/a.rs", host.work("link")).unwrap();
    let git = |args: &[&str]| {
        let ran = Command::new("git").current_dir(&root).args(args).output().unwrap();
        assert!(ran.status.success(), "{args:?}: {}", String::from_utf8_lossy(&ran.stderr));
    };
    host.put(".gitignore", "generated/\n");
    git(&["init", "-q", "-b", "main"]);
    git(&["config", "user.email", "a@example.org"]);
    git(&["config", "user.name", "a"]);
    git(&["add", "-A"]);
    git(&["commit", "-qm", "one"]);
    host.put("src/a.rs", "changed after the commit\n");
    host.put("untracked", "u\n");
    host
}

#[test]
fn what_destroys_a_workspace_is_undone_to_the_byte() {
    let host = furnished(BASH);
    let root = host.work("");
    for script in [
        "rm -rf *",
        "git reset -q --hard",
        "git clean -fdxq",
        "for f in src/a.rs src/deep/b.rs doc/read.me; do sed -i 's/ *{/\\n{/' $f; done; chmod 600 doc/read.me",
        "mkdir -p target/debug && echo partial > target/debug/x.o && touch src/a.rs && exit 1",
    ] {
        let before = snapshot(&root);
        let (call, outcome) = run(&host, script);
        let state = text(&outcome, "/output/effect/state");
        assert!(["applied", "partly_applied"].contains(&state), "{script}: {outcome}");
        assert_eq!(outcome["attestation"]["effect"]["changes_sha256"], outcome["output"]["effect"]["changes_sha256"]);
        assert_ne!(snapshot(&root), before, "{script}");
        let report = undo(&host, &call).exits(0).json();
        assert_eq!(report["undone"][0]["refused"], json!([]), "{script}: {report}");
        let after = snapshot(&root);
        for (path, was) in &before {
            assert_eq!(after.get(path), Some(was), "{script}: {}", path.display());
        }
        assert_eq!(after.len(), before.len(), "{script}");
        undo(&host, &call).fails(10, "effect_already_undone");
    }
    assert_eq!(host.palyra(&["journal", "verify"]).good()["intact"], true);
}

#[test]
fn guarded_paths_wait_with_a_difference_while_the_rest_counts() {
    let host = furnished(BASH);
    host.put("package.json", "{\"name\":\"x\",\"dependencies\":{}}\n");
    let script = "set -e; echo new > src/new.rs; mkdir -p .git/hooks .github/workflows; \
        printf '#!/bin/sh\\nevil\\n' > .git/hooks/pre-commit; chmod 755 .git/hooks/pre-commit; \
        echo 'on: push' > .github/workflows/x.yml; \
        echo '{\"name\":\"x\",\"dependencies\":{\"left-pad\":\"1\"}}' > package.json; git remote add o https://example.org/x.git";
    let (call, outcome) = run(&host, script);
    let effect = &outcome["output"]["effect"];
    assert_eq!(effect["state"], "partly_applied", "{outcome}");
    assert_eq!(host.content("src/new.rs"), "new\n");
    assert!(!host.work(".git/hooks/pre-commit").exists() && !host.work(".github/workflows/x.yml").exists());
    assert!(!host.content("package.json").contains("left-pad"));
    assert!(host.content(".git/config").contains("example.org"), "settings that name no program count");
    let waiting: Vec<&str> = effect["waiting"].as_array().unwrap().iter().map(|path| path.as_str().unwrap()).collect();
    assert!(waiting.contains(&".git/hooks/pre-commit") && waiting.contains(&"package.json"), "{waiting:?}");
    let approval = text(effect, "/approval").to_owned();
    let asked = host.palyra(&["approvals", "show", &approval]).good();
    let diff = text(&asked, "/subject/diff");
    for part in ["+evil", "+on: push", "left-pad", "pre-commit"] {
        assert!(diff.contains(part), "{part}: {diff}");
    }
    let listed = host.palyra(&["approvals", "list"]).good();
    assert_eq!(listed.as_array().unwrap().len(), 1, "one approval for all of them: {listed}");
    host.decide(&approval, "allow", &[]).exits(0).done();
    wait_for(&host, &call, "effect.settled");
    assert!(
        host.content(".git/hooks/pre-commit").contains("evil") && host.content("package.json").contains("left-pad")
    );
    assert!(host.work(".github/workflows/x.yml").exists());
    undo(&host, &call).exits(0).done();
    assert!(!host.work(".git/hooks/pre-commit").exists() && !host.work("src/new.rs").exists());
    assert!(!host.content("package.json").contains("left-pad"));
}

/// Waits until the journal has an event of this kind about a call.
fn wait_for(host: &Host, call: &str, kind: &str) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let events = host.palyra(&["journal", "show", call]).exits(0).json_lines();
        if events.iter().any(|event| text(event, "/kind") == kind) {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "no {kind}: {events:?}");
    }
}

#[test]
fn what_waits_is_dropped_when_denied_and_survives_a_restart() {
    for by in [Restart::Terminate, Restart::Kill] {
        let mut host = furnished(BASH);
        let (denied, outcome) = run(&host, "echo evil > .envrc; echo fine > fine");
        let approval = text(&outcome, "/output/effect/approval").to_owned();
        let (allowed, outcome) = run(&host, "mkdir -p .vscode; echo '{}' > .vscode/settings.json");
        assert_eq!(outcome["output"]["effect"]["state"], "waiting", "{outcome}");
        let second = text(&outcome, "/output/effect/approval").to_owned();
        host.restart(by);
        host.decide(&approval, "deny", &[]).exits(0).done();
        wait_for(&host, &denied, "effect.settled");
        assert!(!host.work(".envrc").exists() && host.work("fine").exists());
        host.decide(&second, "allow", &[]).exits(0).done();
        wait_for(&host, &allowed, "effect.settled");
        assert_eq!(host.content(".vscode/settings.json"), "{}\n");
        assert_eq!(host.palyra(&["journal", "verify"]).good()["intact"], true);
    }
}

#[test]
fn an_undo_spares_what_was_changed_since_and_can_be_undone() {
    let host = furnished(BASH);
    host.put("text", "one\ntwo\nthree\n");
    let (call, _) = run(&host, "sed -i s/one/ONE/ text; echo x > doc/read.me");
    host.put("text", "ONE\ntwo\nthree\nmine\n");
    let dry = host.palyra(&["undo", &call, "--dry-run"]).exits(0).json();
    assert_eq!(
        (&dry["undone"][0]["refused"][0]["path"], host.content("doc/read.me").as_str()),
        (&json!("text"), "x\n")
    );
    let report = undo(&host, &call).exits(1).json();
    assert_eq!(host.content("text"), "ONE\ntwo\nthree\nmine\n", "it was changed since");
    assert_eq!(text(&report, "/undone/0/refused/0/three_way"), "one\ntwo\nthree\nmine\n", "{report}");
    assert_ne!(host.content("doc/read.me"), "x\n");
    let again = text(&report, "/undone/0/undo").to_owned();
    undo(&host, &again).exits(0).done();
    assert_eq!(host.content("doc/read.me"), "x\n", "the undo is undone");
}

#[test]
fn a_session_is_undone_newest_first_and_trials_leave_nothing() {
    let host = furnished(BASH);
    let before = snapshot(&host.work(""));
    for script in ["echo 1 > n", "echo 2 >> n; rm untracked", "mv n m; mkdir d; echo 3 > d/x"] {
        run_as(&host, json!({ "argv": ["bash", "-c", script] }), &["--session", "work"]);
    }
    let (_, trial) = run_as(&host, json!({ "argv": ["rm", "-rf", "src"], "workspace": "discard" }), &[]);
    assert_eq!(trial["output"]["effect"]["state"], "discarded", "{trial}");
    assert!(host.work("src").exists());
    let shown = host.palyra(&["effects", "show", "--session", "work"]).good();
    assert_eq!(shown.as_array().unwrap().len(), 3, "{shown}");
    undo(&host, "work").exits(0).done();
    let after = snapshot(&host.work(""));
    for (path, was) in &before {
        assert_eq!(after.get(path), Some(was), "{}", path.display());
    }
    let status = host.palyra(&["status"]).good();
    assert_eq!(
        (&status["effects"]["max_bytes"], &status["effects"]["max_age_ms"]),
        (&json!(2_147_483_648_u64), &json!(604_800_000))
    );
}

#[test]
fn rules_decide_what_counts() {
    let mut host = Host::idle();
    fs::create_dir(host.path("policies")).unwrap();
    let rules = r#"
@id("many_deletions_ask") @reason("This deletes many files.")
forbid (principal, action == Action::"effect.apply", resource)
when { context.counts.deleted > 3 } unless { context.allow_sensitive_tools };
@id("no_infra") @reason("Nothing in infra is written by agents.")
forbid (principal, action == Action::"effect.apply", resource)
when { context.written_under.contains("infra") };
"#;
    fs::write(host.path("policies").join("effects.cedar"), rules).unwrap();
    host.configure(&format!("policy_dir = {:?}\n{BASH}", host.path("policies")));
    host.start();
    (0..6).for_each(|n| host.put(&format!("f{n}"), "x"));
    let (call, outcome) = run(&host, "rm f?");
    assert_eq!(outcome["output"]["effect"]["state"], "waiting", "{outcome}");
    assert!(host.work("f0").exists(), "it counts when a person approves");
    let approval = text(&outcome, "/output/effect/approval").to_owned();
    host.decide(&approval, "allow", &[]).exits(0).done();
    wait_for(&host, &call, "effect.settled");
    assert!(!host.work("f0").exists());
    let (_, outcome) = run(&host, "mkdir infra; echo x > infra/prod.tf");
    assert_eq!(outcome["output"]["effect"]["state"], "discarded", "{outcome}");
    assert!(text(&outcome, "/output/notes/0").contains("no_infra"), "{outcome}");
    assert!(!host.work("infra").exists());
}

#[test]
fn two_runs_at_once_conflict_only_where_both_wrote() {
    let host = furnished(BASH);
    host.put("flag", "wait\n");
    // A file that is edited in place shows through a view; the first run ends when the others' changes are there.
    let script = "echo slow > src/a.rs; echo s > slow; until grep -q go flag; do sleep 0.05; done";
    let (first, approval) = host.ask("palyra.process.run", &json!({ "argv": ["bash", "-c", script] }), &[]);
    host.decide(&approval, "allow", &[]).exits(0).done();
    let live = json!({ "argv": ["bash", "-c", "echo fast > src/a.rs; echo f > fast"], "workspace": "live" });
    let (_, outcome) = run_as(&host, live, &[]);
    assert_eq!((&outcome["state"], &outcome["output"]["effect"]), (&json!("succeeded"), &Value::Null), "{outcome}");
    let (_, outcome) = run(&host, "echo third > third");
    assert_eq!(outcome["output"]["effect"]["state"], "applied", "{outcome}");
    host.put("flag", "go\n");
    let outcome = host.palyra(&["calls", "follow", &first]).json();
    assert_eq!(outcome["output"]["effect"]["conflicts"], json!(["src/a.rs"]), "{outcome}");
    assert_eq!((host.content("src/a.rs").as_str(), host.content("slow").as_str()), ("fast\n", "s\n"));
    let diff = host.palyra(&["effects", "diff", &first, "--path", "src/a.rs"]).good();
    assert!(text(&diff, "/diff").contains("+slow"), "neither version is lost: {diff}");
}

#[test]
fn a_run_over_its_quota_changes_nothing() {
    let host = Host::with(&format!("{BASH}[effects]\nmax_files = 50\nmax_bytes = 100000\n"));
    let (_, outcome) = run(&host, "for i in $(seq 60); do echo > f$i; done");
    assert_eq!(text(&outcome, "/problem/code"), "effect_too_many_files", "{outcome}");
    let (_, outcome) = run(&host, "head -c 200000 /dev/zero > big");
    assert_eq!(text(&outcome, "/problem/code"), "effect_too_large", "{outcome}");
    assert_eq!(fs::read_dir(host.work("")).unwrap().count(), 0);
}

#[test]
fn hostile_contents_of_a_view_harm_nobody() {
    let host = furnished(BASH);
    let outside = host.path("outside");
    fs::write(&outside, "secret\n").unwrap();
    let script = format!(
        "ln -s {} escape; ln -s / rootlink; mkfifo pipe; mkdir -p a/b; echo x > $'a/b/\\xff'; mkdir shut; echo y > shut/in; \
         chmod 000 shut; echo z > setid; chmod 755 setid; chmod 6755 setid; ln setid other; truncate -s 1000000 sparse; \
         rm -rf src; mkdir src; echo only > src/only",
        outside.display()
    );
    let (call, outcome) = run(&host, &script);
    let effect = &outcome["output"]["effect"];
    assert_eq!((&effect["state"], &effect["skipped"]), (&json!("applied"), &json!(["pipe"])), "{outcome}");
    assert_eq!(fs::read_to_string(&outside).unwrap(), "secret\n");
    assert!(fs::symlink_metadata(host.work("escape")).unwrap().is_symlink() && !host.work("pipe").exists());
    assert_eq!(fs::metadata(host.work("setid")).unwrap().mode() & 0o7777, 0o755, "set-id bits are not taken over");
    assert_eq!(fs::metadata(host.work("shut")).unwrap().mode() & 0o7777, 0);
    assert!(host.work("src/only").exists() && !host.work("src/a.rs").exists());
    undo(&host, &call).exits(0).done();
    assert!(host.work("src/a.rs").exists() && !host.work("shut").exists() && !host.work("a").exists());
}

#[test]
fn a_killed_daemon_leaves_every_effect_applied_or_discarded() {
    let mut host = furnished(BASH);
    let script = "for i in $(seq 300); do echo $i > many$i; done; rm -rf doc; echo end > src/a.rs";
    for round in 0..6_u64 {
        let input = json!({ "argv": ["bash", "-c", script] });
        let (call, approval) = host.ask("palyra.process.run", &input, &[]);
        host.decide(&approval, "allow", &[]).exits(0).done();
        // From the middle of the run to the middle of writing back and a little after.
        std::thread::sleep(std::time::Duration::from_millis(40 + round * 60));
        host.restart(Restart::Kill);
        let state = host.palyra(&["calls", "show", &call]).json();
        let applied = host.work("many300").exists();
        assert_eq!(host.work("many1").exists(), applied, "{round}: {state}");
        assert_eq!(host.content("src/a.rs") == "end\n", applied, "{round}: {state}");
        assert_eq!(!host.work("doc/read.me").exists(), applied, "{round}: {state}");
        if applied {
            let undoing = host.palyra_started(&["undo", &call]);
            std::thread::sleep(std::time::Duration::from_millis(round * 15));
            host.restart(Restart::Kill);
            drop(undoing.end());
            if host.work("many1").exists() || host.work("many300").exists() {
                undo(&host, &call).exits(0).done();
            }
            assert!(!host.work("many1").exists() && !host.work("many300").exists(), "{round}");
            assert!(host.work("doc/read.me").exists());
        }
        assert_eq!(host.palyra(&["journal", "verify"]).good()["intact"], true);
    }
}

#[test]
fn a_moved_directory_names_the_cause() {
    let host = furnished("[process_runner]\nallow_interpreters = [\"python3\"]\n");
    let (_, outcome) = run_as(&host, json!({ "argv": ["python3", "-c", "import os; os.rename('src', 'lib')"] }), &[]);
    let notes = outcome["output"]["notes"].to_string();
    assert!(notes.contains("Palyra is the cause") && notes.contains("live"), "{outcome}");
}

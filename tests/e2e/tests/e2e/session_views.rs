//! Views that a session keeps over several calls; quotas that end a run; what is guarded because the workspace says so.

use crate::effects::{BASH, furnished, run, run_as, snapshot, undo};
use palyra_e2e::host::Restart;
use palyra_e2e::{Host, text};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;

/// A step of the session `work`, on the session's view.
fn step(host: &Host, view: &str, script: &str) -> Value {
    let input = json!({ "argv": ["bash", "-ec", script], "view": view });
    run_as(host, input, &["--session", "work"]).1
}

fn state(outcome: &Value) -> &str {
    text(outcome, "/output/effect/state")
}

#[test]
fn steps_of_a_session_build_on_each_other_before_anything_counts() {
    let mut host = furnished(BASH);
    let before = snapshot(&host.work(""));
    let outcome = step(&host, "session", "mkdir d; echo one > d/a; rm -rf doc; chmod 700 src; chmod 000 generated");
    assert_eq!(state(&outcome), "open", "{outcome}");
    let outcome =
        step(&host, "session", "grep -q one d/a; test ! -e doc; echo two >> d/a; mkdir doc; echo only > doc/new");
    assert_eq!(outcome["state"], "succeeded", "{outcome}");
    assert_eq!(snapshot(&host.work("")), before, "nothing counts yet");
    // A directory that took the place of another stays empty of what was there, also for a daemon that starts anew.
    host.restart(Restart::Kill);
    let outcome = step(&host, "session", "test ! -e doc/read.me; test $(stat -c %a src) = 700; rm untracked");
    assert_eq!((state(&outcome), &outcome["state"]), ("open", &json!("succeeded")), "{outcome}");
    let shown = host.palyra(&["effects", "show", "--session", "work"]).good();
    let paths: Vec<&str> = shown[0]["all_changes"].as_array().unwrap().iter().map(|c| text(c, "/path")).collect();
    assert_eq!(shown.as_array().unwrap().len(), 1, "the sum: {shown}");
    for expect in ["d/a", "doc/new", "doc/read.me", "src", "untracked"] {
        assert!(paths.contains(&expect), "{expect}: {paths:?}");
    }
    let diff = host.palyra(&["effects", "diff", "--session", "work"]).good();
    for part in ["+one", "+two", "+only"] {
        assert!(text(&diff, "/diff").contains(part), "{part}: {diff}");
    }
    let outcome = step(&host, "session_end", "echo three >> d/a");
    assert_eq!(state(&outcome), "applied", "{outcome}");
    assert_eq!((host.content("d/a").as_str(), host.work("doc/read.me").exists()), ("one\ntwo\nthree\n", false));
    undo(&host, "work").exits(0).done();
    let after = snapshot(&host.work(""));
    for (path, was) in &before {
        assert_eq!(after.get(path), Some(was), "{}", path.display());
    }
    assert_eq!(host.palyra(&["journal", "verify"]).good()["intact"], true);
}

#[test]
fn a_sessions_view_is_thrown_away_by_an_undo_and_guarded_paths_wait_at_its_end() {
    let host = furnished(BASH);
    let before = snapshot(&host.work(""));
    step(&host, "session", "echo x > new");
    let dry = host.palyra(&["undo", "work", "--dry-run"]).exits(0).json();
    assert_eq!(dry["undone"][0]["paths"], json!(["new"]), "{dry}");
    undo(&host, "work").exits(0).done();
    assert_eq!(snapshot(&host.work("")), before);
    let outcome = step(&host, "session", "test ! -e new; echo evil > .envrc; echo fine > fine");
    assert_eq!(state(&outcome), "open", "{outcome}");
    let outcome = step(&host, "session_end", "true");
    assert_eq!((state(&outcome), host.content("fine").as_str()), ("partly_applied", "fine\n"), "{outcome}");
    assert!(!host.work(".envrc").exists() && outcome["output"]["effect"]["waiting"] == json!([".envrc"]));
    // Files that changed in the workspace meanwhile are conflicts of the whole session.
    step(&host, "session", "echo agent > untracked");
    host.put("untracked", "person\n");
    let outcome = step(&host, "session_end", "true");
    assert_eq!(outcome["output"]["effect"]["conflicts"], json!(["untracked"]), "{outcome}");
    assert_eq!(host.content("untracked"), "person\n");
}

#[test]
fn a_run_that_writes_too_much_is_ended_while_it_runs() {
    let host = Host::with(&format!("{BASH}[effects]\nmax_files = 500\nmax_bytes = 1000000\n"));
    for (script, code) in [
        ("head -c 3000000 /dev/zero > big; exec sleep 3600", "effect_too_large"),
        ("for i in $(seq 600); do echo > f$i; done; exec sleep 3600", "effect_too_many_files"),
    ] {
        let (_, outcome) = run(&host, script);
        assert_eq!(text(&outcome, "/problem/code"), code, "{outcome}");
        assert_eq!(outcome["output"]["ended_by"], "workspace_quota", "{outcome}");
        assert!(outcome.to_string().contains("approximate while it runs, exact before anything counts"), "{outcome}");
    }
    assert_eq!(fs::read_dir(host.work("")).unwrap().count(), 0);
}

#[test]
fn what_the_workspaces_own_settings_name_waits() {
    let host = furnished(BASH);
    let git = Command::new("git").current_dir(host.work("")).args(["config", "core.hooksPath", "tools/hooks"]).status();
    assert!(git.unwrap().success());
    fs::create_dir_all(host.work("conf/vscode")).unwrap();
    symlink("conf/vscode", host.work(".vscode")).unwrap();
    let script = "mkdir -p tools/hooks inner/objects inner/refs .git/rebase-merge; echo evil > tools/hooks/pre-commit; \
        echo '{}' > conf/vscode/settings.json; echo 'ref: refs/heads/main' > inner/HEAD; \
        printf '[core]\\n\\tfsmonitor = ./evil\\n' > inner/config; echo 'exec evil' > .git/rebase-merge/git-rebase-todo; \
        rm -rf .config; mkdir elsewhere; ln -s elsewhere .config; echo fine > tools/build";
    let (_, outcome) = run(&host, script);
    let waiting = &outcome["output"]["effect"]["waiting"];
    let expect =
        [".config", ".git/rebase-merge/git-rebase-todo", "conf/vscode/settings.json", "inner/HEAD", "tools/hooks"];
    assert_eq!(waiting, &json!(expect), "{outcome}");
    for absent in expect {
        assert!(fs::symlink_metadata(host.work(absent)).is_err(), "{absent}");
    }
    assert_eq!(host.content("tools/build"), "fine\n");
    // The file tools keep to the same list.
    let write = json!({ "path": "tools/hooks/post-merge", "content": "evil", "create_parents": true });
    let (call, approval) = host.ask("palyra.fs.write", &write, &[]);
    host.decide(&approval, "allow", &[]).exits(0).done();
    let outcome = host.palyra(&["calls", "follow", &call]).json();
    assert_eq!(state(&outcome), "waiting", "{outcome}");
    assert!(!host.work("tools/hooks").exists());
}

#[test]
fn build_directories_can_be_left_out_of_what_is_kept() {
    let host = furnished(&format!("{BASH}[effects]\nnot_kept = [\"/target/\", \"*.o\"]\n"));
    fs::create_dir(host.work("target")).unwrap();
    host.put("target/big", vec![7_u8; 1 << 20]);
    host.put("a.o", "object");
    let (call, _) = run(&host, "rm -rf target src; echo new > a.o");
    assert!(!host.work("target").exists() && !host.work("src").exists());
    let kept = host.palyra(&["status"]).good()["effects"]["kept_bytes"].as_u64().unwrap();
    assert!(kept < 1 << 16, "{kept}");
    let report = undo(&host, &call).exits(1).json();
    let refused: Vec<&str> =
        report["undone"][0]["refused"].as_array().unwrap().iter().map(|r| text(r, "/path")).collect();
    assert_eq!(refused, ["target", "a.o"], "{report}");
    assert!(host.work("src/a.rs").exists() && host.content("a.o") == "new\n");
}

#[test]
fn rules_count_what_git_tracks() {
    let mut host = Host::idle();
    fs::create_dir(host.path("policies")).unwrap();
    let rules = r#"
@id("tracked_deletions_ask") @reason("This deletes many files that git tracks.")
forbid (principal, action == Action::"effect.apply", resource)
when { context.counts.tracked_deleted > 3 } unless { context.allow_sensitive_tools };
"#;
    fs::write(host.path("policies").join("effects.cedar"), rules).unwrap();
    host.configure(&format!("policy_dir = {:?}\n{BASH}", host.path("policies")));
    for name in (0..6).map(|n| format!("f{n}")) {
        host.put(&name, "x");
    }
    for args in [&["init", "-q"][..], &["add", "."]] {
        assert!(Command::new("git").current_dir(host.work("")).args(args).status().unwrap().success());
    }
    (0..6).for_each(|n| host.put(&format!("untracked{n}"), "x"));
    host.start();
    let (_, outcome) = run(&host, "rm untracked?");
    assert_eq!(state(&outcome), "applied", "{outcome}");
    let (_, outcome) = run(&host, "rm f?");
    assert_eq!(state(&outcome), "waiting", "{outcome}");
    assert!(host.work("f0").exists());
}

#[test]
fn sockets_and_pipes_of_a_read_only_root_lead_nowhere() {
    let mut host = Host::idle();
    let given = host.path("given");
    fs::create_dir(&given).unwrap();
    fs::write(given.join("file"), "readable\n").unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(given.join("socket")).unwrap();
    assert!(Command::new("mkfifo").arg("-m666").arg(given.join("pipe")).status().unwrap().success());
    for entry in [given.clone(), given.join("socket")] {
        fs::set_permissions(entry, fs::Permissions::from_mode(0o777)).unwrap();
    }
    // Somebody outside reads the pipe.
    let _reader = fs::OpenOptions::new().read(true).write(true).open(given.join("pipe")).unwrap();
    host.configure(&format!("[process_runner]\nallow_interpreters = [\"python3\"]\nread_roots = [{given:?}]\n"));
    host.start();
    let script = format!(
        "import os, socket\nos.chdir({:?})\nprint(open('file').read().strip())\n\
         s = socket.socket(socket.AF_UNIX)\n\
         try: s.connect('socket'); print('reached')\nexcept OSError as e: print('closed')\n\
         try: os.open('pipe', os.O_WRONLY | os.O_NONBLOCK); print('opened')\nexcept OSError as e: print('closed')\n\
         try: open('new', 'w'); print('written')\nexcept OSError as e: print('read-only')",
        given.display().to_string()
    );
    let (_, outcome) = run_as(&host, json!({ "argv": ["/usr/bin/python3", "-c", script] }), &[]);
    assert_eq!(text(&outcome, "/output/stdout"), "readable\nclosed\nclosed\nread-only\n", "{outcome}");
    assert!(outcome.to_string().contains("closed_roots"), "{outcome}");
}

//! The file tools work strictly beneath the workspace, all or nothing.

use palyra_e2e::{Host, text};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;

/// Calls a tool that writes, and says yes.
fn approved(host: &Host, tool: &str, input: &Value) -> palyra_e2e::Ran {
    let (call, approval) = host.ask(tool, input, &[]);
    host.decide(&approval, "allow", &[]).exits(0).done();
    host.palyra(&["calls", "follow", &call])
}

#[test]
fn files_are_read_listed_searched_written_and_patched() {
    let host = Host::up();
    host.put("notes.txt", "one\ntwo\n");
    let read = host.call("palyra.fs.read", &json!({ "path": "notes.txt" }), &[]).good();
    assert_eq!(text(&read, "/output/content"), "one\ntwo\n");
    host.put("raw", b"\xff\x00\xfe");
    let raw = host.call("palyra.fs.read", &json!({ "path": "raw" }), &[]).good();
    assert_eq!((text(&raw, "/output/encoding"), text(&raw, "/output/content")), ("base64", "/wD+"));
    let listed = host.call("palyra.fs.list", &json!({}), &[]).good();
    assert_eq!(listed["output"]["entries"].as_array().unwrap().len(), 2);
    let found = host.call("palyra.fs.search", &json!({ "pattern": "tw" }), &[]).good();
    assert_eq!(found["output"]["matches"].as_array().unwrap().len(), 1);
    let written =
        approved(&host, "palyra.fs.write", &json!({ "path": "a/b.txt", "content": "x", "create_parents": true }));
    assert_eq!(written.good()["output"]["created"], true);
    assert_eq!(host.content("a/b.txt"), "x");
    let patch = "--- a/notes.txt\n+++ b/notes.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n";
    approved(&host, "palyra.fs.apply_patch", &json!({ "patch": patch })).exits(0).done();
    assert_eq!(host.content("notes.txt"), "one\nthree\n");
}

#[test]
fn a_search_and_a_deep_listing_leave_out_what_ignore_files_name() {
    let host = Host::up();
    for dir in ["src", ".venv/lib"] {
        fs::create_dir_all(host.work(dir)).unwrap();
    }
    host.put(".gitignore", ".venv/\n");
    host.put("src/app.py", "needle\n");
    host.put(".venv/lib/dep.py", "needle\n");
    let paths = |tool: &str, key: &str, input: Value| -> Vec<String> {
        let output = host.call(tool, &input, &[]).good()["output"].clone();
        output[key].as_array().unwrap().iter().map(|found| text(found, "/path").to_owned()).collect()
    };
    let search = |input| paths("palyra.fs.search", "matches", input);
    assert_eq!(search(json!({ "pattern": "needle" })), ["src/app.py"]);
    assert_eq!(search(json!({ "pattern": "needle", "include_ignored": true })), [".venv/lib/dep.py", "src/app.py"]);
    assert_eq!(search(json!({ "pattern": "needle", "path": ".venv" })), [".venv/lib/dep.py"]);
    let list = |input| paths("palyra.fs.list", "entries", input);
    assert_eq!(list(json!({ "depth": 3 })), [".gitignore", "src", "src/app.py"]);
    assert_eq!(list(json!({})), [".gitignore", ".venv", "src"]);
}

#[test]
fn no_path_leaves_the_workspace() {
    let host = Host::up();
    fs::write(host.path("secret"), "hunter2").unwrap();
    fs::create_dir(host.path("outside")).unwrap();
    fs::create_dir(host.work("a")).unwrap();
    symlink(host.path("secret"), host.work("link")).unwrap();
    symlink("../secret", host.work("relative")).unwrap();
    symlink(host.path("outside"), host.work("dir")).unwrap();
    symlink("/", host.work("root")).unwrap();
    let secret = host.path("secret");
    let in_root = format!("root{}", secret.display());
    let paths = [
        "../secret",
        "a/../../secret",
        "./../secret",
        "/etc/passwd",
        secret.to_str().unwrap(),
        "link",
        "relative",
        "dir/x",
        &in_root,
        "root/proc/self/environ",
    ];
    for path in paths {
        let reads = host.call("palyra.fs.read", &json!({ "path": path }), &[]);
        assert!(!reads.stdout.contains("hunter2"), "{path}");
        assert_eq!(reads.json()["state"], "denied", "{path}");
        reads.fails(3, "path_outside_workspace");
        host.call("palyra.fs.list", &json!({ "path": path }), &[]).fails(3, "path_outside_workspace");
        let write = json!({ "path": path, "content": "owned" });
        host.call("palyra.fs.write", &write, &["--detach"]).fails(3, "path_outside_workspace");
        let run = json!({ "argv": ["ls"], "cwd": path });
        host.call("palyra.process.run", &run, &["--detach"]).fails(3, "path_outside_workspace");
    }
    let patch = "--- /dev/null\n+++ b/../owned\n@@ -0,0 +1 @@\n+owned\n";
    let refused = host.call("palyra.fs.apply_patch", &json!({ "patch": patch }), &["--detach"]).exits(3);
    assert_eq!(refused.error()["code"], "path_outside_workspace");
    assert_eq!(fs::read_to_string(host.path("secret")).unwrap(), "hunter2");
    assert_eq!(fs::read_dir(host.path("outside")).unwrap().count(), 0);
    assert_eq!(host.palyra(&["approvals", "list"]).good(), json!([]), "nobody is asked about what cannot be");
}

#[test]
fn a_link_put_there_after_the_yes_is_not_followed() {
    let host = Host::up();
    fs::create_dir(host.path("outside")).unwrap();
    fs::create_dir(host.work("dir")).unwrap();
    let (call, approval) = host.ask("palyra.fs.write", &json!({ "path": "dir/x", "content": "owned" }), &[]);
    fs::remove_dir(host.work("dir")).unwrap();
    symlink(host.path("outside"), host.work("dir")).unwrap();
    host.decide(&approval, "allow", &[]).exits(0).done();
    let ended = host.palyra(&["calls", "follow", &call]);
    assert_ne!(ended.code, 0, "{ended:?}");
    assert_eq!(fs::read_dir(host.path("outside")).unwrap().count(), 0);
}

#[test]
fn a_patch_applies_whole_or_not_at_all() {
    let host = Host::up();
    host.put("a", "a\n");
    host.put("b", "b\n");
    let both = "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-a\n+A\n--- a/b\n+++ b/b\n@@ -1 +1 @@\n-b\n+B\n";
    let (call, approval) = host.ask("palyra.fs.apply_patch", &json!({ "patch": both }), &[]);
    assert_eq!(
        host.palyra(&["approvals", "show", &approval]).good()["facets"]["paths_written"],
        json!(["a", "b"]),
        "the person sees every file"
    );
    // The second file changes between the question and the answer.
    host.put("b", "other\n");
    host.decide(&approval, "allow", &[]).exits(0).done();
    let ended = host.palyra(&["calls", "follow", &call]);
    assert_ne!(ended.code, 0, "{ended:?}");
    assert_eq!((host.content("a"), host.content("b")), ("a\n".into(), "other\n".into()));
    host.put("b", "b\n");
    approved(&host, "palyra.fs.apply_patch", &json!({ "patch": both })).exits(0).done();
    assert_eq!((host.content("a"), host.content("b")), ("A\n".into(), "B\n".into()));
    let nonsense = host.call("palyra.fs.apply_patch", &json!({ "patch": "hello" }), &["--detach"]);
    nonsense.fails(6, "patch_malformed");
}

#[test]
fn writes_keep_the_conditions_they_were_given() {
    let host = Host::up();
    host.put("there", "old");
    let write = |input: Value| approved(&host, "palyra.fs.write", &input);
    write(json!({ "path": "there", "content": "new", "must_not_exist": true })).fails(1, "already_exists");
    write(json!({ "path": "there", "content": "new", "expected_sha256": "0".repeat(64) })).fails(1, "content_changed");
    assert_eq!(host.content("there"), "old");
    write(json!({ "path": "no/such/dir", "content": "x" })).fails(1, "not_found");
    let failed = host.call("palyra.fs.read", &json!({ "path": "nowhere" }), &[]).exits(1);
    assert_eq!(failed.json()["problem"]["code"], "not_found");
}

#[test]
fn what_would_later_run_as_code_waits() {
    let host = Host::up();
    fs::create_dir_all(host.work(".git/hooks")).unwrap();
    for path in [".git/hooks/post-checkout", ".claude/settings.local.json", ".git/HEAD"] {
        let input = json!({ "path": path, "content": "#!/bin/sh\n", "create_parents": true });
        let outcome = approved(&host, "palyra.fs.write", &input).json();
        assert_eq!(outcome["output"]["effect"]["state"], "waiting", "{outcome}");
        assert!(!host.work(path).exists(), "{path}");
        let approval = text(&outcome, "/output/effect/approval").to_owned();
        let asked = host.palyra(&["approvals", "show", &approval]).good();
        assert!(text(&asked, "/subject/diff").contains("+#!/bin/sh"), "{asked}");
    }
    let patch = "--- /dev/null\n+++ b/.envrc\n@@ -0,0 +1 @@\n+evil\n--- /dev/null\n+++ b/fine\n@@ -0,0 +1 @@\n+fine\n";
    let outcome = approved(&host, "palyra.fs.apply_patch", &json!({ "patch": patch })).json();
    assert_eq!(outcome["output"]["effect"]["waiting"], json!([".envrc"]), "{outcome}");
    assert!(!host.work(".envrc").exists() && host.content("fine") == "fine\n");
    let call = text(&outcome, "/call_id").to_owned();
    host.palyra(&["undo", &call]).exits(0).done();
    assert!(!host.work("fine").exists());
}

/// A file of one line, and a pattern that costs some hundred steps for every byte of it.
fn put_slow(host: &Host) -> Value {
    let mut state = 1_u32;
    let line = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if state >> 31 == 0 { b'a' } else { b'b' }
    });
    host.put("line", line.take(8_000_000).collect::<Vec<_>>());
    json!({ "pattern": "a[ab]{200}[^ab]", "regex": true })
}

#[test]
fn a_search_ends_at_its_deadline_when_withdrawn_and_when_the_daemon_ends() {
    let mut host = Host::with("[tool_call]\nexecution_timeout_ms = 300\n");
    let input = put_slow(&host);
    host.call("palyra.fs.search", &input, &[]).fails(1, "execution_timeout");
    drop(host);
    host = Host::up();
    let input = put_slow(&host);
    let begin = || text(&host.call("palyra.fs.search", &input, &["--detach"]).good(), "/call_id").to_owned();
    let (withdrawn, left) = (begin(), begin());
    host.palyra(&["calls", "cancel", &withdrawn]).fails(5, "cancelled");
    assert_eq!(host.terminate().code, Some(0));
    host.start();
    let ended = host.palyra(&["calls", "show", &left]);
    // On a machine that is too busy to hear the word in time, the end does not wait for it.
    assert!(["cancelled", "indeterminate"].contains(&text(&ended.json(), "/state")), "{ended:?}");
}

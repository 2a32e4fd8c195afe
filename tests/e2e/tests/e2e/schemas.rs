//! What a tool returns is what its published schema says: clients that check it find nothing to complain about.

use palyra_e2e::{Host, Ran, text};
use palyra_testkit::{ok, serve};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Calls a tool, with a person's yes where one is asked.
fn called(host: &Host, tool: &str, input: &Value) -> Ran {
    let call = proposed(host, tool, input);
    host.palyra(&["calls", "follow", &call])
}

/// Proposes a call, with a person's yes where one is asked, and does not wait for its end.
fn proposed(host: &Host, tool: &str, input: &Value) -> String {
    let asked = host.call(tool, input, &["--detach", "--as", "agent:demo", "--session", "s"]).good();
    if let Some(approval) = asked["approval"]["approval_id"].as_str() {
        host.decide(approval, "allow", &[]).exits(0).done();
    }
    text(&asked, "/call_id").to_owned()
}

#[test]
fn every_output_fits_the_schema_that_is_published() {
    let (port, _served) = serve(vec![ok("hi")]);
    let host = Host::with(&format!("[egress]\nallowed_hosts = [\"127.0.0.1:{port}\"]\n"));
    host.put("notes.txt", "one\ntwo\nthree\n");
    host.put("raw", b"\xff\x00\xfe");
    std::os::unix::fs::symlink("notes.txt", host.work("link")).unwrap();
    let patch = "diff --git a/notes.txt b/more.txt\nrename from notes.txt\nrename to more.txt\n--- a/notes.txt\n+++ b/more.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+x\n";
    let started = proposed(&host, "palyra.process.start", &json!({ "argv": ["sleep", "100"] }));
    let cases = [
        ("palyra.process.read", json!({ "process": started })),
        ("palyra.process.stop", json!({ "process": started })),
        ("palyra.process.start", json!({ "argv": ["true"] })),
        ("palyra.memory.retain", json!({ "text": "the tests need a database" })),
        ("palyra.memory.search", json!({ "query": "database" })),
        (
            "palyra.routine.add",
            json!({ "name": "n", "schedule": "30 2 * * *", "tool": "palyra.echo", "input": { "text": "x" } }),
        ),
        ("palyra.routine.list", json!({})),
        ("palyra.routine.run", json!({ "routine": "n" })),
        ("palyra.routine.remove", json!({ "routine": "n" })),
        ("palyra.echo", json!({ "text": "x" })),
        ("palyra.sleep", json!({ "duration_ms": 1 })),
        ("palyra.fs.read", json!({ "path": "notes.txt" })),
        ("palyra.fs.read", json!({ "path": "raw", "offset": 1, "limit": 1 })),
        ("palyra.fs.list", json!({ "depth": 2 })),
        ("palyra.fs.search", json!({ "pattern": "t[wh]", "regex": true, "context_lines": 1 })),
        ("palyra.fs.search", json!({ "pattern": "nowhere" })),
        ("palyra.fs.write", json!({ "path": "a/b", "content": "x", "create_parents": true })),
        ("palyra.fs.apply_patch", json!({ "patch": patch })),
        ("palyra.process.run", json!({ "argv": ["ls", "-l"] })),
        ("palyra.process.run", json!({ "argv": ["ls", "nowhere"] })),
        ("palyra.http.fetch", json!({ "url": format!("http://127.0.0.1:{port}/") })),
    ];
    let tools = host.palyra(&["tools", "list"]).good();
    let mut covered = BTreeSet::new();
    for (name, input) in cases {
        let tool = tools.as_array().unwrap().iter().find(|tool| tool["name"] == name).unwrap();
        let ran = called(&host, name, &input);
        let output = &ran.json()["output"];
        assert!(output.is_object(), "{name}: {ran:?}");
        let schema = jsonschema::validator_for(&tool["output_schema"]).unwrap();
        let wrong: Vec<_> = schema.iter_errors(output).map(|e| format!("{}: {e}", e.instance_path())).collect();
        assert!(wrong.is_empty(), "{name}: {wrong:?} in {output}");
        covered.insert(name);
    }
    let all: BTreeSet<_> = tools.as_array().unwrap().iter().map(|tool| text(tool, "/name")).collect();
    assert_eq!(covered, all, "every tool is tried");
}

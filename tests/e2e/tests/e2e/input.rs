//! Bad input: each kind has its own code, is answered clearly, is journalled, and changes nothing.

use palyra_e2e::{Host, Proposal, api, text};
use serde_json::json;
use std::fs;

struct Bad {
    tool: &'static str,
    input: Vec<u8>,
    code: &'static str,
    exit: i32,
}

fn bad(tool: &'static str, input: impl Into<Vec<u8>>, code: &'static str) -> Bad {
    Bad { tool, input: input.into(), code, exit: 6 }
}

fn cases() -> Vec<Bad> {
    let nested = format!(r#"{{"text":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    let very_deep = "[".repeat(500_000);
    let large = format!(r#"{{"text":"{}"}}"#, "x".repeat(1 << 20));
    let very_large = format!(r#"{{"text":"{}"}}"#, "x".repeat(6 << 20));
    vec![
        bad("palyra.nonsense", "{}", "unknown_tool"),
        bad("palyra.ech", "{}", "unknown_tool"),
        bad("", "{}", "unknown_tool"),
        bad("rm -rf /\u{1b}[2K", "{}", "unknown_tool"),
        bad("palyra.echo", "{}", "schema_violation"),
        bad("palyra.echo", r#"{"text":1}"#, "schema_violation"),
        bad("palyra.echo", r#"{"text":"a","more":1}"#, "schema_violation"),
        bad("palyra.echo", "[]", "schema_violation"),
        bad("palyra.echo", "null", "schema_violation"),
        bad("palyra.sleep", r#"{"duration_ms":-1}"#, "schema_violation"),
        bad("palyra.sleep", r#"{"duration_ms":600001}"#, "schema_violation"),
        bad("palyra.process.run", r#"{"argv":[]}"#, "schema_violation"),
        bad("palyra.process.run", r#"{"argv":"ls"}"#, "schema_violation"),
        bad("palyra.process.run", r#"{"argv":["ls"],"env":{"A=B":"c"}}"#, "schema_violation"),
        bad("palyra.fs.read", r#"{"path":""}"#, "schema_violation"),
        bad("palyra.process.run", r#"{"argv":["echo","a\u0000b"]}"#, "sandbox_nul_byte"),
        bad("palyra.echo", "", "input_malformed"),
        bad("palyra.echo", "{", "input_malformed"),
        bad("palyra.echo", r#"{"text":"a"} {}"#, "input_malformed"),
        bad("palyra.echo", r#"{"text":"a","text":"b"}"#, "input_malformed"),
        bad("palyra.echo", r#"{"text":"\ud800"}"#, "input_malformed"),
        bad("palyra.sleep", r#"{"duration_ms":9007199254740993}"#, "input_malformed"),
        bad("palyra.sleep", r#"{"duration_ms":1e999}"#, "input_malformed"),
        bad("palyra.echo", b"{\"text\":\"\xff\xfe\"}".to_vec(), "input_not_utf8"),
        bad("palyra.echo", nested, "input_too_deep"),
        bad("palyra.echo", very_deep, "input_too_deep"),
        bad("palyra.echo", large, "input_too_large"),
        bad("palyra.echo", very_large, "input_too_large"),
    ]
}

#[test]
fn bad_input_is_refused_by_kind_and_journalled() {
    let host = Host::up();
    for (n, Bad { tool, input, code, exit }) in cases().into_iter().enumerate() {
        let file = host.path("input.json");
        fs::write(&file, &input).unwrap();
        let given = format!("@{}", file.display());
        let ran = host.palyra(&["call", tool, "--input", &given]);
        let call_id = text(&ran.json(), "/call_id").to_owned();
        assert_eq!(ran.json()["state"], "rejected", "case {n}: {code}");
        ran.fails(exit, code);
        let events = host.palyra(&["journal", "show", &call_id]).exits(0).json_lines();
        assert_eq!(events.len(), 1, "case {n}: {events:?}");
        assert_eq!(text(&events[0], "/kind"), "tool.rejected");
        assert_eq!(text(&events[0], "/body/problem/code"), code);
        let piped = host.palyra_fed(&["call", tool, "--input", "-"], &input);
        piped.fails(exit, code);
    }
    assert_eq!(host.palyra(&["journal", "verify"]).good()["intact"], true);
    host.call("palyra.echo", &json!({ "text": "still here" }), &[]).exits(0).done();
}

#[test]
fn what_was_sent_is_not_kept_but_its_hash_is() {
    let host = Host::up();
    let secret = r#"{"text":"hunter2","text":"hunter2"}"#;
    host.palyra(&["call", "palyra.echo", "--input", secret]).fails(6, "input_malformed");
    let journal = host.palyra(&["journal", "export"]).exits(0).stdout;
    assert!(!journal.contains("hunter2"), "{journal}");
}

#[test]
fn the_nearest_tool_is_suggested_and_a_schema_violation_names_the_place() {
    let host = Host::up();
    let error = host.palyra(&["call", "palyra.fs.reed"]).fails(6, "unknown_tool");
    assert!(error.to_string().contains("palyra.fs.read"), "{error}");
    let error = host.call("palyra.fs.read", &json!({ "path": 7 }), &[]).fails(6, "schema_violation");
    assert!(error.to_string().contains("path"), "{error}");
}

#[test]
fn an_input_file_that_is_not_there_never_reaches_the_daemon() {
    let host = Host::up();
    host.palyra(&["call", "palyra.echo", "--input", "@/no/such/file"]).fails(1, "io");
    assert_eq!(host.palyra(&["status"]).good()["journal"]["size"], 1);
}

#[test]
fn the_largest_input_that_fits_is_accepted() {
    let host = Host::up();
    let text = "x".repeat((1 << 20) - r#"{"text":""}"#.len());
    let input = json!({ "text": text }).to_string();
    assert_eq!(input.len(), 1 << 20);
    let call = host.palyra_fed(&["call", "palyra.echo", "--input", "-"], input.as_bytes()).good();
    assert_eq!(call["output"]["text"], *text);
}

#[tokio::test]
async fn names_on_the_wire_are_checked_by_the_daemon_too() {
    let host = Host::up();
    let owner = host.owner().await;
    let echo = || Proposal::new("palyra.echo", &json!({ "text": "hi" }));
    for proposal in [
        echo().session("no spaces"),
        echo().session(&"x".repeat(1000)),
        echo().run("a\u{1b}b"),
        echo().key("ключ"),
        echo().key(&"k".repeat(1000)),
    ] {
        let error = owner.call(proposal).await.unwrap_err();
        assert_eq!(error.code, "malformed_request", "{error:?}");
    }
    for id in
        ["", "call_x", "apr_01K0000000000000000000000A", "call_01K0000000000000000000000A\n", "'; DROP TABLE events"]
    {
        assert_eq!(owner.show(id).await.unwrap_err().code, "malformed_request", "{id}");
        assert!(owner.allow(id).await.is_err(), "{id}");
    }
    let update = owner.call(echo()).await.unwrap();
    assert_eq!(api::outcome(&update)["state"], "succeeded");
}

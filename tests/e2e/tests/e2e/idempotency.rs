//! Idempotency keys: the same key gives the same outcome, and never a second run.

use palyra_e2e::host::Restart;
use palyra_e2e::{Host, Proposal, api, text};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const RUN: &str = "palyra.process.run";

fn append(line: &str) -> Value {
    json!({ "argv": ["tee", "-a", "log"], "stdin": format!("{line}\n") })
}

/// A host on which the session `s` may run every program.
fn granted() -> Host {
    let host = Host::up();
    let (call, approval) = host.ask(RUN, &json!({ "argv": ["true"] }), &["--session", "s"]);
    host.decide(&approval, "allow", &["--scope", "session", "--match", "tool"]).exits(0).done();
    host.palyra(&["calls", "follow", &call]).exits(0).done();
    host
}

/// The fields in which a repetition must be the original.
fn same_outcome(first: &Value, again: &Value) {
    for field in ["call_id", "state", "output", "problem", "attestation", "ended_at"] {
        assert_eq!(again[field], first[field], "{field}");
    }
    assert_eq!((&first["replayed"], &again["replayed"]), (&json!(false), &json!(true)));
}

#[test]
fn the_same_key_gives_the_same_outcome() {
    let host = granted();
    let first = host.call(RUN, &append("a"), &["--session", "s", "--idempotency-key", "k"]).good();
    let again = host.call(RUN, &append("a"), &["--session", "s", "--idempotency-key", "k"]).good();
    same_outcome(&first, &again);
    let spelled = r#"{ "stdin": "\u0061\n", "argv": ["tee", "-a", "log"] }"#;
    let spelled = host.palyra(&["call", RUN, "--input", spelled, "--session", "t", "--idempotency-key", "k"]).good();
    same_outcome(&first, &spelled);
    assert_eq!(host.lines("log", "a"), 1);
    host.call(RUN, &append("a"), &["--session", "s"]).exits(0).done();
    assert_eq!(host.lines("log", "a"), 2, "without a key it is another call");
}

#[test]
fn a_failure_is_kept_like_a_success() {
    let host = granted();
    let input = json!({ "argv": ["ls", "nowhere"] });
    let first = host.call(RUN, &input, &["--session", "s", "--idempotency-key", "k"]).exits(1).json();
    host.put("nowhere", "now it is there");
    let again = host.call(RUN, &input, &["--session", "s", "--idempotency-key", "k"]).exits(1).json();
    same_outcome(&first, &again);
}

#[test]
fn a_denial_and_an_expiry_are_kept_too() {
    let host =
        Host::with("[tool_call]\napproval_timeout_ms = 1\nallowed_tools = [\"palyra.echo\", \"palyra.process.run\"]\n");
    for (tool, input, exit) in [("palyra.sleep", json!({ "duration_ms": 1 }), 3), (RUN, json!({ "argv": ["true"] }), 4)]
    {
        let first = host.call(tool, &input, &["--idempotency-key", tool]).exits(exit).json();
        let again = host.call(tool, &input, &["--idempotency-key", tool]).exits(exit).json();
        same_outcome(&first, &again);
    }
}

#[test]
fn the_same_key_with_another_input_is_a_conflict() {
    let host = granted();
    let first = host.call(RUN, &append("a"), &["--session", "s", "--idempotency-key", "k"]).good();
    let error =
        host.call(RUN, &append("b"), &["--session", "s", "--idempotency-key", "k"]).fails(10, "idempotency_key_reused");
    assert!(text(&error, "/message").contains(text(&first, "/call_id")), "{error}");
    host.call("palyra.echo", &json!({ "text": "a" }), &["--idempotency-key", "k"]).fails(10, "idempotency_key_reused");
    assert_eq!(host.content("log"), "a\n");
}

#[test]
fn a_refusal_is_kept_too_and_a_reused_key_is_on_record() {
    let host = Host::up();
    let read = json!({ "path": "later" });
    let key = ["--idempotency-key", "k"];
    let first = host.call("palyra.fs.read", &read, &key);
    host.put("later", "there now");
    let again = host.call("palyra.fs.read", &read, &key);
    assert_eq!((again.code, again.json()["replayed"].clone()), (first.code, json!(true)), "{again:?}");
    assert_eq!(text(&first.json(), "/call_id"), text(&again.json(), "/call_id"));
    host.call("palyra.fs.read", &json!({ "path": "other" }), &key).fails(10, "idempotency_key_reused");
    let events = host.palyra(&["journal", "tail", "-n", "100"]).exits(0).stdout;
    assert!(events.contains("idempotency_key_reused"), "{events}");
    host.call("palyra.fs.read", &read, &["--idempotency-key", "fresh"]).exits(0).done();
}

#[test]
fn keys_belong_to_a_principal() {
    let host = Host::up();
    let echo = |who: &[&str]| {
        let options = [&["--idempotency-key", "k"], who].concat();
        host.call("palyra.echo", &json!({ "text": who.join(" ") }), &options).good()
    };
    let ids: BTreeSet<_> = [&[][..], &["--as", "agent:a"], &["--as", "agent:b"]]
        .map(|who| {
            let call = echo(who);
            assert_eq!(call["replayed"], false);
            text(&call, "/call_id").to_owned()
        })
        .into();
    assert_eq!(ids.len(), 3);
    assert_eq!(echo(&["--as", "agent:a"])["replayed"], true);
}

#[test]
fn a_key_survives_a_restart() {
    for by in [Restart::Terminate, Restart::Kill] {
        let mut host = granted();
        let first = host.call(RUN, &append("a"), &["--session", "s", "--idempotency-key", "k"]).good();
        host.restart(by);
        let again = host.call(RUN, &append("a"), &["--session", "s", "--idempotency-key", "k"]).good();
        same_outcome(&first, &again);
        assert_eq!(host.lines("log", "a"), 1);
    }
}

#[test]
fn a_patch_that_was_applied_is_answered_not_tried_again() {
    let host = Host::up();
    host.put("a", "a\n");
    let patch = json!({ "patch": "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-a\n+b\n" });
    let (call, approval) = host.ask("palyra.fs.apply_patch", &patch, &["--idempotency-key", "k"]);
    host.decide(&approval, "allow", &[]).exits(0).done();
    host.palyra(&["calls", "follow", &call]).exits(0).done();
    let again = host.call("palyra.fs.apply_patch", &patch, &["--idempotency-key", "k"]).good();
    assert_eq!((text(&again, "/call_id"), &again["replayed"]), (call.as_str(), &json!(true)));
    assert_eq!(host.content("a"), "b\n");
}

#[test]
fn a_call_whose_program_has_gone_is_still_answered() {
    use std::os::unix::fs::PermissionsExt as _;
    let host = granted();
    let tool = host.work("tool");
    std::fs::copy("/bin/true", &tool).unwrap();
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
    let input = json!({ "argv": ["./tool"] });
    let first = host.call(RUN, &input, &["--session", "s", "--idempotency-key", "k"]).good();
    std::fs::remove_file(&tool).unwrap();
    let again = host.call(RUN, &input, &["--session", "s", "--idempotency-key", "k"]).good();
    same_outcome(&first, &again);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_twenty_at_once_one_runs_and_all_get_its_outcome() {
    let host = granted();
    let owner = host.owner().await;
    for round in 0..5 {
        let line = format!("line-{round}");
        let proposal = Proposal::new(RUN, &append(&line)).session("s").key(&line);
        let calls: Vec<_> = (0..20)
            .map(|_| {
                let (owner, proposal) = (owner.clone(), proposal.clone());
                tokio::spawn(async move { owner.call(proposal).await.unwrap() })
            })
            .collect();
        let mut ends = Vec::new();
        for call in calls {
            ends.push(call.await.unwrap());
        }
        let own = ends.iter().filter(|end| !end.replayed).count();
        assert_eq!(own, 1, "one is the call, the others hear of it");
        let outcomes: BTreeSet<_> = ends.iter().map(|end| api::outcome(end).to_string()).collect();
        assert_eq!(outcomes.len(), 1);
        assert_eq!(host.lines("log", &line), 1);
    }
}

#[tokio::test]
async fn a_repetition_waits_for_the_same_question() {
    let host = Host::up();
    let owner = host.owner().await;
    let proposal = Proposal::new(RUN, &append("a")).key("k");
    let mut first = owner.propose(proposal.clone()).await.unwrap();
    let question = first.question().await;
    let second = owner.propose(proposal).await.unwrap();
    let second = tokio::spawn(second.end());
    assert_eq!(host.palyra(&["approvals", "list"]).good().as_array().unwrap().len(), 1, "a person is asked once");
    owner.allow(question.approval_id.as_str()).await.unwrap();
    let (first, second) = (first.end().await.unwrap(), second.await.unwrap().unwrap());
    assert_eq!(api::outcome(&first), api::outcome(&second));
    assert_eq!((first.replayed, second.replayed), (false, true));
    assert_eq!(host.lines("log", "a"), 1);
}

//! What survives the daemon's end, in good order and by SIGKILL.

use palyra_e2e::host::Restart;
use palyra_e2e::{Host, Proposal, text};
use serde_json::{Value, json};

const BOTH: [Restart; 2] = [Restart::Terminate, Restart::Kill];

fn append(line: &str) -> Value {
    json!({ "argv": ["tee", "-a", "log"], "stdin": format!("{line}\n") })
}

fn kinds(host: &Host, call: &str) -> Vec<String> {
    let events = host.palyra(&["journal", "show", call]).exits(0).json_lines();
    events.iter().map(|event| text(event, "/kind").to_owned()).collect()
}

#[test]
fn a_question_survives_and_its_call_runs_exactly_once() {
    for by in BOTH {
        let mut host = Host::up();
        let (call, approval) = host.ask("palyra.process.run", &append("once"), &[]);
        let asked = host.palyra(&["approvals", "list"]).good()[0].clone();
        assert_eq!(text(&asked, "/approval_id"), approval);
        host.restart(by);
        assert_eq!(host.palyra(&["approvals", "list"]).good(), json!([asked]), "{by:?}");
        assert_eq!(host.palyra(&["status"]).good()["open_calls"], 1);
        let follow = host.palyra_started(&["calls", "follow", &call]);
        host.decide(&approval, "allow", &[]).exits(0).done();
        assert_eq!(follow.end().good()["state"], "succeeded");
        assert_eq!(host.lines("log", "once"), 1);
        host.restart(by);
        assert_eq!(host.palyra(&["calls", "show", &call]).good()["state"], "succeeded");
        assert_eq!(host.lines("log", "once"), 1);
        let started = kinds(&host, &call).iter().filter(|kind| *kind == "tool.started").count();
        assert_eq!(started, 1);
        assert_eq!(host.palyra(&["journal", "verify"]).good()["intact"], true);
    }
}

#[test]
fn a_question_can_be_denied_or_withdrawn_after_a_restart() {
    for by in BOTH {
        let mut host = Host::up();
        let (denied, question) = host.ask("palyra.process.run", &append("denied"), &[]);
        let (cancelled, _) = host.ask("palyra.process.run", &append("cancelled"), &[]);
        host.restart(by);
        host.decide(&question, "deny", &[]).exits(0).done();
        host.palyra(&["calls", "follow", &denied]).fails(3, "approval_denied");
        host.palyra(&["calls", "cancel", &cancelled]).fails(5, "cancelled");
        assert_eq!(host.content("log"), "", "{by:?}");
    }
}

#[test]
fn a_question_still_expires_after_a_restart() {
    for by in BOTH {
        let mut host = Host::idle();
        host.configure("[tool_call]\napproval_timeout_ms = 1500\n");
        host.start();
        let (call, _) = host.ask("palyra.process.run", &append("late"), &[]);
        host.restart(by);
        host.palyra(&["calls", "follow", &call]).fails(4, "approval_expired");
        assert_eq!(host.palyra(&["approvals", "list"]).good(), json!([]));
        assert_eq!(host.content("log"), "");
    }
}

#[test]
fn an_answer_given_under_another_policy_does_not_count() {
    let mut host = Host::up();
    let (call, approval) = host.ask("palyra.process.run", &append("old"), &[]);
    assert_eq!(host.terminate().code, Some(0));
    std::fs::create_dir(host.path("policies")).unwrap();
    let rule = "@id(\"no_programs\")\n@reason(\"Nobody runs programs.\")\nforbid (principal, action == Action::\"tool.execute\", \
                resource == Tool::\"palyra.process.run\");\n";
    std::fs::write(host.path("policies/programs.cedar"), rule).unwrap();
    host.configure(&format!("policy_dir = {:?}\n", host.path("policies")));
    host.start();
    let ended = host.palyra(&["calls", "follow", &call]);
    assert_eq!(ended.error()["code"], "policy_changed", "{ended:?}");
    let refused = host.decide(&approval, "allow", &[]);
    assert_ne!(refused.code, 0, "{refused:?}");
    assert_eq!(host.content("log"), "");
}

#[tokio::test]
async fn a_call_cut_off_by_sigkill_is_indeterminate_and_never_runs_again() {
    let mut host = Host::up();
    let input = json!({ "duration_ms": 600_000 });
    let proposal = Proposal::new("palyra.sleep", &input).key("k");
    let mut call = host.owner().await.propose(proposal).await.unwrap();
    let call_id = call.until("executing").await.call_id;
    host.kill();
    assert!(call.end().await.is_err());
    host.start();
    let shown = host.palyra(&["calls", "show", &call_id]);
    assert_eq!(shown.json()["state"], "indeterminate");
    assert!(shown.json()["attestation"].is_null(), "nobody attests what nobody knows");
    let error = shown.fails(9, "indeterminate");
    assert!(error["hint"].is_string(), "{error}");
    host.palyra(&["calls", "follow", &call_id]).fails(9, "indeterminate");
    host.palyra(&["calls", "cancel", &call_id]).fails(10, "call_moved");
    let again = host.call("palyra.sleep", &input, &["--idempotency-key", "k"]);
    assert_eq!(again.json()["replayed"], true);
    assert_eq!(text(&again.json(), "/call_id"), call_id);
    again.fails(9, "indeterminate");
    assert_eq!(kinds(&host, &call_id), ["tool.proposed", "tool.decided", "tool.started", "tool.ended"]);
    assert_eq!(host.palyra(&["status"]).good()["open_calls"], 0);
    host.restart(Restart::Kill);
    assert_eq!(kinds(&host, &call_id).len(), 4, "it is marked once");
}

#[tokio::test]
async fn sigterm_ends_in_good_order() {
    let mut host = Host::up();
    let owner = host.owner().await;
    let mut call = owner.propose(Proposal::new("palyra.sleep", &json!({ "duration_ms": 300 }))).await.unwrap();
    let call_id = call.until("executing").await.call_id;
    let stopped = host.terminate();
    assert_eq!(stopped.code, Some(0), "{}", stopped.log);
    assert!(!host.socket().exists(), "no stale socket is left");
    host.start();
    assert_eq!(host.palyra(&["calls", "show", &call_id]).good()["state"], "succeeded", "it was let finish");
    let kinds: Vec<_> =
        host.palyra(&["journal", "tail"]).exits(0).json_lines().iter().map(|e| text(e, "/kind").to_owned()).collect();
    let end = kinds.iter().position(|kind| kind == "daemon.stopped").unwrap();
    assert_eq!(kinds[end - 1], "tool.finished");
    assert_eq!(kinds[end + 1], "daemon.started");
    assert_eq!(host.palyra(&["journal", "verify"]).good()["intact"], true);
}

#[test]
fn a_stale_socket_is_no_obstacle() {
    let mut host = Host::up();
    host.kill();
    assert!(host.socket().exists());
    host.palyra(&["status"]).fails(7, "daemon_unreachable");
    host.start();
    host.palyra(&["status"]).exits(0).done();
}

#[test]
fn whoever_waits_is_told_that_the_daemon_ends() {
    let mut host = Host::up();
    let watch = host.palyra_started(&["approvals", "watch"]);
    let call = host.palyra_started(&["call", "palyra.process.run", "--input", &append("later").to_string()]);
    let approval = text(&watch.json(), "/approval_id").to_owned();
    host.terminate();
    let ended = call.end();
    assert_ne!(ended.code, 0);
    assert!(!ended.error()["message"].as_str().unwrap().is_empty());
    watch.end().done();
    host.start();
    assert_eq!(host.palyra(&["approvals", "list"]).good()[0]["approval_id"], *approval);
}

#[test]
fn identity_and_history_survive() {
    let mut host = Host::up();
    let before = host.palyra(&["status"]).good();
    host.restart(Restart::Kill);
    let after = host.palyra(&["status"]).good();
    for field in ["/public_key", "/journal/origin", "/policy/hash"] {
        assert_eq!(text(&before, field), text(&after, field));
    }
}

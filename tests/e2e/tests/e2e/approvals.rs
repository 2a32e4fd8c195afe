//! Approvals: asked of a person, answered once, from any door, and always ended.

use palyra_api::v1::{DecideRequest, Matcher, Scope};
use palyra_e2e::{Host, Proposal, api, text};
use serde_json::{Value, json};

fn append(line: &str) -> Value {
    json!({ "argv": ["tee", "-a", "log"], "stdin": format!("{line}\n") })
}

#[test]
fn a_yes_resumes_the_call_that_waits_at_another_door() {
    let host = Host::up();
    let watch = host.palyra_started(&["approvals", "watch"]);
    let call = host.palyra_started(&["call", "palyra.process.run", "--input", &append("yes").to_string()]);
    let asked = watch.json();
    assert_eq!(host.content("log"), "", "nothing runs before the answer");
    host.decide(text(&asked, "/approval_id"), "allow", &[]).exits(0).done();
    let ended = call.end().good();
    assert_eq!(ended["state"], "succeeded");
    assert_eq!(text(&ended, "/attestation/authority/approval"), text(&asked, "/approval_id"));
    assert_eq!(text(&ended, "/attestation/call_digest"), text(&asked, "/call_digest"), "what was shown is what ran");
    assert_eq!(host.lines("log", "yes"), 1);
    assert_eq!(watch.json()["state"], "allowed");
}

#[tokio::test]
async fn a_yes_over_another_connection_reaches_the_waiting_one() {
    let host = Host::up();
    let (one, other) = (host.agent("agent:demo").await, host.owner().await);
    let mut questions = other.watch().await.unwrap();
    let call = one.propose(Proposal::new("palyra.process.run", &append("yes"))).await.unwrap();
    let asked = questions.next().await.unwrap();
    assert_eq!(
        (asked.principal.to_string(), asked.proposed_by.to_string()),
        ("agent:demo".into(), "user:local".into())
    );
    other.allow(asked.approval_id.as_str()).await.unwrap();
    let ended = call.end().await.unwrap();
    assert_eq!(ended.state, "succeeded");
    assert_eq!(host.lines("log", "yes"), 1);
}

#[test]
fn a_no_denies_and_says_who_and_why() {
    let host = Host::up();
    let (call, approval) = host.ask("palyra.process.run", &append("no"), &[]);
    host.decide(&approval, "deny", &["--reason", "not on a Friday"]).exits(0).done();
    let ended = host.palyra(&["calls", "follow", &call]);
    assert_eq!(ended.json()["state"], "denied");
    let error = ended.fails(3, "approval_denied");
    assert!(text(&error, "/message").contains("not on a Friday"), "{error}");
    assert_eq!(host.content("log"), "");
    let kinds = kinds(&host, &call);
    assert_eq!(kinds, ["tool.proposed", "tool.decided", "approval.requested", "approval.resolved", "tool.ended"]);
}

fn kinds(host: &Host, call: &str) -> Vec<String> {
    let events = host.palyra(&["journal", "show", call]).exits(0).json_lines();
    events.iter().map(|event| text(event, "/kind").to_owned()).collect()
}

#[test]
fn an_unanswered_question_expires() {
    let host = Host::with("[tool_call]\napproval_timeout_ms = 1\n");
    let call = host.call("palyra.process.run", &append("late"), &[]);
    assert_eq!(call.json()["state"], "expired");
    let (call_id, approval) =
        (text(&call.json(), "/call_id").to_owned(), text(&call.json(), "/approval/approval_id").to_owned());
    let error = call.fails(4, "approval_expired");
    assert!(error["hint"].is_string(), "{error}");
    let late = host.decide(&approval, "allow", &[]).fails(10, "approval_already_resolved");
    assert!(text(&late, "/message").contains("expired"), "{late}");
    host.palyra(&["calls", "show", &call_id]).fails(4, "approval_expired");
    host.palyra(&["calls", "follow", &call_id]).fails(4, "approval_expired");
    assert_eq!(host.content("log"), "");
}

#[test]
fn ctrl_c_withdraws_the_call() {
    let host = Host::up();
    let mut command = host.command("palyra");
    command.args(["call", "palyra.process.run", "--input", &append("never").to_string()]);
    let call = palyra_e2e::Running::start(command);
    call.told("approvals decide");
    let asked = host.palyra(&["approvals", "list"]).good();
    call.interrupt();
    call.end().exits(5).done();
    let approval = text(&asked[0], "/approval_id");
    assert_eq!(host.palyra(&["approvals", "show", approval]).good()["state"], "cancelled");
    host.palyra(&["calls", "show", text(&asked[0], "/call_id")]).fails(5, "cancelled");
    host.decide(approval, "allow", &[]).fails(10, "approval_already_resolved");
    assert_eq!(host.content("log"), "");
}

#[test]
fn cancelling_ends_the_question_and_whoever_waits() {
    let host = Host::up();
    let watch = host.palyra_started(&["approvals", "watch"]);
    let call = host.palyra_started(&["call", "palyra.process.run", "--input", &append("never").to_string()]);
    let asked = watch.json();
    let call_id = text(&asked, "/call_id");
    host.palyra(&["calls", "cancel", call_id]).fails(5, "cancelled");
    call.end().fails(5, "cancelled");
    assert_eq!(watch.json()["state"], "cancelled");
    host.palyra(&["calls", "cancel", call_id]).fails(10, "call_moved");
    assert_eq!(host.palyra(&["approvals", "list"]).good(), json!([]));
}

#[test]
fn an_answer_is_final() {
    let host = Host::up();
    for (first, second) in [("allow", "deny"), ("allow", "allow"), ("deny", "allow"), ("deny", "deny")] {
        let line = format!("{first}-{second}");
        let (call, approval) = host.ask("palyra.process.run", &append(&line), &[]);
        let before = host.decide(&approval, first, &["--reason", "first"]).good();
        let error = host.decide(&approval, second, &["--reason", "second"]).fails(10, "approval_already_resolved");
        assert!(text(&error, "/message").contains(text(&before, "/state")), "{error}");
        assert_eq!(host.palyra(&["approvals", "show", &approval]).good(), before);
        host.palyra(&["calls", "follow", &call]).exits(if first == "allow" { 0 } else { 3 }).done();
        assert_eq!(host.lines("log", &line), usize::from(first == "allow"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_answers_at_once_exactly_one_counts() {
    let host = Host::up();
    let owner = host.owner().await;
    let mut call = owner.propose(Proposal::new("palyra.process.run", &append("once"))).await.unwrap();
    let approval = call.question().await.approval_id.to_string();
    let answers: Vec<_> = (0..20)
        .map(|n| {
            let (owner, approval) = (owner.clone(), approval.clone());
            let answer = DecideRequest { approval_id: approval, allow: n % 2 == 0, ..DecideRequest::default() };
            tokio::spawn(async move { owner.decide(answer).await })
        })
        .collect();
    let mut counted = Vec::new();
    for answer in answers {
        match answer.await.unwrap() {
            Ok(record) => counted.push(record),
            Err(error) => assert_eq!(error.code, "approval_already_resolved"),
        }
    }
    assert_eq!(counted.len(), 1);
    let ended = call.end().await.unwrap();
    let allowed = counted[0].state == palyra_protocol::ApprovalState::Allowed;
    assert_eq!(ended.state, if allowed { "succeeded" } else { "denied" });
    assert_eq!(host.lines("log", "once"), usize::from(allowed));
}

#[test]
fn agents_never_approve_and_may_not_look_around() {
    let host = Host::up();
    let (call, approval) = host.ask("palyra.process.run", &append("self"), &["--as", "agent:demo"]);
    for name in ["agent:demo", "agent:other"] {
        for decision in ["allow", "deny"] {
            host.decide(&approval, decision, &["--as", name]).fails(10, "agents_never_approve");
        }
        for args in [
            &["approvals", "list"][..],
            &["approvals", "watch"],
            &["approvals", "show", &approval],
            &["grants", "list"],
            &["journal", "tail"],
            &["journal", "export"],
            &["journal", "verify"],
            &["journal", "checkpoint"],
        ] {
            host.palyra(&[args, &["--as", name]].concat()).fails(10, "forbidden");
        }
    }
    assert_eq!(host.palyra(&["approvals", "show", &approval]).good()["state"], "pending");
    host.palyra(&["calls", "show", &call, "--as", "agent:other"]).fails(10, "not_found");
    host.palyra(&["calls", "cancel", &call, "--as", "agent:other"]).fails(10, "not_found");
    host.palyra(&["calls", "show", &call, "--as", "agent:demo"]).exits(0).done();
    host.palyra(&["calls", "cancel", &call, "--as", "agent:demo"]).fails(5, "cancelled");
}

#[test]
fn nobody_acts_as_a_person_or_as_the_daemon() {
    let host = Host::up();
    for name in ["user:somebody", "system:daemon", "device:phone"] {
        let refused = host.palyra(&["status", "--as", name]);
        assert!([2, 10].contains(&refused.code), "{name}: {refused:?}");
    }
    assert_eq!(host.palyra(&["status", "--as", "user:local"]).good()["principal"], "user:local");
}

#[tokio::test]
async fn an_answer_wider_than_the_question_is_refused_and_the_question_stays() {
    let host = Host::up();
    let owner = host.owner().await;
    let input = json!({ "argv": ["git", "status"] });
    let mut call = owner.propose(Proposal::new("palyra.process.run", &input)).await.unwrap();
    let approval_id = call.question().await.approval_id.to_string();
    let answer = |scope: Scope, window_ms, matcher: Matcher, words: &[&str]| DecideRequest {
        approval_id: approval_id.clone(),
        allow: true,
        scope: scope.into(),
        window_ms,
        matcher: matcher.into(),
        argv_prefix: words.iter().map(|w| (*w).to_owned()).collect(),
        ..DecideRequest::default()
    };
    for wide in [
        answer(Scope::Once, 0, Matcher::Tool, &[]),
        answer(Scope::Once, 0, Matcher::ArgvPrefix, &["git"]),
        answer(Scope::Session, 0, Matcher::ArgvPrefix, &[]),
        answer(Scope::Session, 0, Matcher::ArgvPrefix, &["git", "push"]),
        answer(Scope::Session, 0, Matcher::ArgvPrefix, &["rm"]),
        answer(Scope::Session, 0, Matcher::ArgvPrefix, &["git", "status", "--short"]),
        answer(Scope::Window, 0, Matcher::ExactCall, &[]),
        answer(Scope::Window, u64::MAX, Matcher::ExactCall, &[]),
    ] {
        let error = owner.decide(wide.clone()).await.unwrap_err();
        assert_eq!(error.code, "approval_scope", "{wide:?}");
    }
    let long = DecideRequest { reason: "x".repeat(10_000), ..answer(Scope::Once, 0, Matcher::ExactCall, &[]) };
    assert_eq!(owner.decide(long).await.unwrap_err().code, "reason_too_long");
    let unknown = DecideRequest { scope: 99, ..answer(Scope::Once, 0, Matcher::ExactCall, &[]) };
    assert_eq!(owner.decide(unknown).await.unwrap_err().code, "malformed_request");
    owner.allow(&approval_id).await.unwrap();
    assert!(api::outcome(&call.end().await.unwrap())["attestation"].is_object());
    assert_eq!(host.palyra(&["grants", "list"]).good(), json!([]));
}

#[test]
fn a_program_replaced_after_the_yes_was_asked_for_does_not_run() {
    use std::os::unix::fs::PermissionsExt as _;
    let host = Host::up();
    let tool = host.work("tool");
    std::fs::copy("/bin/true", &tool).unwrap();
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
    let (call, approval) = host.ask("palyra.process.run", &json!({ "argv": ["./tool"] }), &[]);
    std::fs::copy("/bin/false", &tool).unwrap();
    host.decide(&approval, "allow", &[]).exits(0).done();
    let ended = host.palyra(&["calls", "follow", &call]);
    let output = &ended.json()["output"];
    assert!(output.is_null(), "the other program ran: {output}");
    assert_ne!(ended.code, 0);
}

/// One agent cannot fill the list that people work through, nor anybody's memory.
#[test]
fn questions_are_bounded_and_a_long_list_comes_whole() {
    let host = Host::with("[tool_call]\nmax_questions_per_principal = 6\nmax_questions = 7\n");
    let write = |n: usize| json!({ "path": format!("f{n}"), "content": "x".repeat(750 * 1024) });
    let input = host.path("input.json");
    let ask = |n: usize, who: &str| {
        std::fs::write(&input, write(n).to_string()).unwrap();
        let input = format!("@{}", input.display());
        host.palyra(&["call", "palyra.fs.write", "--input", &input, "--as", who, "--detach"])
    };
    for n in 0..6 {
        ask(n, "agent:a").exits(0).done();
    }
    let error = ask(6, "agent:a").fails(3, "too_many_questions");
    assert!(text(&error, "/hint").contains("max_questions_per_principal"), "{error}");
    ask(7, "agent:b").exits(0).done();
    ask(8, "agent:c").fails(3, "too_many_questions");
    let listed = host.palyra(&["approvals", "list"]).good();
    assert_eq!(listed.as_array().unwrap().len(), 7, "more than one message holds");
    host.decide(text(&listed[0], "/approval_id"), "deny", &[]).exits(0).done();
    ask(9, "agent:a").exits(0).done();
    assert_eq!(host.palyra(&["approvals", "list", "--all"]).good().as_array().unwrap().len(), 8);
}

#[test]
fn who_withdrew_a_call_is_on_record() {
    let host = Host::up();
    let (call, approval) =
        host.ask("palyra.fs.write", &json!({ "path": "x", "content": "x" }), &["--as", "agent:demo"]);
    host.palyra(&["calls", "cancel", &call, "--as", "agent:demo"]).done();
    let ended = host.palyra(&["approvals", "show", &approval]).good();
    assert_eq!(text(&ended, "/resolution/by"), "agent:demo");
    let shown = host.palyra(&["calls", "show", &call]);
    assert!(text(&shown.json(), "/problem/message").contains("`agent:demo` withdrew"), "{shown:?}");
}

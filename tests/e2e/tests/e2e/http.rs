//! The HTTP door, as programs use it.

use palyra_e2e::host::{Restart, signal};
use palyra_e2e::{Host, Running, text};
use serde_json::{Value, json};
use std::io::Write as _;

fn append(line: &str) -> Value {
    json!({ "argv": ["tee", "-a", "log"], "stdin": format!("{line}\n") })
}

fn echo(words: &str) -> Value {
    json!({ "text": words })
}

/// The next so many questions, as somebody who watches sees them.
fn asked(watcher: &Running, count: usize) -> Vec<String> {
    let pending = std::iter::repeat_with(|| watcher.json()).filter(|approval| approval["state"] == "pending");
    pending.take(count).map(|approval| text(&approval, "/approval_id").to_owned()).collect()
}

#[test]
fn a_call_ends_and_its_request_leads_to_the_journal() {
    let host = Host::up();
    let agent = host.http_agent("agent:web");
    let tools = agent.get("/v1/tools").is(200).json();
    assert!(tools["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "palyra.echo"), "{tools}");
    let done = agent.invoke("palyra.echo", &echo("hello")).is(200);
    let call = done.json();
    assert_eq!(call["state"], "succeeded");
    assert_eq!(call["outcome"]["output"], echo("hello"));
    let id = text(&call, "/call_id");
    let events = host.palyra(&["journal", "show", id]).exits(0).json_lines();
    let origin = &events[0]["body"]["call"]["origin"];
    assert_eq!(text(origin, "/request"), done.header("x-request-id"));
    assert_eq!((text(origin, "/channel"), text(origin, "/principal")), ("http", "agent:web"));
    let told = agent.get(&format!("/v1/calls/{id}")).is(200).json();
    assert_eq!(told["outcome"], call["outcome"], "what is looked up is what was answered");
    for (name, answer) in [("answer.json", &call), ("looked-up.json", &told)] {
        let file = host.path(name);
        std::fs::write(&file, answer.to_string()).unwrap();
        let verified = host.palyra(&["attest", "verify", file.to_str().unwrap()]).good();
        assert_eq!((&verified["valid"], &verified["call_id"]), (&json!(true), &call["call_id"]));
    }
}

#[test]
fn refusals_are_typed_and_on_record() {
    let host = Host::with("[tool_call]\nallowed_tools = [\"palyra.echo\", \"palyra.fs.read\"]\n");
    let agent = host.http_agent("agent:web");
    for (tool, input, status, code) in [
        ("palyra.fs.list", json!({}), 403, "policy_denied"),
        ("palyra.fs.read", json!({ "path": "../x" }), 403, "path_outside_workspace"),
        ("palyra.nothing", json!({}), 404, "unknown_tool"),
        ("palyra.echo", json!({ "text": 1 }), 422, "schema_violation"),
        ("palyra.echo", json!({}), 422, "schema_violation"),
    ] {
        let problem = agent.invoke(tool, &input).refuses(status, code);
        let recorded = agent.get(&format!("/v1/calls/{}", text(&problem, "/call_id"))).is(200).json();
        assert_eq!(recorded["state"], problem["state"], "{problem}");
        assert_eq!(recorded["outcome"]["problem"]["code"], code);
    }
    assert_eq!(host.palyra(&["journal", "verify"]).good()["intact"], true);
}

#[test]
fn a_person_answers_and_whoever_follows_sees_every_step() {
    let host = Host::up();
    let (agent, person) = (host.http_agent("agent:web"), host.http_approver());
    let (call, question) = agent.ask("palyra.process.run", &append("yes"));
    let mut events = agent.events(&call);
    assert_eq!(events.until("awaiting_approval")["approval"]["approval_id"], question);
    let waiting = person.get("/v1/approvals").is(200).json();
    assert_eq!(text(&waiting, "/approvals/0/approval_id"), question);
    assert_eq!(person.decide(&question, "allow").is(200).json()["state"], "allowed");
    events.until("executing");
    let mut output = String::new();
    let end = loop {
        match events.next().unwrap() {
            (name, data) if name == "output" => output.push_str(text(&data, "/base64")),
            (_, data) if data["state"] == "succeeded" => break data,
            _ => {}
        }
    };
    assert_eq!(output, "eWVzCg==", "`yes` and the end of its line");
    assert_eq!(events.next(), None, "the end is the end");
    assert_eq!(end["outcome"], agent.get(&format!("/v1/calls/{call}")).is(200).json()["outcome"]);
    assert_eq!(host.lines("log", "yes"), 1);
    person.decide(&question, "deny").refuses(409, "approval_already_resolved");
    let late: Vec<_> = agent.events(&call).collect();
    assert_eq!(late.len(), 1, "who comes late sees the end: {late:?}");
}

#[test]
fn agents_never_answer_and_see_no_questions() {
    let host = Host::up();
    let agent = host.http_agent("agent:web");
    let (call, question) = agent.ask("palyra.process.run", &append("no"));
    agent.decide(&question, "allow").refuses(403, "forbidden");
    agent.get("/v1/approvals").refuses(403, "forbidden");
    let only_looks = host.http_as("user:local", &["--role", "owner", "--scope", "approval.list"]);
    only_looks.get("/v1/approvals").is(200).json();
    only_looks.decide(&question, "allow").refuses(403, "scope_missing");
    let person = host.http_approver();
    assert_eq!(person.decide(&question, "deny").is(200).json()["state"], "denied");
    assert_eq!(agent.events(&call).until("denied")["outcome"]["problem"]["code"], "approval_denied");
    assert_eq!(host.content("log"), "");
}

#[test]
fn a_caller_waits_for_a_person_as_long_as_it_says() {
    let host = Host::up();
    let questions = host.palyra_started(&["approvals", "watch"]);
    let (agent, person) = (host.http_agent("agent:web"), host.http_approver());
    let waiting = std::thread::spawn({
        let agent = agent.clone();
        move || agent.invoke("palyra.process.run", &append("waited"))
    });
    let question = asked(&questions, 1).remove(0);
    person.decide(&question, "allow").is(200).json();
    assert_eq!(waiting.join().unwrap().is(200).json()["state"], "succeeded");
    let denied = std::thread::spawn(move || agent.invoke("palyra.process.run", &append("denied")));
    let question = asked(&questions, 1).remove(0);
    person.decide(&question, "deny").is(200).json();
    denied.join().unwrap().refuses(403, "approval_denied");
}

#[test]
fn one_key_is_one_run_however_often_and_after_a_restart() {
    let mut host = Host::up();
    let (agent, person) = (host.http_agent("agent:web"), host.http_approver());
    let (call, question) = {
        let asked = agent.invoke_once("palyra.process.run", &append("once"), "key-1", 0).is(202).json();
        (text(&asked, "/call_id").to_owned(), text(&asked, "/approval/approval_id").to_owned())
    };
    let repeated = agent.invoke_once("palyra.process.run", &append("once"), "key-1", 0).is(202).json();
    assert_eq!((text(&repeated, "/call_id"), &repeated["replayed"]), (call.as_str(), &json!(true)));
    agent.invoke_once("palyra.echo", &echo("other"), "key-1", 0).refuses(409, "idempotency_key_reused");
    host.restart(Restart::Kill);
    let (agent, person) = (agent.again(&host), person.again(&host));
    let many: Vec<_> = (0..20)
        .map(|_| {
            let agent = agent.clone();
            std::thread::spawn(move || agent.invoke_once("palyra.process.run", &append("once"), "key-1", 60_000))
        })
        .collect();
    person.decide(&question, "allow").is(200).json();
    for answer in many {
        let ended = answer.join().unwrap().is(200).json();
        assert_eq!((text(&ended, "/call_id"), text(&ended, "/state")), (call.as_str(), "succeeded"));
    }
    assert_eq!(host.lines("log", "once"), 1);
    // Somebody else's key is another key.
    let other = host.http_agent("agent:other");
    let theirs = other.invoke_once("palyra.echo", &echo("mine"), "key-1", 30_000).is(200).json();
    assert_eq!(theirs["outcome"]["output"], echo("mine"));
}

#[test]
fn a_client_that_vanishes_loses_nothing() {
    let host = Host::up();
    let questions = host.palyra_started(&["approvals", "watch"]);
    let (agent, person) = (host.http_agent("agent:web"), host.http_approver());
    let body = json!({ "tool": "palyra.process.run", "input": append("kept"), "wait_ms": 600_000 }).to_string();
    let mut gone = agent.connect();
    write!(
        gone,
        "POST /v1/tools/invoke HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Idempotency-Key: mine\r\nContent-Length: {}\r\n\r\n{body}",
        agent.host(),
        agent.token(),
        body.len()
    )
    .unwrap();
    let asked = questions.json();
    drop(gone);
    person.decide(text(&asked, "/approval_id"), "allow").is(200).json();
    let end = agent.events(text(&asked, "/call_id")).until("succeeded");
    let again = agent.invoke_once("palyra.process.run", &append("kept"), "mine", 30_000).is(200).json();
    assert_eq!(again["outcome"], end["outcome"]);
    assert_eq!(host.lines("log", "kept"), 1);
}

#[test]
fn a_restart_in_the_midst_of_a_call_runs_nothing_twice() {
    for by in [Restart::Kill, Restart::Terminate] {
        let mut host = Host::up();
        let (agent, person) = (host.http_agent("agent:web"), host.http_approver());
        let (call, question) = agent.ask("palyra.process.run", &append("once"));
        host.restart(by);
        let (agent, person) = (agent.again(&host), person.again(&host));
        assert_eq!(agent.get(&format!("/v1/calls/{call}")).is(200).json()["state"], "awaiting_approval");
        let mut events = agent.events(&call);
        person.decide(&question, "allow").is(200).json();
        events.until("succeeded");
        assert_eq!(host.lines("log", "once"), 1, "{by:?}");
        // One that was running when the daemon was killed is never run again.
        let sleep = json!({ "duration_ms": 60_000 });
        let body = json!({ "tool": "palyra.sleep", "input": sleep, "wait_ms": 0 });
        let running = agent.post("/v1/tools/invoke", &body).is(202).json();
        host.restart(Restart::Kill);
        let agent = agent.again(&host);
        let told = agent.get(&format!("/v1/calls/{}", text(&running, "/call_id"))).is(200).json();
        assert_eq!(told["state"], "indeterminate");
    }
}

#[test]
fn calls_are_withdrawn_by_their_owner_and_hidden_from_others() {
    let host = Host::up();
    let (agent, other) = (host.http_agent("agent:web"), host.http_agent("agent:other"));
    let (call, _) = agent.ask("palyra.process.run", &append("no"));
    let path = format!("/v1/calls/{call}");
    let unknown = "/v1/calls/call_01ARZ3NDEKTSV4RRFFQ69G5FAV";
    let missing = other.get(unknown).refuses(404, "not_found");
    for (verb, path) in [("GET", path.clone()), ("DELETE", path.clone()), ("GET", format!("{path}/events"))] {
        let hidden = other.send(verb, &path, &[], None).refuses(404, "not_found");
        let same = |problem: &Value| text(problem, "/detail").split('`').next().map(str::to_owned);
        assert_eq!(same(&hidden), same(&missing), "what is not yours looks like what is not there");
    }
    for bad in ["/v1/calls/x", "/v1/calls/%ff", "/v1/calls/..%2f..", "/v1/calls/call_%00"] {
        let status = agent.get(bad).status;
        assert!(matches!(status, 400 | 404), "{bad}: {status}");
    }
    assert_eq!(agent.send("DELETE", &path, &[], None).is(200).json()["state"], "cancelled");
    agent.send("DELETE", &path, &[], None).refuses(409, "call_moved");
    assert_eq!(host.content("log"), "");
}

#[test]
fn operators_see_their_own_calls_and_overseers_all() {
    let host = Host::up();
    let agent = host.http_agent("agent:web");
    let call = text(&agent.invoke("palyra.echo", &json!({ "text": "x" })).is(200).json(), "/call_id").to_owned();
    let path = format!("/v1/calls/{call}");
    for (person, role, status) in [("user:olga", "operator", 404), ("user:ada", "admin", 200)] {
        host.palyra(&["access", "member", "add", person, "--role", role]).exits(0).done();
        let door = host.http_as(person, &["--role", role]);
        assert_eq!(door.get(&path).status, status, "{person}");
        let own = door.invoke("palyra.echo", &json!({ "text": "x" }));
        // Whether people call tools over this door is another rule's to say; what they proposed is theirs to see.
        if let Some(own) = own.json()["call_id"].as_str() {
            door.get(&format!("/v1/calls/{own}")).is(200).json();
        }
    }
    let limited = host.http_as("user:local", &["--role", "operator"]);
    limited.get(&path).refuses(404, "not_found");
    limited.get(&format!("{path}/events")).refuses(404, "not_found");
    host.http_approver().get(&path).is(200).json();
}

#[test]
fn an_ending_daemon_answers_whoever_waits() {
    let mut host = Host::up();
    let questions = host.palyra_started(&["approvals", "watch"]);
    let agent = host.http_agent("agent:web");
    let (call, _) = agent.ask("palyra.process.run", &append("later"));
    let mut events = agent.events(&call);
    events.until("awaiting_approval");
    let waiting = std::thread::spawn({
        let agent = agent.clone();
        move || agent.invoke_once("palyra.process.run", &append("more"), "k", 600_000)
    });
    assert_eq!(asked(&questions, 2).len(), 2);
    signal(host.pid(), rustix::process::Signal::TERM);
    assert_eq!(events.next().unwrap().0, "closing");
    assert_eq!(events.next(), None);
    let told = waiting.join().unwrap().is(202).json();
    assert_eq!(host.terminate_ended().code, Some(0));
    assert!(!host.state().join("http.url").exists(), "nobody is sent to a door that is gone");
    host.start();
    let agent = agent.again(&host);
    let id = text(&told, "/call_id");
    assert_eq!(agent.get(&format!("/v1/calls/{id}")).is(200).json()["state"], "awaiting_approval");
}

#[test]
fn a_withdrawn_token_sees_nothing_more() {
    let host = Host::up();
    let (agent, person) = (host.http_agent("agent:web"), host.http_approver());
    let (call, question) = agent.ask("palyra.process.run", &append("x"));
    let mut events = agent.events(&call);
    events.until("awaiting_approval");
    let tokens = host.palyra(&["access", "token", "list"]).good();
    let tokens = tokens.as_array().unwrap().iter();
    let theirs = tokens.clone().find(|token| text(token, "/principal") == "agent:web").unwrap();
    host.palyra(&["access", "token", "revoke", text(theirs, "/token_id")]).exits(0).done();
    person.decide(&question, "allow").refuses(409, "approval_already_resolved");
    assert_eq!(events.next(), None, "the stream ends at the next thing there is to tell");
    agent.get(&format!("/v1/calls/{call}")).refuses(401, "token_revoked");
}

#[test]
fn a_tool_is_called_by_its_alias_too_and_recorded_by_its_name() {
    let host = Host::up();
    let agent = host.http_agent("agent:web");
    let tools = agent.get("/v1/tools").is(200).json();
    let read = tools["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "palyra.fs.read").unwrap();
    assert_eq!(read["alias"], "palyra_fs_read");
    let called = agent.invoke("palyra_echo", &json!({ "text": "x" })).is(200).json();
    assert_eq!(called["tool"], "palyra.echo", "{called}");
    agent.invoke("palyra_nothing", &json!({})).refuses(404, "unknown_tool");
}

#[test]
fn requests_that_answer_withdraw_or_are_refused_are_in_the_log() {
    let mut host = Host::up();
    let (agent, person) = (host.http_agent("agent:web"), host.http_approver());
    let (_, question) = agent.ask("palyra.process.run", &append("x"));
    let (call, _) = agent.ask("palyra.process.run", &append("y"));
    let refused = agent.decide(&question, "allow");
    let id = refused.header("x-request-id").to_owned();
    assert_eq!(refused.status, 403);
    let answered = person.decide(&question, "deny").is(200);
    let cancelled = agent.send("DELETE", &format!("/v1/calls/{call}"), &[], None).is(200);
    let log = host.terminate().log;
    for (request, words) in [
        (id.as_str(), ["refused", "agent:web"]),
        (answered.header("x-request-id"), ["answered", &question]),
        (cancelled.header("x-request-id"), ["cancelled", &call]),
    ] {
        let line = log.lines().find(|line| line.contains(request)).unwrap_or_else(|| panic!("{request}: {log}"));
        assert!(words.iter().all(|word| line.contains(word)), "{line}");
    }
}

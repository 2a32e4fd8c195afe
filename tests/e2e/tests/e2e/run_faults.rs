//! What can go wrong with a run: the daemon killed at every stage, providers that fail in every way, clients that go,
//! callers that are not let in any more.

use crate::remote::Machines;
use palyra_e2e::host::Restart;
use palyra_e2e::network::inside;
use palyra_e2e::{Host, Model, Running, Say, text};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};

fn append(line: &str) -> Value {
    json!({ "argv": ["tee", "-a", "log"], "stdin": format!("{line}\n") })
}

/// The results of tools that a request to the model holds.
fn told(request: &Value) -> usize {
    let messages = request["messages"].as_array().map_or(&[][..], Vec::as_slice);
    messages.iter().filter(|message| message["role"] == "tool").count()
}

/// A model whose answer follows from what it is told, however often it is asked: two calls, one more, and the end.
fn steady() -> Model {
    Model::answering(|_, request| match told(request) {
        0 => Say::calls(&[("palyra_process_run", append("first")), ("palyra_echo", json!({ "text": "x" }))]),
        2 => Say::call("palyra_process_run", &append("second")),
        _ => Say::text("finished"),
    })
}

/// Every stage of such a run, by the event that begins it and how often it has come by then.
const STAGES: [(&str, usize); 14] = [
    ("run.opened", 1),
    ("run.turn", 1),
    ("approval.requested", 1),
    ("approval.resolved", 1),
    ("tool.started", 1),
    ("tool.started", 2),
    ("tool.finished", 1),
    ("tool.finished", 2),
    ("run.results", 1),
    ("run.turn", 2),
    ("approval.requested", 2),
    ("tool.finished", 3),
    ("run.results", 2),
    ("run.turn", 3),
];

/// INVARIANT: nothing runs twice, nothing is lost, budgets hold.
#[test]
fn a_run_that_is_killed_at_every_stage_repeats_nothing_and_loses_nothing() {
    let mut reached = std::collections::BTreeSet::new();
    for (kind, times) in STAGES {
        let model = steady();
        let mut host = Host::with(&model.config("chat_completions", "max_model_calls = 6\nmax_calls = 3"));
        let tail = host.palyra_started(&["journal", "tail", "--follow", "-n", "1000"]);
        let answering = host.palyra_started(&["approvals", "watch"]);
        let run = host.palyra_started(&["run", "go", "--agent", "coder", "--detach"]);
        let (mut seen, mut stopped) = (0, false);
        while !stopped {
            let event = tail.json();
            reached.insert(text(&event, "/kind").to_owned());
            seen += usize::from(event["kind"] == kind);
            stopped = seen == times;
            if event["kind"] == "approval.requested" && !stopped {
                approve_next(&host, &answering);
            }
        }
        host.kill();
        drop((tail, answering, run));
        host.start();
        let run = text(&host.palyra(&["runs", "list"]).good(), "/0/run").to_owned();
        let shown = carried_to_its_end(&host, &run);
        let state = text(&shown, "/state");
        assert!(matches!(state, "completed" | "indeterminate"), "{kind} {times}: {shown}");
        let events = host.palyra(&["journal", "export"]).exits(0).json_lines();
        let (first, second) = (host.lines("log", "first"), host.lines("log", "second"));
        assert!(first <= 1 && second <= 1, "{kind} {times}: something ran twice");
        if state == "completed" {
            assert_eq!((first, second), (1, 1), "{kind} {times}: something was lost");
        } else {
            assert_eq!(text(&shown, "/problem/code"), "run_indeterminate");
            assert!(text(&shown, "/problem/message").contains("call_"), "the reason names the call: {shown}");
        }
        let started: Vec<&str> =
            events.iter().filter(|e| e["kind"] == "tool.started").map(|e| text(e, "/call_id")).collect();
        let distinct: std::collections::BTreeSet<&str> = started.iter().copied().collect();
        assert_eq!(started.len(), distinct.len(), "{kind} {times}: a call started twice");
        let spent = &shown["spent"];
        let asked = model.asked().len() as u64;
        assert!(spent["calls"].as_u64() <= Some(3) && spent["model_calls"].as_u64() <= Some(6), "{kind}: {spent}");
        assert!(asked <= spent["model_calls"].as_u64().unwrap(), "{kind} {times}: {asked} beside {spent}");
        assert_eq!(host.palyra(&["journal", "verify"]).good()["intact"], true, "{kind} {times}");
    }
    for (kind, _) in STAGES {
        assert!(reached.contains(kind), "no run came to {kind}: {reached:?}");
    }
}

fn approve_next(host: &Host, watcher: &Running) {
    loop {
        let approval = watcher.json();
        if approval["state"] == "pending" {
            return host.decide(text(&approval, "/approval_id"), "allow", &[]).exits(0).done();
        }
    }
}

/// The run as it ended; every approval of it that waits is given.
fn carried_to_its_end(host: &Host, run: &str) -> Value {
    let tail = host.palyra_started(&["journal", "tail", "--follow", "-n", "1000"]);
    loop {
        let shown = host.palyra(&["runs", "show", run]).good();
        if !matches!(text(&shown, "/state"), "running") {
            return shown;
        }
        let waiting = host.palyra(&["approvals", "list"]).good();
        for approval in waiting.as_array().unwrap() {
            // It may have ended in between.
            let _moved = host.decide(text(approval, "/approval_id"), "allow", &[]);
        }
        let _news = tail.json();
    }
}

#[test]
fn a_run_whose_token_was_withdrawn_ends_with_a_reason_and_its_owner_resumes_it() {
    let model = Model::answering(|number, _| if number == 0 { Say::Nothing } else { Say::text("resumed") });
    let mut host = Host::with(&model.config("chat_completions", ""));
    host.palyra(&["access", "agent", "add", "agent:coder"]).exits(0).done();
    let scopes = "compat.chat.create,model.invoke,run.read,run.cancel,tool.list,tool.execute";
    let token = host.palyra(&["access", "token", "create", "agent:coder", "--scope", scopes]).good();
    let http = host.http().with(text(&token, "/token"));
    let begun = http.post("/v1/responses", &json!({ "model": "palyra/coder", "input": "go", "background": true }));
    let run = text(&begun.is(200).json(), "/metadata/palyra_run").to_owned();
    model.next_request();
    host.palyra(&["access", "token", "revoke", text(&token, "/record/token_id")]).exits(0).done();
    host.restart(Restart::Kill);
    let shown = host.palyra(&["runs", "show", &run]).good();
    assert_eq!((text(&shown, "/state"), text(&shown, "/problem/code")), ("indeterminate", "run_caller_gone"));
    assert!(text(&shown, "/problem/hint").contains(&format!("palyra runs resume {run}")), "{shown}");
    let resumed = host.palyra(&["runs", "resume", &run]).good();
    assert_eq!((text(&resumed, "/state"), text(&resumed, "/turns/0/reply/text")), ("completed", "resumed"));
}

/// A provider in the daemon's own network: it says nothing to any question but the second.
const PROVIDER: &str = r#"
import http.server, threading
asked = 0
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        global asked
        asked += 1
        number = asked
        self.rfile.read(int(self.headers["content-length"]))
        print("asked", flush=True)
        if number != 2:
            threading.Event().wait()
        said = b'data: {"choices":[{"delta":{"content":"went on"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
        self.send_response(200)
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8099), Handler)
print("ready", flush=True)
server.serve_forever()
"#;

#[test]
fn a_devices_run_goes_on_by_itself_after_a_restart_unless_the_device_was_revoked() {
    let mut machines = Machines::with(
        "[models]\ndefault = \"p/m\"\n[models.providers.p]\ndialect = \"chat_completions\"\n\
         base_url = \"http://127.0.0.1:8099/v1\"\nmodels = [\"m\"]\n",
    );
    let mut command = inside(machines.network.server().0, "python3".as_ref());
    command.args(["-c", PROVIDER]);
    let provider = Running::start(command);
    assert_eq!(provider.line(), "ready");
    machines.pair("laptop", "operator");
    let begin = |machines: &Machines| {
        let run = text(&machines.remotely(&["run", "go", "--detach"]).good(), "/run").to_owned();
        assert_eq!(provider.line(), "asked");
        run
    };
    let first = begin(&machines);
    machines.server.restart(Restart::Kill);
    let ended = machines.server.palyra(&["runs", "follow", &first]).good();
    assert_eq!((text(&ended, "/state"), text(&ended, "/turns/0/reply/text")), ("completed", "went on"));
    assert_eq!(provider.line(), "asked");
    let second = begin(&machines);
    machines.server.palyra(&["devices", "revoke", "laptop"]).exits(0).done();
    machines.server.restart(Restart::Kill);
    let ended = machines.server.palyra(&["runs", "show", &second]).good();
    assert_eq!((text(&ended, "/state"), text(&ended, "/problem/code")), ("indeterminate", "run_caller_gone"));
}

#[test]
fn a_provider_that_hangs_is_given_up_on_and_every_refusal_has_its_name() {
    for (say, code, asked) in [
        (Say::Nothing, "model_timeout", 1),
        (Say::Begins("half".to_owned()), "model_timeout", 1),
        (Say::status(403, "no"), "model_key_refused", 1),
        (Say::status(404, "no"), "model_refused", 1),
        (Say::status(422, "no"), "model_refused", 1),
        (Say::retried(429), "model_rate_limited", 4),
        (Say::retried(500), "model_refused", 4),
        (Say::retried(502), "model_refused", 4),
        (Say::retried(503), "model_refused", 4),
        (Say::retried(529), "model_refused", 4),
        (Say::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n\xff\xfe\n\n".to_vec()), "model_answer_malformed", 1),
    ] {
        let told = format!("{say:?}");
        let model = Model::answering(move |_, _| say.clone());
        let config = model.config("chat_completions", "");
        let host = Host::with(&config.replace("models = [\"m\"]", "models = [\"m\"]\ntimeout_ms = 1500"));
        host.palyra(&["run", "go"]).fails(1, code);
        assert_eq!(model.asked().len(), asked, "{told}");
    }
}

#[test]
fn seconds_are_a_budget_and_time_in_which_a_person_is_asked_is_not() {
    let model = Model::answering(|_, request| match told(request) {
        0 => Say::call("palyra_process_run", &append("asked")),
        1 => Say::call("palyra_sleep", &json!({ "duration_ms": 1200 })),
        _ => Say::text("never said"),
    });
    let host = Host::with(&model.config("chat_completions", "max_seconds = 1"));
    let watcher = host.palyra_started(&["approvals", "watch"]);
    let run = host.palyra_started(&["run", "go", "--agent", "coder"]);
    let approval = watcher.json();
    // Longer than the budget, while a person is asked.
    host.call("palyra.sleep", &json!({ "duration_ms": 1100 }), &[]).exits(0).done();
    host.decide(text(&approval, "/approval_id"), "allow", &[]).exits(0).done();
    run.end().fails(3, "run_over_budget");
    assert_eq!((model.asked().len(), host.lines("log", "asked")), (2, 1));
}

#[test]
fn calls_of_one_answer_go_side_by_side() {
    let model = Model::answering(|_, request| match told(request) {
        0 => Say::calls(&["left", "right"].map(|name| {
            let input = json!({ "argv": ["tee", name], "stdin": "written" });
            ("palyra_process_run", input)
        })),
        _ => Say::text("both"),
    });
    let host = Host::with(&model.config("chat_completions", ""));
    let tail = host.palyra_started(&["journal", "tail", "--follow"]);
    let run = host.palyra_started(&["run", "go"]);
    for _ in 0..2 {
        while tail.json()["kind"] != "approval.requested" {}
    }
    // Both wait at once. The second is answered first.
    let waiting = host.palyra(&["approvals", "list"]).good();
    for approval in waiting.as_array().unwrap().iter().rev() {
        host.decide(text(approval, "/approval_id"), "allow", &[]).exits(0).done();
    }
    let shown = run.end().good();
    assert_eq!(waiting.as_array().unwrap().len(), 2);
    assert_eq!((host.content("left"), host.content("right")), ("written".to_owned(), "written".to_owned()), "{shown}");
}

#[test]
fn a_run_is_followed_over_http_as_it_happens() {
    let model = Model::answering(|_, request| match told(request) {
        0 => Say::call("palyra_process_run", &json!({ "argv": ["tee", "-a", "log"], "stdin": "shown\n" })),
        _ => Say::text("it is written"),
    });
    let host = Host::with(&model.config("chat_completions", ""));
    let http = host.http_as("user:local", &["--role", "owner", "--scope", "run.read,approval.list,approval.decide"]);
    let run = text(&host.palyra(&["run", "go", "--detach"]).good(), "/run").to_owned();
    let mut stream = http.stream(&format!("/v1/runs/{run}/events"));
    let (first, shown) = stream.next_event();
    assert_eq!((first.as_str(), text(&shown, "/run")), ("run", run.as_str()));
    let asked = stream.until_event("approval");
    host.decide(text(&asked, "/approval_id"), "allow", &[]).exits(0).done();
    let written = stream.until_event("output");
    assert_eq!((text(&written, "/stream"), text(&written, "/text")), ("stdout", "shown\n"));
    assert_eq!(stream.until_event("result")["result"]["state"], "succeeded");
    assert!("it is written".starts_with(text(&stream.until_event("text"), "/text")));
    assert_eq!(stream.until_event("ended")["state"], "completed");
    let (last, shown) = stream.next_event();
    assert_eq!((last.as_str(), text(&shown, "/state")), ("run", "completed"));
    assert_eq!(http.get(&format!("/v1/runs/{run}")).is(200).json()["turns"], shown["turns"]);
    http.get("/v1/runs/run_01J0000000000000000000000X").refuses(404, "not_found");
    let narrow = host.http_as("user:local", &["--scope", "tool.list"]);
    narrow.get(&format!("/v1/runs/{run}/events")).refuses(403, "scope_missing");
}

#[test]
fn a_client_that_vanishes_ends_a_plain_models_answer_and_not_a_run() {
    let model = Model::answering(|number, _| match number {
        0 | 1 => Say::Begins("first words".to_owned()),
        _ => Say::text("done"),
    });
    let host = Host::with(&model.config("chat_completions", ""));
    host.palyra(&["access", "agent", "add", "agent:coder"]).exits(0).done();
    let scopes = "compat.chat.create,model.invoke,run.read,run.cancel,tool.list,tool.execute";
    let http = host.http_as("agent:coder", &["--scope", scopes]);
    let begin = |name: &str| {
        let body =
            json!({ "model": name, "stream": true, "messages": [{ "role": "user", "content": "go" }] }).to_string();
        let mut socket = http.connect();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            http.host(),
            http.token(),
            body.len()
        );
        socket.write_all(head.as_bytes()).unwrap();
        let mut lines = BufReader::new(socket).lines();
        while !lines.next().unwrap().unwrap().contains("first words") {}
    };
    begin("main");
    model.is_left();
    begin("palyra/coder");
    let run = text(&host.palyra(&["runs", "list"]).good(), "/0/run").to_owned();
    assert_eq!(host.palyra(&["runs", "show", &run]).good()["state"], "running", "a run does not need its client");
    assert_eq!(host.palyra(&["runs", "cancel", &run]).good()["state"], "cancelled");
    model.is_left();
}

#[test]
fn a_model_is_told_results_without_the_secrets_in_them() {
    const VALUE: &str = "quillon-4711-opensesame";
    let model = Model::answering(|_, request| match told(request) {
        0 => {
            let secrets = json!([{ "ref": "vault://global/gate", "as": "file", "name": "token" }]);
            let input = json!({ "argv": ["cat", "/run/secrets/token"], "secrets": secrets });
            Say::call("palyra_process_run", &input)
        }
        _ => Say::text("read"),
    });
    let host = Host::with(&model.config("chat_completions", ""));
    host.palyra_fed(&["vault", "put", "global/gate"], VALUE.as_bytes()).exits(0).done();
    let watcher = host.palyra_started(&["approvals", "watch"]);
    let run = host.palyra_started(&["run", "go"]);
    host.decide(text(&watcher.json(), "/approval_id"), "allow", &[]).exits(0).done();
    let shown = run.end().good();
    assert!(text(&shown, "/turns/0/results/0/content").contains("[redacted]"), "{shown}");
    let told = model.asked()[1].to_string();
    assert!(told.contains("[redacted]") && !told.contains(VALUE), "{told}");
}

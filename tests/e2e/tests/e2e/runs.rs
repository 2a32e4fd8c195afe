//! Agent runs: every call on the one path, budgets that hold, and nothing done twice.

use palyra_e2e::host::Restart;
use palyra_e2e::{Host, Model, Running, Say, Terminal, text};
use serde_json::{Value, json};

const DIALECTS: [&str; 3] = ["chat_completions", "responses", "messages"];

fn append(line: &str) -> Value {
    json!({ "argv": ["tee", "-a", "log"], "stdin": format!("{line}\n") })
}

fn with(model: &Model, agent: &str) -> Host {
    Host::with(&model.config("chat_completions", agent))
}

/// The approval that a watcher is told of next.
fn pending(watcher: &Running) -> String {
    loop {
        let approval = watcher.json();
        if approval["state"] == "pending" {
            return text(&approval, "/approval_id").to_owned();
        }
    }
}

/// A run's results, in order.
fn results(run: &Value) -> Vec<Value> {
    let turns = run["turns"].as_array().unwrap().iter();
    turns.flat_map(|turn| turn["results"].as_array().cloned().unwrap_or_default()).collect()
}

#[test]
fn an_allowed_a_denied_and_an_approved_call_in_every_dialect() {
    for dialect in DIALECTS {
        let model = Model::saying(vec![
            Say::calls(&[("palyra_echo", json!({ "text": "hi" })), ("palyra_fs_read", json!({ "path": "../x" }))]),
            Say::call("palyra_process_run", &append("approved")),
            Say::text("all is well"),
        ]);
        let host = Host::with(&model.config(dialect, ""));
        let watcher = host.palyra_started(&["approvals", "watch"]);
        let run = host.palyra_started(&["run", "do it", "--agent", "coder"]);
        host.decide(&pending(&watcher), "allow", &[]).exits(0).done();
        let shown = run.end().good();
        assert_eq!((text(&shown, "/state"), text(&shown, "/principal")), ("completed", "agent:coder"), "{dialect}");
        let results = results(&shown);
        let states: Vec<_> = results.iter().map(|result| text(result, "/state")).collect();
        assert_eq!(states, ["succeeded", "denied", "succeeded"], "{dialect}");
        assert!(text(&results[1], "/content").contains("path_outside_workspace"), "a denial can be acted on");
        assert_eq!(host.lines("log", "approved"), 1);
        let told = model.asked();
        assert_eq!(told.len(), 3);
        assert!(told[1].to_string().contains("path_outside_workspace"), "the model is told: {}", told[1]);
        let call = text(&results[0], "/call_id");
        let attested = host.palyra(&["calls", "show", call]).good();
        assert_eq!(attested["attestation"]["execution_sha256"], results[0]["attestation_sha256"]);
        assert_eq!(host.palyra(&["journal", "verify"]).good()["intact"], true);
    }
}

#[test]
fn a_session_is_told_again_and_a_recorded_run_replays_without_a_network() {
    let model = Model::saying(vec![
        Say::call("palyra_echo", &json!({ "text": "one" })),
        Say::text("said one"),
        Say::text("said two"),
    ]);
    let host = with(&model, "");
    let first = host.palyra(&["run", "first", "--session", "work"]).good();
    host.palyra(&["run", "second", "--session", "work"]).exits(0).done();
    let told = model.asked().pop().unwrap().to_string();
    assert!(told.contains("first") && told.contains("said one") && told.contains("second"), "{told}");
    let replayed = host.palyra(&["run", "again", "--model", &format!("replay:{}", text(&first, "/run"))]).good();
    assert_eq!(model.asked().len(), 3, "nobody was asked");
    assert_eq!(replayed["turns"][1]["reply"]["text"], "said one");
    assert_eq!(replayed["turns"][0]["results"][0]["state"], "succeeded");
    let listed = host.palyra(&["runs", "list"]).good();
    assert_eq!(listed.as_array().unwrap().len(), 3);
}

#[test]
fn a_run_goes_on_after_sigkill_and_repeats_no_effect() {
    for by in [Restart::Kill, Restart::Terminate] {
        let model = Model::saying(vec![
            Say::calls(&[("palyra_process_run", append("first")), ("palyra_echo", json!({ "text": "x" }))]),
            Say::Nothing,
            Say::call("palyra_process_run", &append("second")),
            Say::text("finished"),
        ]);
        let mut host = with(&model, "");
        let watcher = host.palyra_started(&["approvals", "watch"]);
        let run = text(&host.palyra(&["run", "go", "--detach"]).good(), "/run").to_owned();
        let asked = pending(&watcher);
        // A person is asked about a call of the run.
        host.restart(by);
        host.decide(&asked, "allow", &[]).exits(0).done();
        model.next_request();
        model.next_request();
        // The model is being asked.
        assert_eq!(host.lines("log", "first"), 1, "{by:?}");
        host.restart(by);
        let watcher = host.palyra_started(&["approvals", "watch"]);
        host.decide(&pending(&watcher), "allow", &[]).exits(0).done();
        let follow = host.palyra(&["runs", "follow", &run]);
        assert_eq!(follow.good()["state"], "completed", "{by:?}");
        assert_eq!((host.lines("log", "first"), host.lines("log", "second")), (1, 1), "{by:?}");
        let events = host.palyra(&["journal", "export"]).exits(0).json_lines();
        let started = events.iter().filter(|event| event["kind"] == "tool.started").count();
        assert_eq!(started, 3, "{by:?}");
        assert_eq!(host.palyra(&["journal", "verify"]).good()["intact"], true);
    }
}

#[test]
fn a_call_that_sigkill_cut_off_ends_its_run_as_indeterminate() {
    let model = Model::saying(vec![Say::call("palyra_sleep", &json!({ "duration_ms": 600_000 })), Say::text("never")]);
    let mut host = with(&model, "");
    let watcher = host.palyra_started(&["journal", "tail", "--follow"]);
    let run = text(&host.palyra(&["run", "sleep", "--detach"]).good(), "/run").to_owned();
    while watcher.json()["kind"] != "tool.started" {}
    host.restart(Restart::Kill);
    let ended = host.palyra(&["runs", "follow", &run]);
    assert_eq!(ended.json()["state"], "indeterminate");
    ended.fails(9, "run_indeterminate");
    host.palyra(&["runs", "resume", &run]).fails(10, "run_indeterminate");
    assert_eq!(model.asked().len(), 1);
}

#[test]
fn budgets_hold_for_calls_model_calls_and_tokens() {
    let echo = || Say::call("palyra_echo", &json!({ "text": "x" }));
    let model = Model::saying(vec![echo(), echo(), echo(), echo()]);
    let host = with(&model, "max_model_calls = 2");
    let over = host.palyra(&["run", "go", "--agent", "coder"]);
    assert_eq!(over.json()["state"], "over_budget");
    over.fails(3, "run_over_budget");
    assert_eq!(model.asked().len(), 2);

    let model = Model::saying(vec![echo(), echo(), echo()]);
    let host = with(&model, "max_tokens = 20");
    host.palyra(&["run", "go", "--agent", "coder"]).fails(3, "run_over_budget");
    assert_eq!(model.asked().len(), 2, "fifteen tokens each");

    let five: Vec<_> = (0..5).map(|n| ("palyra_echo", json!({ "text": n.to_string() }))).collect();
    let model = Model::saying(vec![Say::calls(&five), Say::text("ok")]);
    let host = with(&model, "max_calls = 2");
    let shown = host.palyra(&["run", "go", "--agent", "coder"]).good();
    let results = results(&shown);
    assert_eq!(results.iter().filter(|result| result["is_error"] == false).count(), 2, "{results:?}");
    assert!(text(&results[4], "/content").contains("run_over_budget"));
}

#[test]
fn a_hostile_provider_gets_a_typed_end() {
    let many: String = (0..10_000)
        .map(|n| {
            let call =
                json!({ "index": n, "id": format!("c{n}"), "function": { "name": "palyra_echo", "arguments": "{}" } });
            format!("data: {}\n\n", json!({ "choices": [{ "delta": { "tool_calls": [call] } }] }))
        })
        .collect();
    let endless =
        format!("data: {}\n\n", json!({ "choices": [{ "delta": { "content": "x".repeat(60_000) } }] })).repeat(100);
    for (say, code) in [
        (Say::stream("data: {not json\n\n"), "model_answer_malformed"),
        (Say::stream(&many), "model_answer_malformed"),
        (Say::stream(&endless), "model_answer_malformed"),
        (Say::status(400, "bad"), "model_refused"),
        (Say::status(401, "no"), "model_key_refused"),
        (Say::stream("data: {\"choices\":[{\"delta\":{\"content\":\"half\"}}]}\n\n"), "model_answer_cut_off"),
    ] {
        let model = Model::saying(vec![say]);
        let host = with(&model, "");
        let ended = host.palyra(&["run", "go"]);
        assert_eq!(ended.json()["state"], "failed", "{code}");
        ended.fails(1, code);
        let events = host.palyra(&["journal", "export"]).exits(0).json_lines();
        assert!(!events.iter().any(|event| event["kind"] == "tool.started"), "{code}");
    }
}

#[test]
fn calls_that_make_no_sense_go_back_to_the_model() {
    let model = Model::saying(vec![
        Say::Calls(vec![
            ("same".to_owned(), "palyra_echo".to_owned(), "{broken".to_owned()),
            ("same".to_owned(), "no_such_tool".to_owned(), "{}".to_owned()),
            ("third".to_owned(), "palyra_echo".to_owned(), "{\"text\":1}".to_owned()),
        ]),
        Say::text("sorry"),
    ]);
    let host = with(&model, "");
    let shown = host.palyra(&["run", "go"]).good();
    let results = results(&shown);
    assert!(results.iter().all(|result| result["is_error"] == true), "{results:?}");
    assert!(text(&results[1], "/content").contains("tool_not_offered"));
    assert!(text(&results[2], "/content").contains("schema_violation"));
    let ids: std::collections::HashSet<_> = results.iter().map(|result| text(result, "/id").to_owned()).collect();
    assert_eq!(ids.len(), 3, "each result has an id of its own");
}

#[test]
fn cancelling_ends_the_model_call_and_what_the_run_started() {
    let model = Model::saying(vec![Say::Nothing]);
    let host = with(&model, "");
    let run = text(&host.palyra(&["run", "go", "--detach"]).good(), "/run").to_owned();
    model.next_request();
    assert_eq!(host.palyra(&["runs", "cancel", &run]).good()["state"], "cancelled");

    let model = Model::saying(vec![Say::call("palyra_sleep", &json!({ "duration_ms": 600_000 }))]);
    let host = with(&model, "");
    let watcher = host.palyra_started(&["journal", "tail", "--follow"]);
    let run = text(&host.palyra(&["run", "go", "--detach"]).good(), "/run").to_owned();
    let call = loop {
        let event = watcher.json();
        if event["kind"] == "tool.started" {
            break text(&event, "/call_id").to_owned();
        }
    };
    assert_eq!(host.palyra(&["runs", "cancel", &run]).good()["state"], "cancelled");
    assert_eq!(host.palyra(&["calls", "show", &call]).json()["state"], "cancelled");
    host.palyra(&["runs", "cancel", &run]).fails(10, "run_moved");
}

#[test]
fn a_chat_answers_approvals_in_place() {
    let model = Model::saying(vec![Say::call("palyra_process_run", &append("chatted")), Say::text("it is written")]);
    let host = with(&model, "");
    let mut terminal = Terminal::start(&host, &["chat"], (120, 60));
    terminal.sees("> ");
    terminal.types("go\r");
    terminal.sees("y once");
    terminal.types("y");
    terminal.sees("it is written");
    terminal.sees("completed");
    terminal.types("\r");
    assert_eq!(terminal.ends(), 0);
    assert_eq!(host.lines("log", "chatted"), 1);
}

#[test]
fn the_next_model_is_asked_where_the_first_fails() {
    let (bad, good) =
        (Model::saying(vec![Say::status(400, "no"); 4]), Model::saying(vec![Say::text("from the second")]));
    let config = format!(
        "[models]\ndefault = \"both\"\n[models.aliases]\nboth = [\"a/m\", \"b/m\"]\n\
         [models.providers.a]\ndialect = \"messages\"\nbase_url = \"http://127.0.0.1:{}/v1\"\nmodels = [\"m\"]\n\
         [models.providers.b]\ndialect = \"responses\"\nbase_url = \"http://127.0.0.1:{}/v1\"\nmodels = [\"m\"]\n",
        bad.port(),
        good.port()
    );
    let host = Host::with(&config);
    let shown = host.palyra(&["run", "go"]).good();
    assert_eq!((text(&shown, "/turns/0/model"), text(&shown, "/turns/0/reply/text")), ("b/m", "from the second"));
    assert_eq!(host.palyra(&["models", "test", "b/m"]).good()["answered"], "b/m");
    host.palyra(&["models", "test", "a/m"]).fails(10, "model_refused");
    assert_eq!(host.palyra(&["models", "list"]).good()["default"], "both");
}

#[test]
fn keys_come_from_the_vault_and_from_nowhere_else() {
    let model = Model::saying(vec![Say::text("ready")]);
    let keyed = model
        .config("chat_completions", "")
        .replace("models = [\"m\"]", "models = [\"m\"]\nkey = \"vault://global/p\"");
    let host = Host::with(&keyed);
    host.palyra(&["models", "test", "main"]).fails(10, "model_key_missing");
    assert_eq!(model.asked().len(), 0);
    let mut bad = Host::idle();
    bad.configure(&keyed.replace("vault://global/p", "sk-plain"));
    assert!(bad.refused().log.contains("vault://"), "a key in the configuration is refused");
    bad.configure("");
    bad.start();
}

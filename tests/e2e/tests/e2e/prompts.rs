//! Routines that give an agent a task: each slot is a run of its own, once, whatever happens to the daemon.

use crate::routines::pending;
use palyra_e2e::host::Restart;
use palyra_e2e::{Host, Model, Running, Say, text};
use serde_json::{Value, json};

fn append(line: &str) -> Value {
    json!({ "argv": ["tee", "-a", "log"], "stdin": format!("{line}\n") })
}

/// How many results of tools a request to the model holds.
fn told(request: &Value) -> usize {
    let messages = request["messages"].as_array().map_or(&[][..], Vec::as_slice);
    messages.iter().filter(|message| message["role"] == "tool").count()
}

/// A model that appends a line, and is done when it hears of it.
fn appending(line: &'static str) -> Model {
    Model::answering(move |_, request| match told(request) {
        0 => Say::call("palyra_process_run", &append(line)),
        _ => Say::text("done"),
    })
}

fn with(model: &Model) -> Host {
    Host::with(&model.config("chat_completions", ""))
}

fn add(host: &Host, name: &str, schedule: &str, options: &[&str]) -> palyra_e2e::Ran {
    let args = ["routines", "add", name, "--schedule", schedule, "--agent", "agent:coder", "--prompt", "tend the log"];
    host.palyra(&[&args[..], options].concat())
}

fn history(host: &Host, name: &str) -> Vec<Value> {
    host.palyra(&["routines", "history", name]).good().as_array().unwrap().clone()
}

/// Waits for the next event of a kind.
fn next(tail: &Running, kind: &str) {
    while text(&tail.json(), "/kind") != kind {}
}

/// Waits until the newest slot has a state.
fn until(host: &Host, name: &str, state: &str) -> Value {
    let tail = host.palyra_started(&["journal", "tail", "--follow"]);
    loop {
        if let Some(slot) = history(host, name).into_iter().next().filter(|slot| slot["state"] == state) {
            return slot;
        }
        next(&tail, "routine.slot");
    }
}

#[test]
fn a_rehearsed_prompt_runs_unasked_and_anything_new_asks() {
    let model = appending("known");
    let host = with(&model);
    add(&host, "log", "@yearly", &["--max-tokens", "1000"]).exits(0).done();
    let rehearsal = host.palyra_started(&["routines", "rehearse", "log"]);
    host.decide(&pending(&host), "allow", &[]).exits(0).done();
    let rehearsed = rehearsal.end().good();
    assert_eq!((text(&rehearsed, "/state"), text(&rehearsed, "/agent")), ("completed", "coder"));
    assert_eq!(rehearsed["budget"]["tokens"], 1000, "the routine's own budget is narrower than the agent's");
    let again = host.palyra(&["routines", "run", "log"]).good();
    assert_eq!(text(&again, "/state"), "completed", "nobody is asked again");
    assert_eq!(host.lines("log", "known"), 2);
    assert_ne!(rehearsed["run"], again["run"]);
    assert_eq!(again["input"], rehearsed["input"], "the conversation of one slot does not go on in the next");
    let slots = history(&host, "log");
    assert_eq!(slots[0]["run"], again["run"]);
    assert!(slots.iter().all(|slot| slot["state"] == "ran"), "{slots:?}");
    // Another routine of the same agent, with the same call, is not covered.
    add(&host, "other", "@yearly", &[]).exits(0).done();
    host.palyra(&["routines", "run", "other", "--detach"]).exits(0).done();
    host.decide(&pending(&host), "deny", &[]).exits(0).done();
    assert!(until(&host, "other", "ran")["run"].is_string());
    assert_eq!(host.lines("log", "known"), 2);
    assert_eq!(host.palyra(&["journal", "verify"]).good()["intact"], true);
}

#[test]
fn a_prompt_that_waits_for_a_person_is_not_done_and_goes_on_after_restarts() {
    let model = appending("waited");
    let mut host = with(&model);
    add(&host, "ask", "@yearly", &[]).exits(0).done();
    host.palyra(&["routines", "run", "ask", "--detach"]).exits(0).done();
    let approval = pending(&host);
    until(&host, "ask", "waiting");
    for by in [Restart::Kill, Restart::Terminate] {
        host.restart(by);
        let shown = host.palyra(&["routines", "show", "ask"]).good();
        assert_eq!(shown["open"][0]["state"], "waiting", "{by:?}: {shown}");
    }
    // One who follows late is told what waits.
    let run = text(&history(&host, "ask")[0], "/run").to_owned();
    let follow = host.palyra_started(&["runs", "follow", &run]);
    host.decide(&approval, "allow", &[]).exits(0).done();
    assert_eq!(follow.end().good()["state"], "completed");
    until(&host, "ask", "ran");
    assert_eq!((host.lines("log", "waited"), told_runs(&host)), (1, 1), "one slot is one run");
}

fn told_runs(host: &Host) -> usize {
    host.palyra(&["runs", "list"]).good().as_array().unwrap().len()
}

#[test]
fn a_prompt_fires_by_its_schedule_and_a_kill_while_the_model_is_asked_repeats_nothing() {
    let model = Model::answering(|number, _| if number == 0 { Say::Nothing } else { Say::text("good morning") });
    let mut host = with(&model);
    add(&host, "tick", "* * * * *", &[]).exits(0).done();
    // The schedule comes to a slot within a minute, and the model says nothing.
    model.next_request();
    host.restart(Restart::Kill);
    let ran = until(&host, "tick", "ran");
    let run = host.palyra(&["runs", "show", text(&ran, "/run")]).good();
    assert_eq!((text(&run, "/state"), text(&run, "/turns/0/reply/text")), ("completed", "good morning"));
    assert_eq!(run["spent"]["model_calls"], 2, "the question that was cut off counts");
    let slots = history(&host, "tick");
    let same: Vec<_> = slots.iter().filter(|slot| slot["slot"]["at"] == ran["slot"]["at"]).collect();
    assert_eq!(same.len(), 1, "{slots:?}");
}

#[test]
fn a_prompt_that_nobody_can_carry_out_is_refused_and_a_failing_one_is_told() {
    let host = Host::up();
    add(&host, "p", "@daily", &[]).fails(10, "no_model");
    add(&host, "p", "@daily", &["--model", "nothing"]).fails(10, "unknown_model");
    let model = Model::saying(vec![Say::status(400, "no")]);
    let host = with(&model);
    host.palyra(&["routines", "add", "p", "--schedule", "@daily", "--agent", "agent:coder", "--prompt", " "])
        .fails(10, "routine_prompt");
    add(&host, "p", "@daily", &[]).exits(0).done();
    host.palyra(&["routines", "run", "p"]).fails(1, "model_refused");
    assert_eq!(history(&host, "p")[0]["problem"]["code"], "model_refused");
    // Its session is the routine's alone.
    let session = text(&host.palyra(&["runs", "list"]).good(), "/0/session").to_owned();
    host.palyra(&["run", "go", "--agent", "coder", "--session", &session]).fails(10, "session_reserved");
    let run = text(&host.palyra(&["runs", "list"]).good(), "/0/run").to_owned();
    host.palyra(&["runs", "resume", &run]).fails(10, "run_not_resumable");
}

#[test]
fn an_agent_proposes_a_prompt_and_a_person_decides() {
    let model = Model::saying(vec![]);
    let host = with(&model);
    let input = json!({ "name": "own", "schedule": "@daily", "prompt": "look around" });
    let (call, approval) = host.ask("palyra.routine.add", &input, &["--as", "agent:coder"]);
    let shown = host.palyra(&["approvals", "show", &approval]).good();
    assert!(shown.to_string().contains("look around"), "{shown}");
    host.decide(&approval, "allow", &[]).exits(0).done();
    host.palyra(&["calls", "follow", &call]).exits(0).done();
    let added = host.palyra(&["routines", "show", "own"]).good();
    assert_eq!(added["plan"]["action"]["prompt"]["text"], "look around");
    let both = json!({ "name": "x", "schedule": "@daily", "prompt": "a", "tool": "palyra.echo", "input": {} });
    for wrong in [both, json!({ "name": "x", "schedule": "@daily" })] {
        host.call("palyra.routine.add", &wrong, &["--as", "agent:coder"]).fails(6, "routine_action");
    }
}

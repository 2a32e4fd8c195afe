//! Routines against the real daemon: slots run once, also over restarts; waiting is not done; a rehearsal leaves
//! grants.

use palyra_e2e::host::Restart;
use palyra_e2e::{Host, text};
use serde_json::{Value, json};

fn add(host: &Host, name: &str, schedule: &str, tool: &str, input: &Value) -> Value {
    let input = input.to_string();
    let args =
        ["routines", "add", name, "--schedule", schedule, "--agent", "agent:night", "--call", tool, "--input", &input];
    host.palyra(&args).good()
}

fn history(host: &Host, name: &str) -> Vec<Value> {
    host.palyra(&["routines", "history", name]).good().as_array().unwrap().clone()
}

fn append(line: &str) -> Value {
    json!({ "argv": ["tee", "-a", "log"], "stdin": format!("{line}\n") })
}

/// Waits for the first scheduled slot that has a state: the schedule comes to one within a minute.
fn until(host: &Host, name: &str, state: &str) -> Value {
    let tail = host.palyra_started(&["journal", "tail", "--follow"]);
    loop {
        let slots = history(host, name);
        let found = slots.into_iter().find(|slot| text(slot, "/slot/kind") == "scheduled" && slot["state"] == state);
        if let Some(slot) = found {
            return slot;
        }
        while text(&tail.json(), "/kind") != "routine.slot" {}
    }
}

#[test]
fn a_routine_fires_through_restarts_and_each_slot_runs_once() {
    let mut host = Host::up();
    add(&host, "tick", "* * * * *", "palyra.echo", &json!({ "text": "tick" }));
    host.restart(Restart::Kill);
    let ran = until(&host, "tick", "ran");
    host.restart(Restart::Kill);
    host.restart(Restart::Terminate);
    let at = ran["slot"]["at"].clone();
    let slots = history(&host, "tick");
    assert_eq!(slots.iter().filter(|slot| slot["slot"]["at"] == at).count(), 1);
    let call = text(&ran, "/call_id");
    assert_eq!(host.palyra(&["calls", "show", call]).good()["state"], "succeeded");
    let calls = host.palyra(&["calls", "list", "--principal", "agent:night"]).good();
    assert!(calls.as_array().is_none_or(|calls| calls.len() <= slots.len()), "{calls}");
    assert_eq!(host.palyra(&["journal", "verify"]).good()["intact"], true);
}

#[test]
fn a_rehearsal_leaves_a_grant_for_this_routine_and_for_nothing_else() {
    let host = Host::up();
    add(&host, "log", "@yearly", "palyra.process.run", &append("once"));
    let rehearsal = host.palyra_started(&["routines", "rehearse", "log"]);
    let approval = pending(&host);
    host.decide(&approval, "allow", &[]).exits(0).done();
    assert_eq!(rehearsal.end().good()["state"], "succeeded");
    assert_eq!(host.palyra(&["routines", "run", "log"]).good()["state"], "succeeded", "nobody is asked again");
    assert_eq!(host.lines("log", "once"), 2);
    let session = text(&host.palyra(&["grants", "list"]).good(), "/0/session").to_owned();
    let stolen = append("once").to_string();
    let args =
        ["--as", "agent:night", "call", "palyra.process.run", "--input", &stolen, "--session", &session, "--detach"];
    host.palyra(&args).fails(3, "session_reserved");
    let (_, own) = host.ask("palyra.process.run", &append("once"), &["--as", "agent:night"]);
    host.decide(&own, "deny", &[]).exits(0).done();
    host.palyra(&["routines", "remove", "log"]).exits(0).done();
    add(&host, "log", "@yearly", "palyra.process.run", &append("another"));
    let started = host.palyra(&["routines", "run", "log", "--detach"]).good();
    assert_eq!(host.palyra(&["calls", "show", text(&started, "/call_id")]).good()["state"], "awaiting_approval");
}

/// The approval that is asked for first.
pub(crate) fn pending(host: &Host) -> String {
    let tail = host.palyra_started(&["journal", "tail", "--follow"]);
    loop {
        let waiting = host.palyra(&["approvals", "list"]).good();
        if let Some(approval) = waiting.pointer("/0/approval_id").and_then(Value::as_str) {
            return approval.to_owned();
        }
        while text(&tail.json(), "/kind") != "approval.requested" {}
    }
}

#[test]
fn what_waits_for_a_person_is_not_done_and_survives_a_restart() {
    let mut host = Host::up();
    add(&host, "ask", "@yearly", "palyra.process.run", &append("asked"));
    host.palyra(&["routines", "run", "ask", "--detach"]).exits(0).done();
    let approval = pending(&host);
    for by in [Restart::Kill, Restart::Terminate] {
        host.restart(by);
        assert_eq!(host.palyra(&["routines", "show", "ask"]).good()["open"][0]["state"], "waiting", "{by:?}");
    }
    host.decide(&approval, "allow", &[]).exits(0).done();
    let call = text(&history(&host, "ask")[0], "/call_id").to_owned();
    host.palyra(&["calls", "follow", &call]).exits(0).done();
    assert_eq!(host.lines("log", "asked"), 1);
}

#[test]
fn plans_that_cannot_be_are_refused_with_a_reason() {
    let host = Host::up();
    let plan = |schedule: &str, zone: &str, agent: &str, tool: &str| {
        let args = ["routines", "add", "x", "--schedule", schedule, "--zone", zone, "--agent", agent, "--call", tool];
        host.palyra(&args)
    };
    plan("61 * * * *", "UTC", "agent:a", "palyra.echo").fails(10, "routine_schedule");
    plan("@daily", "Mars/Olympus", "agent:a", "palyra.echo").fails(10, "routine_schedule");
    plan("@daily", "UTC", "user:local", "palyra.echo").fails(10, "routine_principal");
    plan("@daily", "UTC", "agent:a", "palyra.nothing").fails(6, "unknown_tool");
    plan("@daily", "UTC", "agent:a", "palyra.echo").fails(6, "schema_violation");
    assert_eq!(host.palyra(&["routines", "list"]).good(), json!([]));
}

#[test]
fn an_agent_proposes_a_routine_and_a_person_decides() {
    let host = Host::up();
    let input = json!({ "name": "own", "schedule": "@daily", "tool": "palyra.echo", "input": { "text": "hi" } });
    let (call, approval) = host.ask("palyra.routine.add", &input, &["--as", "agent:night"]);
    assert_eq!(host.palyra(&["routines", "list"]).good(), json!([]));
    host.decide(&approval, "allow", &[]).exits(0).done();
    host.palyra(&["calls", "follow", &call]).exits(0).done();
    let added = host.palyra(&["routines", "show", "own"]).good();
    assert_eq!((text(&added, "/plan/principal"), text(&added, "/created_by")), ("agent:night", "agent:night"));
    host.palyra(&["routines", "pause", "own", "--reason", "holidays"]).exits(0).done();
    assert_eq!(host.palyra(&["routines", "show", "own"]).good()["paused"]["reason"], "holidays");
    host.palyra(&["routines", "resume", "own"]).exits(0).done();
    assert!(host.palyra(&["routines", "show", "own"]).good()["next_at"].is_number());
}

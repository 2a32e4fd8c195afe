//! Routines with a clock that is set: slots run once, what was missed is said, failures pause.

use super::{House, owner};
use crate::Answer;
use crate::routines::SlotView;
use palyra_journal::JournalError;
use palyra_protocol::{
    ApprovalDecision, ApprovalScope, GrantMatcher, RoutineAction, RoutineBudget, RoutinePlan, RoutineSchedule, SlotKey,
    SlotKind, SlotRecord, SlotState,
};
use serde_json::json;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

fn plan(pattern: &str, tool: &str, input: serde_json::Value) -> RoutinePlan {
    RoutinePlan {
        name: "tick".to_owned(),
        schedule: RoutineSchedule { pattern: pattern.to_owned(), zone: "UTC".to_owned() },
        action: RoutineAction::Call { tool: tool.to_owned(), input },
        principal: "agent:night".parse().unwrap(),
        workspace: None,
        budget: RoutineBudget::default(),
    }
}

fn echo(pattern: &str) -> RoutinePlan {
    plan(pattern, "palyra.echo", json!({ "text": "tick" }))
}

/// The newest slots, once all of them have ended.
async fn settled(house: &House) -> Vec<SlotView> {
    loop {
        let slots = house.engine.routine_history(&owner(), "tick", 100).await.unwrap();
        // What is on record has ended; the daemon must have heard of it too, or it counts the slot as open.
        let open = house.engine.routine(&owner(), "tick").is_ok_and(|routine| routine.open.iter().any(|s| !waits(s)));
        if !open && slots.iter().all(|slot| slot.slot.state.is_end()) {
            return slots;
        }
        tokio::task::yield_now().await;
    }
}

fn states(slots: &[SlotView]) -> Vec<&'static str> {
    slots.iter().map(|slot| slot.slot.state.as_str()).collect()
}

/// INVARIANT (slot_runs_once).
#[tokio::test]
async fn slot_runs_once() {
    let mut house = House::with_rules("").await;
    house.engine.routine_add(&owner(), echo("* * * * *")).await.unwrap();
    house.engine.run_due().await.unwrap();
    assert!(settled(&house).await.is_empty(), "it is not due yet");
    house.clock.advance(MINUTE);
    house.engine.run_due().await.unwrap();
    house.engine.run_due().await.unwrap();
    let first = settled(&house).await;
    assert_eq!(states(&first), ["ran"]);
    let again = SlotRecord { state: SlotState::Started {}, call_id: None, ..first[0].slot.clone() };
    for _ in 0..2 {
        house = house.restarted().await;
        house.engine.load_routines().await.unwrap();
        house.engine.run_due().await.unwrap();
        assert_eq!(settled(&house).await.len(), 1);
        let taken = house.engine.journal().record_slot(again.clone()).await;
        assert!(matches!(taken, Err(JournalError::SlotTaken)), "{taken:?}");
        // A clock that is set back makes nothing due.
        house.clock.set_back(MINUTE * 3);
    }
    house.clock.advance(MINUTE * 8);
    house.engine.run_due().await.unwrap();
    assert_eq!(states(&settled(&house).await)[0], "ran");
}

#[tokio::test]
async fn only_the_latest_slot_is_caught_up_and_the_rest_is_missed() {
    let house = House::with_rules("").await;
    house.engine.routine_add(&owner(), echo("0 * * * *")).await.unwrap();
    house.clock.advance(MINUTE * 185);
    house.engine.run_due().await.unwrap();
    let slots = settled(&house).await;
    assert_eq!(states(&slots), ["ran", "missed"]);
    assert_eq!(slots[1].slot.state, SlotState::Missed { count: 2 });
    house.clock.advance(MINUTE * 80);
    house.engine.run_due().await.unwrap();
    assert_eq!(states(&settled(&house).await), ["missed", "ran", "missed"], "25 minutes are too late");
}

#[tokio::test]
async fn three_failures_pause_a_routine_and_resuming_lets_it_go_on() {
    let house = House::with_rules("").await;
    let missing = plan("* * * * *", "palyra.fs.read", json!({ "path": "no-such-file" }));
    house.engine.routine_add(&owner(), missing).await.unwrap();
    for _ in 0..5 {
        house.clock.advance(MINUTE);
        house.engine.run_due().await.unwrap();
        settled(&house).await;
        // The pause is recorded after the slot's end.
        tokio::task::yield_now().await;
    }
    while house.engine.routine(&owner(), "tick").unwrap().paused.is_none() {
        tokio::task::yield_now().await;
    }
    let paused = house.engine.routine(&owner(), "tick").unwrap();
    assert!(paused.next_at.is_none() && paused.failures >= 3);
    let before = settled(&house).await.len();
    house.clock.advance(MINUTE * 5);
    house.engine.run_due().await.unwrap();
    assert_eq!(settled(&house).await.len(), before);
    house.engine.routine_resume(&owner(), "tick").await.unwrap();
    let resumed = house.engine.routine(&owner(), "tick").unwrap();
    assert!(resumed.next_at.is_some() && resumed.failures == 0);
    house.engine.run_due().await.unwrap();
    assert_eq!(settled(&house).await.len(), before, "what it missed while paused stays missed");
}

fn waits(slot: &SlotRecord) -> bool {
    matches!(slot.state, SlotState::Waiting {})
}

#[tokio::test]
async fn a_slot_that_waits_for_a_person_does_not_starve_the_next() {
    let house = House::with_rules("").await;
    let write = plan("* * * * *", "palyra.fs.write", json!({ "path": "a", "content": "x" }));
    house.engine.routine_add(&owner(), write).await.unwrap();
    for expected in 1..=5_usize {
        house.clock.advance(MINUTE);
        house.engine.run_due().await.unwrap();
        let asked = expected.min(4);
        while house.engine.routine(&owner(), "tick").unwrap().open.iter().filter(|slot| waits(slot)).count() < asked {
            tokio::task::yield_now().await;
        }
    }
    let slots = house.engine.routine_history(&owner(), "tick", 100).await.unwrap();
    assert_eq!(states(&slots), ["skipped", "waiting", "waiting", "waiting", "waiting"]);
}

#[tokio::test]
async fn a_budget_holds_for_a_day() {
    let house = House::with_rules("").await;
    let plan =
        RoutinePlan { budget: RoutineBudget { slots_per_day: 2, ..RoutineBudget::default() }, ..echo("* * * * *") };
    house.engine.routine_add(&owner(), plan).await.unwrap();
    for _ in 0..3 {
        house.clock.advance(MINUTE);
        house.engine.run_due().await.unwrap();
        settled(&house).await;
    }
    assert_eq!(states(&settled(&house).await), ["skipped", "ran", "ran"]);
    let manual = house.engine.routine_run(&owner(), "tick", SlotKind::Manual).await.unwrap();
    assert_eq!(manual.slot.kind, SlotKind::Manual);
    let SlotKey { at, .. } = manual.slot;
    assert!(at.unix_ms() > 0);
}

const SLEEPING_IS_ASKED: &str = "@id(\"sleeping_is_asked\")\n@reason(\"Sleep is asked about.\")\n@remedy(\"Ask a person.\")\n\
    forbid (principal, action == Action::\"tool.execute\", resource == Tool::\"palyra.sleep\")\n\
    unless { context.allow_sensitive_tools };\n";

/// A slot that waited does not, once a person has answered: the next does not run beside it.
#[tokio::test]
async fn a_slot_that_goes_on_after_an_answer_is_not_overlapped() {
    let house = House::with_rules(SLEEPING_IS_ASKED).await;
    let sleep = plan("* * * * *", "palyra.sleep", json!({ "duration_ms": 600_000 }));
    house.engine.routine_add(&owner(), sleep).await.unwrap();
    house.clock.advance(MINUTE);
    house.engine.run_due().await.unwrap();
    let call = loop {
        let open = house.engine.routine(&owner(), "tick").unwrap().open;
        if let Some(call) = open.iter().find(|slot| waits(slot)).and_then(|slot| slot.call_id.clone()) {
            break call;
        }
        tokio::task::yield_now().await;
    };
    let asked = house.engine.call(&owner(), &call).await.unwrap().approval.unwrap();
    let answer = Answer {
        approval_id: asked.approval_id.clone(),
        decision: ApprovalDecision::Allow,
        scope: ApprovalScope::Once,
        matcher: GrantMatcher::ExactCall,
        reason: None,
        digest: None,
        signature: None,
    };
    house.engine.decide_approval(&owner(), answer).await.unwrap();
    while house.engine.routine(&owner(), "tick").unwrap().open.iter().any(waits) {
        tokio::task::yield_now().await;
    }
    house.clock.advance(MINUTE);
    house.engine.run_due().await.unwrap();
    let slots = house.engine.routine_history(&owner(), "tick", 100).await.unwrap();
    assert_eq!(slots[0].slot.state, SlotState::Skipped { reason: "the slot before it still runs".to_owned() });
    house.engine.cancel(&owner(), &call).await.unwrap();
}

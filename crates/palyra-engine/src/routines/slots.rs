//! One slot, from its start to its end.

use super::{MAX_FAILURES, RunOrder};
use crate::access::VerifiedPeer;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::flow::propose::{CallInProgress, Proposal};
use crate::live::CallUpdate;
use palyra_journal::JournalError;
use palyra_protocol::{
    CallId, CallState, Carrier, JournalEvent, Principal, PrincipalKind, Problem, RoutineAction, RoutineChange,
    RoutinePause, RoutineRecord, SlotKey, SlotKind, SlotRecord, SlotState,
};
use serde_json::Value;
use std::sync::Arc;

/// A slot that is recorded as started.
#[derive(Debug, Clone)]
pub(super) struct Begun {
    pub(super) record: Arc<RoutineRecord>,
    pub(super) slot: SlotKey,
}

/// How a slot's action ended.
enum SlotEnd {
    Done(Result<(), Problem>),
    /// The daemon ends: the next start takes it up.
    LeftOpen,
}

impl Engine {
    /// Records what became of a slot, and takes it over.
    pub(super) async fn note_slot(&self, slot: SlotRecord) -> Result<(), JournalError> {
        self.journal().record_slot(slot.clone()).await?;
        self.routine_room().book().note(self.clock().now(), &slot);
        Ok(())
    }

    /// Carries a slot out in a task of its own; gives its call where it is one.
    pub(super) fn begin(&self, begun: Begun) -> Option<CallId> {
        let engine = self.clone();
        match begun.record.plan.action.clone() {
            RoutineAction::Call { tool, input } => {
                let call = match self.propose_slot(&begun, tool, &input) {
                    Ok(call) => call,
                    Err(error) => {
                        let ended = SlotEnd::Done(Err(error.problem));
                        tokio::spawn(async move { engine.end_slot(begun, None, ended).await });
                        return None;
                    }
                };
                let call_id = call.call_id.clone();
                self.routine_room().rehearsal(&call_id, begun.slot.kind == SlotKind::Rehearsal);
                let id = call_id.clone();
                tokio::spawn(async move {
                    let ended = engine.follow_slot(&begun, call).await;
                    engine.routine_room().rehearsal(&id, false);
                    engine.end_slot(begun, Some(id), ended).await;
                });
                Some(call_id)
            }
            RoutineAction::Prompt { text, model } => {
                tokio::spawn(async move {
                    let ended = engine.run_prompt(&begun, text, model).await;
                    engine.end_slot(begun, None, SlotEnd::Done(ended)).await;
                });
                None
            }
        }
    }

    fn propose_slot(&self, begun: &Begun, tool: String, input: &Value) -> Result<CallInProgress, EngineError> {
        let Begun { record, slot } = begun;
        let unnamed = |error: palyra_protocol::id::IdError| EngineError::internal(error.to_string());
        let proposal = Proposal {
            tool,
            input: input.to_string().into_bytes(),
            session: Some(record.session().map_err(unnamed)?),
            run: Some(record.run(slot).map_err(unnamed)?),
            idempotency_key: Some(record.key(slot).map_err(unnamed)?),
            request: None,
            carrier: Carrier::default(),
        };
        Ok(self.propose(&VerifiedPeer::of_routine(self, record), proposal))
    }

    async fn run_prompt(&self, begun: &Begun, prompt: String, model: Option<String>) -> Result<(), Problem> {
        let Some(runs) = self.routine_room().runs.get() else { return Err(super::manage::no_runs()) };
        let Begun { record, slot } = begun.clone();
        let principal = record.plan.principal.clone();
        runs.run(RunOrder { routine: record, slot, principal, prompt, model }).await
    }

    /// Follows a slot's call to its end; a call that waits for a person is recorded as waiting.
    async fn follow_slot(&self, begun: &Begun, call: CallInProgress) -> SlotEnd {
        let CallInProgress { call_id, mut updates, end, .. } = call;
        let mut end = std::pin::pin!(end);
        let mut listening = true;
        loop {
            tokio::select! {
                ended = &mut end => return match ended {
                    Ok(Ok(update)) => outcome_of(&update),
                    Ok(Err(error)) if error.problem.code == "shutting_down" => SlotEnd::LeftOpen,
                    Ok(Err(error)) => SlotEnd::Done(Err(error.problem)),
                    Err(_) => SlotEnd::LeftOpen,
                },
                update = updates.recv(), if listening => match update {
                    Ok(update) if update.state == CallState::AwaitingApproval => self.waits(begun, &call_id).await,
                    Ok(_) => {}
                    Err(_) => listening = false,
                },
            }
        }
    }

    async fn waits(&self, begun: &Begun, call_id: &CallId) {
        let known = {
            let book = self.routine_room().book();
            let Some(entry) = book.get(&begun.record.routine_id) else { return };
            match entry.open.get(&begun.slot) {
                Some(SlotRecord { state: SlotState::Waiting {}, .. }) => return,
                _ => entry.failures,
            }
        };
        let waiting = SlotRecord {
            routine_id: begun.record.routine_id.clone(),
            slot: begun.slot,
            state: SlotState::Waiting {},
            call_id: Some(call_id.clone()),
            failures: known,
        };
        if let Err(error) = self.note_slot(waiting).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "that a routine waits could not be recorded");
        }
    }

    /// Returns when a call is decided about, and so on record: whoever is told its id can follow it.
    pub(super) async fn on_record(&self, call_id: &CallId) {
        let Some(live) = self.live().get(call_id) else { return };
        let (now, mut news) = live.follow();
        drop(live);
        let mut state = now.state;
        while state == CallState::Proposed {
            let Ok(update) = news.recv().await else { return };
            state = update.state;
        }
    }

    /// Takes up a slot that had begun before a restart.
    pub(super) async fn resume_slot(&self, begun: Begun, late: bool) {
        let RoutineAction::Call { .. } = &begun.record.plan.action else {
            // Whether its run goes on is the run's to say; it is started under the same id, at most once.
            self.begin(begun);
            return;
        };
        let key = begun.record.key(&begun.slot).ok();
        let known = match &key {
            Some(key) => self.journal().call_by_key(&begun.record.plan.principal, key).await,
            None => Ok(None),
        };
        match known {
            Ok(Some(call)) => {
                self.routine_room().rehearsal(&call.call_id, begun.slot.kind == SlotKind::Rehearsal);
                let ended = match self.end_of(&call.call_id, |_| {}).await {
                    Ok(update) if update.state.is_terminal() => outcome_of(&update),
                    Ok(_) => SlotEnd::LeftOpen,
                    Err(error) => SlotEnd::Done(Err(error.problem)),
                };
                self.routine_room().rehearsal(&call.call_id, false);
                self.end_slot(begun, Some(call.call_id), ended).await;
            }
            Ok(None) if !late => drop(self.begin(begun)),
            Ok(None) => {
                let problem = Problem::new(
                    "slot_cut_off",
                    "the daemon ended before the slot's call was proposed, and by now it is too late for it",
                    "run it by hand if it is still wanted: `palyra routines run`",
                );
                self.end_slot(begun, None, SlotEnd::Done(Err(problem))).await;
            }
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "a slot of a routine could not be taken up");
            }
        }
    }

    /// Records how a slot ended; pauses the routine after too many failures.
    async fn end_slot(&self, begun: Begun, call_id: Option<CallId>, ended: SlotEnd) {
        let SlotEnd::Done(result) = ended else { return };
        let scheduled = begun.slot.kind == SlotKind::Scheduled;
        let before = self.routine_room().book().get(&begun.record.routine_id).map_or(0, |entry| entry.failures);
        let failures = match &result {
            _ if !scheduled => before,
            Ok(()) => 0,
            Err(_) => before + 1,
        };
        let state = match result {
            Ok(()) => SlotState::Ran {},
            Err(problem) => SlotState::Failed { problem },
        };
        let routine_id = begun.record.routine_id.clone();
        let record = SlotRecord { routine_id: routine_id.clone(), slot: begun.slot, state, call_id, failures };
        if let Err(error) = self.note_slot(record).await {
            // The next start finds the slot open, and its call in the journal.
            tracing::error!(error = &error as &dyn std::error::Error, "the end of a slot could not be recorded");
            return;
        }
        if scheduled && failures >= MAX_FAILURES {
            let reason = format!("{failures} slots failed one after the other");
            self.pause_after_failures(RoutineChange::Paused {
                routine_id,
                pause: RoutinePause { by: daemon(), reason },
            })
            .await;
        }
    }

    async fn pause_after_failures(&self, change: RoutineChange) {
        let event = JournalEvent::RoutineChanged { by: daemon(), change: change.clone() };
        match self.journal().note(&event).await {
            Ok(_) => self.routine_room().book().change(self.clock().now(), &change),
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "a routine that fails could not be paused");
            }
        }
    }
}

fn outcome_of(update: &CallUpdate) -> SlotEnd {
    if update.state == CallState::Succeeded {
        return SlotEnd::Done(Ok(()));
    }
    let problem = update.outcome.as_ref().and_then(|outcome| outcome.problem.clone());
    let unsaid = || Problem::plain("call_failed", format!("the call ended as {}", update.state.as_str()));
    SlotEnd::Done(Err(problem.unwrap_or_else(unsaid)))
}

/// Who the daemon is.
fn daemon() -> Principal {
    Principal::new(PrincipalKind::System, "palyrad").unwrap_or_else(|_| Principal::local_owner())
}

//! One slot, from its start to its end.

use super::{MAX_FAILURES, RunOrder, RunProgress, SlotEnd};
use crate::access::VerifiedPeer;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::flow::propose::{CallInProgress, Proposal};
use crate::live::CallUpdate;
use palyra_journal::JournalError;
use palyra_protocol::{
    CallId, CallState, Carrier, JournalEvent, Principal, PrincipalKind, Problem, RoutineAction, RoutineChange,
    RoutinePause, RoutineRecord, RunId, SlotKey, SlotKind, SlotRecord, SlotState,
};
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::watch;

/// A slot that is recorded as started.
#[derive(Debug, Clone)]
pub(super) struct Begun {
    pub(super) record: Arc<RoutineRecord>,
    pub(super) slot: SlotKey,
}

/// What a slot has begun.
#[derive(Debug)]
pub(super) enum Action {
    /// A call.
    Call(CallId),
    /// A run, and how it stands.
    Run(RunId, watch::Receiver<RunProgress>),
    /// Nothing: the slot has failed.
    Nothing,
}

impl Engine {
    /// Records what became of a slot, and takes it over.
    pub(super) async fn note_slot(&self, slot: SlotRecord) -> Result<(), JournalError> {
        let slot = SlotRecord { run: self.run_of_slot(&slot), ..slot };
        self.journal().record_slot(slot.clone()).await?;
        self.routine_room().book().note(self.clock().now(), &slot);
        Ok(())
    }

    /// The run of a slot that has begun, where its routine is a prompt.
    fn run_of_slot(&self, slot: &SlotRecord) -> Option<RunId> {
        let never_began = matches!(slot.state, SlotState::Skipped { .. } | SlotState::Missed { .. });
        let book = self.routine_room().book();
        let routine = book.get(&slot.routine_id).map(|entry| &entry.record).filter(|routine| routine.is_prompt());
        routine.filter(|_| !never_began).and_then(|routine| routine.run(&slot.slot).ok())
    }

    /// Carries a slot out in a task of its own.
    pub(super) fn begin(&self, begun: Begun) -> Action {
        let started = match begun.record.plan.action.clone() {
            RoutineAction::Call { tool, input } => self.begin_call(&begun, tool, &input),
            RoutineAction::Prompt { .. } => self.begin_run(&begun),
        };
        started.unwrap_or_else(|problem| {
            let engine = self.clone();
            tokio::spawn(async move { engine.end_slot(begun, None, SlotEnd::Done(Err(problem))).await });
            Action::Nothing
        })
    }

    fn begin_call(&self, begun: &Begun, tool: String, input: &Value) -> Result<Action, Problem> {
        let call = self.propose_slot(begun, tool, input).map_err(|error| error.problem)?;
        let (engine, begun, call_id) = (self.clone(), begun.clone(), call.call_id.clone());
        let action = Action::Call(call_id.clone());
        tokio::spawn(async move {
            let ended = engine.follow_slot(&begun, call).await;
            engine.end_slot(begun, Some(call_id), ended).await;
        });
        Ok(action)
    }

    fn begin_run(&self, begun: &Begun) -> Result<Action, Problem> {
        let runs = self.routine_room().runs.get().ok_or_else(super::manage::no_runs)?;
        let Begun { record, slot } = begun.clone();
        let unnamed = |error: palyra_protocol::id::IdError| Problem::plain("internal", error.to_string());
        let (run, session) = (record.run(&slot).map_err(unnamed)?, record.session().map_err(unnamed)?);
        let (progress, seen) = watch::channel(RunProgress::Beginning);
        let action = Action::Run(run.clone(), seen.clone());
        let peer = VerifiedPeer::of_routine(self, &record);
        let running = runs.run(RunOrder { routine: record, run, session, peer, progress });
        let (engine, begun) = (self.clone(), begun.clone());
        tokio::spawn(async move {
            let ended = engine.follow_run(&begun, running, seen).await;
            engine.end_slot(begun, None, ended).await;
        });
        Ok(action)
    }

    /// Follows a slot's run to its end; while all of it waits for a person the slot does.
    async fn follow_run(
        &self,
        begun: &Begun,
        mut running: impl Future<Output = SlotEnd> + Unpin,
        mut seen: watch::Receiver<RunProgress>,
    ) -> SlotEnd {
        let mut listening = true;
        loop {
            tokio::select! {
                ended = &mut running => return ended,
                changed = seen.changed(), if listening => match changed {
                    Ok(()) => {
                        let progress = seen.borrow_and_update().clone();
                        match progress {
                            RunProgress::Waiting(call) => self.waits(begun, &call).await,
                            RunProgress::Beginning | RunProgress::Running => self.goes_on(begun),
                        }
                    }
                    Err(_) => listening = false,
                },
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
                    Ok(_) => self.goes_on(begun),
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
            run: None,
            failures: known,
        };
        if let Err(error) = self.note_slot(waiting).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "that a routine waits could not be recorded");
        }
    }

    /// What waited for a person does not any more: the next slot is not to run beside it.
    fn goes_on(&self, begun: &Begun) {
        self.routine_room().book().goes_on(&begun.record.routine_id, &begun.slot);
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

    /// Takes up a slot that had begun before a restart: what is on record is followed, what is not begins unless it is
    /// too late for it.
    pub(super) async fn resume_slot(&self, begun: Begun, late: bool) {
        let known = match begun.record.is_prompt() {
            true => self.run_on_record(&begun).await.map(|known| known.then(|| Action::Nothing)),
            false => self.call_on_record(&begun).await.map(|known| known.map(Action::Call)),
        };
        match known {
            Ok(Some(Action::Call(call_id))) => {
                let ended = match self.end_of(&call_id, |_| {}).await {
                    Ok(update) if update.state.is_terminal() => outcome_of(&update),
                    Ok(_) => SlotEnd::LeftOpen,
                    Err(error) => SlotEnd::Done(Err(error.problem)),
                };
                self.end_slot(begun, Some(call_id), ended).await;
            }
            // A run that is on record is gone on with.
            Ok(Some(_)) => drop(self.begin(begun)),
            Ok(None) if !late => drop(self.begin(begun)),
            Ok(None) => {
                let problem = Problem::new(
                    "slot_cut_off",
                    "the daemon ended before the slot was proposed, and by now it is too late for it",
                    "run it by hand if it is still wanted: `palyra routines run`",
                );
                self.end_slot(begun, None, SlotEnd::Done(Err(problem))).await;
            }
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "a slot of a routine could not be taken up");
            }
        }
    }

    async fn call_on_record(&self, begun: &Begun) -> Result<Option<CallId>, JournalError> {
        let Ok(key) = begun.record.key(&begun.slot) else { return Ok(None) };
        let call = self.journal().call_by_key(&begun.record.plan.principal, &key).await?;
        Ok(call.map(|call| call.call_id))
    }

    async fn run_on_record(&self, begun: &Begun) -> Result<bool, JournalError> {
        let Ok(run) = begun.record.run(&begun.slot) else { return Ok(false) };
        match self.journal().run_history(&run).await {
            Ok(_) => Ok(true),
            Err(JournalError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
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
        let (slot, run) = (begun.slot, None);
        let record = SlotRecord { routine_id: routine_id.clone(), slot, state, call_id, run, failures };
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

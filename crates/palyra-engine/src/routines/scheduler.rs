//! The one task that sleeps until the earliest slot, and what a start does about slots that the last end left open.

use super::CATCH_UP;
use super::slots::Begun;
use crate::engine::{Engine, WeakEngine};
use crate::error::EngineError;
use palyra_journal::{AboutWhat, JournalError};
use palyra_protocol::{JournalEvent, RoutineId, SlotKey, SlotKind, SlotRecord, SlotState, Timestamp};
use std::time::Duration;

/// The longest sleep while there is a routine: a clock that was set, or a machine that slept, is noticed within this
/// time.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);
/// How long to wait after the journal took nothing.
const RETRY: Duration = Duration::from_secs(5);

impl Engine {
    /// Reads the routines from the journal, takes care of slots that the last end left open, and begins to run what is
    /// due. Called once, after [`Engine::recover`].
    ///
    /// # Errors
    /// The journal cannot be read.
    pub async fn start_routines(&self) -> Result<(), EngineError> {
        self.load_routines().await?;
        let open: Vec<SlotRecord> = {
            let book = self.routine_room().book();
            book.iter().flat_map(|entry| entry.open.values().cloned()).collect()
        };
        for slot in open {
            let engine = self.clone();
            tokio::spawn(async move { engine.take_up(slot).await });
        }
        let (weak, closing) = (self.downgrade(), self.closing().clone());
        tokio::spawn(async move {
            tokio::select! {
                () = attend(weak) => {}
                () = closing.cancelled() => {}
            }
        });
        Ok(())
    }

    /// What the journal says about routines.
    pub(crate) async fn load_routines(&self) -> Result<(), EngineError> {
        let events = self.journal().events_about(AboutWhat::Routines, 0).await?;
        let mut book = self.routine_room().book();
        for (_, at, event) in events {
            match event {
                JournalEvent::RoutineChanged { change, .. } => book.change(at, &change),
                JournalEvent::RoutineSlot { slot } => {
                    self.journal().remember_slot(&slot);
                    book.note(at, &slot);
                }
                _ => {}
            }
        }
        let ids: Vec<RoutineId> = book.iter().map(|entry| entry.record.routine_id.clone()).collect();
        ids.iter().for_each(|id| book.plan_next(id));
        Ok(())
    }

    /// A slot that had begun when the daemon ended: its call is followed if there is one, and proposed under the same
    /// key if there is none and it is not too late.
    async fn take_up(&self, slot: SlotRecord) {
        let Some(record) = self.routine_room().book().get(&slot.routine_id).map(|entry| entry.record.clone()) else {
            return;
        };
        let begun = Begun { record, slot: slot.slot };
        let late = slot.slot.at.until(self.clock().now()) > CATCH_UP;
        self.resume_slot(begun, late).await;
    }

    /// Deals with every slot that is due. Returns when the next one is.
    pub(crate) async fn run_due(&self) -> Result<Option<Timestamp>, JournalError> {
        loop {
            let now = self.clock().now();
            let due = {
                let mut book = self.routine_room().book();
                match book.pop_due(now) {
                    Some(id) => id,
                    None => return Ok(book.earliest()),
                }
            };
            let dealt = self.run_one_due(&due, now).await;
            self.routine_room().book().plan_next(&due);
            match dealt {
                Ok(()) | Err(JournalError::SlotTaken) => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn run_one_due(&self, id: &RoutineId, now: Timestamp) -> Result<(), JournalError> {
        let (due, record, skip, failures) = {
            let mut book = self.routine_room().book();
            let Some(entry) = book.get_mut(id) else { return Ok(()) };
            let due = entry.schedule.due(entry.seen, now);
            let skip = if entry.is_running() {
                Some("the slot before it still runs".to_owned())
            } else if entry.waiting() >= super::MAX_WAITING {
                Some(format!("{} earlier slots wait for a person", entry.waiting()))
            } else if entry.is_spent(now) {
                Some(format!("the budget of {} slots in 24 hours is used up", entry.record.plan.budget.slots_per_day))
            } else {
                None
            };
            (due, entry.record.clone(), skip, entry.failures)
        };
        let scheduled = |at: Timestamp, state: SlotState| SlotRecord {
            routine_id: id.clone(),
            slot: SlotKey { kind: SlotKind::Scheduled, at },
            state,
            call_id: None,
            run: None,
            failures,
        };
        if let Some(last) = due.last_missed {
            self.note_slot(scheduled(last, SlotState::Missed { count: due.missed })).await?;
        }
        let Some(at) = due.run else { return Ok(()) };
        match skip {
            Some(reason) => self.note_slot(scheduled(at, SlotState::Skipped { reason })).await,
            None => {
                self.note_slot(scheduled(at, SlotState::Started {})).await?;
                self.begin(Begun { record, slot: SlotKey { kind: SlotKind::Scheduled, at } });
                Ok(())
            }
        }
    }
}

/// Sleeps until something is due, for as long as the engine is there.
async fn attend(engine: WeakEngine) {
    loop {
        let Some(now_engine) = engine.upgrade() else { return };
        let next = now_engine.run_due().await.unwrap_or_else(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, "a slot of a routine could not be recorded");
            Some(now_engine.clock().now().plus(RETRY))
        });
        let sleep = next.map(|next| now_engine.clock().now().until(next).min(LONGEST_SLEEP));
        let room = now_engine.routine_room();
        match sleep {
            Some(sleep) => tokio::select! {
                () = tokio::time::sleep(sleep) => {}
                () = room.changed.notified() => {}
            },
            // Without routines nothing wakes it but the first.
            None => room.changed.notified().await,
        }
    }
}

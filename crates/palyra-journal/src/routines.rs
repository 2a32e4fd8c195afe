//! Memory and routines in the journal: their events are the record, and what the daemon knows of them follows from
//! these.
//!
//! INVARIANT (slot_runs_once): a scheduled slot is recorded in the writer's transaction, after a look at the newest
//! slot that the journal has of the same routine: one that is not later is refused.

use crate::error::JournalError;
use crate::events::{event_at, routine_slot};
use crate::store::JournalStore;
use crate::writer::PreparedEvent;
use palyra_protocol::{JournalEvent, RoutineId, SlotKey, SlotKind, SlotRecord, SlotState, Timestamp};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The newest scheduled slot of each routine, as the journal has it.
#[derive(Debug, Default)]
pub(crate) struct SlotMarks(Mutex<HashMap<RoutineId, Timestamp>>);

impl SlotMarks {
    fn newest(&self, routine: &RoutineId) -> Option<Timestamp> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(routine).copied()
    }

    pub(crate) fn raise(&self, routine: &RoutineId, at: Timestamp) {
        let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mark = marks.entry(routine.clone()).or_insert(at);
        *mark = (*mark).max(at);
    }
}

impl JournalStore {
    /// Every event about memory, routines or consoles after a place, in order.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn events_about(
        &self,
        what: AboutWhat,
        after: u64,
    ) -> Result<Vec<(u64, Timestamp, JournalEvent)>, JournalError> {
        self.read(move |c| {
            let query = format!("SELECT seq FROM events WHERE ({}) AND seq > ?1 ORDER BY seq", what.condition());
            let seqs: Vec<u64> =
                c.prepare_cached(&query)?.query_map([after], |r| r.get(0))?.collect::<Result<_, _>>()?;
            let event = |seq: u64| event_at(c, seq).map(|(event, at)| (seq, at, event));
            seqs.into_iter().map(event).collect()
        })
        .await
    }

    /// The newest slots of a routine, the newest first.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn slots(&self, routine: &RoutineId, limit: usize) -> Result<Vec<(Timestamp, SlotRecord)>, JournalError> {
        let routine = routine.clone();
        self.read(move |c| routine_slot(c, &routine, limit)).await
    }

    /// Records what became of a slot. A scheduled one begins, is skipped or missed only after every slot that the
    /// journal has.
    ///
    /// # Errors
    /// It was dealt with before, or could not be made durable.
    pub async fn record_slot(&self, slot: SlotRecord) -> Result<(), JournalError> {
        let opens = opens(&slot);
        let event = PreparedEvent::new(&JournalEvent::RoutineSlot { slot: Box::new(slot.clone()) })?;
        let marks = self.slot_marks();
        let (routine, at) = (slot.routine_id, slot.slot.at);
        self.write(move |tx| {
            if opens && marks.newest(&routine).is_some_and(|newest| newest >= at) {
                return Err(JournalError::SlotTaken);
            }
            tx.append(&event)?;
            if opens {
                marks.raise(&routine, at);
            }
            Ok(())
        })
        .await
    }

    /// Takes over the slots of earlier runs of the daemon. Called once, before any is recorded.
    pub fn remember_slot(&self, slot: &SlotRecord) {
        if opens(slot) {
            self.slot_marks().raise(&slot.routine_id, slot.slot.at);
        }
    }
}

/// Whether this record is the first of a scheduled slot.
fn opens(slot: &SlotRecord) -> bool {
    let first = matches!(slot.state, SlotState::Started {} | SlotState::Skipped { .. } | SlotState::Missed { .. });
    matches!(slot.slot, SlotKey { kind: SlotKind::Scheduled, .. }) && first && slot.call_id.is_none()
}

/// What events are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AboutWhat {
    /// Memory.
    Memory,
    /// Routines.
    Routines,
    /// Sessions of the console, and passkeys.
    Consoles,
}

impl AboutWhat {
    /// The condition of its index.
    fn condition(self) -> &'static str {
        match self {
            Self::Memory => "kind = 'memory.retained' OR kind = 'memory.forgotten'",
            Self::Routines => "kind = 'routine.changed' OR kind = 'routine.slot'",
            Self::Consoles => {
                "kind = 'console.opened' OR kind = 'console.ended' OR kind = 'console.used' \
                 OR kind = 'console.passkey_added' OR kind = 'console.passkey_removed'"
            }
        }
    }
}

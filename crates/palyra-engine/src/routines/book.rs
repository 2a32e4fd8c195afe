//! The routines in memory: what follows from the journal's events, and the heap of what is due next.

use super::agenda::Agenda;
use super::schedule::Schedule;
use palyra_protocol::{
    RoutineChange, RoutineId, RoutinePause, RoutineRecord, SlotKey, SlotKind, SlotRecord, SlotState, Timestamp,
};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// A day, over which slots are counted.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// One routine.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) record: Arc<RoutineRecord>,
    pub(super) schedule: Schedule,
    pub(super) pause: Option<RoutinePause>,
    /// Every scheduled slot up to here was dealt with.
    pub(super) seen: Timestamp,
    pub(super) failures: u32,
    /// Slots that have not ended, each with its newest record.
    pub(super) open: BTreeMap<SlotKey, SlotRecord>,
    pub(super) last: Option<SlotRecord>,
    /// When slots of the last day began.
    started: VecDeque<Timestamp>,
}

impl Entry {
    /// Whether a slot runs now: those that wait for a person do not count.
    pub(super) fn is_running(&self) -> bool {
        self.open.values().any(|slot| matches!(slot.state, SlotState::Started {}))
    }

    pub(super) fn waiting(&self) -> usize {
        self.open.values().filter(|slot| matches!(slot.state, SlotState::Waiting {})).count()
    }

    /// Whether the budget of a day is used up.
    pub(super) fn is_spent(&mut self, now: Timestamp) -> bool {
        self.prune(now);
        self.started.len() >= self.record.plan.budget.slots_per_day as usize
    }

    fn prune(&mut self, now: Timestamp) {
        while self.started.front().is_some_and(|at| at.until(now) >= DAY) {
            self.started.pop_front();
        }
    }

    fn note(&mut self, at: Timestamp, slot: &SlotRecord) {
        if slot.slot.kind == SlotKind::Scheduled {
            self.seen = self.seen.max(slot.slot.at);
            self.failures = slot.failures;
        }
        if matches!(slot.state, SlotState::Started {}) && !self.open.contains_key(&slot.slot) {
            self.started.push_back(at);
            self.prune(at);
        }
        if slot.state.is_end() {
            self.open.remove(&slot.slot);
        } else {
            self.open.insert(slot.slot, slot.clone());
        }
        self.last = Some(slot.clone());
    }

    /// The next slot, if the routine runs by itself.
    pub(super) fn next(&self) -> Option<Timestamp> {
        if self.pause.is_some() { None } else { self.schedule.next_after(self.seen) }
    }
}

/// All routines.
#[derive(Debug, Default)]
pub(super) struct Book {
    routines: HashMap<RoutineId, Entry>,
    names: HashMap<String, RoutineId>,
    agenda: Agenda<RoutineId>,
}

impl Book {
    /// Takes over a change that is on record.
    pub(super) fn change(&mut self, at: Timestamp, change: &RoutineChange) {
        match change {
            RoutineChange::Added { routine } => self.add(routine),
            RoutineChange::Paused { routine_id, pause } => {
                if let Some(entry) = self.routines.get_mut(routine_id) {
                    entry.pause = Some(pause.clone());
                }
            }
            RoutineChange::Resumed { routine_id } => {
                if let Some(entry) = self.routines.get_mut(routine_id) {
                    entry.pause = None;
                    entry.failures = 0;
                    entry.seen = entry.seen.max(at);
                }
            }
            RoutineChange::Removed { routine_id } => {
                if let Some(entry) = self.routines.remove(routine_id) {
                    self.names.remove(&entry.record.plan.name);
                }
            }
        }
        self.plan_next(change.routine_id());
    }

    fn add(&mut self, record: &RoutineRecord) {
        let plan = &record.plan;
        // A schedule that this version cannot read any more leaves a routine that people can see and remove.
        let schedule = Schedule::parse(&plan.schedule.pattern, &plan.schedule.zone);
        let Ok(schedule) = schedule.inspect_err(|error| tracing::error!(%error, "a routine cannot be scheduled"))
        else {
            return;
        };
        self.names.insert(plan.name.clone(), record.routine_id.clone());
        let entry = Entry {
            record: Arc::new(record.clone()),
            schedule,
            pause: None,
            seen: record.created_at,
            failures: 0,
            open: BTreeMap::new(),
            last: None,
            started: VecDeque::new(),
        };
        self.routines.insert(record.routine_id.clone(), entry);
    }

    /// Takes over what became of a slot, which is on record.
    pub(super) fn note(&mut self, at: Timestamp, slot: &SlotRecord) {
        if let Some(entry) = self.routines.get_mut(&slot.routine_id) {
            entry.note(at, slot);
        }
    }

    /// A slot that waited for a person goes on. The journal keeps that it waited; only the next slot asks.
    pub(super) fn goes_on(&mut self, id: &RoutineId, slot: &SlotKey) {
        if let Some(open) = self.routines.get_mut(id).and_then(|entry| entry.open.get_mut(slot)) {
            open.state = SlotState::Started {};
        }
    }

    /// Enters when a routine is due next; what was entered before does not count any more.
    pub(super) fn plan_next(&mut self, id: &RoutineId) {
        match self.routines.get(id).and_then(Entry::next) {
            Some(next) => self.agenda.enter(id.clone(), next),
            None => self.agenda.remove(id),
        }
    }

    /// The earliest slot.
    pub(super) fn earliest(&mut self) -> Option<Timestamp> {
        self.agenda.earliest()
    }

    /// Takes the routine out that is due first, if one is due.
    pub(super) fn pop_due(&mut self, now: Timestamp) -> Option<RoutineId> {
        self.agenda.pop_due(now).map(|(id, _)| id)
    }

    pub(super) fn get(&self, id: &RoutineId) -> Option<&Entry> {
        self.routines.get(id)
    }

    pub(super) fn get_mut(&mut self, id: &RoutineId) -> Option<&mut Entry> {
        self.routines.get_mut(id)
    }

    /// By id or by name.
    pub(super) fn find(&self, name: &str) -> Option<&Entry> {
        let by_id = name.parse().ok().and_then(|id: RoutineId| self.routines.get(&id));
        by_id.or_else(|| self.names.get(name).and_then(|id| self.routines.get(id)))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.routines.values()
    }

    pub(super) fn len(&self) -> usize {
        self.routines.len()
    }
}

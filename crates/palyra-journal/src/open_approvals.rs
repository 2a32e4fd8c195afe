//! The open approvals, as the writer knows them.
//!
//! What a person is shown, and what an answer is held against, must be what was asked. A row of `approvals` is not good
//! enough for that: a user who can write to the file could show one thing and have another one run. So open
//! approvals are kept in memory, made of the events at a start and changed by the writer alone; the table is written
//! for later readers and never decides.
//!
//! INVARIANT (shown_as_asked): an open approval is read from here and nowhere else.

use palyra_protocol::{ApprovalId, ApprovalRecord, CallId};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

type Waiting = BTreeMap<ApprovalId, Arc<ApprovalRecord>>;

/// The open approvals as of the last commit, for readers.
#[derive(Debug, Clone, Default)]
pub(crate) struct OpenApprovals(Arc<RwLock<Waiting>>);

impl OpenApprovals {
    fn waiting(&self) -> RwLockReadGuard<'_, Waiting> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// One that waits.
    pub(crate) fn find(&self, id: &ApprovalId) -> Option<Arc<ApprovalRecord>> {
        self.waiting().get(id).cloned()
    }

    /// The one that a call waits for.
    pub(crate) fn of_call(&self, call: &CallId) -> Option<Arc<ApprovalRecord>> {
        self.waiting().values().find(|asked| asked.call_id == *call).cloned()
    }

    /// How many wait.
    pub(crate) fn count(&self) -> usize {
        self.waiting().len()
    }

    /// Those after the one named, oldest first.
    pub(crate) fn after(&self, id: Option<&ApprovalId>) -> Vec<Arc<ApprovalRecord>> {
        let waiting = self.waiting();
        let later = waiting.iter().filter(|(own, _)| id.is_none_or(|id| *own > id));
        later.map(|(_, asked)| Arc::clone(asked)).collect()
    }
}

/// The writer's side: what the group under way changes.
#[derive(Debug, Default)]
pub(crate) struct OpenApprovalBook {
    committed: OpenApprovals,
    /// In order: an approval as it stands from here on, or nothing once it has ended.
    changes: Vec<(ApprovalId, Option<Arc<ApprovalRecord>>)>,
}

impl OpenApprovalBook {
    /// Takes the approvals that are open by the events, for readers who may hold on to it already.
    pub(crate) fn reset(&self, waiting: Vec<ApprovalRecord>) {
        let waiting = waiting.into_iter().map(|asked| (asked.approval_id.clone(), Arc::new(asked)));
        *self.committed.0.write().unwrap_or_else(PoisonError::into_inner) = waiting.collect();
    }

    pub(crate) fn for_readers(&self) -> OpenApprovals {
        self.committed.clone()
    }

    /// A question as it stands in this transaction, if it waits.
    pub(crate) fn find(&self, id: &ApprovalId) -> Option<Arc<ApprovalRecord>> {
        match self.changes.iter().rev().find(|(changed, _)| changed == id) {
            Some((_, now)) => now.clone(),
            None => self.committed.find(id),
        }
    }

    /// A question waits from here on, or waits as something else.
    pub(crate) fn waits(&mut self, asked: Arc<ApprovalRecord>) {
        self.changes.push((asked.approval_id.clone(), Some(asked)));
    }

    /// A question has ended.
    pub(crate) fn ended(&mut self, id: &ApprovalId) {
        self.changes.push((id.clone(), None));
    }

    /// The group is committed.
    pub(crate) fn committed(&mut self) {
        if self.changes.is_empty() {
            return;
        }
        let mut waiting = self.committed.0.write().unwrap_or_else(PoisonError::into_inner);
        for (id, now) in self.changes.drain(..) {
            match now {
                Some(asked) => drop(waiting.insert(id, asked)),
                None => drop(waiting.remove(&id)),
            }
        }
    }

    /// The group is undone.
    pub(crate) fn undone(&mut self) {
        self.changes.clear();
    }

    /// Where one job of the group begins.
    pub(crate) fn savepoint(&self) -> usize {
        self.changes.len()
    }

    /// That job is undone.
    pub(crate) fn back_to(&mut self, savepoint: usize) {
        self.changes.truncate(savepoint);
    }
}

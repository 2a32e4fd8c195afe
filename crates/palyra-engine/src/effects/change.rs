//! Changes of the file tools: staged in a view, decided, and carried out like those of a run.

use super::effect_problem;
use super::settle::{Gathered, Settled, Unsettled};
use crate::workspaces::WorkspaceEngine;
use palyra_protocol::{CallRecord, EffectState, Problem};
use palyra_workspace::FileError;
use palyra_workspace::effects::{EffectError, FileChanges, GuardRules, View, ViewStore};
use serde_json::Value;
use std::sync::Arc;

impl WorkspaceEngine {
    /// Has a file tool prepare its changes in a view, and takes them to their end. Call it on a thread that may wait.
    pub(crate) fn change_files(
        &self,
        call: &Arc<CallRecord>,
        work: impl FnOnce(&View, &GuardRules) -> Result<(FileChanges, Value), FileError>,
    ) -> Result<(Value, Settled), FileError> {
        let effects = self.effects();
        let unavailable = |error: &EffectError| FileError::Io {
            path: ".".to_owned(),
            source: std::io::Error::other(error.to_string()),
        };
        let view = effects.begin(&call.call_id, self.workspace()).map_err(|error| unavailable(&error))?;
        let Ok(store) = effects.store() else { return Err(unavailable(&EffectError::DiskFull)) };
        let prepared = work(&view, effects.guard());
        let (changes, output) = prepared.inspect_err(|_| {
            if let Err(error) = store.discard(view.id()) {
                super::log(&error, "a view that does not count stays until the next start");
            }
        })?;
        let gathered = Gathered {
            changes: changes.changes().to_vec(),
            guarded: changes.guarded(),
            record: changes.record(EffectState::Applied),
        };
        let stage = |fates| changes.stage_as(&view, self.workspace(), fates);
        let settled = match self.settle_changes(store, (call, view.id()), gathered, stage) {
            Ok(settled) => self.all_or_nothing(store, view.id(), settled),
            Err(unsettled) => self.unsettled(store, call, view.id(), unsettled),
        };
        Ok((output, settled))
    }

    /// A file tool's changes happen together: where one could not be made, those that were are taken back.
    fn all_or_nothing(&self, store: &ViewStore, view: &str, settled: Settled) -> Settled {
        let conflicts = settled.record.as_ref().map_or(0, |record| record.conflicts.len());
        if conflicts == 0 {
            return settled;
        }
        let taken_back = || -> Result<(), EffectError> {
            let undo = format!("{view}.back");
            match store.plan_undo(view, self.workspace()) {
                Ok(plan) if plan.paths().is_empty() => {}
                Ok(plan) => {
                    store.undo(&plan, &undo, self.workspace())?;
                    store.discard(&undo)?;
                }
                Err(error) => return Err(error),
            }
            store.discard(view)
        };
        let problem = match taken_back() {
            Ok(()) => Problem::new(
                "content_changed",
                "a file was changed while the call was about to write it, so nothing was written",
                "read it again, then propose the change anew",
            ),
            Err(error) => effect_problem(&error),
        };
        let record = settled.record.map(|mut record| {
            (record.state, record.reversible) = (EffectState::Discarded, false);
            record
        });
        Settled { record, problem: Some(problem), ..settled }
    }
}

impl From<Unsettled> for Problem {
    fn from(unsettled: Unsettled) -> Self {
        match unsettled {
            Unsettled::Nothing(problem) => problem,
            Unsettled::Interrupted(error) => effect_problem(&error),
        }
    }
}

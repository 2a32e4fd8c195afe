//! What a start does about effects that the last end cut off: every one ends applied, discarded or waiting.
//!
//! | the store has | the journal has | then |
//! |---|---|---|
//! | no plan | – | the view is thrown away: nothing of it counts |
//! | a plan, no result | the intent to carry it out | it is carried out |
//! | a plan, no result | no such intent | the view is thrown away |
//! | changes that wait | an approval that waits | it is followed again |
//! | changes that wait | an approval that has ended | the answer is carried out |

use super::about::{ABOUT, About};
use super::settle::{Unsettled, note_applied};
use crate::error::EngineError;
use crate::workspaces::WorkspaceEngine;
use palyra_journal::JournalError;
use palyra_protocol::effect::MAX_LISTED_CHANGES;
use palyra_protocol::{ApprovalState, CallId, EffectState, JournalEvent};
use palyra_workspace::effects::{EffectError, ViewStage};
use std::sync::Arc;
use tokio::runtime::Handle;

impl WorkspaceEngine {
    /// Brings every effect to an end, or to where it waits. Called once, before any door opens.
    pub(crate) async fn recover_effects(&self) -> Result<(), EngineError> {
        let engine = self.clone();
        let done = tokio::task::spawn_blocking(move || engine.recover_views()).await;
        done.map_err(|panic| EngineError::internal(format!("recovering effects panicked: {panic}")))?;
        Ok(())
    }

    fn recover_views(&self) {
        let Ok(store) = self.effects().store() else { return };
        let views = match store.all() {
            Ok(views) => views,
            Err(error) => return super::log(&error, "the store of effects cannot be read"),
        };
        for view in views {
            let recovered = match store.stage_of(&view) {
                Ok(ViewStage::Open) => store.discard(&view).map_err(Unsettled::from),
                Ok(ViewStage::Planned) => self.recover_planned(&view),
                Ok(ViewStage::Done { .. }) => self.recover_waiting(&view),
                Err(error) => Err(Unsettled::from(error)),
            };
            match recovered {
                Ok(()) => {}
                Err(Unsettled::Interrupted(error)) => super::log(&error, "an effect is not carried out yet"),
                Err(Unsettled::Nothing(problem)) => {
                    tracing::warn!(view, problem = problem.message, "an effect was left as it is");
                }
            }
        }
    }

    fn recover_planned(&self, view: &str) -> Result<(), Unsettled> {
        let Ok(store) = self.effects().store() else { return Ok(()) };
        let about = store.get::<About>(view, ABOUT)?;
        let intended = match &about {
            Some(about) => self.was_intended(view, &about.call_id)?,
            None => false,
        };
        let Some(about) = about.filter(|_| intended) else { return Ok(store.discard(view)?) };
        self.finish_planned(view, &about.call_id).inspect_err(|unsettled| {
            if matches!(unsettled, Unsettled::Interrupted(_)) {
                self.finish_later(view.to_owned(), about.call_id.clone());
            }
        })?;
        self.recover_waiting(view)
    }

    /// Whether the journal has the intent to carry out this very plan.
    fn was_intended(&self, view: &str, call_id: &CallId) -> Result<bool, Unsettled> {
        let Ok(store) = self.effects().store() else { return Ok(false) };
        let digest = store.plan_digest(view)?;
        let events = Handle::current().block_on(self.journal().events_of_call(call_id));
        let events = match events {
            Ok(events) => events,
            Err(JournalError::NotFound { .. }) => Vec::new(),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "the events of a call cannot be read");
                let problem = palyra_protocol::Problem::plain("journal", "the events of its call cannot be read");
                return Err(Unsettled::Nothing(problem));
            }
        };
        let is_this = |event: JournalEvent| matches!(event, JournalEvent::EffectIntended { view: of, plan_sha256, .. } if of == view && plan_sha256 == digest);
        let mut intents = events.iter().filter(|event| event.kind == "effect.intended");
        Ok(intents.any(|event| serde_json::from_str(&event.body).is_ok_and(is_this)))
    }

    /// Carries out a plan whose intent is recorded, and records that.
    pub(super) fn finish_planned(&self, view: &str, call_id: &CallId) -> Result<(), Unsettled> {
        let Ok(store) = self.effects().store() else { return Ok(()) };
        let applied = self.effects().apply(store, view, self.workspace()).map_err(Unsettled::Interrupted)?;
        let mut state = EffectState::Applied;
        if let Some(mut about) = store.get::<About>(view, ABOUT)? {
            note_applied(&mut about.record, &applied);
            state = about.record.state;
            store.put(view, ABOUT, &about)?;
        }
        self.note_or_retry(&JournalEvent::EffectSettled {
            call_id: call_id.clone(),
            view: view.to_owned(),
            state,
            done: applied.done as u64,
            conflicts: applied.conflicts.into_iter().take(MAX_LISTED_CHANGES).collect(),
            reason: "it was cut off, and finished later".to_owned(),
            approval: None,
        })
    }

    fn recover_waiting(&self, view: &str) -> Result<(), Unsettled> {
        let Ok(store) = self.effects().store() else { return Ok(()) };
        let Some(about) = store.get::<About>(view, ABOUT)? else { return Ok(()) };
        let Some(waiting) = about.waiting.clone() else { return Ok(()) };
        // A release that was cut off is a view of its own, and has been finished or thrown away.
        if released(store.stage_of(&format!("{view}.held")))? {
            return Ok(store.put(view, ABOUT, &About { waiting: None, ..about })?);
        }
        match Handle::current().block_on(self.journal().approval(&waiting.approval)) {
            // It is followed again with all approvals that wait.
            Ok(approval) if approval.state == ApprovalState::Pending => Ok(()),
            Ok(approval) => {
                let (engine, view) = (self.clone(), view.to_owned());
                tokio::spawn(async move { engine.answered_effect(view, Arc::new(approval)).await });
                Ok(())
            }
            Err(JournalError::NotFound { .. }) => {
                self.drop_waiting(store, view, about, "the daemon ended before a person was asked")
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "an approval cannot be read");
                Ok(())
            }
        }
    }
}

/// Whether what waited was carried out.
fn released(stage: Result<ViewStage, EffectError>) -> Result<bool, EffectError> {
    match stage {
        Ok(ViewStage::Done { .. }) => Ok(true),
        Ok(ViewStage::Open | ViewStage::Planned) | Err(EffectError::NotKept { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

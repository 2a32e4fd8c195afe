//! Undo: a person has what a call, a run or a session changed put back.
//!
//! An undo is an effect like any other: planned, recorded before it is carried out, and itself undoable. Entries that
//! were changed since stay as they are and are named, each with a proposal of what both sides' changes come to.

use super::about::{ABOUT, About};
use super::shown::Known;
use super::{effect_problem, log};
use crate::access::VerifiedPeer;
use crate::error::{EngineError, ErrorKind};
use crate::workspaces::WorkspaceEngine;
use palyra_policy::{PolicyAction, PolicyResource};
use palyra_protocol::effect::MAX_LISTED_CHANGES;
use palyra_protocol::{CallId, EffectPath, EffectRecord, EffectState, JournalEvent, Principal, Problem};
use palyra_workspace::effects::{EffectError, UndoPlan, ViewStage, ViewStore};
use serde::Serialize;
use std::collections::BTreeSet;
use tokio::runtime::Handle;

/// What is to be put back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndoTarget {
    /// A call, a run, a session, or an earlier undo, by its id.
    pub id: String,
    /// Only tell what would be done.
    pub dry_run: bool,
}

/// What an undo did, or would do.
#[derive(Debug, Clone, Serialize)]
pub struct UndoReport {
    /// Whether nothing was done.
    pub dry_run: bool,
    /// The effects that were put back, newest first.
    pub undone: Vec<UndoneView>,
}

/// One effect that was put back.
#[derive(Debug, Clone, Serialize)]
pub struct UndoneView {
    /// The call.
    pub call_id: CallId,
    /// Its view.
    pub view: String,
    /// What it was.
    pub what: String,
    /// The undo's id: `palyra undo` takes it too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo: Option<String>,
    /// Entries that were put back or removed.
    pub paths: Vec<EffectPath>,
    /// Entries that stay as they are.
    pub refused: Vec<RefusedEntry>,
}

/// An entry that was changed since.
#[derive(Debug, Clone, Serialize)]
pub struct RefusedEntry {
    /// The entry.
    pub path: EffectPath,
    /// What is in the way.
    pub reason: String,
    /// What the file would be with both changes, conflicts marked; where all three versions are texts that are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub three_way: Option<String>,
}

impl WorkspaceEngine {
    /// Puts back what a call, a run or a session changed.
    ///
    /// # Errors
    /// The peer may not, nothing is kept for it, or the host failed.
    pub(crate) async fn undo(&self, peer: &VerifiedPeer, target: UndoTarget) -> Result<UndoReport, EngineError> {
        self.authorize(peer, PolicyAction::EffectUndo, PolicyResource::Daemon, None)?;
        self.in_place().map_err(|problem| EngineError::new(ErrorKind::Unavailable, problem))?;
        let known = self.kept_effects().await?;
        let meant = meant(known, &target.id)?;
        for known in &meant {
            self.may_undo(peer, &known.about)?;
        }
        let (engine, by) = (self.clone(), peer.effective().clone());
        let done = tokio::task::spawn_blocking(move || engine.undo_all(&meant, &by, target.dry_run)).await;
        done.map_err(|panic| EngineError::internal(format!("an undo panicked: {panic}")))?
    }

    fn undo_all(&self, meant: &[Known], by: &Principal, dry_run: bool) -> Result<UndoReport, EngineError> {
        let store =
            self.effects().store().map_err(|problem| EngineError::new(ErrorKind::Unavailable, problem.clone()))?;
        let mut undone = Vec::new();
        // What a newer effect's undo will put back is no obstacle to an older one's.
        let mut cleared: BTreeSet<EffectPath> = BTreeSet::new();
        for known in meant {
            let plan = store.plan_undo(&known.view, self.workspace()).map_err(|error| refused(&error))?;
            let mut view = self.shown_undo(store, known, &plan);
            if dry_run {
                view.refused.retain(|entry| !cleared.iter().any(|path| entry.path.is_under(path.as_bytes())));
                cleared.extend(plan.paths());
            } else {
                view.undo = self.undo_one(store, (known, &plan), by, &view.refused)?;
            }
            undone.push(view);
        }
        Ok(UndoReport { dry_run, undone })
    }

    fn shown_undo(&self, store: &ViewStore, known: &Known, plan: &UndoPlan) -> UndoneView {
        let entry = |obstacle: &palyra_workspace::effects::Obstacle| RefusedEntry {
            path: obstacle.path.clone(),
            reason: obstacle.reason.to_owned(),
            three_way: store.three_way(&known.view, &obstacle.path, self.workspace()).unwrap_or_else(|error| {
                log(&error, "three versions cannot be compared");
                None
            }),
        };
        UndoneView {
            call_id: known.about.call_id.clone(),
            view: known.view.clone(),
            what: known.about.what.clone(),
            undo: None,
            paths: plan.paths(),
            refused: plan.obstacles.iter().map(entry).collect(),
        }
    }

    fn undo_one(
        &self,
        store: &ViewStore,
        (known, plan): (&Known, &UndoPlan),
        by: &Principal,
        refused_entries: &[RefusedEntry],
    ) -> Result<Option<String>, EngineError> {
        if plan.paths().is_empty() {
            return Ok(None);
        }
        let undo = format!("undo_{}", CallId::mint().body());
        let plan_sha256 = store.stage_undo(plan, &undo, self.workspace()).map_err(|error| refused(&error))?;
        let about = About {
            principal: by.clone(),
            what: format!("undo of {}", known.about.what),
            at: self.clock().now(),
            record: EffectRecord { state: EffectState::Applied, approval: None, ..known.about.record.clone() },
            waiting: None,
            undoes: Some(known.view.clone()),
            held_of: None,
            ..known.about.clone()
        };
        store.put(&undo, ABOUT, &about).map_err(|error| refused(&error))?;
        let call_id = known.about.call_id.clone();
        let policy_hash = self.policy_hash();
        let intended = JournalEvent::EffectIntended { call_id, view: undo.clone(), plan_sha256, policy_hash };
        Handle::current().block_on(self.journal().note(&intended))?;
        let applied = self.effects().apply(store, &undo, self.workspace()).map_err(|error| {
            self.finish_later(undo.clone(), known.about.call_id.clone());
            refused(&error)
        })?;
        self.mark_undone(store, known);
        let late = applied.conflicts.iter().cloned();
        let event = JournalEvent::EffectUndone {
            call_id: known.about.call_id.clone(),
            view: known.view.clone(),
            undo: undo.clone(),
            by: by.clone(),
            done: applied.done as u64,
            refused: refused_entries
                .iter()
                .map(|entry| entry.path.clone())
                .chain(late)
                .take(MAX_LISTED_CHANGES)
                .collect(),
        };
        Handle::current().block_on(self.journal().note(&event))?;
        Ok(Some(undo))
    }

    /// Enters in what was undone that it was; in what an undone undo had undone, that it counts again.
    fn mark_undone(&self, store: &ViewStore, known: &Known) {
        let set = |view: &str, state: EffectState| -> Result<(), EffectError> {
            let Some(mut about) = store.get::<About>(view, ABOUT)? else { return Ok(()) };
            about.record.state = state;
            store.put(view, ABOUT, &about)
        };
        let redone = known.about.undoes.as_ref().map_or(Ok(()), |view| set(view, EffectState::Applied));
        if let Err(error) = set(&known.view, EffectState::Undone).and(redone) {
            log(&error, "the state of an effect is not entered");
        }
    }
}

/// The effects that a text means, newest first.
fn meant(known: Vec<Known>, id: &str) -> Result<Vec<Known>, EngineError> {
    let of_call = |known: &Known| known.about.call_id.as_str() == id && known.about.undoes.is_none();
    let itself = |known: &Known| known.view == id;
    let of_run = |known: &Known| known.about.run.as_str() == id && known.about.undoes.is_none();
    let of_session = |known: &Known| known.about.session.as_str() == id && known.about.undoes.is_none();
    let tests: [&dyn Fn(&Known) -> bool; 4] = [&of_call, &itself, &of_run, &of_session];
    let Some(test) = tests.into_iter().find(|test| known.iter().any(*test)) else {
        return Err(refused(&EffectError::NotKept { id: id.to_owned() }));
    };
    let (mut live, undone): (Vec<Known>, Vec<Known>) = known
        .into_iter()
        .filter(|known| test(known))
        .partition(|known| matches!(&known.stage, ViewStage::Done { undone_by: None, .. }) && known.has_applied());
    if live.is_empty() {
        let was_undone = undone.iter().any(|known| matches!(&known.stage, ViewStage::Done { undone_by: Some(_), .. }));
        let id = id.to_owned();
        return Err(refused(&if was_undone { EffectError::AlreadyUndone { id } } else { EffectError::NotKept { id } }));
    }
    // A view's name grows with time within its kind; what was applied later is undone first.
    live.sort_by_key(|known| std::cmp::Reverse((known.about.at, known.about.held_of.is_some())));
    Ok(live)
}

pub(super) fn refused(error: &EffectError) -> EngineError {
    let kind = match error {
        EffectError::NotKept { .. } => ErrorKind::NotFound,
        EffectError::AlreadyUndone { .. } | EffectError::ViewExists { .. } => ErrorKind::Conflict,
        _ => ErrorKind::Unavailable,
    };
    if kind == ErrorKind::Unavailable {
        log(error, "effects cannot be used");
    }
    let problem: Problem = effect_problem(error);
    EngineError::new(kind, problem)
}

//! What people and programs can see of effects: a list, one of them whole, its difference, and how much is kept.

use super::about::{ABOUT, About, CHANGES};
use super::undo::refused;
use crate::access::VerifiedPeer;
use crate::error::{EngineError, ErrorKind};
use crate::workspaces::WorkspaceEngine;
use palyra_policy::{PolicyAction, PolicyRequestContext, PolicyResource};
use palyra_protocol::{
    CallId, EffectChange, EffectPath, EffectRecord, EffectState, Principal, Problem, RunId, SessionId, Timestamp,
    ToolName,
};
use palyra_workspace::effects::{EffectError, ViewStage, ViewStore};
use serde::Serialize;

/// The most text that a difference is told in.
const MAX_DIFF_BYTES: usize = 8 << 20;

/// A view that is kept.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) view: String,
    pub(super) about: About,
    pub(super) stage: ViewStage,
}

impl Known {
    /// Whether something of it is in the workspace.
    pub(super) fn has_applied(&self) -> bool {
        !matches!(self.about.record.state, EffectState::Waiting | EffectState::Discarded | EffectState::Empty)
    }
}

/// An effect in a list.
#[derive(Debug, Clone, Serialize)]
pub struct EffectListing {
    /// The call; for an undo, the call that was undone.
    pub call_id: CallId,
    /// The view: the call's id, or the undo's.
    pub view: String,
    /// The session.
    pub session: SessionId,
    /// The run.
    pub run: RunId,
    /// In whose name.
    pub principal: Principal,
    /// The tool.
    pub tool: ToolName,
    /// The command, or the paths, on one line.
    pub what: String,
    /// When it was applied.
    pub at: Timestamp,
    /// What it is.
    pub effect: EffectRecord,
    /// Bytes that are kept for an undo.
    pub kept_bytes: u64,
    /// The undo that put it back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undone_by: Option<String>,
    /// The view that it undoes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undoes: Option<String>,
}

/// One effect with every change.
#[derive(Debug, Clone, Serialize)]
pub struct EffectShown {
    /// The effect.
    #[serde(flatten)]
    pub listing: EffectListing,
    /// Every change, by path.
    pub all_changes: Vec<EffectChange>,
}

/// How much is kept.
#[derive(Debug, Clone, Serialize)]
pub struct EffectsStatus {
    /// How many effects can be undone.
    pub kept: u64,
    /// Bytes that are kept for that.
    pub kept_bytes: u64,
    /// The most bytes; the oldest go first.
    pub max_bytes: u64,
    /// How long an effect is kept, in milliseconds.
    pub max_age_ms: u64,
    /// Why nothing can be undone, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
    /// Why processes do not work on views, if that was tried and so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub views_problem: Option<Problem>,
}

impl WorkspaceEngine {
    /// The effects that are kept and that the peer may see, newest first; of one session if one is named.
    ///
    /// # Errors
    /// The peer may not ask, or the host failed.
    pub(crate) async fn effects_kept(
        &self,
        peer: &VerifiedPeer,
        session: Option<&SessionId>,
    ) -> Result<Vec<EffectListing>, EngineError> {
        self.authorize(peer, PolicyAction::EffectRead, PolicyResource::Daemon, None)?;
        let mut known = self.kept_effects().await?;
        known.retain(|known| session.is_none_or(|session| known.about.session == *session));
        known.retain(|known| self.authorize_effect(peer, PolicyAction::EffectRead, &known.about).is_ok());
        known.sort_by_key(|known| std::cmp::Reverse(known.about.at));
        Ok(known.into_iter().map(listing).collect())
    }

    /// The effects of a call, or of a session, each with every change, newest first.
    ///
    /// # Errors
    /// Nothing is kept for it, the peer may not see it, or the host failed.
    pub(crate) async fn effects_of(&self, peer: &VerifiedPeer, id: &str) -> Result<Vec<EffectShown>, EngineError> {
        let meant = self.effects_meant(peer, id).await?;
        let engine = self.clone();
        let shown = tokio::task::spawn_blocking(move || {
            let store = engine.effect_store()?;
            let whole = |known: Known| {
                let all_changes = store.get(&known.view, CHANGES).map_err(|error| refused(&error))?;
                let all_changes = all_changes.unwrap_or_else(|| known.about.record.changes.clone());
                Ok(EffectShown { listing: listing(known), all_changes })
            };
            meant.into_iter().map(whole).collect()
        });
        shown.await.map_err(|panic| EngineError::internal(format!("reading effects panicked: {panic}")))?
    }

    /// The difference that a call or a session made, or would make; of one path if one is named.
    ///
    /// # Errors
    /// Nothing is kept for it, the peer may not see it, or the host failed.
    pub(crate) async fn effect_diff(
        &self,
        peer: &VerifiedPeer,
        id: &str,
        path: Option<EffectPath>,
    ) -> Result<String, EngineError> {
        let shown = self.effects_of(peer, id).await?;
        let engine = self.clone();
        let text = tokio::task::spawn_blocking(move || {
            let store = engine.effect_store()?;
            Ok(engine.whole_diff(store, &shown, path.as_ref()))
        });
        text.await.map_err(|panic| EngineError::internal(format!("comparing panicked: {panic}")))?
    }

    fn whole_diff(&self, store: &ViewStore, shown: &[EffectShown], path: Option<&EffectPath>) -> String {
        let mut text = String::new();
        for effect in shown {
            let wanted = |change: &&EffectChange| path.is_none_or(|path| change.path.is_under(path.as_bytes()));
            for change in effect.all_changes.iter().filter(wanted) {
                let part = self.diff_of(store, &effect.listing.view, change);
                if text.len() + part.len() > MAX_DIFF_BYTES {
                    text.push_str("… more than can be told at once: name a path\n");
                    return text;
                }
                text.push_str(&part);
            }
        }
        text
    }

    /// How much is kept. Reads what is kept, so not for every request.
    ///
    /// # Errors
    /// The peer may not know.
    pub(crate) async fn effects_status(&self, peer: &VerifiedPeer, probe: bool) -> Result<EffectsStatus, EngineError> {
        self.authorize(peer, PolicyAction::DaemonStatus, PolicyResource::Daemon, None)?;
        let engine = self.clone();
        let status = tokio::task::spawn_blocking(move || engine.effects_now(probe)).await;
        status.map_err(|panic| EngineError::internal(format!("reading effects panicked: {panic}")))
    }

    fn effects_now(&self, probe: bool) -> EffectsStatus {
        let effects = self.effects();
        let retention = effects.config().retention;
        let kept = effects.store().ok().and_then(|store| store.kept().ok()).unwrap_or_default();
        let undoable = kept.iter().filter(|kept| kept.undone_by.is_none());
        let runner = &self.config().process_runner;
        EffectsStatus {
            kept: undoable.count() as u64,
            kept_bytes: kept.iter().map(|kept| kept.bytes).sum(),
            max_bytes: retention.max_bytes,
            max_age_ms: u64::try_from(retention.max_age.as_millis()).unwrap_or(u64::MAX),
            problem: effects.store().err().cloned(),
            views_problem: probe.then(|| effects.views(runner, self.workspace()).err()).flatten(),
        }
    }

    /// Removes what was kept long enough.
    pub(crate) fn prune_effects(&self) {
        let effects = self.effects();
        let Ok(store) = effects.store() else { return };
        // What waits for a person ends with its approval, not before.
        let waits =
            |view: &str| store.get::<About>(view, ABOUT).is_ok_and(|about| about.is_some_and(|a| a.waiting.is_some()));
        match store.prune_unless(effects.config().retention, &waits) {
            Ok(gone) if gone.is_empty() => {}
            Ok(gone) => tracing::info!(count = gone.len(), "effects were kept long enough"),
            Err(error) => super::log(&error, "what was kept long enough is not removed"),
        }
    }

    /// Every view whose plan was carried out.
    pub(super) async fn kept_effects(&self) -> Result<Vec<Known>, EngineError> {
        let engine = self.clone();
        let known = tokio::task::spawn_blocking(move || {
            let store = engine.effect_store()?;
            let mut known = Vec::new();
            for view in store.all().map_err(|error| refused(&error))? {
                match (store.stage_of(&view), store.get::<About>(&view, ABOUT)) {
                    (Ok(stage @ ViewStage::Done { .. }), Ok(Some(about))) => known.push(Known { view, about, stage }),
                    (Ok(_), Ok(_)) | (Err(EffectError::NotKept { .. }), _) | (_, Err(EffectError::NotKept { .. })) => {}
                    (Err(error), _) | (_, Err(error)) => super::log(&error, "an effect cannot be read"),
                }
            }
            Ok(known)
        });
        known.await.map_err(|panic| EngineError::internal(format!("reading effects panicked: {panic}")))?
    }

    async fn effects_meant(&self, peer: &VerifiedPeer, id: &str) -> Result<Vec<Known>, EngineError> {
        self.authorize(peer, PolicyAction::EffectRead, PolicyResource::Daemon, None)?;
        let mut known = self.kept_effects().await?;
        let names = |known: &Known| {
            let About { call_id, session, run, .. } = &known.about;
            [call_id.as_str(), session.as_str(), run.as_str(), known.view.as_str()].contains(&id)
        };
        known.retain(names);
        known.retain(|known| self.authorize_effect(peer, PolicyAction::EffectRead, &known.about).is_ok());
        if known.is_empty() {
            return Err(refused(&EffectError::NotKept { id: id.to_owned() }));
        }
        known.sort_by_key(|known| std::cmp::Reverse(known.about.at));
        Ok(known)
    }

    fn effect_store(&self) -> Result<&ViewStore, EngineError> {
        self.effects().store().map_err(|problem| EngineError::new(ErrorKind::Unavailable, problem.clone()))
    }

    /// Whether the peer may put back this effect.
    pub(super) fn may_undo(&self, peer: &VerifiedPeer, about: &About) -> Result<(), EngineError> {
        self.authorize_effect(peer, PolicyAction::EffectUndo, about)
    }

    pub(super) fn authorize_effect(
        &self,
        peer: &VerifiedPeer,
        action: PolicyAction,
        about: &About,
    ) -> Result<(), EngineError> {
        let context = PolicyRequestContext {
            owned_by: Some(about.principal.clone()),
            session_id: Some(about.session.clone()),
            ..self.at_door(peer)
        };
        self.authorize(peer, action, PolicyResource::Call(about.call_id.to_string()), Some(context))
    }
}

fn listing(known: Known) -> EffectListing {
    let Known { view, about, stage } = known;
    let (kept_bytes, undone_by) = match stage {
        ViewStage::Done { kept_bytes, undone_by } => (kept_bytes, undone_by),
        ViewStage::Open | ViewStage::Planned => (0, None),
    };
    EffectListing {
        call_id: about.call_id,
        view,
        session: about.session,
        run: about.run,
        principal: about.principal,
        tool: about.tool,
        what: about.what,
        at: about.at,
        effect: about.record,
        kept_bytes,
        undone_by,
        undoes: about.undoes,
    }
}

//! What doors ask of effects: each question goes to the workspace that its peer names.

use super::{EffectListing, EffectShown, EffectsStatus, UndoReport, UndoTarget};
use crate::access::VerifiedPeer;
use crate::engine::Engine;
use crate::error::EngineError;
use palyra_protocol::{EffectPath, SessionId};
use std::time::Duration;

/// How long what is kept is not looked at.
const PAUSE: Duration = Duration::from_secs(600);

impl Engine {
    /// The effects that are kept in the peer's workspace and that it may see, newest first; of one session if one is
    /// named.
    ///
    /// # Errors
    /// The peer names no workspace, may not ask, or the host failed.
    pub async fn effects_kept(
        &self,
        peer: &VerifiedPeer,
        session: Option<&SessionId>,
    ) -> Result<Vec<EffectListing>, EngineError> {
        self.in_workspace_of(peer)?.effects_kept(peer, session).await
    }

    /// The effects of a call, or of a session, each with every change, newest first.
    ///
    /// # Errors
    /// Nothing is kept for it in the peer's workspace, the peer may not see it, or the host failed.
    pub async fn effects_of(&self, peer: &VerifiedPeer, id: &str) -> Result<Vec<EffectShown>, EngineError> {
        self.in_workspace_of(peer)?.effects_of(peer, id).await
    }

    /// The difference that a call or a session made, or would make; of one path if one is named.
    ///
    /// # Errors
    /// Nothing is kept for it in the peer's workspace, the peer may not see it, or the host failed.
    pub async fn effect_diff(
        &self,
        peer: &VerifiedPeer,
        id: &str,
        path: Option<EffectPath>,
    ) -> Result<String, EngineError> {
        self.in_workspace_of(peer)?.effect_diff(peer, id, path).await
    }

    /// How much is kept in the peer's workspace.
    ///
    /// # Errors
    /// The peer names no workspace, or may not know.
    pub async fn effects_status(&self, peer: &VerifiedPeer, probe: bool) -> Result<EffectsStatus, EngineError> {
        self.in_workspace_of(peer)?.effects_status(peer, probe).await
    }

    /// Puts back what a call, a run or a session changed in the peer's workspace.
    ///
    /// # Errors
    /// The peer names no workspace, may not, nothing is kept for it there, or the host failed.
    pub async fn undo(&self, peer: &VerifiedPeer, target: UndoTarget) -> Result<UndoReport, EngineError> {
        self.in_workspace_of(peer)?.undo(peer, target).await
    }

    /// Brings every effect of every workspace to an end, or to where it waits. Called once, before any door opens.
    pub(crate) async fn recover_effects(&self) -> Result<(), EngineError> {
        for here in self.in_each_workspace() {
            here.recover_effects().await?;
        }
        Ok(())
    }

    /// Removes what was kept long enough, now and from time to time, in every workspace.
    pub fn keep_retention(&self) {
        let engine = self.clone();
        tokio::spawn(async move {
            loop {
                let pruning = engine.clone();
                let pruned = tokio::task::spawn_blocking(move || {
                    pruning.in_each_workspace().iter().for_each(crate::workspaces::WorkspaceEngine::prune_effects);
                });
                if let Err(panic) = pruned.await {
                    tracing::error!(%panic, "removing what was kept panicked");
                }
                tokio::select! {
                    () = tokio::time::sleep(PAUSE) => {}
                    () = engine.closing().cancelled() => return,
                }
            }
        });
    }
}

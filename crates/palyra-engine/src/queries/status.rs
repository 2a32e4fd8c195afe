//! How the engine is doing, and which tools it has.

use crate::access::VerifiedPeer;
use crate::catalog::{CatalogTool, unknown_tool};
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use crate::workspaces::WorkspaceView;
use palyra_journal::Head;
use palyra_policy::{PolicyAction, PolicyResource};
use palyra_protocol::{Digest, JournalId, Problem, PublicKey};
use std::path::PathBuf;
use std::sync::Arc;

/// How the engine is doing.
#[derive(Debug, Clone)]
pub struct EngineStatus {
    /// The policy set in force.
    pub policy_hash: Digest,
    /// How many rules it has.
    pub policy_rules: usize,
    /// The key that signs.
    pub public_key: PublicKey,
    /// The journal.
    pub journal_origin: JournalId,
    /// Its end.
    pub journal_head: Head,
    /// How many tools there are.
    pub tools: usize,
    /// How many questions wait.
    pub pending_approvals: u64,
    /// How many calls have not ended.
    pub open_calls: usize,
    /// Where the peer's tools work; none where it named no workspace.
    pub workspace_root: Option<PathBuf>,
    /// Why nothing can be done there, if so.
    pub workspace_problem: Option<Problem>,
    /// The workspaces that the peer may see.
    pub workspaces: Vec<WorkspaceView>,
}

impl Engine {
    /// How the engine is doing.
    ///
    /// # Errors
    /// The peer may not know.
    pub fn status(&self, peer: &VerifiedPeer) -> Result<EngineStatus, EngineError> {
        self.authorize(peer, PolicyAction::DaemonStatus, PolicyResource::Daemon, None)?;
        let workspaces = self.workspace_list(peer)?;
        let own = self.workspace_id_of(peer);
        let here = workspaces.iter().find(|view| Some(&view.workspace_id) == own.as_ref());
        let journal_head = *self.journal().head().borrow();
        Ok(EngineStatus {
            policy_hash: self.policy_hash(),
            policy_rules: self.policy().rules().count(),
            public_key: self.public_key(),
            journal_origin: self.journal().origin().clone(),
            journal_head,
            tools: self.catalog().iter().count(),
            pending_approvals: self.journal().pending_approvals(),
            open_calls: self.live().all().len(),
            workspace_root: here.map(|view| PathBuf::from(&view.root)),
            workspace_problem: here.and_then(|view| view.problem.clone()),
            workspaces,
        })
    }

    /// Whether the peer may end the daemon.
    ///
    /// # Errors
    /// It may not.
    pub fn may_stop(&self, peer: &VerifiedPeer) -> Result<(), EngineError> {
        self.authorize(peer, PolicyAction::DaemonStop, PolicyResource::Daemon, None)
    }

    /// Whether calls can be taken: the journal answers, and the end has not begun.
    ///
    /// # Errors
    /// Why not.
    pub async fn ready(&self) -> Result<(), EngineError> {
        if self.closing().is_cancelled() {
            let problem = Problem::new("shutting_down", "the daemon is shutting down", "try again after its restart");
            return Err(EngineError::new(ErrorKind::Unavailable, problem));
        }
        self.journal().last_key_event().await?;
        Ok(())
    }

    /// The journal's name: in every checkpoint, and no secret.
    #[must_use]
    pub fn journal_origin(&self) -> &JournalId {
        self.journal().origin()
    }

    /// The tools, and whether each is allow-listed.
    ///
    /// # Errors
    /// The peer may not know.
    pub fn tools(&self, peer: &VerifiedPeer) -> Result<Vec<(Arc<CatalogTool>, bool)>, EngineError> {
        self.authorize(peer, PolicyAction::ToolList, PolicyResource::Daemon, None)?;
        let catalog = self.catalog();
        let seen = catalog.iter().filter(|tool| self.sees_tool(peer, tool));
        Ok(seen.map(|tool| (Arc::clone(tool), self.config().allowed_tools.contains(tool.name()))).collect())
    }

    /// One tool, and whether it is allow-listed.
    ///
    /// # Errors
    /// There is none, or the peer may not know.
    pub fn tool(&self, peer: &VerifiedPeer, name: &str) -> Result<(Arc<CatalogTool>, bool), EngineError> {
        // What one may not see is not there, and is suggested for nothing.
        let seen = self.tools(peer)?;
        let found = seen.iter().find(|(tool, _)| tool.name().as_str() == name);
        let known = seen.iter().map(|(tool, _)| tool.name().as_str());
        found.cloned().ok_or_else(|| EngineError::new(ErrorKind::NotFound, unknown_tool(name, known)))
    }
}

//! Asking without acting: listings, status, explanations, the journal.

use crate::access::VerifiedPeer;
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use crate::resolve::file_problem;
use crate::tool_flow::{Proposal, alleged};
use palyra_journal::{Against, Head, Verdict};
use palyra_policy::{PolicyAction, PolicyResource};
use palyra_protocol::{
    CallId, CallRecord, ChainedEvent, Checkpoint, DecisionKind, Digest, JournalId, Problem, PublicKey, ToolCall,
    ToolDecision, ToolDefinition,
};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

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
    /// Where tools work.
    pub workspace_root: PathBuf,
    /// Why nothing can be done in it, if so.
    pub workspace_problem: Option<Problem>,
}

/// News of a verification.
#[derive(Debug)]
pub enum VerifyNews {
    /// So many events fitted so far.
    Progress(u64),
    /// The end.
    Done(Result<Verdict, EngineError>),
}

impl Engine {
    /// How the engine is doing.
    ///
    /// # Errors
    /// The peer may not know.
    pub fn status(&self, peer: &VerifiedPeer) -> Result<EngineStatus, EngineError> {
        self.authorize(peer, PolicyAction::DaemonStatus, PolicyResource::Daemon, None)?;
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
            workspace_root: self.workspace().root().to_owned(),
            workspace_problem: self.workspace().in_place().err().map(|error| file_problem(&error)),
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
    pub fn tools(&self, peer: &VerifiedPeer) -> Result<Vec<(&ToolDefinition, bool)>, EngineError> {
        self.authorize(peer, PolicyAction::ToolList, PolicyResource::Daemon, None)?;
        let seen = self.catalog().iter().filter(|tool| self.sees_tool(peer, tool));
        Ok(seen.map(|tool| (tool, self.config().allowed_tools.contains(&tool.name))).collect())
    }

    /// One tool, and whether it is allow-listed.
    ///
    /// # Errors
    /// There is none, or the peer may not know.
    pub fn tool(&self, peer: &VerifiedPeer, name: &str) -> Result<(&ToolDefinition, bool), EngineError> {
        self.authorize(peer, PolicyAction::ToolList, PolicyResource::Daemon, None)?;
        let unknown = |problem| EngineError::new(ErrorKind::NotFound, problem);
        let tool = self.catalog().find(name).map_err(unknown)?;
        if !self.sees_tool(peer, tool) {
            // What one may not see is not there, and nothing near it is suggested.
            let message = format!("there is no tool `{name}`");
            return Err(unknown(Problem::new("unknown_tool", message, "`palyra tools list` shows them all")));
        }
        Ok((tool, self.config().allowed_tools.contains(&tool.name)))
    }

    /// What would be decided about a call, and why. Nothing is recorded or carried out.
    ///
    /// # Errors
    /// The proposal is no call, or the peer may not ask.
    pub async fn explain(
        &self,
        peer: &VerifiedPeer,
        proposal: Proposal,
    ) -> Result<(Arc<CallRecord>, ToolDecision), EngineError> {
        // The owner who asks about an agent's call asks in their own name.
        self.authorize_as(peer.principal(), peer, PolicyAction::PolicyExplain, PolicyResource::PolicySet, None)?;
        let room = self.room_for_call(peer, &proposal.tool);
        let token = room.as_ref().map_or_else(|_| peer.token().cloned(), Clone::clone);
        let resolved = self
            .resolve(&CallId::mint(), &alleged(peer, token, proposal))
            .await
            .map_err(|refusal| EngineError::new(ErrorKind::Invalid, refusal.problem))?;
        let mut decision = self.decide_in_full(&resolved.call);
        // What stops the call before policy is asked is the truth about it, whatever policy would say.
        if let Err(barred) = room {
            decision.decision = DecisionKind::Deny;
            decision.rules.clear();
            decision.denial = None;
            decision.people = 0;
            decision.summary = barred.problem.message.clone();
            decision.explanation = serde_json::json!({ "decided_by": barred.problem.code, "problem": barred.problem });
        }
        if decision.decision == DecisionKind::NeedsApproval && decision.people <= 1 {
            self.explain_grant(&resolved.call, &mut decision).await?;
        }
        Ok((resolved.call.record(), decision))
    }

    /// Says of a call that a person would have to approve that one has: a standing grant covers it.
    async fn explain_grant(&self, call: &ToolCall, decision: &mut ToolDecision) -> Result<(), EngineError> {
        let Some(grant) = self.live_grant(call, decision.policy_hash).await? else { return Ok(()) };
        decision.decision = DecisionKind::Allow;
        decision.people = 0;
        decision.summary =
            format!("A person's standing answer covers this call: `{grant}`. Without it: {}", decision.summary);
        if let Some(fields) = decision.explanation.as_object_mut() {
            fields.insert("grant".to_owned(), serde_json::json!(grant));
        }
        Ok(())
    }

    /// Events from `first` on, at most `limit`.
    ///
    /// # Errors
    /// The peer may not read them.
    pub async fn events(&self, peer: &VerifiedPeer, first: u64, limit: u32) -> Result<Vec<ChainedEvent>, EngineError> {
        self.authorize(peer, PolicyAction::JournalRead, PolicyResource::Journal, None)?;
        Ok(self.journal().events(first, limit).await?)
    }

    /// One event.
    ///
    /// # Errors
    /// There is none, or the peer may not read it.
    pub async fn event(&self, peer: &VerifiedPeer, seq: u64) -> Result<ChainedEvent, EngineError> {
        self.authorize(peer, PolicyAction::JournalRead, PolicyResource::Journal, None)?;
        Ok(self.journal().event(seq).await?)
    }

    /// Every event about a call.
    ///
    /// # Errors
    /// The peer may not read them.
    pub async fn events_of_call(&self, peer: &VerifiedPeer, call: &CallId) -> Result<Vec<ChainedEvent>, EngineError> {
        self.authorize(peer, PolicyAction::JournalRead, PolicyResource::Journal, None)?;
        Ok(self.journal().events_of_call(call).await?)
    }

    /// The journal's end, which can be awaited for changes.
    ///
    /// # Errors
    /// The peer may not read it.
    pub fn watch_journal(&self, peer: &VerifiedPeer) -> Result<watch::Receiver<Head>, EngineError> {
        self.authorize(peer, PolicyAction::JournalRead, PolicyResource::Journal, None)?;
        Ok(self.journal().head())
    }

    /// Verifies the whole journal, on a thread and a connection of its own.
    ///
    /// # Errors
    /// The peer may not.
    pub fn verify_journal(
        &self,
        peer: &VerifiedPeer,
        checkpoint: Option<Checkpoint>,
    ) -> Result<mpsc::Receiver<VerifyNews>, EngineError> {
        self.authorize(peer, PolicyAction::JournalVerify, PolicyResource::Journal, None)?;
        let against = checkpoint.map(|checkpoint| Against { checkpoint, key: self.public_key() });
        let path = self.journal().path().to_owned();
        let (news, receiver) = mpsc::channel(16);
        tokio::task::spawn_blocking(move || {
            let mut progress = |seen| drop(news.try_send(VerifyNews::Progress(seen)));
            let verdict = palyra_journal::verify(&path, against.as_ref(), &mut progress);
            drop(news.blocking_send(VerifyNews::Done(verdict.map_err(EngineError::from))));
        });
        Ok(receiver)
    }

    /// A signed statement of the journal's length and last hash.
    ///
    /// # Errors
    /// The peer may not.
    pub fn checkpoint(&self, peer: &VerifiedPeer) -> Result<Checkpoint, EngineError> {
        self.authorize(peer, PolicyAction::JournalCheckpoint, PolicyResource::Journal, None)?;
        Ok(self.journal().checkpoint(self.key()))
    }
}

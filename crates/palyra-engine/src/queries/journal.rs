//! The journal: its events, its verification, its checkpoints.

use crate::access::VerifiedPeer;
use crate::engine::Engine;
use crate::error::EngineError;
use palyra_journal::{Against, Head, Verdict};
use palyra_policy::{PolicyAction, PolicyResource};
use palyra_protocol::{CallId, ChainedEvent, Checkpoint};
use tokio::sync::{mpsc, watch};

/// News of a verification.
#[derive(Debug)]
pub enum VerifyNews {
    /// So many events fitted so far.
    Progress(u64),
    /// The end.
    Done(Result<Verdict, EngineError>),
}

impl Engine {
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

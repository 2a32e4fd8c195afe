//! The trust store, bound to the journal: whom this daemon trusts to sign skills.
//!
//! A change is prepared beside the file, recorded, and then put in place, like a change of the access registry. A store
//! that is not the recorded one trusts nobody: no skill is listed until somebody puts it back, or begins again.

use super::{OpenSkills, blocking, refusals};
use crate::access::VerifiedPeer;
use crate::engine::Engine;
use crate::error::EngineError;
use palyra_policy::{PolicyAction, PolicyResource};
use palyra_protocol::{Digest, JournalEvent, Principal, Problem, PublicKey, SkillCause, Timestamp};
use palyra_skills::trust::{KeyOrigin, KeyState, RotationStatement};
use palyra_skills::{KeyId, PublisherId, SkillTrustStore, TrustChange, TrustDocument};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;

/// The store, or why it is not used.
#[derive(Debug)]
pub(super) struct TrustLink {
    path: PathBuf,
    store: Result<SkillTrustStore, Problem>,
}

impl TrustLink {
    pub(super) fn open(path: PathBuf, recorded: Option<Digest>) -> Self {
        let store = SkillTrustStore::open(&path, recorded).map_err(|error| refusals::store(&error).problem);
        if let Err(problem) = &store {
            tracing::error!(code = problem.code.as_str(), "no skill is trusted: {}", problem.message);
        }
        Self { path, store }
    }

    /// Why nobody is trusted.
    pub(super) fn problem(&self) -> Option<&Problem> {
        self.store.as_ref().err()
    }

    /// What the store knows.
    pub(super) fn document(&self) -> Result<TrustDocument, EngineError> {
        match &self.store {
            Ok(store) => Ok(store.document().clone()),
            Err(problem) => Err(EngineError::new(crate::error::ErrorKind::Unavailable, problem.clone())),
        }
    }
}

/// A key of a publisher, as people are told about it.
#[derive(Debug, Clone, Serialize)]
pub struct TrustedKey {
    /// Whose key it is.
    pub publisher: PublisherId,
    /// Its id.
    pub key_id: KeyId,
    /// The key, in hexadecimal digits.
    pub public_key: String,
    /// `allowlisted` or `tofu`.
    pub origin: KeyOrigin,
    /// When it came here.
    pub added_at: Timestamp,
    /// When it stops to be good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// What it is good for.
    pub state: KeyState,
    /// How many installed versions it has signed.
    pub skills: usize,
}

impl Engine {
    /// The digest of the trust store that was recorded last.
    pub(super) async fn recorded_trust(&self) -> Result<Option<Digest>, EngineError> {
        Ok(match self.journal().last_skill_trust_change().await? {
            Some(JournalEvent::SkillTrustChanged { after, .. }) => Some(after),
            _ => None,
        })
    }

    /// Changes the trust store: prepared, recorded, put in place. The caller holds `changing`.
    pub(super) async fn change_trust(
        &self,
        open: &Arc<OpenSkills>,
        by: &Principal,
        changes: Vec<TrustChange>,
    ) -> Result<(), EngineError> {
        if changes.is_empty() {
            return Ok(());
        }
        let now = self.clock().now();
        let at = Arc::clone(open);
        let prepared = blocking(move || match &at.trust().store {
            Ok(store) => store.prepare(&changes, now).map_err(|error| refusals::store(&error)),
            Err(problem) => Err(EngineError::new(crate::error::ErrorKind::Unavailable, problem.clone())),
        })
        .await??;
        let record = prepared.record().clone();
        let event = JournalEvent::SkillTrustChanged {
            by: by.clone(),
            changes: record.changes,
            revision: record.revision,
            after: record.digest,
        };
        let noted = self.journal().note(&event).await;
        let at = Arc::clone(open);
        let put = blocking(move || match (&mut at.trust().store, noted) {
            (Ok(store), Ok(_)) => store.commit(prepared).map_err(|error| refusals::store(&error)),
            (Ok(store), Err(error)) => {
                store.abandon(prepared).map_err(|error| refusals::store(&error))?;
                Err(error.into())
            }
            (Err(problem), _) => Err(EngineError::new(crate::error::ErrorKind::Unavailable, problem.clone())),
        });
        put.await?
    }

    /// Every key that the trust store knows.
    ///
    /// # Errors
    /// The peer may not see them, or the store is not the recorded one.
    pub fn trusted_keys(&self, peer: &VerifiedPeer) -> Result<Vec<TrustedKey>, EngineError> {
        self.authorize(peer, PolicyAction::SkillList, PolicyResource::Daemon, None)?;
        let open = self.open_skills()?;
        let document = open.trust().document()?;
        let book = open.book();
        let signed_by = |key: &KeyId| {
            let versions = book.iter().flat_map(|(_, entry)| entry.versions.values());
            versions.filter(|version| version.installed.key_id == key.as_str()).count()
        };
        let keys = document.publishers.iter().flat_map(|record| record.keys.iter().map(move |key| (record, key)));
        Ok(keys
            .map(|(record, key)| TrustedKey {
                publisher: record.publisher.clone(),
                key_id: key.key_id.clone(),
                public_key: key.public_key.to_string(),
                origin: key.origin,
                added_at: key.added_at,
                expires_at: key.expires_at,
                state: key.state.clone(),
                skills: signed_by(&key.key_id),
            })
            .collect())
    }

    /// Trusts a key for a publisher.
    ///
    /// # Errors
    /// The peer may not, or the store refuses it.
    pub async fn trust_key(
        &self,
        peer: &VerifiedPeer,
        publisher: PublisherId,
        public_key: PublicKey,
        expires_at: Option<Timestamp>,
    ) -> Result<(), EngineError> {
        self.change_keys(peer, TrustChange::Allowlist { publisher, public_key, expires_at }).await
    }

    /// Takes a key out. What it signed is quarantined.
    ///
    /// # Errors
    /// The peer may not, or the store refuses it.
    pub async fn distrust_key(&self, peer: &VerifiedPeer, key_id: KeyId) -> Result<(), EngineError> {
        self.change_keys(peer, TrustChange::Remove { key_id }).await
    }

    /// Revokes a key for good. What it signed is quarantined before this returns.
    ///
    /// # Errors
    /// The peer may not, or the store refuses it.
    pub async fn revoke_key(&self, peer: &VerifiedPeer, key_id: KeyId, reason: String) -> Result<(), EngineError> {
        self.change_keys(peer, TrustChange::Revoke { key_id, reason }).await
    }

    /// Lets a publisher's new key follow its old one, by a statement that both have signed.
    ///
    /// # Errors
    /// The peer may not, the statement does not hold, or the store refuses it.
    pub async fn rotate_key(&self, peer: &VerifiedPeer, statement: &[u8]) -> Result<(), EngineError> {
        self.authorize(peer, PolicyAction::SkillManage, PolicyResource::Daemon, None)?;
        let statement = RotationStatement::parse(statement).and_then(|read| read.verify().map(|()| read));
        let statement = statement.map_err(|fault| {
            EngineError::invalid(
                fault.code(),
                fault.to_string(),
                "ask the publisher for a statement signed by both keys",
            )
        })?;
        self.change_keys(peer, TrustChange::Rotate(statement)).await
    }

    /// Lets a skill begin again at any version.
    ///
    /// # Errors
    /// The peer may not, or the store refuses it.
    pub async fn reset_versions(&self, peer: &VerifiedPeer, skill: palyra_skills::SkillId) -> Result<(), EngineError> {
        self.change_keys(peer, TrustChange::ResetVersions { skill_id: skill }).await
    }

    async fn change_keys(&self, peer: &VerifiedPeer, change: TrustChange) -> Result<(), EngineError> {
        self.authorize(peer, PolicyAction::SkillManage, PolicyResource::Daemon, None)?;
        let open = self.open_skills()?;
        {
            let _one_at_a_time = open.changing.lock().await;
            self.change_trust(&open, peer.effective(), vec![change]).await?;
        }
        self.audit_all(&open, SkillCause::TrustStore, peer.effective()).await.map(drop)
    }

    /// Begins again with a store that trusts nobody: the way out where the file was lost or changed. Every skill is
    /// quarantined.
    ///
    /// # Errors
    /// The peer may not, or the disk fails.
    pub async fn reset_trust(&self, peer: &VerifiedPeer) -> Result<(), EngineError> {
        self.authorize(peer, PolicyAction::SkillManage, PolicyResource::Daemon, None)?;
        let open = self.open_skills()?;
        {
            let _one_at_a_time = open.changing.lock().await;
            let document = TrustDocument::empty();
            let bytes = document.bytes().map_err(|flaw| EngineError::internal(flaw.to_string()))?;
            let digest = Digest::of(&bytes);
            let event = JournalEvent::SkillTrustChanged {
                by: peer.effective().clone(),
                changes: vec!["an empty trust store, to begin again".to_owned()],
                revision: document.revision,
                after: digest,
            };
            self.journal().note(&event).await?;
            let at = Arc::clone(&open);
            blocking(move || -> Result<(), EngineError> {
                let mut link = at.trust();
                let path = link.path.clone();
                std::fs::write(&path, &bytes).and_then(|()| std::fs::File::open(&path)?.sync_all()).map_err(
                    |error| {
                        let problem =
                            Problem::plain("trust_store_disk", format!("the trust store cannot be written: {error}"));
                        EngineError::new(crate::error::ErrorKind::Unavailable, problem)
                    },
                )?;
                *link = TrustLink::open(path, Some(digest));
                Ok(())
            })
            .await??;
        }
        self.audit_all(&open, SkillCause::TrustStore, peer.effective()).await.map(drop)
    }
}

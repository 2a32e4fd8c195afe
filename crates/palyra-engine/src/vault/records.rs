//! What is recorded of the vault: an access before it happens, a change before it is answered.

use crate::access::VerifiedPeer;
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use palyra_policy::PolicyAction;
use palyra_protocol::{JournalEvent, Principal, Problem, SecretRef, VaultAccess, VaultChange, VaultChangeKind};

impl Engine {
    /// Records that somebody is about to use a secret or to change the vault. Durable before anything is done.
    pub(crate) async fn note_access(&self, access: VaultAccess) -> Result<(), EngineError> {
        self.journal().note(&JournalEvent::VaultAccessed { access: Box::new(access) }).await?;
        Ok(())
    }

    /// Records what was changed. The change has happened: where this fails, that is what the caller is told.
    pub(crate) async fn note_change(
        &self,
        by: Principal,
        what: VaultChangeKind,
        secret: Option<&SecretRef>,
    ) -> Result<(), EngineError> {
        let done = what.as_str();
        let change = VaultChange { by, what, secret: secret.cloned() };
        let noted = self.journal().note(&JournalEvent::VaultChanged { change: Box::new(change) }).await;
        noted.map(drop).map_err(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, "a change of the vault is not on record");
            EngineError::new(
                ErrorKind::Unrecorded,
                Problem::new(
                    "outcome_not_recorded",
                    format!("the vault was changed ({done}), and the journal could not record it"),
                    "make room where the daemon's state is, then look: `palyra vault status`",
                ),
            )
        })
    }

    /// Records that the vault was made, where it was.
    pub(super) async fn note_made(&self, by: &Principal, made: bool) -> Result<(), EngineError> {
        if made { self.note_change(by.clone(), VaultChangeKind::Created {}, None).await } else { Ok(()) }
    }

    /// Records that somebody tried what they may not, and says so.
    pub(super) async fn refuse_secret(
        &self,
        peer: &VerifiedPeer,
        (action, resource): (PolicyAction, String),
        error: EngineError,
    ) -> EngineError {
        let refused = JournalEvent::AccessRefused {
            by: peer.effective().clone(),
            action: action.as_str().to_owned(),
            resource,
            problem: error.problem.clone(),
        };
        match self.journal().note(&refused).await {
            Ok(_) => error,
            Err(failed) => failed.into(),
        }
    }
}

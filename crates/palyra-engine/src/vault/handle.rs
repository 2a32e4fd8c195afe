//! The vault for the daemon's own rooms: values by reference, on record, off the asynchronous threads.

use super::store::{Absent, VaultStore};
use super::{VaultError, refused};
use crate::engine::Engine;
use crate::error::EngineError;
use palyra_policy::PolicyAction;
use palyra_protocol::{
    Principal, PrincipalKind, SecretDelivery, SecretRef, SecretRefError, VaultAccess, VaultChangeKind, VaultScope,
};
use palyra_vault::{PutOptions, SecretValue};
use std::sync::Arc;

/// The vault of a running daemon. Cloning gives another handle to the same one.
#[derive(Debug, Clone)]
pub struct VaultHandle {
    engine: Engine,
}

/// A secret that is the daemon's own: only the daemon's scope admits it, whatever a rule permits.
///
/// # Errors
/// The name is not a secret's.
pub fn daemon_secret(name: &str) -> Result<SecretRef, EngineError> {
    let malformed = |error: SecretRefError| EngineError::invalid(error.code(), error.to_string(), "name it otherwise");
    Ok(SecretRef::new(VaultScope::Principal(daemon()?), name.parse().map_err(malformed)?))
}

/// Who the daemon is when it uses a secret for itself.
pub(super) fn daemon() -> Result<Principal, EngineError> {
    Principal::new(PrincipalKind::System, "palyrad").map_err(|e| EngineError::internal(e.to_string()))
}

impl VaultHandle {
    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine }
    }

    /// The current value of a secret, for the daemon's own use; nothing if there is no such secret. That it is used,
    /// and for what, is on record before the value is opened.
    ///
    /// # Errors
    /// The vault cannot be opened or read, or the use cannot be recorded.
    pub async fn get_for_daemon(
        &self,
        reference: &SecretRef,
        purpose: &str,
    ) -> Result<Option<SecretValue>, EngineError> {
        let access = VaultAccess::new(daemon()?, PolicyAction::VaultGet, purpose).of(reference);
        self.engine.note_access(VaultAccess { via: Some(SecretDelivery::Daemon), ..access }).await?;
        let reference = reference.clone();
        self.engine
            .in_vault(move |store| match store.open(Absent::Leave)? {
                None => Ok(None),
                Some(opened) => match opened.vault.get(&reference) {
                    Ok(opened) => Ok(Some(opened.value)),
                    Err(VaultError::NotFound { .. }) => Ok(None),
                    Err(error) => Err(error),
                },
            })
            .await
    }

    /// Keeps a value of the daemon's own; an earlier one is gone.
    ///
    /// # Errors
    /// It cannot be kept, or not be recorded.
    pub async fn put_for_daemon(
        &self,
        reference: &SecretRef,
        value: SecretValue,
        purpose: &str,
    ) -> Result<(), EngineError> {
        let by = daemon()?;
        self.engine.note_access(VaultAccess::new(by.clone(), PolicyAction::VaultPut, purpose).of(reference)).await?;
        let secret = reference.clone();
        let (made, receipt) = self
            .engine
            .in_vault(move |store| {
                let opened = store.open(Absent::Make)?.ok_or(VaultError::Internal { what: "no vault was made" })?;
                Ok((opened.made, opened.vault.put(&secret, &value, PutOptions::default())?))
            })
            .await?;
        self.engine.note_made(&by, made).await?;
        let what = VaultChangeKind::Put { version: receipt.version, blob: receipt.blob };
        self.engine.note_change(by, what, Some(reference)).await
    }

    /// Forgets a value of the daemon's own; nothing happens if there is none.
    ///
    /// # Errors
    /// It cannot be removed, or not be recorded.
    pub async fn remove_for_daemon(&self, reference: &SecretRef, purpose: &str) -> Result<(), EngineError> {
        let by = daemon()?;
        self.engine.note_access(VaultAccess::new(by.clone(), PolicyAction::VaultDelete, purpose).of(reference)).await?;
        let secret = reference.clone();
        let removed = self
            .engine
            .in_vault(move |store| match store.open(Absent::Leave)?.map(|opened| opened.vault.delete(&secret)) {
                None | Some(Err(VaultError::NotFound { .. })) => Ok(false),
                Some(done) => done.map(|()| true),
            })
            .await?;
        if removed {
            self.engine.note_change(by, VaultChangeKind::Deleted {}, Some(reference)).await?;
        }
        Ok(())
    }
}

impl Engine {
    /// Runs blocking work on the vault on a thread that may wait.
    pub(super) async fn in_vault<T: Send + 'static>(
        &self,
        work: impl FnOnce(&VaultStore) -> Result<T, VaultError> + Send + 'static,
    ) -> Result<T, EngineError> {
        let store = Arc::clone(self.vault_store());
        match tokio::task::spawn_blocking(move || work(&store)).await {
            Ok(done) => done.map_err(|error| refused(&error)),
            Err(panic) => Err(EngineError::internal(format!("the vault's work broke off: {panic}"))),
        }
    }
}

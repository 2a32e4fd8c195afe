//! The authority's keys, in the daemon's vault: every use is on record before the key is opened, and a copied state
//! directory holds no key where the vault's own key is elsewhere.

use crate::engine::{Engine, WeakEngine};
use crate::error::EngineError;
use crate::vault::{SecretValue, daemon_secret};
use palyra_identity::{KeyName, KeyVault, KeyVaultError};
use palyra_protocol::Secret;
use std::future::Future;
use tokio::runtime::Handle;

/// The vault's code for "no key opens it now".
const LOCKED: &str = "vault_unlock_failed";

/// Keeps the authority's keys in the vault. Its functions block, so they are called from threads that may.
#[derive(Debug)]
pub(super) struct AuthorityKeys {
    engine: WeakEngine,
    runtime: Handle,
}

impl AuthorityKeys {
    pub(super) fn new(engine: WeakEngine) -> Self {
        Self { engine, runtime: Handle::current() }
    }

    fn in_vault<T, F: Future<Output = Result<T, EngineError>>>(
        &self,
        name: &KeyName,
        what: &'static str,
        work: impl FnOnce(Engine) -> F,
    ) -> Result<T, KeyVaultError> {
        let failed = |source| KeyVaultError::Failed { name: name.clone(), what, source };
        let engine = self.engine.upgrade().ok_or_else(|| failed("the daemon ends".into()))?;
        self.runtime.block_on(work(engine)).map_err(|error| match error.problem.code.as_str() {
            LOCKED => KeyVaultError::Locked,
            _ => failed(Box::new(error)),
        })
    }
}

impl KeyVault for AuthorityKeys {
    fn load(&self, name: &KeyName) -> Result<Option<Secret>, KeyVaultError> {
        self.in_vault(name, "cannot be read", async |engine| {
            let found = engine.vault().get_for_daemon(&daemon_secret(name.as_str())?, "sign a certificate").await?;
            Ok(found.map(|key| Secret::new(key.expose().to_vec())))
        })
    }

    fn store(&self, name: &KeyName, key: &Secret) -> Result<(), KeyVaultError> {
        self.in_vault(name, "cannot be kept", async |engine| {
            let key = SecretValue::new(key.expose().to_vec()).map_err(|error| crate::vault::refused(&error))?;
            engine.vault().put_for_daemon(&daemon_secret(name.as_str())?, key, "keep the authority's key").await
        })
    }

    fn remove(&self, name: &KeyName) -> Result<(), KeyVaultError> {
        self.in_vault(name, "cannot be removed", async |engine| {
            engine.vault().remove_for_daemon(&daemon_secret(name.as_str())?, "forget a retired key").await
        })
    }
}

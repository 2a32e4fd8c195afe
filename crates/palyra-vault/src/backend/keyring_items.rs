//! Blobs as items of the system's keyring.
//!
//! The blobs are encrypted all the same: a reader of the keyring still needs a key slot of the vault.

use super::{BackendKind, BlobBackend, BlobId};
use crate::envelope::MAX_BLOB;
use crate::error::VaultError;
use crate::keyring::Keyring;
use palyra_protocol::VaultId;
use std::sync::Arc;

/// What Windows keeps in one credential.
const CREDENTIAL_LIMIT: usize = 5 * 512;

/// Items of the system's keyring.
#[derive(Debug)]
pub struct KeyringBackend {
    kind: BackendKind,
    keyring: Arc<Keyring>,
    service: String,
}

/// The service name under which a vault's items are kept.
pub(crate) fn service(vault: &VaultId) -> String {
    format!("palyra-vault-{}", vault.body())
}

impl KeyringBackend {
    /// The items of one vault.
    #[must_use]
    pub fn new(kind: BackendKind, keyring: Arc<Keyring>, vault: &VaultId) -> Self {
        Self { kind, keyring, service: service(vault) }
    }
}

impl BlobBackend for KeyringBackend {
    fn kind(&self) -> BackendKind {
        self.kind
    }

    fn limit(&self) -> usize {
        match self.kind {
            BackendKind::CredentialManager => CREDENTIAL_LIMIT,
            _ => MAX_BLOB,
        }
    }

    fn read(&self, id: BlobId) -> Result<Option<Vec<u8>>, VaultError> {
        let bytes = self.keyring.read(&self.service, &id.to_string())?;
        Ok(bytes.map(|bytes| bytes.to_vec()))
    }

    fn write(&self, id: BlobId, bytes: &[u8]) -> Result<(), VaultError> {
        if bytes.len() > self.limit() {
            return Err(VaultError::BackendLimit { backend: self.kind, bytes: bytes.len(), limit: self.limit() });
        }
        self.keyring.write(&self.service, &id.to_string(), bytes)
    }

    fn remove(&self, id: BlobId) -> Result<bool, VaultError> {
        self.keyring.remove(&self.service, &id.to_string())
    }

    fn list(&self) -> Result<Vec<BlobId>, VaultError> {
        // Keys of slots are kept under the same service, by names that are no ids.
        Ok(self.keyring.list(&self.service)?.iter().filter_map(|name| BlobId::from_hex(name)).collect())
    }
}

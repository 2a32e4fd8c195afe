//! Where blobs are kept.
//!
//! A backend keeps encrypted blobs by their id and knows nothing of keys. Which one a vault uses is written in the
//! vault's header when the vault is made, and changes only by a migration.

mod files;
mod keyring_items;

pub use files::FileBackend;
pub(crate) use files::TEMPORARY;
pub use keyring_items::KeyringBackend;
pub(crate) use keyring_items::service as keyring_service;

use crate::error::VaultError;
use crate::keyring::{KEYRING_TIMEOUT, Keyring};
use palyra_protocol::digest::DigestBuilder;
use palyra_protocol::{Digest, SecretRef, VaultId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Where a vault keeps its blobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackendKind {
    /// Encrypted files in the vault's directory.
    Files,
    /// The Secret Service of a Linux desktop.
    SecretService,
    /// The Keychain of macOS.
    Keychain,
    /// The Credential Manager of Windows, which DPAPI protects.
    CredentialManager,
}

impl BackendKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Files, Self::SecretService, Self::Keychain, Self::CredentialManager];

    /// The keyring of the system that this program was built for.
    #[must_use]
    pub const fn native() -> Self {
        if cfg!(windows) {
            Self::CredentialManager
        } else if cfg!(target_os = "macos") {
            Self::Keychain
        } else {
            Self::SecretService
        }
    }

    /// The word for it in configuration and header.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::SecretService => "secret_service",
            Self::Keychain => "keychain",
            Self::CredentialManager => "credential_manager",
        }
    }
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Files => "encrypted files",
            Self::SecretService => "the Secret Service",
            Self::Keychain => "the Keychain",
            Self::CredentialManager => "the Credential Manager",
        })
    }
}

/// How a new vault's backend is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BackendChoice {
    /// Encrypted files.
    #[default]
    Default,
    /// This one, or none.
    Explicit(BackendKind),
    /// The system's keyring if it can be used right now, encrypted files otherwise.
    Detect,
}

/// The name of a blob: a digest of scope and name, so that no name becomes part of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobId(Digest);

impl BlobId {
    /// The blob of a secret.
    #[must_use]
    pub fn of(reference: &SecretRef) -> Self {
        let scope = reference.scope().to_string();
        let digest = DigestBuilder::new("palyra.vault.blob.v1")
            .field(scope.as_bytes())
            .field(reference.name().as_str().as_bytes())
            .finish();
        Self(digest)
    }

    /// Reads 64 hexadecimal digits.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }
}

impl fmt::Display for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Keeps encrypted blobs.
///
/// A write is durable when it returns, and replaces the blob whole or leaves it as it was. Writes come from one thread
/// at a time; reads may come at any time.
pub trait BlobBackend: Send + Sync + fmt::Debug {
    /// Which one it is.
    fn kind(&self) -> BackendKind;

    /// The largest blob that it keeps.
    fn limit(&self) -> usize;

    /// A blob; nothing if there is none.
    ///
    /// # Errors
    /// The host's.
    fn read(&self, id: BlobId) -> Result<Option<Vec<u8>>, VaultError>;

    /// At least the first `length` bytes of a blob, or all of it.
    ///
    /// # Errors
    /// The host's.
    fn read_beginning(&self, id: BlobId, length: usize) -> Result<Option<Vec<u8>>, VaultError> {
        let _ = length;
        self.read(id)
    }

    /// Replaces a blob, or adds it.
    ///
    /// # Errors
    /// The host's; the blob is then as it was.
    fn write(&self, id: BlobId, bytes: &[u8]) -> Result<(), VaultError>;

    /// Replaces or adds several blobs, each by itself; cheaper than one after the other where the host allows.
    ///
    /// # Errors
    /// The host's; some may have been replaced then.
    fn write_all(&self, blobs: &[(BlobId, Vec<u8>)]) -> Result<(), VaultError> {
        blobs.iter().try_for_each(|(id, bytes)| self.write(*id, bytes))
    }

    /// Removes a blob; tells whether there was one.
    ///
    /// # Errors
    /// The host's.
    fn remove(&self, id: BlobId) -> Result<bool, VaultError>;

    /// The ids of all blobs, in no order.
    ///
    /// # Errors
    /// The host's.
    fn list(&self) -> Result<Vec<BlobId>, VaultError>;
}

/// Gives access to backends and to the keyring; tests bring their own.
pub trait Backends: Send + Sync + fmt::Debug {
    /// Opens the backend of a vault that lies in this directory.
    ///
    /// # Errors
    /// This system has no such backend, or it cannot be used.
    fn open(&self, kind: BackendKind, vault: &VaultId, directory: &Path) -> Result<Arc<dyn BlobBackend>, VaultError>;

    /// The keyring, for key slots.
    ///
    /// # Errors
    /// It cannot be used.
    fn keyring(&self) -> Result<Arc<Keyring>, VaultError>;
}

/// The backends of this system.
#[derive(Debug)]
pub struct SystemBackends {
    timeout: Duration,
    keyring: Mutex<Option<Arc<Keyring>>>,
}

impl SystemBackends {
    /// With a limit to how long the keyring may take.
    #[must_use]
    pub fn new(timeout: Duration) -> Self {
        Self { timeout, keyring: Mutex::new(None) }
    }
}

impl Default for SystemBackends {
    fn default() -> Self {
        Self::new(KEYRING_TIMEOUT)
    }
}

impl Backends for SystemBackends {
    fn open(&self, kind: BackendKind, vault: &VaultId, directory: &Path) -> Result<Arc<dyn BlobBackend>, VaultError> {
        match kind {
            BackendKind::Files => Ok(Arc::new(FileBackend::open(directory)?)),
            native if native == BackendKind::native() => {
                Ok(Arc::new(KeyringBackend::new(native, self.keyring()?, vault)))
            }
            backend => Err(VaultError::NoSuchBackend { backend }),
        }
    }

    fn keyring(&self) -> Result<Arc<Keyring>, VaultError> {
        let mut keyring = self.keyring.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(keyring) = &*keyring {
            return Ok(Arc::clone(keyring));
        }
        let opened = Arc::new(Keyring::of_system(self.timeout)?);
        Ok(Arc::clone(keyring.insert(opened)))
    }
}

/// Whether a backend can be used right now: a blob is written, read and removed again.
///
/// # Errors
/// Why it cannot.
pub fn probe(backend: &dyn BlobBackend) -> Result<(), VaultError> {
    let id = BlobId(Digest::of(b"palyra.vault.probe"));
    let bytes: [u8; 32] = crate::aead::random_array()?;
    backend.write(id, &bytes)?;
    let read = backend.read(id)?;
    backend.remove(id)?;
    if read.as_deref() == Some(&bytes[..]) {
        return Ok(());
    }
    Err(VaultError::damaged(&backend.kind().to_string(), "it did not give back what was written"))
}

/// Chooses the backend of a new vault, once.
pub(crate) fn choose(
    choice: BackendChoice,
    backends: &dyn Backends,
    vault: &VaultId,
    directory: &Path,
) -> Result<Arc<dyn BlobBackend>, VaultError> {
    let usable = |kind| {
        let backend = backends.open(kind, vault, directory)?;
        probe(&*backend).map(|()| backend)
    };
    match choice {
        BackendChoice::Default => usable(BackendKind::Files),
        BackendChoice::Explicit(kind) => usable(kind),
        BackendChoice::Detect => usable(BackendKind::native()).or_else(|_| usable(BackendKind::Files)),
    }
}

//! The vault in the daemon: who may use which secret, for what, and on record.
//!
//! The library `palyra-vault` keeps secrets and knows nobody. This module opens it for the daemon, asks scope and
//! policy before anything is done, and records every access before it happens.
//!
//! # For other parts of the daemon
//!
//! [`Engine::vault`](crate::Engine::vault) gives a [`VaultHandle`]. What the daemon itself needs (the key of an
//! authority, a model provider's key, a skill's secret) it reads with [`VaultHandle::get_for_daemon`], and keeps with
//! [`VaultHandle::put_for_daemon`]:
//!
//! ```no_run
//! # async fn example(engine: palyra_engine::Engine) -> Result<(), palyra_engine::EngineError> {
//! use palyra_engine::vault::daemon_secret;
//!
//! let reference = daemon_secret("identity/authority-1")?;
//! if let Some(key) = engine.vault().get_for_daemon(&reference, "sign a device's certificate").await? {
//!     let bytes: &[u8] = key.expose();
//!     # let _ = bytes;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The methods are asynchronous; blocking work goes to threads that may wait. Code that is itself on such a thread uses
//! `tokio::runtime::Handle::current().block_on(…)`. Secrets of a call go another way.
//!
//! Nothing in here prints a value, and no value becomes part of an event, an error or a log line.

mod attach;
mod blame;
mod handle;
mod manage;
mod records;
mod redact;
mod release;
mod store;
mod tend;

pub(crate) use attach::RunCredentials;
pub use handle::{VaultHandle, daemon_secret};
pub use manage::{NewSecret, PlainBinding, SecretListing, SlotRequest, VaultView};
pub use palyra_vault::{
    BackendChoice, BackendKind, ImportConflict, KeyCommand, MigrationReport, NewBinding, PutOptions, Replaces,
    SecretMetadata, SecretValue, VaultError,
};
pub(crate) use redact::{RedactedOutput, Replaced, clean_record, schema as redaction_schema};
pub(crate) use release::{OpenValue, Released, ReleasedValues};
pub use store::VaultSettings;
pub(crate) use store::VaultStore;

use crate::error::{EngineError, ErrorKind};
use palyra_protocol::Problem;

/// A vault's refusal as a caller is told it.
#[must_use]
pub fn refused(error: &VaultError) -> EngineError {
    use VaultError as E;
    let kind = match error {
        E::NotFound { .. } | E::NoSuchVersion { .. } | E::NoSuchSlot { .. } | E::NoSuchBinding { .. } => {
            ErrorKind::NotFound
        }
        E::ValueEmpty
        | E::ValueTooLarge { .. }
        | E::Passphrase { .. }
        | E::PassphraseCost
        | E::Label { .. }
        | E::Binding(_)
        | E::ExportPassphrase
        | E::BackendLimit { .. }
        | E::NoSuchBackend { .. } => ErrorKind::Invalid,
        E::Conflict { .. }
        | E::TooManyVersions { .. }
        | E::Exists { .. }
        | E::NoVault { .. }
        | E::LastSlot
        | E::TooManySlots { .. }
        | E::SlotUnavailable { .. }
        | E::ImportConflict { .. }
        | E::OtherBackend { .. }
        | E::Unfinished { .. } => ErrorKind::Conflict,
        E::Unlock { .. }
        | E::KeyFile { .. }
        | E::Command { .. }
        | E::Locked { .. }
        | E::DiskFull
        | E::Io { .. }
        | E::Transfer { .. }
        | E::NoRandomness
        | E::KeyringLocked
        | E::KeyringUnavailable { .. }
        | E::KeyringTimeout { .. } => ErrorKind::Unavailable,
        E::Damaged { .. } | E::Format { .. } | E::Internal { .. } => ErrorKind::Internal,
    };
    let problem = Problem { hint: hint(error), ..Problem::plain(error.code(), with_cause(error)) };
    EngineError::new(kind, problem)
}

fn hint(error: &VaultError) -> Option<String> {
    match error {
        VaultError::NotFound { reference } => Some(format!("put it in: `palyra vault put {}`", plain(reference))),
        VaultError::Unlock { .. } => Some("unlock it with a passphrase: `palyra vault unlock`".to_owned()),
        other => other.hint().map(str::to_owned),
    }
}

fn with_cause(error: &VaultError) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

/// A reference as people type it.
pub(crate) fn plain(reference: &palyra_protocol::SecretRef) -> String {
    format!("{}/{}", reference.scope(), reference.name())
}

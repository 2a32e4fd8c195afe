//! The vault: secrets that agents use and never see.
//!
//! - [`Vault`] keeps secrets by reference (`vault://<scope>/<name>`), in versions, each value encrypted under a key of its own.
//!   Those keys are encrypted under one key-encryption key, which key slots open: a key file, a passphrase, the system's
//!   keyring, a command of the operator's.
//! - [`BlobBackend`] is where the encrypted blobs are: files, or the system's keyring.
//! - [`Bindings`] say which credential goes with which request.
//! - [`Redactor`] finds released values, in any usual encoding, in whatever a run writes.
//!
//! `docs/formats/vault.md` is the format in words, with test vectors. This crate never prints a value, and depends on nothing of
//! ours but the vocabulary.

mod aead;
mod backend;
mod binding;
mod command;
mod crash;
mod durable;
mod envelope;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod header;
mod keyring;
mod lock;
mod redaction;
mod slots;
mod transfer;
mod value;
mod vault;

pub use backend::{
    BackendChoice, BackendKind, Backends, BlobBackend, BlobId, FileBackend, KeyringBackend, SystemBackends, probe,
};
pub use binding::{
    Binding, BindingError, Bindings, BoundHost, BoundProgram, CredentialRequest, EndpointMismatch, HeaderTemplate,
    MAX_BINDINGS, Method, MismatchReason, NewBinding, PathPattern, RenderedHeader, Scheme, placeholder,
};
pub use command::{COMMAND_TIMEOUT, CommandFault, KeyCommand};
pub use envelope::MAX_VERSIONS;
pub use error::{SlotFailure, VaultError};
pub use keyring::{KEYRING_TIMEOUT, Keyring};
pub use redaction::{
    Coverage, MARKER, MIN_REDACTED, Mask, RedactionStream, Redactions, Redactor, RedactorBuilder, StreamEnd,
};
pub use slots::{KeySources, MAX_PASSPHRASE, MAX_SLOTS, NewSlot, PassphraseCost, SlotInfo, SlotKind};
pub use transfer::{ExportReport, ImportConflict, ImportReport};
pub use value::{MAX_VALUE, SecretValue};
pub use vault::{
    DamagedBlob, Listing, MigrationReport, OpenedSecret, Pending, PutOptions, PutReceipt, RekeyReport, Replaces,
    SecretMetadata, Surroundings, Vault, VaultStatus, VersionMetadata,
};

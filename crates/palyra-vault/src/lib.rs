//! The vault: secrets that agents use and never see.
//!
//! - [`Vault`] keeps secrets by reference (`vault://<scope>/<name>`), in versions, each value encrypted under a key of
//!   its own. Those keys are encrypted under one key-encryption key, which key slots open: a key file, a passphrase,
//!   the system's keyring, a command of the operator's.
//! - [`BlobBackend`] is where the encrypted blobs are: files, or the system's keyring.
//! - [`Bindings`] say which credential goes with which request.
//! - [`Redactor`] finds released values, in any usual encoding, in whatever a run writes.
//!
//! `docs/formats/vault.md` is the format in words, with test vectors. This crate never prints a value, and depends on
//! nothing of ours but the vocabulary.
//!
//! All of it is blocking: asynchronous callers use a thread for blocking work. `get` takes microseconds from a file and
//! up to [`KEYRING_TIMEOUT`] from a keyring; opening by a passphrase takes what its cost says.
//!
//! # Use
//!
//! A daemon holds one [`Vault`] for as long as it runs. For a call whose permit covers a secret it takes three steps:
//! it opens the secret, has the run's [`Redactor`] look for it, and only then hands it to what needs it.
//!
//! ```
//! use palyra_vault::*;
//! use std::sync::Arc;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let state = tempfile::tempdir()?;
//! # let state = state.path();
//! // Once: a vault in files, opened by a key file. Later: `Vault::open(&path, &KeySources::none().key_file(key), …)`.
//! let slot = ("default".to_owned(), NewSlot::KeyFile(state.join("vault.key")));
//! let vault = Vault::create(&state.join("vault"), BackendChoice::Default, vec![slot], Surroundings::default())?;
//!
//! // A person puts a secret in and binds it.
//! let github: palyra_protocol::SecretRef = "vault://global/github".parse()?;
//! vault.put(&github, &SecretValue::new(b"ghp_0123456789abcdef".to_vec())?, PutOptions::default())?;
//! vault.bind(NewBinding {
//!     secret: github.clone(),
//!     hosts: vec!["api.example.com".parse()?],
//!     header: "Authorization: Bearer {}".parse()?,
//!     program: None,
//!     methods: vec!["GET".parse()?],
//!     path: Some("/repos/*".parse()?),
//! })?;
//!
//! // A run whose permit covers the secret: open it, and look for it in whatever the run writes.
//! let opened = vault.get(&github)?;
//! let mut builder = Redactor::builder();
//! builder.add(&github, &opened.value);
//! let redactor = Arc::new(builder.build()?);
//!
//! // The proxy asks what goes with a request. A mismatch is a 403 with `code()` and `ask_for()`.
//! let bindings = vault.bindings();
//! let permitted = [github.clone()];
//! let request = CredentialRequest {
//!     scheme: Scheme::Https,
//!     host: "api.example.com",
//!     port: 443,
//!     method: "GET",
//!     path: "/repos/x",
//!     program: None,
//!     permitted: &permitted,
//!     presented: &[],
//! };
//! for binding in bindings.credentials_for(request)? {
//!     let header = binding.header().render(binding.secret(), &opened.value)?;
//!     assert_eq!(header.name(), "Authorization");
//! }
//! let refused = bindings.credentials_for(CredentialRequest { path: "/user", ..request }).unwrap_err();
//! assert_eq!(refused.code(), "credential_endpoint_mismatch");
//!
//! // Output, errors, logs, replies and journal entries go through the redactor first.
//! let mut stream = RedactionStream::new(Arc::clone(&redactor), Mask::Marker);
//! let mut shown = Vec::new();
//! stream.push(b"token: ghp_01234", &mut shown);
//! stream.push(b"56789abcdef\n", &mut shown);
//! stream.finish(StreamEnd::Whole, &mut shown);
//! assert_eq!(shown, b"token: [redacted]\n");
//! assert_eq!(stream.redactions(), [(github, 1)]);
//! # Ok(())
//! # }
//! ```

mod aead;
mod backend;
mod binding;
mod command;
mod crash;
mod durable;
mod entry_key;
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
pub use entry_key::EntryKey;
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

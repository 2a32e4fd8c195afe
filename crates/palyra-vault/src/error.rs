//! What can go wrong in the vault, by whose fault. No message and no field holds the value of a secret.

use crate::backend::BackendKind;
use crate::binding::BindingError;
use crate::command::CommandFault;
use crate::envelope::EnvelopeFault;
use crate::slots::SlotKind;
use palyra_protocol::{BindingId, SecretRef};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why the vault refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    // The caller's.
    /// There is no such secret.
    #[error("there is no secret `{reference}`")]
    NotFound {
        /// The reference that was given.
        reference: SecretRef,
    },
    /// The secret has no such version, or no longer.
    #[error("`{reference}` has no version {version}, or its grace is over")]
    NoSuchVersion {
        /// The reference that was given.
        reference: SecretRef,
        /// The version that was given.
        version: u64,
    },
    /// The secret changed since the caller looked, or exists where it must not.
    #[error("`{reference}` is not as expected: {}", current_version(*found))]
    Conflict {
        /// The reference that was given.
        reference: SecretRef,
        /// Its current version; nothing if there is no such secret.
        found: Option<u64>,
    },
    /// A value of no bytes.
    #[error("the value of a secret is empty")]
    ValueEmpty,
    /// A value over the limit.
    #[error("the value has {bytes} bytes; at most {limit} are kept")]
    ValueTooLarge {
        /// How many there are.
        bytes: usize,
        /// How many there may be.
        limit: usize,
    },
    /// Too many versions are still in their grace.
    #[error("the secret has {limit} versions that are still in their grace")]
    TooManyVersions {
        /// How many there may be.
        limit: usize,
    },
    /// A vault is there already.
    #[error("`{}` holds a vault already", path.display())]
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// There is no vault.
    #[error("`{}` holds no vault", path.display())]
    NoVault {
        /// The directory.
        path: PathBuf,
    },
    /// A vault needs a way to be opened.
    #[error("a vault needs at least one key slot")]
    LastSlot,
    /// There are too many slots.
    #[error("a vault has at most {limit} key slots")]
    TooManySlots {
        /// How many there may be.
        limit: usize,
    },
    /// There is no such slot.
    #[error("there is no key slot {slot}")]
    NoSuchSlot {
        /// The number that was given.
        slot: u32,
    },
    /// A passphrase that no slot accepts.
    #[error("a passphrase has 1 to {limit} bytes")]
    Passphrase {
        /// The longest.
        limit: usize,
    },
    /// A cost that is worth nothing, or that this machine cannot pay.
    #[error("the cost of a passphrase is 8 MiB to 1 GiB of memory, 1 to 16 passes and 1 to 16 lanes")]
    PassphraseCost,
    /// A label or name that is too long or holds something else than text.
    #[error("a label has at most {limit} characters, and none that a terminal obeys")]
    Label {
        /// The longest.
        limit: usize,
    },
    /// A new KEK cannot be locked into a slot whose secret is not at hand.
    #[error("key slot {slot} ({kind}) cannot be given the new key: {reason}")]
    SlotUnavailable {
        /// Which slot.
        slot: u32,
        /// Its kind.
        kind: SlotKind,
        /// Why.
        reason: String,
    },
    /// A binding that cannot be used.
    #[error(transparent)]
    Binding(#[from] BindingError),
    /// There is no such binding.
    #[error("there is no binding `{id}`")]
    NoSuchBinding {
        /// The id that was given.
        id: BindingId,
    },
    /// An import would replace a secret.
    #[error("`{reference}` is in the vault already; nothing was imported")]
    ImportConflict {
        /// The secret.
        reference: SecretRef,
    },
    /// The vault keeps its secrets elsewhere than the caller asked.
    #[error("this vault keeps its secrets in {recorded}, not in {asked}")]
    OtherBackend {
        /// What the vault says.
        recorded: BackendKind,
        /// What was asked for.
        asked: BackendKind,
    },
    /// Something else must be finished first.
    #[error("a {what} was interrupted and must be finished first")]
    Unfinished {
        /// What.
        what: &'static str,
    },

    // Whoever holds a key.
    /// No slot could be opened.
    #[error("no key slot could be opened: {}", joined(failures))]
    Unlock {
        /// What was tried.
        failures: Vec<SlotFailure>,
    },
    /// A key file that cannot be used.
    #[error("the key file `{}` {what}", path.display())]
    KeyFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The external command did not do its part.
    #[error("the key command `{program}` {fault}")]
    Command {
        /// The program.
        program: String,
        /// What went wrong.
        fault: CommandFault,
    },
    /// The passphrase does not open the exported file.
    #[error("the passphrase does not open this file, or its beginning was changed")]
    ExportPassphrase,

    // The host's.
    /// Another process has the vault open.
    #[error("another process has the vault `{}` open", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// No room to write in.
    #[error("the vault's disk is full: nothing was changed")]
    DiskFull,
    /// A file or directory could not be used.
    #[error("`{}` {what}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// What failed.
        what: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// An exported file could not be read or written.
    #[error("the exported file cannot be read or written")]
    Transfer {
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The machine's source of randomness did not answer.
    #[error("the machine gives no randomness to make a key from")]
    NoRandomness,
    /// The keyring is locked, or its owner declined to unlock it.
    #[error("the system's keyring is locked")]
    KeyringLocked,
    /// There is no keyring, or it went away.
    #[error("the system's keyring cannot be reached: {reason}")]
    KeyringUnavailable {
        /// Why.
        reason: String,
    },
    /// The keyring did not answer in time: it may be asking its owner to unlock it.
    #[error("the system's keyring did not answer within {seconds} seconds")]
    KeyringTimeout {
        /// How long was waited.
        seconds: u64,
    },
    /// The backend keeps no blob of this size.
    #[error("{backend} keeps at most {limit} bytes for a secret with its versions; this one has {bytes}")]
    BackendLimit {
        /// Which.
        backend: BackendKind,
        /// How many there are.
        bytes: usize,
        /// How many there may be.
        limit: usize,
    },
    /// This system has no such backend.
    #[error("this system has no {backend}")]
    NoSuchBackend {
        /// Which.
        backend: BackendKind,
    },

    // Damage.
    /// Something stored is not what was written.
    #[error("{what} is damaged: {reason}")]
    Damaged {
        /// What.
        what: String,
        /// How it shows.
        reason: String,
    },
    /// Something stored is of another format.
    #[error("{what} has format `{found}`; this version reads `{expected}`")]
    Format {
        /// What.
        what: &'static str,
        /// What was found.
        found: String,
        /// What is understood.
        expected: &'static str,
    },
    /// Something that cannot be.
    #[error("the vault failed: {what}")]
    Internal {
        /// What.
        what: &'static str,
    },
}

/// Why one slot was not opened.
#[derive(Debug)]
pub struct SlotFailure {
    /// Which slot.
    pub slot: u32,
    /// Its kind.
    pub kind: SlotKind,
    /// Why.
    pub reason: String,
}

impl fmt::Display for SlotFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot {} ({}): {}", self.slot, self.kind, self.reason)
    }
}

impl VaultError {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "secret_not_found",
            Self::NoSuchVersion { .. } => "secret_version_not_found",
            Self::Conflict { .. } => "secret_conflict",
            Self::ValueEmpty => "secret_empty",
            Self::ValueTooLarge { .. } => "secret_too_large",
            Self::TooManyVersions { .. } => "secret_too_many_versions",
            Self::Exists { .. } => "vault_exists",
            Self::NoVault { .. } => "vault_missing",
            Self::LastSlot => "vault_last_slot",
            Self::TooManySlots { .. } => "vault_too_many_slots",
            Self::NoSuchSlot { .. } => "vault_slot_not_found",
            Self::Passphrase { .. } => "vault_passphrase_unusable",
            Self::PassphraseCost => "vault_passphrase_cost",
            Self::Label { .. } => "vault_label",
            Self::SlotUnavailable { .. } => "vault_slot_unavailable",
            Self::Binding(error) => error.code(),
            Self::NoSuchBinding { .. } => "binding_not_found",
            Self::ImportConflict { .. } => "import_conflict",
            Self::OtherBackend { .. } => "vault_other_backend",
            Self::Unfinished { .. } => "vault_unfinished",
            Self::Unlock { .. } => "vault_unlock_failed",
            Self::KeyFile { .. } => "vault_key_file",
            Self::Command { .. } => "vault_key_command",
            Self::ExportPassphrase => "export_passphrase",
            Self::Locked { .. } => "vault_in_use",
            Self::DiskFull => "disk_full",
            Self::Io { .. } => "vault_io",
            Self::Transfer { .. } => "export_io",
            Self::NoRandomness => "no_randomness",
            Self::KeyringLocked => "keyring_locked",
            Self::KeyringUnavailable { .. } => "keyring_unavailable",
            Self::KeyringTimeout { .. } => "keyring_timeout",
            Self::BackendLimit { .. } => "vault_backend_limit",
            Self::NoSuchBackend { .. } => "vault_no_such_backend",
            Self::Damaged { .. } => "vault_damaged",
            Self::Format { .. } => "vault_format",
            Self::Internal { .. } => "internal",
        }
    }

    /// What to do about it, where there is something.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::TooManyVersions { .. } => Some("end the grace of an old version, or wait until it is over"),
            Self::LastSlot => Some("add another slot first"),
            Self::SlotUnavailable { .. } => Some("bring the slot's secret, or remove the slot first"),
            Self::ImportConflict { .. } => Some("say whether to skip or to replace secrets that are there"),
            Self::OtherBackend { .. } => Some("move the secrets with `palyra vault migrate`"),
            Self::Unfinished { .. } => Some("run the same command again; it goes on where it stopped"),
            Self::Locked { .. } => Some("the daemon holds the vault while it runs: use the command line against it"),
            Self::DiskFull => Some("make room and try again"),
            Self::KeyringLocked | Self::KeyringTimeout { .. } => Some("unlock the keyring and try again"),
            Self::KeyringUnavailable { .. } => {
                Some("without a desktop session there is no keyring: use a key file or a passphrase")
            }
            Self::BackendLimit { .. } => Some("move the secrets to encrypted files with `palyra vault migrate`"),
            Self::Damaged { .. } => Some("restore it from a backup or an export"),
            _ => None,
        }
    }

    /// A blob that is not what was written.
    pub(crate) fn damaged_blob(reference: &SecretRef, fault: EnvelopeFault) -> Self {
        Self::Damaged { what: format!("the blob of `{reference}`"), reason: fault.to_string() }
    }

    /// Something else that is not what was written.
    pub(crate) fn damaged(what: &str, reason: impl fmt::Display) -> Self {
        Self::Damaged { what: what.to_owned(), reason: reason.to_string() }
    }

    /// A failed file operation; a full disk has a variant of its own.
    pub(crate) fn io(path: &Path, what: &'static str, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull,
            _ => Self::Io { path: path.to_owned(), what, source },
        }
    }
}

fn current_version(found: Option<u64>) -> String {
    found.map_or_else(|| "there is no such secret".to_owned(), |version| format!("its current version is {version}"))
}

fn joined(failures: &[SlotFailure]) -> String {
    if failures.is_empty() {
        return "no slot fits the keys at hand".to_owned();
    }
    failures.iter().map(SlotFailure::to_string).collect::<Vec<_>>().join("; ")
}

//! Key slots, as LUKS has them: any number of ways to the same key-encryption key (KEK).
//!
//! Each slot has a secret of its own: what a key file holds, what a passphrase becomes, what a keyring or a command
//! gives out. A key that follows from that secret encrypts the KEK. The secret of a slot never follows from the KEK, so
//! a KEK that became known is of no use after `rekey`.

mod key_file;
mod passphrase;

pub use passphrase::{MAX_PASSPHRASE, PassphraseCost};

use crate::aead::{Key, NONCE, WRAPPED, associated, random_array};
use crate::backend::Backends;
use crate::command::KeyCommand;
use crate::envelope::{Kek, KekId};
use crate::error::{SlotFailure, VaultError};
use crate::value::SecretValue;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use palyra_protocol::json::canonical_text;
use palyra_protocol::{Timestamp, VaultId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// The most slots of a vault.
pub const MAX_SLOTS: usize = 32;
/// The longest label of a slot.
pub(crate) const MAX_LABEL: usize = 64;

/// What opens a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlotKind {
    /// A file that only its owner may read.
    KeyFile,
    /// An item of the system's keyring.
    Keyring,
    /// A command of the operator's, for key services and hardware.
    Command,
    /// A passphrase.
    Passphrase,
}

impl SlotKind {
    /// The word for it in header and output.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::KeyFile => "key_file",
            Self::Keyring => "keyring",
            Self::Command => "command",
            Self::Passphrase => "passphrase",
        }
    }

    /// What a slot of this kind protects the secrets from, in words for the operator.
    #[must_use]
    pub const fn protects_from(self) -> &'static str {
        match self {
            Self::KeyFile => {
                "Other users of this machine, and anybody who gets the vault's files without the key file: a backup or a copy \
                 that leaves it out."
            }
            Self::Keyring => {
                "Other users of this machine, and anybody who gets the disk or a backup: the keyring is encrypted under the \
                 login password."
            }
            Self::Command => {
                "Anybody who gets the disk or a backup but cannot use the key service: access there can be withdrawn and is \
                 logged there."
            }
            Self::Passphrase => {
                "Anybody who gets the disk or a backup, as far as the passphrase is hard to guess: each guess costs what its \
                 parameters say."
            }
        }
    }

    /// What a slot of this kind does not protect the secrets from.
    #[must_use]
    pub const fn does_not_protect_from(self) -> &'static str {
        match self {
            Self::KeyFile => {
                "Root, programs that run as the same user, and anybody who gets vault and key file together: a stolen disk or a \
                 full backup, unless the disk itself is encrypted."
            }
            Self::Keyring => {
                "Root, and programs of the same user while the keyring is unlocked: the session lets any of them read it."
            }
            Self::Command => "Root, and programs of the same user that can run the command as the daemon does.",
            Self::Passphrase => {
                "Root while the daemon runs, and whoever sees the passphrase typed or finds the place it is kept in for \
                 unattended starts."
            }
        }
    }
}

impl fmt::Display for SlotKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::KeyFile => "key file",
            Self::Keyring => "keyring",
            Self::Command => "command",
            Self::Passphrase => "passphrase",
        })
    }
}

/// A slot, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SlotInfo {
    /// Its number.
    pub slot: u32,
    /// What opens it.
    pub kind: SlotKind,
    /// What the operator called it.
    pub label: String,
    /// When it was made.
    pub created_at: Timestamp,
}

/// A slot that is to be made.
#[expect(missing_debug_implementations, reason = "it may hold a passphrase")]
pub enum NewSlot {
    /// A key file. Where there is none it is made; one that is there is used.
    KeyFile(PathBuf),
    /// A passphrase, and what guessing it shall cost.
    Passphrase(SecretValue, PassphraseCost),
    /// An item of the system's keyring.
    Keyring,
    /// A command of the operator's.
    Command(KeyCommand),
}

/// Where secrets of slots can be found when a vault is opened.
#[derive(Default)]
#[expect(missing_debug_implementations, reason = "it may hold passphrases")]
pub struct KeySources {
    pub(crate) key_files: Vec<PathBuf>,
    pub(crate) passphrases: Vec<SecretValue>,
    pub(crate) commands: Vec<KeyCommand>,
    pub(crate) keyring: bool,
}

impl KeySources {
    /// Nowhere.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Also in this key file.
    #[must_use]
    pub fn key_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.key_files.push(path.into());
        self
    }

    /// Also by this passphrase.
    #[must_use]
    pub fn passphrase(mut self, passphrase: SecretValue) -> Self {
        self.passphrases.push(passphrase);
        self
    }

    /// Also in the system's keyring.
    #[must_use]
    pub fn keyring(mut self) -> Self {
        self.keyring = true;
        self
    }

    /// Also from this command.
    #[must_use]
    pub fn command(mut self, command: KeyCommand) -> Self {
        self.commands.push(command);
        self
    }
}

/// A slot, as it is written in the vault's header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SlotRecord {
    pub(crate) slot: u32,
    pub(crate) label: String,
    pub(crate) created_at: Timestamp,
    pub(crate) lock: SlotLock,
    #[serde(with = "hex::serde")]
    salt: [u8; 32],
    #[serde(with = "hex::serde")]
    nonce: [u8; NONCE],
    #[serde(with = "hex::serde")]
    wrapped: [u8; WRAPPED],
}

/// How the secret of a slot is found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", deny_unknown_fields)]
pub(crate) enum SlotLock {
    KeyFile,
    Keyring,
    Command {
        /// What the operator's configuration calls the command.
        name: String,
        /// What the command gave out to find the secret by, in Base64.
        handle: String,
    },
    Passphrase(PassphraseCost),
}

impl SlotLock {
    fn kind(&self) -> SlotKind {
        match self {
            Self::KeyFile => SlotKind::KeyFile,
            Self::Keyring => SlotKind::Keyring,
            Self::Command { .. } => SlotKind::Command,
            Self::Passphrase(_) => SlotKind::Passphrase,
        }
    }
}

/// What slots need to know of the vault around them.
#[derive(Clone, Copy)]
pub(crate) struct SlotContext<'a> {
    pub(crate) vault: &'a VaultId,
    pub(crate) backends: &'a dyn Backends,
}

impl SlotRecord {
    pub(crate) fn info(&self) -> SlotInfo {
        SlotInfo { slot: self.slot, kind: self.kind(), label: self.label.clone(), created_at: self.created_at }
    }

    pub(crate) fn kind(&self) -> SlotKind {
        self.lock.kind()
    }

    /// Makes a slot that opens to this KEK.
    pub(crate) fn make(
        context: SlotContext<'_>,
        kek: &Kek,
        new: NewSlot,
        stamp: SlotStamp,
    ) -> Result<Self, VaultError> {
        let salt = random_array()?;
        let (lock, secret) = new_secret(context, stamp.slot, &salt, new)?;
        let mut record = Self {
            slot: stamp.slot,
            label: stamp.label,
            created_at: stamp.created_at,
            lock,
            salt,
            nonce: [0; NONCE],
            wrapped: [0; WRAPPED],
        };
        record.lock_in(context.vault, kek, &secret)?;
        Ok(record)
    }

    /// Encrypts the KEK under the slot's secret.
    fn lock_in(&mut self, vault: &VaultId, kek: &Kek, secret: &Key) -> Result<(), VaultError> {
        self.nonce = random_array()?;
        let key = secret.derive(&self.salt, "palyra.vault.slot.v1")?;
        self.wrapped = key.wrap(&self.nonce, &self.associated(vault, kek.id)?, &kek.key)?;
        Ok(())
    }

    fn associated(&self, vault: &VaultId, kek: KekId) -> Result<Vec<u8>, VaultError> {
        let lock = canonical_text(&self.lock).map_err(|_| VaultError::Internal { what: "a slot has no text form" })?;
        let fields: [&[u8]; 4] = [vault.as_str().as_bytes(), &kek.0, &self.slot.to_be_bytes(), lock.as_bytes()];
        Ok(associated("palyra.vault.slot.v1", &fields))
    }

    /// The KEK, and the secret that opened the slot.
    fn open(&self, context: SlotContext<'_>, kek: KekId, sources: &KeySources) -> Result<(Key, Key), SlotFailure> {
        let failure = |reason: String| SlotFailure { slot: self.slot, kind: self.kind(), reason };
        let data = self.associated(context.vault, kek).map_err(|error| failure(error.to_string()))?;
        let secrets = self.secrets(context, sources).map_err(failure)?;
        for secret in secrets {
            let key = secret.derive(&self.salt, "palyra.vault.slot.v1").map_err(|error| failure(error.to_string()))?;
            if let Ok(opened) = key.unwrap(&self.nonce, &data, &self.wrapped) {
                return Ok((opened, secret));
            }
        }
        Err(failure(match self.kind() {
            SlotKind::Passphrase => "the passphrase is wrong, or the slot was changed".to_owned(),
            kind => format!("the {kind} gives another key, or the slot was changed"),
        }))
    }

    /// The secrets that may open this slot.
    fn secrets(&self, context: SlotContext<'_>, sources: &KeySources) -> Result<Vec<Key>, String> {
        let text = |error: VaultError| error.to_string();
        match &self.lock {
            SlotLock::KeyFile if sources.key_files.is_empty() => Err("no key file was named".to_owned()),
            SlotLock::KeyFile => {
                let read: Vec<_> = sources.key_files.iter().map(|path| key_file::read(path)).collect();
                one_of(read)
            }
            SlotLock::Keyring if !sources.keyring => Err("the keyring was not to be asked".to_owned()),
            SlotLock::Keyring => keyring_secret(context, self.slot).map(|key| vec![key]).map_err(text),
            SlotLock::Command { name, handle } => {
                let command = sources.commands.iter().find(|command| command.name() == name);
                let command = command.ok_or_else(|| format!("no command `{name}` is configured"))?;
                let handle = BASE64.decode(handle).map_err(|_| "its handle is no Base64".to_owned())?;
                command.unwrap(context.vault, self.slot, &handle).map(|key| vec![key]).map_err(text)
            }
            SlotLock::Passphrase(_) if sources.passphrases.is_empty() => Err("no passphrase was given".to_owned()),
            SlotLock::Passphrase(cost) => {
                let stretched = sources.passphrases.iter().map(|passphrase| cost.stretch(passphrase, &self.salt));
                one_of(stretched.collect())
            }
        }
    }
}

/// What the caller says about a new slot.
pub(crate) struct SlotStamp {
    pub(crate) slot: u32,
    pub(crate) label: String,
    pub(crate) created_at: Timestamp,
}

/// Those that could be read; why not, if there are none.
fn one_of(read: Vec<Result<Key, VaultError>>) -> Result<Vec<Key>, String> {
    let (mut keys, mut reasons) = (Vec::new(), Vec::new());
    for result in read {
        match result {
            Ok(key) => keys.push(key),
            Err(error) => reasons.push(error.to_string()),
        }
    }
    if keys.is_empty() { Err(reasons.join("; ")) } else { Ok(keys) }
}

/// Makes the secret of a new slot and keeps it where the slot will look for it.
fn new_secret(context: SlotContext<'_>, slot: u32, salt: &[u8], new: NewSlot) -> Result<(SlotLock, Key), VaultError> {
    match new {
        NewSlot::KeyFile(path) => Ok((SlotLock::KeyFile, key_file::read_or_make(&path)?)),
        NewSlot::Passphrase(passphrase, cost) => {
            let cost = cost.checked()?;
            let secret = cost.stretch(&passphrase, salt)?;
            Ok((SlotLock::Passphrase(cost), secret))
        }
        NewSlot::Keyring => {
            let secret = Key::generate()?;
            let service = crate::backend::keyring_service(context.vault);
            context.backends.keyring()?.write(&service, &keyring_name(slot), secret.expose())?;
            Ok((SlotLock::Keyring, secret))
        }
        NewSlot::Command(command) => {
            let secret = Key::generate()?;
            let handle = command.wrap(context.vault, slot, &secret)?;
            let name = command.name().to_owned();
            Ok((SlotLock::Command { name, handle: BASE64.encode(handle) }, secret))
        }
    }
}

fn keyring_secret(context: SlotContext<'_>, slot: u32) -> Result<Key, VaultError> {
    let service = crate::backend::keyring_service(context.vault);
    let bytes = context.backends.keyring()?.read(&service, &keyring_name(slot))?;
    let missing = || VaultError::KeyringUnavailable { reason: "it does not hold the slot's key".to_owned() };
    Key::from_slice(&bytes.ok_or_else(missing)?)
        .ok_or_else(|| VaultError::damaged("the slot's key in the keyring", "it has not 32 bytes"))
}

/// Removes what a slot keeps in the keyring.
pub(crate) fn forget(context: SlotContext<'_>, record: &SlotRecord) -> Result<(), VaultError> {
    if record.lock != SlotLock::Keyring {
        return Ok(());
    }
    let service = crate::backend::keyring_service(context.vault);
    context.backends.keyring()?.remove(&service, &keyring_name(record.slot)).map(drop)
}

/// The name of a slot's item in the keyring; no blob has such a name.
fn keyring_name(slot: u32) -> String {
    format!("slot-{slot}")
}

/// Opens the first slot that can be opened, the cheap ones first.
pub(crate) fn unlock(
    context: SlotContext<'_>,
    slots: &[SlotRecord],
    kek: KekId,
    sources: &KeySources,
) -> Result<(u32, Key), VaultError> {
    let mut order: Vec<&SlotRecord> = slots.iter().collect();
    order.sort_by_key(|slot| slot.kind());
    let mut failures = Vec::new();
    for slot in order {
        match slot.open(context, kek, sources) {
            Ok((key, _)) => return Ok((slot.slot, key)),
            Err(failure) => failures.push(failure),
        }
    }
    Err(VaultError::Unlock { failures })
}

/// The same slots, opening to another KEK. The secret of each must be at hand: it is proven by opening the slot as it
/// is.
pub(crate) fn relock(
    context: SlotContext<'_>,
    slots: &[SlotRecord],
    from: KekId,
    to: &Kek,
    sources: &KeySources,
) -> Result<Vec<SlotRecord>, VaultError> {
    let mut relocked = Vec::with_capacity(slots.len());
    for slot in slots {
        let (_, secret) = slot.open(context, from, sources).map_err(|failure| VaultError::SlotUnavailable {
            slot: failure.slot,
            kind: failure.kind,
            reason: failure.reason,
        })?;
        let mut slot = slot.clone();
        slot.lock_in(context.vault, to, &secret)?;
        relocked.push(slot);
    }
    Ok(relocked)
}

//! The vault's own header, `vault.json`: which vault, where its blobs are, its key slots and its bindings.
//!
//! The file is canonical JSON on one line, sealed under a key that follows from the KEK. It is accepted only in exactly
//! the bytes that we would write, so a flipped byte is found even where JSON would not mind. Until the seal is checked,
//! only the slots are looked at, and what a slot holds is bound to it by the slot's own encryption.

use crate::aead::{NONCE, TAG, Unauthentic, WRAPPED, associated, random_array};
use crate::backend::BackendKind;
use crate::binding::{Binding, MAX_BINDINGS};
use crate::durable;
use crate::envelope::{Kek, KekId};
use crate::error::VaultError;
use crate::slots::{MAX_SLOTS, SlotRecord};
use palyra_protocol::json::{MAX_INPUT_BYTES, canonical_text};
use palyra_protocol::{CanonicalJson, Timestamp, VaultId};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The format that this version reads and writes.
pub(crate) const FORMAT: &str = "palyra-vault-1";
const FILE: &str = "vault.json";
const WHAT: &str = "the vault's header";

/// What the header says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Header {
    pub(crate) format: String,
    pub(crate) vault: VaultId,
    pub(crate) created_at: Timestamp,
    /// Grows with every change.
    pub(crate) revision: u64,
    pub(crate) backend: BackendKind,
    /// A move between backends that is under way.
    pub(crate) migration: Option<Migration>,
    #[serde(with = "hex::serde")]
    pub(crate) kek: [u8; KekId::LEN],
    /// The KEK before this one, while blobs are being rewrapped.
    pub(crate) retired: Option<RetiredKek>,
    pub(crate) next_slot: u32,
    pub(crate) slots: Vec<SlotRecord>,
    pub(crate) bindings: Vec<Binding>,
}

/// A move between backends that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Migration {
    pub(crate) stage: MigrationStage,
    /// The backend that is copied to, or cleaned.
    pub(crate) other: BackendKind,
}

/// How far a move is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MigrationStage {
    /// Blobs are copied to the other backend; this one counts.
    Copying,
    /// This one counts and has everything; the other is being cleaned.
    Cleaning,
}

/// A KEK that some blobs may still be encrypted under, encrypted under the present one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetiredKek {
    #[serde(with = "hex::serde")]
    id: [u8; KekId::LEN],
    #[serde(with = "hex::serde")]
    nonce: [u8; NONCE],
    #[serde(with = "hex::serde")]
    wrapped: [u8; WRAPPED],
}

impl RetiredKek {
    pub(crate) fn new(vault: &VaultId, present: &Kek, retired: &Kek) -> Result<Self, VaultError> {
        let nonce = random_array()?;
        let key = Self::key(vault, present)?;
        let wrapped = key.wrap(&nonce, &Self::associated(vault, present.id, retired.id), &retired.key)?;
        Ok(Self { id: retired.id.0, nonce, wrapped })
    }

    pub(crate) fn open(&self, vault: &VaultId, present: &Kek) -> Result<Kek, VaultError> {
        let id = KekId(self.id);
        let opened =
            Self::key(vault, present)?.unwrap(&self.nonce, &Self::associated(vault, present.id, id), &self.wrapped);
        let key = opened.map_err(|Unauthentic| VaultError::damaged(WHAT, "the key before this one was changed"))?;
        Kek::new(vault, id, key)
    }

    fn key(vault: &VaultId, present: &Kek) -> Result<crate::aead::Key, VaultError> {
        present.key.derive(vault.as_str().as_bytes(), "palyra.vault.retired-keys.v1")
    }

    fn associated(vault: &VaultId, present: KekId, retired: KekId) -> Vec<u8> {
        associated("palyra.vault.retired-key.v1", &[vault.as_str().as_bytes(), &present.0, &retired.0])
    }
}

/// A header with its seal, as it was read.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SealedHeader {
    header: Header,
    seal: Seal,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Seal {
    #[serde(with = "hex::serde")]
    nonce: [u8; NONCE],
    #[serde(with = "hex::serde")]
    tag: [u8; TAG],
}

impl SealedHeader {
    /// Reads the header of a vault's directory; nothing if there is none.
    pub(crate) fn read(directory: &Path) -> Result<Option<Self>, VaultError> {
        durable::read(&directory.join(FILE), MAX_INPUT_BYTES)?.map(|bytes| Self::parse(&bytes)).transpose()
    }

    /// Reads the bytes of a header: exactly those that we would write.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, VaultError> {
        let text = bytes.strip_suffix(b"\n").ok_or_else(|| VaultError::damaged(WHAT, "it was cut off"))?;
        let json = CanonicalJson::parse(text).map_err(|error| VaultError::damaged(WHAT, error))?;
        if json.as_str().as_bytes() != text {
            return Err(VaultError::damaged(WHAT, "it is not in canonical form"));
        }
        let found = json.value().pointer("/header/format").and_then(|format| format.as_str()).unwrap_or_default();
        if found != FORMAT {
            let found = palyra_protocol::display::safe(&found.chars().take(40).collect::<String>());
            return Err(VaultError::Format { what: WHAT, found, expected: FORMAT });
        }
        let sealed: Self =
            serde_json::from_value(json.value().clone()).map_err(|error| VaultError::damaged(WHAT, error))?;
        // Digits in upper case and fields that the reader passes over would be a second spelling.
        let again = canonical_text(&sealed).map_err(|error| VaultError::damaged(WHAT, error))?;
        if again.as_bytes() != text {
            return Err(VaultError::damaged(WHAT, "it is not in canonical form"));
        }
        sealed.header.check()?;
        Ok(sealed)
    }

    /// What is needed to open a slot. Nothing else may be used before the seal is checked.
    pub(crate) fn unverified(&self) -> &Header {
        &self.header
    }

    /// The header, now that a KEK is at hand to check it with.
    pub(crate) fn verify(self, kek: &Kek) -> Result<Header, VaultError> {
        let data = self.header.associated()?;
        let opened = kek.vault_sealing.open(&self.seal.nonce, &data, &mut [], &self.seal.tag);
        opened.map_err(|Unauthentic| VaultError::damaged(WHAT, "it was changed"))?;
        Ok(self.header)
    }
}

impl Header {
    /// The bytes of the file.
    pub(crate) fn seal(&self, kek: &Kek) -> Result<Vec<u8>, VaultError> {
        self.check()?;
        let nonce = random_array()?;
        let tag = kek.vault_sealing.seal(&nonce, &self.associated()?, &mut [])?;
        let sealed = SealedHeader { header: self.clone(), seal: Seal { nonce, tag } };
        let mut text =
            canonical_text(&sealed).map_err(|_| VaultError::Internal { what: "a header has no text form" })?;
        text.push('\n');
        if text.len() > MAX_INPUT_BYTES {
            return Err(VaultError::Binding(crate::binding::BindingError::TooMany { limit: MAX_BINDINGS }));
        }
        Ok(text.into_bytes())
    }

    /// Writes the header, durably and whole.
    pub(crate) fn write(&self, kek: &Kek, directory: &Path) -> Result<(), VaultError> {
        let temporary = directory.join(crate::backend::TEMPORARY);
        durable::replace(&temporary, &directory.join(FILE), &self.seal(kek)?)
    }

    fn associated(&self) -> Result<Vec<u8>, VaultError> {
        let text = canonical_text(self).map_err(|_| VaultError::Internal { what: "a header has no text form" })?;
        Ok(associated("palyra.vault.header.v1", &[text.as_bytes()]))
    }

    /// What every header keeps to.
    fn check(&self) -> Result<(), VaultError> {
        let ascending = self.slots.is_sorted_by(|a, b| a.slot < b.slot);
        let numbered = self.slots.last().is_some_and(|last| last.slot < self.next_slot);
        if self.slots.len() > MAX_SLOTS || !ascending || !numbered {
            return Err(VaultError::damaged(WHAT, "its key slots are out of order"));
        }
        if self.bindings.len() > MAX_BINDINGS {
            return Err(VaultError::damaged(WHAT, "it has too many bindings"));
        }
        Ok(())
    }
}

/// Whether a directory holds a vault.
pub(crate) fn exists(directory: &Path) -> Result<bool, VaultError> {
    let path = directory.join(FILE);
    path.try_exists().map_err(|source| VaultError::io(&path, "cannot be read", source))
}

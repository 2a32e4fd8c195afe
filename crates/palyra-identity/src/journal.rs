//! What the daemon's journal is told about devices, and what it has to answer.
//!
//! The engine implements [`IdentityJournal`] over its own journal. A change of the registry counts from the moment at
//! which `record` has returned: see `registry/files.rs`.

use crate::pairing::{CodeId, PairingId};
use palyra_protocol::{DeviceId, Digest, Principal, Timestamp, WorkspaceRole};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// The journal could not record or answer.
#[derive(Debug, thiserror::Error)]
#[error("the journal cannot record a change of the device registry")]
pub struct JournalFailure(#[source] pub Box<dyn std::error::Error + Send + Sync>);

/// A change of the registry, as it is recorded before the registry's file is replaced.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RegistryChange {
    /// By whom.
    pub by: Principal,
    /// What was changed, without any secret.
    pub change: Value,
    /// The registry's revision after it.
    pub revision: u64,
    /// SHA-256 of the file before; none when there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Digest>,
    /// SHA-256 of the file after.
    pub after: Digest,
}

/// The newest change on record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordedRegistry {
    /// The registry's revision.
    pub revision: u64,
    /// SHA-256 of its file.
    pub digest: Digest,
}

/// Something that happened to devices and changes no registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event")]
pub enum IdentityEvent {
    /// The registry's file was not the one that was to be there.
    #[serde(rename = "identity.registry_refused")]
    RegistryRefused {
        /// SHA-256 of what was found.
        found: Option<Digest>,
        /// SHA-256 of what the journal knows.
        expected: Option<Digest>,
        /// Why.
        why: String,
    },
    /// The server has a new certificate.
    #[serde(rename = "identity.server_certificate")]
    ServerCertificate {
        /// SHA-256 of the certificate.
        certificate: Digest,
        /// Until when it holds.
        not_after: Timestamp,
    },
    /// Somebody made a pairing code.
    #[serde(rename = "pairing.code_created")]
    CodeCreated {
        /// The code.
        code: CodeId,
        /// Who.
        by: Principal,
        /// For whom the new device will act.
        principal: Principal,
        /// With which role.
        role: WorkspaceRole,
        /// The device that it is for, where it is for one that exists.
        device: Option<DeviceId>,
        /// Until when it lives.
        expires_at: Timestamp,
    },
    /// A pairing code ended.
    #[serde(rename = "pairing.code_ended")]
    CodeEnded {
        /// The code.
        code: CodeId,
        /// How: `used`, `expired`, `burned`, `replaced`, `withdrawn`.
        how: String,
    },
    /// A device proved a code and waits for a person.
    #[serde(rename = "pairing.pending")]
    PairingPending {
        /// The pairing.
        pairing: PairingId,
        /// The code that it proved.
        code: CodeId,
        /// What the device calls itself.
        name: String,
        /// SHA-256 of its key.
        key: Digest,
        /// From where.
        source: String,
    },
    /// A pairing ended.
    #[serde(rename = "pairing.ended")]
    PairingEnded {
        /// The pairing.
        pairing: PairingId,
        /// How: `paired`, `denied`, `expired`, `gone`, or the code of a refusal.
        how: String,
        /// The device, where there is one.
        device: Option<DeviceId>,
    },
    /// Attempts that were refused, counted over a while: pairings, handshakes, requests.
    #[serde(rename = "identity.refused")]
    Refused {
        /// From where, as exactly as is known.
        source: String,
        /// Since when they are counted.
        since: Timestamp,
        /// How many, by the code of the refusal.
        refused: BTreeMap<String, u64>,
    },
}

impl IdentityEvent {
    /// The event's kind, as it is written.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::RegistryRefused { .. } => "identity.registry_refused",
            Self::ServerCertificate { .. } => "identity.server_certificate",
            Self::CodeCreated { .. } => "pairing.code_created",
            Self::CodeEnded { .. } => "pairing.code_ended",
            Self::PairingPending { .. } => "pairing.pending",
            Self::PairingEnded { .. } => "pairing.ended",
            Self::Refused { .. } => "identity.refused",
        }
    }
}

/// The daemon's journal, as this crate needs it.
pub trait IdentityJournal: Send + Sync + fmt::Debug {
    /// The newest change of the registry on record; nothing when there was none.
    ///
    /// # Errors
    /// The journal cannot be read.
    fn newest(&self) -> Result<Option<RecordedRegistry>, JournalFailure>;

    /// Records a change. Returns when it is durable; may block.
    ///
    /// # Errors
    /// It is not recorded, and never will be.
    fn record(&self, change: &RegistryChange) -> Result<(), JournalFailure>;

    /// Takes an event. It must not block: it is called from handshakes.
    fn note(&self, event: IdentityEvent);
}

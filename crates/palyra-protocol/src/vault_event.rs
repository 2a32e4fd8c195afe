//! What the journal keeps of the vault: who used which secret for what. No field of these records holds a value.

use crate::action::PolicyAction;
use crate::digest::Digest;
use crate::id::CallId;
use crate::principal::Principal;
use crate::vault::SecretRef;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How a secret reaches what uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecretDelivery {
    /// The daemon's proxy attaches it to requests; the process never holds it.
    Proxy,
    /// A private file that the process reads.
    File,
    /// An environment variable. The process and all that it starts can read it: the least preferred.
    Env,
    /// Handed to the caller that asked for the value.
    Reply,
    /// Used by the daemon itself.
    Daemon,
    /// Handed to the code of a skill, inside its sandbox.
    Guest,
}

impl SecretDelivery {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Proxy => "proxy",
            Self::File => "file",
            Self::Env => "env",
            Self::Reply => "reply",
            Self::Daemon => "daemon",
            Self::Guest => "guest",
        }
    }
}

impl fmt::Display for SecretDelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Somebody is about to use a secret, or to look at the vault or change it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VaultAccess {
    /// Who.
    pub by: Principal,
    /// What they are about to do.
    pub action: PolicyAction,
    /// Which secret; none where it is about the vault as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretRef>,
    /// For which call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
    /// What for, in words of the daemon.
    pub purpose: String,
    /// How the secret reaches what uses it, where it is released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<SecretDelivery>,
    /// The program that gets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// The endpoints that it can go to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<String>,
}

impl VaultAccess {
    /// An access with nothing said but who, what and why.
    pub fn new(by: Principal, action: PolicyAction, purpose: impl Into<String>) -> Self {
        let (secret, call_id, via, program) = (None, None, None, None);
        Self { by, action, secret, call_id, purpose: purpose.into(), via, program, endpoints: Vec::new() }
    }

    /// The same, of one secret.
    #[must_use]
    pub fn of(self, secret: &SecretRef) -> Self {
        Self { secret: Some(secret.clone()), ..self }
    }
}

/// The vault was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VaultChange {
    /// By whom.
    pub by: Principal,
    /// What was done.
    pub what: VaultChangeKind,
    /// Which secret; none where it is about the vault as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretRef>,
}

/// What was done to the vault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum VaultChangeKind {
    /// The vault was made.
    Created {},
    /// A value was put.
    Put {
        /// The version that it became.
        version: u64,
        /// SHA-256 of the encrypted blob, which tells an older one that somebody put back.
        blob: Digest,
    },
    /// A secret was deleted, with its versions and bindings.
    Deleted {},
    /// The grace of an old version was ended.
    GraceEnded {
        /// The version.
        version: u64,
    },
    /// A secret was bound to endpoints.
    Bound {
        /// The binding.
        binding: String,
        /// Where to.
        hosts: Vec<String>,
    },
    /// A binding was removed.
    Unbound {
        /// The binding.
        binding: String,
    },
    /// The key-encryption key was replaced.
    Rekeyed {
        /// How many blobs were wrapped anew.
        rewrapped: u64,
        /// How many could not be.
        damaged: u64,
    },
    /// A key slot was added.
    SlotAdded {
        /// Its number.
        slot: u32,
        /// What opens it.
        opens_by: String,
    },
    /// A key slot was removed.
    SlotRemoved {
        /// Its number.
        slot: u32,
    },
    /// The secrets were moved to another backend.
    Migrated {
        /// Which.
        to: String,
    },
    /// All secrets were written to a sealed file.
    Exported {
        /// How many.
        secrets: u64,
    },
    /// Secrets were read from a sealed file.
    Imported {
        /// How many were added.
        added: u64,
        /// How many were given a new version.
        replaced: u64,
    },
}

impl VaultChangeKind {
    /// The word for it.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Created {} => "created",
            Self::Put { .. } => "put",
            Self::Deleted {} => "deleted",
            Self::GraceEnded { .. } => "grace ended",
            Self::Bound { .. } => "bound",
            Self::Unbound { .. } => "unbound",
            Self::Rekeyed { .. } => "rekeyed",
            Self::SlotAdded { .. } => "slot added",
            Self::SlotRemoved { .. } => "slot removed",
            Self::Migrated { .. } => "migrated",
            Self::Exported { .. } => "exported",
            Self::Imported { .. } => "imported",
        }
    }
}

/// One use of a secret or change to it, as `palyra vault blame` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretBlame {
    /// The event's place in the journal.
    pub seq: u64,
    /// When.
    pub at: crate::clock::Timestamp,
    /// Who.
    pub by: Principal,
    /// What: an action of the policy, or a change.
    pub what: String,
    /// For which call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
    /// How it was released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<SecretDelivery>,
    /// The program that got it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Where it could go, or where it went.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<String>,
    /// The decision that the call was permitted by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<String>,
    /// What for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub purpose: String,
}

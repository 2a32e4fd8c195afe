//! What the journal keeps of skills: installation, status with its cause, the version that runs, removal, and whom the
//! trust store trusts.

use crate::digest::Digest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Where an installed version of a skill stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkillStatus {
    /// It is unpacked, and no audit has ended yet.
    Installed,
    /// It passed: its tools are listed and run.
    Eligible,
    /// Something stands against it: its tools are neither listed nor run.
    Quarantined,
}

impl SkillStatus {
    /// The name in listings and in the journal.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Installed => "installed",
            Self::Eligible => "eligible",
            Self::Quarantined => "quarantined",
        }
    }
}

impl fmt::Display for SkillStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What made a status change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkillCause {
    /// It was installed.
    Installed,
    /// The daemon started.
    Started,
    /// The time for another audit had come.
    Scheduled,
    /// A person asked for an audit.
    Checked,
    /// The audit policy changed.
    AuditPolicy,
    /// The trust store changed.
    TrustStore,
    /// The advisories changed.
    Advisories,
    /// What is on the disk is not what was admitted.
    Drift,
    /// A person quarantined it.
    Quarantined,
    /// A person released it.
    Released,
}

impl SkillCause {
    /// The name in listings and in the journal.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Installed => "installed",
            Self::Started => "started",
            Self::Scheduled => "scheduled",
            Self::Checked => "checked",
            Self::AuditPolicy => "audit_policy",
            Self::TrustStore => "trust_store",
            Self::Advisories => "advisories",
            Self::Drift => "drift",
            Self::Quarantined => "quarantined",
            Self::Released => "released",
        }
    }
}

/// A version of a skill that was installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstalledSkill {
    /// Who published it.
    pub publisher: String,
    /// The key that signed it, by its id.
    pub key_id: String,
    /// Why that key was trusted: `allowlisted`, `tofu_pinned` or `tofu_newly_pinned`.
    pub trust: String,
    /// SHA-256 of the artifact's file.
    pub artifact_sha256: Digest,
    /// The digest of its content.
    pub content_sha256: Digest,
    /// SHA-256 of its manifest.
    pub manifest_sha256: Digest,
    /// SHA-256 of each component, by the name of its entry.
    pub modules: BTreeMap<String, Digest>,
}

/// A change of a version's status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkillStatusChange {
    /// The status until now; none for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<SkillStatus>,
    /// The status from now on.
    pub to: SkillStatus,
    /// What made it change.
    pub cause: SkillCause,
    /// Why, in one sentence.
    pub reason: String,
    /// The checks that failed, by their ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<String>,
    /// The failed checks that a person let pass for this version, by their ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overridden: Vec<String>,
}

/// The skill that brought a call's tool, and what it is granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SkillUse {
    /// Which skill.
    pub id: String,
    /// Which version of it.
    pub version: String,
    /// Who published it.
    pub publisher: String,
    /// How far it is trusted: `verified`, or `trusted` where a person let a failed check pass.
    pub trust: String,
    /// SHA-256 of the component that would run.
    pub module_sha256: Digest,
    /// The digest of everything that it is granted.
    pub grant_sha256: Digest,
}

impl SkillUse {
    /// One line for people.
    #[must_use]
    pub fn describe(&self) -> String {
        let Self { id, version, publisher, trust, module_sha256, grant_sha256 } = self;
        let (code, grant) = (module_sha256.short(), grant_sha256.short());
        format!("{id} {version} by {publisher} ({trust}), code {code}, grant {grant}")
    }
}

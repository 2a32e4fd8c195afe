//! Whether an artifact's key may be trusted, and why.
//!
//! [`verify_skill_artifact`] looks and changes nothing. What has to become durable for its answer to count, a new pin
//! or the admitted version, comes back as changes, which the caller applies to the
//! [`SkillTrustStore`](super::SkillTrustStore) before it acts on the answer.

use super::change::TrustChange;
use super::document::{KeyOrigin, KeyRecord, KeyState, TrustDocument};
use crate::artifact::Artifact;
use crate::ids::{KeyId, PublisherId, SkillId, SkillVersion};
use palyra_protocol::{Digest, Timestamp};
use serde::Serialize;

/// Why an artifact is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TrustDecision {
    /// An administrator added the key.
    Allowlisted,
    /// The key is the one that was pinned when the publisher was seen first.
    TofuPinned,
    /// The publisher is new, and its key is pinned with this artifact.
    TofuNewlyPinned,
}

impl TrustDecision {
    /// The name in listings.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowlisted => "allowlisted",
            Self::TofuPinned => "tofu_pinned",
            Self::TofuNewlyPinned => "tofu_newly_pinned",
        }
    }
}

/// What an artifact is verified for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VerifyPurpose {
    /// It is to be installed: a version may not go back, and only active keys count.
    Install,
    /// It is installed already: exactly this content must have been admitted, and a key that was rotated since still
    /// counts.
    Recheck,
}

/// How an artifact is to be verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifyRequest {
    /// What for.
    pub purpose: VerifyPurpose,
    /// Whether the key of a publisher that nobody has seen before may be pinned.
    pub allow_tofu: bool,
    /// The time.
    pub now: Timestamp,
}

/// The answer about an artifact that is trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verification {
    /// Why it is trusted, for programs.
    pub decision: TrustDecision,
    /// Why it is trusted, for people.
    pub why: String,
    /// Who signed it.
    pub publisher: PublisherId,
    /// With which key.
    pub key_id: KeyId,
    /// The skill.
    pub skill_id: SkillId,
    /// The version.
    pub version: SkillVersion,
    /// Its content.
    pub content_sha256: Digest,
    /// What must be recorded before the answer counts.
    pub changes: Vec<TrustChange>,
}

/// Why an artifact is not trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrustRefusal {
    /// Nobody has seen this publisher before.
    #[error("the publisher `{publisher}` is unknown (its key is {key_id})")]
    UnknownPublisher {
        /// The publisher.
        publisher: PublisherId,
        /// The key.
        key_id: KeyId,
    },
    /// A known publisher, and a key that is not its own.
    #[error("`{publisher}` is known, but the key {key_id} is none of its keys")]
    UnknownKey {
        /// The publisher.
        publisher: PublisherId,
        /// The key.
        key_id: KeyId,
    },
    /// The key belongs to another publisher.
    #[error("the key {key_id} belongs to `{owner}`, not to `{publisher}`")]
    ForeignKey {
        /// The publisher.
        publisher: PublisherId,
        /// The key.
        key_id: KeyId,
        /// Whose it is.
        owner: PublisherId,
    },
    /// The key was revoked.
    #[error("the key {key_id} of `{publisher}` was revoked: {reason}")]
    KeyRevoked {
        /// The publisher.
        publisher: PublisherId,
        /// The key.
        key_id: KeyId,
        /// Why.
        reason: String,
        /// When.
        at: Timestamp,
    },
    /// The key was replaced.
    #[error("the key {key_id} of `{publisher}` was replaced by {successor}")]
    KeyRotated {
        /// The publisher.
        publisher: PublisherId,
        /// The key.
        key_id: KeyId,
        /// The key that counts now.
        successor: KeyId,
    },
    /// The key's time is over.
    #[error("the key {key_id} of `{publisher}` has expired")]
    KeyExpired {
        /// The publisher.
        publisher: PublisherId,
        /// The key.
        key_id: KeyId,
    },
    /// A newer version was admitted before.
    #[error("`{skill_id}` {version} is older than {highest}, which was admitted before")]
    Downgrade {
        /// The skill.
        skill_id: SkillId,
        /// The version.
        version: SkillVersion,
        /// The highest so far.
        highest: SkillVersion,
    },
    /// The same version was admitted with another content.
    #[error("`{skill_id}` {version} was admitted before with another content")]
    VersionReused {
        /// The skill.
        skill_id: SkillId,
        /// The version.
        version: SkillVersion,
    },
    /// This content was never admitted.
    #[error("`{skill_id}` {version} was never admitted with this content")]
    NotAdmitted {
        /// The skill.
        skill_id: SkillId,
        /// The version.
        version: SkillVersion,
    },
}

impl TrustRefusal {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::UnknownPublisher { .. } => "trust_publisher_unknown",
            Self::UnknownKey { .. } => "trust_key_unknown",
            Self::ForeignKey { .. } => "trust_key_foreign",
            Self::KeyRevoked { .. } => "trust_key_revoked",
            Self::KeyRotated { .. } => "trust_key_rotated",
            Self::KeyExpired { .. } => "trust_key_expired",
            Self::Downgrade { .. } => "trust_downgrade",
            Self::VersionReused { .. } => "trust_version_reused",
            Self::NotAdmitted { .. } => "trust_not_admitted",
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::UnknownPublisher { .. } => {
                "compare the key with the publisher's own word, then trust it explicitly or allow trust on first use"
            }
            Self::UnknownKey { .. } => "ask the publisher for a rotation statement signed by both keys",
            Self::ForeignKey { .. } => "the artifact claims a publisher that did not sign it; do not install it",
            Self::KeyRevoked { .. } => "ask the publisher for a version signed by a key that is good",
            Self::KeyRotated { .. } => "ask the publisher for a version signed by the new key",
            Self::KeyExpired { .. } => "trust the key again with a later end, or ask for a new one",
            Self::Downgrade { .. } => {
                "install the newer version, or reset the versions of this skill if that one was wrong"
            }
            Self::VersionReused { .. } => "a publisher never changes a version; ask for one with a new number",
            Self::NotAdmitted { .. } => "install the artifact first",
        }
    }
}

/// Answers whether an artifact may be trusted, and why.
///
/// # Errors
/// Why it may not.
pub fn verify_skill_artifact(
    artifact: &Artifact,
    trust: &TrustDocument,
    request: &VerifyRequest,
) -> Result<Verification, TrustRefusal> {
    let metadata = &artifact.manifest().metadata;
    let signature = artifact.signature();
    let (decision, why) = trust_in_key(artifact, trust, request)?;
    let mut changes = Vec::new();
    if decision == TrustDecision::TofuNewlyPinned {
        let (publisher, public_key) = (signature.publisher.clone(), signature.public_key);
        changes.push(TrustChange::Pin { publisher, public_key });
    }
    let admitted = admission(artifact, trust, request.purpose)?;
    changes.extend(admitted);
    Ok(Verification {
        decision,
        why,
        publisher: metadata.publisher.clone(),
        key_id: signature.key_id.clone(),
        skill_id: metadata.skill_id.clone(),
        version: metadata.version.clone(),
        content_sha256: signature.content_sha256,
        changes,
    })
}

fn trust_in_key(
    artifact: &Artifact,
    trust: &TrustDocument,
    request: &VerifyRequest,
) -> Result<(TrustDecision, String), TrustRefusal> {
    let signature = artifact.signature();
    let (publisher, key_id) = (signature.publisher.clone(), signature.key_id.clone());
    if let Some(owner) = trust.owner_of(&key_id).filter(|owner| owner.publisher != publisher) {
        return Err(TrustRefusal::ForeignKey { publisher, key_id, owner: owner.publisher.clone() });
    }
    let Some(record) = trust.publisher(&publisher) else {
        // Only something new is pinned; what is installed already has a publisher that is known.
        if request.allow_tofu && request.purpose == VerifyPurpose::Install {
            let why =
                format!("`{publisher}` is new, and trust on first use is allowed: the key {key_id} is pinned now");
            return Ok((TrustDecision::TofuNewlyPinned, why));
        }
        return Err(TrustRefusal::UnknownPublisher { publisher, key_id });
    };
    let Some(key) = record.keys.iter().find(|key| key.public_key == signature.public_key) else {
        return Err(TrustRefusal::UnknownKey { publisher, key_id });
    };
    check_key(key, &publisher, request)?;
    Ok(match key.origin {
        KeyOrigin::Allowlisted => {
            (TrustDecision::Allowlisted, format!("an administrator trusts the key {key_id} of `{publisher}`"))
        }
        KeyOrigin::Tofu => (
            TrustDecision::TofuPinned,
            format!("the key {key_id} is the one that was pinned when `{publisher}` was seen first"),
        ),
    })
}

fn check_key(key: &KeyRecord, publisher: &PublisherId, request: &VerifyRequest) -> Result<(), TrustRefusal> {
    let (publisher, key_id) = (publisher.clone(), key.key_id.clone());
    match &key.state {
        KeyState::Revoked { reason, at } => {
            return Err(TrustRefusal::KeyRevoked { publisher, key_id, reason: reason.clone(), at: *at });
        }
        KeyState::Rotated { successor, .. } if request.purpose == VerifyPurpose::Install => {
            return Err(TrustRefusal::KeyRotated { publisher, key_id, successor: successor.clone() });
        }
        KeyState::Rotated { .. } | KeyState::Active => {}
    }
    if key.expires_at.is_some_and(|end| end <= request.now) {
        return Err(TrustRefusal::KeyExpired { publisher, key_id });
    }
    Ok(())
}

/// Holds the version to those that were admitted before; the change that admits it, where that is not done yet.
fn admission(
    artifact: &Artifact,
    trust: &TrustDocument,
    purpose: VerifyPurpose,
) -> Result<Option<TrustChange>, TrustRefusal> {
    let metadata = &artifact.manifest().metadata;
    let (skill_id, version) = (metadata.skill_id.clone(), metadata.version.clone());
    let content = *artifact.content_digest();
    let record = trust.skill(&skill_id);
    let known = record.and_then(|record| record.admitted.iter().find(|known| known.version == version));
    match (known, purpose) {
        (Some(known), _) if known.content_sha256 == content => return Ok(None),
        (Some(_), VerifyPurpose::Install) => return Err(TrustRefusal::VersionReused { skill_id, version }),
        (_, VerifyPurpose::Recheck) => return Err(TrustRefusal::NotAdmitted { skill_id, version }),
        (None, VerifyPurpose::Install) => {}
    }
    if let Some(record) = record {
        if version < record.highest {
            return Err(TrustRefusal::Downgrade { skill_id, version, highest: record.highest.clone() });
        }
        if version == record.highest && record.highest_content != content {
            return Err(TrustRefusal::VersionReused { skill_id, version });
        }
    }
    let key_id = artifact.signature().key_id.clone();
    Ok(Some(TrustChange::Admit { skill_id, version, content_sha256: content, key_id }))
}

//! The trust store's document: which keys speak for which publisher, and which versions were admitted.
//!
//! A document is accepted whole or not at all. Nothing is repaired or defaulted: guessing what an odd entry meant could
//! only make somebody more trusted than an administrator wanted.

use crate::constants::FORMAT;
use crate::ids::{KeyId, PublisherId, SkillId, SkillVersion};
use palyra_protocol::{Digest, PublicKey, Timestamp, display};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The largest document.
pub const MAX_TRUST_BYTES: u64 = 32 << 20;
const MAX_PUBLISHERS: usize = 10_000;
const MAX_KEYS: usize = 64;
const MAX_SKILLS: usize = 10_000;
const MAX_ADMITTED: usize = 256;
pub(super) const MAX_REASON: usize = 240;

/// How a key came into the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyOrigin {
    /// An administrator added it.
    Allowlisted,
    /// It was pinned when its publisher was seen first.
    Tofu,
}

/// What a key is good for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum KeyState {
    /// It signs new artifacts.
    Active,
    /// Its owner has replaced it. What it signed before and was admitted stays good.
    Rotated {
        /// When.
        at: Timestamp,
        /// By which key.
        successor: KeyId,
    },
    /// Nothing that it signed is good, whenever that was.
    Revoked {
        /// When.
        at: Timestamp,
        /// Why.
        reason: String,
    },
}

/// One key of a publisher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyRecord {
    /// The key's short name.
    pub key_id: KeyId,
    /// The key.
    pub public_key: PublicKey,
    /// How it came here.
    pub origin: KeyOrigin,
    /// When it came here.
    pub added_at: Timestamp,
    /// When it stops to be good, if somebody said so.
    pub expires_at: Option<Timestamp>,
    /// What it is good for.
    pub state: KeyState,
}

/// A publisher and its keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublisherRecord {
    /// The publisher.
    pub publisher: PublisherId,
    /// Every key that was ever its own and was not removed.
    pub keys: Vec<KeyRecord>,
}

/// One version of a skill that was admitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdmittedRecord {
    /// The version.
    pub version: SkillVersion,
    /// Its content.
    pub content_sha256: Digest,
    /// The key that signed it.
    pub key_id: KeyId,
    /// When it was admitted.
    pub at: Timestamp,
}

/// The versions of a skill: no version below the highest is admitted again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SkillRecord {
    /// The skill.
    pub skill_id: SkillId,
    /// The highest version that was ever admitted.
    pub highest: SkillVersion,
    /// What the highest version held.
    pub highest_content: Digest,
    /// The versions that are installed.
    pub admitted: Vec<AdmittedRecord>,
}

/// Everything that the trust store knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustDocument {
    /// The form of this document.
    pub format: u32,
    /// Counts the changes.
    pub revision: u64,
    /// The publishers, sorted by name.
    pub publishers: Vec<PublisherRecord>,
    /// The skills, sorted by id.
    pub skills: Vec<SkillRecord>,
}

/// Why a document is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentFlaw {
    /// It is not this kind of document.
    #[error("the trust store cannot be read: {reason}")]
    Malformed {
        /// Why, with line and column.
        reason: String,
    },
    /// It has another form.
    #[error("the trust store has format {found}; this version reads format {FORMAT}")]
    Format {
        /// The form.
        found: u32,
    },
    /// It contradicts itself.
    #[error("the trust store contradicts itself: {what}")]
    Inconsistent {
        /// How.
        what: String,
    },
}

impl DocumentFlaw {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Malformed { .. } => "trust_store_malformed",
            Self::Format { .. } => "trust_store_format",
            Self::Inconsistent { .. } => "trust_store_inconsistent",
        }
    }
}

fn inconsistent(what: impl Into<String>) -> DocumentFlaw {
    DocumentFlaw::Inconsistent { what: what.into() }
}

impl TrustDocument {
    /// A store that trusts nobody.
    #[must_use]
    pub fn empty() -> Self {
        Self { format: FORMAT, revision: 0, publishers: vec![], skills: vec![] }
    }

    /// Reads the file's bytes.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, DocumentFlaw> {
        #[derive(Deserialize)]
        struct Form {
            format: u32,
        }
        let malformed = |e: serde_json::Error| DocumentFlaw::Malformed { reason: crate::text::excerpt(&e.to_string()) };
        if bytes.len() as u64 > MAX_TRUST_BYTES {
            return Err(inconsistent(format!("it has more than {} MiB", MAX_TRUST_BYTES >> 20)));
        }
        // Asked first, so that another form is called that and not a malformed document.
        let Form { format } = serde_json::from_slice(bytes).map_err(malformed)?;
        if format != FORMAT {
            return Err(DocumentFlaw::Format { found: format });
        }
        let document: Self = serde_json::from_slice(bytes).map_err(malformed)?;
        document.check()?;
        Ok(document)
    }

    /// The file's bytes: indented, because people read it.
    ///
    /// # Errors
    /// It has no JSON form, which would be a bug.
    pub fn bytes(&self) -> Result<Vec<u8>, DocumentFlaw> {
        let mut bytes = serde_json::to_vec_pretty(self).map_err(|e| inconsistent(e.to_string()))?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// The publisher of this name, if it is known.
    #[must_use]
    pub fn publisher(&self, publisher: &PublisherId) -> Option<&PublisherRecord> {
        let at = self.publishers.binary_search_by(|record| record.publisher.cmp(publisher));
        at.ok().and_then(|at| self.publishers.get(at))
    }

    /// The skill of this id, if a version of it was ever admitted.
    #[must_use]
    pub fn skill(&self, skill_id: &SkillId) -> Option<&SkillRecord> {
        let at = self.skills.binary_search_by(|record| record.skill_id.cmp(skill_id));
        at.ok().and_then(|at| self.skills.get(at))
    }

    /// The publisher that a key belongs to.
    #[must_use]
    pub fn owner_of(&self, key_id: &KeyId) -> Option<&PublisherRecord> {
        self.publishers.iter().find(|record| record.keys.iter().any(|key| key.key_id == *key_id))
    }

    /// Checks everything that the types do not.
    pub(super) fn check(&self) -> Result<(), DocumentFlaw> {
        let sorted = self.publishers.is_sorted_by(|a, b| a.publisher < b.publisher)
            && self.skills.is_sorted_by(|a, b| a.skill_id < b.skill_id);
        if !sorted {
            return Err(inconsistent("publishers or skills are out of order or appear twice"));
        }
        if self.publishers.len() > MAX_PUBLISHERS || self.skills.len() > MAX_SKILLS {
            return Err(inconsistent("there are too many publishers or skills"));
        }
        let mut keys = BTreeSet::new();
        for record in &self.publishers {
            check_publisher(record, &mut keys)?;
        }
        self.skills.iter().try_for_each(check_skill)
    }
}

fn check_publisher<'a>(record: &'a PublisherRecord, keys: &mut BTreeSet<&'a KeyId>) -> Result<(), DocumentFlaw> {
    let publisher = &record.publisher;
    if record.keys.is_empty() || record.keys.len() > MAX_KEYS {
        return Err(inconsistent(format!("`{publisher}` has no keys, or more than {MAX_KEYS}")));
    }
    for key in &record.keys {
        let id = &key.key_id;
        if *id != KeyId::of(&key.public_key) {
            return Err(inconsistent(format!("`{id}` is not the id of its key")));
        }
        // A key that speaks for two publishers could be revoked for one and go on for the other.
        if !keys.insert(id) {
            return Err(inconsistent(format!("the key `{id}` appears twice")));
        }
        if let KeyState::Revoked { reason, .. } = &key.state {
            check_reason(reason)?;
        }
    }
    Ok(())
}

pub(super) fn check_reason(reason: &str) -> Result<(), DocumentFlaw> {
    if reason.trim().is_empty() || reason.len() > MAX_REASON || reason.chars().any(display::deceives) {
        return Err(inconsistent(format!("a reason is 1 to {MAX_REASON} visible characters")));
    }
    Ok(())
}

fn check_skill(record: &SkillRecord) -> Result<(), DocumentFlaw> {
    let id = &record.skill_id;
    if record.admitted.len() > MAX_ADMITTED {
        return Err(inconsistent(format!("`{id}` has more than {MAX_ADMITTED} versions")));
    }
    if !record.admitted.is_sorted_by(|a, b| a.version < b.version) {
        return Err(inconsistent(format!("the versions of `{id}` are out of order or appear twice")));
    }
    match record.admitted.last() {
        Some(last) if last.version > record.highest => {
            Err(inconsistent(format!("`{id}` has a version above its highest")))
        }
        Some(last) if last.version == record.highest && last.content_sha256 != record.highest_content => {
            Err(inconsistent(format!("the highest version of `{id}` has two contents")))
        }
        _ => Ok(()),
    }
}

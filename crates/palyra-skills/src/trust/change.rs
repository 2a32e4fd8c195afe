//! Changes of the trust store. Each makes a new document from the old one, or is refused.

use super::document::{
    AdmittedRecord, DocumentFlaw, KeyOrigin, KeyRecord, KeyState, PublisherRecord, SkillRecord, TrustDocument,
    check_reason,
};
use super::rotation::{RotationFault, RotationStatement};
use crate::ids::{KeyId, PublisherId, SkillId, SkillVersion};
use palyra_protocol::{Digest, PublicKey, Timestamp};
use std::fmt;

/// One change of the trust store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrustChange {
    /// An administrator trusts a key.
    Allowlist {
        /// For this publisher.
        publisher: PublisherId,
        /// The key.
        public_key: PublicKey,
        /// Until then, if somebody says so.
        expires_at: Option<Timestamp>,
    },
    /// The key of a publisher that nobody has seen before is pinned.
    Pin {
        /// The publisher.
        publisher: PublisherId,
        /// The key.
        public_key: PublicKey,
    },
    /// A publisher replaces its key; both keys say so.
    Rotate(RotationStatement),
    /// A key is good for nothing any more.
    Revoke {
        /// The key.
        key_id: KeyId,
        /// Why.
        reason: String,
    },
    /// A key is taken out. A revoked one stays.
    Remove {
        /// The key.
        key_id: KeyId,
    },
    /// A version of a skill is admitted.
    Admit {
        /// The skill.
        skill_id: SkillId,
        /// The version.
        version: SkillVersion,
        /// Its content.
        content_sha256: Digest,
        /// The key that signed it.
        key_id: KeyId,
    },
    /// A version is not installed any more. The highest version stays on record.
    Forget {
        /// The skill.
        skill_id: SkillId,
        /// The version.
        version: SkillVersion,
    },
    /// An administrator lets a skill begin again at any version, after a publisher lost control of its versions.
    ResetVersions {
        /// The skill.
        skill_id: SkillId,
    },
}

impl fmt::Display for TrustChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allowlist { publisher, public_key, .. } => {
                write!(f, "allow the key {} of `{publisher}`", KeyId::of(public_key))
            }
            Self::Pin { publisher, public_key } => write!(f, "pin the key {} of `{publisher}`", KeyId::of(public_key)),
            Self::Rotate(s) => write!(f, "rotate the key of `{}` from {} to {}", s.publisher, s.old_id(), s.new_id()),
            Self::Revoke { key_id, reason } => write!(f, "revoke the key {key_id}: {reason}"),
            Self::Remove { key_id } => write!(f, "remove the key {key_id}"),
            Self::Admit { skill_id, version, .. } => write!(f, "admit `{skill_id}` {version}"),
            Self::Forget { skill_id, version } => write!(f, "forget `{skill_id}` {version}"),
            Self::ResetVersions { skill_id } => write!(f, "reset the versions of `{skill_id}`"),
        }
    }
}

/// Why a change is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// A publisher that is known is never pinned again.
    #[error("`{publisher}` is known already; another key of it is never pinned")]
    KnownPublisher {
        /// The publisher.
        publisher: PublisherId,
    },
    /// The key is in the store already.
    #[error("the key {key_id} is trusted already")]
    KnownKey {
        /// The key.
        key_id: KeyId,
    },
    /// The key belongs to somebody else.
    #[error("the key {key_id} belongs to `{owner}`")]
    ForeignKey {
        /// The key.
        key_id: KeyId,
        /// Whose it is.
        owner: PublisherId,
    },
    /// There is no such key.
    #[error("there is no key {key_id}")]
    UnknownKey {
        /// The key.
        key_id: KeyId,
    },
    /// The key was revoked, for good.
    #[error("the key {key_id} was revoked: {reason}")]
    RevokedKey {
        /// The key.
        key_id: KeyId,
        /// Why.
        reason: String,
    },
    /// The key is not active, so it cannot endorse another.
    #[error("the key {key_id} is no longer active and cannot be rotated")]
    InactiveKey {
        /// The key.
        key_id: KeyId,
    },
    /// The statement does not hold.
    #[error(transparent)]
    Rotation(#[from] RotationFault),
    /// The version is below the highest, or was admitted with another content.
    #[error("`{skill_id}` {version} would take the place of {highest} or of another content")]
    Version {
        /// The skill.
        skill_id: SkillId,
        /// The version.
        version: SkillVersion,
        /// The highest so far.
        highest: SkillVersion,
    },
    /// There is no such skill or version.
    #[error("no version of `{skill_id}` was admitted")]
    UnknownSkill {
        /// The skill.
        skill_id: SkillId,
    },
    /// The result would not be a valid document.
    #[error(transparent)]
    Flaw(#[from] DocumentFlaw),
}

impl ChangeError {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::KnownPublisher { .. } => "trust_publisher_known",
            Self::KnownKey { .. } => "trust_key_known",
            Self::ForeignKey { .. } => "trust_key_foreign",
            Self::UnknownKey { .. } => "trust_key_unknown",
            Self::RevokedKey { .. } => "trust_key_revoked",
            Self::InactiveKey { .. } => "trust_key_inactive",
            Self::Rotation(e) => e.code(),
            Self::Version { .. } => "trust_version",
            Self::UnknownSkill { .. } => "trust_skill_unknown",
            Self::Flaw(e) => e.code(),
        }
    }
}

impl TrustDocument {
    /// The document after these changes, all of them or none.
    ///
    /// # Errors
    /// The first change that is refused.
    pub fn changed(&self, changes: &[TrustChange], now: Timestamp) -> Result<Self, ChangeError> {
        let mut next = self.clone();
        for change in changes {
            next.apply(change, now)?;
        }
        next.revision = next.revision.saturating_add(1);
        next.check()?;
        Ok(next)
    }

    fn apply(&mut self, change: &TrustChange, now: Timestamp) -> Result<(), ChangeError> {
        match change {
            TrustChange::Allowlist { publisher, public_key, expires_at } => {
                self.allowlist(publisher, public_key, *expires_at, now)
            }
            TrustChange::Pin { publisher, public_key } => self.pin(publisher, public_key, now),
            TrustChange::Rotate(statement) => self.rotate(statement, now),
            TrustChange::Revoke { key_id, reason } => {
                check_reason(reason)?;
                let key = self.key_mut(key_id)?;
                refuse_revoked(key)?;
                key.state = KeyState::Revoked { at: now, reason: reason.trim().to_owned() };
                Ok(())
            }
            TrustChange::Remove { key_id } => self.remove(key_id),
            TrustChange::Admit { skill_id, version, content_sha256, key_id } => {
                let (version, key_id) = (version.clone(), key_id.clone());
                self.admit(skill_id, AdmittedRecord { version, content_sha256: *content_sha256, key_id, at: now })
            }
            TrustChange::Forget { skill_id, version } => {
                let unknown = || ChangeError::UnknownSkill { skill_id: skill_id.clone() };
                let record = self.skill_mut(skill_id).ok_or_else(unknown)?;
                let before = record.admitted.len();
                record.admitted.retain(|admitted| admitted.version != *version);
                if record.admitted.len() == before { Err(unknown()) } else { Ok(()) }
            }
            TrustChange::ResetVersions { skill_id } => {
                let before = self.skills.len();
                self.skills.retain(|record| record.skill_id != *skill_id);
                let unknown = self.skills.len() == before;
                if unknown { Err(ChangeError::UnknownSkill { skill_id: skill_id.clone() }) } else { Ok(()) }
            }
        }
    }

    fn allowlist(
        &mut self,
        publisher: &PublisherId,
        public_key: &PublicKey,
        expires_at: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<(), ChangeError> {
        let key_id = KeyId::of(public_key);
        self.refuse_foreign(publisher, &key_id)?;
        if let Ok(key) = self.key_mut(&key_id) {
            refuse_revoked(key)?;
            if key.origin == KeyOrigin::Allowlisted && key.state == KeyState::Active && key.expires_at == expires_at {
                return Err(ChangeError::KnownKey { key_id });
            }
            (key.origin, key.state, key.expires_at) = (KeyOrigin::Allowlisted, KeyState::Active, expires_at);
            return Ok(());
        }
        self.add_key(publisher, KeyRecord { expires_at, ..new_key(public_key, KeyOrigin::Allowlisted, now) });
        Ok(())
    }

    fn pin(&mut self, publisher: &PublisherId, public_key: &PublicKey, now: Timestamp) -> Result<(), ChangeError> {
        // INVARIANT (known_publisher_is_never_pinned_again): otherwise whoever asks second would become the publisher.
        if self.publisher(publisher).is_some() {
            return Err(ChangeError::KnownPublisher { publisher: publisher.clone() });
        }
        self.refuse_foreign(publisher, &KeyId::of(public_key))?;
        self.add_key(publisher, new_key(public_key, KeyOrigin::Tofu, now));
        Ok(())
    }

    fn rotate(&mut self, statement: &RotationStatement, now: Timestamp) -> Result<(), ChangeError> {
        statement.verify()?;
        let (old_id, new_id) = (statement.old_id(), statement.new_id());
        self.refuse_foreign(&statement.publisher, &old_id)?;
        self.refuse_foreign(&statement.publisher, &new_id)?;
        if let Ok(key) = self.key_mut(&new_id) {
            refuse_revoked(key)?;
            return Err(ChangeError::KnownKey { key_id: new_id });
        }
        let old = self.key_mut(&old_id)?;
        refuse_revoked(old)?;
        let expired = old.expires_at.is_some_and(|end| end <= now);
        if old.state != KeyState::Active || expired {
            return Err(ChangeError::InactiveKey { key_id: old_id });
        }
        old.state = KeyState::Rotated { at: now, successor: new_id };
        // The new key is trusted as far as the old one was, and no longer.
        let expires_at = old.expires_at;
        let successor = KeyRecord { expires_at, ..new_key(&statement.new_key, old.origin, now) };
        self.add_key(&statement.publisher, successor);
        Ok(())
    }

    fn remove(&mut self, key_id: &KeyId) -> Result<(), ChangeError> {
        refuse_revoked(self.key_mut(key_id)?)?;
        for record in &mut self.publishers {
            record.keys.retain(|key| key.key_id != *key_id);
        }
        self.publishers.retain(|record| !record.keys.is_empty());
        Ok(())
    }

    fn admit(&mut self, skill_id: &SkillId, admitted: AdmittedRecord) -> Result<(), ChangeError> {
        let Some(record) = self.skill_mut(skill_id) else {
            let at = self.skills.partition_point(|record| record.skill_id < *skill_id);
            let (highest, highest_content) = (admitted.version.clone(), admitted.content_sha256);
            let record = SkillRecord { skill_id: skill_id.clone(), highest, highest_content, admitted: vec![admitted] };
            self.skills.insert(at, record);
            return Ok(());
        };
        let version = admitted.version.clone();
        let refused = ChangeError::Version {
            skill_id: skill_id.clone(),
            version: version.clone(),
            highest: record.highest.clone(),
        };
        if let Some(known) = record.admitted.iter().find(|known| known.version == version) {
            return if known.content_sha256 == admitted.content_sha256 { Ok(()) } else { Err(refused) };
        }
        let same = version == record.highest && admitted.content_sha256 == record.highest_content;
        if version < record.highest || version == record.highest && !same {
            return Err(refused);
        }
        record.highest_content = admitted.content_sha256;
        record.highest = version;
        record.admitted.push(admitted);
        Ok(())
    }

    fn refuse_foreign(&self, publisher: &PublisherId, key_id: &KeyId) -> Result<(), ChangeError> {
        match self.owner_of(key_id).filter(|owner| owner.publisher != *publisher) {
            Some(owner) => Err(ChangeError::ForeignKey { key_id: key_id.clone(), owner: owner.publisher.clone() }),
            None => Ok(()),
        }
    }

    fn key_mut(&mut self, key_id: &KeyId) -> Result<&mut KeyRecord, ChangeError> {
        let mut keys = self.publishers.iter_mut().flat_map(|record| &mut record.keys);
        keys.find(|key| key.key_id == *key_id).ok_or_else(|| ChangeError::UnknownKey { key_id: key_id.clone() })
    }

    fn skill_mut(&mut self, skill_id: &SkillId) -> Option<&mut SkillRecord> {
        self.skills.iter_mut().find(|record| record.skill_id == *skill_id)
    }

    fn add_key(&mut self, publisher: &PublisherId, key: KeyRecord) {
        match self.publishers.binary_search_by(|record| record.publisher.cmp(publisher)) {
            Ok(at) => self.publishers[at].keys.push(key),
            Err(at) => {
                let record = PublisherRecord { publisher: publisher.clone(), keys: vec![key] };
                self.publishers.insert(at, record);
            }
        }
    }
}

fn new_key(public_key: &PublicKey, origin: KeyOrigin, now: Timestamp) -> KeyRecord {
    let key_id = KeyId::of(public_key);
    KeyRecord { key_id, public_key: *public_key, origin, added_at: now, expires_at: None, state: KeyState::Active }
}

fn refuse_revoked(key: &KeyRecord) -> Result<(), ChangeError> {
    match &key.state {
        KeyState::Revoked { reason, .. } => {
            Err(ChangeError::RevokedKey { key_id: key.key_id.clone(), reason: reason.clone() })
        }
        _ => Ok(()),
    }
}

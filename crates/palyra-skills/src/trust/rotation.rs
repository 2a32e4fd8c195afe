//! A publisher's new key, vouched for by its old one.
//!
//! Both keys sign the same statement: the old one endorses the new one, and the new one shows that its owner wants to
//! be this publisher. With one signature alone, a stolen old key could name somebody else's key, or anybody could claim
//! a successor.

use crate::constants::FORMAT;
use crate::ids::{KeyId, PublisherId};
use crate::signature::PublisherKey;
use palyra_protocol::{Digest, DigestBuilder, PublicKey, Signature};
use serde::{Deserialize, Serialize};

const MAX_BYTES: usize = 4 << 10;

/// A statement that one key takes another's place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RotationStatement {
    /// The form of this document.
    pub format: u32,
    /// Whose keys they are.
    pub publisher: PublisherId,
    /// The key until now.
    pub old_key: PublicKey,
    /// The key from now on.
    pub new_key: PublicKey,
    /// The old key's signature.
    pub old_signature: Signature,
    /// The new key's signature.
    pub new_signature: Signature,
}

/// Why a statement does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RotationFault {
    /// It is not this kind of document.
    #[error("the rotation statement cannot be read: {reason}")]
    Form {
        /// Why.
        reason: String,
    },
    /// Both keys are the same.
    #[error("the rotation statement names the same key twice")]
    SameKey,
    /// A key did not sign it.
    #[error("the {which} key did not sign the rotation statement")]
    Signature {
        /// `old` or `new`.
        which: &'static str,
    },
}

impl RotationFault {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Form { .. } => "rotation_form",
            Self::SameKey => "rotation_same_key",
            Self::Signature { .. } => "rotation_signature",
        }
    }
}

impl RotationStatement {
    /// Makes a statement, which needs both secret keys.
    #[must_use]
    pub fn create(publisher: &PublisherId, old: &PublisherKey, new: &PublisherKey) -> Self {
        let (old_key, new_key) = (old.public(), new.public());
        let digest = signed_digest(publisher, &old_key, &new_key);
        Self {
            format: FORMAT,
            publisher: publisher.clone(),
            old_key,
            new_key,
            old_signature: old.sign(&digest),
            new_signature: new.sign(&digest),
        }
    }

    /// Reads a statement; [`RotationStatement::verify`] says whether it holds.
    ///
    /// # Errors
    /// It is no statement, or a key in it is weak.
    pub fn parse(bytes: &[u8]) -> Result<Self, RotationFault> {
        let form = |reason: String| RotationFault::Form { reason: crate::text::excerpt(&reason) };
        if bytes.len() > MAX_BYTES {
            return Err(form(format!("it has more than {MAX_BYTES} bytes")));
        }
        let statement: Self = serde_json::from_slice(bytes).map_err(|e| form(e.to_string()))?;
        if statement.format != FORMAT {
            return Err(form(format!("format {} is not {FORMAT}", statement.format)));
        }
        Ok(statement)
    }

    /// Checks both signatures.
    ///
    /// # Errors
    /// What does not hold.
    pub fn verify(&self) -> Result<(), RotationFault> {
        if self.old_key == self.new_key {
            return Err(RotationFault::SameKey);
        }
        let digest = signed_digest(&self.publisher, &self.old_key, &self.new_key);
        for (which, key, signature) in
            [("old", &self.old_key, &self.old_signature), ("new", &self.new_key, &self.new_signature)]
        {
            key.verify(&digest, signature).map_err(|_| RotationFault::Signature { which })?;
        }
        Ok(())
    }

    /// The old key's id.
    #[must_use]
    pub fn old_id(&self) -> KeyId {
        KeyId::of(&self.old_key)
    }

    /// The new key's id.
    #[must_use]
    pub fn new_id(&self) -> KeyId {
        KeyId::of(&self.new_key)
    }
}

fn signed_digest(publisher: &PublisherId, old: &PublicKey, new: &PublicKey) -> Digest {
    DigestBuilder::new("palyra.skill.rotation.v1")
        .field(publisher.as_str().as_bytes())
        .field(old.to_string().as_bytes())
        .field(new.to_string().as_bytes())
        .finish()
}

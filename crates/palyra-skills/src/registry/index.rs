//! `index.json` of a signed registry, and the signature beside it.
//!
//! A registry's key vouches for the list: which artifacts there are, which is the newest, which were withdrawn. It does
//! not vouch for the artifacts; their publishers do that. Whoever holds a registry's key can hide a version, but never
//! forge one.

use super::RegistryError;
use crate::constants::FORMAT;
use crate::ids::{KeyId, PublisherId, SkillId, SkillVersion};
use crate::signature::PublisherKey;
use palyra_protocol::json::{canonical_text, check_result};
use palyra_protocol::{Digest, DigestBuilder, PublicKey, Signature, Timestamp};
use serde::{Deserialize, Serialize};

/// The list of artifacts.
pub const INDEX_FILE: &str = "index.json";
/// The signature over the list.
pub const INDEX_SIGNATURE_FILE: &str = "index.signature.json";
/// The largest list.
pub(super) const MAX_INDEX_BYTES: usize = 32 << 20;
pub(super) const MAX_INDEX_SIGNATURE_BYTES: usize = 4 << 10;
const MAX_ARTIFACTS: usize = 100_000;
const MAX_NAME: usize = 64;

/// One artifact of a registry or directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IndexEntry {
    /// The skill.
    pub skill_id: SkillId,
    /// The version.
    pub version: SkillVersion,
    /// Who signed it, as it says itself.
    pub publisher: PublisherId,
    /// The file, relative to the registry.
    pub path: String,
    /// The file's size.
    pub bytes: u64,
    /// SHA-256 of the file.
    pub artifact_sha256: Digest,
    /// The digest of its content.
    pub content_sha256: Digest,
    /// Whether it should not be installed any more.
    pub is_withdrawn: bool,
}

/// The list of a registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegistryIndex {
    /// The form of this document.
    pub format: u32,
    /// The registry's name.
    pub name: String,
    /// Counts the lists, so that an old one is not taken for a new one.
    pub revision: u64,
    /// When the list is too old to be believed.
    pub expires_at: Timestamp,
    /// The artifacts, sorted by skill and version.
    pub artifacts: Vec<IndexEntry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IndexSignature {
    format: u32,
    index_sha256: Digest,
    key_id: KeyId,
    public_key: PublicKey,
    signature: Signature,
}

impl RegistryIndex {
    /// The list's bytes and those of its signature.
    ///
    /// # Errors
    /// The list contradicts itself.
    pub fn sign(&self, key: &PublisherKey) -> Result<(Vec<u8>, Vec<u8>), RegistryError> {
        self.check()?;
        let bytes = canonical_text(self).map_err(RegistryError::index)?.into_bytes();
        let index_sha256 = Digest::of(&bytes);
        let public_key = key.public();
        let signature = IndexSignature {
            format: FORMAT,
            index_sha256,
            key_id: key.key_id(),
            public_key,
            signature: key.sign(&signed_digest(&public_key, &index_sha256)),
        };
        let signature = canonical_text(&signature).map_err(RegistryError::index)?.into_bytes();
        Ok((bytes, signature))
    }

    /// Reads a list whose signature holds under the key that the caller expects.
    ///
    /// # Errors
    /// The signature is another's, or the list is none.
    pub fn verify(bytes: &[u8], signature: &[u8], key: &PublicKey) -> Result<Self, RegistryError> {
        if signature.len() > MAX_INDEX_SIGNATURE_BYTES {
            return Err(RegistryError::index("the signature is too large"));
        }
        let signed: IndexSignature = serde_json::from_slice(signature).map_err(RegistryError::index)?;
        if signed.public_key != *key {
            return Err(RegistryError::OtherKey { expected: KeyId::of(key), found: KeyId::of(&signed.public_key) });
        }
        let digest = Digest::of(bytes);
        let holds = key.verify(&signed_digest(key, &digest), &signed.signature).is_ok();
        if !holds || signed.index_sha256 != digest || signed.format != FORMAT || signed.key_id != KeyId::of(key) {
            return Err(RegistryError::Signature);
        }
        check_result(bytes, MAX_INDEX_BYTES, 0).map_err(RegistryError::index)?;
        let index: Self = serde_json::from_slice(bytes).map_err(RegistryError::index)?;
        index.check()?;
        Ok(index)
    }

    fn check(&self) -> Result<(), RegistryError> {
        if self.format != FORMAT {
            return Err(RegistryError::index(format!("format {} is not {FORMAT}", self.format)));
        }
        check_registry_name(&self.name)?;
        if self.artifacts.len() > MAX_ARTIFACTS {
            return Err(RegistryError::index(format!("there are more than {MAX_ARTIFACTS} artifacts")));
        }
        let key = |entry: &IndexEntry| (entry.skill_id.clone(), entry.version.clone());
        if !self.artifacts.is_sorted_by(|a, b| key(a) < key(b)) {
            return Err(RegistryError::index("artifacts are out of order or appear twice"));
        }
        for entry in &self.artifacts {
            let lawful = crate::archive::names::check_name(entry.path.as_bytes()).is_ok();
            if !lawful || entry.skill_id.publisher() != entry.publisher.as_str() {
                let path = crate::text::excerpt(&entry.path);
                return Err(RegistryError::index(format!("`{path}` is no path, or not its publisher's")));
            }
        }
        Ok(())
    }
}

/// A name that people can tell from every other.
pub(super) fn check_registry_name(name: &str) -> Result<(), RegistryError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ' ');
    if (1..=MAX_NAME).contains(&name.len()) && name.chars().all(plain) && name.trim() == name {
        return Ok(());
    }
    Err(RegistryError::index(format!("a name has 1 to {MAX_NAME} letters, digits, `-`, `_`, `.` and spaces")))
}

fn signed_digest(key: &PublicKey, index: &Digest) -> Digest {
    DigestBuilder::new("palyra.skill.registry.v1").field(key.to_string().as_bytes()).field(index.as_bytes()).finish()
}

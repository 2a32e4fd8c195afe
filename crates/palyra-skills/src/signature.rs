//! `signature.json`: who vouches for an artifact.
//!
//! The signature covers two digests. `content_sha256` is over every entry but the signature itself, name by name and
//! content by content, each with its length; it can be recomputed from an unpacked artifact. `archive_sha256` is over
//! the bytes of the archive before the signature, so that an artifact that was packed again is another artifact.
//! Publisher and key are signed too: nobody can put another name under a signature.

use crate::archive::Entry;
use crate::constants::{FORMAT, MAX_SIGNATURE_BYTES};
use crate::ids::{KeyId, PublisherId};
use palyra_protocol::json::canonical_text;
use palyra_protocol::signing::SignatureError;
use palyra_protocol::{DaemonKey, Digest, DigestBuilder, PublicKey, Secret, Signature};
use serde::{Deserialize, Serialize};
use std::fmt;

const ALGORITHM: &str = "ed25519";
/// How the text of a secret key begins.
const KEY_PREFIX: &str = "palyra-publisher-key-1:";

/// Why a signature does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureFault {
    /// Not a signature document.
    #[error("signature.json cannot be read: {reason}")]
    Form {
        /// Why.
        reason: String,
    },
    /// A signature document in another spelling than the canonical one.
    #[error("signature.json is not in canonical form")]
    NotCanonical,
    /// Another form or algorithm.
    #[error(
        "signature.json has format {format} and algorithm `{algorithm}`; this version reads {FORMAT} and `ed25519`"
    )]
    Unsupported {
        /// The form.
        format: u32,
        /// The algorithm.
        algorithm: String,
    },
    /// A key that cannot be trusted to verify anything.
    #[error("the public key is no Ed25519 key, or one of small order or non-canonical form")]
    WeakKey,
    /// The key id is not that of the key.
    #[error("the key id `{found}` is not that of the public key, which is `{expected}`")]
    KeyId {
        /// What the document says.
        found: KeyId,
        /// What the key's id is.
        expected: KeyId,
    },
    /// The entries are not those that were signed.
    #[error("the entries are not those that were signed")]
    Content,
    /// The archive was packed again.
    #[error("the archive is not the one that was signed: it was packed again or changed")]
    Archive,
    /// The signature was made by another key, or is none.
    #[error("the signature does not fit the key and the content")]
    Mismatch,
    /// The manifest names another publisher.
    #[error("the artifact is signed by `{signed}`, but its manifest says `{manifest}`")]
    Publisher {
        /// Who signed.
        signed: PublisherId,
        /// Whom the manifest names.
        manifest: PublisherId,
    },
}

impl SignatureFault {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Form { .. } => "signature_form",
            Self::NotCanonical => "signature_not_canonical",
            Self::Unsupported { .. } => "signature_unsupported",
            Self::WeakKey => "signature_weak_key",
            Self::KeyId { .. } => "signature_key_id",
            Self::Content => "signature_content",
            Self::Archive => "signature_archive",
            Self::Mismatch => "signature_mismatch",
            Self::Publisher { .. } => "signature_publisher",
        }
    }

    fn form(reason: impl ToString) -> Self {
        Self::Form { reason: crate::text::excerpt(&reason.to_string()) }
    }
}

/// A signature document as it stands in the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSignature {
    algorithm: String,
    archive_sha256: Digest,
    content_sha256: Digest,
    format: u32,
    key_id: KeyId,
    public_key: String,
    publisher: PublisherId,
    signature: String,
}

/// A signature document that was read. Only [`SignatureDocument::verify`] says whether it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SignatureDocument {
    /// SHA-256 of the archive before the signature.
    pub archive_sha256: Digest,
    /// Digest of every other entry.
    pub content_sha256: Digest,
    /// The short name of the key.
    pub key_id: KeyId,
    /// The key.
    pub public_key: PublicKey,
    /// Who says to have signed.
    pub publisher: PublisherId,
    /// The signature.
    pub signature: Signature,
}

impl SignatureDocument {
    /// Reads `signature.json`.
    ///
    /// # Errors
    /// It is no signature document in canonical form, or its key is weak.
    pub fn parse(bytes: &[u8]) -> Result<Self, SignatureFault> {
        if bytes.len() > MAX_SIGNATURE_BYTES {
            return Err(SignatureFault::form(format!("it has more than {MAX_SIGNATURE_BYTES} bytes")));
        }
        let raw: RawSignature = serde_json::from_slice(bytes).map_err(SignatureFault::form)?;
        if raw.format != FORMAT || raw.algorithm != ALGORITHM {
            let algorithm = crate::text::excerpt(&raw.algorithm);
            return Err(SignatureFault::Unsupported { format: raw.format, algorithm });
        }
        // One spelling only: a second one would be a second artifact with the same signature.
        if canonical_text(&raw).map_err(SignatureFault::form)?.as_bytes() != bytes {
            return Err(SignatureFault::NotCanonical);
        }
        let public_key: PublicKey = raw.public_key.parse().map_err(|_| SignatureFault::WeakKey)?;
        let signature: Signature = raw.signature.parse().map_err(SignatureFault::form)?;
        if public_key.to_string() != raw.public_key || signature.to_string() != raw.signature {
            return Err(SignatureFault::NotCanonical);
        }
        let expected = KeyId::of(&public_key);
        if raw.key_id != expected {
            return Err(SignatureFault::KeyId { found: raw.key_id, expected });
        }
        Ok(Self {
            archive_sha256: raw.archive_sha256,
            content_sha256: raw.content_sha256,
            key_id: expected,
            public_key,
            publisher: raw.publisher,
            signature,
        })
    }

    /// The document's bytes.
    ///
    /// # Errors
    /// It has no JSON form, which would be a bug.
    pub fn bytes(&self) -> Result<Vec<u8>, SignatureFault> {
        let raw = RawSignature {
            algorithm: ALGORITHM.to_owned(),
            archive_sha256: self.archive_sha256,
            content_sha256: self.content_sha256,
            format: FORMAT,
            key_id: self.key_id.clone(),
            public_key: self.public_key.to_string(),
            publisher: self.publisher.clone(),
            signature: self.signature.to_string(),
        };
        canonical_text(&raw).map(String::into_bytes).map_err(SignatureFault::form)
    }

    /// Checks that the signature holds for these entries, under the key that it names.
    ///
    /// An unpacked artifact has no archive any more; then `archive` is nothing, and what was signed about it is taken
    /// as it is.
    ///
    /// # Errors
    /// What does not fit.
    pub fn verify(&self, content: &Digest, archive: Option<&Digest>) -> Result<(), SignatureFault> {
        if self.content_sha256 != *content {
            return Err(SignatureFault::Content);
        }
        if archive.is_some_and(|archive| self.archive_sha256 != *archive) {
            return Err(SignatureFault::Archive);
        }
        let signed = signed_digest(&self.publisher, &self.public_key, content, &self.archive_sha256);
        self.public_key.verify(&signed, &self.signature).map_err(|e| match e {
            SignatureError::BadKey => SignatureFault::WeakKey,
            _ => SignatureFault::Mismatch,
        })
    }
}

/// The digest over every entry but the signature: `entries` are sorted by name.
#[must_use]
pub fn content_digest(entries: &[Entry]) -> Digest {
    let start = DigestBuilder::new("palyra.skill.content.v1").number(entries.len() as u64);
    let add = |digest: DigestBuilder, entry: &Entry| {
        digest.field(entry.name.as_bytes()).number(entry.content.len() as u64).field(entry.digest.as_bytes())
    };
    entries.iter().fold(start, add).finish()
}

/// What is signed.
fn signed_digest(publisher: &PublisherId, key: &PublicKey, content: &Digest, archive: &Digest) -> Digest {
    DigestBuilder::new("palyra.skill.signature.v1")
        .field(publisher.as_str().as_bytes())
        .field(key.to_string().as_bytes())
        .field(content.as_bytes())
        .field(archive.as_bytes())
        .finish()
}

/// A text that is no secret key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// It has another form.
    #[error("this is no publisher key; a key is the text `{KEY_PREFIX}` and 64 hexadecimal digits")]
    Form,
    /// The machine gives no randomness.
    #[error("the machine gives no randomness to make a key from")]
    NoEntropy,
}

impl KeyError {
    /// The stable machine code.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Form => "publisher_key_form",
            Self::NoEntropy => "publisher_key_no_entropy",
        }
    }
}

/// The secret key that a publisher signs with. It wipes itself and cannot be printed.
pub struct PublisherKey(DaemonKey);

impl PublisherKey {
    /// Makes a new key.
    ///
    /// # Errors
    /// The machine gives no randomness.
    pub fn generate() -> Result<Self, KeyError> {
        DaemonKey::generate().map(Self).map_err(|_| KeyError::NoEntropy)
    }

    /// Reads the text of a key file.
    ///
    /// # Errors
    /// It is no key.
    pub fn parse(text: &Secret) -> Result<Self, KeyError> {
        let text = std::str::from_utf8(text.expose()).map_err(|_| KeyError::Form)?;
        let digits = text.trim().strip_prefix(KEY_PREFIX).ok_or(KeyError::Form)?;
        let seed = Secret::new(hex::decode(digits).map_err(|_| KeyError::Form)?);
        DaemonKey::from_seed(&seed).map(Self).map_err(|_| KeyError::Form)
    }

    /// The text of a key file, to be stored where only the publisher reads.
    #[must_use]
    pub fn to_text(&self) -> Secret {
        let seed = self.0.seed();
        let mut text = Vec::with_capacity(KEY_PREFIX.len() + 2 * seed.expose().len() + 1);
        text.extend_from_slice(KEY_PREFIX.as_bytes());
        for byte in seed.expose() {
            text.extend([byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)]));
        }
        text.push(b'\n');
        Secret::new(text)
    }

    /// The half that everybody may know.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        self.0.public()
    }

    /// The key's short name.
    #[must_use]
    pub fn key_id(&self) -> KeyId {
        KeyId::of(&self.public())
    }

    /// Signs a digest that has a domain of its own.
    pub(crate) fn sign(&self, digest: &Digest) -> Signature {
        self.0.sign(digest)
    }

    /// Signs an artifact.
    #[must_use]
    pub fn sign_artifact(&self, publisher: &PublisherId, content: &Digest, archive: &Digest) -> SignatureDocument {
        let public_key = self.public();
        SignatureDocument {
            archive_sha256: *archive,
            content_sha256: *content,
            key_id: self.key_id(),
            public_key,
            publisher: publisher.clone(),
            signature: self.sign(&signed_digest(publisher, &public_key, content, archive)),
        }
    }
}

impl fmt::Debug for PublisherKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublisherKey({})", self.key_id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn signed() -> SignatureDocument {
        let key = PublisherKey::parse(&Secret::new(format!("{KEY_PREFIX}{}", "07".repeat(32)).into_bytes())).unwrap();
        key.sign_artifact(&"acme".parse().unwrap(), &Digest::of(b"content"), &Digest::of(b"archive"))
    }

    fn check(bytes: &[u8]) -> Result<(), &'static str> {
        let document = SignatureDocument::parse(bytes).map_err(|e| e.code())?;
        document.verify(&Digest::of(b"content"), Some(&Digest::of(b"archive"))).map_err(|e| e.code())
    }

    #[test]
    fn a_key_survives_its_text_and_shows_nothing() {
        let key = PublisherKey::generate().unwrap();
        assert_eq!(PublisherKey::parse(&key.to_text()).unwrap().public(), key.public());
        assert!(!format!("{key:?}").contains(&String::from_utf8(key.to_text().expose()[23..87].to_vec()).unwrap()));
        for bad in ["", "07", "palyra-publisher-key-1:", "palyra-publisher-key-1:07", "palyra-publisher-key-2:00"] {
            assert_eq!(PublisherKey::parse(&Secret::new(bad.into())).unwrap_err(), KeyError::Form, "{bad}");
        }
    }

    #[test]
    fn a_signature_holds_for_what_was_signed_alone() {
        let document = signed();
        assert_eq!(check(&document.bytes().unwrap()), Ok(()));
        assert_eq!(document.verify(&Digest::of(b"content"), None), Ok(()));
        assert_eq!(document.verify(&Digest::of(b"other"), None), Err(SignatureFault::Content));
        let other = Digest::of(b"other");
        assert_eq!(document.verify(&Digest::of(b"content"), Some(&other)), Err(SignatureFault::Archive));
        for forged in [
            SignatureDocument { publisher: "other".parse().unwrap(), ..document.clone() },
            SignatureDocument { archive_sha256: other, ..document.clone() },
            SignatureDocument { public_key: PublisherKey::generate().unwrap().public(), ..document },
        ] {
            assert_eq!(forged.verify(&Digest::of(b"content"), None), Err(SignatureFault::Mismatch));
        }
    }

    #[test]
    fn other_spellings_of_a_signature_are_refused() {
        let good = String::from_utf8(signed().bytes().unwrap()).unwrap();
        let key = signed().public_key.to_string();
        for (forged, code) in [
            (format!("{good}\n"), "signature_not_canonical"),
            (good.replace("\",\"", "\", \""), "signature_not_canonical"),
            (good.replace("\"ed25519\"", "\"ed25519ph\""), "signature_unsupported"),
            (good.replace("\"format\":1", "\"format\":2"), "signature_unsupported"),
            (good.replace("\"format\":1", "\"format\":1,\"format\":1"), "signature_form"),
            (good.replace("\"format\":1", "\"extra\":1,\"format\":1"), "signature_form"),
            (good.replace(&key, &key.to_uppercase()), "signature_not_canonical"),
            (good.replace(&key, &"0".repeat(64)), "signature_weak_key"),
            (good.replace(signed().key_id.as_str(), &"0".repeat(32)), "signature_key_id"),
        ] {
            assert_eq!(check(forged.as_bytes()), Err(code), "{forged}");
        }
    }

    proptest! {
        #[test]
        fn every_flipped_byte_breaks_it(at: prop::sample::Index, flip in 1_u8..) {
            let mut bytes = signed().bytes().unwrap();
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            prop_assert!(check(&bytes).is_err());
        }
    }
}

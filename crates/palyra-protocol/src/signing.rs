//! The daemon's signature: Ed25519, verified strictly.
//!
//! Lax verifiers accept forged signatures under small-order keys. A [`PublicKey`] therefore cannot be made from a weak
//! or non-canonical encoding, and verification is always the strict one. What is signed is always a domain-separated
//! [`Digest`], never bytes that a caller chose.

use crate::digest::{Digest, hexadecimal};
use crate::secret::Secret;
use ed25519_dalek::{Signature as DalekSignature, Signer, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// Why a key or a signature does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// Not a usable Ed25519 public key.
    #[error("not an Ed25519 public key (64 hexadecimal digits, not of small order)")]
    BadKey,
    /// Not the form of a signature.
    #[error("not an Ed25519 signature (128 hexadecimal digits)")]
    BadForm,
    /// The signature does not fit key and content.
    #[error("the signature does not fit the key and the content")]
    Mismatch,
    /// The machine's source of randomness did not answer.
    #[error("the machine gives no randomness to make a key from")]
    NoEntropy,
}

/// The key that the daemon signs attestations and checkpoints with.
pub struct DaemonKey(SigningKey);

impl DaemonKey {
    /// Makes a new key.
    ///
    /// # Errors
    /// The machine gives no randomness.
    pub fn generate() -> Result<Self, SignatureError> {
        let mut seed = zeroize::Zeroizing::new([0; 32]);
        getrandom::fill(&mut *seed).map_err(|_| SignatureError::NoEntropy)?;
        Ok(Self(SigningKey::from_bytes(&seed)))
    }

    /// Restores a key from its stored seed.
    ///
    /// # Errors
    /// The seed is not 32 bytes.
    pub fn from_seed(seed: &Secret) -> Result<Self, SignatureError> {
        let seed = <&[u8; 32]>::try_from(seed.expose()).map_err(|_| SignatureError::BadKey)?;
        Ok(Self(SigningKey::from_bytes(seed)))
    }

    /// The seed, to be stored where only the daemon reads.
    #[must_use]
    pub fn seed(&self) -> Secret {
        Secret::new(self.0.to_bytes().to_vec())
    }

    /// The half that everybody may know.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key().to_bytes())
    }

    /// Signs a digest.
    #[must_use]
    pub fn sign(&self, digest: &Digest) -> Signature {
        Signature(self.0.sign(digest.as_bytes()))
    }
}

impl fmt::Debug for DaemonKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DaemonKey({})", self.public())
    }
}

/// A public key that is safe to verify with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// Checks a signature over a digest, strictly.
    ///
    /// # Errors
    /// The signature does not fit.
    pub fn verify(&self, digest: &Digest, signature: &Signature) -> Result<(), SignatureError> {
        let key = VerifyingKey::from_bytes(&self.0).map_err(|_| SignatureError::BadKey)?;
        key.verify_strict(digest.as_bytes(), &signature.0).map_err(|_| SignatureError::Mismatch)
    }
}

impl FromStr for PublicKey {
    type Err = SignatureError;
    fn from_str(text: &str) -> Result<Self, SignatureError> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| SignatureError::BadKey)?;
        let key = VerifyingKey::from_bytes(&bytes).map_err(|_| SignatureError::BadKey)?;
        // A non-canonical encoding decodes to a point whose own encoding differs.
        if key.is_weak() || key.to_edwards().compress().to_bytes() != bytes {
            return Err(SignatureError::BadKey);
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(hexadecimal(&self.0, &mut [0; 64]))
    }
}

impl TryFrom<String> for PublicKey {
    type Error = SignatureError;
    fn try_from(text: String) -> Result<Self, SignatureError> {
        text.parse()
    }
}

impl Serialize for PublicKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(hexadecimal(&self.0, &mut [0; 64]))
    }
}

/// An Ed25519 signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Signature(DalekSignature);

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(hexadecimal(&self.0.to_bytes(), &mut [0; 128]))
    }
}

impl FromStr for Signature {
    type Err = SignatureError;
    fn from_str(text: &str) -> Result<Self, SignatureError> {
        let mut bytes = [0; 64];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| SignatureError::BadForm)?;
        Ok(Self(DalekSignature::from_bytes(&bytes)))
    }
}

impl TryFrom<String> for Signature {
    type Error = SignatureError;
    fn try_from(text: String) -> Result<Self, SignatureError> {
        text.parse()
    }
}

impl Serialize for Signature {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(hexadecimal(&self.0.to_bytes(), &mut [0; 128]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_and_refuses_every_flipped_bit() {
        let key = DaemonKey::generate().unwrap();
        let digest = Digest::of(b"content");
        let signature = key.sign(&digest);
        assert_eq!(key.public().verify(&digest, &signature), Ok(()));
        let text = signature.to_string();
        for at in 0..64 {
            let mut bytes = hex::decode(&text).unwrap();
            bytes[at] ^= 1;
            let forged: Signature = hex::encode(bytes).parse().unwrap();
            assert_eq!(key.public().verify(&digest, &forged), Err(SignatureError::Mismatch));
        }
        assert!(key.public().verify(&Digest::of(b"other"), &signature).is_err());
    }

    #[test]
    fn small_order_and_non_canonical_keys_are_refused() {
        for weak in [
            "0100000000000000000000000000000000000000000000000000000000000000",
            "0000000000000000000000000000000000000000000000000000000000000000",
            "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
            "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
            "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        ] {
            assert_eq!(weak.parse::<PublicKey>(), Err(SignatureError::BadKey), "{weak}");
        }
    }

    #[test]
    fn a_key_survives_its_seed() {
        let key = DaemonKey::generate().unwrap();
        assert_eq!(DaemonKey::from_seed(&key.seed()).unwrap().public(), key.public());
        assert!(DaemonKey::from_seed(&Secret::new(vec![0; 31])).is_err());
    }
}

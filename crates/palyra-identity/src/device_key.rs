//! Keys of devices: what is made on a device, and what the daemon accepts of one.
//!
//! Two kinds of key are accepted, ECDSA over P-256 and over P-384: every TLS stack, every browser and every hardware
//! keystore has them. RSA is refused whatever its size. Ed25519 is refused because a small-order key, which proves
//! nothing, passes for a good one in verifiers that do not look for it.

use palyra_protocol::signing::SignatureError;
use palyra_protocol::{ConsoleKey, ConsoleSignature, Digest, Secret};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PublicKeyData as _, SubjectPublicKeyInfo};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use x509_parser::prelude::FromDer as _;

/// Why a key is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyRefusal {
    /// Another kind of key, or another size.
    #[error("the key is neither ECDSA P-256 nor ECDSA P-384")]
    Unsupported,
    /// Not a key at all.
    #[error("the key cannot be read")]
    Malformed,
}

impl KeyRefusal {
    /// The stable machine code.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Unsupported => "key_not_accepted",
            Self::Malformed => "key_malformed",
        }
    }
}

/// A public key of an accepted kind.
#[derive(Debug, Clone)]
pub(crate) struct PublicKey {
    curve: Curve,
    info: SubjectPublicKeyInfo,
    digest: Digest,
}

/// The curves of accepted keys. Each goes with one hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Curve {
    /// With SHA-256.
    P256,
    /// With SHA-384.
    P384,
}

impl PublicKey {
    /// Reads a `SubjectPublicKeyInfo`.
    ///
    /// # Errors
    /// The key is not of an accepted kind.
    pub(crate) fn read(der: &[u8]) -> Result<Self, KeyRefusal> {
        let parsed = x509_parser::x509::SubjectPublicKeyInfo::from_der(der);
        let (rest, info) = parsed.map_err(|_| KeyRefusal::Malformed)?;
        let point = info.subject_public_key.data.as_ref();
        let curve = info.algorithm.parameters.as_ref().and_then(|p| p.as_oid().ok());
        let is_ec = info.algorithm.algorithm == x509_parser::oid_registry::OID_KEY_TYPE_EC_PUBLIC_KEY;
        let (curve, size) = match curve {
            Some(curve) if is_ec && curve == x509_parser::oid_registry::OID_EC_P256 => (Curve::P256, 65),
            Some(curve) if is_ec && curve == x509_parser::oid_registry::OID_NIST_EC_P384 => (Curve::P384, 97),
            _ => return Err(KeyRefusal::Unsupported),
        };
        if !rest.is_empty() || point.len() != size || point.first() != Some(&4) {
            return Err(KeyRefusal::Malformed);
        }
        let info = SubjectPublicKeyInfo::from_der(der).map_err(|_| KeyRefusal::Malformed)?;
        // Several encodings of one key would be several keys to whoever compares digests.
        if info.subject_public_key_info() != der {
            return Err(KeyRefusal::Malformed);
        }
        Ok(Self { curve, info, digest: Digest::of(der) })
    }

    pub(crate) fn curve(&self) -> Curve {
        self.curve
    }

    /// SHA-256 of its `SubjectPublicKeyInfo`: what the key is known by.
    pub(crate) fn digest(&self) -> Digest {
        self.digest
    }

    pub(crate) fn info(&self) -> &SubjectPublicKeyInfo {
        &self.info
    }
}

/// A device's own key. It is made on the device and never leaves it.
#[derive(Debug)]
pub struct DeviceKey(KeyPair);

/// A key could not be made, read or used.
#[derive(Debug, thiserror::Error)]
#[error("the device's key {what}")]
pub struct DeviceKeyError {
    what: &'static str,
    source: rcgen::Error,
}

impl DeviceKeyError {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        "device_key_failed"
    }
}

fn failed(what: &'static str) -> impl FnOnce(rcgen::Error) -> DeviceKeyError {
    move |source| DeviceKeyError { what, source }
}

impl DeviceKey {
    /// Makes a new key: ECDSA P-256.
    ///
    /// # Errors
    /// The machine gives no randomness.
    pub fn generate() -> Result<Self, DeviceKeyError> {
        KeyPair::generate().map(Self).map_err(failed("cannot be made"))
    }

    /// Restores a key from what [`DeviceKey::to_secret`] gave.
    ///
    /// # Errors
    /// It is no such key.
    pub fn from_secret(secret: &Secret) -> Result<Self, DeviceKeyError> {
        let der = PrivatePkcs8KeyDer::from(secret.expose());
        KeyPair::from_pkcs8_der_and_sign_algo(&der, &rcgen::PKCS_ECDSA_P256_SHA256)
            .map(Self)
            .map_err(failed("cannot be read"))
    }

    /// The key as PKCS#8, for a [`crate::KeyVault`].
    #[must_use]
    pub fn to_secret(&self) -> Secret {
        Secret::new(self.0.serialized_der().to_vec())
    }

    /// SHA-256 of its public half.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&self.0.subject_public_key_info())
    }

    /// Signs what a person decides on this device.
    ///
    /// # Errors
    /// The key is of another kind than [`DeviceKey::generate`] makes.
    pub fn sign(&self, digest: &Digest) -> Result<(ConsoleKey, ConsoleSignature), SignatureError> {
        ConsoleSignature::by_device(self.0.serialized_der(), digest)
    }

    /// A request for a certificate (PKCS#10) that names nobody but `common_name`.
    ///
    /// # Errors
    /// The key cannot sign.
    pub fn signing_request(&self, common_name: &str) -> Result<Vec<u8>, DeviceKeyError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, common_name);
        let request = params.serialize_request(&self.0).map_err(failed("cannot sign"))?;
        Ok(request.der().to_vec())
    }

    /// The key as rustls takes it.
    pub(crate) fn for_tls(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.0.serialized_der().to_vec()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_its_vault() {
        let key = DeviceKey::generate().unwrap();
        let again = DeviceKey::from_secret(&key.to_secret()).unwrap();
        let said = Digest::of(b"said");
        let (public, signature) = again.sign(&said).unwrap();
        assert_eq!(public.verify(&said, &signature), Ok(()));
        assert_eq!(public.certificate_key(), Some(key.digest()), "it is the certificate's key");
        assert_eq!(key.digest(), again.digest());
        assert!(DeviceKey::from_secret(&Secret::new(b"no key".to_vec())).is_err());
        assert!(!format!("{key:?}").contains("serialized_der: ["), "the key is not shown");
    }

    #[test]
    fn only_two_kinds_are_accepted() {
        for good in [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384] {
            let key = KeyPair::generate_for(good).unwrap();
            let der = key.subject_public_key_info();
            assert_eq!(PublicKey::read(&der).unwrap().digest(), Digest::of(&der));
            let longer = [der.clone(), vec![0]].concat();
            assert_eq!(PublicKey::read(&longer).unwrap_err(), KeyRefusal::Malformed);
            let mut compressed = der.clone();
            let point = der.len() - key.public_key_raw().len();
            compressed[point] = 2;
            assert_eq!(PublicKey::read(&compressed).unwrap_err(), KeyRefusal::Malformed);
        }
        let ed25519 = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap().subject_public_key_info();
        assert_eq!(PublicKey::read(&ed25519).unwrap_err(), KeyRefusal::Unsupported);
        assert_eq!(PublicKey::read(b"").unwrap_err(), KeyRefusal::Malformed);
    }
}

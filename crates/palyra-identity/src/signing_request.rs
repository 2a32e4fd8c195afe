//! A device's request for a certificate (PKCS#10), read strictly.
//!
//! Of a request only two things are taken: the public key, and the one name that its sender was to put there. Whatever
//! else a request asks for (other names, extensions, attributes) is not ignored but refused, so that nobody can believe
//! to have got it.

use crate::device_key::{Curve, KeyRefusal, PublicKey};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::oid_registry as oids;
use x509_parser::prelude::FromDer as _;

/// The largest request: one for a P-384 key with the longest name has about 500 bytes.
pub const MAX_SIGNING_REQUEST: usize = 1024;

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SigningRequestRefusal {
    /// It is too large.
    #[error("the certificate request is larger than {MAX_SIGNING_REQUEST} bytes")]
    TooLarge,
    /// It cannot be read.
    #[error("the certificate request cannot be read")]
    Malformed,
    /// Its key is not accepted.
    #[error("the certificate request's key is not accepted")]
    Key(#[source] KeyRefusal),
    /// Its sender does not hold the key.
    #[error("the certificate request is not signed with its key")]
    Signature,
    /// It does not name its sender, or somebody else.
    #[error("the certificate request does not carry its sender's name and nothing else")]
    Name,
    /// It asks for more than a certificate.
    #[error("the certificate request asks for names, extensions or attributes")]
    Extras,
}

impl SigningRequestRefusal {
    /// The stable machine code.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::TooLarge => "csr_too_large",
            Self::Malformed => "csr_malformed",
            Self::Key(refusal) => refusal.code(),
            Self::Signature => "csr_signature",
            Self::Name => "csr_foreign_name",
            Self::Extras => "csr_extras",
        }
    }
}

const SEQUENCE: u8 = 0x30;
const BIT_STRING: u8 = 0x03;
/// `ecdsa-with-SHA256`, as a request names the algorithm that it is signed with.
const ECDSA_WITH_SHA256: &[u8] = &[0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
/// `ecdsa-with-SHA384`.
const ECDSA_WITH_SHA384: &[u8] = &[0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3];

/// Content with its tag and length in front, as DER writes it.
fn tagged(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let digits = &length[length.iter().position(|byte| *byte != 0).unwrap_or(length.len() - 1)..];
    let mut der = vec![tag];
    if content.len() >= 0x80 {
        der.push(0x80 | digits.len() as u8);
    }
    der.extend_from_slice(digits);
    der.extend_from_slice(content);
    der
}

/// Reads a request of somebody who is called `name`; returns the key.
///
/// # Errors
/// The request is refused.
pub(crate) fn read(der: &[u8], name: &str) -> Result<PublicKey, SigningRequestRefusal> {
    if der.len() > MAX_SIGNING_REQUEST {
        return Err(SigningRequestRefusal::TooLarge);
    }
    let (rest, request) = X509CertificationRequest::from_der(der).map_err(|_| SigningRequestRefusal::Malformed)?;
    let info = &request.certification_request_info;
    if !rest.is_empty() || info.version.0 != 0 {
        return Err(SigningRequestRefusal::Malformed);
    }
    let key = PublicKey::read(info.subject_pki.raw).map_err(SigningRequestRefusal::Key)?;
    let algorithm = match key.curve() {
        Curve::P256 => ECDSA_WITH_SHA256,
        Curve::P384 => ECDSA_WITH_SHA384,
    };
    // The signature covers only what is inside; the frame around it has one spelling.
    let mut signature = vec![0];
    signature.extend_from_slice(&request.signature_value.data);
    let frame = [info.raw, algorithm, &tagged(BIT_STRING, &signature)].concat();
    // Verifying also finds a point that is not on its curve.
    if tagged(SEQUENCE, &frame) != der || request.verify_signature().is_err() {
        return Err(SigningRequestRefusal::Signature);
    }
    if !info.attributes().is_empty() {
        return Err(SigningRequestRefusal::Extras);
    }
    let mut parts = info.subject.iter_attributes();
    let common_name = parts.next().filter(|part| *part.attr_type() == oids::OID_X509_COMMON_NAME);
    let named = common_name.and_then(|part| part.as_str().ok());
    if named != Some(name) || parts.next().is_some() {
        return Err(SigningRequestRefusal::Name);
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device_key::DeviceKey;
    use rcgen::{CertificateParams, DnType, KeyPair};

    fn refused(der: &[u8]) -> &'static str {
        read(der, "phone").unwrap_err().code()
    }

    fn request(edit: impl FnOnce(&mut CertificateParams)) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "phone");
        edit(&mut params);
        params.serialize_request(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn a_request_gives_its_key() {
        let key = DeviceKey::generate().unwrap();
        let der = key.signing_request("phone").unwrap();
        assert_eq!(read(&der, "phone").unwrap().digest(), key.digest());
    }

    #[test]
    fn names_of_others_and_wishes_are_refused() {
        let key = DeviceKey::generate().unwrap();
        assert_eq!(refused(&key.signing_request("laptop").unwrap()), "csr_foreign_name");
        assert_eq!(refused(&request(|p| p.distinguished_name.push(DnType::OrganizationName, "x"))), "csr_foreign_name");
        assert_eq!(refused(&request(|p| p.distinguished_name = rcgen::DistinguishedName::new())), "csr_foreign_name");
        let host = rcgen::SanType::DnsName("example.org".try_into().unwrap());
        assert_eq!(refused(&request(|p| p.subject_alt_names.push(host))), "csr_extras");
        assert_eq!(refused(&request(|p| p.key_usages.push(rcgen::KeyUsagePurpose::KeyCertSign))), "csr_extras");
    }

    #[test]
    fn every_changed_byte_is_refused() {
        let key = DeviceKey::generate().unwrap();
        let der = key.signing_request("phone").unwrap();
        for at in 0..der.len() {
            let mut bad = der.clone();
            bad[at] ^= 1;
            assert!(read(&bad, "phone").is_err(), "byte {at}");
        }
        for length in 0..der.len() {
            assert!(read(&der[..length], "phone").is_err(), "{length} bytes");
        }
        assert_eq!(refused(&[&der[..], &[0]].concat()), "csr_malformed");
        assert_eq!(refused(&[0; MAX_SIGNING_REQUEST + 1]), "csr_too_large");
    }

    #[test]
    fn other_kinds_of_keys_are_refused() {
        let ed25519 = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let der = CertificateParams::default().serialize_request(&ed25519).unwrap();
        assert_eq!(refused(der.der()), "key_not_accepted");
        // A weak RSA key (1,024 bits), and the curves that only look like ours.
        let weak = include_bytes!("../vectors/csr/rsa_1024.der");
        assert_eq!(refused(weak), "key_not_accepted");
        for name in [&include_bytes!("../vectors/csr/secp256k1.der")[..], include_bytes!("../vectors/csr/p224.der")] {
            assert_eq!(refused(name), "key_not_accepted");
        }
    }
}

//! The keys of browsers and paired devices, and what they sign: requests of the console, and the decisions that people
//! make.
//!
//! A page of the console makes a key that never leaves its browser: Ed25519, or ECDSA over P-256 where the browser has
//! no Ed25519. A paired device signs with the P-256 key of its certificate. What is signed is always the 32 bytes of a
//! domain-separated [`Digest`]. The journal keeps the signature of a decision beside it, so that `journal verify` can
//! show which browser or device a yes or a no came from, and that it was about exactly this.

use crate::approval::{ApprovalDecision, ApprovalScope};
use crate::digest::{Digest, DigestBuilder};
use crate::grant_match::GrantMatcher;
use crate::id::{ApprovalId, ConsoleId, DeviceId};
use crate::json::canonical_text;
use crate::passkey::PasskeyAssertion;
use crate::signing::{PublicKey, Signature, SignatureError};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// The length of a point of P-256, uncompressed.
const POINT: usize = 65;
/// What stands before the point where a certificate holds a key of P-256 (`SubjectPublicKeyInfo`).
const P256_SPKI: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// The public half of a browser's key: `ed25519:` or `p256:`, and hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum ConsoleKey {
    /// Ed25519, verified strictly.
    Ed25519(PublicKey),
    /// ECDSA over P-256 with SHA-256: the uncompressed point.
    P256([u8; POINT]),
}

impl ConsoleKey {
    /// Checks a signature over a digest.
    ///
    /// # Errors
    /// The signature does not fit.
    pub fn verify(&self, digest: &Digest, signature: &ConsoleSignature) -> Result<(), SignatureError> {
        match self {
            Self::Ed25519(key) => {
                let signature: Signature = signature.to_string().parse()?;
                key.verify(digest, &signature)
            }
            Self::P256(point) => {
                let key =
                    ring::signature::UnparsedPublicKey::new(&ring::signature::ECDSA_P256_SHA256_FIXED, &point[..]);
                key.verify(digest.as_bytes(), &signature.0).map_err(|_| SignatureError::Mismatch)
            }
        }
    }
}

impl ConsoleKey {
    /// Checks a signature as WebAuthn makes it: ECDSA over P-256 with SHA-256, in ASN.1.
    pub(crate) fn verify_es256(&self, message: &[u8], signature: &[u8]) -> Result<(), SignatureError> {
        let Self::P256(point) = self else { return Err(SignatureError::BadKey) };
        let key = ring::signature::UnparsedPublicKey::new(&ring::signature::ECDSA_P256_SHA256_ASN1, &point[..]);
        key.verify(message, signature).map_err(|_| SignatureError::Mismatch)
    }

    /// SHA-256 of the key as a certificate holds it, which is how devices' keys are known; none for Ed25519.
    #[must_use]
    pub fn certificate_key(&self) -> Option<Digest> {
        match self {
            Self::Ed25519(_) => None,
            Self::P256(point) => Some(Digest::of(&[&P256_SPKI[..], &point[..]].concat())),
        }
    }
}

impl FromStr for ConsoleKey {
    type Err = SignatureError;
    fn from_str(text: &str) -> Result<Self, SignatureError> {
        let (algorithm, digits) = text.split_once(':').ok_or(SignatureError::BadKey)?;
        match algorithm {
            "ed25519" => digits.parse().map(Self::Ed25519),
            "p256" => {
                let mut point = [0; POINT];
                hex::decode_to_slice(digits, &mut point).map_err(|_| SignatureError::BadKey)?;
                // Whether it lies on the curve is seen when it verifies something.
                if point[0] == 4 { Ok(Self::P256(point)) } else { Err(SignatureError::BadKey) }
            }
            _ => Err(SignatureError::BadKey),
        }
    }
}

impl fmt::Display for ConsoleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ed25519(key) => write!(f, "ed25519:{key}"),
            Self::P256(point) => write!(f, "p256:{}", hex::encode(point)),
        }
    }
}

impl TryFrom<String> for ConsoleKey {
    type Error = SignatureError;
    fn try_from(text: String) -> Result<Self, SignatureError> {
        text.parse()
    }
}

impl Serialize for ConsoleKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A signature by a browser's key: 64 bytes with either algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct ConsoleSignature([u8; 64]);

impl FromStr for ConsoleSignature {
    type Err = SignatureError;
    fn from_str(text: &str) -> Result<Self, SignatureError> {
        let mut bytes = [0; 64];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| SignatureError::BadForm)?;
        Ok(Self(bytes))
    }
}

impl fmt::Display for ConsoleSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl TryFrom<String> for ConsoleSignature {
    type Error = SignatureError;
    fn try_from(text: String) -> Result<Self, SignatureError> {
        text.parse()
    }
}

impl Serialize for ConsoleSignature {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl ConsoleSignature {
    /// Signs with a device's key: P-256, as PKCS#8.
    ///
    /// # Errors
    /// It is no such key.
    pub fn by_device(pkcs8: &[u8], digest: &Digest) -> Result<(ConsoleKey, Self), SignatureError> {
        use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
        let random = ring::rand::SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &random);
        let pair = pair.map_err(|_| SignatureError::BadKey)?;
        let point = pair.public_key().as_ref().try_into().map_err(|_| SignatureError::BadKey)?;
        let signature = pair.sign(&random, digest.as_bytes()).map_err(|_| SignatureError::BadKey)?;
        let signature = signature.as_ref().try_into().map_err(|_| SignatureError::BadForm)?;
        Ok((ConsoleKey::P256(point), Self(signature)))
    }
}

/// Whose key signed a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signer {
    /// A browser's, in this session of the console.
    Session(ConsoleId),
    /// A paired device's.
    Device(DeviceId),
}

impl fmt::Display for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(session) => write!(f, "signed in {session}"),
            Self::Device(device) => write!(f, "signed by {device}"),
        }
    }
}

/// A decision's signature, as the journal keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionSignature {
    /// The console session that it was given in, or the device that it was given on.
    #[serde(flatten)]
    pub signer: Signer,
    /// The key that signed.
    pub key: ConsoleKey,
    /// The signature over [`DecisionStatement::digest`].
    pub signature: ConsoleSignature,
    /// The person's passkey has confirmed the same digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assertion: Option<Box<PasskeyAssertion>>,
}

impl fmt::Display for DecisionSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verified = if self.assertion.is_some() { ", confirmed with a passkey" } else { "" };
        write!(f, "{}{verified}", self.signer)
    }
}

/// What a person's browser signs when they decide.
#[derive(Debug, Clone, Copy)]
pub struct DecisionStatement<'a> {
    /// The approval.
    pub approval_id: &'a ApprovalId,
    /// The digest of what was shown.
    pub shown: &'a Digest,
    /// The policy that it was asked under.
    pub policy_hash: &'a Digest,
    /// Yes or no.
    pub decision: ApprovalDecision,
    /// How long it holds.
    pub scope: ApprovalScope,
    /// How wide it is.
    pub matcher: &'a GrantMatcher,
    /// Why; empty where nothing is said.
    pub reason: &'a str,
}

impl DecisionStatement<'_> {
    /// The digest that is signed.
    ///
    /// # Errors
    /// The matcher has no canonical form.
    pub fn digest(&self) -> Result<Digest, crate::json::JsonRejection> {
        Ok(DigestBuilder::new("palyra.decision.v1")
            .field(self.approval_id.as_str().as_bytes())
            .field(self.shown.as_bytes())
            .field(self.policy_hash.as_bytes())
            .field(self.decision.as_str().as_bytes())
            .field(scope_text(self.scope).as_bytes())
            .field(canonical_text(self.matcher)?.as_bytes())
            .field(self.reason.as_bytes())
            .finish())
    }

    /// Whether a signature is one of this decision.
    ///
    /// # Errors
    /// It is not.
    pub fn verify(&self, signed: &DecisionSignature) -> Result<(), SignatureError> {
        let digest = self.digest().map_err(|_| SignatureError::Mismatch)?;
        signed.key.verify(&digest, &signed.signature)
    }
}

/// A scope as it is signed.
fn scope_text(scope: ApprovalScope) -> String {
    match scope {
        ApprovalScope::Once => "once".to_owned(),
        ApprovalScope::Session => "session".to_owned(),
        ApprovalScope::Window { ms } => format!("window:{ms}"),
    }
}

/// What a page of the console signs with every request.
#[derive(Debug, Clone, Copy)]
pub struct RequestStatement<'a> {
    /// The session.
    pub session: &'a ConsoleId,
    /// The verb.
    pub method: &'a str,
    /// The path with its query.
    pub path: &'a str,
    /// SHA-256 of the body.
    pub body: &'a Digest,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// Never used before in this session.
    pub nonce: &'a str,
}

impl RequestStatement<'_> {
    /// The digest that is signed.
    #[must_use]
    pub fn digest(&self) -> Digest {
        DigestBuilder::new("palyra.console-request.v1")
            .field(self.session.as_str().as_bytes())
            .field(self.method.as_bytes())
            .field(self.path.as_bytes())
            .field(self.body.as_bytes())
            .number(self.at_ms)
            .field(self.nonce.as_bytes())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signing::DaemonKey;
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};

    fn check(key: ConsoleKey, sign: &dyn Fn(&Digest) -> ConsoleSignature) {
        let (approval_id, shown, policy_hash) = (ApprovalId::mint(), Digest::of(b"shown"), Digest::of(b"policy"));
        let said = DecisionStatement {
            approval_id: &approval_id,
            shown: &shown,
            policy_hash: &policy_hash,
            decision: ApprovalDecision::Allow,
            scope: ApprovalScope::Once,
            matcher: &GrantMatcher::ExactCall,
            reason: "",
        };
        let signature = sign(&said.digest().unwrap());
        let signer = Signer::Session(ConsoleId::mint());
        let signed = DecisionSignature { signer, key, signature, assertion: None };
        assert_eq!(said.verify(&signed), Ok(()));
        let (other_id, other) = (ApprovalId::mint(), Digest::of(b"other"));
        let wider = GrantMatcher::Tool;
        for changed in [
            DecisionStatement { approval_id: &other_id, ..said },
            DecisionStatement { shown: &other, ..said },
            DecisionStatement { policy_hash: &other, ..said },
            DecisionStatement { decision: ApprovalDecision::Deny, ..said },
            DecisionStatement { scope: ApprovalScope::Session, ..said },
            DecisionStatement { matcher: &wider, ..said },
            DecisionStatement { reason: "because", ..said },
        ] {
            assert_eq!(changed.verify(&signed), Err(SignatureError::Mismatch), "{changed:?}");
        }
        let text = signature.to_string();
        for at in 0..64 {
            let mut bytes = hex::decode(&text).unwrap();
            bytes[at] ^= 1;
            let forged = DecisionSignature { signature: hex::encode(bytes).parse().unwrap(), ..signed.clone() };
            assert!(said.verify(&forged).is_err(), "byte {at}");
        }
        assert_eq!(key.to_string().parse(), Ok(key));
    }

    #[test]
    fn a_decision_is_signed_by_either_kind_of_key_and_no_part_of_it_can_be_changed() {
        let daemon = DaemonKey::generate().unwrap();
        let signed = |digest: &Digest| daemon.sign(digest).to_string().parse().unwrap();
        check(ConsoleKey::Ed25519(daemon.public()), &signed);
        let random = SystemRandom::new();
        let stored = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, stored.as_ref(), &random).unwrap();
        let point = hex::encode(pair.public_key().as_ref());
        let signed = |digest: &Digest| hex::encode(pair.sign(&random, digest.as_bytes()).unwrap()).parse().unwrap();
        check(format!("p256:{point}").parse().unwrap(), &signed);
    }

    #[test]
    fn a_device_signs_with_the_key_of_its_certificate_and_either_signer_reads_back() {
        let random = SystemRandom::new();
        let stored = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let said = Digest::of(b"said");
        let (key, signature) = ConsoleSignature::by_device(stored.as_ref(), &said).unwrap();
        assert_eq!(key.verify(&said, &signature), Ok(()));
        assert_eq!(ConsoleSignature::by_device(b"no key", &said), Err(SignatureError::BadKey));
        for signer in [Signer::Session(ConsoleId::mint()), Signer::Device(DeviceId::mint())] {
            let signed = DecisionSignature { signer, key, signature, assertion: None };
            let text = serde_json::to_string(&signed).unwrap();
            assert_eq!(serde_json::from_str::<DecisionSignature>(&text).unwrap(), signed, "{text}");
        }
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let weak = format!("ed25519:01{}", "00".repeat(31));
        for text in ["", "ed25519:", "p256:04", "rsa:00", &format!("p256:02{}", "00".repeat(64)), &weak] {
            assert!(text.parse::<ConsoleKey>().is_err(), "{text}");
        }
    }
}

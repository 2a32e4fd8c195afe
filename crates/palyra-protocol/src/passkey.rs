//! Passkeys: a person's authenticator confirms one decision with its user's presence and verification (WebAuthn).
//!
//! What is confirmed is the digest of the decision itself, as the challenge. So an assertion is of no use for anything
//! else, needs no state on either side, and is kept beside the decision: whoever replays the journal checks it again.
//! Only ES256 keys are known, which every authenticator has.

use crate::clock::Timestamp;
use crate::digest::{Digest, DigestBuilder};
use crate::principal::Principal;
use crate::signed_decision::ConsoleKey;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

/// The longest credential id, in its text form.
const MAX_ID: usize = 1400;
/// The most bytes of what an authenticator says besides its signature.
const MAX_DATA: usize = 1024;
/// The most bytes of what the browser says.
const MAX_CLIENT: usize = 4096;
/// The flags that have to be set: the user was present, and the authenticator has verified who they are.
const PRESENT_AND_VERIFIED: u8 = 0b101;
/// Hash, flags and counter: the least that an authenticator says.
const LEAST_DATA: usize = 37;

/// A passkey as the journal knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passkey {
    /// The authenticator's name for it, as unpadded base64url.
    pub id: String,
    /// Whose it is.
    pub principal: Principal,
    /// Its public key.
    pub key: ConsoleKey,
    /// The host of the console that it belongs to: it says nothing elsewhere.
    pub host: String,
    /// What its owner calls it.
    pub label: String,
    /// Since when.
    pub at: Timestamp,
}

impl Passkey {
    /// What has to be confirmed when it is added: by itself, and by another of the same person if there is one.
    #[must_use]
    pub fn introduction(principal: &Principal, id: &str, key: &ConsoleKey) -> Digest {
        DigestBuilder::new("palyra.passkey.v1")
            .field(principal.to_string().as_bytes())
            .field(id.as_bytes())
            .field(key.to_string().as_bytes())
            .finish()
    }

    /// Whether a text can be an authenticator's name for a key.
    #[must_use]
    pub fn is_id(text: &str) -> bool {
        (1..=MAX_ID).contains(&text.len()) && URL_SAFE_NO_PAD.decode(text).is_ok()
    }
}

/// What an authenticator has confirmed: binary parts as unpadded base64url, as the browser gave them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PasskeyAssertion {
    /// The passkey, by its id.
    pub passkey: String,
    /// What the authenticator says.
    pub authenticator_data: String,
    /// What the browser says it was asked, as JSON.
    pub client_data: String,
    /// The signature over both.
    pub signature: String,
}

/// Why an assertion confirms nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AssertionFault {
    /// A part is too long or is not what it should be.
    #[error("it cannot be read")]
    Malformed,
    /// It is about something else.
    #[error("it confirms something else")]
    Challenge,
    /// Another page asked for it.
    #[error("a page of another origin asked for it")]
    Origin,
    /// The authenticator has not verified who its user is.
    #[error("the authenticator has not verified its user")]
    NotVerified,
    /// The signature is not the passkey's.
    #[error("the signature is not the passkey's")]
    Signature,
}

/// As much as matters of what the browser says.
#[derive(Deserialize)]
struct ClientData {
    #[serde(rename = "type")]
    kind: String,
    challenge: String,
    origin: String,
    #[serde(rename = "crossOrigin", default)]
    cross_origin: bool,
}

impl PasskeyAssertion {
    /// Whether this passkey's authenticator has confirmed this digest. Returns the origin of the page that asked.
    ///
    /// # Errors
    /// It has not.
    pub fn verify(&self, passkey: &Passkey, said: &Digest) -> Result<String, AssertionFault> {
        let data = decoded(&self.authenticator_data, MAX_DATA)?;
        let client = decoded(&self.client_data, MAX_CLIENT)?;
        let signature = decoded(&self.signature, MAX_DATA)?;
        let read: ClientData = serde_json::from_slice(&client).map_err(|_| AssertionFault::Malformed)?;
        if data.len() < LEAST_DATA {
            return Err(AssertionFault::Malformed);
        }
        if self.passkey != passkey.id || read.kind != "webauthn.get" {
            return Err(AssertionFault::Challenge);
        }
        if read.challenge != URL_SAFE_NO_PAD.encode(said.as_bytes()) {
            return Err(AssertionFault::Challenge);
        }
        let of_host = data.starts_with(Digest::of(passkey.host.as_bytes()).as_bytes());
        if read.cross_origin || !of_host || host_of(&read.origin) != Some(passkey.host.as_str()) {
            return Err(AssertionFault::Origin);
        }
        if data[32] & PRESENT_AND_VERIFIED != PRESENT_AND_VERIFIED {
            return Err(AssertionFault::NotVerified);
        }
        let signed = [&data[..], Digest::of(&client).as_bytes()].concat();
        passkey.key.verify_es256(&signed, &signature).map_err(|_| AssertionFault::Signature)?;
        Ok(read.origin)
    }
}

fn decoded(text: &str, most: usize) -> Result<Vec<u8>, AssertionFault> {
    if text.len() > most.div_ceil(3) * 4 {
        return Err(AssertionFault::Malformed);
    }
    URL_SAFE_NO_PAD.decode(text).map_err(|_| AssertionFault::Malformed)
}

/// The host of an origin, without its port.
fn host_of(origin: &str) -> Option<&str> {
    let (_, authority) = origin.split_once("://")?;
    let host = authority
        .rsplit_once(':')
        .map_or(authority, |(host, port)| if port.bytes().all(|b| b.is_ascii_digit()) { host } else { authority });
    Some(host).filter(|host| !host.is_empty() && !host.contains(['/', '@', '?', '#']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};

    struct Authenticator {
        pair: EcdsaKeyPair,
        passkey: Passkey,
    }

    impl Authenticator {
        fn new() -> Self {
            let random = SystemRandom::new();
            let stored = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
            let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, stored.as_ref(), &random).unwrap();
            let key = format!("p256:{}", hex::encode(pair.public_key().as_ref())).parse().unwrap();
            let passkey = Passkey {
                id: URL_SAFE_NO_PAD.encode(b"credential"),
                principal: Principal::local_owner(),
                key,
                host: "localhost".to_owned(),
                label: "a test".to_owned(),
                at: Timestamp::from_unix_ms(1),
            };
            Self { pair, passkey }
        }

        fn confirms(&self, client: &str, host: &str, flags: u8) -> PasskeyAssertion {
            let data = [Digest::of(host.as_bytes()).as_bytes().as_slice(), &[flags, 0, 0, 0, 1]].concat();
            let signed = [&data[..], Digest::of(client.as_bytes()).as_bytes()].concat();
            let signature = self.pair.sign(&SystemRandom::new(), &signed).unwrap();
            PasskeyAssertion {
                passkey: self.passkey.id.clone(),
                authenticator_data: URL_SAFE_NO_PAD.encode(data),
                client_data: URL_SAFE_NO_PAD.encode(client),
                signature: URL_SAFE_NO_PAD.encode(signature.as_ref()),
            }
        }
    }

    fn client(said: &Digest, kind: &str, origin: &str) -> String {
        let challenge = URL_SAFE_NO_PAD.encode(said.as_bytes());
        format!(r#"{{"type":"{kind}","challenge":"{challenge}","origin":"{origin}","crossOrigin":false,"other":1}}"#)
    }

    #[test]
    fn an_assertion_confirms_one_digest_for_one_host_by_a_verified_user() {
        let (world, said) = (Authenticator::new(), Digest::of(b"said"));
        let good = client(&said, "webauthn.get", "http://localhost:7431");
        let check = |client: &str, host: &str, flags: u8, said: &Digest| {
            world.confirms(client, host, flags).verify(&world.passkey, said)
        };
        assert_eq!(check(&good, "localhost", 0b101, &said), Ok("http://localhost:7431".to_owned()));
        assert_eq!(check(&good, "localhost", 0b101, &Digest::of(b"other")), Err(AssertionFault::Challenge));
        let made = client(&said, "webauthn.create", "http://localhost:7431");
        assert_eq!(check(&made, "localhost", 0b101, &said), Err(AssertionFault::Challenge));
        for flags in [0, 0b1, 0b100] {
            assert_eq!(check(&good, "localhost", flags, &said), Err(AssertionFault::NotVerified));
        }
        assert_eq!(check(&good, "evil.example", 0b101, &said), Err(AssertionFault::Origin));
        for origin in ["http://evil.example", "http://localhost.evil.example:80", "http://x@localhost", "localhost", ""]
        {
            let foreign = client(&said, "webauthn.get", origin);
            assert_eq!(check(&foreign, "localhost", 0b101, &said), Err(AssertionFault::Origin), "{origin}");
        }
        let framed = good.replace("false", "true");
        assert_eq!(check(&framed, "localhost", 0b101, &said), Err(AssertionFault::Origin));
    }

    #[test]
    fn no_byte_of_an_assertion_can_be_changed() {
        let (world, said) = (Authenticator::new(), Digest::of(b"said"));
        let good = world.confirms(&client(&said, "webauthn.get", "http://localhost:1"), "localhost", 0b101);
        for part in 0..3 {
            let text = [&good.authenticator_data, &good.client_data, &good.signature][part];
            for at in 0..URL_SAFE_NO_PAD.decode(text).unwrap().len() {
                let mut bytes = URL_SAFE_NO_PAD.decode(text).unwrap();
                bytes[at] ^= 1;
                let (changed, mut forged) = (URL_SAFE_NO_PAD.encode(bytes), good.clone());
                *[&mut forged.authenticator_data, &mut forged.client_data, &mut forged.signature][part] = changed;
                assert!(forged.verify(&world.passkey, &said).is_err(), "part {part}, byte {at}");
            }
        }
        let stranger = Authenticator::new();
        assert_eq!(good.verify(&stranger.passkey, &said), Err(AssertionFault::Signature));
        let other = Passkey { id: "b3RoZXI".to_owned(), ..world.passkey };
        assert_eq!(good.verify(&other, &said), Err(AssertionFault::Challenge));
    }

    #[test]
    fn what_is_no_assertion_is_refused() {
        let (world, said) = (Authenticator::new(), Digest::of(b"said"));
        let good = world.confirms(&client(&said, "webauthn.get", "http://localhost:1"), "localhost", 0b101);
        for bad in ["", "=", "!", &"A".repeat(8000)] {
            let data = PasskeyAssertion { authenticator_data: bad.to_owned(), ..good.clone() };
            assert_eq!(data.verify(&world.passkey, &said), Err(AssertionFault::Malformed), "{bad:.9}");
            let client = PasskeyAssertion { client_data: bad.to_owned(), ..good.clone() };
            assert_eq!(client.verify(&world.passkey, &said), Err(AssertionFault::Malformed), "{bad:.9}");
            assert!(
                PasskeyAssertion { signature: bad.to_owned(), ..good.clone() }.verify(&world.passkey, &said).is_err()
            );
        }
        for (id, fits) in [("", false), ("YQ", true), ("a b", false), (&"A".repeat(1401), false)] {
            assert_eq!(Passkey::is_id(id), fits, "{id:.9}");
        }
    }
}

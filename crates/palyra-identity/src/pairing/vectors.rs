//! The published vectors, held against this code. They were computed by another implementation, written from the draft
//! and from `docs/formats/pairing.md` alone.

use super::channel::ChannelBinding;
use super::code::{CodeVerifier, PairingCode};
use super::message::{Message, associated};
use super::pake::{self, Context, Keys};
use palyra_protocol::Digest;
use rand_core::{Infallible, TryCryptoRng, TryRng};
use serde_json::Value;
use zeroize::Zeroizing;

const CPACE: &str = include_str!("../../vectors/cpace_ristretto255.json");
const PAIRING: &str = include_str!("../../vectors/pairing.json");

/// A generator that gives the bytes of a vector.
struct Given(Vec<u8>);

impl TryRng for Given {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        panic!("scalars are drawn as bytes")
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        panic!("scalars are drawn as bytes")
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        bytes.copy_from_slice(&self.0);
        Ok(())
    }
}

impl TryCryptoRng for Given {}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn bytes(value: &Value) -> Vec<u8> {
    hex::decode(value.as_str().unwrap()).unwrap()
}

fn array<const N: usize>(value: &Value) -> [u8; N] {
    bytes(value).try_into().unwrap()
}

/// The 64 bytes that a scalar is reduced from.
fn wide(scalar: &Value) -> Given {
    let mut bytes = bytes(scalar);
    bytes.resize(64, 0);
    Given(bytes)
}

#[test]
fn the_pake_is_that_of_the_draft() {
    use pakery_cpace::{CpaceInitiator, CpaceMode, CpaceResponder};
    type Suite = pakery_crypto::CpaceRistretto255;
    let file = json(CPACE);
    let v = &file["valid"];
    let [prs, ci, sid, ada, adb] = ["prs", "ci", "sid", "ada", "adb"].map(|name| bytes(&v[name]));
    let (share_a, state) = CpaceInitiator::<Suite>::start(&prs, &ci, &sid, &ada, &mut wide(&v["ya"])).unwrap();
    assert_eq!(share_a, bytes(&v["share_a"]));
    let mode = CpaceMode::InitiatorResponder;
    let (share_b, theirs) =
        CpaceResponder::<Suite>::respond(&share_a, &prs, &ci, &sid, &ada, &adb, mode, &mut wide(&v["yb"])).unwrap();
    assert_eq!(share_b, bytes(&v["share_b"]));
    let ours = state.finish(&share_b, &adb, mode).unwrap();
    for output in [ours, theirs] {
        assert_eq!(output.isk.as_bytes(), bytes(&v["isk"]));
        assert_eq!(output.session_id, bytes(&v["sid_output"]));
    }
    for share in file["invalid_shares"].as_array().unwrap() {
        let bad = bytes(&share["share"]);
        let (_, state) = CpaceInitiator::<Suite>::start(&prs, &ci, &sid, &ada, &mut wide(&v["ya"])).unwrap();
        assert!(state.finish(&bad, &adb, mode).is_err(), "{}", share["why"]);
        let answered = CpaceResponder::<Suite>::respond(&bad, &prs, &ci, &sid, &ada, &adb, mode, &mut wide(&v["yb"]));
        assert!(answered.is_err(), "{}", share["why"]);
    }
    for transcript in file["transcripts"].as_array().unwrap() {
        let parts: Vec<_> = transcript["parts"].as_array().unwrap().iter().map(bytes).collect();
        let parts: Vec<_> = parts.iter().map(Vec::as_slice).collect();
        assert_eq!(pake::lv_cat(&parts), bytes(&transcript["joined"]));
    }
}

/// One side's view of a pairing.
struct Side {
    verifier: CodeVerifier,
    channel: ChannelBinding,
    device_key: Digest,
    hello: Vec<u8>,
    offer: Vec<u8>,
}

impl Side {
    fn of(v: &Value) -> Self {
        let digest = palyra_protocol::DigestBuilder::new("palyra.pairing.code.v1")
            .number(v["kind"].as_u64().unwrap())
            .field(&bytes(&v["secret"]))
            .finish();
        Self {
            verifier: CodeVerifier(Zeroizing::new(*digest.as_bytes())),
            channel: ChannelBinding::new(array(&v["exported"]), Digest::from_bytes(array(&v["server_key"]))),
            device_key: Digest::from_bytes(array(&v["device_key"])),
            hello: bytes(&v["hello_without_share"]),
            offer: bytes(&v["offer_without_share"]),
        }
    }

    fn context(&self) -> Context<'_> {
        Context { code: &self.verifier, channel: &self.channel, device_key: self.device_key }
    }
}

/// Runs a pairing between two views that may differ: the device's and the daemon's keys, and what each sent.
fn run(device: &Side, daemon: &Side, v: &Value) -> (Keys, Keys, Vec<u8>, Vec<u8>) {
    let (share, begun) = pake::begin_with(&device.context(), &device.hello, &mut wide(&v["device_scalar"])).unwrap();
    let sent = [&device.hello[..], &share[..]].concat();
    // What the daemon read of the hello, with the share that really came.
    let read = [&daemon.hello[..], &share[..]].concat();
    let answered = pake::answer_with(&daemon.context(), &read, &daemon.offer, &mut wide(&v["daemon_scalar"]));
    let (share, daemon_keys) = answered.unwrap();
    let offered = [&device.offer[..], &share[..]].concat();
    let device_keys = begun.finish(&sent, &offered).unwrap();
    (device_keys, daemon_keys, sent, [&daemon.offer[..], &share[..]].concat())
}

#[test]
fn both_sides_come_to_what_is_published() {
    let file = json(PAIRING);
    for v in file["valid"].as_array().unwrap() {
        let (name, expect) = (&v["name"], &v["expect"]);
        let side = Side::of(v);
        assert_eq!(side.verifier.0[..], bytes(&expect["verifier"]), "{name}");
        assert_eq!(side.context().channel_identifier(), bytes(&expect["channel_identifier"]), "{name}");
        let (device, daemon, hello, offer) = run(&side, &Side::of(v), v);
        assert_eq!(hello, bytes(&expect["hello"]), "{name}");
        assert_eq!(offer, bytes(&expect["offer"]), "{name}");
        for keys in [device, daemon] {
            assert_eq!(keys.device_tag()[..], bytes(&expect["device_tag"]), "{name}");
            assert_eq!(keys.daemon_tag()[..], bytes(&expect["daemon_tag"]), "{name}");
            assert_eq!(keys.words().to_string(), expect["words"].as_str().unwrap(), "{name}");
        }
    }
}

#[test]
fn bound_to_the_channel_and_to_every_byte_that_was_said() {
    let file = json(PAIRING);
    let right = &file["valid"][0];
    let wrong = file["invalid"].as_array().unwrap();
    assert!(wrong.len() > file["valid"].as_array().unwrap().len());
    for v in wrong {
        let mut theirs = right.clone();
        for (field, value) in v["daemon"].as_object().unwrap() {
            theirs[field] = value.clone();
        }
        let (device, daemon, ..) = run(&Side::of(right), &Side::of(&theirs), right);
        assert!(!daemon.is_device(&device.device_tag()), "{}", v["name"]);
        assert!(!device.is_daemon(&daemon.daemon_tag()), "{}", v["name"]);
        // Where both differ alike, the vector says what comes out.
        let (both, ..) = run(&Side::of(&theirs), &Side::of(&theirs), right);
        assert_eq!(both.daemon_tag()[..], bytes(&v["daemon_tag"]), "{}", v["name"]);
        assert_eq!(both.words().to_string(), v["words"].as_str().unwrap(), "{}", v["name"]);
    }
}

#[test]
fn messages_are_read_as_published_and_no_others() {
    let file = json(PAIRING);
    for v in file["messages"].as_array().unwrap() {
        let message = bytes(&v["bytes"]);
        let read = Message::read(&message).unwrap_or_else(|error| panic!("{}: {error}", v["name"]));
        assert_eq!(read.bytes(), message, "{}", v["name"]);
        assert!(associated(&message).len() <= message.len());
        for length in 0..message.len() {
            assert!(Message::read(&message[..length]).is_err(), "{} cut off after {length}", v["name"]);
        }
    }
    let bad = file["bad_messages"].as_array().unwrap();
    assert!(bad.len() > file["messages"].as_array().unwrap().len());
    for v in bad {
        let refused = Message::read(&bytes(&v["bytes"])).map_err(|error| error.code());
        assert_eq!(refused.map(|_| ()), Err(v["code"].as_str().unwrap()), "{}", v["name"]);
    }
}

#[test]
fn codes_are_read_as_published_and_no_others() {
    let file = json(PAIRING);
    for v in file["codes"]["valid"].as_array().unwrap() {
        let text = v["text"].as_str().unwrap();
        match text.parse::<PairingCode>().unwrap() {
            PairingCode::Pin(_) => assert_eq!(v["kind"], "pin"),
            PairingCode::Qr(code) => {
                assert_eq!(v["kind"], "qr");
                assert_eq!(code.address().as_str(), v["address"].as_str().unwrap());
                assert_eq!(code.authority().as_bytes()[..], bytes(&v["authority"]));
            }
        }
    }
    for v in file["codes"]["invalid"].as_array().unwrap() {
        assert!(v.as_str().unwrap().parse::<PairingCode>().is_err(), "{v}");
    }
}

//! Ed25519 signatures over digests that careless verifiers accept, made from points of small order.

use crate::key;
use curve25519_dalek::constants::{ED25519_BASEPOINT_POINT, EIGHT_TORSION};
use curve25519_dalek::edwards::EdwardsPoint;
use curve25519_dalek::scalar::{Scalar, clamp_integer};
use palyra_protocol::Digest;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha512};

/// The order of the base point, as little-endian bytes.
const ORDER: [u8; 32] = [
    0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
];

struct Secret {
    scalar: Scalar,
    public: EdwardsPoint,
}

/// The first key, as numbers.
fn secret() -> Secret {
    let hash = Sha512::digest([1; 32]);
    let mut bytes = [0; 32];
    bytes.copy_from_slice(&hash[..32]);
    let scalar = Scalar::from_bytes_mod_order(clamp_integer(bytes));
    Secret { scalar, public: ED25519_BASEPOINT_POINT * scalar }
}

fn challenge(r: &[u8; 32], public: &[u8; 32], message: &Digest) -> Scalar {
    let mut wide = [0; 64];
    let hash = Sha512::new().chain_update(r).chain_update(public).chain_update(message.as_bytes()).finalize();
    wide.copy_from_slice(&hash);
    Scalar::from_bytes_mod_order_wide(&wide)
}

fn joined(r: &[u8; 32], s: &[u8; 32]) -> String {
    hex::encode([r.as_slice(), s.as_slice()].concat())
}

/// s + L: the same number to a verifier that reduces.
fn plus_order(s: &[u8; 32]) -> [u8; 32] {
    let (mut sum, mut carry) = ([0; 32], 0_u16);
    for at in 0..32 {
        let digit = u16::from(s[at]) + u16::from(ORDER[at]) + carry;
        sum[at] = digit as u8;
        carry = digit >> 8;
    }
    sum
}

pub(crate) fn vectors() -> Value {
    let message = Digest::of(b"a digest");
    let secret = secret();
    let public = secret.public.compress().to_bytes();
    assert_eq!(hex::encode(public), key(1).public().to_string());
    let nonce = Scalar::from_bytes_mod_order([7; 32]);
    let commit = ED25519_BASEPOINT_POINT * nonce;
    // Signs with a commitment that need not be an honest one.
    let sign = |commitment: EdwardsPoint, nonce: Scalar| {
        let r = commitment.compress().to_bytes();
        let s = nonce + challenge(&r, &public, &message) * secret.scalar;
        (r, s.to_bytes())
    };
    let (r, s) = sign(commit, nonce);
    let (identity_r, identity_s) = sign(EIGHT_TORSION[0], Scalar::ZERO);
    let (torsion_r, torsion_s) = sign(EIGHT_TORSION[1], Scalar::ZERO);
    let (mixed_r, mixed_s) = sign(commit + EIGHT_TORSION[1], nonce);
    let mut flipped_r = r;
    flipped_r[0] ^= 1;
    let mut flipped_s = s;
    flipped_s[0] ^= 1;
    let mut high_s = s;
    high_s[31] |= 0x80;
    // The identity in a second spelling: y = p + 1.
    let mut odd_identity = [0xff; 32];
    (odd_identity[0], odd_identity[31]) = (0xee, 0x7f);
    let zero = [0; 32];
    let key_text = hex::encode(public);
    let cases: Vec<(&str, String, String, &str)> = vec![
        ("a signature", key_text.clone(), joined(&r, &s), "valid"),
        ("R with a flipped bit", key_text.clone(), joined(&flipped_r, &s), "invalid"),
        ("S with a flipped bit", key_text.clone(), joined(&r, &flipped_s), "invalid"),
        ("S plus the order of the group", key_text.clone(), joined(&r, &plus_order(&s)), "invalid"),
        ("S with its highest bit set", key_text.clone(), joined(&r, &high_s), "invalid"),
        ("R and S exchanged", key_text.clone(), joined(&s, &r), "invalid"),
        ("all zero", key_text.clone(), joined(&zero, &zero), "invalid"),
        ("S is zero", key_text.clone(), joined(&r, &zero), "invalid"),
        ("S is the order of the group", key_text.clone(), joined(&r, &ORDER), "invalid"),
        ("R is the identity, and the equation holds", key_text.clone(), joined(&identity_r, &identity_s), "invalid"),
        ("R is the identity in a second spelling", key_text.clone(), joined(&odd_identity, &identity_s), "invalid"),
        ("R has order eight", key_text.clone(), joined(&torsion_r, &torsion_s), "invalid"),
        (
            "R has a part of order eight, good for those who multiply by eight",
            key_text.clone(),
            joined(&mixed_r, &mixed_s),
            "invalid",
        ),
        ("too short", key_text.clone(), joined(&r, &s)[..126].to_owned(), "malformed"),
        ("too long", key_text, format!("{}00", joined(&r, &s)), "malformed"),
        ("the key is not on the curve", format!("02{}", "0".repeat(62)), joined(&r, &s), "weak_key"),
        ("the key is the identity in a second spelling", hex::encode(odd_identity), joined(&r, &s), "weak_key"),
    ];
    let mut listed: Vec<Value> = cases
        .into_iter()
        .map(|(shows, key, signature, expect)| {
            json!({ "shows": shows, "public_key": key, "digest": message, "signature": signature, "expect": expect })
        })
        .collect();
    for (at, point) in EIGHT_TORSION.iter().enumerate() {
        let bytes = point.compress().to_bytes();
        listed.push(json!({
            "shows": format!("the key has small order (point {at}), and S = 0 fits many messages"),
            "public_key": hex::encode(bytes),
            "digest": message,
            "signature": joined(&bytes, &zero),
            "expect": "weak_key",
        }));
    }
    listed.into()
}

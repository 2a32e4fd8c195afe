//! The published test vectors: every file gives the code that it must give, and most of them are refused.

#![expect(clippy::unwrap_used, reason = "a vector that cannot be read is a failed test")]

use palyra_protocol::{Digest, PublicKey, Signature};
use palyra_skills::archive::{Archive, Entry};
use palyra_skills::artifact::Artifact;
use palyra_skills::manifest::Manifest;
use palyra_skills::signature::{SignatureDocument, content_digest};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats/skill-vectors")
}

fn json(file: &str) -> Value {
    serde_json::from_slice(&std::fs::read(folder().join(file)).unwrap()).unwrap()
}

/// Runs every vector of a group; negative ones are in the majority, and no file is left out.
fn check(group: &str, code_of: impl Fn(&[u8]) -> &'static str) {
    let index = json("vectors.json");
    let vectors = index[group].as_array().unwrap();
    let mut wrong = Vec::new();
    for vector in vectors {
        let file = vector["file"].as_str().unwrap();
        let found = code_of(&std::fs::read(folder().join(file)).unwrap());
        if found != vector["expect"] {
            wrong.push(format!("{file}: {found} instead of {}", vector["expect"]));
        }
    }
    assert_eq!(wrong, [""; 0]);
    let good = vectors.iter().filter(|vector| vector["expect"] == "ok").count();
    assert!(good >= 1 && good * 2 < vectors.len(), "{group}");
    assert_eq!(std::fs::read_dir(folder().join(group)).unwrap().count(), vectors.len(), "{group}");
}

#[test]
fn artifacts_give_their_codes() {
    check("artifacts", |bytes| Artifact::open(bytes).map_or_else(|e| e.code(), |_| "ok"));
}

#[test]
fn manifests_give_their_codes() {
    check("manifests", |bytes| Manifest::parse(bytes).map_or_else(|e| e.code(), |_| "ok"));
}

#[test]
fn signatures_give_their_codes() {
    let (content, archive) = (Digest::of(b"the content"), Digest::of(b"the archive"));
    check("signatures", |bytes| {
        let verified = SignatureDocument::parse(bytes).and_then(|document| document.verify(&content, Some(&archive)));
        verified.map_or_else(|e| e.code(), |()| "ok")
    });
}

#[test]
fn ed25519_is_verified_strictly() {
    let vectors = json("ed25519.json");
    let vectors = vectors.as_array().unwrap();
    assert!(vectors.len() > 20);
    for vector in vectors {
        let text = |field: &str| vector[field].as_str().unwrap();
        let digest: Digest = text("digest").parse().unwrap();
        let found = match (text("public_key").parse::<PublicKey>(), text("signature").parse::<Signature>()) {
            (Err(_), _) => "weak_key",
            (_, Err(_)) => "malformed",
            (Ok(key), Ok(signature)) => key.verify(&digest, &signature).map_or("invalid", |()| "valid"),
        };
        assert_eq!(found, text("expect"), "{}", text("shows"));
    }
}

#[test]
fn digests_are_what_the_format_says() {
    let digests = json("digests.json");
    let listed = digests["content_digest"]["entries"].as_array().unwrap();
    let entries: Vec<Entry> = listed
        .iter()
        .map(|e| Entry::new(e["name"].as_str().unwrap(), e["content"].as_str().unwrap().as_bytes().to_vec()))
        .collect();
    assert_eq!(content_digest(&entries).to_string(), digests["content_digest"]["digest"]);
    let document = digests["signature"]["document"].as_str().unwrap();
    let document = SignatureDocument::parse(document.as_bytes()).unwrap();
    assert_eq!(document.key_id.as_str(), digests["key"]["key_id"]);
    assert_eq!(document.public_key.to_string(), digests["key"]["public_key"].as_str().unwrap());
    let artifact = std::fs::read(folder().join(digests["artifact"]["file"].as_str().unwrap())).unwrap();
    let archive = Archive::read(&artifact).unwrap();
    assert_eq!(archive.digest.to_string(), digests["artifact"]["archive_sha256"]);
    assert_eq!(content_digest(&archive.entries).to_string(), digests["artifact"]["content_sha256"]);
}

/// A flipped bit in any byte of an artifact is refused.
#[test]
fn a_flipped_byte_anywhere_is_refused() {
    let good = std::fs::read(folder().join("artifacts/good.palyra-skill")).unwrap();
    for at in 0..good.len() {
        let mut forged = good.clone();
        forged[at] ^= 1 << (at % 8);
        assert!(Artifact::open(&forged).is_err(), "byte {at}");
    }
}

//! Signature documents, and the digests that they cover step by step.

use crate::{Vector, artifact, key};
use palyra_protocol::Digest;
use palyra_skills::archive::{Archive, Entry};
use palyra_skills::signature::{SignatureDocument, content_digest};
use serde_json::{Value, json};

/// The content and the archive that every signature here is about.
pub(crate) fn subject() -> (Digest, Digest) {
    (Digest::of(b"the content"), Digest::of(b"the archive"))
}

fn good() -> String {
    let (content, archive) = subject();
    let document = key(1).sign_artifact(&"acme".parse().unwrap(), &content, &archive);
    String::from_utf8(document.bytes().unwrap()).unwrap()
}

pub(crate) fn vectors() -> Vec<Vector> {
    let good = good();
    let (content, archive) = subject();
    let document = SignatureDocument::parse(good.as_bytes()).unwrap();
    let public = document.public_key.to_string();
    let signature = document.signature.to_string();
    let zero = "0".repeat(64);
    // The identity, a point of order eight, the same with its sign bit, and y = p + 1, which is the identity in a
    // second spelling.
    let identity = format!("01{}", "0".repeat(62));
    let order_eight = "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a";
    let order_eight_signed = "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa";
    let non_canonical = format!("ee{}7f", "ff".repeat(30));
    let other = key(2).sign_artifact(&document.publisher, &content, &archive).signature.to_string();
    let replaced: [(&str, &str, &str, String, &str); 18] = [
        ("space", ",\"format\"", ", \"format\"", String::new(), "signature_not_canonical"),
        ("unordered", "{\"algorithm\":\"ed25519\",", "{", String::new(), "signature_form"),
        ("twice", "\"format\":1", "\"format\":1,\"format\":1", String::new(), "signature_form"),
        ("extra-key", "\"format\":1", "\"extra\":0,\"format\":1", String::new(), "signature_form"),
        ("other-format", "\"format\":1", "\"format\":2", String::new(), "signature_unsupported"),
        ("other-algorithm", "\"ed25519\"", "\"rsa\"", String::new(), "signature_unsupported"),
        ("capital-key", &public, "", public.to_uppercase(), "signature_not_canonical"),
        ("capital-signature", &signature, "", signature.to_uppercase(), "signature_not_canonical"),
        ("zero-key", &public, "", zero, "signature_weak_key"),
        ("identity-key", &public, "", identity, "signature_weak_key"),
        ("order-eight-key", &public, order_eight, String::new(), "signature_weak_key"),
        ("order-eight-signed-key", &public, order_eight_signed, String::new(), "signature_weak_key"),
        ("non-canonical-key", &public, "", non_canonical, "signature_weak_key"),
        ("short-signature", &signature, "", signature[2..].to_owned(), "signature_form"),
        ("other-signature", &signature, "", other, "signature_mismatch"),
        ("other-publisher", "\"acme\"", "\"umbrella\"", String::new(), "signature_mismatch"),
        ("other-key", &public, "", key(2).public().to_string(), "signature_key_id"),
        ("other-content", &content.to_string(), "", Digest::of(b"x").to_string(), "signature_content"),
    ];
    let mut all = vec![
        Vector::new("good", "a signature", "ok", good.clone().into_bytes()),
        Vector::new("not-json", "no JSON", "signature_form", b"signed, acme".to_vec()),
        Vector::new("line-end", "a line end behind it", "signature_not_canonical", format!("{good}\n").into_bytes()),
        Vector::new(
            "other-archive",
            "another archive",
            "signature_archive",
            good.replace(&archive.to_string(), &Digest::of(b"x").to_string()).into_bytes(),
        ),
    ];
    for (name, from, to, computed, expect) in replaced {
        assert!(good.contains(from), "{from}");
        let to = if computed.is_empty() { to } else { &computed };
        let shows = name.replace('-', " ");
        all.push(Vector::new(name, &shows, expect, good.replacen(from, to, 1).into_bytes()));
    }
    all
}

/// What is hashed and signed, for those who write another implementation.
pub(crate) fn digests() -> Value {
    let entries = [Entry::new("a", b"one".to_vec()), Entry::new("b/c", b"".to_vec())];
    let listed: Vec<Value> = entries
        .iter()
        .map(|e| json!({ "name": e.name, "content": String::from_utf8_lossy(&e.content), "sha256": e.digest }))
        .collect();
    let archive = Archive::read(&artifact()).unwrap();
    let (content, archive_digest) = subject();
    json!({
        "content_digest": { "entries": listed, "digest": content_digest(&entries) },
        "key": { "seed": "01".repeat(32), "public_key": key(1).public().to_string(), "key_id": key(1).key_id() },
        "signature": {
            "publisher": "acme",
            "content_sha256": content,
            "archive_sha256": archive_digest,
            "document": good(),
        },
        "artifact": {
            "file": "artifacts/good.palyra-skill",
            "content_sha256": content_digest(&archive.entries),
            "archive_sha256": archive.digest,
        },
    })
}

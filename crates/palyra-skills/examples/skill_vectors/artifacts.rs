//! Artifacts in good archives that are refused for what they hold.

use crate::{MANIFEST, Vector, component, key, source};
use palyra_skills::archive::{self, Archive, Entry};
use palyra_skills::instructions::{ImportRequest, import_files};
use palyra_skills::package::{PackageError, PackageSource, build};
use palyra_skills::signature::{PublisherKey, SignatureDocument, content_digest};

/// Packs and signs entries, whatever they are.
fn packed(entries: &[Entry], publisher: &str, key: &PublisherKey) -> Vec<u8> {
    packed_with(entries, publisher, key, |document| document)
}

/// The same with a signature document that is changed before it is packed.
fn packed_with(
    entries: &[Entry],
    publisher: &str,
    key: &PublisherKey,
    change: impl FnOnce(SignatureDocument) -> SignatureDocument,
) -> Vec<u8> {
    let mut sorted = entries.to_vec();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    let content = content_digest(&sorted);
    archive::write::<PackageError>(&sorted, |archive| {
        let document = key.sign_artifact(&publisher.parse().unwrap(), &content, archive);
        Ok(change(document).bytes()?)
    })
    .unwrap()
}

fn entries() -> Vec<Entry> {
    Archive::read(&crate::artifact()).unwrap().entries
}

fn without(name: &str) -> Vec<u8> {
    let rest: Vec<_> = entries().into_iter().filter(|entry| entry.name != name).collect();
    packed(&rest, "acme", &key(1))
}

fn with(name: &str, content: &[u8]) -> Vec<Entry> {
    let mut rest: Vec<_> = entries().into_iter().filter(|entry| entry.name != name).collect();
    rest.push(Entry::new(name, content.to_vec()));
    rest
}

pub(crate) fn vectors() -> Vec<Vector> {
    let (own, other) = (key(1), key(2));
    let manifest = |from: &str, to: &str| with("skill.toml", MANIFEST.replacen(from, to, 1).as_bytes());
    let own_signature = Archive::read(&crate::artifact()).unwrap().signature;
    let copied = SignatureDocument::parse(&own_signature).unwrap();
    let swapped = packed_with(&with("modules/echo.wasm", b"another module"), "acme", &own, |_| copied.clone());
    let only_signature =
        packed_with(&entries(), "acme", &own, |d| SignatureDocument { signature: other_signature(&d), ..d });
    let renamed =
        packed_with(&entries(), "acme", &own, |d| SignatureDocument { publisher: "umbrella".parse().unwrap(), ..d });
    vec![
        Vector::new("good-instructions", "an imported folder", "ok", instructions()),
        Vector::new("good-two-modules", "two components", "ok", two_modules()),
        Vector::new("swapped-module", "another module under the old signature", "signature_content", swapped),
        Vector::new(
            "foreign-signature",
            "a signature by another key under this key's name",
            "signature_mismatch",
            only_signature,
        ),
        Vector::new("renamed-publisher", "another publisher's name under the signature", "signature_mismatch", renamed),
        Vector::new(
            "other-publisher",
            "signed by another publisher than the manifest names",
            "signature_publisher",
            packed(&entries(), "umbrella", &other),
        ),
        Vector::new(
            "foreign-id",
            "an id that belongs to another publisher",
            "manifest_foreign_id",
            packed(&manifest("\"acme.echo\"", "\"umbrella.echo\""), "acme", &own),
        ),
        Vector::new("no-manifest", "no manifest", "artifact_entry_missing", without("skill.toml")),
        Vector::new("no-sbom", "no bill of materials", "artifact_entry_missing", without("sbom.cdx.json")),
        Vector::new("no-provenance", "no provenance", "artifact_entry_missing", without("provenance.json")),
        Vector::new("no-module", "no component for a tool", "artifact_code_missing", without("modules/echo.wasm")),
        Vector::new(
            "script-in-component",
            "a file that has no place",
            "artifact_entry_unexpected",
            packed(&with("scripts/run.sh", b"#!/bin/sh\n"), "acme", &own),
        ),
        Vector::new(
            "module-in-folder",
            "a component two levels deep",
            "artifact_entry_unexpected",
            packed(&with("modules/x/y.wasm", b"x"), "acme", &own),
        ),
        Vector::new(
            "manifest-unknown-key",
            "a manifest with an unknown key",
            "manifest_unknown_key",
            packed(&manifest("name = ", "nmae = "), "acme", &own),
        ),
        Vector::new(
            "large-sbom",
            "a bill of materials that is too large",
            "artifact_entry_too_large",
            packed(&with("sbom.cdx.json", &large()), "acme", &own),
        ),
    ]
}

/// A signature by another key over the same digests.
fn other_signature(document: &SignatureDocument) -> palyra_protocol::Signature {
    key(2).sign_artifact(&document.publisher, &document.content_sha256, &document.archive_sha256).signature
}

/// More than eight megabytes that shrink well, but not too well.
fn large() -> Vec<u8> {
    (0..(8_u64 << 20) + 1).map(|n| ((n / 400) * (n / 400) % 251) as u8).collect()
}

fn two_modules() -> Vec<u8> {
    let mut source: PackageSource = source();
    source.files.push(Entry::new("modules/second.wasm", component()));
    build(&source, &key(1)).unwrap().bytes
}

fn instructions() -> Vec<u8> {
    let request = ImportRequest {
        publisher: "acme".parse().unwrap(),
        version: "1.0.0".parse().unwrap(),
        read_roots: vec!["forms".to_owned()],
        write_roots: vec![],
        egress: vec![],
        min_palyra_version: semver::Version::new(0, 1, 0),
    };
    let files = [
        ("SKILL.md", "---\nname: form-filler\ndescription: Fills forms.\n---\nRead the form, then fill it.\n"),
        ("reference.md", "Fields and their meaning.\n"),
        ("scripts/fill.py", "#!/usr/bin/env python3\nprint('filled')\n"),
    ];
    let files = files.map(|(name, text)| Entry::new(name, text.as_bytes().to_vec())).to_vec();
    build(&import_files(files, &request).unwrap(), &key(1)).unwrap().bytes
}

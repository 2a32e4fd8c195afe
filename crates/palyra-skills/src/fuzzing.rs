//! The entries of the fuzz targets: hostile bytes in, a broken promise is a panic.
//!
//! The same functions are called by tests, on the seeds and on damaged copies of them, so that they are exercised
//! wherever the tests run.

use crate::archive::names::check_name;
use crate::archive::{Archive, ArchiveLimits};
use crate::artifact::Artifact;
use crate::audit::{Advisories, AuditContext, AuditPolicy, HostVersion, audit_skill_artifact_security};
use crate::ids::KeyId;
use crate::instructions::{ImportRequest, import_files};
use crate::manifest::Manifest;
use crate::provenance::Provenance;
use crate::registry::RegistryIndex;
use crate::sbom::{LockFile, LockKind, Sbom};
use crate::signature::{SignatureDocument, SignatureFault, content_digest};
use crate::trust::{RotationStatement, TrustDocument};
use palyra_protocol::Digest;
use std::io::{Cursor, Read as _};

/// Reads the bytes as an archive, as an artifact, and audits them.
///
/// # Panics
/// When a promise of the reader is broken.
pub fn fuzz_archive(bytes: &[u8]) {
    let policy = AuditPolicy::parse(b"format = 1").ok();
    if let Some(policy) = &policy {
        let host = HostVersion { palyra: semver::Version::new(0, 1, 0), protocol_major: 1 };
        let advisories = Advisories::default();
        let context = AuditContext { policy, advisories: &advisories, host, trust: None };
        let report = audit_skill_artifact_security(bytes, &context);
        assert!(!report.is_eligible() || Artifact::open(bytes).is_ok(), "what is eligible is an artifact");
    }
    let Ok(archive) = Archive::read(bytes) else { return };
    let limits = ArchiveLimits::default();
    let total: usize = archive.entries.iter().map(|entry| entry.content.len()).sum();
    assert!(total <= limits.total_bytes && archive.entries.len() <= limits.entries);
    assert!(archive.entries.is_sorted_by(|a, b| a.name < b.name), "entries are sorted and none is twice");
    for entry in &archive.entries {
        assert!(check_name(entry.name.as_bytes()).is_ok() && entry.digest == Digest::of(&entry.content));
    }
    agrees_with_another_reader(bytes, &archive);
    if let Ok(artifact) = Artifact::open(bytes) {
        assert_eq!(*artifact.content_digest(), content_digest(artifact.entries()));
    }
}

/// Whatever we accept, others read in the same way: nobody else can be shown another skill in the same file.
fn agrees_with_another_reader(bytes: &[u8], archive: &Archive) {
    let other = zip::ZipArchive::new(Cursor::new(bytes));
    assert!(other.is_ok(), "what we accept is a ZIP archive to others too");
    let Ok(mut other) = other else { return };
    assert_eq!(other.len(), archive.entries.len() + 1);
    for (at, entry) in archive.entries.iter().enumerate() {
        let mut content = Vec::new();
        let name = other.by_index(at).ok().and_then(|mut file| {
            file.read_to_end(&mut content).ok()?;
            file.name().ok().map(|name| name.into_owned())
        });
        assert_eq!(name.as_deref(), Some(entry.name.as_str()));
        assert_eq!(content, entry.content);
    }
}

/// Reads the bytes as a manifest, and as every other text that people write.
///
/// # Panics
/// When a promise of the parsers is broken.
pub fn fuzz_manifest(bytes: &[u8]) {
    drop(AuditPolicy::parse(bytes));
    for kind in LockKind::ALL {
        drop(LockFile::parse(kind, bytes));
    }
    instructions(bytes);
    let Ok(manifest) = Manifest::parse(bytes) else { return };
    let metadata = &manifest.metadata;
    assert_eq!(metadata.skill_id.publisher(), metadata.publisher.as_str());
    let asked = &manifest.capabilities;
    for root in asked.read_roots.iter().chain(&asked.write_roots) {
        assert!(
            !root.as_str().starts_with('/') && root.as_str().split('/').all(|part| part != ".." && !part.is_empty())
        );
    }
    let wildcards = asked.read_roots.iter().filter(|root| root.is_wildcard()).count()
        + asked.write_roots.iter().filter(|root| root.is_wildcard()).count()
        + asked.egress.iter().filter(|host| host.is_wildcard()).count()
        + asked.secrets.iter().filter(|secret| secret.is_wildcard()).count();
    assert_eq!(asked.wildcards.len(), wildcards, "every wildcard has a reason");
    for tool in &manifest.tools {
        assert!(metadata.skill_id.tool_name(&tool.id).is_ok());
        assert!(check_name(tool.code.entry().as_bytes()).is_ok());
    }
}

/// Bytes as the `SKILL.md` of a folder: what can be imported has a manifest that can be read.
fn instructions(bytes: &[u8]) {
    let (Ok(publisher), Ok(version)) = ("acme".parse(), "1.0.0".parse()) else { return };
    let request = ImportRequest {
        publisher,
        version,
        read_roots: vec![],
        write_roots: vec![],
        egress: vec![],
        min_palyra_version: semver::Version::new(0, 1, 0),
    };
    let files = vec![crate::archive::Entry::new("SKILL.md", bytes.to_vec())];
    if let Ok(source) = import_files(files, &request) {
        let read = Manifest::parse(&source.manifest);
        assert!(read.is_ok(), "{read:?}");
    }
}

/// Reads the bytes as a signature document, and as every other JSON document.
///
/// # Panics
/// When a promise of the parsers is broken.
pub fn fuzz_signature(bytes: &[u8]) {
    drop((Sbom::parse(bytes), Provenance::parse(bytes), Advisories::parse(bytes)));
    if let Ok(document) = TrustDocument::parse(bytes) {
        let again = document.bytes().ok().map(|bytes| TrustDocument::parse(&bytes));
        assert_eq!(again, Some(Ok(document)), "a trust store reads the same again");
    }
    if let Ok(statement) = RotationStatement::parse(bytes) {
        assert!(statement.verify().is_err() || statement.old_key != statement.new_key);
    }
    let Ok(document) = SignatureDocument::parse(bytes) else { return };
    assert_eq!(document.bytes().as_deref(), Ok(bytes), "a signature has one spelling");
    assert_eq!(document.key_id, KeyId::of(&document.public_key));
    assert!(RegistryIndex::verify(bytes, bytes, &document.public_key).is_err());
    let other = Digest::of(document.content_sha256.as_bytes());
    assert_eq!(document.verify(&other, None), Err(SignatureFault::Content));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::PathBuf;

    fn seeds(target: &str) -> Vec<Vec<u8>> {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
        let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let seeds: Vec<_> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
        assert!(seeds.len() >= 3, "{target}");
        seeds
    }

    /// A seed with some bytes exchanged and its end cut off.
    fn damaged(target: &'static str) -> impl Strategy<Value = Vec<u8>> {
        let flips = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
        (prop::sample::select(seeds(target)), flips, prop::option::of(any::<prop::sample::Index>())).prop_map(
            |(mut bytes, flips, cut)| {
                for (at, value) in flips {
                    if !bytes.is_empty() {
                        let at = at.index(bytes.len());
                        bytes[at] = value;
                    }
                }
                if let Some(cut) = cut {
                    bytes.truncate(cut.index(bytes.len() + 1));
                }
                bytes
            },
        )
    }

    #[test]
    fn seeds_keep_every_promise() {
        seeds("skill_archive").iter().for_each(|seed| fuzz_archive(seed));
        seeds("skill_manifest").iter().for_each(|seed| fuzz_manifest(seed));
        seeds("skill_signature").iter().for_each(|seed| fuzz_signature(seed));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn damaged_archives_keep_every_promise(bytes in damaged("skill_archive")) {
            fuzz_archive(&bytes);
        }

        #[test]
        fn damaged_manifests_keep_every_promise(bytes in damaged("skill_manifest")) {
            fuzz_manifest(&bytes);
        }

        #[test]
        fn damaged_signatures_keep_every_promise(bytes in damaged("skill_signature")) {
            fuzz_signature(&bytes);
        }
    }
}

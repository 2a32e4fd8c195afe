//! Seeds for the fuzz targets: one document of every kind that a parser reads.

use crate::{MANIFEST, artifact, key};
use palyra_protocol::Timestamp;
use palyra_skills::archive::Archive;
use palyra_skills::audit::DEFAULT_POLICY;
use palyra_skills::trust::{RotationStatement, TrustChange, TrustDocument};
use std::path::Path;

const ADVISORY: &str = r#"{"id":"OSV-1","affected":[{"package":{"ecosystem":"crates.io","name":"left-pad"},"ranges":[{"type":"SEMVER","events":[{"introduced":"0"},{"fixed":"1.2.0"}]}]}]}"#;
const CARGO_LOCK: &str = "version = 4\n[[package]]\nname = \"serde\"\nversion = \"1.0.0\"\nsource = \"x\"\nchecksum = \"20068b6e96dc6c9bd23e01df8827e6c7e1f2fddd43c21810382803c136b99373\"\n";
const REQUIREMENTS: &str =
    "attrs==25.1.0 \\\n    --hash=sha256:c75a69e28a550a7e93789579c22aa26b0f5b83b75dc4e08fe092980051e1090a\n";
const PYLOCK: &str = "lock-version = \"1.0\"\n[[packages]]\nname = \"attrs\"\nversion = \"25.1.0\"\n[[packages.wheels]]\nhashes = { sha256 = \"c75a69e28a550a7e93789579c22aa26b0f5b83b75dc4e08fe092980051e1090a\" }\n";
const PACKAGE_LOCK: &str = r#"{"lockfileVersion":3,"packages":{"":{},"node_modules/@a/b":{"version":"1.0.0","integrity":"sha1-AAAAAAAAAAAAAAAAAAAAAAAAAAA="}}}"#;
const INSTRUCTIONS: &str =
    "---\nname: form-filler\ndescription: >\n  Fills forms.\nmetadata:\n  author: acme\n---\nRead the form.\n";

/// Writes the seeds below a directory.
pub(crate) fn write(folder: &Path, vectors: &Path) {
    let vector = |name: &str| std::fs::read(vectors.join(name)).unwrap();
    let archive = Archive::read(&artifact()).unwrap();
    let entry = |name: &str| archive.entries.iter().find(|entry| entry.name == name).unwrap().content.clone();
    let publisher = "acme".parse().unwrap();
    let statement = RotationStatement::create(&publisher, &key(1), &key(2));
    let allow = TrustChange::Allowlist { publisher, public_key: key(1).public(), expires_at: None };
    let changes = [allow, TrustChange::Rotate(statement.clone())];
    let trust = TrustDocument::empty().changed(&changes, Timestamp::from_unix_ms(1)).unwrap();
    let seeds: [(&str, &str, Vec<u8>); 22] = [
        ("skill_archive", "component", artifact()),
        ("skill_archive", "instructions", vector("artifacts/good-instructions.palyra-skill")),
        ("skill_archive", "recompressed", vector("artifacts/recompressed.palyra-skill")),
        ("skill_archive", "unsigned", vector("artifacts/unsigned.palyra-skill")),
        ("skill_archive", "zip64", vector("artifacts/zip64-extra.palyra-skill")),
        ("skill_archive", "symlink", vector("artifacts/symlink.palyra-skill")),
        ("skill_manifest", "component", MANIFEST.into()),
        ("skill_manifest", "wildcard", vector("manifests/good-wildcard.toml")),
        ("skill_manifest", "instructions", INSTRUCTIONS.into()),
        ("skill_manifest", "audit_policy", DEFAULT_POLICY.into()),
        ("skill_manifest", "cargo_lock", CARGO_LOCK.into()),
        ("skill_manifest", "requirements", REQUIREMENTS.into()),
        ("skill_manifest", "pylock", PYLOCK.into()),
        ("skill_manifest", "package_lock", PACKAGE_LOCK.into()),
        ("skill_signature", "signature", archive.signature.clone()),
        ("skill_signature", "weak_key", vector("signatures/identity-key.json")),
        ("skill_signature", "sbom", entry("sbom.cdx.json")),
        ("skill_signature", "provenance", entry("provenance.json")),
        ("skill_signature", "trust_store", trust.bytes().unwrap()),
        ("skill_signature", "rotation", serde_json::to_vec(&statement).unwrap()),
        ("skill_signature", "advisory", ADVISORY.into()),
        ("skill_signature", "index", br#"{"artifacts":[],"expires_at":1,"format":1,"name":"x","revision":1}"#.to_vec()),
    ];
    for (target, name, bytes) in seeds {
        let folder = folder.join(target);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(name), bytes).unwrap();
    }
}

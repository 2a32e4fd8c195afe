//! Sources: what they find, and what they refuse.

use super::*;
use crate::testing::{at, key, sample};
use std::fs;

fn registry(versions: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for version in versions {
        let built = sample(version);
        fs::write(dir.path().join(built.file_name()), &built.bytes).unwrap();
    }
    dir
}

fn pin(number: u8, seen_revision: u64) -> RegistryPin {
    RegistryPin { key: key(number).public(), seen_revision }
}

fn opened(dir: &tempfile::TempDir, pin: &RegistryPin, now: u64) -> Result<u64, &'static str> {
    open_registry(dir.path(), pin, at(now)).map(|registry| registry.index.revision).map_err(|e| e.code())
}

#[test]
fn a_directory_is_listed_and_searched() {
    let dir = registry(&["1.0.0", "1.2.0", "2.0.0-rc.1"]);
    fs::write(dir.path().join("broken.palyra-skill"), b"x").unwrap();
    fs::write(dir.path().join("zz-copy.palyra-skill"), sample("1.0.0").bytes).unwrap();
    fs::write(dir.path().join("note.txt"), b"x").unwrap();
    let listing = list_directory(dir.path()).unwrap();
    assert_eq!(listing.artifacts.len(), 3);
    assert_eq!(
        listing.refused.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ["broken.palyra-skill", "zz-copy.palyra-skill"]
    );
    let skill_id = "acme.echo".parse().unwrap();
    let newest = |wanted: &str| {
        let found = select(&listing.artifacts, &skill_id, &wanted.parse().unwrap());
        found.map(|entry| entry.version.to_string()).map_err(|e| e.code())
    };
    assert_eq!(newest("*"), Ok("1.2.0".to_owned()));
    assert_eq!(newest("=1.0.0"), Ok("1.0.0".to_owned()));
    assert_eq!(newest("=2.0.0-rc.1"), Ok("2.0.0-rc.1".to_owned()));
    assert_eq!(newest(">3"), Err("registry_not_found"));
    let entry = &listing.artifacts[0];
    assert_eq!(fetch(dir.path(), entry).unwrap(), sample("1.0.0").bytes);
    fs::write(dir.path().join(&entry.path), sample("1.2.0").bytes).unwrap();
    assert_eq!(fetch(dir.path(), entry).unwrap_err().code(), "registry_other_file");
    assert_eq!(read_artifact(&dir.path().join("nothing")).unwrap_err().code(), "registry_missing");
}

#[test]
fn a_registry_is_what_its_key_says() {
    let dir = registry(&["1.0.0", "1.1.0"]);
    assert_eq!(opened(&dir, &pin(9, 0), 1), Err("registry_missing"));
    write_index(dir.path(), "ours", at(100), &[], &key(9)).unwrap();
    assert_eq!(opened(&dir, &pin(9, 0), 1), Ok(1));
    assert_eq!(opened(&dir, &pin(8, 0), 1), Err("registry_other_key"));
    assert_eq!(opened(&dir, &pin(9, 0), 100), Err("registry_expired"));
    let old = [INDEX_FILE, INDEX_SIGNATURE_FILE].map(|file| (file, fs::read(dir.path().join(file)).unwrap()));
    let withdrawn = ("acme.echo".parse().unwrap(), "1.1.0".parse().unwrap());
    write_index(dir.path(), "ours", at(100), &[withdrawn], &key(9)).unwrap();
    write_index(dir.path(), "ours", at(100), &[], &key(9)).unwrap();
    let registry = open_registry(dir.path(), &pin(9, 3), at(1)).unwrap();
    let skill_id = "acme.echo".parse().unwrap();
    let newest = select(&registry.index.artifacts, &skill_id, &VersionReq::STAR).unwrap();
    assert_eq!(newest.version.to_string(), "1.0.0", "what was withdrawn stays so");
    assert_eq!(registry.fetch(newest).unwrap(), sample("1.0.0").bytes);
    // An old list, with its good signature, is put back.
    for (file, bytes) in &old {
        fs::write(dir.path().join(file), bytes).unwrap();
    }
    assert_eq!(opened(&dir, &pin(9, 3), 1), Err("registry_rollback"));
    assert_eq!(opened(&dir, &pin(9, 1), 1), Ok(1));
}

#[test]
fn every_forged_list_is_refused() {
    let dir = registry(&["1.0.0"]);
    write_index(dir.path(), "ours", at(100), &[], &key(9)).unwrap();
    let read = |file: &str| fs::read(dir.path().join(file)).unwrap();
    let (index, signature) = (read(INDEX_FILE), read(INDEX_SIGNATURE_FILE));
    let verify = |index: &[u8], signature: &[u8]| {
        RegistryIndex::verify(index, signature, &key(9).public()).map(drop).map_err(|e| e.code())
    };
    assert_eq!(verify(&index, &signature), Ok(()));
    for at in (0..index.len()).step_by(13) {
        let mut forged = index.clone();
        forged[at] ^= 1;
        assert_eq!(verify(&forged, &signature), Err("registry_signature"), "{at}");
    }
    for at in (0..signature.len()).step_by(13) {
        let mut forged = signature.clone();
        forged[at] ^= 1;
        assert!(verify(&index, &forged).is_err(), "{at}");
    }
    // A list that its own key signed, and that makes no sense.
    let good = RegistryIndex::verify(&index, &signature, &key(9).public()).unwrap();
    let entry = good.artifacts[0].clone();
    let signed = |artifacts: Vec<IndexEntry>| {
        RegistryIndex { artifacts, ..good.clone() }.sign(&key(9)).map(drop).map_err(|e| e.code())
    };
    for bad in [
        vec![entry.clone(), entry.clone()],
        vec![IndexEntry { path: "../x.palyra-skill".to_owned(), ..entry.clone() }],
        vec![IndexEntry { publisher: "other".parse().unwrap(), ..entry }],
    ] {
        assert_eq!(signed(bad), Err("registry_index"));
    }
    fs::write(dir.path().join("broken.palyra-skill"), b"x").unwrap();
    assert_eq!(write_index(dir.path(), "ours", at(100), &[], &key(9)).unwrap_err().code(), "registry_index");
}

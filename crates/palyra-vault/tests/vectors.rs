//! Whole vaults and exports that another implementation made, by the written format (`docs/formats/vault.md`).

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use palyra_protocol::SecretRef;
use palyra_vault::{ImportConflict, KeySources, NewSlot, SecretValue, Surroundings, Vault, VaultError};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::io::Cursor;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

#[derive(Deserialize)]
struct Vaults {
    key_file: String,
    passphrase: String,
    cases: Vec<VaultCase>,
}

#[derive(Deserialize)]
struct VaultCase {
    name: String,
    header: String,
    blobs: BTreeMap<String, String>,
    secrets: Option<BTreeMap<SecretRef, String>>,
    code: Option<String>,
}

#[derive(Deserialize)]
struct Exports {
    passphrase: String,
    cases: Vec<ExportCase>,
}

#[derive(Deserialize)]
struct ExportCase {
    name: String,
    file: String,
    passphrase: Option<String>,
    secrets: Option<BTreeMap<SecretRef, String>>,
    bindings: Option<usize>,
    code: Option<String>,
}

fn vectors<T: DeserializeOwned>(name: &str) -> T {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats/vectors/vault").join(name);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// In memory where the system has a place for that: many vaults are made here.
fn place() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn value(text: &str) -> SecretValue {
    SecretValue::new(text.as_bytes().to_vec()).unwrap()
}

fn code<T>(result: &Result<T, VaultError>) -> &'static str {
    result.as_ref().err().map_or("ok", VaultError::code)
}

/// More cases must be refused than opened: what is refused is what a format is about.
fn counted(refused: impl Iterator<Item = bool>) {
    let (bad, good): (Vec<_>, Vec<_>) = refused.partition(|refused| *refused);
    assert!(bad.len() > good.len() && !good.is_empty(), "{} good, {} bad", good.len(), bad.len());
}

#[test]
fn vaults_of_another_implementation_open_or_are_refused() {
    let vectors: Vaults = vectors("vaults.json");
    for case in &vectors.cases {
        let place = place();
        let (directory, key_file) = (place.path().join("vault"), place.path().join("key"));
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("vault.json"), &case.header).unwrap();
        std::fs::write(&key_file, &vectors.key_file).unwrap();
        std::fs::set_permissions(&key_file, std::fs::Permissions::from_mode(0o600)).unwrap();
        for (id, blob) in &case.blobs {
            let shard = directory.join("blobs").join(&id[..2]);
            std::fs::create_dir_all(&shard).unwrap();
            std::fs::write(shard.join(&id[2..]), hex::decode(blob).unwrap()).unwrap();
        }
        let both = || KeySources::none().key_file(&key_file).passphrase(value(&vectors.passphrase));
        let opened = Vault::open(&directory, &both(), Surroundings::default());
        assert_eq!(code(&opened), case.code.as_deref().unwrap_or("ok"), "{}", case.name);
        let Ok(vault) = opened else { continue };
        for (reference, expect) in case.secrets.as_ref().unwrap() {
            assert_eq!(vault.get(reference).unwrap().value.expose(), expect.as_bytes(), "{}", case.name);
        }
        assert_eq!(vault.bindings().all().len(), 1);
        drop(vault);
        // By the passphrase alone, too; and what was read can be written and read again.
        let by_passphrase = KeySources::none().passphrase(value(&vectors.passphrase));
        let vault = Vault::open(&directory, &by_passphrase, Surroundings::default()).unwrap();
        assert!(vault.rekey(&both()).unwrap().is_complete(), "{}", case.name);
        for (reference, expect) in case.secrets.as_ref().unwrap() {
            assert_eq!(vault.get(reference).unwrap().value.expose(), expect.as_bytes(), "{}", case.name);
        }
    }
    counted(vectors.cases.iter().map(|case| case.code.is_some()));
}

#[test]
fn exports_of_another_implementation_are_imported_or_refused() {
    let vectors: Exports = vectors("exports.json");
    for case in &vectors.cases {
        let place = place();
        let slot = ("key file".to_owned(), NewSlot::KeyFile(place.path().join("key")));
        let directory = place.path().join("vault");
        let vault = Vault::create(&directory, Default::default(), vec![slot], Surroundings::default()).unwrap();
        let passphrase = value(case.passphrase.as_ref().unwrap_or(&vectors.passphrase));
        let mut file = Cursor::new(hex::decode(&case.file).unwrap());
        let imported = vault.import(&mut file, &passphrase, ImportConflict::Refuse);
        assert_eq!(code(&imported), case.code.as_deref().unwrap_or("ok"), "{}", case.name);
        let secrets = case.secrets.clone().unwrap_or_default();
        for (reference, expect) in &secrets {
            assert_eq!(hex::encode(vault.get(reference).unwrap().value.expose()), *expect, "{}", case.name);
        }
        assert_eq!(vault.list(None).unwrap().secrets.len(), secrets.len(), "{}", case.name);
        assert_eq!(vault.bindings().all().len(), case.bindings.unwrap_or(0), "{}", case.name);
    }
    counted(vectors.cases.iter().map(|case| case.code.is_some()));
}

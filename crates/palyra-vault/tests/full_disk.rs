//! A full disk, for real: a small tmpfs in a mount namespace of its own.
//!
//! Root makes the namespace by itself, anybody else inside a user namespace. Where neither is possible the test fails
//! and says so.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "the part on the small disk says that it got to its end")]

use palyra_protocol::SecretRef;
use palyra_vault::{
    BackendChoice, KeySources, NewBinding, NewSlot, PutOptions, SecretValue, Surroundings, Vault, VaultError,
};
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const PLACE: &str = "PALYRA_VAULT_TEST_FULL_DISK";
const MOUNT: &str = r#"mount -t tmpfs -o size=1m tmpfs "$0" && exec "$@""#;

#[test]
fn a_full_disk_is_an_error_and_the_old_value_stays() {
    let place = tempfile::tempdir().unwrap();
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n");
    let mut command = Command::new("unshare");
    if !is_root {
        command.args(["--user", "--map-root-user"]);
    }
    let output = command
        .args(["--mount", "--propagation", "private", "/bin/sh", "-c", MOUNT])
        .arg(place.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "scene", "--nocapture"])
        .env(PLACE, place.path())
        .output()
        .expect("`unshare` comes with the package util-linux");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("scene is over"),
        "this test needs root, or user namespaces that may mount a tmpfs: {said}"
    );
}

/// The part on the small disk; nothing when the tests are run as usual.
#[test]
fn scene() {
    let Some(place) = std::env::var_os(PLACE).map(PathBuf::from) else { return };
    let directory = place.join("vault");
    let sources = || KeySources::none().key_file(place.join("key"));
    let slot = ("key file".to_owned(), NewSlot::KeyFile(place.join("key")));
    let vault = Vault::create(&directory, BackendChoice::Default, vec![slot], Surroundings::default()).unwrap();
    let large = "x".repeat(50_000);
    put(&vault, "a", "small").unwrap();
    put(&vault, "b", &large).unwrap();
    fill(&place);

    for _ in 0..3 {
        assert_eq!(put(&vault, "a", &large).unwrap_err().code(), "disk_full");
        assert_eq!(put(&vault, "new", &large).unwrap_err().code(), "disk_full");
    }
    assert_eq!((shown(&vault, "a").as_str(), shown(&vault, "new").as_str()), ("small", "secret_not_found"));
    assert_eq!(vault.bind(binding()).unwrap_err().code(), "disk_full");
    assert_eq!(vault.rekey(&sources()).unwrap_err().code(), "disk_full");
    let export = vault.export(
        &mut File::create(place.join("export")).unwrap(),
        &value("passphrase"),
        palyra_vault::PassphraseCost::LEAST,
    );
    assert_eq!(export.unwrap_err().code(), "export_io");
    assert!(vault.bindings().all().is_empty() && vault.status().pending.is_empty());
    assert_eq!(std::fs::read_dir(directory.join("tmp")).unwrap().count(), 0, "nothing is left behind");
    drop(vault);

    // The vault opens on a full disk, and goes on when there is room.
    let vault = Vault::open(&directory, &sources(), Surroundings::default()).unwrap();
    assert_eq!((shown(&vault, "a").as_str(), shown(&vault, "b").len()), ("small", 50_000));
    std::fs::remove_file(place.join("filler")).unwrap();
    put(&vault, "a", &large).unwrap();
    assert!(vault.rekey(&sources()).unwrap().is_complete());
    assert_eq!(shown(&vault, "a"), large);
    println!("scene is over");
}

/// Writes until nothing more fits.
fn fill(place: &Path) {
    let mut filler = File::create(place.join("filler")).unwrap();
    while filler.write_all(&[0; 4096]).is_ok() {}
    // The last page may have room for a part of a block.
    while filler.write_all(&[0]).is_ok() {}
}

fn secret(name: &str) -> SecretRef {
    SecretRef::from_operator(&format!("global/{name}")).unwrap()
}

fn value(text: &str) -> SecretValue {
    SecretValue::new(text.as_bytes().to_vec()).unwrap()
}

fn put(vault: &Vault, name: &str, text: &str) -> Result<(), VaultError> {
    vault.put(&secret(name), &value(text), PutOptions::default()).map(drop)
}

fn shown(vault: &Vault, name: &str) -> String {
    match vault.get(&secret(name)) {
        Ok(opened) => String::from_utf8(opened.value.expose().to_vec()).unwrap(),
        Err(error) => error.code().to_owned(),
    }
}

fn binding() -> NewBinding {
    NewBinding {
        secret: secret("a"),
        hosts: vec!["api.example.com".parse().unwrap()],
        header: "Authorization: Bearer {}".parse().unwrap(),
        program: None,
        methods: Vec::new(),
        path: None,
    }
}

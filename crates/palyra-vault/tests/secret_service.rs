//! The Secret Service, for real: gnome-keyring on a session bus of its own.
//!
//! Each test starts itself again inside `dbus-run-session`, with a home directory that is thrown away. Needs the
//! packages `dbus` and `gnome-keyring`; without them the tests fail.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "the part inside the session says that it got to its end")]

use palyra_protocol::{SecretRef, SystemClock};
use palyra_vault::{
    BackendChoice, BackendKind, BlobBackend as _, KeySources, NewSlot, PutOptions, SecretValue, Surroundings,
    SystemBackends, Vault, VaultError,
};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

const SCENE: &str = "PALYRA_VAULT_TEST_SESSION";
/// Unlocks the keyring with a password, as a login does, then becomes the test.
const SESSION: &str = "
printf 'a login password' | gnome-keyring-daemon --unlock --components=secrets --daemonize > /dev/null
exec \"$@\"";

/// Runs a scene inside a session.
fn in_session(scene: &str) {
    let home = tempfile::tempdir().unwrap();
    let me = std::env::current_exe().unwrap();
    let output = Command::new("dbus-run-session")
        .args(["--", "/bin/sh", "-c", SESSION, "sh"])
        .arg(me)
        .args(["--exact", "scene", "--nocapture", "--test-threads=1"])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home.path())
        .env("XDG_RUNTIME_DIR", home.path())
        .env("XDG_DATA_HOME", home.path().join("data"))
        .env(SCENE, scene)
        .output();
    let output = output.expect("dbus-run-session must be there: install the packages dbus and gnome-keyring");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("scene is over"), "{scene}: {said}");
}

/// The part inside the session; nothing when the tests are run as usual.
#[test]
fn scene() {
    let Ok(scene) = std::env::var(SCENE) else { return };
    let home = PathBuf::from(std::env::var("HOME").unwrap());
    match scene.as_str() {
        "backend" => backend(&home),
        "detect" => detect(&home),
        "slot" => slot(&home),
        "locked" => locked(&home),
        "vanished" => vanished(&home),
        "nowhere" => nowhere(&home),
        other => panic!("no scene {other}"),
    }
    println!("scene is over");
}

fn surroundings(timeout: Duration) -> Surroundings {
    Surroundings { clock: Arc::new(SystemClock), backends: Arc::new(SystemBackends::new(timeout)) }
}

fn create(home: &Path, choice: BackendChoice) -> Vault {
    let slot = ("key file".to_owned(), NewSlot::KeyFile(home.join("key")));
    Vault::create(&home.join("vault"), choice, vec![slot], surroundings(LONG)).unwrap()
}

fn open(home: &Path, timeout: Duration) -> Result<Vault, VaultError> {
    Vault::open(&home.join("vault"), &KeySources::none().key_file(home.join("key")), surroundings(timeout))
}

/// Long enough for a loaded machine, short enough to be waited for.
const LONG: Duration = Duration::from_secs(60);

fn secret(name: &str) -> SecretRef {
    SecretRef::from_operator(&format!("principal:agent:demo/{name}")).unwrap()
}

fn value(text: &str) -> SecretValue {
    SecretValue::new(text.as_bytes().to_vec()).unwrap()
}

fn shown(vault: &Vault, name: &str) -> String {
    match vault.get(&secret(name)) {
        Ok(opened) => String::from_utf8(opened.value.expose().to_vec()).unwrap(),
        Err(error) => error.code().to_owned(),
    }
}

fn send(method: &str, argument: &str) {
    let status = Command::new("dbus-send")
        .args([
            "--session",
            "--print-reply",
            "--dest=org.freedesktop.secrets",
            "/org/freedesktop/secrets",
            method,
            argument,
        ])
        .stdout(std::process::Stdio::null())
        .status();
    assert!(status.expect("dbus-send comes with the package dbus").success(), "{method}");
}

#[test]
fn secrets_live_in_the_secret_service() {
    in_session("backend");
}

fn backend(home: &Path) {
    let vault = create(home, BackendChoice::Explicit(BackendKind::SecretService));
    for n in 0..12 {
        vault.put(&secret(&format!("s{n}")), &value(&format!("value {n}")), PutOptions::default()).unwrap();
    }
    vault.put(&secret("large"), &value(&"x".repeat(60_000)), PutOptions::default()).unwrap();
    vault.put(&secret("s0"), &value("newer"), PutOptions::default()).unwrap();
    assert!(!home.join("vault/blobs").exists(), "no blob is in a file");
    drop(vault);

    let vault = open(home, LONG).unwrap();
    assert_eq!((shown(&vault, "s0").as_str(), shown(&vault, "s11").as_str()), ("newer", "value 11"));
    assert_eq!(shown(&vault, "large").len(), 60_000);
    assert_eq!(vault.list(None).unwrap().secrets.len(), 13);
    vault.delete(&secret("s1")).unwrap();
    assert_eq!(shown(&vault, "s1"), "secret_not_found");
    assert!(vault.rekey(&KeySources::none().key_file(home.join("key"))).unwrap().is_complete());
    assert_eq!(shown(&vault, "s2"), "value 2");

    // To files and back, with nothing left where it was.
    assert_eq!(vault.migrate(BackendKind::Files).unwrap().copied, 12);
    assert_eq!(shown(&vault, "s2"), "value 2");
    let id = vault.id();
    let backends = SystemBackends::new(LONG);
    let items = palyra_vault::Backends::open(&backends, BackendKind::SecretService, &id, home).unwrap();
    assert!(items.list().unwrap().is_empty());
    assert_eq!(vault.migrate(BackendKind::SecretService).unwrap().copied, 12);
    assert_eq!(shown(&vault, "s2"), "value 2");
    let files = palyra_vault::FileBackend::open(&home.join("vault")).unwrap();
    assert!(files.list().unwrap().is_empty());
}

#[test]
fn the_backend_is_detected_once_and_recorded() {
    in_session("detect");
}

fn detect(home: &Path) {
    let vault = create(home, BackendChoice::Detect);
    assert_eq!(vault.status().backend, BackendKind::SecretService);
    drop(vault);
    assert_eq!(open(home, LONG).unwrap().status().backend, BackendKind::SecretService);
}

#[test]
fn a_slot_lives_in_the_secret_service() {
    in_session("slot");
}

fn slot(home: &Path) {
    let vault = create(home, BackendChoice::Default);
    vault.put(&secret("a"), &value("value"), PutOptions::default()).unwrap();
    let added = vault.add_slot("session", NewSlot::Keyring).unwrap();
    drop(vault);
    let by_keyring = || Vault::open(&home.join("vault"), &KeySources::none().keyring(), surroundings(LONG));
    let vault = by_keyring().unwrap();
    assert_eq!(shown(&vault, "a"), "value");
    vault.rekey(&KeySources::none().keyring().key_file(home.join("key"))).unwrap();
    drop(vault);
    let vault = by_keyring().unwrap();
    assert_eq!(shown(&vault, "a"), "value");
    vault.remove_slot(added.slot).unwrap();
    drop(vault);
    assert_eq!(by_keyring().unwrap_err().code(), "vault_unlock_failed");
}

#[test]
fn a_locked_keyring_is_an_error_in_time() {
    in_session("locked");
}

fn locked(home: &Path) {
    let vault = create(home, BackendChoice::Explicit(BackendKind::SecretService));
    vault.put(&secret("a"), &value("value"), PutOptions::default()).unwrap();
    drop(vault);
    send("org.freedesktop.Secret.Service.Lock", "array:objpath:/org/freedesktop/secrets/collection/login");
    let vault = open(home, LONG).unwrap();
    assert_eq!(shown(&vault, "a"), "keyring_locked");
    let put = vault.put(&secret("a"), &value("other"), PutOptions::default());
    assert_eq!(put.unwrap_err().code(), "keyring_locked");
    assert_eq!(vault.list(None).unwrap_err().code(), "keyring_locked");
    drop(vault);
    // Nothing is changed silently: the vault is where it was made.
    assert_eq!(open(home, LONG).unwrap().status().backend, BackendKind::SecretService);
    let slot = ("key file".to_owned(), NewSlot::KeyFile(home.join("key")));
    let elsewhere = Vault::create(
        &home.join("other"),
        BackendChoice::Explicit(BackendKind::SecretService),
        vec![slot],
        surroundings(LONG),
    );
    assert_eq!(elsewhere.unwrap_err().code(), "keyring_locked");
    // The same password opens it again.
    kill_keyring();
    unlock();
    let vault = open(home, LONG).unwrap();
    assert_eq!(shown(&vault, "a"), "value");
}

#[test]
fn a_keyring_that_vanishes_is_an_error_and_comes_back() {
    in_session("vanished");
}

fn vanished(home: &Path) {
    let vault = create(home, BackendChoice::Explicit(BackendKind::SecretService));
    vault.put(&secret("a"), &value("value"), PutOptions::default()).unwrap();
    kill_keyring();
    // The bus starts another one, which is locked.
    let found = shown(&vault, "a");
    assert!(["keyring_locked", "keyring_unavailable"].contains(&found.as_str()), "{found}");
    kill_keyring();
    unlock();
    assert_eq!(shown(&vault, "a"), "value");
    vault.put(&secret("a"), &value("other"), PutOptions::default()).unwrap();
    assert_eq!(shown(&vault, "a"), "other");
}

#[test]
fn without_a_session_there_is_no_keyring() {
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "scene", "--nocapture"])
        .env_clear()
        .env("HOME", home.path())
        .env("XDG_RUNTIME_DIR", home.path())
        .env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent/bus")
        .env(SCENE, "nowhere")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("scene is over"), "{said}");
}

fn nowhere(home: &Path) {
    let explicit = BackendChoice::Explicit(BackendKind::SecretService);
    let slot = || ("key file".to_owned(), NewSlot::KeyFile(home.join("key")));
    let refused = Vault::create(&home.join("vault"), explicit, vec![slot()], surroundings(LONG));
    assert_eq!(refused.unwrap_err().code(), "keyring_unavailable");
    let vault = create(home, BackendChoice::Detect);
    assert_eq!(vault.status().backend, BackendKind::Files);
    assert_eq!(vault.add_slot("session", NewSlot::Keyring).unwrap_err().code(), "keyring_unavailable");
    assert_eq!(vault.migrate(BackendKind::SecretService).unwrap_err().code(), "keyring_unavailable");
}

/// Ends the process that owns the Secret Service's name, and waits until the bus has noticed.
fn kill_keyring() {
    let pid = ask_bus("GetConnectionUnixProcessID").expect("somebody owns the name");
    assert!(Command::new("/bin/sh").args(["-c", &format!("kill -9 {pid}")]).status().unwrap().success());
    while ask_bus("GetNameOwner").is_some() {}
}

/// What the bus says about the Secret Service's name; nothing if nobody owns it.
fn ask_bus(method: &str) -> Option<String> {
    let answer = Command::new("dbus-send")
        .args(["--session", "--print-reply=literal", "--dest=org.freedesktop.DBus", "/org/freedesktop/DBus"])
        .args([&format!("org.freedesktop.DBus.{method}"), "string:org.freedesktop.secrets"])
        .output()
        .unwrap();
    let text = String::from_utf8(answer.stdout).unwrap();
    text.split_whitespace().last().filter(|_| answer.status.success()).map(str::to_owned)
}

/// Starts a keyring with the password of the login.
fn unlock() {
    let start =
        "printf 'a login password' | gnome-keyring-daemon --unlock --components=secrets --daemonize > /dev/null";
    assert!(Command::new("/bin/sh").args(["-c", start]).status().unwrap().success());
}

//! What a device keeps: its certificate together with its key, whatever happens in between.

use crate::world::{HOUR, World};
use palyra_identity::{
    ConnectionFault, DeviceStore, KeyDirectory, KeyName, KeyVault, KeyVaultError, Profile, ProfileName, Renewal,
    client_config,
};
use palyra_protocol::{Clock as _, Secret};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn profile_name() -> ProfileName {
    "home".parse().unwrap()
}

struct Home {
    dir: tempfile::TempDir,
    vault: Arc<Moody>,
    store: DeviceStore,
}

/// A keyring that fails when it is told to.
#[derive(Debug)]
struct Moody {
    inner: KeyDirectory,
    fails_to_store: AtomicBool,
    fails_to_remove: AtomicBool,
}

impl KeyVault for Moody {
    fn load(&self, name: &KeyName) -> Result<Option<Secret>, KeyVaultError> {
        self.inner.load(name)
    }

    fn store(&self, name: &KeyName, key: &Secret) -> Result<(), KeyVaultError> {
        if self.fails_to_store.load(Ordering::SeqCst) {
            Err(KeyVaultError::Locked)
        } else {
            self.inner.store(name, key)
        }
    }

    fn remove(&self, name: &KeyName) -> Result<(), KeyVaultError> {
        if self.fails_to_remove.load(Ordering::SeqCst) { Err(KeyVaultError::Locked) } else { self.inner.remove(name) }
    }
}

impl Home {
    fn paired(world: &World) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let vault = Arc::new(Moody {
            inner: KeyDirectory::open(&dir.path().join("keys")).unwrap(),
            fails_to_store: AtomicBool::new(false),
            fails_to_remove: AtomicBool::new(false),
        });
        let store = DeviceStore::open(&dir.path().join("hosts"), vault.clone()).unwrap();
        let home = Self { dir, vault, store };
        let device = world.pair("phone");
        let address = "127.0.0.1:7443".parse().unwrap();
        home.store.save(&profile_name(), &address, &"phone".parse().unwrap(), &device.paired).unwrap();
        home
    }

    fn load(&self) -> Profile {
        self.store.load(&profile_name()).unwrap()
    }
}

fn comes_in(world: &World, profile: &Profile) -> String {
    let credentials = profile.credentials().unwrap();
    world.connect_with(client_config(&credentials, world.clock.clone(), &[b"h2"]).unwrap()).request().unwrap()
}

fn renew(world: &World, profile: &Profile) -> (Renewal, palyra_identity::Issued) {
    let credentials = profile.credentials().unwrap();
    let config = client_config(&credentials, world.clock.clone(), &[b"h2"]).unwrap();
    let mut client = world.connect_with(config);
    client.request().unwrap();
    let connected = client.close().unwrap();
    let renewal = Renewal::begin(profile).unwrap();
    let issued = world.identity.renew(&connected, renewal.request()).unwrap();
    (renewal, issued)
}

#[test]
fn a_profile_is_kept_renewed_and_forgotten() {
    let world = World::new();
    let home = Home::paired(&world);
    let profile = home.load();
    assert_eq!(home.store.list().unwrap(), [profile_name()]);
    assert_eq!(comes_in(&world, &profile), "phone user:ana operator");
    assert!(!profile.renewal_due(world.clock.now()));
    for _ in 0..3 {
        world.clock.advance(9 * HOUR);
        let profile = home.load();
        assert!(profile.renewal_due(world.clock.now()));
        let (renewal, issued) = renew(&world, &profile);
        let renewed = home.store.renewed(&profile, &renewal, &issued).unwrap();
        assert_eq!(comes_in(&world, &renewed), "phone user:ana operator");
        assert_eq!(comes_in(&world, &home.load()), "phone user:ana operator");
        assert_eq!(std::fs::read_dir(home.dir.path().join("keys")).unwrap().count(), 1, "one key at a time");
    }
    let text = std::fs::read_to_string(home.dir.path().join("hosts/home.json")).unwrap();
    let secret = home.vault.load(&"device.home.b".parse().unwrap()).unwrap().unwrap();
    assert!(!text.contains(&hex::encode(secret.expose())), "no secret in the document");
    home.store.forget(&profile_name()).unwrap();
    assert_eq!(home.store.load(&profile_name()).unwrap_err().code(), "profile_unknown");
    assert_eq!(std::fs::read_dir(home.dir.path().join("keys")).unwrap().count(), 0);
}

#[test]
fn a_renewal_cut_off_anywhere_leaves_a_certificate_with_its_key() {
    let world = World::new();
    let home = Home::paired(&world);
    world.clock.advance(9 * HOUR);
    let profile = home.load();
    let (renewal, issued) = renew(&world, &profile);
    // The daemon issued it; the device could not store the key. The old certificate still comes in.
    home.vault.fails_to_store.store(true, Ordering::SeqCst);
    assert_eq!(home.store.renewed(&profile, &renewal, &issued).unwrap_err().code(), "vault_locked");
    home.vault.fails_to_store.store(false, Ordering::SeqCst);
    assert_eq!(comes_in(&world, &home.load()), "phone user:ana operator");
    // The key is stored, the document is not: the crash came in between.
    home.vault.store(&"device.home.b".parse().unwrap(), &Secret::new(vec![1; 10])).unwrap();
    assert_eq!(comes_in(&world, &home.load()), "phone user:ana operator");
    // Both are stored, the old key is not removed yet.
    world.clock.advance(HOUR / 2);
    let (renewal, issued) = renew(&world, &home.load());
    home.vault.fails_to_remove.store(true, Ordering::SeqCst);
    assert!(home.store.renewed(&profile, &renewal, &issued).is_err());
    assert_eq!(comes_in(&world, &home.load()), "phone user:ana operator");
    // Somebody else's certificate is not stored at all.
    home.vault.fails_to_remove.store(false, Ordering::SeqCst);
    let other = world.pair("laptop");
    let wrong = palyra_identity::Issued { certificate: other.paired.certificate, ..issued };
    assert_eq!(home.store.renewed(&profile, &renewal, &wrong).unwrap_err().code(), "device_credentials");
    assert_eq!(comes_in(&world, &home.load()), "phone user:ana operator");
}

#[test]
fn a_copied_directory_without_the_keyring_is_nobody() {
    let world = World::new();
    let home = Home::paired(&world);
    let elsewhere = tempfile::tempdir().unwrap();
    let copied = elsewhere.path().join("hosts");
    std::fs::create_dir(&copied).unwrap();
    std::fs::copy(home.dir.path().join("hosts/home.json"), copied.join("home.json")).unwrap();
    let empty = Arc::new(KeyDirectory::open(&elsewhere.path().join("keys")).unwrap());
    let thief = DeviceStore::open(&copied, empty).unwrap();
    assert_eq!(thief.load(&profile_name()).unwrap_err().code(), "device_key_missing");
}

#[test]
fn damaged_profiles_and_open_keys_are_refused_by_name() {
    let world = World::new();
    let home = Home::paired(&world);
    let document = home.dir.path().join("hosts/home.json");
    let good = std::fs::read_to_string(&document).unwrap();
    for bad in ["", "{}", &good.replace("\"schema\": 1", "\"schema\": 2"), &good.replace("\"zone\"", "\"zones\"")] {
        std::fs::write(&document, bad).unwrap();
        assert_eq!(home.store.load(&profile_name()).unwrap_err().code(), "profile_damaged", "{bad}");
    }
    std::fs::write(&document, &good).unwrap();
    let key = home.dir.path().join("keys/device.home.a.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(home.store.load(&profile_name()).unwrap_err().code(), "key_too_open");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&key, b"rubbish").unwrap();
    assert_eq!(home.store.load(&profile_name()).unwrap_err().code(), "device_key_failed");
    for bad in ["", "a b", "../x", "a.b", "X"] {
        assert!(bad.parse::<ProfileName>().is_err(), "{bad}");
    }
}

#[test]
fn pairing_again_replaces_the_profile() {
    let world = World::new();
    let home = Home::paired(&world);
    world.identity.revoke(&crate::world::owner(), "phone", "lost").unwrap();
    let credentials = home.load().credentials().unwrap();
    let config = client_config(&credentials, world.clock.clone(), &[b"h2"]).unwrap();
    let error = world.connect_with(config).request().unwrap_err();
    assert_eq!(ConnectionFault::of(&error), Some(ConnectionFault::Revoked));
    let again = world.pair("phone");
    let address = "127.0.0.1:7443".parse().unwrap();
    home.store.save(&profile_name(), &address, &"phone".parse().unwrap(), &again.paired).unwrap();
    assert_eq!(comes_in(&world, &home.load()), "phone user:ana operator");
    assert_eq!(std::fs::read_dir(home.dir.path().join("keys")).unwrap().count(), 1);
}

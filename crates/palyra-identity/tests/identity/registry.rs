//! The registry's files: damaged, exchanged, put back, cut off in the middle of a change.

use crate::world::{World, owner};
use palyra_identity::{IdentityError, IdentityEvent, REGISTRY_FILE, SHARDS_DIRECTORY};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

type Files = BTreeMap<PathBuf, Vec<u8>>;

/// The registry's files as they are on disk.
fn files(dir: &Path) -> Files {
    let shards = std::fs::read_dir(dir.join(SHARDS_DIRECTORY)).into_iter().flatten();
    let shards = shards.map(|entry| entry.unwrap().path());
    [dir.join(REGISTRY_FILE), dir.join(format!("{REGISTRY_FILE}.new"))]
        .into_iter()
        .chain(shards)
        .filter_map(|path| Some((path.clone(), std::fs::read(path).ok()?)))
        .collect()
}

fn put_back(dir: &Path, earlier: &Files) {
    for path in files(dir).keys() {
        std::fs::remove_file(path).unwrap();
    }
    for (path, bytes) in earlier {
        std::fs::write(path, bytes).unwrap();
    }
}

/// A start on what is on disk now is refused; the files stay as they are.
fn refused(world: &World) -> String {
    let before = files(world.dir.path());
    let opened = palyra_identity::Identity::open(palyra_identity::IdentitySetup {
        state_dir: world.dir.path(),
        hosts: vec![],
        vault: world.vault.clone(),
        journal: world.journal.clone(),
        clock: world.clock.clone(),
    });
    let error = opened.map(drop).unwrap_err();
    assert!(matches!(error, IdentityError::RegistryRefused { .. }), "{error}");
    assert_eq!(files(world.dir.path()), before, "what was refused is left as it was");
    assert_eq!(world.journal.kinds().last(), Some(&"identity.registry_refused"));
    error.to_string()
}

#[test]
fn a_registry_that_is_not_the_newest_is_refused() {
    let world = World::new();
    world.pair("phone");
    let with_phone = files(world.dir.path());
    world.identity.revoke(&owner(), "phone", "lost").unwrap();
    let newest = files(world.dir.path());
    // An old one, with the phone in it.
    put_back(world.dir.path(), &with_phone);
    let why = refused(&world);
    assert!(why.contains("not revision 3"), "{why}");
    // None at all.
    put_back(world.dir.path(), &Files::new());
    let why = refused(&world);
    assert!(why.contains("missing"), "{why}");
    // The right one again.
    put_back(world.dir.path(), &newest);
    let world = world.restart().unwrap();
    assert_eq!(world.identity.devices().len(), 1);
}

#[test]
fn every_changed_byte_of_root_and_shards_is_refused() {
    let world = World::new();
    world.pair("phone");
    let good = files(world.dir.path());
    assert_eq!(good.len(), 2);
    for (path, bytes) in &good {
        for at in (0..bytes.len()).step_by(41).chain([bytes.len() - 1]) {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            std::fs::write(path, changed).unwrap();
            refused(&world);
        }
        std::fs::remove_file(path).unwrap();
        refused(&world);
        put_back(world.dir.path(), &good);
    }
    let world = world.restart().unwrap();
    assert_eq!(world.identity.devices().len(), 1);
}

#[test]
fn a_registry_that_no_journal_knows_is_refused() {
    let world = World::new();
    world.pair("phone");
    world.journal.changes.lock().unwrap().clear();
    let why = refused(&world);
    assert!(why.contains("nothing in the journal"), "{why}");
}

#[test]
fn a_change_cut_off_anywhere_is_done_or_not_done() {
    let world = World::new();
    world.pair("phone");
    let before = files(world.dir.path());
    world.identity.rename(&owner(), "phone", "telephone".parse().unwrap()).unwrap();
    let after = files(world.dir.path());
    let root = world.dir.path().join(REGISTRY_FILE);
    let new_root = world.dir.path().join(format!("{REGISTRY_FILE}.new"));
    let new_shards = || after.iter().filter(|(path, _)| !before.contains_key(*path));
    let changes = world.journal.changes.lock().unwrap().clone();
    let name = |world: &World| world.identity.devices()[0].device.name.to_string();

    // Cut off before the record: with new shards alone, with half a root beside the old one, with a whole one.
    let mut world = world;
    let whole = after[&root].clone();
    for beside in [None, Some(&whole[..whole.len() / 2]), Some(&whole[..])] {
        world.journal.changes.lock().unwrap().truncate(changes.len() - 1);
        put_back(world.dir.path(), &before);
        for (path, bytes) in new_shards() {
            std::fs::write(path, bytes).unwrap();
        }
        if let Some(bytes) = beside {
            std::fs::write(&new_root, bytes).unwrap();
        }
        world = world.restart().unwrap();
        assert_eq!(name(&world), "phone");
        assert_eq!(files(world.dir.path()), before, "nothing is left of it");
    }

    // Cut off after the record: the root is not in place, or it is and the old shard is still there.
    *world.journal.changes.lock().unwrap() = changes;
    let mut between = before.clone();
    between.extend(new_shards().map(|(path, bytes)| (path.clone(), bytes.clone())));
    between.insert(new_root, whole);
    put_back(world.dir.path(), &between);
    let mut world = world.restart().unwrap();
    assert_eq!(name(&world), "telephone");
    assert_eq!(files(world.dir.path()), after);
    let mut untidy = before.clone();
    untidy.extend(after.clone());
    put_back(world.dir.path(), &untidy);
    world = world.restart().unwrap();
    assert_eq!(name(&world), "telephone");
    assert_eq!(files(world.dir.path()), after);
}

#[test]
fn a_change_that_cannot_be_recorded_does_not_happen() {
    let world = World::new();
    let phone = world.pair("phone");
    let before = files(world.dir.path());
    world.journal.fails.store(true, Ordering::SeqCst);
    assert_eq!(world.identity.revoke(&owner(), "phone", "lost").unwrap_err().code(), "identity_journal");
    assert_eq!(files(world.dir.path()), before);
    assert_eq!(world.connect(&phone).request().unwrap(), "phone user:ana operator");
    world.journal.fails.store(false, Ordering::SeqCst);
    world.identity.revoke(&owner(), "phone", "lost").unwrap();
    assert!(world.connect(&phone).request().is_err());
}

#[test]
fn a_root_that_somebody_else_wrote_meanwhile_is_kept_aside_and_told() {
    let world = World::new();
    world.pair("phone");
    std::fs::write(world.dir.path().join(REGISTRY_FILE), b"{}").unwrap();
    world.identity.rename(&owner(), "phone", "telephone".parse().unwrap()).unwrap();
    let kept = world.dir.path().join(format!("{REGISTRY_FILE}.refused-before-3"));
    assert_eq!(std::fs::read(kept).unwrap(), b"{}");
    let told =
        |event: &IdentityEvent| matches!(event, IdentityEvent::RegistryRefused { why, .. } if why.contains("kept"));
    assert!(world.journal.take_events().iter().any(told));
    let world = world.restart().unwrap();
    assert_eq!(world.identity.devices()[0].device.name.as_str(), "telephone");
}

#[test]
fn files_are_private_and_made_so_again() {
    let world = World::new();
    world.pair("phone");
    let root = world.dir.path().join(REGISTRY_FILE);
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert!(files(world.dir.path()).keys().all(|path| mode(path) == 0o600));
    assert_eq!(mode(&world.dir.path().join(SHARDS_DIRECTORY)), 0o700);
    std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o644)).unwrap();
    let world = world.restart().unwrap();
    assert_eq!(mode(&root), 0o600);
    drop(world);
}

#[test]
fn the_registry_holds_no_secret() {
    let world = World::new();
    let phone = world.pair("phone");
    let key = phone.paired.key.to_secret();
    let kept: Vec<u8> = files(world.dir.path()).into_values().flatten().collect();
    let text = String::from_utf8(kept).unwrap();
    assert!(!text.contains("PRIVATE") && !text.contains(&hex::encode(&key.expose()[36..68])));
    let told = format!("{:?}{:?}", world.journal.events.lock().unwrap(), world.journal.changes.lock().unwrap());
    assert!(told.contains("phone"));
}

#[test]
fn many_devices_are_written_in_small_pieces_and_read_again() {
    let world = World::new();
    world.identity.stock(5_000, false).unwrap();
    let phone = world.pair("phone");
    let before = files(world.dir.path());
    world.identity.rename(&owner(), "phone", "telephone".parse().unwrap()).unwrap();
    let after = files(world.dir.path());
    let written: usize =
        after.iter().filter(|(path, bytes)| before.get(*path) != Some(bytes)).map(|(_, b)| b.len()).sum();
    let all: usize = after.values().map(Vec::len).sum();
    assert!(written * 20 < all, "{written} of {all} bytes");
    let world = world.restart().unwrap();
    assert_eq!(world.identity.devices().len(), 5_001);
    assert_eq!(world.connect(&phone).request().unwrap(), "telephone user:ana operator");
}

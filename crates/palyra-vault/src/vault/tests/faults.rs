//! Whatever is changed on disk is found: a typed error, and nothing else is touched.

use super::*;
use proptest::prelude::*;
use std::fs;

/// A vault with three secrets and a binding, closed.
fn stored() -> Fixture {
    let fixture = Fixture::new();
    let vault = fixture.create();
    for name in ["a", "b", "c"] {
        put(&vault, name, &format!("value of {name}"));
    }
    bind(&vault, "a");
    fixture
}

fn bind(vault: &Vault, name: &str) {
    let new = crate::binding::NewBinding {
        secret: secret(name),
        hosts: vec!["api.example.com".parse().unwrap()],
        header: "Authorization: Bearer {}".parse().unwrap(),
        program: None,
        methods: Vec::new(),
        path: None,
    };
    vault.bind(new).unwrap();
}

#[test]
fn every_flipped_bit_of_a_blob_is_found() {
    let fixture = stored();
    let vault = fixture.open();
    let path = fixture.blob("a");
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << (at % 8);
        fs::write(&path, &flipped).unwrap();
        assert_eq!(shown(&vault, "a"), "vault_damaged", "byte {at}");
        assert_eq!(code(vault.put(&secret("a"), &value("new"), PutOptions::default())), in_header_or_body(&whole, at));
        fs::write(&path, &whole).unwrap();
    }
    assert_eq!(shown(&vault, "a"), "value of a");
    assert_eq!(shown(&vault, "b"), "value of b");
}

/// A put needs the header alone: a body that was changed is of no concern to it when it is dropped.
fn in_header_or_body(whole: &[u8], at: usize) -> &'static str {
    let body = "value of a".len() + 16;
    if at < whole.len() - body { "vault_damaged" } else { "ok" }
}

#[test]
fn every_truncation_of_a_blob_is_found() {
    let fixture = stored();
    let vault = fixture.open();
    let path = fixture.blob("a");
    let whole = fs::read(&path).unwrap();
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        assert_eq!(shown(&vault, "a"), "vault_damaged", "{length} bytes");
    }
    fs::write(&path, [&whole[..], b"x"].concat()).unwrap();
    assert_eq!(shown(&vault, "a"), "vault_damaged");
    let listing = vault.list(None).unwrap();
    assert_eq!(listing.secrets.len(), 3, "a header is whole, whatever follows it");
    fs::write(&path, &whole[..100]).unwrap();
    let listing = vault.list(None).unwrap();
    assert_eq!((listing.secrets.len(), listing.damaged.len()), (2, 1));
}

#[test]
fn every_flipped_bit_of_the_header_is_found() {
    let fixture = stored();
    let path = fixture.path().join("vault.json");
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << (at % 7);
        fs::write(&path, &flipped).unwrap();
        let found = code(fixture.try_open());
        assert!(["vault_damaged", "vault_unlock_failed", "vault_format"].contains(&found), "byte {at}: {found}");
    }
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        assert!(["vault_damaged", "vault_format"].contains(&code(fixture.try_open())), "{length} bytes");
    }
    fs::write(&path, &whole).unwrap();
    assert_eq!(shown(&fixture.open(), "a"), "value of a");
}

#[test]
fn every_flipped_bit_of_the_key_file_is_found() {
    let fixture = stored();
    let whole = fs::read(fixture.key_file()).unwrap();
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << (at % 7);
        fs::write(fixture.key_file(), &flipped).unwrap();
        assert_eq!(code(fixture.try_open()), "vault_unlock_failed", "byte {at}");
    }
    fs::remove_file(fixture.key_file()).unwrap();
    let error = fixture.try_open().unwrap_err();
    assert!(error.to_string().contains("is missing"), "{error}");
}

#[test]
fn blobs_cannot_be_swapped() {
    let fixture = stored();
    let vault = fixture.open();
    let (a, b) = (fs::read(fixture.blob("a")).unwrap(), fs::read(fixture.blob("b")).unwrap());
    fs::write(fixture.blob("a"), &b).unwrap();
    fs::write(fixture.blob("b"), &a).unwrap();
    assert_eq!((shown(&vault, "a").as_str(), shown(&vault, "b").as_str()), ("vault_damaged", "vault_damaged"));
    let listing = vault.list(None).unwrap();
    assert_eq!((listing.secrets.len(), listing.damaged.len()), (1, 2));
    assert_eq!(shown(&vault, "c"), "value of c");
}

#[test]
fn blobs_of_another_vault_do_not_fit() {
    let (fixture, other) = (stored(), stored());
    fs::copy(other.blob("a"), fixture.blob("a")).unwrap();
    assert_eq!(shown(&fixture.open(), "a"), "vault_damaged");
    // Not even under the same key file.
    fs::copy(other.key_file(), fixture.key_file()).unwrap();
    assert_eq!(code(fixture.try_open()), "vault_unlock_failed");
}

#[test]
fn a_version_cannot_be_dropped_or_brought_back() {
    let fixture = Fixture::new();
    let vault = fixture.create();
    put(&vault, "key", "one");
    vault
        .put(
            &secret("key"),
            &value("two"),
            PutOptions { grace: std::time::Duration::from_secs(60), ..PutOptions::default() },
        )
        .unwrap();
    let whole = fs::read(fixture.blob("key")).unwrap();
    // Exchanging the bodies of the two versions, which have the same length.
    let body = 3 + 16;
    let (head, bodies) = whole.split_at(whole.len() - 2 * body);
    fs::write(fixture.blob("key"), [head, &bodies[body..], &bodies[..body]].concat()).unwrap();
    assert_eq!(shown(&vault, "key"), "vault_damaged");
    assert_eq!(code(vault.get_version(&secret("key"), 1)), "vault_damaged");
}

#[test]
fn a_link_in_place_of_a_blob_is_not_followed() {
    let fixture = stored();
    let vault = fixture.open();
    let copy = fixture.root.join("copy");
    fs::rename(fixture.blob("a"), &copy).unwrap();
    std::os::unix::fs::symlink(&copy, fixture.blob("a")).unwrap();
    assert_eq!(shown(&vault, "a"), "vault_io");
    fs::remove_file(fixture.blob("a")).unwrap();
    fs::create_dir(fixture.blob("a")).unwrap();
    assert!(["vault_io", "vault_damaged"].contains(&shown(&vault, "a").as_str()));
    assert_eq!(shown(&vault, "b"), "value of b");
}

#[test]
fn a_blob_that_is_far_too_long_is_not_read() {
    let fixture = stored();
    let vault = fixture.open();
    fs::File::options().write(true).open(fixture.blob("a")).unwrap().set_len(1 << 40).unwrap();
    assert_eq!(shown(&vault, "a"), "vault_damaged");
    assert_eq!(vault.list(None).unwrap().secrets.len(), 3);
    let header = fixture.path().join("vault.json");
    drop(vault);
    fs::File::options().write(true).open(header).unwrap().set_len(1 << 40).unwrap();
    assert_eq!(code(fixture.try_open()), "vault_damaged");
}

#[test]
fn only_one_has_the_vault_open() {
    let fixture = stored();
    let vault = fixture.open();
    assert_eq!(code(fixture.try_open()), "vault_in_use");
    drop(vault);
    assert_eq!(code(fixture.try_open()), "ok");
}

#[test]
fn a_vault_is_made_once_and_opened_where_it_is() {
    let fixture = stored();
    let slot = ("again".to_owned(), NewSlot::KeyFile(fixture.key_file()));
    let again = Vault::create(&fixture.path(), BackendChoice::Default, vec![slot], fixture.surroundings());
    assert_eq!(code(again), "vault_exists");
    let nowhere = Fixture::new();
    assert_eq!(code(nowhere.try_open()), "vault_missing");
    let none = Vault::create(&nowhere.path(), BackendChoice::Default, Vec::new(), nowhere.surroundings());
    assert_eq!(code(none), "vault_last_slot");
}

#[test]
fn files_are_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let fixture = stored();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&fixture.key_file()), 0o600);
    assert_eq!(mode(&fixture.path()), 0o700);
    for path in [fixture.path().join("vault.json"), fixture.blob("a"), fixture.path().join("lock")] {
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[test]
fn no_file_holds_a_value() {
    let fixture = Fixture::new();
    let vault = fixture.create();
    put(&vault, "a", "find-me-if-you-can");
    vault.rekey(&fixture.sources()).unwrap();
    let mut builder = crate::redaction::Redactor::builder();
    builder.add(&secret("a"), &value("find-me-if-you-can"));
    let redactor = builder.build().unwrap();
    let mut looked_at = 0;
    let mut paths = vec![fixture.path(), fixture.key_file()];
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            looked_at += 1;
            assert!(redactor.contained(&fs::read(path).unwrap()).is_empty());
        }
    }
    assert!(looked_at >= 3);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_written_over_a_blob_opens_nothing(
        at in 0_usize..400,
        bytes in prop::collection::vec(any::<u8>(), 1..40),
    ) {
        let fixture = stored();
        let vault = fixture.open();
        let mut blob = fs::read(fixture.blob("a")).unwrap();
        let at = at % blob.len();
        let before = blob.clone();
        let end = (at + bytes.len()).min(blob.len());
        blob[at..end].copy_from_slice(&bytes[..end - at]);
        fs::write(fixture.blob("a"), &blob).unwrap();
        let expect = if blob == before { "value of a" } else { "vault_damaged" };
        prop_assert_eq!(shown(&vault, "a"), expect);
    }
}

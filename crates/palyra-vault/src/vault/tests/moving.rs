//! Bindings, moves between backends, export and import.

use super::*;
use crate::binding::NewBinding;
use crate::slots::PassphraseCost;
use crate::transfer::{ExportReport, ImportConflict, ImportReport};
use std::io::Cursor;
use std::time::Duration;

fn terms(name: &str, host: &str) -> NewBinding {
    NewBinding {
        secret: secret(name),
        hosts: vec![host.parse().unwrap()],
        header: "Authorization: Bearer {}".parse().unwrap(),
        program: Some(crate::binding::BoundProgram {
            name: "git".to_owned(),
            sha256: palyra_protocol::Digest::of(b"g"),
        }),
        methods: vec!["GET".parse().unwrap()],
        path: Some("/repos/*".parse().unwrap()),
    }
}

#[test]
fn bindings_are_kept_and_go_with_their_secret() {
    let fixture = Fixture::new();
    let vault = fixture.create();
    put(&vault, "github", "value");
    let first = vault.bind(terms("github", "api.example.com")).unwrap();
    let second = vault.bind(terms("github", "git.example.com")).unwrap();
    vault.bind(terms("other", "other.example.com")).unwrap();
    drop(vault);

    let vault = fixture.open();
    assert_eq!(vault.bindings().all().len(), 3);
    assert_eq!(vault.bindings().all()[0], first);
    assert_eq!(vault.unbind(second.id()).unwrap(), second);
    assert_eq!(code(vault.unbind(second.id())), "binding_not_found");
    vault.delete(&secret("github")).unwrap();
    let left: Vec<_> = vault.bindings().all().iter().map(|binding| binding.secret().clone()).collect();
    assert_eq!(left, [secret("other")]);
    drop(vault);
    assert_eq!(fixture.open().bindings().all().len(), 1);
}

#[test]
fn a_binding_that_cannot_be_used_is_refused() {
    let fixture = Fixture::new();
    let vault = fixture.create();
    let none = NewBinding { hosts: Vec::new(), ..terms("a", "x.test") };
    let twice =
        NewBinding { hosts: vec!["x.test".parse().unwrap(), "x.test:443".parse().unwrap()], ..terms("a", "x.test") };
    assert_eq!(code(vault.bind(none)), "binding_host");
    assert_eq!(code(vault.bind(twice)), "binding_host");
    let methods = NewBinding { methods: vec!["GET".parse().unwrap(); 2], ..terms("a", "x.test") };
    assert_eq!(code(vault.bind(methods)), "binding_method");
    assert!(vault.bindings().all().is_empty());
}

#[test]
fn all_blobs_move_and_nothing_is_left() {
    let fixture = Fixture::new();
    let vault = fixture.create();
    for n in 0..20 {
        put(&vault, &format!("s{n}"), &format!("value {n}"));
    }
    let report = vault.migrate(BackendKind::SecretService).unwrap();
    assert_eq!((report.copied, report.removed), (20, 20));
    assert!(!fixture.blob("s0").exists());
    assert_eq!(shown(&vault, "s19"), "value 19");
    put(&vault, "s19", "new");
    drop(vault);
    let vault = fixture.open();
    assert_eq!((vault.status().backend, vault.status().pending.len()), (BackendKind::SecretService, 0));
    assert_eq!(shown(&vault, "s19"), "new");
    // There and back, and to where it is already.
    assert_eq!(vault.migrate(BackendKind::SecretService).unwrap().copied, 0);
    assert_eq!(vault.migrate(BackendKind::Files).unwrap().copied, 20);
    assert_eq!(shown(&vault, "s19"), "new");
    assert_eq!(vault.list(None).unwrap().secrets.len(), 20);
}

#[test]
fn a_blob_that_does_not_fit_stops_the_move_and_stays() {
    let fixture = Fixture::new();
    let vault = fixture.create();
    put(&vault, "small", "value");
    put(&vault, "large", &"x".repeat(5000));
    assert_eq!(code(vault.migrate(BackendKind::SecretService)), "vault_backend_limit");
    assert_eq!(code(vault.migrate(BackendKind::Keychain)), "vault_no_such_backend");
    assert_eq!(vault.status().pending, [Pending::MigrationTo(BackendKind::SecretService)]);
    assert_eq!(shown(&vault, "large").len(), 5000);
    // What happens meanwhile is copied when the move goes on.
    put(&vault, "small", "newer");
    vault.delete(&secret("large")).unwrap();
    put(&vault, "more", "value");
    drop(vault);
    let vault = fixture.open();
    assert_eq!(vault.migrate(BackendKind::SecretService).unwrap().copied, 2);
    assert_eq!((shown(&vault, "small").as_str(), shown(&vault, "large").as_str()), ("newer", "secret_not_found"));
    assert_eq!(
        code(vault.put(&secret("large"), &value(&"x".repeat(5000)), PutOptions::default())),
        "vault_backend_limit"
    );
}

#[test]
fn a_move_that_was_begun_can_be_given_up() {
    let fixture = Fixture::new();
    let vault = fixture.create();
    put(&vault, "small", "value");
    put(&vault, "large", &"x".repeat(5000));
    assert_eq!(code(vault.migrate(BackendKind::SecretService)), "vault_backend_limit");
    vault.migrate(BackendKind::Files).unwrap();
    assert!(vault.status().pending.is_empty());
    let copies = FileBackend::open(&fixture.path().join("elsewhere")).unwrap();
    assert!(copies.list().unwrap().is_empty());
    assert_eq!(shown(&vault, "small"), "value");
}

fn exported(vault: &Vault) -> Vec<u8> {
    let mut file = Vec::new();
    vault.export(&mut file, &value("correct horse"), PassphraseCost::LEAST).unwrap();
    file
}

fn import(vault: &Vault, file: &[u8], conflict: ImportConflict) -> Result<ImportReport, VaultError> {
    vault.import(&mut Cursor::new(file), &value("correct horse"), conflict)
}

/// A vault with versions and a binding, and what it exports.
fn filled() -> (Fixture, Vault, Vec<u8>) {
    let fixture = Fixture::new();
    let vault = fixture.create();
    for n in 0..5 {
        put(&vault, &format!("s{n}"), &format!("value {n}"));
    }
    let graced = PutOptions { grace: Duration::from_secs(3600), ..PutOptions::default() };
    vault.put(&secret("s0"), &value("newer"), graced).unwrap();
    vault.bind(terms("s0", "api.example.com")).unwrap();
    let file = exported(&vault);
    (fixture, vault, file)
}

#[test]
fn an_export_is_imported_whole() {
    let (_fixture, vault, file) = filled();
    assert!(!file.windows(5).any(|window| window == b"value"));
    let other = Fixture::new();
    let target = other.create();
    let report = import(&target, &file, ImportConflict::Refuse).unwrap();
    assert_eq!(report, ImportReport { added: 5, replaced: 0, skipped: 0, bindings: 1 });
    assert_eq!(shown(&target, "s0"), "newer");
    assert_eq!(target.get_version(&secret("s0"), 1).unwrap().value.expose(), b"value 0");
    assert_eq!(target.metadata(&secret("s0")).unwrap(), vault.metadata(&secret("s0")).unwrap());
    assert_eq!(target.bindings().all()[0].terms(), terms("s0", "api.example.com"));

    // Again: refused whole, skipped, or as new versions.
    assert_eq!(code(import(&target, &file, ImportConflict::Refuse)), "import_conflict");
    let skipped = import(&target, &file, ImportConflict::Skip).unwrap();
    assert_eq!(skipped, ImportReport { added: 0, replaced: 0, skipped: 5, bindings: 0 });
    put(&target, "s1", "changed here");
    let replaced = import(&target, &file, ImportConflict::Replace).unwrap();
    assert_eq!(replaced, ImportReport { added: 0, replaced: 5, skipped: 0, bindings: 0 });
    assert_eq!((shown(&target, "s1").as_str(), target.metadata(&secret("s1")).unwrap().version), ("value 1", 3));
}

#[test]
fn a_refused_import_changes_nothing() {
    let (_fixture, _vault, file) = filled();
    let other = Fixture::new();
    let target = other.create();
    put(&target, "s4", "mine");
    let nothing_changed = || {
        let listing = target.list(None).unwrap();
        assert_eq!((listing.secrets.len(), target.bindings().all().len()), (1, 0));
        assert_eq!(shown(&target, "s4"), "mine");
    };
    assert_eq!(code(import(&target, &file, ImportConflict::Refuse)), "import_conflict");
    nothing_changed();
    let wrong = target.import(&mut Cursor::new(&file), &value("wrong"), ImportConflict::Skip);
    assert_eq!(code(wrong), "export_passphrase");
    nothing_changed();
    for length in (0..file.len()).step_by(7) {
        let found = code(import(&target, &file[..length], ImportConflict::Skip));
        assert!(["vault_damaged", "vault_format"].contains(&found), "{length}: {found}");
    }
    nothing_changed();
    for at in (0..file.len()).step_by(5) {
        let mut flipped = file.clone();
        flipped[at] ^= 1 << (at % 7);
        let found = code(import(&target, &flipped, ImportConflict::Skip));
        assert!(["vault_damaged", "vault_format", "export_passphrase"].contains(&found), "byte {at}: {found}");
    }
    nothing_changed();
    assert_eq!(code(import(&target, &[&file[..], b"x"].concat(), ImportConflict::Skip)), "vault_damaged");
    nothing_changed();
}

#[test]
fn an_export_says_what_it_could_not_read() {
    let (fixture, vault, _) = filled();
    let mut blob = std::fs::read(fixture.blob("s2")).unwrap();
    let last = blob.len() - 1;
    blob[last] ^= 1;
    std::fs::write(fixture.blob("s2"), blob).unwrap();
    let mut file = Vec::new();
    let ExportReport { secrets, damaged, .. } =
        vault.export(&mut file, &value("correct horse"), PassphraseCost::LEAST).unwrap();
    assert_eq!((secrets, damaged.len(), damaged[0].alleged.as_ref()), (4, 1, Some(&secret("s2"))));
}

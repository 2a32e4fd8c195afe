//! Key slots: each opens the same vault, and only with its own secret.

use super::*;
use crate::command::KeyCommand;
use crate::slots::{MAX_SLOTS, PassphraseCost, SlotKind};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

fn passphrase(text: &str) -> NewSlot {
    NewSlot::Passphrase(value(text), PassphraseCost::LEAST)
}

fn opens(fixture: &Fixture, sources: &KeySources) -> &'static str {
    code(Vault::open(&fixture.path(), sources, fixture.surroundings()))
}

/// A command that keeps keys in a directory of its own, as a key service would.
fn command(fixture: &Fixture, name: &str, script: &str) -> KeyCommand {
    let path = fixture.root.join(format!("{name}.sh"));
    let store = fixture.root.join("service");
    std::fs::create_dir_all(&store).unwrap();
    std::fs::write(&path, format!("#!/bin/sh\nstore={}\n{script}\n", store.display())).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    KeyCommand::new(name, "/bin/sh", vec![path.display().to_string()])
}

const SERVICE: &str = r#"
read -r request
case $request in
  *'"operation":"wrap"'*)
    key=$(printf '%s' "$request" | sed 's/.*"key":"\([^"]*\)".*/\1/')
    printf '%s' "$key" > "$store/key"
    printf '{"handle":"aGFuZGxl"}' ;;
  *'"operation":"unwrap"'*'"handle":"aGFuZGxl"'*)
    printf '{"key":"%s"}\n' "$(cat "$store/key")" ;;
  *) echo "what?" >&2; exit 3 ;;
esac"#;

#[test]
fn every_kind_of_slot_opens_the_vault() {
    let fixture = Fixture::new();
    let vault = fixture.create();
    put(&vault, "a", "value");
    let command = command(&fixture, "service", SERVICE);
    vault.add_slot("words", passphrase("correct horse")).unwrap();
    vault.add_slot("session", NewSlot::Keyring).unwrap();
    vault.add_slot("kms", NewSlot::Command(command.clone())).unwrap();
    let kinds: Vec<_> = vault.slots().iter().map(|slot| (slot.slot, slot.kind)).collect();
    let expect = [SlotKind::KeyFile, SlotKind::Passphrase, SlotKind::Keyring, SlotKind::Command];
    assert_eq!(kinds, (0..).zip(expect).collect::<Vec<_>>());
    drop(vault);

    let each = [
        fixture.sources(),
        KeySources::none().passphrase(value("correct horse")),
        KeySources::none().keyring(),
        KeySources::none().command(command),
        KeySources::none().passphrase(value("wrong")).passphrase(value("correct horse")),
    ];
    for (at, sources) in each.iter().enumerate() {
        let vault = Vault::open(&fixture.path(), sources, fixture.surroundings()).unwrap();
        assert_eq!(shown(&vault, "a"), "value", "{at}");
    }
}

#[test]
fn a_wrong_secret_opens_nothing_and_says_which_slot() {
    let fixture = Fixture::new();
    let vault = fixture.create();
    vault.add_slot("words", passphrase("correct horse")).unwrap();
    drop(vault);
    for sources in [KeySources::none(), KeySources::none().passphrase(value("wrong")), KeySources::none().keyring()] {
        assert_eq!(opens(&fixture, &sources), "vault_unlock_failed");
    }
    let wrong = KeySources::none().passphrase(value("wrong"));
    let error = Vault::open(&fixture.path(), &wrong, fixture.surroundings()).unwrap_err().to_string();
    assert!(error.contains("slot 0 (key file): no key file was named"), "{error}");
    assert!(error.contains("slot 1 (passphrase): the passphrase is wrong"), "{error}");
    assert!(!error.contains("correct"), "{error}");
    let long = KeySources::none().passphrase(value(&"x".repeat(1025)));
    assert_eq!(opens(&fixture, &long), "vault_unlock_failed");
}

#[test]
fn slots_come_and_go_but_for_the_last() {
    let fixture = Fixture::new();
    let vault = fixture.create();
    assert_eq!(code(vault.remove_slot(0)), "vault_last_slot");
    vault.add_slot("words", passphrase("correct horse")).unwrap();
    vault.add_slot("session", NewSlot::Keyring).unwrap();
    vault.remove_slot(0).unwrap();
    assert_eq!(code(vault.remove_slot(0)), "vault_slot_not_found");
    assert_eq!(code(vault.add_slot("\u{1b}[2J", passphrase("x"))), "vault_label");
    vault.remove_slot(2).unwrap();
    // Numbers are not used again.
    assert_eq!(vault.add_slot("again", NewSlot::Keyring).unwrap().slot, 3);
    drop(vault);
    assert_eq!(opens(&fixture, &fixture.sources()), "vault_unlock_failed");
    assert_eq!(opens(&fixture, &KeySources::none().passphrase(value("correct horse"))), "ok");
    assert_eq!(opens(&fixture, &KeySources::none().keyring()), "ok");
}

#[test]
fn slots_are_bounded() {
    let fixture = Fixture::new();
    let vault = fixture.create();
    for _ in 1..MAX_SLOTS {
        vault.add_slot("", NewSlot::KeyFile(fixture.key_file())).unwrap();
    }
    assert_eq!(code(vault.add_slot("", NewSlot::KeyFile(fixture.key_file()))), "vault_too_many_slots");
}

#[test]
fn the_cost_of_a_passphrase_has_bounds() {
    let fixture = Fixture::new();
    let vault = fixture.create();
    for cost in [
        PassphraseCost { memory_kib: 1024, ..PassphraseCost::LEAST },
        PassphraseCost { memory_kib: u32::MAX, ..PassphraseCost::LEAST },
        PassphraseCost { passes: 0, ..PassphraseCost::LEAST },
        PassphraseCost { lanes: 17, ..PassphraseCost::LEAST },
    ] {
        assert_eq!(code(vault.add_slot("", NewSlot::Passphrase(value("x"), cost))), "vault_passphrase_cost");
    }
}

#[test]
fn a_command_that_misbehaves_is_an_error_in_time() {
    let fixture = Fixture::new();
    let vault = fixture.create();
    for (script, expect) in [
        ("exit 3", "failed (exit status: 3)"),
        ("echo 'no access' >&2; exit 1", "failed (exit status: 1): no access"),
        ("cat >&2; exit 1", "\"key\":\"[redacted]"),
        // Cut off in the middle of the key.
        ("request=$(cat); printf '%0280d%s' 0 \"$request\" >&2; exit 1", "\"key\":\"[redacted]"),
        ("echo nonsense", "answered what is not in the protocol"),
        ("echo '{\"handle\":\"!\"}'", "no Base64"),
        ("echo '{\"handle\":\"\"}'", "1 to 16384 bytes"),
        ("echo '{\"handle\":\"YQ==\",\"more\":1}'", "answered what is not in the protocol"),
        ("head -c 100000 /dev/zero", "answered more than 65536 bytes"),
        ("kill -9 $$", "failed (signal: 9"),
    ] {
        let new = NewSlot::Command(command(&fixture, "odd", script));
        let error = vault.add_slot("", new).unwrap_err();
        assert_eq!(error.code(), "vault_key_command");
        assert!(error.to_string().contains(expect), "{script}: {error}");
    }
    // It never ends, and neither does what it has started.
    let slow = command(&fixture, "slow", "sleep 1000 & wait").with_timeout(Duration::from_millis(100));
    let error = vault.add_slot("", NewSlot::Command(slow)).unwrap_err();
    assert!(error.to_string().contains("did not answer within"), "{error}");
    let relative = KeyCommand::new("relative", "sh", Vec::new());
    assert!(vault.add_slot("", NewSlot::Command(relative)).unwrap_err().to_string().contains("absolute path"));
    let missing = KeyCommand::new("missing", "/nonexistent/kms", Vec::new());
    assert!(vault.add_slot("", NewSlot::Command(missing)).unwrap_err().to_string().contains("cannot be started"));
    assert_eq!(vault.slots().len(), 1);
}

#[test]
fn a_command_sees_of_the_environment_what_was_named() {
    let fixture = Fixture::new();
    let vault = fixture.create();
    let script = "printf 'names: %s' \"$(env | sed 's/=.*//' | sort | tr '\\n' ' ')\" >&2; exit 1";
    let command = command(&fixture, "env", script).with_environment(vec!["CARGO_MANIFEST_DIR".to_owned()]);
    let error = vault.add_slot("", NewSlot::Command(command)).unwrap_err().to_string();
    let names: Vec<_> = error.split("names: ").nth(1).unwrap().split_whitespace().collect();
    assert!(names.contains(&"CARGO_MANIFEST_DIR") && names.contains(&"PATH"), "{error}");
    assert!(!names.iter().any(|name| name.starts_with("CARGO_PKG")), "{error}");
}

#[test]
fn a_keyring_that_lost_the_key_opens_nothing() {
    let fixture = Fixture::new();
    let vault = fixture.create();
    vault.add_slot("session", NewSlot::Keyring).unwrap();
    drop(vault);
    let emptied =
        Surroundings { backends: Arc::new(TestBackends { keyring: memory_keyring() }), ..fixture.surroundings() };
    let error = Vault::open(&fixture.path(), &KeySources::none().keyring(), emptied).unwrap_err();
    assert_eq!(error.code(), "vault_unlock_failed");
    assert!(error.to_string().contains("does not hold the slot's key"), "{error}");
}

#[test]
fn what_a_slot_protects_from_is_said() {
    for kind in [SlotKind::KeyFile, SlotKind::Keyring, SlotKind::Command, SlotKind::Passphrase] {
        assert!(!kind.protects_from().is_empty() && kind.does_not_protect_from().contains("Root"));
    }
}

#[test]
fn rekeying_keeps_every_slot_and_every_secret() {
    let fixture = Fixture::new();
    let vault = fixture.create();
    let command = command(&fixture, "service", SERVICE);
    vault.add_slot("words", passphrase("correct horse")).unwrap();
    vault.add_slot("session", NewSlot::Keyring).unwrap();
    vault.add_slot("kms", NewSlot::Command(command.clone())).unwrap();
    for n in 0..30 {
        put(&vault, &format!("s{n}"), &format!("value {n}"));
    }
    let before = std::fs::read(fixture.blob("s0")).unwrap();

    // A slot whose secret is not at hand would be left behind.
    let some = || fixture.sources().keyring().command(command.clone());
    let error = vault.rekey(&some()).unwrap_err();
    assert_eq!(error.code(), "vault_slot_unavailable");
    assert_eq!(std::fs::read(fixture.blob("s0")).unwrap(), before);

    let report = vault.rekey(&some().passphrase(value("correct horse"))).unwrap();
    assert_eq!((report.rewrapped, report.is_complete()), (30, true));
    assert!(vault.status().pending.is_empty());
    let after = std::fs::read(fixture.blob("s0")).unwrap();
    assert_ne!(before[8..24], after[8..24], "another KEK");
    let body = "value 0".len() + 16;
    assert_eq!(before[before.len() - body..], after[after.len() - body..], "the value itself is not touched");
    drop(vault);
    for sources in [
        fixture.sources(),
        KeySources::none().passphrase(value("correct horse")),
        KeySources::none().keyring(),
        KeySources::none().command(command.clone()),
    ] {
        let vault = Vault::open(&fixture.path(), &sources, fixture.surroundings()).unwrap();
        assert_eq!(shown(&vault, "s29"), "value 29");
    }
    // The old blob is nobody's any more.
    std::fs::write(fixture.blob("s0"), before).unwrap();
    assert_eq!(shown(&fixture.open(), "s0"), "vault_damaged");
}

#[test]
fn a_damaged_blob_keeps_the_old_key_until_it_is_dealt_with() {
    let fixture = Fixture::new();
    let vault = fixture.create();
    put(&vault, "good", "value");
    put(&vault, "bad", "value");
    let whole = std::fs::read(fixture.blob("bad")).unwrap();
    let mut flipped = whole.clone();
    flipped[60] ^= 1;
    std::fs::write(fixture.blob("bad"), flipped).unwrap();
    let report = vault.rekey(&fixture.sources()).unwrap();
    assert_eq!((report.rewrapped, report.damaged.len()), (1, 1));
    assert_eq!(vault.status().pending, [Pending::Rekey]);
    assert_eq!(code(vault.rekey(&fixture.sources())), "vault_unfinished");
    drop(vault);
    let vault = fixture.open();
    std::fs::write(fixture.blob("bad"), whole).unwrap();
    assert_eq!((shown(&vault, "bad").as_str(), shown(&vault, "good").as_str()), ("value", "value"));
    let report = vault.resume_rekey().unwrap();
    assert_eq!((report.rewrapped, report.is_complete()), (1, true));
    assert!(vault.status().pending.is_empty());
    assert_eq!(shown(&vault, "bad"), "value");
}

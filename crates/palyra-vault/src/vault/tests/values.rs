//! Putting, getting, listing, deleting; versions and their grace.

use super::*;
use crate::envelope::MAX_VERSIONS;
use crate::value::MAX_VALUE;
use std::sync::atomic::Ordering;
use std::time::Duration;

fn graced(ms: u64) -> PutOptions {
    PutOptions { grace: Duration::from_millis(ms), ..PutOptions::default() }
}

fn names(vault: &Vault, scope: Option<&str>) -> Vec<String> {
    let scope = scope.map(|scope| scope.parse().unwrap());
    let listing = vault.list(scope.as_ref()).unwrap();
    assert!(listing.damaged.is_empty(), "{:?}", listing.damaged);
    listing.secrets.iter().map(|secret| format!("{}@{}", secret.reference, secret.version)).collect()
}

#[test]
fn a_secret_comes_back_after_the_vault_was_closed() {
    let fixture = Fixture::new();
    let vault = fixture.create();
    assert_eq!(put(&vault, "github", "s3cret"), 1);
    assert_eq!(shown(&vault, "github"), "s3cret");
    drop(vault);
    let vault = fixture.open();
    assert_eq!(shown(&vault, "github"), "s3cret");
    assert_eq!(shown(&vault, "gitlab"), "secret_not_found");
    vault.delete(&secret("github")).unwrap();
    assert_eq!(shown(&vault, "github"), "secret_not_found");
    assert_eq!(code(vault.delete(&secret("github"))), "secret_not_found");
}

#[test]
fn values_of_every_length_come_back() {
    let fixture = Fixture::new();
    let vault = fixture.create();
    for length in [1, 15, 16, 17, 64, 4096, MAX_VALUE] {
        let bytes: Vec<u8> = (0..length).map(|at| (at * 7) as u8).collect();
        vault.put(&secret("x"), &SecretValue::new(bytes.clone()).unwrap(), PutOptions::default()).unwrap();
        assert_eq!(vault.get(&secret("x")).unwrap().value.expose(), bytes);
    }
}

#[test]
fn a_replaced_version_stays_for_its_grace() {
    let fixture = Fixture::new();
    let vault = fixture.create();
    let key = secret("key");
    put(&vault, "key", "one");
    vault.put(&key, &value("two"), graced(1000)).unwrap();
    let old = |version| {
        vault
            .get_version(&key, version)
            .map_or_else(|error| error.code().to_owned(), |v| String::from_utf8(v.value.expose().to_vec()).unwrap())
    };
    assert_eq!((shown(&vault, "key").as_str(), old(1).as_str(), old(2).as_str()), ("two", "one", "two"));
    let metadata = vault.metadata(&key).unwrap();
    let numbers: Vec<_> = metadata.versions.iter().map(|v| (v.version, v.expires_at.is_some(), v.bytes)).collect();
    assert_eq!(numbers, [(1, true, 3), (2, false, 3)]);

    fixture.clock.advance(Duration::from_millis(999));
    assert_eq!(old(1), "one");
    fixture.clock.advance(Duration::from_millis(1));
    assert_eq!(old(1), "secret_version_not_found");
    assert_eq!(vault.metadata(&key).unwrap().versions.len(), 1);

    // Without grace the version before is gone at once; one in its grace stays.
    vault.put(&key, &value("three"), graced(5000)).unwrap();
    put(&vault, "key", "four");
    assert_eq!((old(2).as_str(), old(3).as_str(), old(4).as_str()), ("two", "secret_version_not_found", "four"));
    vault.end_grace(&key, 2).unwrap();
    assert_eq!(old(2), "secret_version_not_found");
    assert_eq!(code(vault.end_grace(&key, 4)), "secret_version_not_found");
    assert_eq!(shown(&vault, "key"), "four");
}

#[test]
fn versions_are_bounded_and_the_old_value_stays() {
    let fixture = Fixture::new();
    let vault = fixture.create();
    for n in 0..MAX_VERSIONS {
        vault.put(&secret("key"), &value(&format!("v{n}")), graced(1000)).unwrap();
    }
    let refused = vault.put(&secret("key"), &value("more"), graced(1000));
    assert_eq!(code(refused), "secret_too_many_versions");
    assert_eq!(shown(&vault, "key"), "v15");
    fixture.clock.advance(Duration::from_millis(1000));
    vault.put(&secret("key"), &value("more"), graced(1000)).unwrap();
    assert_eq!(vault.metadata(&secret("key")).unwrap().version, 17);
}

#[test]
fn a_put_can_say_what_it_replaces() {
    let fixture = Fixture::new();
    let vault = fixture.create();
    let put = |text: &str, replaces| {
        code(vault.put(&secret("key"), &value(text), PutOptions { replaces, ..PutOptions::default() }))
    };
    assert_eq!(put("a", Replaces::Version(1)), "secret_conflict");
    assert_eq!(put("a", Replaces::Nothing), "ok");
    assert_eq!(put("b", Replaces::Nothing), "secret_conflict");
    assert_eq!(put("b", Replaces::Version(2)), "secret_conflict");
    assert_eq!(shown(&vault, "key"), "a");
    assert_eq!(put("b", Replaces::Version(1)), "ok");
    assert_eq!(shown(&vault, "key"), "b");
}

#[test]
fn secrets_are_listed_by_scope() {
    let fixture = Fixture::new();
    let vault = fixture.create();
    for reference in ["global/b", "global/a", "principal:agent:demo/a", "channel:cli/a", "skill:acme.x/a"] {
        let reference = SecretRef::from_operator(reference).unwrap();
        vault.put(&reference, &value("x"), PutOptions::default()).unwrap();
    }
    put(&vault, "b", "again");
    assert_eq!(names(&vault, Some("global")), ["vault://global/a@1", "vault://global/b@2"]);
    assert_eq!(names(&vault, Some("principal:agent:demo")), ["vault://principal:agent:demo/a@1"]);
    assert_eq!(names(&vault, Some("principal:agent:other")), Vec::<String>::new());
    assert_eq!(names(&vault, None).len(), 5);
}

/// INVARIANT (list decrypts nothing): the bodies are not even there.
#[test]
fn list_decrypts_nothing() {
    let fixture = Fixture::new();
    let vault = fixture.create();
    for name in ["a", "b", "c"] {
        put(&vault, name, &"x".repeat(3000));
        let bytes = std::fs::read(fixture.blob(name)).unwrap();
        std::fs::write(fixture.blob(name), &bytes[..bytes.len() - 3000 - 16]).unwrap();
    }
    assert_eq!(names(&vault, None).len(), 3);
    assert_eq!(shown(&vault, "a"), "vault_damaged");
}

#[test]
fn a_header_of_many_versions_is_listed_too() {
    let fixture = Fixture::new();
    let vault = fixture.create();
    for _ in 0..MAX_VERSIONS {
        vault.put(&secret(&"n".repeat(128)), &value("x"), graced(1000)).unwrap();
    }
    let listing = vault.list(None).unwrap();
    assert_eq!((listing.damaged.len(), listing.secrets[0].versions.len()), (0, MAX_VERSIONS));
}

#[test]
fn readers_and_writers_do_not_disturb_each_other() {
    let fixture = Fixture::new();
    let vault = fixture.create();
    put(&vault, "key", "0000");
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    assert_eq!(shown(&vault, "key").len(), 4);
                    assert_eq!(vault.list(None).unwrap().secrets.len(), 1);
                }
            });
        }
        for n in 1..40 {
            put(&vault, "key", &format!("{n:04}"));
            if n % 10 == 0 {
                assert!(vault.rekey(&fixture.sources()).unwrap().is_complete());
            }
        }
        done.store(true, Ordering::SeqCst);
    });
    assert_eq!(vault.metadata(&secret("key")).unwrap().version, 40);
}

#[test]
fn many_values_are_put_at_once() {
    let fixture = Fixture::new();
    let vault = fixture.create();
    put(&vault, "s7", "before");
    let secrets: Vec<_> = (0..50).map(|n| (secret(&format!("s{n}")), value(&format!("value {n}")))).collect();
    vault.put_all(&secrets, PutOptions::default()).unwrap();
    assert_eq!((shown(&vault, "s7").as_str(), shown(&vault, "s49").as_str()), ("value 7", "value 49"));
    assert_eq!(vault.metadata(&secret("s7")).unwrap().version, 2);
    let new = PutOptions { replaces: Replaces::Nothing, ..PutOptions::default() };
    assert_eq!(code(vault.put_all(&secrets, new)), "secret_conflict");
    vault.put_all(&[], PutOptions::default()).unwrap();
}

//! The vault through the command line: secrets are kept, shown to people who may, and leave no trace anywhere else.

use palyra_e2e::host::mode;
use palyra_e2e::{Host, text};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// A value that no test writes anywhere else.
const VALUE: &str = "hunter2-7f3aQ9+/zz==-never-shown";

/// Every usual spelling of a value: nothing that the daemon writes may hold one.
pub(crate) fn spellings(value: &str) -> Vec<Vec<u8>> {
    let bytes = value.as_bytes();
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    let url: String = bytes
        .iter()
        .map(|b| {
            if b.is_ascii_alphanumeric() || b"-._~".contains(b) {
                (*b as char).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect();
    let mut found = vec![bytes.to_vec(), hex.to_uppercase().into_bytes(), hex.into_bytes(), url.into_bytes()];
    for skip in 0..3 {
        // The middle of a Base64 text is the same whatever stands around it.
        let encoded = base64(&bytes[skip..skip + (bytes.len() - skip) / 3 * 3]);
        found.push(encoded.clone().into_bytes());
        found.push(encoded.replace('+', "-").replace('/', "_").into_bytes());
    }
    found
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks_exact(3) {
        let number = u32::from(three[0]) << 16 | u32::from(three[1]) << 8 | u32::from(three[2]);
        for shift in [18, 12, 6, 0] {
            text.push(ALPHABET[(number >> shift & 63) as usize] as char);
        }
    }
    text
}

/// Asserts that no file below a directory holds the value in any spelling; returns how many files there are.
pub(crate) fn no_trace(directory: &Path, value: &str) -> usize {
    let wanted = spellings(value);
    let mut left = vec![directory.to_owned()];
    let mut looked = 0;
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            let kind = fs::symlink_metadata(&path).unwrap().file_type();
            if kind.is_dir() {
                left.push(path);
            } else if kind.is_file() {
                let bytes = fs::read(&path).unwrap();
                looked += 1;
                for spelling in &wanted {
                    let found = bytes.windows(spelling.len()).any(|window| window == spelling.as_slice());
                    assert!(!found, "{} holds the value as {:?}", path.display(), String::from_utf8_lossy(spelling));
                }
            }
        }
    }
    looked
}

fn put(host: &Host, secret: &str, value: &str) -> Value {
    host.palyra_fed(&["vault", "put", secret], value.as_bytes()).good()
}

#[test]
fn a_secret_is_kept_shown_to_its_owner_and_nowhere_else() {
    let host = Host::up();
    let none = host.palyra(&["vault", "status"]).good();
    assert!(none["vault"].is_null(), "{none}");
    assert_eq!(host.palyra(&["vault", "list"]).good()["secrets"], Value::Array(vec![]));
    host.palyra(&["vault", "get", "global/github"]).fails(10, "secret_not_found");
    let kept = put(&host, "global/github", &format!("{VALUE}\n"));
    assert_eq!((text(&kept, "/reference"), &kept["version"]), ("vault://global/github", &Value::from(1)));
    assert_eq!(mode(&host.state().join("vault.key")), 0o600);
    let got = host.palyra(&["vault", "get", "global/github"]).good();
    assert_eq!(text(&got, "/value"), VALUE, "the line end of a pipe is not part of it");
    let plain = host.palyra_text(&["vault", "get", "vault://global/github"]).exits(0);
    assert_eq!(plain.stdout, VALUE, "no terminal, no question");
    let listed = host.palyra(&["vault", "list"]).good();
    assert_eq!(text(&listed, "/secrets/0/reference"), "vault://global/github");
    assert_eq!(listed["secrets"][0]["versions"][0]["bytes"], VALUE.len());
    let status = host.palyra_text(&["vault", "status"]).exits(0).stdout;
    assert!(status.contains("protects from") && status.contains("does not protect from"), "{status}");
    host.palyra(&["vault", "delete", "global/github"]).exits(0).done();
    host.palyra(&["vault", "delete", "global/github"]).fails(10, "secret_not_found");
    put(&host, "global/github", VALUE);
    assert!(no_trace(&host.state(), VALUE) > 3, "there was something to look at");
    let exported = host.palyra(&["journal", "export"]).exits(0).stdout;
    assert!(!exported.contains(VALUE));
    let log = fs::read_to_string(host.path("log")).unwrap();
    assert!(!log.contains(VALUE));
    host.palyra(&["journal", "verify"]).exits(0).done();
}

#[test]
fn every_access_is_on_record_and_blame_tells_it() {
    let host = Host::up();
    put(&host, "global/github", VALUE);
    put(&host, "global/other", "something else entirely");
    host.palyra(&["vault", "get", "global/github"]).exits(0).done();
    host.palyra_fed(&["vault", "rotate", "global/github", "--grace", "1h"], b"second-value-123").exits(0).done();
    host.palyra(&[
        "vault",
        "bind",
        "global/github",
        "--host",
        "api.example.com",
        "--header",
        "Authorization: Bearer {}",
    ])
    .exits(0)
    .done();
    let uses = host.palyra(&["vault", "blame", "global/github"]).good();
    let told: Vec<_> = uses.as_array().unwrap().iter().map(|entry| text(entry, "/what").to_owned()).collect();
    assert_eq!(
        told,
        ["bound", "vault.put", "put", "vault.put", "vault.get", "put", "vault.put"],
        "the newest first, each before its effect"
    );
    assert!(uses.as_array().unwrap().iter().all(|entry| entry["by"] == "user:local"), "{uses}");
    let versions = host.palyra(&["vault", "versions", "global/github"]).good();
    assert_eq!(versions["version"], 2);
    assert_eq!(versions["versions"].as_array().unwrap().len(), 2);
    let old = host.palyra(&["vault", "get", "global/github", "--version", "1"]).good();
    assert_eq!(text(&old, "/value"), VALUE, "in its grace");
    host.palyra(&["vault", "versions", "global/github", "--end", "1"]).exits(0).done();
    host.palyra(&["vault", "get", "global/github", "--version", "1"]).fails(10, "secret_version_not_found");
    let bindings = host.palyra(&["vault", "bindings"]).good();
    let id = text(&bindings, "/0/id").to_owned();
    host.palyra(&["vault", "unbind", &id]).exits(0).done();
    host.palyra(&["vault", "unbind", &id]).fails(10, "binding_not_found");
}

#[test]
fn scope_and_policy_must_both_agree() {
    let host = Host::up();
    put(&host, "principal:agent:demo/key", VALUE);
    let refused = host.palyra(&["vault", "get", "principal:agent:demo/key"]).fails(10, "secret_out_of_scope");
    assert!(text(&refused, "/message").contains("user:local"), "{refused}");
    // The scope admits the agent; but a program that asks for a value has no person's approval.
    host.palyra(&["--as", "agent:demo", "vault", "get", "principal:agent:demo/key"]).fails(10, "forbidden");
    for args in [&["vault", "put", "global/x"][..], &["vault", "delete", "global/x"], &["vault", "rekey"]] {
        host.palyra_fed(&[&["--as", "agent:demo"], args].concat(), b"value").fails(10, "forbidden");
    }
    host.palyra(&["access", "member", "add", "user:ana", "--role", "admin"]).exits(0).done();
    let made =
        host.palyra(&["access", "token", "create", "user:ana", "--role", "admin", "--scope", "vault.list,vault.get"]);
    let token = text(&made.good(), "/token").to_owned();
    let listed = host.palyra(&["--token", &token, "vault", "list"]).good();
    assert_eq!(text(&listed, "/secrets/0/reference"), "vault://principal:agent:demo/key");
    put(&host, "global/y", VALUE);
    host.palyra(&["--token", &token, "vault", "get", "global/y"]).fails(10, "forbidden");
    let events = host.palyra(&["journal", "export"]).exits(0).stdout;
    assert!(events.contains("access.refused") && events.contains("secret:vault://global/y"), "refusals are on record");
}

#[test]
fn bad_references_and_values_are_refused_by_name() {
    let host = Host::up();
    for bad in ["github", "global/../../etc/passwd", "global/.x", "GLOBAL/x", "file:x/y", "global/a b", "global/"] {
        assert_eq!(host.palyra_fed(&["vault", "put", bad], b"v").code, 2, "{bad}");
    }
    host.palyra_fed(&["vault", "put", "global/empty"], b"").fails(10, "secret_empty");
    host.palyra_fed(&["vault", "put", "global/large"], &vec![b'x'; 2 << 20]).fails(10, "secret_too_large");
    assert_eq!(host.palyra(&["vault", "put", "global/x", "value-on-the-command-line"]).code, 2, "never argv");
    put(&host, "global/x", VALUE);
    host.palyra_fed(&["vault", "put", "global/x", "--new"], b"other").fails(10, "secret_conflict");
    host.palyra_fed(&["vault", "rotate", "global/missing"], b"other").fails(10, "secret_not_found");
    for (option, value, code) in [
        ("--host", "*", "malformed_request"),
        ("--header", "Host: {}", "malformed_request"),
        ("--header", "no template", "malformed_request"),
        ("--method", "get", "malformed_request"),
        ("--path", "../x", "malformed_request"),
        ("--program", "no-such-program", "sandbox_executable_not_found"),
    ] {
        let mut args = vec!["vault", "bind", "global/x"];
        for (name, usual) in [("--host", "api.example.com"), ("--header", "Authorization: Bearer {}")] {
            if name != option {
                args.extend([name, usual]);
            }
        }
        args.extend([option, value]);
        host.palyra(&args).fails(10, code);
    }
    assert_eq!(text(&host.palyra(&["vault", "get", "global/x"]).good(), "/value"), VALUE, "the old value is intact");
}

#[test]
fn keys_are_replaced_and_copies_sealed() {
    let mut host = Host::up();
    for n in 0..5 {
        put(&host, &format!("global/s{n}"), &format!("{VALUE}{n}"));
    }
    let pass = host.path("pass");
    fs::write(&pass, "correct horse battery\n").unwrap();
    let pass = pass.to_str().unwrap();
    host.palyra(&["vault", "slots", "add", "passphrase", "--label", "mine", "--passphrase-file", pass]).exits(0).done();
    let slots = host.palyra(&["vault", "slots"]).good();
    assert_eq!((slots[0]["kind"].as_str(), slots[1]["kind"].as_str()), (Some("key_file"), Some("passphrase")));
    let rekeyed = host.palyra(&["vault", "rekey", "--passphrase-file", pass]).good();
    assert_eq!(rekeyed["rewrapped"], 5);
    // Without its key file, only the passphrase opens it.
    host.palyra(&["vault", "slots", "remove", "0"]).exits(0).done();
    host.palyra(&["vault", "slots", "remove", "1"]).fails(10, "vault_last_slot");
    host.restart(palyra_e2e::host::Restart::Kill);
    host.palyra(&["vault", "get", "global/s1"]).fails(10, "vault_unlock_failed");
    host.palyra_fed(&["vault", "unlock"], b"wrong").fails(10, "vault_unlock_failed");
    host.palyra(&["vault", "unlock", "--passphrase-file", pass]).exits(0).done();
    assert_eq!(text(&host.palyra(&["vault", "get", "global/s1"]).good(), "/value"), format!("{VALUE}1"));
    let copy = host.path("copy");
    let to = copy.to_str().unwrap();
    let report = host.palyra_fed(&["vault", "export", "--to", to], b"seal").good();
    assert_eq!((&report["secrets"], mode(&copy)), (&Value::from(5), 0o600));
    assert_eq!(host.palyra_fed(&["vault", "export", "--to", to], b"seal").code, 1, "it is not overwritten");
    host.palyra_fed(&["vault", "import", to], b"seal").fails(10, "import_conflict");
    host.palyra(&["vault", "delete", "global/s3"]).exits(0).done();
    host.palyra_fed(&["vault", "import", to, "--conflict", "skip"], b"wrong").fails(10, "export_passphrase");
    let report = host.palyra_fed(&["vault", "import", to, "--conflict", "skip"], b"seal").good();
    assert_eq!((&report["added"], &report["skipped"]), (&Value::from(1), &Value::from(4)));
    assert_eq!(text(&host.palyra(&["vault", "get", "global/s3"]).good(), "/value"), format!("{VALUE}3"));
    no_trace(&host.state(), VALUE);
    assert!(!fs::read(&copy).unwrap().windows(VALUE.len()).any(|window| window == VALUE.as_bytes()));
}

#[test]
fn damage_is_named_and_the_rest_goes_on() {
    let mut host = Host::up();
    put(&host, "global/good", VALUE);
    put(&host, "global/bad", VALUE);
    put(&host, "global/worse", VALUE);
    drop(host.terminate());
    let mut blobs = Vec::new();
    let mut left = vec![host.state().join("vault")];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { left.push(path) } else { blobs.push(path) }
        }
    }
    let holds =
        |path: &Path, name: &str| fs::read(path).unwrap().windows(name.len()).any(|window| window == name.as_bytes());
    let find = |name: &str| blobs.iter().find(|path| holds(path, name)).unwrap().clone();
    let (good, bad, worse) = (find("good"), find("bad"), find("worse"));
    let mut bytes = fs::read(&bad).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&bad, bytes).unwrap();
    // A blob in another's place is not that other.
    fs::copy(&good, &worse).unwrap();
    host.start();
    host.palyra(&["vault", "get", "global/bad"]).fails(10, "vault_damaged");
    host.palyra(&["vault", "get", "global/worse"]).fails(10, "vault_damaged");
    assert_eq!(text(&host.palyra(&["vault", "get", "global/good"]).good(), "/value"), VALUE);
    let status = host.palyra(&["vault", "status"]).good();
    assert_eq!(status["damaged"], 1, "one shows in its header, the other when it is opened: {status}");
}

/// Random enough to kill at other moments each time.
fn some(limit: u64) -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::collections::hash_map::RandomState::new().build_hasher().finish() % limit
}

#[test]
fn nothing_that_was_acknowledged_is_lost_to_a_kill() {
    let mut host = Host::up();
    let mut acknowledged = std::collections::BTreeMap::new();
    let value = |n: u32| format!("{VALUE}-{n}");
    for n in 0..200_u32 {
        let name = format!("global/k{}", n % 20);
        if n % 10 != 9 {
            put(&host, &name, &value(n));
            acknowledged.insert(name, vec![n]);
            continue;
        }
        // One that is under way when the daemon dies: it is there whole, or not at all.
        let file = host.path("value");
        fs::write(&file, value(n)).unwrap();
        let words = ["vault", "put", &name, "--file", file.to_str().unwrap()];
        let words = if n == 99 { &["vault", "rekey"][..] } else { &words };
        let under_way = host.palyra_started(words);
        // Not by yielding: on a busy machine that waits for everyone else, thousands of times.
        for _ in 0..some(3_000_000) {
            std::hint::spin_loop();
        }
        host.kill();
        let ended = under_way.end();
        host.start();
        let known = acknowledged.entry(name).or_insert_with(Vec::new);
        match (n, ended.code) {
            (99, _) => {}
            (_, 0) => *known = vec![n],
            _ => known.push(n),
        }
    }
    for (name, possible) in &acknowledged {
        let got = host.palyra(&["vault", "get", name]).good();
        assert!(possible.iter().any(|n| text(&got, "/value") == value(*n)), "{name}: {possible:?} and {got}");
    }
    let status = host.palyra(&["vault", "status"]).good();
    assert_eq!((&status["damaged"], &status["vault"]["pending"]), (&Value::from(0), &Value::Array(vec![])), "{status}");
    host.palyra(&["journal", "verify"]).exits(0).done();
    no_trace(&host.state(), VALUE);
}

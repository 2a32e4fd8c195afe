//! Lock files of each kind, bills of materials from them, and those that are refused.

use super::*;

const CARGO: &str = r#"
version = 4
[[package]]
name = "own"
version = "0.1.0"
dependencies = ["serde_json"]
[[package]]
name = "serde_json"
version = "1.0.140"
source = "registry+https://example.org/index"
checksum = "20068b6e96dc6c9bd23e01df8827e6c7e1f2fddd43c21810382803c136b99373"
"#;
const PYLOCK: &str = r#"
lock-version = "1.0"
created-by = "tool"
[[packages]]
name = "attrs"
version = "25.1.0"
[[packages.wheels]]
name = "attrs-25.1.0-py3-none-any.whl"
url = "https://example.org/attrs.whl"
hashes = { sha256 = "c75a69e28a550a7e93789579c22aa26b0f5b83b75dc4e08fe092980051e1090a" }
[packages.sdist]
url = "https://example.org/attrs.tar.gz"
hashes = { sha256 = "1c97078a80c814273a76b2a298a932eb681c87415c11dee0a6921de7f1b02c3e", md5 = "0" }
[[packages]]
name = "own"
directory = { path = "." }
"#;
const REQUIREMENTS: &str = "--index-url https://example.org/simple
# pinned by a tool
attrs==25.1.0 \\
    --hash=sha256:c75a69e28a550a7e93789579c22aa26b0f5b83b75dc4e08fe092980051e1090a \\
    --hash=sha256:1c97078a80c814273a76b2a298a932eb681c87415c11dee0a6921de7f1b02c3e
Requests[socks] == 2.32.3 ; python_version >= '3.8'  # needed
";
const NPM: &str = r#"{
  "name": "own", "lockfileVersion": 3,
  "packages": {
    "": { "name": "own", "version": "1.0.0" },
    "node_modules/left-pad": { "version": "1.3.0", "integrity": "sha512-XI5MPzVNApjAyhQzphX8BkmKsKUxD4LdyK24iZeQGinBN9yTQT3bFlCBy/aVx2HrNcqQGsdot8ghrjyrvMCoEA==" },
    "node_modules/@scope/x": { "version": "2.0.0", "dev": true, "integrity": "sha1-AAAAAAAAAAAAAAAAAAAAAAAAAAA=" },
    "node_modules/a/node_modules/left-pad": { "version": "1.3.0" },
    "node_modules/linked": { "resolved": "packages/linked", "link": true },
    "packages/linked": { "version": "1.0.0" }
  }
}"#;

fn lock(kind: LockKind, text: &str) -> LockFile {
    LockFile::parse(kind, text.as_bytes()).unwrap()
}

fn shown(lock: &LockFile) -> Vec<String> {
    let show = |p: &Package| format!("{} {}{}", p.purl, p.hashes.len(), if p.is_excluded { " excluded" } else { "" });
    lock.packages.iter().map(show).collect()
}

#[test]
fn every_lock_file_is_read() {
    assert_eq!(shown(&lock(LockKind::Cargo, CARGO)), ["pkg:cargo/serde_json@1.0.140 1"]);
    assert_eq!(shown(&lock(LockKind::Pylock, PYLOCK)), ["pkg:pypi/attrs@25.1.0 2"]);
    assert_eq!(
        shown(&lock(LockKind::Requirements, REQUIREMENTS)),
        ["pkg:pypi/Requests@2.32.3 0", "pkg:pypi/attrs@25.1.0 2"]
    );
    assert_eq!(shown(&lock(LockKind::Npm, NPM)), ["pkg:npm/left-pad@1.3.0 1", "pkg:npm/%40scope/x@2.0.0 1 excluded"]);
}

#[test]
fn lock_files_that_pin_nothing_are_refused() {
    for (kind, text, code) in [
        (LockKind::Requirements, "requests", "lock_not_pinned"),
        (LockKind::Requirements, "requests>=2", "lock_not_pinned"),
        (LockKind::Requirements, "requests==2.*", "lock_not_pinned"),
        (LockKind::Requirements, "-r other.txt", "lock_not_pinned"),
        (LockKind::Requirements, "-e .", "lock_not_pinned"),
        (LockKind::Requirements, "x @ https://example.org/x.whl", "lock_not_pinned"),
        (LockKind::Cargo, "package = 1", "lock_malformed"),
        (LockKind::Pylock, "lock-version = \"2.0\"", "lock_malformed"),
        (LockKind::Npm, "{\"lockfileVersion\":1}", "lock_malformed"),
        (LockKind::Npm, "{\"lockfileVersion\":3,\"lockfileVersion\":3}", "lock_malformed"),
        (LockKind::Npm, "[", "lock_malformed"),
    ] {
        assert_eq!(LockFile::parse(kind, text.as_bytes()).unwrap_err().code(), code, "{text}");
    }
    assert_eq!(LockFile::parse(LockKind::Cargo, &[0xff]).unwrap_err().code(), "lock_malformed");
}

fn entries() -> Vec<Entry> {
    vec![Entry::new("modules/a.wasm", b"module".to_vec()), Entry::new("skill.toml", b"".to_vec())]
}

fn with_subject<T>(work: impl FnOnce(&SbomSubject<'_>) -> T) -> T {
    let (skill_id, version) = ("acme.weather".parse().unwrap(), "1.0.0".parse().unwrap());
    work(&SbomSubject { skill_id: &skill_id, version: &version, name: "Weather" })
}

fn generated() -> Vec<u8> {
    let locks = [lock(LockKind::Cargo, CARGO), lock(LockKind::Requirements, REQUIREMENTS), lock(LockKind::Npm, NPM)];
    with_subject(|subject| generate(subject, crate::artifact::modules(&entries()), &locks)).unwrap()
}

fn check(text: &str) -> Result<(), &'static str> {
    let sbom = Sbom::parse(text.as_bytes()).map_err(|e| e.code())?;
    let entries = entries();
    with_subject(|subject| sbom.check(subject, crate::artifact::modules(&entries), &entries)).map_err(|e| e.code())
}

#[test]
fn what_is_generated_is_cyclonedx_and_always_the_same() {
    let bytes = generated();
    assert_eq!(bytes, generated());
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!(check(&text), Ok(()));
    let sbom = Sbom::parse(text.as_bytes()).unwrap();
    assert_eq!(sbom.components().len(), 6);
    assert_eq!(sbom.components().iter().filter(|c| !c.has_hash).count(), 1);
}

#[test]
fn a_bill_of_materials_for_something_else_is_refused() {
    let good = String::from_utf8(generated()).unwrap();
    let digest = Digest::of(b"module").to_string();
    for (from, to, code) in [
        ("\"name\":\"acme.weather\"", "\"name\":\"acme.other\"", "sbom_other_subject"),
        ("\"version\":\"1.0.0\"", "\"version\":\"1.0.1\"", "sbom_other_subject"),
        (digest.as_str(), &"0".repeat(64), "sbom_code_missing"),
        ("\"name\":\"modules/a.wasm\"", "\"name\":\"modules/b.wasm\"", "sbom_code_missing"),
        ("\"bomFormat\":\"CycloneDX\"", "\"bomFormat\":\"SPDX\"", "sbom_schema"),
        ("\"specVersion\":\"1.6\"", "\"specVersion\":\"1.1\"", "sbom_schema"),
        ("\"SHA-256\"", "\"SHA256\"", "sbom_schema"),
        ("urn:uuid:", "uuid:", "sbom_schema"),
        ("\"type\":\"file\"", "\"type\":\"thing\"", "sbom_schema"),
        ("\"type\":\"file\"", "\"kind\":\"file\"", "sbom_schema"),
        ("\"version\":1}", "\"version\":1,\"extra\":1}", "sbom_schema"),
        ("\"version\":1}", "\"version\":1,\"version\":1}", "sbom_json"),
        ("{", "", "sbom_json"),
    ] {
        assert!(good.contains(from), "{from}");
        assert_eq!(check(&good.replacen(from, to, 1)), Err(code), "{to}");
    }
    let more = good.replacen("\"components\":[", "\"components\":[{\"type\":\"file\",\"name\":\"assets/x\"},", 1);
    assert_eq!(check(&more), Err("sbom_foreign_file"));
}

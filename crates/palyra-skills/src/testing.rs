//! Sample skills for this crate's tests.

use crate::archive::Entry;
use crate::package::{BuiltPackage, PackageSource, build};
use crate::signature::PublisherKey;
use palyra_protocol::{Secret, Timestamp};

/// A component that implements the world of skills, with more imports.
pub(crate) fn component(imports: &[&str]) -> Vec<u8> {
    let imports: String = imports.iter().map(|name| format!("(import \"{name}\" (instance))\n")).collect();
    let text = include_str!("../tests/components/echo.wat").replace(";; IMPORTS\n", &imports);
    wat::parse_str(text).unwrap()
}

/// A manifest of a skill by `acme`.
pub(crate) fn manifest(version: &str) -> String {
    format!(
        r#"format = 1
[metadata]
skill_id = "acme.echo"
version = "{version}"
publisher = "acme"
name = "Echo"
[entrypoints]
module = "modules/echo.wasm"
[[entrypoints.tools]]
id = "echo"
description = "Gives back what it is given."
risk = "low"
input_schema = {{ type = "object" }}
output_schema = {{ type = "object" }}
# CAPABILITIES
[compat]
required_protocol_major = 1
min_palyra_version = "0.1.0"
"#
    )
}

/// A key that is always the same for the same number.
pub(crate) fn key(number: u8) -> PublisherKey {
    let text = format!("palyra-publisher-key-1:{}", format!("{number:02x}").repeat(32));
    PublisherKey::parse(&Secret::new(text.into_bytes())).unwrap()
}

pub(crate) fn source(manifest: &str, component: Vec<u8>) -> PackageSource {
    PackageSource {
        manifest: manifest.as_bytes().to_vec(),
        files: vec![Entry::new("modules/echo.wasm", component), Entry::new("assets/note.txt", b"note".to_vec())],
        ..PackageSource::default()
    }
}

/// A skill by `acme`, signed with its first key.
pub(crate) fn sample(version: &str) -> BuiltPackage {
    signed_by(version, 1)
}

/// A skill by `acme`, signed with one of its keys.
pub(crate) fn signed_by(version: &str, number: u8) -> BuiltPackage {
    build(&source(&manifest(version), component(&[])), &key(number)).unwrap()
}

/// A time.
pub(crate) fn at(seconds: u64) -> Timestamp {
    Timestamp::from_unix_ms(seconds * 1000)
}

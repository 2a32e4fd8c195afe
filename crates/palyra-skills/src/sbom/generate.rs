//! Writing a bill of materials: the same input gives the same bytes.

use super::SbomError;
use super::lock::{LockFile, Package};
use crate::archive::Entry;
use crate::ids::{SkillId, SkillVersion};
use palyra_protocol::DigestBuilder;
use palyra_protocol::json::canonical_value;
use serde_json::{Value, json};

/// What a bill of materials is about.
#[derive(Debug, Clone, Copy)]
pub struct SbomSubject<'a> {
    /// The skill.
    pub skill_id: &'a SkillId,
    /// Its version.
    pub version: &'a SkillVersion,
    /// Its name for people.
    pub name: &'a str,
}

/// Writes a CycloneDX 1.6 document: the code of the artifact as files, the packages of the lock files as libraries.
///
/// # Errors
/// It has no JSON form, which would be a bug.
pub fn generate<'a>(
    subject: &SbomSubject<'_>,
    code: impl Iterator<Item = &'a Entry>,
    locks: &[LockFile],
) -> Result<Vec<u8>, SbomError> {
    let own = subject_ref(subject);
    let mut components: Vec<Value> = code.map(file).collect();
    let mut packages: Vec<&Package> = locks.iter().flat_map(|lock| &lock.packages).collect();
    packages.sort();
    packages.dedup_by(|a, b| a.purl == b.purl);
    components.extend(packages.iter().map(|package| library(package)));
    let needs: Vec<&Value> = components.iter().map(|component| &component["bom-ref"]).collect();
    let mut document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": subject.skill_id,
                "version": subject.version,
                "description": subject.name,
                "purl": own,
            },
        },
        "dependencies": [{ "ref": own, "dependsOn": needs }],
    });
    document["components"] = components.into();
    let text = canonical_value(&document).map_err(|e| SbomError::Unwritable { reason: e.to_string() })?;
    document["serialNumber"] = serial_number(&text).into();
    let text = canonical_value(&document).map_err(|e| SbomError::Unwritable { reason: e.to_string() })?;
    Ok(text.into_bytes())
}

/// The package URL of a skill: what advisories name it by.
pub(crate) fn subject_ref(subject: &SbomSubject<'_>) -> String {
    format!("pkg:palyra-skill/{}@{}", subject.skill_id, subject.version)
}

fn file(entry: &Entry) -> Value {
    json!({
        "type": "file",
        "bom-ref": format!("file:{}", entry.name),
        "name": entry.name,
        "hashes": [{ "alg": "SHA-256", "content": entry.digest }],
    })
}

fn library(package: &Package) -> Value {
    let hashes: Vec<Value> =
        package.hashes.iter().map(|hash| json!({ "alg": hash.algorithm.as_str(), "content": hash.digits })).collect();
    let mut component = json!({
        "type": "library",
        "bom-ref": package.purl,
        "name": package.name,
        "version": package.version,
        "purl": package.purl,
        "scope": if package.is_excluded { "excluded" } else { "required" },
    });
    if !hashes.is_empty() {
        component["hashes"] = hashes.into();
    }
    component
}

/// A UUID made from the content, so that the same content has the same number.
fn serial_number(text: &str) -> String {
    let digest = DigestBuilder::new("palyra.skill.sbom.v1").field(text.as_bytes()).finish();
    let mut bytes = *digest.as_bytes();
    // Version 8 (made by rules of our own) and the usual variant.
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let digits = hex::encode(&bytes[..16]);
    let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    format!("urn:uuid:{}", parts.join("-"))
}

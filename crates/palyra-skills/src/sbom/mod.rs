//! `sbom.cdx.json`: what a skill is made of, as a CycloneDX document.
//!
//! [`generate`] writes one from the artifact's code and from lock files; the same input gives the same bytes.
//! [`Sbom::parse`] reads one that any tool may have written, holds it to the CycloneDX schema, and [`Sbom::check`]
//! holds it to the artifact: a bill of materials for something else is none.

mod cargo_lock;
mod generate;
mod lock;
mod npm_lock;
mod python_lock;
#[cfg(test)]
mod tests;

pub use generate::{SbomSubject, generate};
pub use lock::{HashAlgorithm, LockError, LockFile, LockKind, Package, PackageHash};

use crate::archive::Entry;
use crate::constants::MAX_SBOM_BYTES;
use crate::purl::PackageUrl;
use crate::text::excerpt;
use palyra_protocol::Digest;
use palyra_protocol::json::check_result;
use serde::Deserialize;
use serde_json::Value;
use std::sync::OnceLock;

/// The most components, nested ones included.
const MAX_COMPONENTS: usize = 20_000;
/// The versions of CycloneDX that the schema covers.
const VERSIONS: [&str; 2] = ["1.5", "1.6"];

/// Why a bill of materials is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SbomError {
    /// Not JSON that every reader understands alike.
    #[error("sbom.cdx.json cannot be read: {reason}")]
    Json {
        /// Why.
        reason: String,
    },
    /// Not a CycloneDX document.
    #[error("sbom.cdx.json is not valid CycloneDX: {reason}")]
    Schema {
        /// Where and why.
        reason: String,
    },
    /// More components than anybody can look at.
    #[error("sbom.cdx.json has more than {MAX_COMPONENTS} components")]
    TooManyComponents,
    /// It describes another skill or version.
    #[error("sbom.cdx.json describes `{found}`, not `{expected}`")]
    OtherSubject {
        /// What it describes.
        found: String,
        /// What it should describe.
        expected: String,
    },
    /// It leaves code out.
    #[error("sbom.cdx.json does not list `{entry}` with its SHA-256")]
    MissingCode {
        /// The entry.
        entry: String,
    },
    /// It lists a file that is not in the artifact.
    #[error("sbom.cdx.json lists the file `{name}`, which is not in the artifact with that SHA-256")]
    ForeignFile {
        /// The file.
        name: String,
    },
    /// It could not be written, which would be a bug.
    #[error("the bill of materials cannot be written: {reason}")]
    Unwritable {
        /// Why.
        reason: String,
    },
    /// The schemas that come with this program cannot be used, which would be a bug.
    #[error("the CycloneDX schema of this build cannot be used: {reason}")]
    NoSchema {
        /// Why.
        reason: String,
    },
}

impl SbomError {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Json { .. } => "sbom_json",
            Self::Schema { .. } => "sbom_schema",
            Self::TooManyComponents => "sbom_too_many_components",
            Self::OtherSubject { .. } => "sbom_other_subject",
            Self::MissingCode { .. } => "sbom_code_missing",
            Self::ForeignFile { .. } => "sbom_foreign_file",
            Self::Unwritable { .. } => "sbom_unwritable",
            Self::NoSchema { .. } => "sbom_no_schema",
        }
    }
}

/// One component of a bill of materials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SbomComponent {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: Option<String>,
    /// Whether it is a file.
    pub is_file: bool,
    /// Whether it is only used to build or test.
    pub is_excluded: bool,
    /// Its package URL, where it has one that can be read.
    pub purl: Option<PackageUrl>,
    /// Whether it has a package URL that cannot be read, so that no advisory can be found by it.
    pub has_odd_purl: bool,
    /// Its SHA-256 digests.
    pub sha256: Vec<Digest>,
    /// Whether it has a hash of any kind.
    pub has_hash: bool,
}

/// A bill of materials that fits the CycloneDX schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sbom {
    subject: Option<SbomComponent>,
    components: Vec<SbomComponent>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawSbom {
    spec_version: String,
    metadata: Option<RawMetadata>,
    #[serde(default)]
    components: Vec<RawComponent>,
}

#[derive(Deserialize)]
struct RawMetadata {
    component: Option<RawComponent>,
}

#[derive(Deserialize)]
struct RawComponent {
    #[serde(rename = "type")]
    kind: String,
    name: String,
    version: Option<String>,
    scope: Option<String>,
    purl: Option<String>,
    #[serde(default)]
    hashes: Vec<RawHash>,
    #[serde(default)]
    components: Vec<RawComponent>,
}

#[derive(Deserialize)]
struct RawHash {
    alg: String,
    content: String,
}

impl Sbom {
    /// Reads a bill of materials.
    ///
    /// # Errors
    /// It is not JSON, does not fit the CycloneDX schema, or is too large.
    pub fn parse(bytes: &[u8]) -> Result<Self, SbomError> {
        let json = |reason: String| SbomError::Json { reason: excerpt(&reason) };
        check_result(bytes, MAX_SBOM_BYTES, 0).map_err(|e| json(e.to_string()))?;
        let value: Value = serde_json::from_slice(bytes).map_err(|e| json(e.to_string()))?;
        validate(&value)?;
        let raw: RawSbom = serde_json::from_value(value).map_err(|e| json(e.to_string()))?;
        if !VERSIONS.contains(&raw.spec_version.as_str()) {
            let reason = format!("version `{}` is not one of {}", excerpt(&raw.spec_version), VERSIONS.join(", "));
            return Err(SbomError::Schema { reason });
        }
        let mut components = Vec::new();
        flatten(raw.components, &mut components)?;
        let mut own = raw.metadata.and_then(|metadata| metadata.component);
        if let Some(own) = &mut own {
            flatten(std::mem::take(&mut own.components), &mut components)?;
        }
        Ok(Self { subject: own.map(component), components })
    }

    /// Every component, nested ones included.
    #[must_use]
    pub fn components(&self) -> &[SbomComponent] {
        &self.components
    }

    /// Holds the bill of materials to an artifact: same skill and version, all code listed with its digest, no other
    /// files.
    ///
    /// # Errors
    /// What does not fit.
    pub fn check<'a>(
        &self,
        subject: &SbomSubject<'_>,
        code: impl Iterator<Item = &'a Entry>,
        entries: &[Entry],
    ) -> Result<(), SbomError> {
        let expected = format!("{} {}", subject.skill_id, subject.version);
        let found = self.subject.as_ref().map_or_else(String::new, |own| {
            format!("{} {}", excerpt(&own.name), excerpt(own.version.as_deref().unwrap_or_default()))
        });
        if found != expected {
            return Err(SbomError::OtherSubject { found, expected });
        }
        for entry in code {
            let listed = |c: &SbomComponent| c.name == entry.name && c.sha256.contains(&entry.digest);
            if !self.components.iter().any(listed) {
                return Err(SbomError::MissingCode { entry: entry.name.clone() });
            }
        }
        let foreign = self.components.iter().filter(|c| c.is_file).find(|c| {
            let entry = crate::artifact::find(entries, &c.name);
            !entry.is_some_and(|entry| c.sha256.contains(&entry.digest))
        });
        match foreign {
            Some(file) => Err(SbomError::ForeignFile { name: excerpt(&file.name) }),
            None => Ok(()),
        }
    }
}

/// Lays nested components out in one list, without recursion: nesting is the document's choice.
fn flatten(raw: Vec<RawComponent>, into: &mut Vec<SbomComponent>) -> Result<(), SbomError> {
    let mut open = raw;
    open.reverse();
    while let Some(mut next) = open.pop() {
        if into.len() == MAX_COMPONENTS {
            return Err(SbomError::TooManyComponents);
        }
        open.extend(std::mem::take(&mut next.components).into_iter().rev());
        into.push(component(next));
    }
    Ok(())
}

fn component(raw: RawComponent) -> SbomComponent {
    let sha256 = raw.hashes.iter().filter(|hash| hash.alg == "SHA-256");
    let purl = raw.purl.as_deref().map(str::parse::<PackageUrl>);
    SbomComponent {
        sha256: sha256.filter_map(|hash| hash.content.to_ascii_lowercase().parse().ok()).collect(),
        has_hash: !raw.hashes.is_empty(),
        is_file: raw.kind == "file",
        is_excluded: raw.scope.as_deref() == Some("excluded"),
        has_odd_purl: matches!(purl, Some(Err(_))),
        purl: purl.and_then(Result::ok),
        name: raw.name,
        version: raw.version,
    }
}

/// Holds a document to the CycloneDX schema.
fn validate(document: &Value) -> Result<(), SbomError> {
    let schema = schema().as_ref().map_err(|reason| SbomError::NoSchema { reason: reason.clone() })?;
    schema.validate(document).map_err(|error| {
        let place = excerpt(&error.instance_path().to_string());
        let place = if place.is_empty() { "the document".to_owned() } else { format!("`{place}`") };
        SbomError::Schema { reason: format!("{place}: {}", excerpt(&error.masked_with("the value").to_string())) }
    })
}

/// The CycloneDX schema, compiled once.
fn schema() -> &'static Result<jsonschema::Validator, String> {
    static SCHEMA: OnceLock<Result<jsonschema::Validator, String>> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        let parse = |text: &str| serde_json::from_str::<Value>(text).map_err(|e| e.to_string());
        let bom = parse(include_str!("../../schemas/cyclonedx/bom-1.6.schema.json"))?;
        let spdx = parse(include_str!("../../schemas/cyclonedx/spdx.schema.json"))?;
        let jsf = parse(include_str!("../../schemas/cyclonedx/jsf-0.82.schema.json"))?;
        let registry = jsonschema::Registry::new()
            .add("http://cyclonedx.org/schema/spdx.schema.json", spdx)
            .and_then(|registry| registry.add("http://cyclonedx.org/schema/jsf-0.82.schema.json", jsf))
            .and_then(|registry| registry.prepare())
            .map_err(|e| e.to_string())?;
        jsonschema::options().with_registry(&registry).build(&bom).map_err(|e| e.to_string())
    })
}

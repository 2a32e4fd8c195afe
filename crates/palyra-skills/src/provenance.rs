//! `provenance.json`: how an artifact was built, as an in-toto statement with SLSA provenance v1.
//!
//! The statement's subjects must be exactly the code of the artifact, digest by digest. It is covered by the
//! publisher's signature like every entry, so it says what the publisher says about the build, and no more: provenance
//! is evidence, not a verdict.

use crate::archive::Entry;
use crate::constants::MAX_PROVENANCE_BYTES;
use crate::sbom::LockFile;
use crate::text::excerpt;
use palyra_protocol::Digest;
use palyra_protocol::json::{canonical_value, check_result};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

const STATEMENT: &str = "https://in-toto.io/Statement/v1";
const PREDICATE: &str = "https://slsa.dev/provenance/v1";
const BUILD_TYPE: &str = "urn:palyra:skill-package:v1";
/// The builder that a package names when its caller names none.
pub const LOCAL_BUILDER: &str = "urn:palyra:builder:local";

/// Why a provenance is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProvenanceError {
    /// Not JSON that every reader understands alike, or not a statement.
    #[error("provenance.json cannot be read: {reason}")]
    Form {
        /// Why.
        reason: String,
    },
    /// Another kind of statement.
    #[error("provenance.json is `{found}`, not an in-toto statement v1 with SLSA provenance v1")]
    OtherKind {
        /// What it is.
        found: String,
    },
    /// It leaves code out.
    #[error("provenance.json has no subject `{entry}` with the SHA-256 of that entry")]
    MissingSubject {
        /// The entry.
        entry: String,
    },
    /// It is about something else too.
    #[error("provenance.json has the subject `{name}`, which is no code of this artifact")]
    ForeignSubject {
        /// The subject.
        name: String,
    },
    /// It could not be written, which would be a bug.
    #[error("the provenance cannot be written: {reason}")]
    Unwritable {
        /// Why.
        reason: String,
    },
}

impl ProvenanceError {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Form { .. } => "provenance_form",
            Self::OtherKind { .. } => "provenance_other_kind",
            Self::MissingSubject { .. } => "provenance_subject_missing",
            Self::ForeignSubject { .. } => "provenance_foreign_subject",
            Self::Unwritable { .. } => "provenance_unwritable",
        }
    }

    fn form(reason: impl ToString) -> Self {
        Self::Form { reason: excerpt(&reason.to_string()) }
    }
}

/// What a publisher says about a build, besides what is in the artifact. Everything here is optional, and nothing is
/// guessed: the same input gives the same artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildFacts {
    /// Who built: a URI.
    pub builder: String,
    /// Where the sources are: a URI and the commit.
    pub source: Option<(String, String)>,
    /// An id of the build.
    pub invocation: Option<String>,
    /// When it began and ended, as RFC 3339 texts.
    pub times: Option<(String, String)>,
}

impl Default for BuildFacts {
    fn default() -> Self {
        Self { builder: LOCAL_BUILDER.to_owned(), source: None, invocation: None, times: None }
    }
}

/// Writes a statement about the code of an artifact.
///
/// # Errors
/// It has no JSON form, which would be a bug.
pub fn generate<'a>(
    skill: &str,
    code: impl Iterator<Item = &'a Entry>,
    locks: &[LockFile],
    facts: &BuildFacts,
) -> Result<Vec<u8>, ProvenanceError> {
    let subjects: Vec<Value> =
        code.map(|entry| json!({ "name": entry.name, "digest": { "sha256": entry.digest } })).collect();
    let mut dependencies: Vec<Value> = locks
        .iter()
        .map(|lock| json!({ "name": lock.kind.file_name(), "digest": { "sha256": lock.digest } }))
        .collect();
    if let Some((uri, commit)) = &facts.source {
        dependencies.push(json!({ "uri": uri, "digest": { "gitCommit": commit } }));
    }
    let mut metadata = Map::new();
    if let Some(invocation) = &facts.invocation {
        metadata.insert("invocationId".to_owned(), invocation.as_str().into());
    }
    if let Some((started, finished)) = &facts.times {
        metadata.insert("startedOn".to_owned(), started.as_str().into());
        metadata.insert("finishedOn".to_owned(), finished.as_str().into());
    }
    let statement = json!({
        "_type": STATEMENT,
        "subject": subjects,
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": { "skill": skill },
                "resolvedDependencies": dependencies,
            },
            "runDetails": {
                "builder": { "id": facts.builder, "version": { "palyra": env!("CARGO_PKG_VERSION") } },
                "metadata": metadata,
            },
        },
    });
    let text = canonical_value(&statement).map_err(|e| ProvenanceError::Unwritable { reason: e.to_string() })?;
    Ok(text.into_bytes())
}

#[derive(Deserialize)]
struct Statement {
    #[serde(rename = "_type")]
    kind: String,
    subject: Vec<Subject>,
    #[serde(rename = "predicateType")]
    predicate_type: String,
    predicate: Value,
}

#[derive(Deserialize)]
struct Subject {
    name: String,
    digest: BTreeMap<String, String>,
}

/// The parts that SLSA provenance v1 requires.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Predicate {
    build_definition: BuildDefinition,
    run_details: RunDetails,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BuildDefinition {
    build_type: String,
    /// Required to be there, whatever it holds.
    #[serde(rename = "externalParameters")]
    _external_parameters: Map<String, Value>,
    #[serde(default)]
    resolved_dependencies: Vec<Value>,
}

#[derive(Deserialize)]
struct RunDetails {
    builder: Builder,
}

#[derive(Deserialize)]
struct Builder {
    id: String,
}

/// A provenance that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provenance {
    subjects: Vec<(String, Option<Digest>)>,
    /// Who built.
    pub builder: String,
    /// How.
    pub build_type: String,
    /// How many inputs of the build it names.
    pub dependencies: usize,
}

impl Provenance {
    /// Reads a statement.
    ///
    /// # Errors
    /// It is no in-toto statement with SLSA provenance v1.
    pub fn parse(bytes: &[u8]) -> Result<Self, ProvenanceError> {
        check_result(bytes, MAX_PROVENANCE_BYTES, 0).map_err(ProvenanceError::form)?;
        let statement: Statement = serde_json::from_slice(bytes).map_err(ProvenanceError::form)?;
        if statement.kind != STATEMENT || statement.predicate_type != PREDICATE {
            let found = excerpt(&format!("{} with {}", statement.kind, statement.predicate_type));
            return Err(ProvenanceError::OtherKind { found });
        }
        let predicate: Predicate = serde_json::from_value(statement.predicate).map_err(ProvenanceError::form)?;
        let builder = predicate.run_details.builder.id;
        if builder.is_empty() || predicate.build_definition.build_type.is_empty() {
            return Err(ProvenanceError::form("builder and build type have names"));
        }
        let subject = |s: Subject| (s.name, s.digest.get("sha256").and_then(|digits| digits.parse().ok()));
        Ok(Self {
            subjects: statement.subject.into_iter().map(subject).collect(),
            builder,
            build_type: predicate.build_definition.build_type,
            dependencies: predicate.build_definition.resolved_dependencies.len(),
        })
    }

    /// Holds the statement to the code of an artifact: the same subjects, digest by digest, and no others.
    ///
    /// # Errors
    /// What does not fit.
    pub fn check<'a>(&self, code: impl Iterator<Item = &'a Entry>) -> Result<(), ProvenanceError> {
        let code: Vec<&Entry> = code.collect();
        for entry in &code {
            if !self.subjects.iter().any(|(name, digest)| *name == entry.name && *digest == Some(entry.digest)) {
                return Err(ProvenanceError::MissingSubject { entry: entry.name.clone() });
            }
        }
        let foreign = self
            .subjects
            .iter()
            .find(|(name, digest)| !code.iter().any(|entry| *name == entry.name && *digest == Some(entry.digest)));
        match foreign {
            Some((name, _)) => Err(ProvenanceError::ForeignSubject { name: excerpt(name) }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> Vec<Entry> {
        vec![Entry::new("modules/a.wasm", b"a".to_vec()), Entry::new("modules/b.wasm", b"b".to_vec())]
    }

    fn generated() -> String {
        let facts = BuildFacts {
            source: Some(("https://example.org/repo".to_owned(), "0".repeat(40))),
            times: Some(("2026-01-01T00:00:00Z".to_owned(), "2026-01-01T00:01:00Z".to_owned())),
            invocation: Some("7".to_owned()),
            ..BuildFacts::default()
        };
        let entries = entries();
        String::from_utf8(generate("acme.weather@1.0.0", entries.iter(), &[], &facts).unwrap()).unwrap()
    }

    fn check(text: &str) -> Result<(), &'static str> {
        let read = Provenance::parse(text.as_bytes()).map_err(|e| e.code())?;
        read.check(entries().iter()).map_err(|e| e.code())
    }

    #[test]
    fn what_is_generated_holds() {
        assert_eq!(check(&generated()), Ok(()));
        let read = Provenance::parse(generated().as_bytes()).unwrap();
        assert_eq!((read.builder.as_str(), read.dependencies), (LOCAL_BUILDER, 1));
    }

    #[test]
    fn statements_about_something_else_are_refused() {
        let good = generated();
        let digest = Digest::of(b"b").to_string();
        for (from, to, code) in [
            (digest.as_str(), "0".repeat(64).as_str(), "provenance_subject_missing"),
            (digest.as_str(), digest.to_uppercase().as_str(), "provenance_subject_missing"),
            ("modules/b.wasm", "modules/c.wasm", "provenance_subject_missing"),
            ("Statement/v1", "Statement/v0.1", "provenance_other_kind"),
            ("provenance/v1", "provenance/v0.2", "provenance_other_kind"),
            ("\"buildType\":", "\"builtType\":", "provenance_form"),
            ("\"externalParameters\":", "\"parameters\":", "provenance_form"),
            ("urn:palyra:builder:local", "", "provenance_form"),
            ("\"_type\":", "\"_type\":\"\",\"_type\":", "provenance_form"),
        ] {
            assert!(good.contains(from), "{from}");
            assert_eq!(check(&good.replacen(from, to, 1)), Err(code), "{to}");
        }
        let more = good.replacen("\"subject\":[", "\"subject\":[{\"name\":\"x\",\"digest\":{}},", 1);
        assert_eq!(check(&more), Err("provenance_foreign_subject"));
    }
}

//! The answer of an audit: one line for each check, and the verdict.

use crate::ids::{SkillId, SkillVersion};
use palyra_protocol::Digest;
use serde::Serialize;
use std::fmt;

/// The most pieces of evidence of one check.
const MAX_EVIDENCE: usize = 32;

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckStatus {
    /// Nothing is wrong.
    Pass,
    /// A person should look; nothing is stopped.
    Warn,
    /// The skill is not eligible.
    Fail,
}

impl CheckStatus {
    /// The name in reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

impl fmt::Display for CheckStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

macro_rules! checks {
    ($($(#[$doc:meta])* $name:ident = $id:literal, $remedy:literal;)*) => {
        /// A check, by its stable id.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        pub enum CheckId {
            $($(#[$doc])* #[serde(rename = $id)] $name,)*
        }

        impl CheckId {
            /// Every check.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The id.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $id,)* }
            }

            /// What to do when it does not pass.
            #[must_use]
            pub fn remedy(self) -> &'static str {
                match self { $(Self::$name => $remedy,)* }
            }
        }
    };
}

checks! {
    /// The archive has the one form that artifacts have.
    ArchiveForm = "archive.form", "build the artifact again with `palyra skills package build`";
    /// The signature holds for the content.
    SignatureValid = "signature.valid", "get the artifact again from its publisher; do not install this one";
    /// The key that signed is trusted.
    TrustPublisher = "trust.publisher", "trust the key explicitly, or get a version signed by a trusted key";
    /// The manifest can be read.
    ManifestValid = "manifest.valid", "mend `skill.toml` where the message says, and build again";
    /// Every part is there, and nothing else.
    ArtifactLayout = "artifact.layout", "build the artifact again with `palyra skills package build`";
    /// The artifact and its parts are not too large.
    LimitsSize = "limits.size", "make the artifact smaller, or raise the limit in the audit policy";
    /// The quotas that it asks for are within the machine's.
    LimitsQuotas = "limits.quotas", "ask for less in `capabilities.quotas`, or raise the limit in the audit policy";
    /// Every module is a valid component.
    WasmValid = "wasm.valid", "build the module as a component for the world `palyra:skill`";
    /// No import is forbidden.
    WasmImports = "wasm.imports",
        "build without that import; the host does not provide it or the audit policy forbids it";
    /// The exports are those of the world of skills.
    WasmExports = "wasm.exports", "export `palyra:skill/tools` with `describe` and `invoke`";
    /// The memory that it wants at the start is within its quota.
    WasmMemory = "wasm.memory", "raise `capabilities.quotas.max_memory_bytes`, or build with less initial memory";
    /// No id or root leads elsewhere.
    CapabilitiesPaths = "capabilities.paths", "write ids as plain words and roots relative to the workspace";
    /// Every wildcard has a reason, and the audit policy permits it.
    CapabilitiesWildcards = "capabilities.wildcards", "name exactly what the skill needs instead of a wildcard";
    /// No host or secret scope is forbidden.
    CapabilitiesForbidden = "capabilities.forbidden", "take it out of the manifest; the audit policy forbids it";
    /// What is asked for is also used.
    CapabilitiesUnused = "capabilities.unused", "take out of the manifest what the component does not import";
    /// What is imported is also asked for.
    CapabilitiesUndeclared = "capabilities.undeclared",
        "declare the capability in the manifest, or build for a world that imports only what the skill uses";
    /// The tools' risk fits their capabilities.
    ToolsRisk = "tools.risk", "raise the `risk` of the tools; policy sees the higher one in any case";
    /// The world's major version is the host's.
    CompatProtocol = "compat.protocol", "build for the protocol of this daemon, or use another version of Palyra";
    /// This Palyra is new enough.
    CompatPalyra = "compat.palyra", "update Palyra";
    /// The bill of materials is valid and about this artifact.
    SbomValid = "sbom.valid", "build the artifact again, so that its bill of materials is made from it";
    /// Every component of it has a hash.
    SbomHashes = "sbom.hashes", "pin the packages with hashes in the lock file, and build again";
    /// The provenance is valid and about this artifact.
    ProvenanceValid = "provenance.valid", "build the artifact again, so that its provenance is made from it";
    /// Nothing of it is known to be bad, by digest.
    KnownBadDigest = "known_bad.digest", "remove the skill; this very file was reported";
    /// Nothing of it is known to be bad, by package and version.
    KnownBadPackage = "known_bad.package", "update the package that the advisory names, and build again";
    /// No text that a model reads hides anything.
    TextHidden = "text.hidden",
        "write plain text: no invisible or reordering characters, no comments, no hidden markup";
    /// No text gives orders to a model.
    TextInstructions = "text.instructions",
        "describe what the tool does; give the model no orders and nothing to conceal";
}

impl fmt::Display for CheckId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One check of an audit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Which.
    pub id: CheckId,
    /// How it ended.
    pub status: CheckStatus,
    /// What was found, each in one line.
    pub evidence: Vec<String>,
    /// What to do, where something is to be done.
    pub remedy: Option<&'static str>,
}

/// What was audited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct AuditSubjectNames {
    /// The skill, if its manifest can be read.
    pub skill_id: Option<SkillId>,
    /// Its version.
    pub version: Option<SkillVersion>,
    /// The digest of its content, if its archive can be read.
    pub content_sha256: Option<Digest>,
    /// SHA-256 of the file.
    pub artifact_sha256: Option<Digest>,
}

/// The answer of an audit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditReport {
    /// What was audited.
    #[serde(flatten)]
    pub subject: AuditSubjectNames,
    /// The worst of all checks.
    pub verdict: CheckStatus,
    /// Every check that could be made. Where a check fails so that others cannot be made, those are absent.
    pub checks: Vec<Check>,
}

impl AuditReport {
    pub(super) fn new(subject: AuditSubjectNames, mut checks: Vec<Check>) -> Self {
        checks.sort_by_key(|check| check.id);
        let verdict = checks.iter().map(|check| check.status).max().unwrap_or(CheckStatus::Fail);
        Self { subject, verdict, checks }
    }

    /// Whether the skill may be eligible: no check fails.
    #[must_use]
    pub fn is_eligible(&self) -> bool {
        self.verdict < CheckStatus::Fail
    }

    /// The checks that ended like this.
    pub fn with_status(&self, status: CheckStatus) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(move |check| check.status == status)
    }

    /// A check by its id.
    #[must_use]
    pub fn check(&self, id: CheckId) -> Option<&Check> {
        self.checks.iter().find(|check| check.id == id)
    }
}

/// Collects evidence for one check; what was found last and worst decides.
pub(super) struct Finding {
    id: CheckId,
    status: CheckStatus,
    evidence: Vec<String>,
    more: usize,
}

impl Finding {
    pub(super) fn new(id: CheckId) -> Self {
        Self { id, status: CheckStatus::Pass, evidence: Vec::new(), more: 0 }
    }

    /// Adds evidence.
    pub(super) fn add(&mut self, status: CheckStatus, evidence: impl Into<String>) {
        // Failures come before warnings when there is more than anybody reads.
        let at = if status > self.status { 0 } else { self.evidence.len() };
        self.status = self.status.max(status);
        if self.evidence.len() < MAX_EVIDENCE {
            self.evidence.insert(at, evidence.into());
        } else {
            self.more += 1;
        }
    }

    pub(super) fn fail(&mut self, evidence: impl Into<String>) {
        self.add(CheckStatus::Fail, evidence);
    }

    pub(super) fn warn(&mut self, evidence: impl Into<String>) {
        self.add(CheckStatus::Warn, evidence);
    }

    pub(super) fn note(&mut self, evidence: impl Into<String>) {
        self.add(CheckStatus::Pass, evidence);
    }

    pub(super) fn done(mut self) -> Check {
        if self.more > 0 {
            self.evidence.push(format!("and {} more", self.more));
        }
        let remedy = (self.status > CheckStatus::Pass).then(|| self.id.remedy());
        Check { id: self.id, status: self.status, evidence: self.evidence, remedy }
    }
}

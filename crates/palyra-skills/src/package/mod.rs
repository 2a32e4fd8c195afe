//! `palyra skills package build|verify|inspect|audit` as functions that need no daemon.

mod folder;
mod inspect;

pub(crate) use folder::FolderReader;
pub use folder::{MAX_FOLDER_BYTES, SourceError};
pub use inspect::{EntrySummary, Inspection, ModuleSummary, inspect};

use crate::archive::{self, ArchiveError, Entry};
use crate::artifact::{Artifact, ArtifactError, LayoutFault, check_layout, code};
use crate::audit::{AuditContext, AuditReport, audit_skill_artifact_security};
use crate::constants::{MANIFEST_ENTRY, PROVENANCE_ENTRY, SBOM_ENTRY};
use crate::manifest::{Manifest, ManifestError};
use crate::provenance::{self, BuildFacts, ProvenanceError};
use crate::sbom::{self, LockError, LockFile, LockKind, Sbom, SbomError, SbomSubject};
use crate::signature::{PublisherKey, SignatureFault, content_digest};
use crate::trust::{TrustDocument, TrustRefusal, Verification, VerifyRequest, verify_skill_artifact};
use palyra_protocol::Digest;

/// Everything that an artifact is built from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PackageSource {
    /// The text of `skill.toml`.
    pub manifest: Vec<u8>,
    /// Components, assets, instructions, scripts.
    pub files: Vec<Entry>,
    /// The lock files of the sources.
    pub locks: Vec<LockFile>,
    /// A bill of materials by another tool, instead of one from the lock files.
    pub sbom: Option<Vec<u8>>,
    /// What the publisher says about the build.
    pub facts: BuildFacts,
}

/// Why an artifact cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    /// The folder cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A lock file cannot be used.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The manifest is refused.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A part is missing or does not belong there.
    #[error(transparent)]
    Layout(#[from] LayoutFault),
    /// The bill of materials is refused.
    #[error(transparent)]
    Sbom(#[from] SbomError),
    /// The provenance is refused.
    #[error(transparent)]
    Provenance(#[from] ProvenanceError),
    /// The archive cannot be written.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The artifact cannot be signed.
    #[error(transparent)]
    Signature(#[from] SignatureFault),
    /// What was built cannot be read again, which would be a bug.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
}

impl PackageError {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Source(e) => e.code(),
            Self::Lock(e) => e.code(),
            Self::Manifest(e) => e.code(),
            Self::Layout(e) => e.code(),
            Self::Sbom(e) => e.code(),
            Self::Provenance(e) => e.code(),
            Self::Archive(e) => e.code(),
            Self::Signature(e) => e.code(),
            Self::Artifact(e) => e.code(),
        }
    }
}

/// An artifact that was built.
#[derive(Debug, Clone)]
pub struct BuiltPackage {
    /// The bytes of the `.palyra-skill` file.
    pub bytes: Vec<u8>,
    /// SHA-256 of them.
    pub digest: Digest,
    /// The artifact, read from those bytes.
    pub artifact: Artifact,
}

impl BuiltPackage {
    /// The usual name of the file: `acme.weather-1.2.0.palyra-skill`.
    #[must_use]
    pub fn file_name(&self) -> String {
        let metadata = &self.artifact.manifest().metadata;
        format!("{}-{}.{}", metadata.skill_id, metadata.version, crate::constants::ARTIFACT_EXTENSION)
    }
}

impl PackageSource {
    /// Adds a lock file.
    ///
    /// # Errors
    /// It cannot be used.
    pub fn with_lock(mut self, kind: LockKind, bytes: &[u8]) -> Result<Self, LockError> {
        self.locks.push(LockFile::parse(kind, bytes)?);
        Ok(self)
    }
}

/// Builds an artifact. The same source and key give the same bytes.
///
/// # Errors
/// Whatever would be refused when the artifact is read.
pub fn build(source: &PackageSource, key: &PublisherKey) -> Result<BuiltPackage, PackageError> {
    let manifest = Manifest::parse(&source.manifest)?;
    let mut entries = source.files.clone();
    entries.push(Entry::new(MANIFEST_ENTRY, source.manifest.clone()));
    sort(&mut entries);
    let metadata = &manifest.metadata;
    let subject = SbomSubject { skill_id: &metadata.skill_id, version: &metadata.version, name: &metadata.name };
    let sbom = match &source.sbom {
        Some(bytes) => bytes.clone(),
        None => sbom::generate(&subject, code(&entries, manifest.kind), &source.locks)?,
    };
    Sbom::parse(&sbom)?.check(&subject, code(&entries, manifest.kind), &entries)?;
    let name = format!("{}@{}", metadata.skill_id, metadata.version);
    let provenance = provenance::generate(&name, code(&entries, manifest.kind), &source.locks, &source.facts)?;
    entries.push(Entry::new(SBOM_ENTRY, sbom));
    entries.push(Entry::new(PROVENANCE_ENTRY, provenance));
    sort(&mut entries);
    check_layout(&manifest, &entries)?;
    let content = content_digest(&entries);
    let bytes = archive::write::<PackageError>(&entries, |archive| {
        Ok(key.sign_artifact(&metadata.publisher, &content, archive).bytes()?)
    })?;
    let artifact = Artifact::open(&bytes)?;
    Ok(BuiltPackage { digest: Digest::of(&bytes), bytes, artifact })
}

fn sort(entries: &mut [Entry]) {
    entries.sort_by(|a, b| a.name.cmp(&b.name));
}

/// Why an artifact is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// It is no artifact whose signature holds.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    /// It is one, but its key is not trusted.
    #[error(transparent)]
    Trust(#[from] TrustRefusal),
}

impl VerifyError {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Artifact(e) => e.code(),
            Self::Trust(e) => e.code(),
        }
    }
}

/// Verifies the bytes of an artifact: its form, its signature, and whether its key is trusted.
///
/// # Errors
/// Why it is not accepted.
pub fn verify(
    bytes: &[u8],
    trust: &TrustDocument,
    request: &VerifyRequest,
) -> Result<(Artifact, Verification), VerifyError> {
    let artifact = Artifact::open(bytes)?;
    let verification = verify_skill_artifact(&artifact, trust, request)?;
    Ok((artifact, verification))
}

/// Audits the bytes of an artifact.
#[must_use]
pub fn audit(bytes: &[u8], context: &AuditContext<'_>) -> AuditReport {
    audit_skill_artifact_security(bytes, context)
}

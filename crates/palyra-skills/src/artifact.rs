//! An artifact: a whole skill whose signature holds.
//!
//! [`Artifact`] has one meaning: the entries are those that the named key signed, the manifest can be read, and every
//! part that must be there is there. Whether that key may be trusted is another question, which
//! [`verify_skill_artifact`](crate::trust::verify_skill_artifact) answers.

use crate::archive::{Archive, ArchiveError, Entry};
use crate::constants::{
    ASSETS_FOLDER, INSTRUCTIONS_ENTRY, MANIFEST_ENTRY, MAX_INSTRUCTIONS_FILES, MAX_MODULES, MAX_PROVENANCE_BYTES,
    MAX_SBOM_BYTES, MODULES_FOLDER, PROVENANCE_ENTRY, SBOM_ENTRY,
};
use crate::manifest::{Manifest, ManifestError, SkillKind, is_module};
use crate::signature::{SignatureDocument, SignatureFault, content_digest};
use palyra_protocol::Digest;

/// Why something is no artifact.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArtifactError {
    /// The archive is refused.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// A part is missing or does not belong there.
    #[error(transparent)]
    Layout(#[from] LayoutFault),
    /// The manifest is refused.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The signature does not hold.
    #[error(transparent)]
    Signature(#[from] SignatureFault),
}

impl ArtifactError {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Archive(e) => e.code(),
            Self::Layout(e) => e.code(),
            Self::Manifest(e) => e.code(),
            Self::Signature(e) => e.code(),
        }
    }
}

/// A part of an artifact that is missing or does not belong there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutFault {
    /// A part that every artifact has.
    #[error("the artifact has no `{entry}`")]
    Missing {
        /// The entry.
        entry: String,
    },
    /// The code of a tool.
    #[error("the tool `{tool}` runs `{entry}`, which is not in the artifact")]
    MissingCode {
        /// The tool.
        tool: String,
        /// The entry.
        entry: String,
    },
    /// An entry that has no place in an artifact of this kind.
    #[error("`{entry}` has no place in a skill of kind `{kind}`")]
    Unexpected {
        /// The entry.
        entry: String,
        /// The kind.
        kind: &'static str,
    },
    /// A part that is larger than it may be.
    #[error("`{entry}` has more than {limit} bytes")]
    TooLarge {
        /// The entry.
        entry: String,
        /// The limit.
        limit: usize,
    },
    /// More files than a run of a script can be given.
    #[error("the artifact has {count} files; of kind `instructions`, at most {MAX_INSTRUCTIONS_FILES} are accepted")]
    TooManyFiles {
        /// How many.
        count: usize,
    },
    /// More components than a skill may have.
    #[error("the artifact has {count} modules; at most {MAX_MODULES} are accepted")]
    TooManyModules {
        /// How many.
        count: usize,
    },
}

impl LayoutFault {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "artifact_entry_missing",
            Self::MissingCode { .. } => "artifact_code_missing",
            Self::Unexpected { .. } => "artifact_entry_unexpected",
            Self::TooLarge { .. } => "artifact_entry_too_large",
            Self::TooManyFiles { .. } => "artifact_too_many_files",
            Self::TooManyModules { .. } => "artifact_too_many_modules",
        }
    }
}

/// A skill whose signature holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Artifact {
    manifest: Manifest,
    entries: Vec<Entry>,
    signature: SignatureDocument,
}

impl Artifact {
    /// Reads the bytes of a `.palyra-skill` file.
    ///
    /// # Errors
    /// The first check that fails, by name.
    pub fn open(bytes: &[u8]) -> Result<Self, ArtifactError> {
        let archive = Archive::read(bytes)?;
        Self::assemble(archive.entries, &archive.signature, Some(&archive.digest))
    }

    /// Puts an artifact together from entries, sorted by name, and its signature. An unpacked artifact has no archive
    /// digest.
    ///
    /// # Errors
    /// The first check that fails, by name.
    pub fn assemble(entries: Vec<Entry>, signature: &[u8], archive: Option<&Digest>) -> Result<Self, ArtifactError> {
        let signature = SignatureDocument::parse(signature)?;
        signature.verify(&content_digest(&entries), archive)?;
        let manifest = Manifest::parse(required(&entries, MANIFEST_ENTRY)?)?;
        Self::from_verified(manifest, entries, signature)
    }

    /// Puts an artifact together from a manifest that was read from its entries and a signature that holds for them.
    pub(crate) fn from_verified(
        manifest: Manifest,
        entries: Vec<Entry>,
        signature: SignatureDocument,
    ) -> Result<Self, ArtifactError> {
        check_layout(&manifest, &entries)?;
        if signature.publisher != manifest.metadata.publisher {
            let manifest = manifest.metadata.publisher;
            return Err(SignatureFault::Publisher { signed: signature.publisher, manifest }.into());
        }
        Ok(Self { manifest, entries, signature })
    }

    /// The manifest.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Every entry but the signature, sorted by name.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The signature.
    #[must_use]
    pub fn signature(&self) -> &SignatureDocument {
        &self.signature
    }

    /// The digest over every entry: what was signed, and what an installation is held to.
    #[must_use]
    pub fn content_digest(&self) -> &Digest {
        &self.signature.content_sha256
    }

    /// An entry by its name.
    #[must_use]
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        find(&self.entries, name)
    }

    /// The components, sorted by name.
    pub fn modules(&self) -> impl Iterator<Item = &Entry> {
        modules(&self.entries)
    }

    /// The entries that hold code: components, or the scripts and instructions of a folder.
    pub fn code(&self) -> impl Iterator<Item = &Entry> {
        code(&self.entries, self.manifest.kind)
    }
}

/// The components among entries.
pub(crate) fn modules(entries: &[Entry]) -> impl Iterator<Item = &Entry> {
    entries.iter().filter(|entry| entry.name.starts_with(MODULES_FOLDER))
}

/// The entries that hold code: what provenance speaks about.
pub(crate) fn code(entries: &[Entry], kind: SkillKind) -> impl Iterator<Item = &Entry> {
    entries.iter().filter(move |entry| match kind {
        SkillKind::Component => entry.name.starts_with(MODULES_FOLDER),
        SkillKind::Instructions => !is_metadata(&entry.name),
    })
}

fn is_metadata(name: &str) -> bool {
    [MANIFEST_ENTRY, SBOM_ENTRY, PROVENANCE_ENTRY].contains(&name)
}

/// Finds an entry among entries sorted by name.
pub(crate) fn find<'a>(entries: &'a [Entry], name: &str) -> Option<&'a Entry> {
    entries.binary_search_by(|entry| entry.name.as_str().cmp(name)).ok().and_then(|at| entries.get(at))
}

/// The content of an entry that must be there.
pub(crate) fn required<'a>(entries: &'a [Entry], name: &str) -> Result<&'a [u8], LayoutFault> {
    let entry = find(entries, name).ok_or_else(|| LayoutFault::Missing { entry: name.to_owned() })?;
    Ok(&entry.content)
}

/// Checks that every part is there and nothing else is.
pub(crate) fn check_layout(manifest: &Manifest, entries: &[Entry]) -> Result<(), LayoutFault> {
    for (name, limit) in [(SBOM_ENTRY, MAX_SBOM_BYTES), (PROVENANCE_ENTRY, MAX_PROVENANCE_BYTES)] {
        if required(entries, name)?.len() > limit {
            return Err(LayoutFault::TooLarge { entry: name.to_owned(), limit });
        }
    }
    if manifest.kind == SkillKind::Instructions {
        required(entries, INSTRUCTIONS_ENTRY)?;
        let count = code(entries, manifest.kind).count();
        if count > MAX_INSTRUCTIONS_FILES {
            return Err(LayoutFault::TooManyFiles { count });
        }
    }
    let kind = manifest.kind.as_str();
    let has_place = |name: &str| match manifest.kind {
        SkillKind::Component => is_metadata(name) || is_module(name) || name.starts_with(ASSETS_FOLDER),
        SkillKind::Instructions => !name.starts_with(MODULES_FOLDER),
    };
    if let Some(odd) = entries.iter().find(|entry| !has_place(&entry.name)) {
        return Err(LayoutFault::Unexpected { entry: odd.name.clone(), kind });
    }
    let count = modules(entries).count();
    if count > MAX_MODULES {
        return Err(LayoutFault::TooManyModules { count });
    }
    let homeless = manifest.tools.iter().find(|tool| find(entries, tool.code.entry()).is_none());
    match homeless {
        Some(tool) => {
            let entry = tool.code.entry().to_owned();
            Err(LayoutFault::MissingCode { tool: tool.id.to_string(), entry })
        }
        None => Ok(()),
    }
}

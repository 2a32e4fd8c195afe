//! What is in an artifact, for people and programs that look before they install.

use crate::artifact::{Artifact, ArtifactError};
use crate::audit::ComponentFacts;
use crate::ids::KeyId;
use crate::manifest::Manifest;
use palyra_protocol::Digest;
use serde::Serialize;

/// What is in an artifact.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Inspection {
    /// SHA-256 of the file.
    pub artifact_sha256: Digest,
    /// What was signed.
    pub content_sha256: Digest,
    /// The key that signed it. Whether it is trusted is another question.
    pub key_id: KeyId,
    /// The public key, in hexadecimal digits.
    pub public_key: String,
    /// The manifest.
    pub manifest: Manifest,
    /// Every entry but the signature.
    pub entries: Vec<EntrySummary>,
    /// The components.
    pub modules: Vec<ModuleSummary>,
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EntrySummary {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: usize,
    /// Its SHA-256.
    pub sha256: Digest,
}

/// One component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModuleSummary {
    /// Its entry.
    pub name: String,
    /// What it is; nothing if it is no valid component.
    pub facts: Option<ComponentFacts>,
    /// Why it is no valid component.
    pub fault: Option<String>,
}

impl Inspection {
    /// Looks at an artifact that was read.
    #[must_use]
    pub fn of(artifact: &Artifact, artifact_sha256: Digest) -> Self {
        let entry =
            |e: &crate::archive::Entry| EntrySummary { name: e.name.clone(), bytes: e.content.len(), sha256: e.digest };
        let module = |e: &crate::archive::Entry| {
            let read = ComponentFacts::read(&e.content);
            let fault = read.as_ref().err().map(ToString::to_string);
            ModuleSummary { name: e.name.clone(), facts: read.ok(), fault }
        };
        Self {
            artifact_sha256,
            content_sha256: *artifact.content_digest(),
            key_id: artifact.signature().key_id.clone(),
            public_key: artifact.signature().public_key.to_string(),
            manifest: artifact.manifest().clone(),
            entries: artifact.entries().iter().map(entry).collect(),
            modules: artifact.modules().map(module).collect(),
        }
    }
}

/// Looks into the bytes of an artifact. The signature is verified, the key's trust is not asked.
///
/// # Errors
/// It is no artifact whose signature holds.
pub fn inspect(bytes: &[u8]) -> Result<Inspection, ArtifactError> {
    let artifact = Artifact::open(bytes)?;
    Ok(Inspection::of(&artifact, Digest::of(bytes)))
}

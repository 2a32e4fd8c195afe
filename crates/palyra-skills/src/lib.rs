//! Skills: signed packages that earn trust, can lose it, and are examined again.
//!
//! ```text
//! bytes ──read────▶ Archive        a ZIP file in the one form that artifacts have
//!       ──open────▶ Artifact       its signature holds, its manifest can be read, every part is there
//!       ──verify──▶ Verification   its key is trusted, and why; what must be recorded for that
//!       ──audit───▶ AuditReport    one line for each check, against the operator's policy
//!       ──unpack──▶ Installed      a directory that appears whole or not at all
//! ```
//!
//! [`package`] builds artifacts and offers the same steps to a command line without a daemon; [`diff`] says what an
//! update changes; [`registry`] finds artifacts; [`instructions`] imports Agent Skills folders. `docs/formats/skill.md`
//! is the written format.
//!
//! The crate looks at code and never executes any. It keeps no state of its own: the trust store's digest is recorded
//! by a [`TrustLedger`](trust::TrustLedger), which is the journal, and time and versions are handed in.

pub mod archive;
pub mod artifact;
pub mod audit;
pub mod constants;
pub mod diff;
mod files;
#[doc(hidden)]
pub mod fuzzing;
pub mod ids;
pub mod instructions;
pub mod manifest;
pub mod package;
pub mod provenance;
mod purl;
pub mod registry;
pub mod sbom;
pub mod signature;
#[cfg(test)]
mod testing;
mod text;
pub mod trust;
pub mod unpack;

pub use artifact::{Artifact, ArtifactError};
pub use audit::{
    Advisories, AuditContext, AuditPolicy, AuditReport, CheckId, CheckStatus, HostVersion, TrustQuestion,
    audit_skill_artifact_security,
};
pub use diff::SkillDiff;
pub use ids::{KeyId, PublisherId, SkillId, SkillVersion, ToolId};
pub use manifest::{Manifest, ManifestError, SkillKind};
pub use purl::{PackageKey, PackageUrl, PackageUrlError};
pub use signature::PublisherKey;
pub use text::Position;
pub use trust::{
    SkillTrustStore, TrustChange, TrustDecision, TrustDocument, TrustRefusal, Verification, VerifyPurpose,
    VerifyRequest, verify_skill_artifact,
};
pub use unpack::ManagedDirectory;

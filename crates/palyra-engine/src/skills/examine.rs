//! Looking at an artifact before it is installed: its signature, whether its key is trusted, what an audit finds, and
//! what it would change.

use super::OpenSkills;
use super::refusals;
use super::tool::requested;
use crate::access::VerifiedPeer;
use crate::engine::Engine;
use crate::error::EngineError;
use palyra_plugins::Grant;
use palyra_policy::{PolicyAction, PolicyResource};
use palyra_protocol::{Digest, Problem, Timestamp};
use palyra_skills::package::Inspection;
use palyra_skills::{
    Artifact, AuditReport, SkillDiff, TrustRefusal, Verification, VerifyPurpose, VerifyRequest,
    audit_skill_artifact_security, verify_skill_artifact,
};
use serde::Serialize;
use std::sync::Arc;

/// What is known of an artifact that is not installed.
#[derive(Debug, Clone, Serialize)]
pub struct ExaminedSkill {
    /// What is in it.
    pub inspection: Inspection,
    /// Why its key is trusted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trust: Option<String>,
    /// Why its key is not trusted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<Problem>,
    /// What an audit finds.
    pub audit: AuditReport,
    /// What it would be granted, and what is withheld.
    pub grant: Grant,
    /// What it would change of the version that runs now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<SkillDiff>,
}

/// An artifact that was read and asked about.
pub(super) struct Examined {
    pub(super) artifact: Artifact,
    pub(super) artifact_sha256: Digest,
    pub(super) verification: Result<Verification, TrustRefusal>,
    pub(super) audit: AuditReport,
    pub(super) changes: Option<SkillDiff>,
}

impl OpenSkills {
    /// Reads an artifact's bytes and asks everything about it. Blocks.
    pub(super) fn examine(&self, bytes: &[u8], allow_tofu: bool, now: Timestamp) -> Result<Examined, EngineError> {
        let artifact = Artifact::open(bytes).map_err(|error| refusals::artifact(&error))?;
        let (basis, trust) = (self.basis()?, self.trust().document()?);
        let request = VerifyRequest { purpose: VerifyPurpose::Install, allow_tofu, now };
        let verification = verify_skill_artifact(&artifact, &trust, &request);
        let audit = audit_skill_artifact_security(bytes, &self.context(&basis, &trust, request)?);
        let artifact_sha256 = Digest::of(bytes);
        let changes = self.current_inspection(&artifact)?.map(|current| {
            let new = Inspection::of(&artifact, artifact_sha256);
            SkillDiff::between(&current, &new)
        });
        Ok(Examined { artifact, artifact_sha256, verification, audit, changes })
    }

    /// The version that runs now, as it is on the disk; none where none runs or this is the same.
    fn current_inspection(&self, artifact: &Artifact) -> Result<Option<Inspection>, EngineError> {
        let metadata = &artifact.manifest().metadata;
        let current =
            self.book().current(&metadata.skill_id).map(|(version, state)| (version.clone(), state.installed.clone()));
        let Some((version, installed)) = current.filter(|(version, _)| *version != metadata.version) else {
            return Ok(None);
        };
        match self.managed.check(&metadata.skill_id, &version, &installed.content_sha256) {
            Ok(artifact) => Ok(Some(Inspection::of(&artifact, installed.artifact_sha256))),
            // A version that drifted says nothing about what was approved: everything of the new one counts as new.
            Err(error) if error.is_drift() => Ok(None),
            Err(error) => Err(refusals::unpack(&error)),
        }
    }
}

impl Engine {
    /// Looks at an artifact without installing it.
    ///
    /// # Errors
    /// The peer may not, or it is no artifact.
    pub async fn examine_skill(&self, peer: &VerifiedPeer, bytes: Vec<u8>) -> Result<ExaminedSkill, EngineError> {
        self.authorize(peer, PolicyAction::SkillList, PolicyResource::Daemon, None)?;
        let open = self.open_skills()?;
        let now = self.clock().now();
        super::blocking(move || {
            let examined = open.examine(&bytes, false, now)?;
            let (trust, refused) = match examined.verification {
                Ok(verification) => (Some(verification.why), None),
                Err(refusal) => (None, Some(refusals::trust(&refusal).problem)),
            };
            Ok(ExaminedSkill {
                inspection: Inspection::of(&examined.artifact, examined.artifact_sha256),
                trust,
                refused,
                grant: open.host().grant(&requested(examined.artifact.manifest())),
                audit: examined.audit,
                changes: examined.changes,
            })
        })
        .await?
    }

    /// What one installed version changes of another.
    ///
    /// # Errors
    /// The peer may not see it, or a version is not installed or has drifted.
    pub async fn compare_skills(
        &self,
        peer: &VerifiedPeer,
        skill: palyra_skills::SkillId,
        (from, to): (palyra_skills::SkillVersion, palyra_skills::SkillVersion),
    ) -> Result<SkillDiff, EngineError> {
        self.authorize(peer, PolicyAction::SkillList, PolicyResource::Daemon, None)?;
        let open = self.open_skills()?;
        super::blocking(move || {
            let read = |version: &palyra_skills::SkillVersion| {
                let installed = open.book().version(&skill, version).map(|state| Arc::clone(&state.installed));
                let installed = installed.ok_or_else(|| refusals::not_installed(&skill, Some(version)))?;
                let artifact = open.managed.check(&skill, version, &installed.content_sha256);
                let artifact = artifact.map_err(|error| refusals::unpack(&error))?;
                Ok::<_, EngineError>(Inspection::of(&artifact, installed.artifact_sha256))
            };
            Ok(SkillDiff::between(&read(&from)?, &read(&to)?))
        })
        .await?
    }
}

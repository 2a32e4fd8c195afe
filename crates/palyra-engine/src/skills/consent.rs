//! Updates that may do more than the version before: they wait for a person, as an approval like any other.
//!
//! The artifact is kept beside the state until the approval ends, so that an update goes on after a restart, and whether
//! or not its client still listens. A yes is about one file and what was shown of it: an artifact that is another by
//! then, or that would change something else because another version runs, is not installed.

use super::install::{InstallOptions, News};
use super::{OpenSkills, blocking, views};
use crate::access::VerifiedPeer;
use crate::approvals::request::{ApprovalRequest, RequestedApproval};
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use palyra_protocol::{
    ApprovalId, ApprovalRecord, ApprovalState, ApprovalSubject, Digest, DigestBuilder, Facets, Principal, Problem,
    RiskLevel, SessionId, SkillChange, ToolName,
};
use palyra_skills::SkillDiff;
use serde_json::json;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::sync::Arc;

/// What approvals name as the tool.
const ACT: &str = "palyra.skill.update";
/// The longest list of changes that is shown.
const MOST_SHOWN: usize = 16 << 10;

/// What widens, line by line, as people are shown it.
pub(super) fn widening(changes: &SkillDiff) -> String {
    let lines: Vec<String> = changes.changes.iter().filter(|change| change.widens).map(ToString::to_string).collect();
    let text = lines.join("\n");
    let mut shown: String = text.chars().take(MOST_SHOWN).collect();
    if shown.len() < text.len() {
        shown.push_str("\n… `palyra skills diff` shows the rest");
    }
    shown
}

fn subject(skill: &str, changes: &SkillDiff, package: Digest) -> SkillChange {
    SkillChange {
        skill: skill.to_owned(),
        from: Some(changes.from.to_string()),
        to: changes.to.to_string(),
        package_sha256: package,
        what: widening(changes),
    }
}

impl OpenSkills {
    fn kept(&self, id: &ApprovalId) -> PathBuf {
        self.setup.state_dir.join("skills-pending").join(format!("{id}.palyra-skill"))
    }

    /// Keeps an artifact until its approval ends. Blocks.
    fn keep(&self, id: &ApprovalId, bytes: &[u8]) -> std::io::Result<()> {
        let path = self.kept(id);
        let directory = self.setup.state_dir.join("skills-pending");
        match std::fs::DirBuilder::new().mode(0o700).create(&directory) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        std::io::Write::write_all(&mut file, bytes)?;
        file.sync_all()?;
        std::fs::File::open(directory)?.sync_all()
    }

    fn forget_kept(&self, id: &ApprovalId) {
        match std::fs::remove_file(self.kept(id)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(%error, approval = %id, "an artifact that waited stays behind");
            }
            _ => {}
        }
    }
}

impl Engine {
    /// Asks a person whether a version that may do more is installed, and installs it when the answer is yes.
    pub(super) async fn install_with_consent(
        &self,
        open: &Arc<OpenSkills>,
        peer: &VerifiedPeer,
        (bytes, changes): (Vec<u8>, &SkillDiff),
        (skill, news): (&str, News),
    ) -> Result<views::SkillInfo, EngineError> {
        let id = ApprovalId::mint();
        let change = subject(skill, changes, Digest::of(&bytes));
        let (at, kept) = (Arc::clone(open), id.clone());
        blocking(move || at.keep(&kept, &bytes)).await?.map_err(|error| {
            let problem = Problem::plain("skill_not_kept", format!("the artifact cannot be kept: {error}"));
            EngineError::new(ErrorKind::Unavailable, problem)
        })?;
        let request = request(change, peer.effective())?;
        let asked = self.request_approval_as(id.clone(), request).await.inspect_err(|_| open.forget_kept(&id))?;
        news.tell_waiting(id);
        let (engine, by) = (self.clone(), peer.effective().clone());
        // It goes on whether or not its client keeps listening.
        let going_on = tokio::spawn(async move { engine.follow_update(asked, by, news).await });
        going_on.await.map_err(|error| EngineError::internal(format!("an update broke off: {error}")))?
    }

    /// Follows an update of an earlier start to its end.
    pub(crate) fn follow_skill_change(&self, asked: RequestedApproval) {
        let (engine, by) = (self.clone(), asked.record.principal.clone());
        tokio::spawn(async move {
            let id = asked.record.approval_id.clone();
            if let Err(error) = engine.follow_update(asked, by, News::nobody()).await {
                tracing::info!(code = error.problem.code, approval = %id, "an update was not installed: {}", error.problem.message);
            }
        });
    }

    async fn follow_update(
        &self,
        asked: RequestedApproval,
        by: Principal,
        news: News,
    ) -> Result<views::SkillInfo, EngineError> {
        let restarted = |_| EngineError::internal("the daemon ends; the update goes on at its next start");
        let ended = asked.end.await.map_err(restarted)?;
        let open = self.open_skills()?;
        let installed = self.answered_update(&open, &ended, &by, news).await;
        let id = ended.approval_id.clone();
        blocking(move || open.forget_kept(&id)).await?;
        installed
    }

    async fn answered_update(
        &self,
        open: &Arc<OpenSkills>,
        ended: &ApprovalRecord,
        by: &Principal,
        news: News,
    ) -> Result<views::SkillInfo, EngineError> {
        let refused = |why: &str| {
            let problem = Problem::new(
                "skill_update_declined",
                format!("the update was not installed: {why}"),
                "nothing was changed",
            );
            EngineError::new(ErrorKind::Forbidden, problem)
        };
        match ended.state {
            ApprovalState::Allowed => {}
            ApprovalState::Denied => return Err(refused("a person denied it")),
            ApprovalState::Expired => return Err(refused("nobody answered in time")),
            ApprovalState::Pending | ApprovalState::Cancelled => return Err(refused("it was withdrawn")),
        }
        let ApprovalSubject::SkillChange(approved) = &ended.subject else {
            return Err(EngineError::internal("an update waited for another approval"));
        };
        let (at, path, now) = (Arc::clone(open), open.kept(&ended.approval_id), self.clock().now());
        let examined = blocking(move || {
            let bytes = std::fs::read(path).map_err(|error| {
                let problem = Problem::plain("skill_not_kept", format!("the artifact is not there any more: {error}"));
                EngineError::new(ErrorKind::Unavailable, problem)
            })?;
            at.examine(&bytes, false, now)
        });
        let examined = examined.await??;
        let skill = examined.artifact.manifest().metadata.skill_id.to_string();
        let now_asked = examined.changes.as_ref().map(|changes| subject(&skill, changes, examined.artifact_sha256));
        if now_asked.as_ref() != Some(approved) {
            let message = "what would change is not what was approved any more";
            let problem = Problem::new("skill_change_outdated", message, "update again, and look at what changes");
            return Err(EngineError::new(ErrorKind::Conflict, problem));
        }
        let options = InstallOptions { accept_changes: true, ..InstallOptions::default() };
        self.install_examined(open, Arc::new(examined), (by, options), &news).await
    }

    /// Removes artifacts that wait for nothing any more.
    pub(super) async fn tidy_pending(&self, open: &Arc<OpenSkills>) -> Result<(), EngineError> {
        let waiting: Vec<String> =
            self.pending_approvals().await?.iter().map(|record| record.approval_id.to_string()).collect();
        let at = Arc::clone(open);
        blocking(move || {
            let Ok(entries) = std::fs::read_dir(at.setup.state_dir.join("skills-pending")) else { return };
            for path in entries.flatten().map(|entry| entry.path()) {
                let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
                if !waiting.iter().any(|id| id == stem)
                    && let Err(error) = std::fs::remove_file(&path)
                {
                    tracing::warn!(%error, "an artifact that waited stays behind");
                }
            }
        })
        .await
    }
}

fn request(change: SkillChange, by: &Principal) -> Result<ApprovalRequest, EngineError> {
    let tool: ToolName = ACT.parse().map_err(|_| EngineError::internal("the act has no name"))?;
    let input =
        json!({ "skill": change.skill, "from": change.from, "to": change.to, "package_sha256": change.package_sha256 });
    let digest = DigestBuilder::new("palyra.skill_change.v1")
        .field(input.to_string().as_bytes())
        .field(change.what.as_bytes())
        .finish();
    Ok(ApprovalRequest {
        subject_id: format!("skill:{}", change.skill),
        subject: ApprovalSubject::SkillChange(Box::new(change)),
        tool,
        digest,
        risk: RiskLevel::High,
        principal: by.clone(),
        proposed_by: by.clone(),
        token: None,
        workspace: None,
        session: SessionId::mint(),
        input,
        facets: Facets::default(),
        why: "This version may do more than the one that runs, or tells models something else.".to_owned(),
        people: 1,
        patience: None,
    })
}

//! Installing a skill: verified, audited, compiled, recorded, unpacked; whole or not at all.
//!
//! The order matters. Trust is recorded before anything is unpacked, and an unpacked version counts once its event is
//! on record: a start removes whatever has none. A version that passes becomes the one that runs; one that does not is
//! installed and quarantined, and whatever ran before goes on.

use super::audit::{LastAudit, eligible, first_fault, quarantine, standing};
use super::consent::widening;
use super::examine::Examined;
use super::{OpenSkills, blocking, refusals, views};
use crate::access::VerifiedPeer;
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use palyra_plugins::CompileProgress;
use palyra_policy::{PolicyAction, PolicyResource};
use palyra_protocol::{ApprovalId, InstalledSkill, JournalEvent, Principal, Problem, SkillCause, SkillStatus};
use palyra_skills::archive::Entry;
use palyra_skills::constants::MANIFEST_ENTRY;
use palyra_skills::{
    SkillDiff, SkillId, SkillVersion, TrustDecision, VerifyPurpose, VerifyRequest, verify_skill_artifact,
};
use std::sync::Arc;
use tokio::sync::mpsc;

/// How a skill is to be installed.
#[derive(Debug, Clone, Copy, Default)]
pub struct InstallOptions {
    /// Whether the key of a publisher that nobody has seen before may be pinned.
    pub allow_tofu: bool,
    /// Whether a version that may do more than the one before is accepted.
    pub accept_changes: bool,
    /// Whether a person is asked about such a version; it is refused otherwise.
    pub ask: bool,
}

/// How far an installation is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstallNews {
    /// What is being done now.
    Step(&'static str),
    /// A person is asked whether this version may do more.
    Waiting(ApprovalId),
    /// So much of a component is compiled.
    Compiling {
        /// The component.
        module: String,
        /// How many functions are compiled.
        done: u64,
        /// How many there are.
        functions: u64,
    },
}

/// Whom the progress of an installation is told.
#[derive(Debug, Clone)]
pub struct News(Option<mpsc::UnboundedSender<InstallNews>>);

impl News {
    /// Told to a channel. Nobody may listen any more; the installation goes on.
    #[must_use]
    pub fn to(listener: mpsc::UnboundedSender<InstallNews>) -> Self {
        Self(Some(listener))
    }

    pub(super) fn nobody() -> Self {
        Self(None)
    }

    pub(super) fn tell_waiting(&self, approval: ApprovalId) {
        tell(self, InstallNews::Waiting(approval));
    }
}

fn tell(news: &News, what: InstallNews) {
    if let Some(listener) = &news.0 {
        let _nobody_listens = listener.send(what);
    }
}

impl Engine {
    /// Installs a skill.
    ///
    /// # Errors
    /// The peer may not, the artifact is none, its key is not trusted, it may do more than the version before, or it
    /// cannot be compiled.
    pub async fn install_skill(
        &self,
        peer: &VerifiedPeer,
        bytes: Vec<u8>,
        options: InstallOptions,
        news: News,
    ) -> Result<views::SkillInfo, EngineError> {
        self.authorize(peer, PolicyAction::SkillManage, PolicyResource::Daemon, None)?;
        let open = self.open_skills()?;
        let (at, now) = (Arc::clone(&open), self.clock().now());
        tell(&news, InstallNews::Step("verifying and auditing"));
        let looked = blocking(move || at.examine(&bytes, options.allow_tofu, now).map(|examined| (examined, bytes)));
        let (examined, bytes) = looked.await??;
        let verified = examined.verification.clone().map_err(|refusal| refusals::trust(&refusal))?;
        let (skill, version) = (verified.skill_id, verified.version);
        self.authorize(peer, PolicyAction::SkillManage, PolicyResource::Skill(skill.to_string()), None)?;
        refuse_installed(&open, &skill, &version)?;
        if let Some(changes) = examined.changes.as_ref().filter(|changes| changes.widens && !options.accept_changes) {
            if !options.ask {
                return Err(widens(changes));
            }
            return self.install_with_consent(&open, peer, (bytes, changes), (skill.as_str(), news)).await;
        }
        self.install_examined(&open, Arc::new(examined), (peer.effective(), options), &news).await
    }

    /// Compiles, records and unpacks an artifact that was looked at and may be installed.
    pub(super) async fn install_examined(
        &self,
        open: &Arc<OpenSkills>,
        examined: Arc<Examined>,
        (by, options): (&Principal, InstallOptions),
        news: &News,
    ) -> Result<views::SkillInfo, EngineError> {
        let verified = examined.verification.clone().map_err(|refusal| refusals::trust(&refusal))?;
        let (skill, version, now) = (verified.skill_id, verified.version, self.clock().now());
        refuse_installed(open, &skill, &version)?;
        if standing(&examined.audit, &[]).is_empty() {
            compile(open, &examined, news).await?;
        }
        tell(news, InstallNews::Step("recording and unpacking"));
        let _one_change_at_a_time = open.changing.lock().await;
        // Compiling takes a while, and somebody may have changed something meanwhile: asked again, now that nobody can.
        refuse_installed(open, &skill, &version)?;
        let request = VerifyRequest { purpose: VerifyPurpose::Install, allow_tofu: options.allow_tofu, now };
        let trust = open.trust().document()?;
        let verification = verify_skill_artifact(&examined.artifact, &trust, &request);
        let verification = verification.map_err(|refusal| refusals::trust(&refusal))?;
        self.change_trust(open, by, verification.changes).await?;
        let (at, artifact) = (Arc::clone(open), Arc::clone(&examined));
        blocking(move || at.managed.install(&artifact.artifact)).await?.map_err(|error| refusals::unpack(&error))?;
        self.enter_skill(open, (&skill, &version), &examined, verification.decision, by).await?;
        let info = views::info(open, self.config(), &skill, Some(&version));
        info.ok_or_else(|| EngineError::internal("what was just installed is gone"))
    }

    /// Records an unpacked version, and how it stands.
    async fn enter_skill(
        &self,
        open: &Arc<OpenSkills>,
        (skill, version): (&SkillId, &SkillVersion),
        examined: &Examined,
        trust: TrustDecision,
        by: &Principal,
    ) -> Result<(), EngineError> {
        let names = || (skill.to_string(), version.to_string());
        let digest = |entry: &Entry| (entry.name.clone(), entry.digest);
        let manifest = examined.artifact.entry(MANIFEST_ENTRY);
        let manifest = manifest.ok_or_else(|| EngineError::internal("an artifact has no manifest"))?;
        let installed = Box::new(InstalledSkill {
            publisher: examined.artifact.manifest().metadata.publisher.to_string(),
            key_id: examined.artifact.signature().key_id.to_string(),
            trust: trust.as_str().to_owned(),
            artifact_sha256: examined.artifact_sha256,
            content_sha256: *examined.artifact.content_digest(),
            manifest_sha256: manifest.digest,
            modules: examined.artifact.modules().map(digest).collect(),
        });
        let (id, number) = names();
        let event = JournalEvent::SkillInstalled { by: by.clone(), skill: id, version: number, installed };
        self.note_skill(open, event).await?;
        let failed = standing(&examined.audit, &[]);
        let change = if failed.is_empty() {
            eligible(SkillCause::Installed)
        } else {
            quarantine(&SkillStatus::Installed, SkillCause::Installed, first_fault(&examined.audit, &failed), failed)
        };
        let passed = change.to == SkillStatus::Eligible;
        self.set_status(open, (skill, version), change, by).await?;
        let manifest = Arc::new(examined.artifact.manifest().clone());
        open.book().make_ready((skill, version), manifest, open.host(), self.config());
        if let Some(state) = open.book().version_mut(skill, version) {
            state.audit = Some(Arc::new(LastAudit::at_install(self.clock().now(), examined.audit.clone())));
        }
        // A version that does not pass takes nobody's place.
        if passed || open.book().current(skill).is_none() {
            let (skill, version) = names();
            self.note_skill(open, JournalEvent::SkillCurrent { by: by.clone(), skill, version }).await?;
        }
        self.list_tools_of(open, skill);
        Ok(())
    }
}

fn refuse_installed(open: &OpenSkills, skill: &SkillId, version: &SkillVersion) -> Result<(), EngineError> {
    if open.book().version(skill, version).is_none() {
        return Ok(());
    }
    let message = format!("`{skill}` {version} is installed already");
    Err(refusals::conflict("skill_installed", message, "`palyra skills info` shows it"))
}

/// An update that may do more than the version before, or tells a model something else, needs a person's word.
fn widens(changes: &SkillDiff) -> EngineError {
    let lines = widening(changes).replace('\n', "; ");
    let message = format!("version {} may do more than {}: {lines}", changes.to, changes.from);
    let hint = "look at it with `palyra skills diff FILE`; `palyra skills update FILE` asks a person";
    EngineError::new(ErrorKind::Conflict, Problem::new("skill_update_widens", message, hint))
}

/// Compiles every component, on a thread that may wait, and tells how far it is.
async fn compile(open: &Arc<OpenSkills>, examined: &Arc<Examined>, news: &News) -> Result<(), EngineError> {
    let (open, examined, news) = (Arc::clone(open), Arc::clone(examined), news.clone());
    blocking(move || {
        for module in examined.artifact.modules() {
            let mut progress = |progress: CompileProgress| {
                let (done, functions) = match progress {
                    CompileProgress::Started { functions, .. } => (0, functions),
                    CompileProgress::Compiled { done, functions } => (done.min(functions), functions),
                    _ => return,
                };
                tell(&news, InstallNews::Compiling { module: module.name.clone(), done, functions });
            };
            let loaded = open.host().load(module.digest, &module.content, &mut progress);
            loaded.map_err(|error| refusals::plugin(&error))?;
        }
        Ok(())
    })
    .await?
}

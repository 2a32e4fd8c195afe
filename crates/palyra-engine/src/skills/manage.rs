//! What people do with installed skills: look, check, quarantine, release, choose a version, remove.

use super::audit::{quarantine, standing};
use super::book::Version;
use super::views::{self, SkillInfo, SkillListing};
use super::{OpenSkills, blocking, refusals};
use crate::access::VerifiedPeer;
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use palyra_policy::{PolicyAction, PolicyResource};
use palyra_protocol::{
    Digest, JournalEvent, PrincipalKind, Problem, SkillCause, SkillStatus, SkillStatusChange, display,
};
use palyra_skills::{CheckId, SkillId, SkillVersion, TrustChange};
use std::sync::Arc;

/// The longest reason.
const MOST_REASON: usize = 240;

/// Checks that nobody can let pass: without them there is nothing that could run, or nobody who is trusted.
const FIRM: [CheckId; 6] = [
    CheckId::ArchiveForm,
    CheckId::SignatureValid,
    CheckId::TrustPublisher,
    CheckId::ManifestValid,
    CheckId::ArtifactLayout,
    CheckId::WasmValid,
];

fn checked_reason(reason: &str) -> Result<String, EngineError> {
    let reason = reason.trim();
    if reason.is_empty() || reason.chars().count() > MOST_REASON || reason.chars().any(display::deceives) {
        let message = format!("a reason is 1 to {MOST_REASON} visible characters");
        return Err(EngineError::invalid("skill_reason", message, "say why: `--reason TEXT`"));
    }
    Ok(reason.to_owned())
}

impl Engine {
    /// Every installed skill. No artifact is opened.
    ///
    /// # Errors
    /// The peer may not see them.
    pub fn skill_list(&self, peer: &VerifiedPeer) -> Result<SkillListing, EngineError> {
        self.authorize(peer, PolicyAction::SkillList, PolicyResource::Daemon, None)?;
        Ok(views::listing(&*self.open_skills()?))
    }

    /// Everything about a version, or about the one that runs.
    ///
    /// # Errors
    /// It is not installed, or the peer may not see it.
    pub fn skill_info(
        &self,
        peer: &VerifiedPeer,
        skill: &SkillId,
        version: Option<&SkillVersion>,
    ) -> Result<SkillInfo, EngineError> {
        self.authorize(peer, PolicyAction::SkillList, PolicyResource::Daemon, None)?;
        self.told(&*self.open_skills()?, skill, version)
    }

    fn told(
        &self,
        open: &OpenSkills,
        skill: &SkillId,
        version: Option<&SkillVersion>,
    ) -> Result<SkillInfo, EngineError> {
        views::info(open, self.config(), skill, version).ok_or_else(|| refusals::not_installed(skill, version))
    }

    /// Audits every installed skill now; policy and advisories are read anew.
    ///
    /// # Errors
    /// The peer may not, or a skill cannot be audited.
    pub async fn check_skills(&self, peer: &VerifiedPeer) -> Result<SkillListing, EngineError> {
        self.authorize(peer, PolicyAction::SkillManage, PolicyResource::Daemon, None)?;
        let open = self.open_skills()?;
        let pass = self.audit_now(&open, peer.effective()).await?;
        Ok(SkillListing { pass: Some(pass), ..views::listing(&open) })
    }

    /// Quarantines a version, or the one that runs.
    ///
    /// # Errors
    /// It is not installed, is quarantined already, or the peer may not.
    pub async fn quarantine_skill(
        &self,
        peer: &VerifiedPeer,
        skill: SkillId,
        version: Option<SkillVersion>,
        reason: &str,
    ) -> Result<SkillInfo, EngineError> {
        let open = self.managed_skill(peer, &skill)?;
        let reason = checked_reason(reason)?;
        let _one_change_at_a_time = open.changing.lock().await;
        let (version, state) = named(&open, &skill, version)?;
        if state.status == SkillStatus::Quarantined {
            let message = format!("`{skill}` {version} is quarantined already");
            return Err(refusals::conflict("skill_quarantined", message, "`palyra skills info` says why"));
        }
        let change = quarantine(&state.status, SkillCause::Quarantined, reason, Vec::new());
        self.set_status(&open, (&skill, &version), change, peer.effective()).await?;
        self.told(&open, &skill, Some(&version))
    }

    /// Releases a quarantined version, or the one that runs. It is audited again; a check that fails still needs to be
    /// named by a person, with a reason.
    ///
    /// # Errors
    /// It is not quarantined, fails a check that was not named, or the peer may not.
    pub async fn release_skill(
        &self,
        peer: &VerifiedPeer,
        skill: SkillId,
        version: Option<SkillVersion>,
        (overrides, reason): (Vec<String>, &str),
    ) -> Result<SkillInfo, EngineError> {
        let open = self.managed_skill(peer, &skill)?;
        let reason = checked_reason(reason)?;
        let (version, state) = named(&open, &skill, version)?;
        if state.status != SkillStatus::Quarantined {
            let message = format!("`{skill}` {version} is {}, not quarantined", state.status);
            return Err(refusals::conflict("skill_not_quarantined", message, "`palyra skills list` shows what is"));
        }
        if peer.effective().kind() != PrincipalKind::User {
            let problem = Problem::plain("skill_release_person", "only a person releases a skill");
            return Err(EngineError::new(ErrorKind::Forbidden, problem));
        }
        self.audit_now(&open, peer.effective()).await?;
        let _one_change_at_a_time = open.changing.lock().await;
        let (_, state) = named(&open, &skill, Some(version.clone()))?;
        self.refuse_drifted(&open, &skill, &version).await?;
        let Some(last) = &state.audit else {
            return Err(EngineError::internal("a skill was not audited"));
        };
        let failed = standing(&last.report, &[]);
        refuse_standing(&skill, &failed, &overrides)?;
        let change = SkillStatusChange {
            from: Some(state.status),
            to: SkillStatus::Eligible,
            cause: SkillCause::Released,
            reason,
            checks: failed.clone(),
            overridden: failed,
        };
        self.set_status(&open, (&skill, &version), change, peer.effective()).await?;
        if let Some(manifest) = state.manifest.clone() {
            open.book().make_ready((&skill, &version), manifest, open.host(), self.config());
        }
        self.list_tools_of(&open, &skill);
        self.told(&open, &skill, Some(&version))
    }

    async fn refuse_drifted(
        &self,
        open: &Arc<OpenSkills>,
        skill: &SkillId,
        version: &SkillVersion,
    ) -> Result<(), EngineError> {
        let (at, names) = (Arc::clone(open), (skill.clone(), version.clone()));
        blocking(move || at.verify_files(&names.0, &names.1)).await?.map_err(|error| {
            let told = refusals::unpack(&error);
            let hint = format!(
                "its files are not those that were admitted: `palyra skills remove {skill}`, then install it again"
            );
            EngineError::new(told.kind, Problem { hint: Some(hint), ..told.problem })
        })
    }

    /// Makes another installed version the one that runs.
    ///
    /// # Errors
    /// It is not installed or not eligible, or the peer may not.
    pub async fn use_skill(
        &self,
        peer: &VerifiedPeer,
        skill: SkillId,
        version: SkillVersion,
    ) -> Result<SkillInfo, EngineError> {
        let open = self.managed_skill(peer, &skill)?;
        let _one_change_at_a_time = open.changing.lock().await;
        let (version, state) = named(&open, &skill, Some(version))?;
        if state.status != SkillStatus::Eligible {
            let message = format!("`{skill}` {version} is {}, so it cannot run", state.status);
            return Err(refusals::conflict("skill_not_eligible", message, "release it first: `palyra skills release`"));
        }
        let names = (skill.to_string(), version.to_string());
        let event = JournalEvent::SkillCurrent { by: peer.effective().clone(), skill: names.0, version: names.1 };
        self.note_skill(&open, event).await?;
        self.list_tools_of(&open, &skill);
        self.told(&open, &skill, Some(&version))
    }

    /// Removes a version, or all of them. With the last one its storage goes.
    ///
    /// # Errors
    /// It is not installed, or the peer may not.
    pub async fn remove_skill(
        &self,
        peer: &VerifiedPeer,
        skill: SkillId,
        version: Option<SkillVersion>,
    ) -> Result<Vec<SkillVersion>, EngineError> {
        let open = self.managed_skill(peer, &skill)?;
        let _one_change_at_a_time = open.changing.lock().await;
        let all: Vec<SkillVersion> =
            open.book().entry(&skill).map(|entry| entry.versions.keys().cloned().collect()).unwrap_or_default();
        let gone: Vec<SkillVersion> =
            all.into_iter().filter(|one| version.as_ref().is_none_or(|only| only == one)).collect();
        if gone.is_empty() {
            return Err(refusals::not_installed(&skill, version.as_ref()));
        }
        for version in &gone {
            let modules = named(&open, &skill, Some(version.clone()))?.1.installed.modules.clone();
            let event = JournalEvent::SkillRemoved {
                by: peer.effective().clone(),
                skill: skill.to_string(),
                version: version.to_string(),
            };
            self.note_skill(&open, event).await?;
            self.list_tools_of(&open, &skill);
            let admitted = open
                .trust()
                .document()?
                .skill(&skill)
                .is_some_and(|record| record.admitted.iter().any(|admitted| admitted.version == *version));
            let forget = TrustChange::Forget { skill_id: skill.clone(), version: version.clone() };
            self.change_trust(&open, peer.effective(), if admitted { vec![forget] } else { vec![] }).await?;
            let (at, names) = (Arc::clone(&open), (skill.clone(), version.clone()));
            let modules: Vec<Digest> = modules.into_values().collect();
            blocking(move || at.discard(&names.0, &names.1, &modules)).await??;
        }
        Ok(gone)
    }

    /// Asks whether the peer may manage a skill.
    fn managed_skill(&self, peer: &VerifiedPeer, skill: &SkillId) -> Result<Arc<OpenSkills>, EngineError> {
        self.authorize(peer, PolicyAction::SkillManage, PolicyResource::Skill(skill.to_string()), None)?;
        self.open_skills()
    }
}

/// The version that was named, or the one that runs; of a skill of which none runs, the newest.
fn named(
    open: &OpenSkills,
    skill: &SkillId,
    version: Option<SkillVersion>,
) -> Result<(SkillVersion, Version), EngineError> {
    let book = open.book();
    let entry = book.entry(skill).ok_or_else(|| refusals::not_installed(skill, None))?;
    let chosen =
        version.clone().or_else(|| entry.current.clone()).or_else(|| entry.versions.keys().next_back().cloned());
    let found = chosen.and_then(|chosen| entry.versions.get(&chosen).cloned().map(|state| (chosen, state)));
    found.ok_or_else(|| refusals::not_installed(skill, version.as_ref()))
}

/// Refuses a release that leaves a failed check unnamed, and one that names a check which cannot be let pass.
fn refuse_standing(skill: &SkillId, failed: &[String], overrides: &[String]) -> Result<(), EngineError> {
    let firm = failed.iter().find(|id| FIRM.iter().any(|check| check.as_str() == id.as_str()));
    if let Some(id) = firm {
        let message = format!("`{skill}` fails `{id}`, which cannot be let pass");
        let hint = CheckId::ALL.iter().find(|check| check.as_str() == id).map_or("", |check| check.remedy());
        return Err(refusals::conflict("skill_check_firm", message, hint));
    }
    let unnamed: Vec<&String> = failed.iter().filter(|id| !overrides.contains(id)).collect();
    if unnamed.is_empty() {
        return Ok(());
    }
    let list = unnamed.iter().map(|id| id.as_str()).collect::<Vec<_>>();
    let message = format!("`{skill}` still fails {}", list.join(", "));
    let flags: Vec<String> = list.iter().map(|id| format!("--override {id}")).collect();
    let hint = format!("mend it, or let it pass for this version with your reason: {}", flags.join(" "));
    Err(refusals::conflict("skill_check_failed", message, &hint))
}

impl OpenSkills {
    /// Removes the files of a version: its installation, its compiled code, and with the last version its storage.
    /// Blocks.
    fn discard(&self, skill: &SkillId, version: &SkillVersion, modules: &[Digest]) -> Result<(), EngineError> {
        match self.managed.remove(skill, version) {
            Err(error) if !matches!(error, palyra_skills::unpack::UnpackError::NotInstalled { .. }) => {
                return Err(refusals::unpack(&error));
            }
            _ => {}
        }
        let used = |digest: &Digest| {
            self.book().iter().any(|(_, entry)| {
                entry.versions.values().any(|version| version.installed.modules.values().any(|known| known == digest))
            })
        };
        for digest in modules.iter().filter(|digest| !used(digest)) {
            self.host().forget(*digest).map_err(|error| refusals::plugin(&error))?;
        }
        if self.book().entry(skill).is_none() {
            self.storage.lock().unwrap_or_else(std::sync::PoisonError::into_inner).remove(skill);
            let storage = self.setup.state_dir.join("skill-storage").join(skill.as_str());
            if let Err(error) = std::fs::remove_dir_all(&storage)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!(%error, %skill, "the storage of a removed skill stays behind");
            }
        }
        Ok(())
    }
}

//! Auditing what is installed: at every start, on an interval, and whenever something changed that an audit depends on.
//!
//! An audit only ever takes away. A version that fails is quarantined, and stays so until a person releases it; one
//! that a person quarantined is not touched. Each version is looked at by itself and its change recorded at once, so a
//! daemon that is killed in the middle goes on at the next start. A version whose files and whose circumstances are the
//! same as at its last audit is not read again.

use super::drift::Snapshot;
use super::views::AuditPass;
use super::{OpenSkills, blocking, daemon, refusals};
use crate::engine::{Engine, WeakEngine};
use crate::error::{EngineError, ErrorKind};
use palyra_protocol::{
    Digest, JournalEvent, Principal, Problem, SkillCause, SkillStatus, SkillStatusChange, Timestamp,
};
use palyra_skills::audit::{DEFAULT_POLICY, audit_unpacked_skill};
use palyra_skills::constants::PROTOCOL_MAJOR;
use palyra_skills::{
    Advisories, AuditContext, AuditPolicy, AuditReport, CheckStatus, HostVersion, PublisherId, SkillId, SkillVersion,
    TrustDocument, TrustQuestion, VerifyPurpose, VerifyRequest,
};
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// The check that stands for files that are not those that were admitted.
pub(super) const DRIFT: &str = "artifact.drift";
/// The largest audit policy that is read.
const MOST_POLICY_BYTES: u64 = 4 << 20;

/// What an operator says about audits.
#[derive(Debug)]
pub(super) struct AuditBasis {
    pub(super) policy: AuditPolicy,
    pub(super) advisories: Advisories,
}

/// What the last audit of a version found.
#[derive(Debug)]
pub(super) struct LastAudit {
    pub(super) at: Timestamp,
    pub(super) report: AuditReport,
    fingerprint: Digest,
    snapshot: Option<Snapshot>,
}

impl LastAudit {
    /// The audit of an artifact that is being installed. It is no reason to leave out the next one.
    pub(super) fn at_install(at: Timestamp, report: AuditReport) -> Self {
        Self { at, report, fingerprint: Digest::ZERO, snapshot: None }
    }
}

/// What an audit came to.
enum Found {
    /// Nothing that it depends on has changed.
    Same,
    /// It was read and audited.
    Audited(Box<LastAudit>),
    /// It is not what was admitted.
    Drifted(String),
}

impl AuditBasis {
    /// Reads the operator's files. Blocks.
    pub(super) fn read(policy: Option<&Path>, advisories: Option<&Path>) -> Result<Self, EngineError> {
        let refused = |code: &str, message: String| {
            let hint = "mend the file; `palyra skills check` takes it up";
            EngineError::new(ErrorKind::Unavailable, Problem::new(code, message, hint))
        };
        let policy = match policy {
            None => AuditPolicy::parse(DEFAULT_POLICY.as_bytes()),
            Some(path) => {
                let unreadable = |why: String| {
                    refused(
                        "audit_policy_unreadable",
                        format!("the audit policy `{}` cannot be read: {why}", path.display()),
                    )
                };
                let size = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?.len();
                if size > MOST_POLICY_BYTES {
                    return Err(unreadable("it is too large".to_owned()));
                }
                AuditPolicy::parse(&std::fs::read(path).map_err(|error| unreadable(error.to_string()))?)
            }
        };
        let policy = policy.map_err(|error| refused(error.code(), error.to_string()))?;
        let advisories = advisories.map_or_else(|| Ok(Advisories::default()), Advisories::read);
        let advisories = advisories.map_err(|error| refused(error.code(), error.to_string()))?;
        Ok(Self { policy, advisories })
    }
}

impl OpenSkills {
    /// The operator's policy and advisories, read when they are first needed. Blocks.
    pub(super) fn basis(&self) -> Result<Arc<AuditBasis>, EngineError> {
        let mut basis = self.basis.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(basis) = basis.as_ref() {
            return Ok(Arc::clone(basis));
        }
        let read = Arc::new(AuditBasis::read(self.setup.audit_policy.as_deref(), self.setup.advisories.as_deref())?);
        *basis = Some(Arc::clone(&read));
        Ok(read)
    }

    /// Reads policy and advisories anew; tells what of them changed. What cannot be used leaves the ones before in
    /// force. Blocks.
    fn refresh(&self) -> Result<Option<SkillCause>, EngineError> {
        let before = self.basis.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let read = Arc::new(AuditBasis::read(self.setup.audit_policy.as_deref(), self.setup.advisories.as_deref())?);
        let cause = before.and_then(|before| {
            if before.policy.digest() != read.policy.digest() {
                Some(SkillCause::AuditPolicy)
            } else {
                (before.advisories.digest() != read.advisories.digest()).then_some(SkillCause::Advisories)
            }
        });
        *self.basis.lock().unwrap_or_else(PoisonError::into_inner) = Some(read);
        Ok(cause)
    }

    /// What an audit is asked with.
    pub(super) fn context<'a>(
        &self,
        basis: &'a AuditBasis,
        trust: &'a TrustDocument,
        request: VerifyRequest,
    ) -> Result<AuditContext<'a>, EngineError> {
        let palyra = self.setup.version.parse().map_err(|_| EngineError::internal("the daemon's version is none"))?;
        let host = HostVersion { palyra, protocol_major: PROTOCOL_MAJOR };
        let trust = Some(TrustQuestion { document: trust, request });
        Ok(AuditContext { policy: &basis.policy, advisories: &basis.advisories, host, trust })
    }

    /// Looks at one version. Blocks.
    fn look(&self, skill: &SkillId, version: &SkillVersion, now: Timestamp) -> Result<Option<Found>, EngineError> {
        let Some(state) = self.book().version(skill, version).cloned() else { return Ok(None) };
        let (basis, trust) = (self.basis()?, self.trust().document()?);
        let request = VerifyRequest { purpose: VerifyPurpose::Recheck, allow_tofu: false, now };
        let context = self.context(&basis, &trust, request)?;
        let publisher: PublisherId = state
            .installed
            .publisher
            .parse()
            .map_err(|_| EngineError::internal("the journal names a publisher that is none"))?;
        let fingerprint = context.fingerprint(&publisher, skill);
        let path = self.managed.path_of(skill, version);
        let snapshot = Snapshot::take(&path).ok();
        if let Some(last) = &state.audit
            && last.fingerprint == fingerprint
            && last.snapshot.is_some()
            && last.snapshot == snapshot
        {
            return Ok(Some(Found::Same));
        }
        let (entries, signature) = match self.managed.load_entries(skill, version) {
            Ok(read) => read,
            Err(error) if error.is_drift() => return Ok(Some(Found::Drifted(error.to_string()))),
            Err(error) => return Err(refusals::unpack(&error)),
        };
        let report = audit_unpacked_skill(entries, signature, &context);
        if report.subject.content_sha256 != Some(state.installed.content_sha256) {
            let found = report.subject.content_sha256.map_or_else(|| "nothing".to_owned(), |digest| digest.to_string());
            let message = format!("its content is {found}, admitted was {}", state.installed.content_sha256);
            return Ok(Some(Found::Drifted(message)));
        }
        let snapshot = snapshot.filter(Snapshot::is_settled);
        Ok(Some(Found::Audited(Box::new(LastAudit { at: now, report, fingerprint, snapshot }))))
    }

    /// Whether an installation is what was admitted. Blocks.
    pub(super) fn verify_files(
        &self,
        skill: &SkillId,
        version: &SkillVersion,
    ) -> Result<(), palyra_skills::unpack::UnpackError> {
        let Some(state) = self.book().version(skill, version).cloned() else {
            return Err(palyra_skills::unpack::UnpackError::NotInstalled { skill: format!("`{skill}` {version}") });
        };
        let snapshot = Snapshot::take(&self.managed.path_of(skill, version)).ok();
        let known = state.code.as_ref().is_some_and(|code| snapshot.is_some() && code.seen() == snapshot);
        if known {
            return Ok(());
        }
        self.managed.check(skill, version, &state.installed.content_sha256)?;
        if let (Some(code), Some(snapshot)) = (&state.code, snapshot.filter(Snapshot::is_settled)) {
            code.remember(snapshot);
        }
        Ok(())
    }
}

/// The checks that fail and that nobody let pass.
pub(super) fn standing(report: &AuditReport, overridden: &[String]) -> Vec<String> {
    let failed = report.with_status(CheckStatus::Fail).map(|check| check.id.to_string());
    failed.filter(|id| !overridden.contains(id)).collect()
}

/// The first thing that an audit has against a skill.
pub(super) fn first_fault(report: &AuditReport, checks: &[String]) -> String {
    let check = report.checks.iter().find(|check| checks.contains(&check.id.to_string()));
    let evidence = check.and_then(|check| check.evidence.first());
    evidence.map_or_else(|| "the audit does not pass".to_owned(), Clone::clone)
}

impl Engine {
    /// Audits every installed version and records what changes. One pass at a time.
    pub(super) async fn audit_all(
        &self,
        open: &Arc<OpenSkills>,
        cause: SkillCause,
        by: &Principal,
    ) -> Result<AuditPass, EngineError> {
        let _one_pass_at_a_time = open.passing.lock().await;
        let (mut first_error, mut pass) = (None, AuditPass::default());
        let versions = open.book().versions();
        for (skill, version) in versions {
            match self.audit_one(open, (&skill, &version), cause, by).await {
                Ok(true) => pass.read += 1,
                Ok(false) => pass.unchanged += 1,
                // One that cannot be looked at does not keep the others from it.
                Err(error) => {
                    tracing::error!(error = &error as &dyn std::error::Error, %skill, %version, "a skill cannot be audited");
                    first_error.get_or_insert(error);
                }
            }
        }
        self.list_all_tools(open);
        first_error.map_or(Ok(pass), Err)
    }

    /// Audits one version; says whether its files were read for that.
    async fn audit_one(
        &self,
        open: &Arc<OpenSkills>,
        (skill, version): (&SkillId, &SkillVersion),
        cause: SkillCause,
        by: &Principal,
    ) -> Result<bool, EngineError> {
        let (at, names, now) = (Arc::clone(open), (skill.clone(), version.clone()), self.clock().now());
        let Some(found) = blocking(move || at.look(&names.0, &names.1, now)).await?? else { return Ok(false) };
        let _one_change_at_a_time = open.changing.lock().await;
        let Some(state) = open.book().version(skill, version).cloned() else { return Ok(false) };
        let change = match found {
            Found::Same => return Ok(false),
            Found::Drifted(reason) => {
                Some(quarantine(&state.status, SkillCause::Drift, reason, vec![DRIFT.to_owned()]))
            }
            Found::Audited(last) => {
                let failed = standing(&last.report, state.overridden());
                let first = state.status == SkillStatus::Installed;
                let change = match failed.is_empty() {
                    false => Some(quarantine(&state.status, cause, first_fault(&last.report, &failed), failed)),
                    true => first.then(|| eligible(cause)),
                };
                if let Some(kept) = open.book().version_mut(skill, version) {
                    kept.audit = Some(Arc::from(last));
                }
                change
            }
        };
        // What a person has quarantined stays with that person's reason.
        match change.filter(|change| change.to != state.status && !state.is_held()) {
            Some(change) => self.set_status(open, (skill, version), change, by).await.map(|()| true),
            None => Ok(true),
        }
    }

    /// Records a status and lets it take effect. The caller holds `changing`.
    pub(super) async fn set_status(
        &self,
        open: &OpenSkills,
        (skill, version): (&SkillId, &SkillVersion),
        change: SkillStatusChange,
        by: &Principal,
    ) -> Result<(), EngineError> {
        // What is to be quarantined leaves the catalog before anything else: recording may fail or take its time.
        if change.to != SkillStatus::Eligible
            && let Some(state) = open.book().version_mut(skill, version)
        {
            state.status = SkillStatus::Quarantined;
        }
        self.list_tools_of(open, skill);
        let event = JournalEvent::SkillStatusChanged {
            by: by.clone(),
            skill: skill.to_string(),
            version: version.to_string(),
            change: Box::new(change),
        };
        self.note_skill(open, event).await?;
        self.list_tools_of(open, skill);
        Ok(())
    }

    /// Quarantines a version whose files are not those that were admitted, found when it was about to run.
    pub(super) async fn quarantine_drifted(
        &self,
        open: &OpenSkills,
        skill: &SkillId,
        version: &SkillVersion,
        reason: String,
    ) {
        let _one_change_at_a_time = open.changing.lock().await;
        let Some(state) = open.book().version(skill, version).cloned() else { return };
        if state.status != SkillStatus::Eligible {
            return;
        }
        let change = quarantine(&state.status, SkillCause::Drift, reason, vec![DRIFT.to_owned()]);
        let by = match daemon() {
            Ok(by) => by,
            Err(_) => return,
        };
        if let Err(error) = self.set_status(open, (skill, version), change, &by).await {
            tracing::error!(error = &error as &dyn std::error::Error, %skill, %version, "a quarantine is not on record");
        }
    }

    /// Says that the operator's audit policy or advisories may have changed: every skill is audited again at once.
    pub fn skills_changed(&self) {
        if let Ok(open) = self.open_skills() {
            open.changed.notify_one();
        }
    }

    /// Audits every skill now, again on an interval with jitter, and whenever something changed, until the end.
    pub fn spawn_scheduler_loop(&self) {
        let Ok(open) = self.open_skills() else { return };
        let (engine, closing) = (self.downgrade(), self.closing().clone());
        tokio::spawn(async move {
            tokio::select! {
                () = scheduler_loop(engine, open) => {}
                () = closing.cancelled() => {}
            }
        });
    }
}

async fn scheduler_loop(engine: WeakEngine, open: Arc<OpenSkills>) {
    let mut cause = SkillCause::Started;
    loop {
        {
            let Some(engine) = engine.upgrade() else { return };
            if let Err(error) = pass(&engine, &open, cause).await {
                tracing::error!(error = &error as &dyn std::error::Error, "skills could not be audited");
            }
        }
        cause = tokio::select! {
            () = tokio::time::sleep(jittered(open.setup.audit_interval)) => SkillCause::Scheduled,
            () = open.changed.notified() => SkillCause::AuditPolicy,
        };
    }
}

/// One pass: policy and advisories are read anew, and if they changed, that is the cause.
async fn pass(engine: &Engine, open: &Arc<OpenSkills>, cause: SkillCause) -> Result<(), EngineError> {
    if open.book().ids().next().is_none() {
        return Ok(());
    }
    let at = Arc::clone(open);
    let cause = blocking(move || at.refresh()).await??.unwrap_or(cause);
    engine.audit_all(open, cause, &daemon()?).await.map(drop)
}

impl Engine {
    /// Audits everything because a person asked for it; policy and advisories are read anew.
    pub(super) async fn audit_now(&self, open: &Arc<OpenSkills>, by: &Principal) -> Result<AuditPass, EngineError> {
        let at = Arc::clone(open);
        let cause = blocking(move || at.refresh()).await??.unwrap_or(SkillCause::Checked);
        self.audit_all(open, cause, by).await
    }
}

/// The interval, a tenth shorter to a tenth longer: many daemons on one disk do not audit at the same moment.
fn jittered(interval: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish() % 1000;
    let share = u32::try_from(900 + random / 5).unwrap_or(1000);
    interval / 1000 * share
}

pub(super) fn quarantine(
    from: &SkillStatus,
    cause: SkillCause,
    reason: String,
    checks: Vec<String>,
) -> SkillStatusChange {
    let (from, to) = (Some(*from), SkillStatus::Quarantined);
    SkillStatusChange { from, to, cause, reason, checks, overridden: Vec::new() }
}

pub(super) fn eligible(cause: SkillCause) -> SkillStatusChange {
    SkillStatusChange {
        from: Some(SkillStatus::Installed),
        to: SkillStatus::Eligible,
        cause,
        reason: "trust and audit passed".to_owned(),
        checks: Vec::new(),
        overridden: Vec::new(),
    }
}

//! Skills as people are told about them. Nothing here opens an artifact.

use super::OpenSkills;
use super::book::Version;
use crate::config::ToolCallConfig;
use crate::tools::Tool;
use palyra_plugins::{Grant, RequestedCapabilities};
use palyra_protocol::{
    Digest, InstalledSkill, Principal, Problem, RiskLevel, SkillStatus, SkillStatusChange, Timestamp, ToolDefinition,
    ToolName,
};
use palyra_skills::{AuditReport, CheckStatus, SkillId, SkillVersion};
use serde::Serialize;
use std::sync::Arc;

/// Every installed skill.
#[derive(Debug, Clone, Serialize)]
pub struct SkillListing {
    /// The versions, by skill and number.
    pub skills: Vec<SkillView>,
    /// Why no skill is listed to anybody, where that is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
    /// What an audit has looked at, where one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pass: Option<AuditPass>,
}

/// How many versions an audit has read. Those of which nothing has changed since the last one are not read again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct AuditPass {
    /// Read and audited.
    pub read: usize,
    /// Unchanged, like everything that their audit depends on.
    pub unchanged: usize,
}

/// One installed version.
#[derive(Debug, Clone, Serialize)]
pub struct SkillView {
    /// The skill.
    pub skill: SkillId,
    /// The version.
    pub version: SkillVersion,
    /// Whether this version is the one that runs.
    pub current: bool,
    /// Where it stands.
    pub runtime_status: SkillStatus,
    /// Whether its tools are listed and run.
    pub eligible: bool,
    /// Why its key was trusted when it was installed.
    pub trust: String,
    /// Who published it.
    pub publisher: String,
    /// The key that signed it.
    pub key_id: String,
    /// How many tools it has.
    pub tools: usize,
    /// When it was audited last by this daemon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_audit: Option<Timestamp>,
    /// What that came to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<CheckStatus>,
    /// Why it stands as it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The checks that failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<String>,
}

/// Everything about one installed version.
#[derive(Debug, Clone, Serialize)]
pub struct SkillInfo {
    /// What the listing says.
    #[serde(flatten)]
    pub view: SkillView,
    /// Its name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What was installed.
    pub installed: InstalledSkill,
    /// When.
    pub installed_at: Timestamp,
    /// By whom.
    pub installed_by: Principal,
    /// The change that led to its status, when and by whom.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<StatusView>,
    /// Its tools.
    pub tools_listed: Vec<SkillToolView>,
    /// What it asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested: Option<RequestedCapabilities>,
    /// What of it the operator's policy grants, and what is withheld.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant: Option<Grant>,
    /// The digest of the grant, as attestations have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant_sha256: Option<Digest>,
    /// What the last audit found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditReport>,
    /// The versions that are installed.
    pub versions: Vec<SkillVersion>,
}

/// A status and what led to it.
#[derive(Debug, Clone, Serialize)]
pub struct StatusView {
    /// When.
    pub at: Timestamp,
    /// By whom.
    pub by: Principal,
    /// The change.
    #[serde(flatten)]
    pub change: SkillStatusChange,
}

/// One tool of a skill.
#[derive(Debug, Clone, Serialize)]
pub struct SkillToolView {
    /// The name that it is called by.
    pub name: ToolName,
    /// What it does.
    pub description: String,
    /// How bad a wrong call can be.
    pub risk: RiskLevel,
    /// Whether the operator's `allowed_tools` has it. Without that policy denies every call.
    pub allowed: bool,
}

fn view(skill: &SkillId, version: &SkillVersion, state: &Version, current: bool) -> SkillView {
    let change = state.change.as_ref().map(|(_, _, change)| change);
    let InstalledSkill { publisher, key_id, trust, .. } = &*state.installed;
    SkillView {
        skill: skill.clone(),
        version: version.clone(),
        current,
        runtime_status: state.status,
        eligible: current && state.status == SkillStatus::Eligible,
        trust: trust.clone(),
        publisher: publisher.clone(),
        key_id: key_id.clone(),
        tools: state.tools().len(),
        last_audit: state.audit.as_ref().map(|last| last.at),
        verdict: state.audit.as_ref().map(|last| last.report.verdict),
        reason: change.map(|change| change.reason.clone()),
        checks: change.map_or_else(Vec::new, |change| change.checks.clone()),
    }
}

pub(super) fn listing(open: &OpenSkills) -> SkillListing {
    let problem = open.trust().problem().cloned();
    let book = open.book();
    let views = book.iter().flat_map(|(skill, entry)| {
        entry
            .versions
            .iter()
            .map(move |(version, state)| view(skill, version, state, entry.current.as_ref() == Some(version)))
    });
    SkillListing { skills: views.collect(), problem, pass: None }
}

/// One version, or the current one.
pub(super) fn info(
    open: &OpenSkills,
    config: &ToolCallConfig,
    skill: &SkillId,
    version: Option<&SkillVersion>,
) -> Option<SkillInfo> {
    let book = open.book();
    let entry = book.entry(skill)?;
    let version = version.or(entry.current.as_ref()).or_else(|| entry.versions.keys().next_back())?;
    let state = entry.versions.get(version)?;
    let manifest = state.manifest.as_ref();
    let tool = |tool: &Arc<dyn Tool>| {
        let ToolDefinition { name, description, risk, .. } = tool.definition();
        let allowed = config.allowed_tools.contains(name);
        SkillToolView { name: name.clone(), description: description.clone(), risk: *risk, allowed }
    };
    Some(SkillInfo {
        view: view(skill, version, state, entry.current.as_ref() == Some(version)),
        name: manifest.map(|manifest| manifest.metadata.name.clone()),
        installed: (*state.installed).clone(),
        installed_at: state.installed_at,
        installed_by: state.installed_by.clone(),
        change: state.change.as_ref().map(|(at, by, change)| StatusView {
            at: *at,
            by: by.clone(),
            change: (**change).clone(),
        }),
        tools_listed: state.tools().iter().map(tool).collect(),
        requested: state.code.as_ref().map(|code| code.requested.clone()),
        grant: state.code.as_ref().map(|code| (*code.grant).clone()),
        grant_sha256: state.code.as_ref().map(|code| code.grant.digest()),
        audit: state.audit.as_ref().map(|last| last.report.clone()),
        versions: entry.versions.keys().cloned().collect(),
    })
}

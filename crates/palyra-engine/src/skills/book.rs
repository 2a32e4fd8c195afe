//! How every installed version of every skill stands: the journal's events, folded.
//!
//! The book is memory; the journal is the record. An event is entered here after it is durable, so that the two never
//! say different things for longer than that.

use super::audit::LastAudit;
use super::tool::{self, SkillCode};
use crate::config::ToolCallConfig;
use crate::error::EngineError;
use crate::tools::Tool;
use palyra_plugins::PluginHost;
use palyra_protocol::{
    InstalledSkill, JournalEvent, Principal, PublicKey, SkillCause, SkillStatus, SkillStatusChange, Timestamp,
};
use palyra_skills::constants::MANIFEST_ENTRY;
use palyra_skills::{ManagedDirectory, Manifest, SkillId, SkillVersion};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Every installed skill.
#[derive(Debug, Default)]
pub(super) struct SkillBook {
    skills: BTreeMap<SkillId, Entry>,
    /// Registries by their names: the key of each, and the newest list that was seen.
    registries: BTreeMap<String, (PublicKey, u64)>,
}

/// One skill: its versions, and which of them runs.
#[derive(Debug, Default)]
pub(super) struct Entry {
    pub(super) current: Option<SkillVersion>,
    pub(super) versions: BTreeMap<SkillVersion, Version>,
}

/// One installed version.
#[derive(Debug, Clone)]
pub(super) struct Version {
    pub(super) installed: Arc<InstalledSkill>,
    pub(super) installed_at: Timestamp,
    pub(super) installed_by: Principal,
    pub(super) status: SkillStatus,
    /// The change that led to this status, and when it was.
    pub(super) change: Option<(Timestamp, Principal, Arc<SkillStatusChange>)>,
    /// The manifest; none while it cannot be read as it was admitted.
    pub(super) manifest: Option<Arc<Manifest>>,
    /// What its tools run.
    pub(super) code: Option<Arc<SkillCode>>,
    tools: Vec<Arc<dyn Tool>>,
    /// What the last audit found; none before the first of this daemon.
    pub(super) audit: Option<Arc<LastAudit>>,
}

impl Version {
    /// The failed checks that a person let pass.
    pub(super) fn overridden(&self) -> &[String] {
        self.change.as_ref().map_or(&[], |(_, _, change)| &change.overridden)
    }

    /// Whether a person quarantined it: then no audit changes that.
    pub(super) fn is_held(&self) -> bool {
        self.change.as_ref().is_some_and(|(_, _, change)| change.cause == SkillCause::Quarantined)
    }

    /// Its tools, whether or not they may be listed.
    pub(super) fn tools(&self) -> &[Arc<dyn Tool>] {
        &self.tools
    }

    /// Makes its tools from its manifest.
    fn ready(&mut self, manifest: Arc<Manifest>, host: &PluginHost, config: &ToolCallConfig) {
        let trust = if self.overridden().is_empty() { "verified" } else { "trusted" };
        let code = Arc::new(SkillCode::new(&manifest, &self.installed, trust, host));
        match tool::tools(&manifest, &code, config) {
            Ok(tools) => self.tools = tools,
            Err(error) => tracing::error!(%error, "the tools of a skill cannot be made"),
        }
        self.code = Some(code);
        self.manifest = Some(manifest);
    }
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, EngineError> {
    text.parse()
        .map_err(|error: T::Err| EngineError::internal(format!("the journal names a skill that is none: {error}")))
}

impl SkillBook {
    pub(super) fn from_events(events: Vec<(Timestamp, JournalEvent)>) -> Result<Self, EngineError> {
        let mut book = Self::default();
        for (at, event) in events {
            book.enter(at, event)?;
        }
        Ok(book)
    }

    /// Enters an event that is on record.
    pub(super) fn enter(&mut self, at: Timestamp, event: JournalEvent) -> Result<(), EngineError> {
        match event {
            JournalEvent::SkillInstalled { by, skill, version, installed } => {
                let version_state = Version {
                    installed: Arc::new(*installed),
                    installed_at: at,
                    installed_by: by,
                    status: SkillStatus::Installed,
                    change: None,
                    manifest: None,
                    code: None,
                    tools: Vec::new(),
                    audit: None,
                };
                let entry = self.skills.entry(parsed(&skill)?).or_default();
                entry.versions.insert(parsed(&version)?, version_state);
            }
            JournalEvent::SkillStatusChanged { by, skill, version, change } => {
                if let Some(found) = self.version_mut(&parsed(&skill)?, &parsed(&version)?) {
                    found.status = change.to;
                    found.change = Some((at, by, Arc::new(*change)));
                }
            }
            JournalEvent::SkillCurrent { skill, version, .. } => {
                self.skills.entry(parsed(&skill)?).or_default().current = Some(parsed(&version)?);
            }
            JournalEvent::SkillRemoved { skill, version, .. } => {
                let (skill, version): (SkillId, SkillVersion) = (parsed(&skill)?, parsed(&version)?);
                if let Some(entry) = self.skills.get_mut(&skill) {
                    entry.versions.remove(&version);
                    entry.current = entry.current.take().filter(|current| *current != version);
                    if entry.versions.is_empty() {
                        self.skills.remove(&skill);
                    }
                }
            }
            JournalEvent::SkillRegistrySeen { registry, key, revision, .. } => {
                self.registries.insert(registry, (key, revision));
            }
            _ => {}
        }
        Ok(())
    }

    /// A registry's key, and the newest list of it that was seen.
    pub(super) fn registry(&self, name: &str) -> Option<(PublicKey, u64)> {
        self.registries.get(name).copied()
    }

    /// Reads the manifest of every version, as it was admitted, and makes its tools. What cannot be read is left to the
    /// audit.
    pub(super) fn read_manifests(&mut self, managed: &ManagedDirectory, host: &PluginHost, config: &ToolCallConfig) {
        for (skill, entry) in &mut self.skills {
            for (version, state) in &mut entry.versions {
                let read = managed.read_entry(skill, version, MANIFEST_ENTRY, &state.installed.manifest_sha256);
                let manifest = read
                    .map_err(|e| e.to_string())
                    .and_then(|bytes| Manifest::parse(&bytes).map_err(|e| e.to_string()));
                match manifest {
                    Ok(manifest) => state.ready(Arc::new(manifest), host, config),
                    Err(error) => tracing::error!(%error, %skill, %version, "an installed skill cannot be read"),
                }
            }
        }
    }

    /// Makes the tools of a version anew: after its installation, and where it is trusted in another way.
    pub(super) fn make_ready(
        &mut self,
        (skill, version): (&SkillId, &SkillVersion),
        manifest: Arc<Manifest>,
        host: &PluginHost,
        config: &ToolCallConfig,
    ) {
        if let Some(state) = self.version_mut(skill, version) {
            state.ready(manifest, host, config);
        }
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = &SkillId> {
        self.skills.keys()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&SkillId, &Entry)> {
        self.skills.iter()
    }

    pub(super) fn entry(&self, skill: &SkillId) -> Option<&Entry> {
        self.skills.get(skill)
    }

    /// Every installed version.
    pub(super) fn versions(&self) -> Vec<(SkillId, SkillVersion)> {
        let of = |(skill, entry): (&SkillId, &Entry)| {
            let skill = skill.clone();
            entry.versions.keys().map(move |version| (skill.clone(), version.clone())).collect::<Vec<_>>()
        };
        self.skills.iter().flat_map(of).collect()
    }

    pub(super) fn version(&self, skill: &SkillId, version: &SkillVersion) -> Option<&Version> {
        self.skills.get(skill)?.versions.get(version)
    }

    pub(super) fn version_mut(&mut self, skill: &SkillId, version: &SkillVersion) -> Option<&mut Version> {
        self.skills.get_mut(skill)?.versions.get_mut(version)
    }

    /// The version that runs.
    pub(super) fn current(&self, skill: &SkillId) -> Option<(&SkillVersion, &Version)> {
        let entry = self.skills.get(skill)?;
        let current = entry.current.as_ref()?;
        entry.versions.get_key_value(current)
    }

    /// The tools that may be listed: those of the current version, if it is eligible.
    pub(super) fn tools_of(&self, skill: &SkillId) -> Vec<Arc<dyn Tool>> {
        let current = self.current(skill).filter(|(_, version)| version.status == SkillStatus::Eligible);
        current.map_or_else(Vec::new, |(_, version)| version.tools.clone())
    }
}

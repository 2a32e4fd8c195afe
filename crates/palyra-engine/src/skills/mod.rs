//! Skills in the daemon: signed packages that are installed, audited again and again, quarantined, and called like any
//! tool.
//!
//! `palyra-skills` knows artifacts, trust and audits; `palyra-plugins` runs components. Here the two meet the journal
//! and the one path. [`book`] is how every installed version stands, folded from the journal's events; [`trust`] binds
//! the trust store to the journal; [`audit`] looks at what is installed, at every start, on an interval and whenever
//! something changed that an audit depends on; [`install`] and [`manage`] are what people do; [`tool`] makes a tool of
//! what is eligible, and [`doors`] are what its code reaches the world through.
//!
//! INVARIANT (only_eligible_skills_run): the catalog holds the tools of the current version of a skill while that
//! version is eligible and the trust store is the recorded one, and an execution asks once more.

mod audit;
mod book;
mod doors;
mod drift;
mod examine;
mod install;
mod manage;
mod records;
mod refusals;
mod replay;
mod tool;
mod trust;
mod views;

pub use examine::ExaminedSkill;
pub use install::{InstallNews, InstallOptions};
pub use replay::ReplayReport;
pub use trust::TrustedKey;
pub use views::{SkillInfo, SkillListing, SkillToolView, SkillView};

use crate::config::WasmRuntime;
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use audit::AuditBasis;
use book::SkillBook;
use palyra_plugins::{CodeCacheSettings, HostSettings, PluginHost, StorageDirectory};
use palyra_protocol::{DigestBuilder, JournalEvent, Principal, PrincipalKind, Problem, Secret, ToolSource};
use palyra_skills::{ManagedDirectory, SkillId, SkillVersion};
use records::RecordStore;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use trust::TrustLink;

/// The code of the answer where the configuration turns skills off.
const DISABLED: &str = "wasm_runtime_disabled";

/// What the daemon's skills are opened with.
#[derive(Debug, Clone)]
pub struct SkillSetup {
    /// The state directory.
    pub state_dir: PathBuf,
    /// The daemon's version, which audits compare with what a skill needs.
    pub version: String,
    /// The operator's audit policy; the built-in one where none is named.
    pub audit_policy: Option<PathBuf>,
    /// A file or directory of advisories in the OSV format.
    pub advisories: Option<PathBuf>,
    /// How often every installed skill is audited again.
    pub audit_interval: Duration,
    /// How many bytes of records for replay are kept.
    pub keep_record_bytes: u64,
}

/// The skills of one engine: nothing, until the daemon has opened them.
#[derive(Debug, Default)]
pub(crate) struct Skills {
    opened: OnceLock<Result<Arc<OpenSkills>, Problem>>,
}

/// The daemon's skills, opened.
#[derive(Debug)]
pub(crate) struct OpenSkills {
    setup: SkillSetup,
    host: Arc<PluginHost>,
    managed: ManagedDirectory,
    book: Mutex<SkillBook>,
    trust: Mutex<TrustLink>,
    basis: Mutex<Option<Arc<AuditBasis>>>,
    storage: Mutex<HashMap<SkillId, Arc<StorageDirectory>>>,
    records: RecordStore,
    /// One change of what is installed, or of the trust store, at a time.
    changing: tokio::sync::Mutex<()>,
    /// One pass of audits at a time.
    passing: tokio::sync::Mutex<()>,
    /// Something changed that audits depend on.
    changed: Notify,
}

impl OpenSkills {
    fn book(&self) -> MutexGuard<'_, SkillBook> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn trust(&self) -> MutexGuard<'_, TrustLink> {
        self.trust.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn host(&self) -> &Arc<PluginHost> {
        &self.host
    }

    /// The private storage of a skill, which all its calls share. Blocks.
    fn storage_of(&self, skill: &SkillId) -> Result<Arc<StorageDirectory>, palyra_plugins::PluginError> {
        let mut open = self.storage.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(storage) = open.get(skill) {
            return Ok(Arc::clone(storage));
        }
        let root = self.setup.state_dir.join("skill-storage");
        std::fs::create_dir_all(&root).map_err(|source| palyra_plugins::PluginError::Io {
            action: "make a place for the storage of skills",
            source,
        })?;
        let storage = Arc::new(StorageDirectory::open(&root.join(skill.as_str()))?);
        open.insert(skill.clone(), Arc::clone(&storage));
        Ok(storage)
    }
}

/// Who the daemon is when it changes something by itself.
fn daemon() -> Result<Principal, EngineError> {
    Principal::new(PrincipalKind::System, "palyrad").map_err(|error| EngineError::internal(error.to_string()))
}

/// Runs work that waits for the disk or the processor on a thread that may.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, EngineError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| EngineError::internal(format!("work on skills broke off: {error}")))
}

impl Engine {
    /// Opens the daemon's skills and lists the tools of those that are eligible. Audits follow by
    /// [`Engine::spawn_scheduler_loop`]. If they cannot be opened, no skill is served and everything else is.
    pub async fn start_skills(&self, setup: SkillSetup) {
        let opened = self.opened_skills(setup).await.map_err(|error| error.problem);
        match &opened {
            Err(problem) if problem.code.as_str() == DISABLED => tracing::info!("the configuration turns skills off"),
            Err(problem) => tracing::error!(code = problem.code.as_str(), "no skill is served: {}", problem.message),
            Ok(_) => {}
        }
        if self.skills().opened.set(opened).is_err() {
            tracing::warn!("skills were opened twice");
            return;
        }
        if let Ok(open) = self.open_skills() {
            let skills: Vec<SkillId> = open.book().ids().cloned().collect();
            skills.iter().for_each(|skill| self.list_tools_of(&open, skill));
        }
    }

    pub(crate) fn open_skills(&self) -> Result<Arc<OpenSkills>, EngineError> {
        match self.skills().opened.get() {
            Some(Ok(open)) => Ok(Arc::clone(open)),
            Some(Err(problem)) => Err(EngineError::new(ErrorKind::Unavailable, problem.clone())),
            None => {
                let problem = Problem::plain("skills_unavailable", "this daemon serves no skills");
                Err(EngineError::new(ErrorKind::Unavailable, problem))
            }
        }
    }

    async fn opened_skills(&self, setup: SkillSetup) -> Result<Arc<OpenSkills>, EngineError> {
        let WasmRuntime::Enabled(policy) = &self.config().wasm_runtime else {
            let message = "the configuration turns skills off";
            let problem = Problem::new(DISABLED, message, "set `enabled = true` in `[wasm_runtime]`");
            return Err(EngineError::new(ErrorKind::Unavailable, problem));
        };
        // Compiled code is ours if it carries a seal under a key that follows from the daemon's own.
        let seed = self.key().seed();
        let secret = DigestBuilder::new("palyra.skill-code-key.v1").field(seed.expose()).finish();
        let host = PluginHost::new(HostSettings {
            policy: (**policy).clone(),
            code_cache: Some(CodeCacheSettings {
                directory: setup.state_dir.join("skill-code"),
                secret: Secret::new(secret.as_bytes().to_vec()),
            }),
            clock: self.journal().clock(),
        })
        .map_err(|error| refusals::plugin(&error))?;
        let events = self.journal().skill_events().await?;
        let recorded = self.recorded_trust().await?;
        let config = self.config().clone();
        blocking(move || {
            let managed =
                ManagedDirectory::open(setup.state_dir.join("skills-managed")).map_err(|e| refusals::unpack(&e))?;
            let mut book = SkillBook::from_events(events)?;
            tidy_up(&managed, &book)?;
            book.read_manifests(&managed, &host, &config);
            let trust = TrustLink::open(setup.state_dir.join("skill_trust.json"), recorded);
            let records = RecordStore::new(setup.state_dir.join("skill-records"), setup.keep_record_bytes);
            Ok(Arc::new(OpenSkills {
                setup,
                host: Arc::new(host),
                managed,
                book: Mutex::new(book),
                trust: Mutex::new(trust),
                basis: Mutex::default(),
                storage: Mutex::default(),
                records,
                changing: tokio::sync::Mutex::default(),
                passing: tokio::sync::Mutex::default(),
                changed: Notify::new(),
            }))
        })
        .await?
    }

    /// Records an event about a skill, and enters it in the book.
    async fn note_skill(&self, open: &OpenSkills, event: JournalEvent) -> Result<(), EngineError> {
        self.journal().note(&event).await?;
        open.book().enter(self.clock().now(), event)
    }

    /// Makes the catalog hold the tools of a skill's current version if that is eligible, and none otherwise.
    fn list_tools_of(&self, open: &OpenSkills, skill: &SkillId) {
        let tools = if open.trust().problem().is_some() { Vec::new() } else { open.book().tools_of(skill) };
        let replaced = ToolSource::skill(skill.as_str()).map_err(|error| error.to_string());
        let replaced =
            replaced.and_then(|source| self.replace_tools(&source, tools).map_err(|error| error.to_string()));
        if let Err(error) = replaced {
            tracing::error!(%error, %skill, "the tools of a skill cannot be listed");
        }
    }
}

/// Removes what a crash left behind: what was being unpacked, and versions that are not in the journal.
fn tidy_up(managed: &ManagedDirectory, book: &SkillBook) -> Result<(), EngineError> {
    managed.clean().map_err(|error| refusals::unpack(&error))?;
    let there: Vec<(SkillId, SkillVersion)> = managed.list().map_err(|error| refusals::unpack(&error))?;
    for (skill, version) in there.iter().filter(|(skill, version)| book.version(skill, version).is_none()) {
        tracing::warn!(%skill, %version, "an installation that was cut off is removed");
        managed.remove(skill, version).map_err(|error| refusals::unpack(&error))?;
    }
    Ok(())
}

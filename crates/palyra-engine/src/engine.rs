//! The engine: the parts that the path runs on, put together once.

use crate::access::{AccessControl, ClientProcesses};
use crate::catalog::{CatalogError, CurrentCatalog, SourceTools, ToolCatalog};
use crate::config::ToolCallConfig;
use crate::console::Consoles;
use crate::devices::Devices;
use crate::file_threads::FileThreads;
use crate::flow::decide::ToolFacts;
use crate::live::{CallUpdate, LiveCall, LiveCalls, Withdrawal};
use crate::memory::Memory;
use crate::reload::RunningPolicy;
use crate::routines::Routines;
use crate::skills::Skills;
use crate::tools::Tool;
use crate::vault::{ReleasedValues, VaultHandle, VaultSettings, VaultStore};
use crate::workspaces::{ServedWorkspace, Sessions, Workspaces};
use palyra_egress::{Fetcher, Roots, SystemResolver};
use palyra_journal::JournalStore;
use palyra_policy::{CheckedSet, PolicyEngine, PolicyLoader};
use palyra_protocol::{
    ApprovalId, ApprovalRecord, CallState, Clock, DaemonKey, Digest, JournalEvent, PublicKey, ToolMetadata, ToolName,
    ToolSource,
};
use palyra_workspace::Workspace;
use palyra_workspace::effects::GuardRulesError;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{broadcast, oneshot, watch};
use tokio_util::sync::CancellationToken;

/// How many approval changes a slow watcher may lag behind before it is told to look again.
const APPROVAL_BACKLOG: usize = 64;

/// What the engine is made of.
#[derive(Debug)]
pub struct EngineParts {
    /// The policies, as they were read at the start, with what [`AccessControl::registered`] says.
    pub policy: CheckedSet,
    /// How to read them anew; what the access registry says is added each time.
    pub policy_loader: PolicyLoader,
    /// Who may come in, as what.
    pub access: AccessControl,
    /// The journal.
    pub journal: JournalStore,
    /// The workspace that the daemon is started with.
    pub workspace: Workspace,
    /// Limits and permissions.
    pub config: ToolCallConfig,
    /// The key that signs.
    pub key: DaemonKey,
    /// Where secrets are, and what opens them.
    pub vault: VaultSettings,
}

/// The engine. Cloning gives another handle to the same one.
#[derive(Debug, Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    policy: RunningPolicy,
    access: AccessControl,
    journal: JournalStore,
    workspaces: Workspaces,
    sessions: Sessions,
    config: ToolCallConfig,
    key: DaemonKey,
    clock: Arc<dyn Clock>,
    tools: CurrentCatalog,
    live: LiveCalls,
    client_processes: ClientProcesses,
    waiters: Mutex<HashMap<ApprovalId, oneshot::Sender<Arc<ApprovalRecord>>>>,
    approval_news: broadcast::Sender<Arc<ApprovalRecord>>,
    rights_changed: watch::Sender<u64>,
    devices: Devices,
    consoles: Consoles,
    skills: Skills,
    closing: CancellationToken,
    fetcher: Arc<Fetcher>,
    file_threads: FileThreads,
    vault: Arc<VaultStore>,
    released: ReleasedValues,
    memory: Memory,
    routines: Routines,
}

/// The engine, for a part of it that must not keep it alive.
#[derive(Debug, Clone)]
pub(crate) struct WeakEngine(Weak<Inner>);

impl WeakEngine {
    /// The engine, while it is there.
    pub(crate) fn upgrade(&self) -> Option<Engine> {
        self.0.upgrade().map(|inner| Engine { inner })
    }
}

/// Why the engine could not be put together.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A tool's definition is broken.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The configuration names a tool that does not exist.
    #[error("`allowed_tools` names `{name}`, which does not exist; the tools are {known}")]
    UnknownTool {
        /// The name.
        name: ToolName,
        /// Those that exist.
        known: String,
    },
    /// The memory cannot be opened.
    #[error("the memory cannot be opened: {0}")]
    Memory(#[source] palyra_journal::JournalError),
    /// A pattern for guarded paths makes no sense.
    #[error(transparent)]
    Guarded(#[from] GuardRulesError),
    /// The workspace that the daemon is started with could not be registered.
    #[error("the workspace could not be registered: {0}")]
    Registration(String),
}

impl Engine {
    /// Puts the parts together.
    ///
    /// # Errors
    /// A definition is broken, or the configuration names what does not exist.
    pub fn new(parts: EngineParts) -> Result<Self, StartError> {
        let EngineParts { policy, policy_loader, access, journal, workspace, config, key, vault } = parts;
        // The journal's time never goes back, so nothing that has expired comes back either.
        let clock = journal.clock();
        let catalog = ToolCatalog::builtin()?;
        // A skill's tools may come later.
        let later = |name: &ToolName| matches!(ToolSource::of(name), Some(ToolSource::Skill(_)));
        let unknown = |name: &&ToolName| catalog.find(name.as_str()).is_err() && !later(name);
        if let Some(name) = config.allowed_tools.iter().find(unknown) {
            let known = catalog.iter().map(|tool| tool.name().as_str()).collect::<Vec<_>>().join(", ");
            return Err(StartError::UnknownTool { name: name.clone(), known });
        }
        let fetcher = Arc::new(Fetcher::new(Arc::clone(&config.egress_rules), Arc::new(SystemResolver), Roots::System));
        let home = ServedWorkspace::open(access.home().clone(), workspace, config.clone())?;
        let policy = RunningPolicy::new(policy, policy_loader, clock.now());
        let vault = Arc::new(VaultStore::new(vault, Arc::clone(&clock)));
        let memory = Memory::open(journal.path()).map_err(StartError::Memory)?;
        Ok(Self {
            inner: Arc::new(Inner {
                policy,
                access,
                journal,
                workspaces: Workspaces::starting_with(home),
                sessions: Sessions::default(),
                config,
                key,
                clock,
                tools: CurrentCatalog::new(catalog),
                live: LiveCalls::default(),
                client_processes: ClientProcesses::default(),
                waiters: Mutex::default(),
                approval_news: broadcast::Sender::new(APPROVAL_BACKLOG),
                rights_changed: watch::Sender::new(0),
                devices: Devices::default(),
                consoles: Consoles::default(),
                skills: Skills::default(),
                closing: CancellationToken::new(),
                fetcher,
                file_threads: FileThreads::default(),
                vault,
                released: ReleasedValues::default(),
                memory,
                routines: Routines::default(),
            }),
        })
    }

    /// Records that the daemon serves from now on.
    ///
    /// # Errors
    /// It could not be made durable.
    pub async fn note_start(&self, version: &str) -> Result<(), palyra_journal::JournalError> {
        let event = JournalEvent::DaemonStarted {
            version: version.to_owned(),
            public_key: self.public_key(),
            policy_hash: self.policy_hash(),
            journal: Some(self.journal().origin().clone()),
        };
        self.journal().note_rules(&event, self.policy_hash()).await
    }

    /// Ends in good order: questions stay open for the next start, executions get `grace` to finish and are then
    /// cancelled, and their outcomes are recorded. What has not ended another `grace` later is left to the next start,
    /// which finds an intent without an outcome: nothing holds the end up for ever.
    pub async fn shut_down(&self, grace: Duration) {
        self.inner.closing.cancel();
        if tokio::time::timeout(grace, ended(self.executing(|_| {}))).await.is_err() {
            let stopped = ended(self.executing(|call| call.withdraw(Withdrawal::ShuttingDown)));
            if tokio::time::timeout(grace, stopped).await.is_err() {
                tracing::warn!(
                    "an execution did not end when it was told to; the next start records it as indeterminate"
                );
            }
        }
        self.settle_access().await;
        self.settle_devices().await;
        if let Err(error) = self.journal().note(&JournalEvent::DaemonStopped {}).await {
            tracing::error!(error = &error as &dyn std::error::Error, "the end could not be recorded");
        }
        if let Err(error) = self.journal().settle().await {
            tracing::warn!(error = &error as &dyn std::error::Error, "the journal's log was not written back");
        }
    }

    /// The news of every call that runs, each of which is handed to `each`. The calls themselves are not held: news end
    /// when a call is let go.
    fn executing(&self, each: impl Fn(&LiveCall)) -> Vec<broadcast::Receiver<CallUpdate>> {
        let live = self.live().all().into_iter();
        let running = live.filter_map(|call| {
            let (now, news) = call.follow();
            let runs = now.state == CallState::Executing;
            runs.then(|| each(&call)).map(|()| news)
        });
        running.collect()
    }

    /// Returns when the journal takes nothing any more, because its writer broke.
    pub async fn journal_gone(&self) {
        self.journal().gone().await;
    }

    /// The tools that can be proposed now. A caller that asks twice about one thing keeps the snapshot.
    #[must_use]
    pub fn catalog(&self) -> Arc<ToolCatalog> {
        self.inner.tools.now()
    }

    /// The catalog, which can be awaited for changes.
    #[must_use]
    pub fn watch_tools(&self) -> watch::Receiver<Arc<ToolCatalog>> {
        self.inner.tools.watch()
    }

    /// Replaces the tools of one source; without any, the source is gone. Every listing follows at once. A call that
    /// was resolved with a tool that is gone or replaced does not start.
    ///
    /// # Errors
    /// A tool cannot enter; the catalog stays as it is then.
    pub fn replace_tools(&self, source: &ToolSource, tools: Vec<Arc<dyn Tool>>) -> Result<(), CatalogError> {
        self.replace_sources(vec![(source.clone(), tools)])
    }

    /// The same for several sources at once.
    ///
    /// # Errors
    /// A tool cannot enter; the catalog stays as it is then.
    pub fn replace_sources(&self, sources: Vec<SourceTools>) -> Result<(), CatalogError> {
        self.inner.tools.replace(sources)
    }

    /// Limits and permissions: those that are the same in every workspace, and the home's where they differ.
    #[must_use]
    pub fn config(&self) -> &ToolCallConfig {
        &self.inner.config
    }

    /// The key that everybody may know.
    #[must_use]
    pub fn public_key(&self) -> PublicKey {
        self.inner.key.public()
    }

    /// The policy set in force.
    #[must_use]
    pub fn policy_hash(&self) -> Digest {
        self.policy().policy_hash()
    }

    /// The rules in force. Whoever asks more than once about one thing keeps what this gives.
    pub(crate) fn policy(&self) -> PolicyEngine {
        self.inner.policy.engine()
    }

    pub(crate) fn running_policy(&self) -> &RunningPolicy {
        &self.inner.policy
    }

    pub(crate) fn consoles(&self) -> &Consoles {
        &self.inner.consoles
    }

    /// Tells those who listen that somebody may have other rights now: by other rules, or by another registry.
    pub(crate) fn announce_rights(&self) {
        self.inner.rights_changed.send_modify(|count| *count += 1);
    }

    /// Changes whenever what callers may do may have changed. It says no more than that: ask anew.
    #[must_use]
    pub fn watch_rights(&self) -> watch::Receiver<u64> {
        self.inner.rights_changed.subscribe()
    }

    /// Who may come in, as what.
    #[must_use]
    pub fn access(&self) -> &AccessControl {
        &self.inner.access
    }

    /// The paired devices.
    pub(crate) fn devices(&self) -> &Devices {
        &self.inner.devices
    }

    /// The installed skills.
    pub(crate) fn skills(&self) -> &Skills {
        &self.inner.skills
    }

    pub(crate) fn downgrade(&self) -> WeakEngine {
        WeakEngine(Arc::downgrade(&self.inner))
    }

    pub(crate) fn journal(&self) -> &JournalStore {
        &self.inner.journal
    }

    /// The registered workspaces.
    pub(crate) fn workspaces(&self) -> &Workspaces {
        &self.inner.workspaces
    }

    /// Where sessions belong.
    pub(crate) fn sessions(&self) -> &Sessions {
        &self.inner.sessions
    }

    pub(crate) fn key(&self) -> &DaemonKey {
        &self.inner.key
    }

    /// The time, as the journal has it: it never goes back.
    #[must_use]
    pub fn now(&self) -> palyra_protocol::Timestamp {
        self.clock().now()
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.inner.clock
    }

    /// The processes of agents' clients.
    pub(crate) fn client_processes(&self) -> &ClientProcesses {
        &self.inner.client_processes
    }

    pub(crate) fn live(&self) -> &LiveCalls {
        &self.inner.live
    }

    pub(crate) fn fetcher(&self) -> &Arc<Fetcher> {
        &self.inner.fetcher
    }

    pub(crate) fn file_threads(&self) -> &FileThreads {
        &self.inner.file_threads
    }

    /// The vault, for the daemon's own rooms.
    #[must_use]
    pub fn vault(&self) -> VaultHandle {
        VaultHandle::new(self.clone())
    }

    /// The values that were released to runs.
    pub(crate) fn released(&self) -> &ReleasedValues {
        &self.inner.released
    }

    pub(crate) fn vault_store(&self) -> &Arc<VaultStore> {
        &self.inner.vault
    }

    /// The routines.
    pub(crate) fn routine_room(&self) -> &Routines {
        &self.inner.routines
    }

    /// What was remembered.
    pub(crate) fn memory(&self) -> &Memory {
        &self.inner.memory
    }

    pub(crate) fn closing(&self) -> &CancellationToken {
        &self.inner.closing
    }

    pub(crate) fn approval_news(&self) -> &broadcast::Sender<Arc<ApprovalRecord>> {
        &self.inner.approval_news
    }

    /// What decisions need to know about a tool.
    pub(crate) fn metadata(&self, tool: &ToolName) -> ToolMetadata {
        self.catalog().metadata(tool).clone()
    }

    /// What policy needs to know of tools.
    pub(crate) fn tool_facts(&self) -> ToolFacts<'_> {
        ToolFacts { catalog: self.catalog(), config: self.config(), memory: Some(self.memory()) }
    }

    /// Enters a wait for an approval's end. Entered before the question is recorded, so that no answer is missed.
    pub(crate) fn await_approval(&self, id: &ApprovalId) -> oneshot::Receiver<Arc<ApprovalRecord>> {
        let (answer, wait) = oneshot::channel();
        self.inner.waiters.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), answer);
        wait
    }

    /// Leaves a wait that was entered for nothing.
    pub(crate) fn forget_approval(&self, id: &ApprovalId) {
        self.inner.waiters.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// Tells the call that waits how its approval ended.
    pub(crate) fn wake_waiter(&self, record: &Arc<ApprovalRecord>) {
        let waiter = self.inner.waiters.lock().unwrap_or_else(PoisonError::into_inner).remove(&record.approval_id);
        if let Some(waiter) = waiter {
            // A waiter that has gone finds the answer in the journal.
            drop(waiter.send(Arc::clone(record)));
        }
    }
}

/// Waits until every call has ended, or was let go.
async fn ended(calls: Vec<broadcast::Receiver<CallUpdate>>) {
    for mut news in calls {
        while news.recv().await.is_ok_and(|update| !update.state.is_terminal()) {}
    }
}

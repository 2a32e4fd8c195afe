//! Workspaces: the registered directories, each with everything that belongs to one alone.
//!
//! ```text
//! VerifiedPeer (names a workspace) ──▶ Workspaces::find ──▶ WorkspaceEngine: directory, limits, effects ──▶ flow/
//! ```
//!
//! A workspace is never guessed. [`Engine`] has none: whatever reads or changes files, keeps effects or runs processes
//! is a method of [`WorkspaceEngine`], which only a peer that names a workspace, or a record that says where it
//! happened, leads to. So code that forgets to ask which workspace is meant does not compile.
//!
//! Which workspaces there are is the access registry's to say, and so the journal's. [`Workspaces`] holds those that
//! are open; one that cannot be opened, or whose custody is not what it must be, stays closed and says why.

mod manage;
mod naming;
mod sessions;
#[cfg(test)]
mod tests;

pub use manage::{WorkspaceSetup, WorkspaceView};
pub(crate) use naming::PeerWorkspace;
pub use naming::WorkspaceNaming;
pub(crate) use sessions::Sessions;

use crate::config::ToolCallConfig;
use crate::effects::Effects;
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use crate::flow::resolve::{Resolver, file_problem};
use crate::tools::Place;
use palyra_protocol::access::WorkspaceRecord;
use palyra_protocol::{CallRecord, Problem, WorkspaceId};
use palyra_workspace::Workspace;
use palyra_workspace::effects::GuardRulesError;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A workspace that is open.
#[derive(Debug)]
pub(crate) struct ServedWorkspace {
    record: Arc<WorkspaceRecord>,
    directory: Arc<Workspace>,
    config: ToolCallConfig,
    effects: Effects,
}

impl ServedWorkspace {
    /// Opens the store of effects beside a directory that is open.
    pub(crate) fn open(
        record: WorkspaceRecord,
        directory: Workspace,
        config: ToolCallConfig,
    ) -> Result<Self, GuardRulesError> {
        let effects = Effects::open(config.effects.clone(), &directory)?;
        Ok(Self { record: Arc::new(record), directory: Arc::new(directory), config, effects })
    }

    /// What the registry says of it.
    pub(crate) fn record(&self) -> &Arc<WorkspaceRecord> {
        &self.record
    }

    /// Why nothing is done in it now: another directory is in its place.
    fn problem(&self) -> Option<Problem> {
        self.directory.in_place().err().map(|error| file_problem(&error))
    }
}

/// A registered workspace.
#[derive(Debug)]
struct Slot {
    record: Arc<WorkspaceRecord>,
    /// The workspace, or why it stays closed.
    served: Result<Arc<ServedWorkspace>, Problem>,
    /// Somebody removes it: no call enters any more.
    leaving: bool,
}

/// The registered workspaces.
#[derive(Debug, Default)]
pub(crate) struct Workspaces {
    slots: RwLock<BTreeMap<WorkspaceId, Slot>>,
    setup: OnceLock<Arc<dyn WorkspaceSetup>>,
}

impl Workspaces {
    /// With the one that the daemon was started with.
    pub(crate) fn starting_with(home: ServedWorkspace) -> Self {
        let workspaces = Self::default();
        workspaces.enter(Arc::clone(home.record()), Ok(Arc::new(home)));
        workspaces
    }

    fn enter(&self, record: Arc<WorkspaceRecord>, served: Result<Arc<ServedWorkspace>, Problem>) {
        let slot = Slot { record: Arc::clone(&record), served, leaving: false };
        self.write().insert(record.workspace_id.clone(), slot);
    }

    /// A workspace that is open.
    fn find(&self, id: &WorkspaceId) -> Result<Arc<ServedWorkspace>, Problem> {
        let slots = self.read();
        let slot = slots.get(id).ok_or_else(|| not_registered(id.as_str()))?;
        if slot.leaving {
            return Err(Problem::new(
                "workspace_leaving",
                format!("the workspace `{}` is being removed", slot.record.root),
                "register it again once it is gone: `palyra workspaces add`",
            ));
        }
        slot.served.clone()
    }

    /// The workspace at a real path.
    fn at(&self, root: &str) -> Result<Arc<ServedWorkspace>, Problem> {
        let id =
            self.read().values().find(|slot| slot.record.root == root).map(|slot| slot.record.workspace_id.clone());
        self.find(&id.ok_or_else(|| not_registered(root))?)
    }

    /// The registered workspace that a directory lies in.
    pub(crate) fn around(&self, directory: &Path) -> Option<Arc<WorkspaceRecord>> {
        let slots = self.read();
        let around = slots.values().filter(|slot| directory.starts_with(&slot.record.root));
        around.max_by_key(|slot| slot.record.root.len()).map(|slot| Arc::clone(&slot.record))
    }

    /// The registered workspace of an id or a real path.
    pub(crate) fn named(&self, name: &str) -> Option<Arc<WorkspaceRecord>> {
        let slots = self.read();
        let found = slots.values().find(|slot| slot.record.workspace_id.as_str() == name || slot.record.root == name);
        found.map(|slot| Arc::clone(&slot.record))
    }

    /// What the registry says of a workspace.
    pub(crate) fn record(&self, id: &WorkspaceId) -> Option<Arc<WorkspaceRecord>> {
        self.read().get(id).map(|slot| Arc::clone(&slot.record))
    }

    /// The only workspace, where there is one and no other.
    pub(crate) fn only(&self) -> Option<Arc<WorkspaceRecord>> {
        let slots = self.read();
        let mut all = slots.values();
        all.next().filter(|_| all.next().is_none()).map(|slot| Arc::clone(&slot.record))
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<WorkspaceId, Slot>> {
        self.slots.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<WorkspaceId, Slot>> {
        self.slots.write().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn not_registered(name: &str) -> Problem {
    Problem::new(
        "workspace_not_registered",
        format!("`{name}` is no registered workspace"),
        "see `palyra workspaces list`; `palyra workspaces add DIR` registers one",
    )
}

/// The engine at work in one workspace. Everything that does not depend on one is the engine's own.
#[derive(Debug, Clone)]
pub(crate) struct WorkspaceEngine {
    engine: Engine,
    here: Arc<ServedWorkspace>,
}

impl Deref for WorkspaceEngine {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl WorkspaceEngine {
    /// The engine, for what outlives the work here.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The directory.
    pub(crate) fn workspace(&self) -> &Arc<Workspace> {
        &self.here.directory
    }

    /// What the registry says of the workspace.
    pub(crate) fn workspace_record(&self) -> &Arc<WorkspaceRecord> {
        &self.here.record
    }

    /// Limits and permissions, as they are here.
    pub(crate) fn config(&self) -> &ToolCallConfig {
        &self.here.config
    }

    /// What calls change here, and what they replaced.
    pub(crate) fn effects(&self) -> &Effects {
        &self.here.effects
    }

    pub(crate) fn resolver(&self) -> Resolver<'_> {
        Resolver { catalog: self.catalog(), place: self.place() }
    }

    /// What tools may look at while they prepare a call.
    pub(crate) fn place(&self) -> Place<'_> {
        Place {
            workspace: self.workspace(),
            config: self.config(),
            fetcher: self.fetcher(),
            effects: Some(self.effects()),
            vault: Some(self.vault_store()),
            memory: Some(self.memory()),
        }
    }

    /// Whether the directory is still the one that was opened: asked when a call is resolved, and again before it runs.
    pub(crate) fn in_place(&self) -> Result<(), Problem> {
        self.here.problem().map_or(Ok(()), Err)
    }
}

impl Engine {
    /// The engine in the workspace that an id names.
    pub(crate) fn in_workspace(&self, id: &WorkspaceId) -> Result<WorkspaceEngine, Problem> {
        Ok(WorkspaceEngine { engine: self.clone(), here: self.workspaces().find(id)? })
    }

    /// The engine in the workspace that a call was recorded in.
    pub(crate) fn where_called(&self, call: &CallRecord) -> Result<WorkspaceEngine, Problem> {
        Ok(WorkspaceEngine { engine: self.clone(), here: self.workspaces().at(&call.workspace_root)? })
    }

    /// The engine in each workspace that is open.
    pub(crate) fn in_each_workspace(&self) -> Vec<WorkspaceEngine> {
        let slots = self.workspaces().read();
        let open = slots.values().filter_map(|slot| slot.served.clone().ok());
        open.map(|here| WorkspaceEngine { engine: self.clone(), here }).collect()
    }

    /// The engine in the workspace that holds an effect's view.
    pub(crate) fn where_view_is(&self, view: &str) -> Option<WorkspaceEngine> {
        let holds = |engine: &WorkspaceEngine| engine.effects().store().is_ok_and(|store| store.stage_of(view).is_ok());
        self.in_each_workspace().into_iter().find(holds)
    }

    /// The id of the workspace at a real path, registered or not.
    pub(crate) fn id_of_root(&self, root: &str) -> WorkspaceId {
        WorkspaceId::of(self.journal().origin(), root)
    }
}

/// The refusal of what needs a workspace.
pub(crate) fn refused(problem: Problem) -> EngineError {
    let kind = match problem.code.as_str() {
        "workspace_not_registered" | "workspace_unnamed" => ErrorKind::Invalid,
        _ => ErrorKind::Unavailable,
    };
    EngineError::new(kind, problem)
}

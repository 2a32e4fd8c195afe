//! Registering workspaces and removing them.
//!
//! A registration is a change of the access registry: prepared, recorded, put in place, like any other. What decides
//! must lie where no agent can write, in the new workspace as in all others, so its custody is looked at before; and
//! what agents can write includes it before the registration counts.
//!
//! Whoever removes a workspace closes it to new calls first and then looks whether one is under way there. A call enters
//! the list of those before it looks for its workspace, so none slips through between the two.

use super::{ServedWorkspace, not_registered, refused};
use crate::access::{Needed, VerifiedPeer};
use crate::config::ToolCallConfig;
use crate::engine::{Engine, StartError};
use crate::error::{EngineError, ErrorKind};
use palyra_policy::{PolicyAction, PolicyResource};
use palyra_protocol::access::WorkspaceRecord;
use palyra_protocol::{Problem, Timestamp, WorkspaceId};
use palyra_workspace::Workspace;
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the daemon knows of a workspace before the engine works in it.
pub trait WorkspaceSetup: fmt::Debug + Send + Sync {
    /// Checks the custody of what decides, and gives the limits there.
    ///
    /// # Errors
    /// An agent that works there could write what decides, or the configuration does not fit it.
    fn prepare(&self, root: &Path) -> Result<ToolCallConfig, Problem>;

    /// Agents can write there from now on.
    fn admit(&self, root: &Path);

    /// Agents cannot write there any more.
    fn dismiss(&self, root: &Path);
}

/// A registered workspace, as people see it.
#[derive(Debug, Clone, Serialize)]
pub struct WorkspaceView {
    /// Its id.
    pub workspace_id: WorkspaceId,
    /// Its directory.
    pub root: String,
    /// Since when it is registered.
    pub created_at: Timestamp,
    /// Whether the daemon was started with it.
    pub home: bool,
    /// Calls under way there.
    pub calls: usize,
    /// Why nothing is done there, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

impl Engine {
    /// Records the workspace that the daemon was started with, if it is new, and opens all others. Called once, before
    /// anything is taken up again.
    ///
    /// # Errors
    /// The registration cannot be recorded. A workspace that cannot be opened stays closed and says why.
    pub async fn open_workspaces(&self, setup: Arc<dyn WorkspaceSetup>) -> Result<(), StartError> {
        self.record_home().await.map_err(|error| StartError::Registration(error.problem.message))?;
        let home = &self.access().home().workspace_id;
        for record in self.access().state().document().workspaces().iter().filter(|w| w.workspace_id != *home) {
            let served = self.opened(&setup, record).await;
            if let Err(problem) = &served {
                tracing::warn!(
                    root = record.root,
                    code = problem.code,
                    "a workspace stays closed: {}",
                    problem.message
                );
            }
            self.workspaces().enter(Arc::new(record.clone()), served.map(Arc::new));
        }
        // Only one start sets it.
        drop(self.workspaces().setup.set(setup));
        Ok(())
    }

    /// Opens a workspace, if its custody is what it must be.
    async fn opened(
        &self,
        setup: &Arc<dyn WorkspaceSetup>,
        record: &WorkspaceRecord,
    ) -> Result<ServedWorkspace, Problem> {
        let others = self.other_roots(&record.workspace_id);
        let (setup, record) = (Arc::clone(setup), record.clone());
        let opened = tokio::task::spawn_blocking(move || {
            let root = Path::new(&record.root);
            apart(root, &others)?;
            let real = root.canonicalize().map_err(|error| unusable(root, &error.to_string()))?;
            if real != root {
                return Err(unusable(root, "a link has taken its place"));
            }
            let config = setup.prepare(root)?;
            // First what agents could write grows, then they can.
            setup.admit(root);
            let directory = Workspace::open(root).map_err(|error| crate::flow::resolve::file_problem(&error))?;
            ServedWorkspace::open(record, directory, config)
                .map_err(|error| Problem::plain("engine", error.to_string()))
        });
        opened.await.unwrap_or_else(|panic| Err(Problem::plain("internal", panic.to_string())))
    }

    /// The directories of all other workspaces.
    fn other_roots(&self, id: &WorkspaceId) -> Vec<PathBuf> {
        let slots = self.workspaces().read();
        let others = slots.values().filter(|slot| slot.record.workspace_id != *id && slot.served.is_ok());
        others.map(|slot| PathBuf::from(&slot.record.root)).collect()
    }

    /// The workspaces that the peer may see, by their paths.
    ///
    /// # Errors
    /// The peer may not know.
    pub fn workspace_list(&self, peer: &VerifiedPeer) -> Result<Vec<WorkspaceView>, EngineError> {
        self.authorize(peer, PolicyAction::DaemonStatus, PolicyResource::Daemon, None)?;
        let mut seen: Vec<_> = self.all_workspaces();
        // The person who runs the daemon sees all, wherever they are.
        seen.retain(|view| peer.is_socket_owner() || self.is_here(peer, Some(&view.workspace_id)));
        Ok(seen)
    }

    fn all_workspaces(&self) -> Vec<WorkspaceView> {
        let home = &self.access().home().workspace_id;
        let slots = self.workspaces().read();
        let view = |slot: &super::Slot| WorkspaceView {
            workspace_id: slot.record.workspace_id.clone(),
            root: slot.record.root.clone(),
            created_at: slot.record.created_at,
            home: slot.record.workspace_id == *home,
            calls: self.live().in_workspace(&slot.record.workspace_id),
            problem: match &slot.served {
                Ok(served) => served.problem(),
                Err(problem) => Some(problem.clone()),
            },
        };
        let mut views: Vec<_> = slots.values().map(view).collect();
        views.sort_by(|a, b| a.root.cmp(&b.root));
        views
    }

    /// Registers a directory. One that is registered stays as it is; where another directory has taken its place, that
    /// one is accepted, and the journal says so.
    ///
    /// # Errors
    /// The peer may not, the directory cannot be a workspace, or an agent there could write what decides.
    pub async fn workspace_add(&self, peer: &VerifiedPeer, directory: &Path) -> Result<WorkspaceView, EngineError> {
        self.may_manage_workspaces(peer)?;
        let setup = self.workspaces().setup.get().ok_or_else(|| EngineError::internal("no workspace can be opened"))?;
        let root = real_directory(directory.to_owned()).await?;
        let id = self.id_of_root(&root);
        let known = self.workspaces().record(&id);
        if self.workspaces().find(&id).is_ok_and(|served| served.problem().is_none()) {
            return self.viewed(&id);
        }
        if known.is_some() && self.live().in_workspace(&id) > 0 {
            return Err(busy(&root, "calls are under way there"));
        }
        let record = WorkspaceRecord { workspace_id: id.clone(), root: root.clone(), created_at: self.now() };
        let record = known.as_deref().cloned().unwrap_or(record);
        let served = self.opened(setup, &record).await.map_err(not_added)?;
        let journal = self.journal().origin().clone();
        let needed = Needed::on_daemon(PolicyAction::WorkspaceManage, &self.access().home().workspace_id);
        let again = known.is_some();
        let changed = self
            .change(peer, needed, move |edit| {
                if again { edit.readmit_workspace(&record.workspace_id) } else { edit.add_workspace(&journal, root) }
            })
            .await;
        match changed {
            Ok(record) => {
                self.workspaces().enter(Arc::new(record), Ok(Arc::new(served)));
                self.viewed(&id)
            }
            Err(error) => {
                if !again {
                    setup.dismiss(served.directory.root());
                }
                Err(error)
            }
        }
    }

    /// Removes a workspace: its members go, its tokens are revoked. Its files stay, and so does what undo needs.
    ///
    /// # Errors
    /// The peer may not, there is none, the daemon was started with it, or calls or approvals wait there.
    pub async fn workspace_remove(&self, peer: &VerifiedPeer, name: &str) -> Result<WorkspaceRecord, EngineError> {
        self.may_manage_workspaces(peer)?;
        let record = self.workspaces().named(name).ok_or_else(|| refused(not_registered(name)))?;
        let id = record.workspace_id.clone();
        if id == self.access().home().workspace_id {
            let message = format!("the daemon was started with `{}`", record.root);
            let hint = "start it with another first: `palyra down`, then `palyra up --workspace DIR`";
            return Err(EngineError::new(ErrorKind::Conflict, Problem::new("workspace_home", message, hint)));
        }
        self.set_leaving(&id, true);
        let removed = self.removed(peer, &record).await;
        match &removed {
            Ok(_) => {
                self.workspaces().write().remove(&id);
                if let Some(setup) = self.workspaces().setup.get() {
                    setup.dismiss(Path::new(&record.root));
                }
            }
            Err(_) => self.set_leaving(&id, false),
        }
        removed
    }

    async fn removed(&self, peer: &VerifiedPeer, record: &WorkspaceRecord) -> Result<WorkspaceRecord, EngineError> {
        let id = &record.workspace_id;
        let waiting = self.pending_approvals().await?;
        let waiting = waiting.iter().filter(|asked| asked.workspace.as_ref() == Some(id)).count();
        let calls = self.live().in_workspace(id);
        if calls > 0 || waiting > 0 {
            return Err(busy(&record.root, &format!("calls under way: {calls}, approvals that wait: {waiting}")));
        }
        let needed = Needed::on_daemon(PolicyAction::WorkspaceManage, id);
        self.change(peer, needed, |edit| edit.remove_workspace()).await
    }

    fn set_leaving(&self, id: &WorkspaceId, leaving: bool) {
        if let Some(slot) = self.workspaces().write().get_mut(id) {
            slot.leaving = leaving;
        }
    }

    fn viewed(&self, id: &WorkspaceId) -> Result<WorkspaceView, EngineError> {
        let view = self.all_workspaces().into_iter().find(|view| view.workspace_id == *id);
        view.ok_or_else(|| refused(not_registered(id.as_str())))
    }

    /// Only the person who runs the daemon says where agents may work. A token opens one workspace and makes no other.
    fn may_manage_workspaces(&self, peer: &VerifiedPeer) -> Result<(), EngineError> {
        self.authorize(peer, PolicyAction::WorkspaceManage, PolicyResource::Daemon, None)?;
        if peer.is_socket_owner() {
            return Ok(());
        }
        let message = "workspaces are registered and removed by the daemon's own user, on its own socket";
        let hint = "run the command in a terminal on the daemon's machine, without `--token` and `--as`";
        Err(EngineError::new(ErrorKind::Forbidden, Problem::new("forbidden", message, hint)))
    }
}

/// The real path of a directory.
async fn real_directory(given: PathBuf) -> Result<String, EngineError> {
    let invalid = |message: String| {
        EngineError::invalid("workspace_unusable", message, "name an existing directory by its absolute path")
    };
    let at = given.display().to_string();
    let found = tokio::task::spawn_blocking(move || {
        let real = given.canonicalize()?;
        Ok::<_, std::io::Error>((real.is_dir(), real))
    });
    let found = found.await.map_err(|panic| EngineError::internal(panic.to_string()))?;
    let (is_dir, real) = found.map_err(|error| invalid(format!("`{at}` cannot be used: {error}")))?;
    if !is_dir {
        return Err(invalid(format!("`{at}` is no directory")));
    }
    let real = real.into_os_string().into_string();
    real.map_err(|_| invalid(format!("`{at}` has a name that is not text")))
}

/// Workspaces do not overlap: what an agent in the outer one writes, the inner one would obey.
fn apart(root: &Path, others: &[PathBuf]) -> Result<(), Problem> {
    match others.iter().find(|other| root.starts_with(other) || other.starts_with(root)) {
        None => Ok(()),
        Some(other) => Err(Problem::new(
            "workspaces_overlap",
            format!("`{}` and the workspace `{}` overlap", root.display(), other.display()),
            "a directory belongs to one workspace: use the one that is registered, or remove it first",
        )),
    }
}

fn unusable(root: &Path, why: &str) -> Problem {
    Problem::new(
        "workspace_unusable",
        format!("the workspace `{}` cannot be used: {why}", root.display()),
        "put the directory back and register it again: `palyra workspaces add`; or `palyra workspaces remove`",
    )
}

fn not_added(problem: Problem) -> EngineError {
    EngineError::new(ErrorKind::Conflict, problem)
}

fn busy(root: &str, what: &str) -> EngineError {
    let message = format!("the workspace `{root}` is in use: {what}");
    let hint = "see `palyra calls list` and `palyra approvals list` there; end them or wait, then try again";
    EngineError::new(ErrorKind::Conflict, Problem::new("workspace_busy", message, hint))
}

#[cfg(test)]
mod checks {
    use super::*;

    #[test]
    fn workspaces_do_not_overlap() {
        let others = [PathBuf::from("/srv/a"), PathBuf::from("/srv/b")];
        for bad in ["/srv/a", "/srv/a/inner", "/srv", "/"] {
            assert_eq!(apart(Path::new(bad), &others).unwrap_err().code, "workspaces_overlap", "{bad}");
        }
        for good in ["/srv/ab", "/srv/c", "/home"] {
            assert_eq!(apart(Path::new(good), &others), Ok(()), "{good}");
        }
    }
}

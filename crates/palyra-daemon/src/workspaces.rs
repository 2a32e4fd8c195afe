//! What the daemon knows of a workspace before the engine works in it: the configuration as it is there, and the custody
//! of everything that decides.
//!
//! The configuration is read once, at the start. Each workspace has it validated anew, because roots, stores and caches
//! depend on where it is; and each is looked at like the one that the daemon was started with.

use crate::config::Config;
use crate::config::effects::base_of;
use crate::custody::AgentReach;
use crate::serve::Setup;
use palyra_api::LastStart;
use palyra_engine::{ToolCallConfig, WorkspaceSetup};
use palyra_protocol::Problem;
use palyra_workspace::effects::ViewStore;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The daemon's side of registering workspaces.
#[derive(Debug)]
pub(crate) struct Registering {
    setup: Arc<Setup>,
    state_dir: PathBuf,
    home: PathBuf,
    custody: Arc<AgentReach>,
}

impl Registering {
    pub(crate) fn new(setup: Arc<Setup>, state_dir: &Path, config: &Config) -> Self {
        Self {
            setup,
            state_dir: state_dir.to_owned(),
            home: config.workspace_root.clone(),
            custody: Arc::clone(&config.custody),
        }
    }
}

impl WorkspaceSetup for Registering {
    fn prepare(&self, root: &Path) -> Result<ToolCallConfig, Problem> {
        let config = self.setup.config_in(&self.state_dir, root).map_err(|error| {
            let hint = error.hint().unwrap_or("`palyra config` shows the configuration; register another directory");
            Problem::new(error.code(), format!("`{}` cannot be a workspace: {error}", root.display()), hint)
        })?;
        // The first one may have had such roots for itself; beside another one they would lead into it.
        for workspace in [root, &self.home] {
            apart(workspace, &config.beside)?;
        }
        Ok(config.tool_call)
    }

    fn admit(&self, root: &Path) {
        self.custody.grow(root);
    }

    fn dismiss(&self, root: &Path) {
        self.custody.shrink(root);
    }
}

/// Hands what earlier versions kept for undoing over to the workspace that it is of: the one that was last served.
pub(crate) fn adopt_earlier_views(state_dir: &Path, config: &Config) {
    let Some(store) = &config.tool_call.effects.store else { return };
    let last = LastStart::read(state_dir).ok().flatten().map(|last| last.workspace);
    let workspace = last.unwrap_or_else(|| config.workspace_root.clone());
    let base = base_of(store);
    if base == *store {
        return;
    }
    match ViewStore::adopt(&base, &workspace) {
        Ok(0) => {}
        Ok(count) => tracing::info!(count, workspace = %workspace.display(), "what is kept for undoing has moved"),
        Err(error) => tracing::warn!(%error, "what earlier versions kept for undoing stays where it is"),
    }
}

/// Runs of every workspace get the directories of `read_roots` and `write_roots`, so no workspace lies in one of them or
/// around it: agents of another would reach it.
pub(crate) fn apart(root: &Path, beside: &[PathBuf]) -> Result<(), Problem> {
    let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
    match beside.iter().map(real).find(|other| root.starts_with(other) || other.starts_with(root)) {
        None => Ok(()),
        Some(other) => Err(Problem::new(
            "workspace_in_roots",
            format!(
                "`{}` and `{}` overlap, and runs of every workspace are given the latter by `read_roots` or `write_roots`",
                root.display(),
                other.display()
            ),
            "take the entry out of palyra.toml, or register another directory",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_is_apart_from_what_every_run_gets() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        for name in ["shared/inner", "project"] {
            std::fs::create_dir_all(top.join(name)).unwrap();
        }
        std::os::unix::fs::symlink(top.join("shared"), top.join("link")).unwrap();
        let beside = [top.join("link")];
        for bad in ["shared", "shared/inner", ""] {
            assert_eq!(apart(&top.join(bad), &beside).unwrap_err().code, "workspace_in_roots", "{bad}");
        }
        assert_eq!(apart(&top.join("project"), &beside), Ok(()));
    }
}

//! `palyra workspaces`: the directories that agents may work in.

use super::read;
use crate::args::workspaces::Workspaces;
use crate::context::Context;
use crate::exit::Failure;
use crate::output::{self, BAD, BOLD, DIM, GOOD, say, styled};
use crate::text::safe;
use palyra_api::Connection;
use palyra_api::v1::{AddWorkspaceRequest, ListWorkspacesRequest, RemoveWorkspaceRequest};
use palyra_protocol::{Problem, WorkspaceId};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A workspace, as the daemon tells of it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Workspace {
    pub workspace_id: WorkspaceId,
    pub root: String,
    pub created_at: palyra_protocol::Timestamp,
    /// Whether the daemon was started with it.
    #[serde(default)]
    pub home: bool,
    /// Calls under way there.
    #[serde(default)]
    pub calls: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

pub async fn run(context: &Context, command: Workspaces) -> Result<(), Failure> {
    let connection = context.connect().await?;
    match command {
        Workspaces::Add { directory } => {
            let added = register(&connection, &directory).await?;
            if context.json() {
                return output::json(&added);
            }
            say!("{} {} is registered ({})", styled(GOOD, "✔"), added.root, added.workspace_id);
            Ok(())
        }
        Workspaces::List => {
            let seen = all(&connection).await?;
            if context.json() {
                return output::json(&seen);
            }
            seen.iter().for_each(print);
            Ok(())
        }
        Workspaces::Remove { workspace } => {
            let workspace = named(&workspace);
            let removed = connection.workspaces().remove(RemoveWorkspaceRequest { workspace }).await?.into_inner();
            let removed: Workspace = read(&removed.workspace_json)?;
            if context.json() {
                return output::json(&removed);
            }
            say!("{} {} is registered no more; its files stay", styled(DIM, "○"), removed.root);
            Ok(())
        }
    }
}

/// Registers a directory; one that is registered stays as it is.
pub async fn register(connection: &Connection, directory: &Path) -> Result<Workspace, Failure> {
    let directory = std::path::absolute(directory).map_err(|e| Failure::io("the directory has no path", &e))?;
    let directory = directory.to_string_lossy().into_owned();
    let added = connection.workspaces().add(AddWorkspaceRequest { directory }).await?.into_inner();
    read(&added.workspace_json)
}

/// Every workspace that may be seen.
pub async fn all(connection: &Connection) -> Result<Vec<Workspace>, Failure> {
    let told = connection.workspaces().list(ListWorkspacesRequest {}).await?.into_inner().workspaces_json;
    told.iter().map(|document| read(document)).collect()
}

/// A workspace as the daemon knows it: by its id, or by the directory's real path, if it is there.
pub fn named(text: &str) -> String {
    if text.parse::<WorkspaceId>().is_ok() {
        return text.to_owned();
    }
    let path = PathBuf::from(text);
    let real = path.canonicalize().or_else(|_| std::path::absolute(&path)).unwrap_or(path);
    real.to_string_lossy().into_owned()
}

fn print(workspace: &Workspace) {
    let Workspace { workspace_id, root, home, calls, problem, .. } = workspace;
    let mark = if problem.is_some() { styled(BAD, "✘") } else { styled(GOOD, "✔") };
    let home = if *home { "  the daemon was started with it" } else { "" };
    let calls = if *calls == 0 { String::new() } else { format!("  {calls} calls under way") };
    say!("{mark} {}  {}{}{}", styled(BOLD, safe(root)), styled(DIM, workspace_id), home, calls);
    if let Some(problem) = problem {
        say!("    {}", safe(&problem.message));
        if let Some(hint) = &problem.hint {
            say!("    {}", styled(DIM, safe(hint)));
        }
    }
}

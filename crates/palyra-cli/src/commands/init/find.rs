//! What is there already: the workspace, toolchains, clients, and who commits.

use super::{Plan, Way};
use crate::args::connect::Client;
use crate::args::init::Init;
use crate::commands::up::daemon_binary;
use crate::context::Context;
use crate::exit::{FAILED, Failure};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::Command;

pub fn plan(context: &Context, request: &Init) -> Result<Plan, Failure> {
    let workspace = workspace(request.workspace.as_deref())?;
    let toolchains = match (request.no_toolchain, request.toolchain.is_empty()) {
        (true, _) => Vec::new(),
        (false, false) => request.toolchain.clone(),
        (false, true) => toolchains(context)?,
    };
    let clients = match (request.no_client, request.client.is_empty()) {
        (true, _) => Vec::new(),
        (false, false) => request.client.clone(),
        (false, true) => clients(),
    };
    let git = match (&request.git_name, &request.git_email) {
        (Some(name), Some(email)) => Some((name.clone(), email.clone())),
        _ => identity(&workspace),
    };
    let way = match (request.exclusive, request.hooks) {
        (true, _) => Way::Exclusive,
        (false, true) => Way::Hooks,
        (false, false) => Way::Beside,
    };
    Ok(Plan { workspace, toolchains, clients, way, git })
}

/// The directory that was named; or the repository around this one; or this one.
fn workspace(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let real = |path: &Path| {
        let found = path.canonicalize().ok().filter(|path| path.is_dir());
        let message = format!("`{}` is no directory", path.display());
        found.ok_or_else(|| Failure::new(FAILED, "no_workspace", message, Some("name one: `--workspace DIR`")))
    };
    match given {
        Some(path) => real(path),
        None => {
            let repository = git(Path::new("."), &["rev-parse", "--show-toplevel"]);
            real(Path::new(repository.as_deref().unwrap_or(".")))
        }
    }
}

/// What git says; nothing where there is no git, no repository or no answer.
fn git(directory: &Path, words: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(directory).args(words).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim_end_matches('\n').to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

/// The person's own name and address; never those of the repository alone, which runs see anyway.
fn identity(workspace: &Path) -> Option<(String, String)> {
    let value = |key: &str| git(workspace, &["config", "--get", key]);
    Some((value("user.name")?, value("user.email")?))
}

#[derive(Debug, Deserialize)]
struct Toolchains {
    installed: Vec<String>,
}

/// The daemon knows which there are: it is the one that shows them.
fn toolchains(context: &Context) -> Result<Vec<String>, Failure> {
    let mut command = Command::new(daemon_binary()?);
    let output = command.arg("--state-dir").arg(&context.state_dir).arg("toolchains").output();
    let output = output.map_err(|e| Failure::io("`palyrad toolchains` cannot be asked", &e))?;
    let found: Toolchains = serde_json::from_slice(&output.stdout).map_err(|e| Failure::bug(&e))?;
    Ok(found.installed)
}

/// The clients whose program is on the search path.
fn clients() -> Vec<Client> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = |name: &str| std::env::split_paths(&path).any(|directory| directory.join(name).is_file());
    let known = [(Client::ClaudeCode, "claude"), (Client::Codex, "codex"), (Client::Cursor, "cursor")];
    known.into_iter().filter(|(_, program)| on_path(program)).map(|(client, _)| client).collect()
}

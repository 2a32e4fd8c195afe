//! What each client's configuration needs.

use super::document::Document;
use super::record;
use crate::args::connect::Client;
use crate::exit::{FAILED, Failure, REFUSED};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// One place in a configuration file.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub file: PathBuf,
    /// The keys that lead there.
    pub path: Vec<String>,
    pub put: Put,
    /// What it is for, in a few words.
    pub why: &'static str,
}

/// What is to be there.
#[derive(Debug, Clone)]
pub enum Put {
    /// This value.
    Value(Value),
    /// A list with these among its items.
    Among(Vec<Value>),
}

/// How the client starts its server.
#[derive(Debug)]
pub struct Launch {
    pub command: String,
    pub args: Vec<String>,
}

/// Everything that Claude Code can act with by itself: what it is not given, it cannot use.
const CLAUDE_TOOLS: [&str; 20] = [
    "Bash",
    "BashOutput",
    "CronCreate",
    "CronDelete",
    "CronList",
    "Edit",
    "EnterWorktree",
    "ExitWorktree",
    "Glob",
    "Grep",
    "KillShell",
    "NotebookEdit",
    "Read",
    "ScheduleWakeup",
    "SendMessage",
    "Skill",
    "WebFetch",
    "WebSearch",
    "Workflow",
    "Write",
];

/// How long Codex waits for an answer: longer than a question to a person stays open.
const CODEX_TIMEOUT_S: u64 = 900;

/// What a client's configuration needs.
pub fn wanted(client: Client, project: &Path, launch: &Launch, exclusive: bool) -> Result<Vec<Wanted>, Failure> {
    let server = json!({ "command": launch.command, "args": launch.args });
    match client {
        Client::ClaudeCode => Ok(claude_code(project, launch, exclusive)),
        Client::Codex => codex(project, launch, exclusive),
        Client::Cursor if exclusive => Err(not_exclusive(client)),
        Client::Cursor => {
            Ok(vec![set(&project.join(".cursor/mcp.json"), &["mcpServers", "palyra"], server, "the server")])
        }
        Client::Generic if exclusive => Err(not_exclusive(client)),
        Client::Generic => Ok(Vec::new()),
    }
}

fn not_exclusive(client: Client) -> Failure {
    Failure::new(
        FAILED,
        "exclusive_not_possible",
        format!("{} has no setting that switches its own tools off from outside", client.name()),
        Some("run it in a sandbox of its own, or where its own tools reach nothing; see docs/agents.md"),
    )
}

fn claude_code(project: &Path, launch: &Launch, exclusive: bool) -> Vec<Wanted> {
    let settings = project.join(".claude/settings.local.json");
    // Otherwise Claude Code shows its model the names of the tools alone, and only when it searches for them.
    let server = json!({ "type": "stdio", "command": launch.command, "args": launch.args, "alwaysLoad": true });
    let mut wanted = vec![
        set(&project.join(".mcp.json"), &["mcpServers", "palyra"], server, "the server"),
        among(&settings, &["enabledMcpjsonServers"], vec![json!("palyra")], "the server is started without asking"),
        among(
            &settings,
            &["permissions", "allow"],
            vec![json!("mcp__palyra")],
            "Claude Code does not ask a second time: Palyra decides and asks",
        ),
    ];
    if exclusive {
        let denied = CLAUDE_TOOLS.iter().map(|tool| json!(tool)).collect();
        let quoted = launch.command.replace('\'', "'\\''");
        let hook = json!({
            "matcher": "*",
            // Claude Code goes on when a hook fails, unless it fails with 2: a guard that cannot be asked refuses.
            "hooks": [{ "type": "command", "command": format!("'{quoted}' mcp guard || exit 2") }],
        });
        // The project's own `settings.json` may say otherwise; this file outranks it.
        wanted.push(set(&settings, &["disableAllHooks"], json!(false), "hooks are obeyed, the guard among them"));
        wanted.push(among(&settings, &["permissions", "deny"], denied, "its own ways to act are switched off"));
        wanted.push(among(&settings, &["hooks", "PreToolUse"], vec![hook], "whatever else it may have is refused"));
    }
    wanted
}

/// Where Codex has its configuration. A relative `CODEX_HOME` counts from here, as it does for Codex.
pub fn codex_home() -> Result<PathBuf, Failure> {
    let named = std::env::var_os("CODEX_HOME").filter(|home| !home.is_empty());
    let home = match named {
        Some(home) => std::path::absolute(home).ok(),
        None => std::env::home_dir().map(|home| home.join(".codex")),
    };
    home.ok_or_else(|| {
        Failure::new(FAILED, "no_home", "there is no home directory", Some("say where Codex is: `CODEX_HOME=DIR`"))
    })
}

/// The configuration files of a project's own, which Codex obeys before the user's in a project that is trusted: from
/// the project up to the top of its repository.
fn codex_layers(project: &Path) -> impl Iterator<Item = PathBuf> {
    let top = project.ancestors().find(|folder| folder.join(".git").exists()).unwrap_or(project);
    project
        .ancestors()
        .take_while(move |folder| folder.starts_with(top))
        .map(|folder| folder.join(".codex/config.toml"))
}

/// Refuses a project whose own configuration takes back what is about to be set, or brings servers of its own.
fn not_undone(project: &Path, own: &Path, wanted: &[Wanted]) -> Result<(), Failure> {
    let is_own = |file: &Path| matches!((file.canonicalize(), own.canonicalize()), (Ok(a), Ok(b)) if a == b);
    for file in codex_layers(project).filter(|file| !is_own(file)) {
        let Some(text) = record::read(&file)? else { continue };
        let document = Document::parse(&file, &text)?;
        let differs = |want: &&Wanted| match (&want.put, document.get(&want.path)) {
            (Put::Value(value), Some(there)) => *value != there,
            _ => false,
        };
        let mut found: Vec<_> = wanted.iter().filter(differs).map(|want| want.path.join(".")).collect();
        if document.get(&keys(&["mcp_servers"])).is_some() {
            found.retain(|path| !path.starts_with("mcp_servers"));
            found.push("mcp_servers".to_owned());
        }
        if !found.is_empty() {
            let message = format!(
                "`{}` is the project's own configuration, which Codex obeys before yours, and it sets {}",
                file.display(),
                found.join(", ")
            );
            let hint = "remove these keys there, or connect without `--exclusive`; nothing was changed";
            return Err(Failure::new(REFUSED, "exclusive_undone", message, Some(hint)));
        }
    }
    Ok(())
}

fn codex(project: &Path, launch: &Launch, exclusive: bool) -> Result<Vec<Wanted>, Failure> {
    let file = codex_home()?.join("config.toml");
    let server = json!({
        "command": launch.command,
        "args": launch.args,
        "tool_timeout_sec": CODEX_TIMEOUT_S,
        "default_tools_approval_mode": "approve",
    });
    let mut wanted = vec![set(&file, &["mcp_servers", "palyra"], server, "the server; Palyra decides and asks")];
    if exclusive {
        for (path, value, why) in [
            (&["features", "shell_tool"][..], json!(false), "no shell of its own"),
            (&["features", "unified_exec"], json!(false), "no terminal of its own"),
            (&["features", "apps"], json!(false), "no connectors of its own"),
            (&["features", "browser_use"], json!(false), "no browser of its own"),
            (&["features", "computer_use"], json!(false), "no screen of its own"),
            (&["web_search"], json!("disabled"), "no web searches of its own"),
            (&["sandbox_mode"], json!("read-only"), "whatever else it has can change nothing: its patches are refused"),
            (&["approval_policy"], json!("never"), "and nobody is asked to let it"),
        ] {
            wanted.push(set(&file, path, value, why));
        }
        not_undone(project, &file, &wanted)?;
    }
    Ok(wanted)
}

pub fn set(file: &Path, path: &[&str], value: Value, why: &'static str) -> Wanted {
    Wanted { file: file.to_owned(), path: keys(path), put: Put::Value(value), why }
}

pub fn among(file: &Path, path: &[&str], items: Vec<Value>, why: &'static str) -> Wanted {
    Wanted { file: file.to_owned(), path: keys(path), put: Put::Among(items), why }
}

fn keys(path: &[&str]) -> Vec<String> {
    path.iter().map(|key| (*key).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_projects_own_configuration_reaches_to_the_top_of_its_repository() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("repo/a/b");
        std::fs::create_dir_all(&inner).unwrap();
        let layers = |project: &Path| codex_layers(project).collect::<Vec<_>>();
        assert_eq!(layers(&inner), [inner.join(".codex/config.toml")], "no repository: the project alone");
        std::fs::create_dir(dir.path().join("repo/.git")).unwrap();
        let folders = ["repo/a/b", "repo/a", "repo"].map(|folder| dir.path().join(folder).join(".codex/config.toml"));
        assert_eq!(layers(&inner), folders);
    }
}

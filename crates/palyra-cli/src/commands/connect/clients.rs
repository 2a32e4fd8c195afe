//! What each client's configuration needs.

use crate::args::connect::Client;
use crate::exit::{FAILED, Failure};
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
        Client::Codex => codex(launch, exclusive),
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
    let server = json!({ "type": "stdio", "command": launch.command, "args": launch.args });
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
        wanted.push(among(&settings, &["permissions", "deny"], denied, "its own ways to act are switched off"));
        wanted.push(among(&settings, &["hooks", "PreToolUse"], vec![hook], "whatever else it may have is refused"));
    }
    wanted
}

fn codex(launch: &Launch, exclusive: bool) -> Result<Vec<Wanted>, Failure> {
    let home = std::env::var_os("CODEX_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".codex")));
    let file = home.map(|home| home.join("config.toml")).ok_or_else(|| {
        Failure::new(FAILED, "no_home", "there is no home directory", Some("say where Codex is: `CODEX_HOME=DIR`"))
    })?;
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
    }
    Ok(wanted)
}

fn set(file: &Path, path: &[&str], value: Value, why: &'static str) -> Wanted {
    Wanted { file: file.to_owned(), path: keys(path), put: Put::Value(value), why }
}

fn among(file: &Path, path: &[&str], items: Vec<Value>, why: &'static str) -> Wanted {
    Wanted { file: file.to_owned(), path: keys(path), put: Put::Among(items), why }
}

fn keys(path: &[&str]) -> Vec<String> {
    path.iter().map(|key| (*key).to_owned()).collect()
}

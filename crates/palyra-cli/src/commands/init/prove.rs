//! What `init` does by the commands that people type: start, connect, and run one command.

use super::Plan;
use super::files::Place;
use crate::args::connect::Client;
use crate::commands::{up, workspaces};
use crate::context::Context;
use crate::exit::{FAILED, Failure};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;

/// The agent as whom the proof is run.
const AGENT: &str = "agent:palyra-init";
/// What is run: a shell, because agents use one.
const COMMAND: [&str; 3] = ["sh", "-c", "echo contained"];

/// The workspace that the daemon which answers was started with, if one does.
pub async fn running(context: &Context) -> Option<PathBuf> {
    let connection = context.connect().await.ok()?;
    let all = workspaces::all(&connection).await.ok()?;
    all.into_iter().find(|workspace| workspace.home).map(|workspace| workspace.root.into())
}

/// Registers the workspace with the daemon that runs.
pub async fn register(context: &Context, plan: &Plan) -> Result<(), Failure> {
    workspaces::register(&context.connect().await?, &plan.workspace).await.map(drop)
}

/// Starts the daemon on what was written.
pub fn start(context: &Context, place: &Place, plan: &Plan) -> Result<(), Failure> {
    up::start_with(context, plan.workspace.clone(), place.config())
}

/// Connects a client, as `palyra connect` does.
pub fn connect(context: &Context, plan: &Plan, client: Client) -> Result<Value, Failure> {
    let project = plan.workspace.to_string_lossy().into_owned();
    let mut words = vec!["connect", client.name(), "--project", &project];
    if plan.exclusive && matches!(client, Client::ClaudeCode | Client::Codex) {
        words.push("--exclusive");
    }
    own(context, &words)
}

/// Takes a connection back.
pub fn disconnect(context: &Context, name: &str) -> Result<Value, Failure> {
    own(context, &["disconnect", name])
}

/// Runs one command as an agent would, and tells what held it.
pub fn contained_command(context: &Context, plan: &Plan) -> Result<Value, Failure> {
    let input = json!({ "argv": COMMAND }).to_string();
    let place = plan.workspace.to_string_lossy();
    let words = [
        "--workspace",
        &*place,
        "--as",
        AGENT,
        "call",
        "palyra.process.run",
        "--input",
        &input,
        "--session",
        "palyra-init",
    ];
    let asked = ["--workspace", &*place, "--as", AGENT, "policy", "explain", "palyra.process.run", "--input", &input];
    let explained = own(context, &asked)?;
    let decision = explained.pointer("/decision/decision").and_then(Value::as_str).unwrap_or("unknown");
    if decision != "allow" {
        let message = format!("a contained command would not run unasked ({decision})");
        let hint = "`palyra doctor` says what this host lacks; `palyra init --undo` takes everything back";
        return Err(Failure::new(FAILED, "not_contained", message, Some(hint)));
    }
    let ran = own(context, &words)?;
    let layers = ran.pointer("/attestation/sandbox_enforcement/layers");
    Ok(json!({ "argv": COMMAND, "call_id": ran.get("call_id"), "decision": decision, "layers": layers }))
}

/// Runs this program with these words, and reads the document that it prints.
fn own(context: &Context, words: &[&str]) -> Result<Value, Failure> {
    let exe = std::env::current_exe().map_err(|e| Failure::io("this program does not know where it is", &e))?;
    let mut command = Command::new(exe);
    command.arg("--state-dir").arg(&context.state_dir).args(["-o", "json"]).args(words);
    let output = command.output().map_err(|e| Failure::io("this program cannot be started again", &e))?;
    if output.status.success() {
        return serde_json::from_slice(&output.stdout).map_err(|e| Failure::bug(&e));
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let document = said.lines().rev().find_map(|line| serde_json::from_str::<Value>(line).ok()).unwrap_or_default();
    let text = |at: &str| document.pointer(at).and_then(Value::as_str);
    let hint =
        text("/error/hint").unwrap_or("`palyra doctor` says what is missing; `palyra init --undo` takes all back");
    let code = text("/error/code").unwrap_or("step_failed");
    let message = text("/error/message").unwrap_or_else(|| said.trim());
    let step = words.iter().find(|word| !word.starts_with('-') && **word != AGENT).copied().unwrap_or_default();
    let exit = output.status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED);
    Err(Failure::new(exit, code, format!("`palyra {step}`: {message}"), Some(hint)))
}

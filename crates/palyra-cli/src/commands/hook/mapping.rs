//! Which call of Palyra's a client's tool is.
//!
//! Rules, grants and the journal know Palyra's tools. So a client's tool is proposed as the tool that it resembles,
//! with facts of the same kind. A tool that resembles none is proposed as what it is, and policy decides: nothing is
//! known of what it does, unless it is on the list of `palyra_protocol::client_tools`.

use super::codex_patch;
use super::question::Question;
use crate::args::connect::Client;
use crate::exit::{Failure, REFUSED};
use palyra_protocol::ClientToolKind;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// The largest file of which a change is worked out.
const MAX_FILE: u64 = 2 << 20;
/// How an agent names hosts that a command needs.
pub const HOSTS: &str = "PALYRA_HOSTS=";

/// What the daemon is asked.
#[derive(Debug)]
pub enum Asked {
    /// A command, to be run by its ticket.
    Command { input: Value, rewritten: Rewritten },
    /// Something that the client carries out.
    ByClient { tool: &'static str, input: Value },
    /// Something that the client asks its person by: it is recorded, and the client goes on as it would.
    ForItsPerson { tool: &'static str, input: Value },
}

/// The tool's own input, of which the command is replaced.
#[derive(Debug)]
pub struct Rewritten(Map<String, Value>);

impl Rewritten {
    pub fn with(mut self, command: String) -> Value {
        self.0.insert("command".to_owned(), Value::String(command));
        Value::Object(self.0)
    }
}

/// Whether Palyra decides about a tool elsewhere: those of its own server.
pub fn is_ours(tool: &str) -> bool {
    // No tool of ours has two underscores in its name; a server that is called `palyra__x` puts them there.
    tool.strip_prefix("mcp__palyra__").is_some_and(|name| !name.is_empty() && !name.contains("__"))
}

/// Whether the client carries a tool out itself.
pub fn is_carried_out_by_client(client: Client, tool: &str) -> bool {
    !is_ours(tool) && !is_shell(client, tool)
}

fn is_shell(client: Client, tool: &str) -> bool {
    ClientToolKind::of(client.name(), tool) == Some(ClientToolKind::Shell)
}

/// The call that a question is about.
pub fn asked(client: Client, question: &Question, workspace: &Path) -> Result<Asked, Failure> {
    if is_shell(client, &question.tool) {
        return command(question, workspace);
    }
    let input = |key: &str| question.input.get(key).and_then(Value::as_str);
    let file = |key: &str| {
        let path = input(key).ok_or_else(|| unusable(&question.tool, key))?;
        Ok::<_, Failure>(within(workspace, &question.cwd, path))
    };
    let place =
        || input("path").map_or_else(|| within(workspace, &question.cwd, "."), |p| within(workspace, &question.cwd, p));
    let by_client = |tool, input| Ok(Asked::ByClient { tool, input });
    match question.tool.as_str() {
        "Read" => by_client("palyra.fs.read", json!({ "path": file("file_path")? })),
        "view_image" => by_client("palyra.fs.read", json!({ "path": file("path")? })),
        "LS" => by_client("palyra.fs.list", json!({ "path": place() })),
        "Glob" => by_client("palyra.fs.list", json!({ "path": place(), "depth": 32 })),
        "Grep" => {
            let pattern = input("pattern").filter(|pattern| !pattern.is_empty());
            let pattern = pattern.ok_or_else(|| unusable("Grep", "pattern"))?;
            by_client("palyra.fs.search", json!({ "path": place(), "pattern": pattern }))
        }
        "Write" => {
            let content = input("content").ok_or_else(|| unusable("Write", "content"))?;
            by_client("palyra.fs.write", written(&file("file_path")?, content))
        }
        "Edit" | "MultiEdit" => {
            let path = file("file_path")?;
            let content = edited(question, &workspace.join(&path))?;
            by_client("palyra.fs.write", written(&path, &content))
        }
        "apply_patch" => {
            let patch =
                input("command").or_else(|| input("input")).ok_or_else(|| unusable("apply_patch", "command"))?;
            let diff = codex_patch::unified(patch, |path| {
                let path = within(workspace, &question.cwd, path);
                Ok((path.clone(), read(&workspace.join(&path))?))
            })?;
            by_client("palyra.fs.apply_patch", json!({ "patch": diff }))
        }
        "WebFetch" => {
            let url = input("url").ok_or_else(|| unusable("WebFetch", "url"))?;
            by_client("palyra.http.fetch", json!({ "url": url }))
        }
        other => Ok(of_its_own(client, other, &question.input)),
    }
}

/// A tool that resembles none of Palyra's: recorded where it is known to act on nothing, put before a person otherwise.
fn of_its_own(client: Client, tool: &str, given: &Value) -> Asked {
    let kind = ClientToolKind::of(client.name(), tool);
    let name = if kind.is_some() { "palyra.client.plan" } else { "palyra.client.act" };
    let input = json!({ "client": client.name(), "tool": tool, "input": given });
    match kind {
        Some(ClientToolKind::Person) => Asked::ForItsPerson { tool: name, input },
        _ => Asked::ByClient { tool: name, input },
    }
}

fn written(path: &str, content: &str) -> Value {
    json!({ "path": path, "content": content, "create_parents": true })
}

fn unusable(tool: &str, key: &str) -> Failure {
    let message = format!("`{tool}` has no usable `{key}`");
    Failure::new(
        REFUSED,
        "malformed_request",
        message,
        Some("is this version of the client supported? see docs/agents.md"),
    )
}

fn command(question: &Question, workspace: &Path) -> Result<Asked, Failure> {
    let line = question.command().ok_or_else(|| unusable(&question.tool, "command"))?;
    let stands = question.input.get("workdir").and_then(Value::as_str).unwrap_or(&question.cwd);
    let directory = within(workspace, &question.cwd, stands);
    let mut input = json!({ "argv": ["bash", "-c", line], "cwd": directory, "tell_directory": true });
    let background = question.input.get("run_in_background").and_then(Value::as_bool) == Some(true);
    let timeout = question.input.get("timeout").or_else(|| question.input.get("timeout_ms")).and_then(Value::as_u64);
    match timeout.filter(|ms| *ms > 0) {
        // The client ends it; the daemon's longest time is the bound.
        _ if background || question.tool == "Monitor" => input["timeout_ms"] = json!(u32::MAX),
        Some(ms) => input["timeout_ms"] = json!(ms),
        None => {}
    }
    let hosts = hosts(line);
    if !hosts.is_empty() {
        input["requested_egress_hosts"] = json!(hosts);
    }
    let rewritten = Rewritten(question.input.as_object().cloned().unwrap_or_default());
    Ok(Asked::Command { input, rewritten })
}

/// The hosts that a command says it needs: `PALYRA_HOSTS=a.example,b.example git fetch`.
fn hosts(line: &str) -> Vec<String> {
    let named = line.trim_start().strip_prefix(HOSTS).map(|rest| rest.split_whitespace().next().unwrap_or_default());
    let named = named.unwrap_or_default().trim_matches(['"', '\'']);
    named.split(',').filter(|host| !host.is_empty()).map(str::to_owned).collect()
}

/// A path relative to the workspace; one that lies elsewhere stays as it is, and the daemon refuses it.
fn within(workspace: &Path, cwd: &str, path: &str) -> String {
    let absolute = Path::new(cwd).join(path);
    let found = relative(workspace, &absolute).or_else(|| relative(workspace, &real(&absolute)));
    found.unwrap_or_else(|| absolute.to_string_lossy().into_owned())
}

fn relative(workspace: &Path, path: &Path) -> Option<String> {
    let rest = path.strip_prefix(workspace).ok()?;
    let parts: Vec<_> = rest.components().map(|part| part.as_os_str().to_str()).collect::<Option<_>>()?;
    Some(if parts.is_empty() { ".".to_owned() } else { parts.join("/") })
}

/// The path with the links of what is there resolved.
fn real(path: &Path) -> PathBuf {
    let there = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    match there {
        Some((above, resolved)) => resolved.join(path.strip_prefix(above).unwrap_or(Path::new(""))),
        None => path.to_owned(),
    }
}

/// A file's text; nothing where there is none.
fn read(path: &Path) -> Result<Option<String>, Failure> {
    let failed = |e: &std::io::Error| Failure::io(&format!("`{}` cannot be read", path.display()), e);
    match std::fs::metadata(path) {
        Ok(file) if !file.is_file() || file.len() > MAX_FILE => Err(Failure::new(
            REFUSED,
            "file_too_large",
            format!("`{}` is no file, or too large for its change to be shown", path.display()),
            Some("change it with a command in Bash"),
        )),
        Ok(_) => std::fs::read_to_string(path).map(Some).map_err(|e| failed(&e)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(failed(&e)),
    }
}

/// What a file would hold after the client's edits.
fn edited(question: &Question, path: &Path) -> Result<String, Failure> {
    let mut content = read(path)?.unwrap_or_default();
    let single = [question.input.clone()];
    let edits = question.input.get("edits").and_then(Value::as_array).map_or(&single[..], Vec::as_slice);
    for edit in edits {
        let text = |key: &str| edit.get(key).and_then(Value::as_str).ok_or_else(|| unusable(&question.tool, key));
        let (old, new) = (text("old_string")?, text("new_string")?);
        let all = edit.get("replace_all").and_then(Value::as_bool) == Some(true);
        if old.is_empty() {
            content = new.to_owned();
        } else if !content.contains(old) {
            let message = format!("`{}` does not hold the text that would be replaced", path.display());
            return Err(Failure::new(REFUSED, "edit_does_not_fit", message, Some("read the file again")));
        } else {
            content = if all { content.replace(old, new) } else { content.replacen(old, new, 1) };
        }
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(tool: &str, cwd: &str, input: Value) -> Question {
        let document = json!({ "hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": input, "cwd": cwd });
        Question::parse(document.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn a_command_is_a_line_of_bash_in_its_directory() {
        let input =
            json!({ "command": "PALYRA_HOSTS='a.test,b.test:443' git fetch", "timeout": 5000, "description": "d" });
        let Asked::Command { input, rewritten } =
            asked(Client::ClaudeCode, &question("Bash", "/w/sub", input), Path::new("/w"))
                .unwrap_or_else(|e| panic!("{e:?}"))
        else {
            panic!("a command");
        };
        assert_eq!((&input["cwd"], &input["timeout_ms"]), (&json!("sub"), &json!(5000)));
        assert_eq!(input["requested_egress_hosts"], json!(["a.test", "b.test:443"]));
        assert_eq!(rewritten.with("x".to_owned()), json!({ "command": "x", "timeout": 5000, "description": "d" }));
        let outside = asked(Client::ClaudeCode, &question("Bash", "/x", json!({ "command": "ls" })), Path::new("/w"));
        let Ok(Asked::Command { input, .. }) = outside else { panic!("a command") };
        assert_eq!(input["cwd"], "/x", "the daemon decides about it");
    }

    #[test]
    fn an_edit_is_the_file_as_it_would_be() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), "one two two\n").unwrap();
        let file = dir.path().join("a").display().to_string();
        let change = |edit: Value| {
            let mut input = edit;
            input["file_path"] = json!(file);
            match asked(Client::ClaudeCode, &question("Edit", "/", input), dir.path()) {
                Ok(Asked::ByClient { tool: "palyra.fs.write", input }) => input["content"].as_str().unwrap().to_owned(),
                Ok(_) => panic!("another call"),
                Err(failure) => failure.code,
            }
        };
        assert_eq!(change(json!({ "old_string": "two", "new_string": "2" })), "one 2 two\n");
        assert_eq!(change(json!({ "old_string": "two", "new_string": "2", "replace_all": true })), "one 2 2\n");
        assert_eq!(change(json!({ "old_string": "six", "new_string": "2" })), "edit_does_not_fit");
        assert_eq!(change(json!({ "old_string": "two" })), "malformed_request");
    }

    #[test]
    fn what_resembles_no_tool_of_palyras_is_decided_as_what_it_is() {
        let proposed = |client: Client, tool: &str| match asked(
            client,
            &question(tool, "/w", json!({ "query": "x" })),
            Path::new("/w"),
        )
        .unwrap()
        {
            Asked::ByClient { tool: name, input } => (name, input, true),
            Asked::ForItsPerson { tool: name, input } => (name, input, false),
            Asked::Command { .. } => panic!("{tool} is no command"),
        };
        for tool in ["NotebookEdit", "mcp__github__push", "mcp__palyra__x__y", "Brandnew", "update_plan"] {
            let (name, input, _) = proposed(Client::ClaudeCode, tool);
            assert_eq!((name, &input["tool"]), ("palyra.client.act", &json!(tool)));
            assert!(!is_ours(tool));
        }
        for tool in ["Agent", "Skill", "ToolSearch", "TodoWrite", "WebSearch"] {
            assert_eq!(proposed(Client::ClaudeCode, tool).0, "palyra.client.plan", "{tool}");
        }
        assert!(!proposed(Client::ClaudeCode, "ExitPlanMode").2, "its person is asked by the client");
        assert_eq!(proposed(Client::Codex, "Monitor").0, "palyra.client.act");
        assert!(is_ours("mcp__palyra__palyra_fs_read"));
    }
}

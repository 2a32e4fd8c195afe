//! `palyra connect --hooks`: the client keeps its own tools, and asks Palyra before each of them.

use super::clients::{Launch, Wanted, among, codex_home, set};
use crate::args::connect::Client;
use crate::exit::{FAILED, Failure, REFUSED};
use palyra_protocol::facets::quote_words;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How long a client waits for its hook: a person may be asked, and needs time.
const PATIENCE_S: u64 = 86_400;
/// The events that Palyra has a say in, or learns from.
const EVENTS: [&str; 4] = ["PreToolUse", "PermissionRequest", "PostToolUse", "PostToolUseFailure"];
/// The first versions whose hooks can be made to fail closed.
const CLAUDE_CODE: [u32; 3] = [2, 1, 295];
const CODEX: [u32; 3] = [0, 169, 0];

/// The words that a client runs as its hook.
fn hook_words(client: Client, launch: &Launch, token_file: &str, state_dir: &str, project: &str) -> Vec<String> {
    let words = [
        "hook",
        "--client",
        client.name(),
        "--state-dir",
        state_dir,
        "--token-file",
        token_file,
        "--workspace",
        project,
    ];
    std::iter::once(launch.command.as_str()).chain(words).map(str::to_owned).collect()
}

/// Where the hook finds what it needs.
#[derive(Debug)]
pub struct HookPlaces<'a> {
    pub state_dir: &'a str,
    pub token_file: &'a str,
    pub project: &'a str,
}

/// What a client's configuration needs.
pub fn wanted(
    client: Client,
    project: &Path,
    launch: &Launch,
    places: &HookPlaces<'_>,
) -> Result<Vec<Wanted>, Failure> {
    let words = hook_words(client, launch, places.token_file, places.state_dir, places.project);
    match client {
        Client::ClaudeCode => Ok(claude_code(project, &words)),
        Client::Codex => codex(&words),
        Client::Cursor | Client::Generic => Err(Failure::new(
            FAILED,
            "hooks_not_possible",
            format!("hooks of {} cannot be used", client.name()),
            Some("connect it without `--hooks`; see docs/agents.md"),
        )),
    }
}

fn claude_code(project: &Path, words: &[String]) -> Vec<Wanted> {
    let settings = project.join(".claude/settings.local.json");
    let handler = json!({
        "type": "command", "command": words[0], "args": words[1..], "timeout": PATIENCE_S, "onFailure": "block",
        "statusMessage": "Palyra decides; a person may be asked",
    });
    let mut wanted = vec![
        // The project's own `settings.json` may say otherwise; this file outranks it.
        set(&settings, &["disableAllHooks"], json!(false), "hooks are obeyed, Palyra's among them"),
        set(&settings, &["disableSkillShellExecution"], json!(true), "skills run no commands past the hook"),
    ];
    for event in EVENTS {
        let entry = json!({ "matcher": "*", "hooks": [handler] });
        wanted.push(among(&settings, &["hooks", event], vec![entry], "Palyra is asked, or told"));
    }
    let entry = json!({ "hooks": [handler] });
    wanted.push(among(&settings, &["hooks", "ConfigChange"], vec![entry], "settings count from the next start on"));
    wanted
}

fn codex(words: &[String]) -> Result<Vec<Wanted>, Failure> {
    let home = codex_home()?;
    let (config, hooks) = (home.join("config.toml"), home.join("hooks.json"));
    let command = format!("{} || {{ echo 'Palyra did not allow it' >&2; exit 2; }}", quote_words(words));
    let handler =
        json!({ "type": "command", "command": command, "timeout": PATIENCE_S, "statusMessage": "Palyra decides" });
    let entry = json!({ "matcher": "*", "hooks": [handler] });
    let mut wanted: Vec<Wanted> = EVENTS[..3]
        .iter()
        .map(|event| among(&hooks, &["hooks", event], vec![entry.clone()], "Palyra is asked, or told"))
        .collect();
    let rule = format!(
        "prefix_rule(pattern=[{}, \"redeem\"], decision=\"allow\")",
        serde_json::to_string(&words[0]).map_err(|e| Failure::bug(&e))?
    );
    let rules = home.join("rules/palyra.rules");
    wanted.push(among(&rules, &["lines"], vec![json!(rule)], "an allowed command leaves Codex's sandbox for Palyra's"));
    wanted.push(set(&config, &["features", "hooks"], json!(true), "hooks are obeyed"));
    wanted.push(set(
        &config,
        &["sandbox_mode"],
        json!("read-only"),
        "a command that is not Palyra's can change nothing",
    ));
    Ok(wanted)
}

/// Refuses a client whose hooks fail open. One that is not found is told about.
pub fn check_version(client: Client) -> Result<Option<String>, Failure> {
    let (program, least) = match client {
        Client::ClaudeCode => ("claude", CLAUDE_CODE),
        Client::Codex => ("codex", CODEX),
        Client::Cursor | Client::Generic => return Ok(None),
    };
    let wanted = least.map(|part| part.to_string()).join(".");
    let asked = Command::new(program).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output();
    let Ok(output) = asked else {
        return Ok(Some(format!(
            "`{program}` was not found, so its version is not known; hooks need {wanted} or newer"
        )));
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match version(&text) {
        Some(found) if found >= least => Ok(None),
        Some(found) => Err(Failure::new(
            REFUSED,
            "client_too_old",
            format!(
                "{program} {} is too old: when its hook fails it goes on without",
                found.map(|part| part.to_string()).join(".")
            ),
            Some(&format!("update it to {wanted} or newer, or connect it with `--exclusive`")),
        )),
        None => Ok(Some(format!("`{program} --version` is not understood; hooks need {wanted} or newer"))),
    }
}

/// The first three numbers of a text like `2.1.326 (Claude Code)` or `codex-cli 0.169.0`.
fn version(text: &str) -> Option<[u32; 3]> {
    let word = text.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    let mut parts = word.split(['.', '-', '+']).map(|part| part.parse().ok());
    Some([parts.next()??, parts.next()??, parts.next()??])
}

/// What is told about a hook by Codex.
#[derive(Debug, Deserialize)]
struct ListedHook {
    key: String,
    command: Option<String>,
    #[serde(rename = "currentHash")]
    current_hash: Option<String>,
}

/// What has Codex trust the hooks that are there now: it skips others without a word. Nothing where Codex cannot be
/// asked.
pub fn codex_trust(command: &str) -> Result<Option<Vec<Wanted>>, Failure> {
    let config = codex_home()?.join("config.toml");
    let Some(hooks) = listed_hooks() else { return Ok(None) };
    let ours = hooks.into_iter().filter(|hook| hook.command.as_deref().is_some_and(|text| text.contains(command)));
    let wanted: Vec<Wanted> = ours
        .filter_map(|hook| {
            let path = ["hooks", "state", hook.key.as_str(), "trusted_hash"];
            Some(set(&config, &path, json!(hook.current_hash?), "Codex obeys this hook"))
        })
        .collect();
    Ok((!wanted.is_empty()).then_some(wanted))
}

/// Asks Codex's own server which hooks it sees.
fn listed_hooks() -> Option<Vec<ListedHook>> {
    let mut codex = Command::new("codex");
    let codex = codex.arg("app-server").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = codex.spawn().ok()?;
    let found = asked_for_hooks(&mut server);
    drop(server.kill());
    drop(server.wait());
    found
}

fn asked_for_hooks(server: &mut std::process::Child) -> Option<Vec<ListedHook>> {
    let mut input = server.stdin.take()?;
    let version = env!("CARGO_PKG_VERSION");
    for message in [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": { "clientInfo": { "name": "palyra", "version": version } } }),
        json!({ "jsonrpc": "2.0", "method": "initialized" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "hooks/list", "params": {} }),
    ] {
        writeln!(input, "{message}").ok()?;
    }
    for line in BufReader::new(server.stdout.take()?).lines() {
        let answer: Value = serde_json::from_str(&line.ok()?).ok()?;
        if answer["id"] == json!(2) {
            let places = answer["result"]["data"].as_array()?.clone();
            let hooks = places.iter().filter_map(|place| place["hooks"].as_array()).flatten();
            return hooks.map(|hook| serde_json::from_value(hook.clone()).ok()).collect();
        }
    }
    None
}

/// What the hooks of a client cannot hold, for people.
pub fn limits(client: Client) -> &'static [&'static str] {
    match client {
        Client::Codex => &[
            "Codex's own patches are decided and recorded; its read-only sandbox then asks you, or refuses them in `codex exec`. Edits by commands run in Palyra's sandbox",
            "starting Codex with other settings (`-c features.hooks=false`, another CODEX_HOME) switches the hook off",
            "what is typed into a running terminal session (write_stdin) is not asked about",
        ],
        _ => &[
            "commands run in Palyra's sandbox; file edits, reads and fetches are decided and recorded, and Claude Code does them with your rights: they cannot be undone by Palyra",
            "starting Claude Code with other settings (--settings, --setting-sources, --bare, disableAllHooks) switches the hook off; /etc/claude-code/managed-settings.json is what an agent cannot change",
            "your own deny rules for Bash commands see the wrapped command, so write them as rules of Palyra's",
            "files that you mention with @ are read by Claude Code itself",
        ],
    }
}

/// Files of the project that were made for this connection, as git is told to leave them out: the exclude file and its
/// lines.
pub fn git_excludes(project: &Path, made: &[PathBuf]) -> Option<Wanted> {
    let top = project.ancestors().find(|folder| folder.join(".git").exists())?;
    let git = git_directory(&top.join(".git"))?;
    let lines: Vec<Value> =
        made.iter().filter_map(|file| Some(json!(format!("/{}", file.strip_prefix(top).ok()?.to_str()?)))).collect();
    (!lines.is_empty()).then(|| among(&git.join("info/exclude"), &["lines"], lines, "`git add` leaves these files out"))
}

/// The directory that holds a repository's own settings, also for a worktree or a submodule.
fn git_directory(dot_git: &Path) -> Option<PathBuf> {
    if dot_git.is_dir() {
        return Some(dot_git.to_owned());
    }
    let text = std::fs::read_to_string(dot_git).ok()?;
    let named = dot_git.parent()?.join(text.strip_prefix("gitdir:")?.trim());
    match std::fs::read_to_string(named.join("commondir")) {
        Ok(common) => Some(named.join(common.trim())),
        Err(_) => Some(named),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_clients_tell_them() {
        assert_eq!(version("2.1.326 (Claude Code)\n"), Some([2, 1, 326]));
        assert_eq!(version("codex-cli 0.169.0"), Some([0, 169, 0]));
        assert_eq!(version("0.170.0-alpha.2"), Some([0, 170, 0]));
        assert!(version("codex-cli").is_none() && version("1.2").is_none());
        assert!([2, 1, 295] <= [2, 1, 326] && [0, 99, 9] < CODEX);
    }
}

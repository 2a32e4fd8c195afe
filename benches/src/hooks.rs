//! A hooked `git status` as Claude Code has it: the hook, the decision and the run by its ticket, against `palyra
//! sandbox run` of the same.

use crate::Result;
use crate::process::binaries;
use crate::report::Report;
use crate::sandbox::in_turns;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

const ROUNDS: usize = 40;
/// The most that a hooked command may take, as a multiple of the sandbox alone.
const HOOKED: f64 = 1.3;
const RULES: &str = "@id(\"contained_runs\") @reason(\"Nothing leaves the view.\")\n\
    permit (principal, action == Action::\"approval.waive\", resource)\n\
    when { context has containment && context.containment.contained };\n";

pub fn run(report: &mut Report) -> Result {
    let (bin, dir) = (binaries()?, tempfile::tempdir_in("/tmp")?);
    let place = |name: &str| dir.path().join(name);
    std::fs::create_dir_all(place("w"))?;
    std::fs::create_dir_all(place("rules"))?;
    std::fs::write(place("rules/mine.cedar"), RULES)?;
    let settings = "[process_runner]\ntier = \"c\"\nallow_interpreters = [\"bash\"]\n";
    std::fs::write(place("palyra.toml"), format!("policy_dir = {:?}\n{settings}", place("rules")))?;
    let palyra = |words: &[&str]| {
        let mut command = Command::new(bin.join("palyra"));
        command.arg("--state-dir").arg(dir.path().join("s")).args(words).current_dir(dir.path().join("w"));
        command.env("PALYRA_HTTP_PORT", "0").env("PALYRA_CONFIG", dir.path().join("palyra.toml"));
        command.env("HOME", dir.path()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    done(Command::new("git").args(["init", "-q"]).arg(place("w")))?;
    let workspace = place("w").canonicalize()?.to_str().ok_or("a path is not text")?.to_owned();
    done(&mut palyra(&["up", "--workspace", &workspace]))?;
    let measured = measure(&palyra, dir.path(), &workspace);
    // The hook made this process an agent's client, which ends no daemon by asking.
    let status = palyra(&["-o", "json", "status"]).stdout(Stdio::piped()).output()?;
    let status: serde_json::Value = serde_json::from_slice(&status.stdout)?;
    let pid = status["pid"].as_u64().ok_or("the daemon tells no pid")?;
    done(Command::new("kill").arg(pid.to_string()))?;
    let times = measured?;
    let [hooked, sandbox] = times.as_slice() else { return Err("two are measured".into()) };
    report.at_most("a hooked `git status` against `palyra sandbox run`", *hooked, *sandbox, HOOKED);
    Ok(())
}

fn measure(palyra: &dyn Fn(&[&str]) -> Command, dir: &Path, workspace: &str) -> Result<Vec<std::time::Duration>> {
    done(&mut palyra(&["connect", "claude-code", "--hooks", "--project", workspace]))?;
    let token = dir.join("s/clients/claude-code.token");
    let token = token.to_str().ok_or("a path is not text")?;
    let question = serde_json::json!({
        "hook_event_name": "PreToolUse", "session_id": "bench", "tool_use_id": "t", "cwd": workspace, "tool_name": "Bash",
        "tool_input": { "command": "git status" },
    })
    .to_string();
    let hook = ["hook", "--client", "claude-code", "--token-file", token, "--workspace", workspace];
    let mut hooked = || {
        let mut child = palyra(&hook).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        child.stdin.take().ok_or("no input")?.write_all(question.as_bytes())?;
        let answer: serde_json::Value = serde_json::from_slice(&child.wait_with_output()?.stdout)?;
        let command = answer["hookSpecificOutput"]["updatedInput"]["command"].as_str().ok_or("the hook refused")?;
        done(Command::new("bash").args(["-c", command]).stdout(Stdio::null()))
    };
    let alone = ["sandbox", "run", "--", "bash", "-c", "git status"];
    let mut sandbox = || done(&mut palyra(&alone));
    in_turns(ROUNDS, &mut [&mut hooked, &mut sandbox])
}

fn done(command: &mut Command) -> Result {
    let status = command.status()?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} failed").into()) }
}

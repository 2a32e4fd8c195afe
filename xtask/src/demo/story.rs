//! The demo's parts, in the order of the one path: propose, decide, ask, execute, attest, record; and what lies around
//! it.

use super::command::{Running, Typed, typed};
use super::stage::Stage;
use crate::shell::{Failure, Result, Trying as _};
use serde_json::Value;
use std::process::Stdio;

const DENIED: i32 = 3;
const UNVERIFIED: i32 = 8;
const REFUSED: i32 = 10;

/// A program that shows everything there is to see where it runs.
const LOOK: [&str; 3] = ["findmnt", "--output", "TARGET,VFS-OPTIONS"];

/// Tells all of it; the first thing that is not as it should be ends it.
pub fn tell(stage: &Stage) -> Result<()> {
    stage.terminal.tell("A daemon of its own for this demo, with a configuration and a workspace.");
    stage.start_daemon()?;
    allowed(stage)?;
    denied(stage)?;
    let (waiting, question) = asked(stage)?;
    approved(stage, waiting, &question)?;
    attested(stage)?;
    undone(stage)?;
    secrets(stage)?;
    recorded(stage)
}

/// A call in the agent's name.
fn call(tool: &str, input: &str) -> Typed {
    typed(["palyra", "call", tool, "--input", input, "--as", "agent:demo"])
}

fn allowed(stage: &Stage) -> Result<()> {
    let terminal = &stage.terminal;
    terminal.begin(1, "Propose and decide: allowed");
    terminal.tell("An agent wants to read a file of the workspace. Policy lets it, so it happens at once.");
    terminal.run(&call("palyra.fs.read", r#"{"path":"notes.txt"}"#), 0)?.says("Tuesday")?.says("succeeded")?;
    Ok(())
}

fn denied(stage: &Stage) -> Result<()> {
    let terminal = &stage.terminal;
    terminal.begin(2, "Decide: denied");
    terminal.tell("A tool that the operator did not list. No person is asked: nobody here could wave it through.");
    let patch = r#"{"patch":"--- a/notes.txt\n+++ b/notes.txt\n@@ -1 +1 @@\n-The meeting is on Tuesday.\n+It is cancelled.\n"}"#;
    terminal.run(&call("palyra.fs.apply_patch", patch), DENIED)?.says("policy_denied")?;
    terminal.run(&typed(["cat", "workspace/notes.txt"]), 0)?.says("Tuesday")?;
    terminal.tell("A path that leaves the workspace.");
    let outside = terminal.run(&call("palyra.fs.read", r#"{"path":"../secret.txt"}"#), DENIED)?;
    outside.says("leaves the workspace")?.hides("nobody's business")?;
    Ok(())
}

/// Returns the call that waits, and the id of the question.
fn asked(stage: &Stage) -> Result<(Running, String)> {
    let terminal = &stage.terminal;
    terminal.begin(3, "Ask a person");
    terminal.tell("Running a program is sensitive, so this call waits for an answer.");
    let waiting = proposed(stage, &LOOK, "result.json")?;
    terminal.tell("The approval comes up at once wherever somebody watches.");
    terminal.show("palyra -o json approvals watch | head -n 1 | cut -c -100");
    let (waiting, line, id) = first_asked(stage, waiting)?;
    println!("{}", line.chars().take(100).collect::<String>());

    terminal.tell("What is asked, and exactly what would run.");
    terminal.run(&typed(["palyra", "approvals", "list"]), 0)?.says(&id)?;
    terminal.run(&typed(["palyra", "approvals", "show", &id]), 0)?.says(&LOOK.join(" "))?.says("agent:demo")?;

    terminal.tell("The agent answers its own question.");
    let by_agent = typed(["palyra", "approvals", "decide", &id, "allow", "--as", "agent:demo"]);
    terminal.run(&by_agent, REFUSED)?.says("agents_never_approve")?;
    Ok((waiting, id))
}

/// A program that the agent wants to run, in the background; what comes back goes to a file.
fn proposed(stage: &Stage, argv: &[&str], file: &'static str) -> Result<Running> {
    let input = serde_json::json!({ "argv": argv }).to_string();
    let words = ["palyra", "-o", "json", "call", "palyra.process.run", "--input", &input, "--as", "agent:demo"];
    stage.terminal.run_in_background(&typed(words).into_file(file))
}

/// The first approval that a watcher is shown, and its id.
fn first_asked(stage: &Stage, waiting: Running) -> Result<(Running, String, String)> {
    let watch = stage.terminal.start(&typed(["palyra", "-o", "json", "approvals", "watch"]), Stdio::null())?;
    let line = match watch.first_line() {
        Ok(line) => line,
        // Perhaps the call did not wait, and its own words say why.
        Err(silence) => return waiting.finish(0).and(Err(silence)),
    };
    let asked: Value = serde_json::from_str(&line).trying(format!("`approvals watch` said `{}`", line.trim()))?;
    must(text(&asked, "/state")? == "pending", "the approval is pending")?;
    let id = text(&asked, "/approval_id")?;
    Ok((waiting, line, id))
}

fn approved(stage: &Stage, waiting: Running, question: &str) -> Result<()> {
    let terminal = &stage.terminal;
    terminal.begin(4, "Approve and execute");
    terminal.tell("You say yes, to this call and once. The call that waited goes on and ends.");
    let decide = typed(["palyra", "approvals", "decide", question, "allow", "--reason", "looks harmless"]);
    terminal.run(&decide, 0)?.says("allowed by user:local")?;
    terminal.show("wait");
    waiting.finish(0)?;
    let result: Value = serde_json::from_str(&stage.read("result.json")?).trying("result.json is not understood")?;
    must(text(&result, "/approval/approval_id")? == question, "the result names the approval")?;
    enforced(&result)?;
    let seen = text(&result, "/output/stdout")?;
    must(seen.contains("/workspace"), "the program saw its workspace")?;
    must(!seen.contains("/state") && !seen.contains("secret"), "the program saw nothing else of this directory")?;

    terminal
        .tell("All that there was for the program: a read-only system, a /tmp of its own, the workspace. No network.");
    let shown = typed(["palyra", "calls", "show", &text(&result, "/call_id")?]);
    terminal.run(&shown, 0)?.says("/workspace")?.says("tier c")?;
    terminal.tell("The directory around the workspace, as you see it.");
    terminal.run(&typed(["ls", "-m"]), 0)?.says("secret.txt")?.says("state")?;
    Ok(())
}

/// The attestation says what the kernel enforced, and that is what Tier C promises.
fn enforced(result: &Value) -> Result<()> {
    let enforcement = &result["attestation"]["sandbox_enforcement"];
    must(enforcement["tier"] == "c", "the program ran in Tier C")?;
    let layers = enforcement["layers"].as_array().map_or(&[][..], Vec::as_slice);
    for name in ["mount_namespace", "network_namespace", "seccomp", "no_new_privileges"] {
        let applied = layers.iter().any(|layer| layer["name"] == name && layer["applied"] == true);
        must(applied, &format!("the layer `{name}` was applied"))?;
    }
    Ok(())
}

fn attested(stage: &Stage) -> Result<()> {
    let terminal = &stage.terminal;
    terminal.begin(5, "Attest");
    terminal.tell("The daemon signed what really happened. Anybody who has the result can recompute it.");
    terminal.run(&typed(["palyra", "attest", "verify", "result.json"]), 0)?.says("as attested")?;
    terminal.tell("Somebody changes what the program said.");
    let forge = typed(["sed", r#"s/"stdout":"[^"]*"/"stdout":"all is well"/"#, "result.json"]);
    terminal.run(&forge.into_file("tampered.json"), 0)?;
    terminal.run(&typed(["palyra", "attest", "verify", "tampered.json"]), UNVERIFIED)?.says("attestation_invalid")?;
    Ok(())
}

fn undone(stage: &Stage) -> Result<()> {
    let terminal = &stage.terminal;
    terminal.begin(6, "Effects and undo");
    terminal.tell("The agent deletes something, and you said yes too soon.");
    let waiting = proposed(stage, &["rm", "-r", "notes.txt", "src"], "removed.json")?;
    let (waiting, _, id) = first_asked(stage, waiting)?;
    terminal.run(&typed(["palyra", "approvals", "decide", &id, "allow"]), 0)?;
    terminal.show("wait");
    waiting.finish(0)?;
    let result: Value = serde_json::from_str(&stage.read("removed.json")?).trying("removed.json is not understood")?;
    terminal.run(&typed(["ls", "-A", "workspace"]), 0)?.hides("notes.txt")?;
    terminal
        .tell("The program worked on a view of the workspace. What it changed is known, and what it replaced is kept.");
    terminal.run(&typed(["palyra", "effects", "list"]), 0)?.says("deleted")?;
    terminal.run(&typed(["palyra", "undo", &text(&result, "/call_id")?]), 0)?.says("put back")?;
    terminal.run(&typed(["cat", "workspace/notes.txt"]), 0)?.says("Tuesday")?;
    Ok(())
}

fn secrets(stage: &Stage) -> Result<()> {
    let terminal = &stage.terminal;
    terminal.begin(7, "Secrets");
    terminal.tell("A secret is put into the vault once. Agents name it, and never see it.");
    terminal
        .run(&typed(["palyra", "vault", "put", "global/forge", "--file", "secret.txt"]), 0)?
        .says("in the vault")?;
    let bind = typed([
        "palyra",
        "vault",
        "bind",
        "global/forge",
        "--host",
        "api.example.com",
        "--header",
        "Authorization: Bearer {}",
    ]);
    terminal.run(&bind, 0)?.says("attached by the proxy")?;
    terminal.run(&typed(["palyra", "vault", "list"]), 0)?.says("global/forge")?.hides("nobody's business")?;
    terminal.tell("The agent asks for it outright.");
    let read = typed(["palyra", "vault", "get", "global/forge", "--as", "agent:demo"]);
    terminal.run(&read, REFUSED)?.hides("nobody's business")?;
    terminal.run(&typed(["palyra", "vault", "blame", "global/forge"]), 0)?;
    Ok(())
}

fn recorded(stage: &Stage) -> Result<()> {
    let terminal = &stage.terminal;
    terminal.begin(8, "Journal");
    terminal.tell("Every step was recorded before it counted, the refusals too.");
    let tail = terminal.run(&typed(["palyra", "journal", "tail", "-n", "100"]), 0)?;
    tail.says("tool.decided")?.says("approval.resolved")?.says("tool.finished")?.says("leaves the workspace")?;
    terminal.tell("Each event holds the hash of the one before.");
    terminal.run(&typed(["palyra", "journal", "verify"]), 0)?.says("events fit together")?;

    terminal.tell("A signed checkpoint, kept elsewhere, later shows whether the journal was cut off or rewritten.");
    terminal.run(&typed(["palyra", "journal", "checkpoint"]).into_file("checkpoint.json"), 0)?;
    terminal.run(&call("palyra.echo", r#"{"text":"life goes on"}"#), 0)?.says("life goes on")?;
    let against = typed(["palyra", "journal", "verify", "--against", "checkpoint.json"]);
    terminal.run(&against, 0)?.says("the checkpoint agrees")?;

    terminal.tell("An export can be verified anywhere, and a forged one is found out.");
    terminal.run(&typed(["palyra", "journal", "export", "--to", "journal.jsonl"]), 0)?;
    terminal.run(&typed(["sed", "s/agent:demo/agent:other/", "journal.jsonl"]).into_file("forged.jsonl"), 0)?;
    let forged = typed(["palyra", "journal", "verify", "--export", "forged.jsonl"]);
    terminal.run(&forged, UNVERIFIED)?.says("was changed after it was recorded")?;
    Ok(())
}

fn text(document: &Value, pointer: &str) -> Result<String> {
    let found = document.pointer(pointer).and_then(Value::as_str);
    found.map(str::to_owned).ok_or_else(|| Failure(format!("`{pointer}` should be in {document}")))
}

fn must(holds: bool, what: &str) -> Result<()> {
    if holds { Ok(()) } else { Err(Failure(format!("this should be so, and is not: {what}"))) }
}

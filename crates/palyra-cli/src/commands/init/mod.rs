//! `palyra init`: from a fresh home to an agent that works behind Palyra.
//!
//! It finds the workspace, toolchains, clients and who commits, shows what it will write, and writes it where no agent
//! can ([`files`]). Everything else is done by the commands that people type: the daemon checks the configuration and
//! is started, `palyra connect` connects each client, and one contained call proves that it works.

mod files;
mod find;
mod prove;
mod questions;
mod undo;

use crate::args::connect::Client;
use crate::args::init::Init;
use crate::context::Context;
use crate::exit::{FAILED, Failure, REFUSED};
use crate::output::{self, BOLD, DIM, GOOD, WARN, note, say, styled};
use files::{Intent, Lock, Place, Written};
use serde_json::{Value, json};
use std::io::IsTerminal as _;
use std::path::PathBuf;

/// What will be set up.
#[derive(Debug, Clone)]
struct Plan {
    workspace: PathBuf,
    toolchains: Vec<String>,
    clients: Vec<Client>,
    exclusive: bool,
    git: Option<(String, String)>,
}

pub async fn init(context: &Context, request: Init) -> Result<(), Failure> {
    let place = Place::of_user()?;
    if request.undo {
        let lock = Lock::take(&place)?;
        return undo::undo(context, &place, lock).await;
    }
    let interactive = !request.yes && !request.print;
    if interactive && !(std::io::stdin().is_terminal() && std::io::stdout().is_terminal()) {
        return Err(Failure::usage(
            "there is no terminal to ask on",
            "`--yes` takes what is found; `--print` shows it",
        ));
    }
    let mut plan = find::plan(context, &request)?;
    if interactive {
        questions::ask(&mut plan)?;
    }
    place.out_of_reach(&plan.workspace)?;
    // Another project has been set up: its daemon serves this one too, on the same configuration.
    let home = prove::running(context).await.unwrap_or_else(|| plan.workspace.clone());
    let planned = files::planned(&place, &Plan { workspace: home, ..plan.clone() });
    if request.print {
        return print(context, &planned);
    }
    if interactive {
        show(&planned);
        if !questions::agreed("Write these files, start the daemon and connect?")? {
            return Err(Failure::new(FAILED, "not_wanted", "nothing was changed", None));
        }
    }
    let _lock = Lock::take(&place)?;
    set_up(context, &place, &plan, &planned).await
}

/// Writes, starts, connects and proves.
async fn set_up(context: &Context, place: &Place, plan: &Plan, planned: &[files::Planned]) -> Result<(), Failure> {
    let intent = Intent::of(place, planned)?;
    let running = prove::running(context).await;
    if let Some(workspace) = running.as_ref().filter(|_| intent.changes()) {
        return Err(Failure::new(
            REFUSED,
            "daemon_running",
            format!("a daemon is at work in `{}`, with another configuration", workspace.display()),
            Some("`palyra down` first; what it recorded stays"),
        ));
    }
    let written = files::write((context, place), plan, planned, intent)?;
    match running {
        Some(_) => prove::register(context, plan).await?,
        None => prove::start(context, place, plan)?,
    }
    let mut connections = Vec::new();
    for client in &plan.clients {
        let done = prove::connect(context, plan, *client)?;
        files::remember_connection(place, client.name())?;
        connections.push(done);
    }
    let proof = prove::contained_command(context, plan)?;
    tell(context, plan, &written, &connections, &proof)
}

fn tell(
    context: &Context,
    plan: &Plan,
    written: &[Written],
    connections: &[Value],
    proof: &Value,
) -> Result<(), Failure> {
    if context.json() {
        let files: Vec<_> =
            written.iter().map(|file| json!({ "path": file.path, "state": file.state.as_str() })).collect();
        return output::json(&json!({
            "workspace": plan.workspace, "toolchains": plan.toolchains, "files": files,
            "git": plan.git.as_ref().map(|(name, email)| json!({ "name": name, "email": email })),
            "connections": connections, "proof": proof,
        }));
    }
    for file in written {
        say!("{} {:<10} {}", styled(GOOD, "✔"), file.state.as_str(), file.path.display());
    }
    say!("{} workspace  {}", styled(GOOD, "✔"), plan.workspace.display());
    let toolchains = if plan.toolchains.is_empty() { "the system's alone".into() } else { plan.toolchains.join(", ") };
    say!("{} toolchains {toolchains}", styled(GOOD, "✔"));
    match &plan.git {
        Some((name, email)) => say!("{} commits    as {name} <{email}>", styled(GOOD, "✔")),
        None => note!("{} git knows no name here: `palyra init --git-name … --git-email …`", styled(WARN, "note:")),
    }
    for connection in connections {
        let name = connection.get("name").and_then(Value::as_str).unwrap_or_default();
        say!("{} connected  {}", styled(GOOD, "✔"), styled(BOLD, name));
    }
    let call = proof.get("call_id").and_then(Value::as_str).unwrap_or_default();
    say!("{} proven     a shell ran in the sandbox, unasked and without a network ({call})", styled(GOOD, "✔"));
    if !connections.is_empty() && !plan.exclusive {
        note!(
            "{} a connected client keeps its own tools and can act past Palyra; `--exclusive` switches them off",
            styled(WARN, "note:")
        );
    }
    say!("\nSee what your agents do:  {}", styled(BOLD, "palyra tui"));
    say!("Answer what they ask:     {}", styled(BOLD, "palyra approvals watch"));
    say!("Take it all back:         {}", styled(DIM, "palyra init --undo"));
    Ok(())
}

fn show(planned: &[files::Planned]) {
    for file in planned {
        say!("{}", styled(BOLD, format!("# {}", file.path.display())));
        say!("{}\n", file.content.trim_end());
    }
}

fn print(context: &Context, planned: &[files::Planned]) -> Result<(), Failure> {
    if context.json() {
        let files: Vec<_> = planned.iter().map(|file| json!({ "path": file.path, "content": file.content })).collect();
        return output::json(&json!({ "files": files }));
    }
    show(planned);
    Ok(())
}

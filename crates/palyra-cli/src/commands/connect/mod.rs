//! `palyra connect` and `palyra disconnect`: an agent that people already run is put behind Palyra, and taken out
//! again.
//!
//! Connecting registers an agent, issues it a token that can call tools and nothing else, and changes the client's
//! configuration. The token is in a file of its own in the state directory; configuration files, which are likely to be
//! shared, only name it.

mod clients;
mod document;
mod hooks;
mod record;
mod undone;

use super::{read, read_optional, up};
use crate::args::connect::{Client, Connect, Disconnect};
use crate::context::Context;
use crate::exit::{FAILED, Failure, REFUSED, UNREACHABLE};
use crate::output::{self, BOLD, DIM, GOOD, WARN, note, say, styled};
use clients::Launch;
use palyra_api::v1::{
    AddAgentRequest, CreateTokenRequest, GetCallRequest, ListAgentsRequest, ListCallsRequest, RemoveAgentRequest,
    RevokeTokenRequest, WhoAmIRequest,
};
use palyra_api::{ApiError, Connection};
use palyra_protocol::access::{AgentRecord, TokenView};
use palyra_protocol::{Principal, ProblemCode, TokenId};
pub use record::write_private;
use record::{FileChange, Record};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use undone::Done;

/// What a connected agent's token may do: what it takes to see and call tools, and to look after its own calls.
const SCOPES: [&str; 5] = ["tool.list", "tool.execute", "call.read", "call.cancel", "daemon.status"];

pub async fn connect(context: &Context, request: Connect) -> Result<(), Failure> {
    let project = project(request.project.as_deref())?;
    let name = match &request.name {
        Some(name) => name.clone(),
        None => free_name(context, request.client, &project)?,
    };
    let principal: Principal = format!("agent:{name}")
        .parse()
        .ok()
        .filter(|_| name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)))
        .ok_or_else(|| Failure::new(FAILED, "bad_name", "a name has letters, digits, `-` and `_`", None))?;
    let context = &context.within(&project);
    let launch = launch(context, &name, &project)?;
    let wanted = wanted(context, &request, &name, &project, &launch)?;
    let earlier = Record::read(&context.state_dir, &name)?;
    if let Some(earlier) = &earlier
        && (earlier.client != request.client.name()
            || earlier.project != project
            || (earlier.exclusive, earlier.hooks) != (request.exclusive, request.hooks))
    {
        return Err(Failure::new(
            REFUSED,
            "connected_otherwise",
            format!("`{name}` is connected already: {} in `{}`", earlier.client, earlier.project.display()),
            Some(&format!("`palyra disconnect {name}` first, or choose another `--name`")),
        ));
    }
    let planned = record::plan(&wanted)?;
    if request.print {
        return print(context, &launch, &planned);
    }
    let unknown_version = if request.hooks { hooks::check_version(request.client)? } else { None };
    let connection = reach(context, &project).await?;
    nothing_runs_there(&connection).await?;
    let mut done = Done::new(&name, &principal, earlier);
    match begin(context, &connection, &request, &project, &planned, &mut done).await {
        Ok(mut record) => {
            let trusted = trust(context, &request, &launch, &mut record)?;
            told(context, &request, &record, &launch, &wanted, &planned)?;
            warnings(context, &request, unknown_version.as_deref(), trusted);
            Ok(())
        }
        Err(failure) => Err(done.taken_back(context, &connection, failure).await),
    }
}

/// The client's name; with the project's, where the client is connected in another project already.
fn free_name(context: &Context, client: Client, project: &Path) -> Result<String, Failure> {
    let plain = client.name().to_owned();
    let elsewhere = Record::read(&context.state_dir, &plain)?.is_some_and(|record| record.project != project);
    let folder = project.file_name().unwrap_or_default().to_string_lossy();
    let folder: String = folder.chars().filter(|c| c.is_ascii_alphanumeric() || "-_".contains(*c)).take(40).collect();
    Ok(if elsewhere && !folder.is_empty() { format!("{plain}-{folder}") } else { plain })
}

/// What the client's configuration needs, and what keeps it out of commits.
fn wanted(
    context: &Context,
    request: &Connect,
    name: &str,
    project: &Path,
    launch: &Launch,
) -> Result<Vec<clients::Wanted>, Failure> {
    let mut wanted = if request.hooks {
        let text = |path: &Path| path.to_str().map(str::to_owned).ok_or_else(not_text);
        let state_dir = context.state_dir.canonicalize().unwrap_or_else(|_| context.state_dir.clone());
        let (token_file, state_dir) = (text(&record::token_file(&state_dir, name))?, text(&state_dir)?);
        let places = hooks::HookPlaces { state_dir: &state_dir, token_file: &token_file, project: &text(project)? };
        hooks::wanted(request.client, project, launch, &places)?
    } else {
        clients::wanted(request.client, project, launch, request.exclusive)?
    };
    // Files that are there already are their owner's to commit.
    let mut made: Vec<PathBuf> = wanted.iter().map(|want| want.file.clone()).filter(|file| !file.exists()).collect();
    made.dedup();
    wanted.extend(hooks::git_excludes(project, &made));
    Ok(wanted)
}

/// Refuses to write into a workspace that a process works in directly: when it ends, new files that can run code are
/// set aside.
async fn nothing_runs_there(connection: &Connection) -> Result<(), Failure> {
    for tool in ["palyra.process.run", "palyra.process.start"] {
        let list =
            ListCallsRequest { tool: tool.to_owned(), state: "executing".to_owned(), most: 250, ..Default::default() };
        for call in connection.calls().list(list).await?.into_inner().calls_json {
            let call_id = read::<Value>(&call)?["call_id"].as_str().unwrap_or_default().to_owned();
            let known = connection.calls().get(GetCallRequest { call_id: call_id.clone() }).await?.into_inner();
            let call: Value = read_optional(&known.call_json)?.unwrap_or_default();
            if !known.outcome_json.is_empty() || call["facets"]["containment"]["workspace"] == json!("view") {
                continue;
            }
            return Err(Failure::new(
                REFUSED,
                "process_running",
                format!(
                    "a process works in the workspace right now ({call_id}); files that are written meanwhile are set aside"
                ),
                Some(&format!("wait until it ends, or end it: `palyra calls cancel {call_id}`")),
            ));
        }
    }
    Ok(())
}

/// Has Codex trust the hooks that it now finds. Whether it does; nothing where that is no question.
fn trust(context: &Context, request: &Connect, launch: &Launch, record: &mut Record) -> Result<Option<bool>, Failure> {
    if !request.hooks || request.client != Client::Codex {
        return Ok(None);
    }
    let Some(wanted) = hooks::codex_trust(&launch.command)? else { return Ok(Some(false)) };
    let planned = record::plan(&wanted)?;
    record.files = merged(std::mem::take(&mut record.files), &planned);
    record.write(&context.state_dir)?;
    for file in planned.iter().filter(|file| file.is_change()) {
        file.apply()?;
    }
    Ok(Some(true))
}

/// Says what this connection does not hold.
fn warnings(context: &Context, request: &Connect, unknown_version: Option<&str>, trusted: Option<bool>) {
    let warn = |text: &str| note!("{} {text}", styled(WARN, "note:"));
    if let Some(unknown) = unknown_version {
        warn(unknown);
    }
    if trusted == Some(false) {
        warn("Codex skips hooks that it does not trust: start it, and say yes to Palyra's under `/hooks`");
    }
    if request.hooks && !context.json() {
        say!("  limits");
        for limit in hooks::limits(request.client) {
            say!("    - {limit}");
        }
        say!(
            "    - an answer to an approval is refused from the client and what it starts, as far as the host shows that; what"
        );
        say!(
            "      another service starts for it (`systemd-run`, `at`) is not seen: a rule can demand an approver on another device"
        );
    } else if !request.exclusive && request.client != Client::Generic {
        warn(&format!(
            "{} keeps its own shell and file tools, with which it can act past Palyra: `--hooks` has it ask before each, `--exclusive` switches them off",
            request.client.name()
        ));
    }
}

fn not_text() -> Failure {
    Failure::new(FAILED, "io", "a path is not text", None)
}

/// Registers, issues and writes; what it has done is in `done` as soon as it has.
async fn begin(
    context: &Context,
    connection: &Connection,
    request: &Connect,
    project: &Path,
    planned: &[FileChange],
    done: &mut Done,
) -> Result<Record, Failure> {
    let earlier = done.earlier.clone();
    let known = earlier.as_ref().map_or_else(Vec::new, |earlier| earlier.files.clone());
    let files = merged(known, planned);
    let record = match earlier {
        Some(earlier) if holds(context, &done.name).await => Record { files, ..earlier },
        earlier => {
            if let Some(earlier) = &earlier {
                // A token that is not at hand any more may still open.
                withdraw(connection, &earlier.token_id).await?;
            }
            done.registered = register(connection, &done.principal, request.client).await?;
            let token_id = issue(context, connection, request, done).await?;
            Record {
                name: done.name.clone(),
                client: request.client.name().to_owned(),
                project: project.to_owned(),
                principal: done.principal.clone(),
                registered: done.registered || earlier.is_some_and(|earlier| earlier.registered),
                token_id,
                exclusive: request.exclusive,
                hooks: request.hooks,
                files,
            }
        }
    };
    // Known before anything is changed, so that it can be taken back whatever happens.
    record.write(&context.state_dir)?;
    done.recorded = true;
    // What this run plans, and not what an earlier one did: files are their owners', who went on writing.
    for file in planned.iter().filter(|file| file.is_change()) {
        file.apply()?;
        done.files.push(file.clone());
    }
    Ok(record)
}

/// Changes that were made before stay known as they were; further ones are added.
fn merged(mut earlier: Vec<FileChange>, now: &[FileChange]) -> Vec<FileChange> {
    for change in now {
        match earlier.iter_mut().find(|file| file.path == change.path) {
            Some(known) => known.then(change.clone()),
            None if change.is_change() => earlier.push(change.clone()),
            None => {}
        }
    }
    earlier
}

fn project(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let given = given.unwrap_or(Path::new("."));
    given
        .canonicalize()
        .map_err(|e| Failure::io(&format!("`{}` is no project directory", given.display()), &e))
        .and_then(
            |path| if path.is_dir() { Ok(path) } else { Err(Failure::new(FAILED, "io", "it is no directory", None)) },
        )
}

fn launch(context: &Context, name: &str, project: &Path) -> Result<Launch, Failure> {
    let exe = std::env::current_exe().map_err(|e| Failure::io("this program does not know where it is", &e))?;
    let text = |path: &Path| {
        path.to_str().map(str::to_owned).ok_or_else(|| Failure::new(FAILED, "io", "a path is not text", None))
    };
    let state_dir = context.state_dir.canonicalize().unwrap_or_else(|_| context.state_dir.clone());
    let token = record::token_file(&state_dir, name);
    let args = ["mcp", "serve", "--state-dir", &text(&state_dir)?, "--token-file", &text(&token)?];
    let args = args.iter().map(|arg| (*arg).to_owned()).chain(["--workspace".to_owned(), text(project)?]);
    Ok(Launch { command: text(&exe)?, args: args.collect() })
}

/// The daemon, started if nobody answers, like the last time or on the project; the project is registered.
async fn reach(context: &Context, project: &Path) -> Result<Connection, Failure> {
    if context.connect().await.is_err() {
        up::start_unasked(context, Some(project.to_owned()))?;
        note!("palyrad was not running; it is now");
    }
    // A project that is not registered yet names no workspace.
    super::workspaces::register(&context.clone().anywhere().connect().await?, project).await?;
    context.connect().await
}

/// Whether an earlier token still opens the door.
async fn holds(context: &Context, name: &str) -> bool {
    let Ok(token) = std::fs::read_to_string(record::token_file(&context.state_dir, name)) else { return false };
    let Ok(connection) = Connection::open(&context.socket(), None).await else { return false };
    let Ok(connection) = connection.at(context.place()) else { return false };
    let Ok(connection) = connection.with_token(token.trim()) else { return false };
    match connection.access().who_am_i(WhoAmIRequest {}).await {
        Ok(_) => true,
        // It may not ask who it is; it is somebody.
        Err(status) => ApiError::from(status).known_code() == Some(ProblemCode::ScopeMissing),
    }
}

/// Registers the agent, unless it is known.
async fn register(connection: &Connection, principal: &Principal, client: Client) -> Result<bool, Failure> {
    let agents = connection.access().list_agents(ListAgentsRequest {}).await?.into_inner().documents_json;
    for agent in agents {
        if read::<AgentRecord>(&agent)?.principal == *principal {
            return Ok(false);
        }
    }
    let description = format!("{}, connected by `palyra connect`", client.name());
    connection.access().add_agent(AddAgentRequest { principal: principal.to_string(), description }).await?;
    Ok(true)
}

async fn issue(
    context: &Context,
    connection: &Connection,
    request: &Connect,
    done: &mut Done,
) -> Result<TokenId, Failure> {
    let create = CreateTokenRequest {
        principal: done.principal.to_string(),
        label: format!("palyra connect {}", request.client.name()),
        role: String::new(),
        scopes: SCOPES.map(str::to_owned).to_vec(),
        life_ms: u64::try_from(request.expires.as_millis()).unwrap_or(u64::MAX),
        rate_per_minute: 0,
    };
    let issued = connection.access().create_token(create).await?.into_inner();
    let token: TokenView = read(&issued.token_json)?;
    done.issued = Some(token.token_id.clone());
    let file = record::token_file(&context.state_dir, &done.name);
    write_private(&file, format!("{}\n", issued.secret).as_bytes())?;
    Ok(token.token_id)
}

/// The configuration that any MCP client understands in some form.
fn generic(launch: &Launch) -> Value {
    json!({ "mcpServers": { "palyra": { "command": launch.command, "args": launch.args } } })
}

fn print(context: &Context, launch: &Launch, files: &[FileChange]) -> Result<(), Failure> {
    if context.json() {
        let files: Vec<_> = files.iter().map(|file| json!({ "path": file.path, "content": file.text() })).collect();
        return output::json(&json!({ "files": files, "mcp": generic(launch) }));
    }
    if files.is_empty() {
        return pretty(&generic(launch));
    }
    for file in files {
        say!("{}", styled(BOLD, format!("# {}", file.path.display())));
        say!("{}", file.text().trim_end());
        say!("");
    }
    Ok(())
}

fn pretty(value: &Value) -> Result<(), Failure> {
    say!("{}", serde_json::to_string_pretty(value).map_err(|e| Failure::bug(&e))?);
    Ok(())
}

fn told(
    context: &Context,
    request: &Connect,
    record: &Record,
    launch: &Launch,
    wanted: &[clients::Wanted],
    planned: &[FileChange],
) -> Result<(), Failure> {
    let token_file = record::token_file(&context.state_dir, &record.name);
    if context.json() {
        let files: Vec<_> = record.files.iter().map(|file| &file.path).collect();
        return output::json(&json!({
            "name": record.name, "principal": record.principal, "token_id": record.token_id,
            "token_file": token_file, "files": files, "mcp": generic(launch),
        }));
    }
    say!("{} {} is connected as {}", styled(GOOD, "✔"), record.client, styled(BOLD, &record.principal));
    say!("  token   {} in {} ({})", record.token_id, token_file.display(), SCOPES.join(", "));
    changes(planned, wanted);
    if request.client == Client::Generic {
        say!("\nGive this to your client:");
        pretty(&generic(launch))?;
    }
    say!("  undo    palyra disconnect {}", record.name);
    Ok(())
}

/// What this run changed: one that is repeated finds everything in place.
fn changes(planned: &[FileChange], wanted: &[clients::Wanted]) {
    for file in planned {
        if !file.is_change() {
            say!("  kept    {} (everything is there already)", file.path.display());
            continue;
        }
        say!("  changed {} ({})", file.path.display(), file.places());
        for place in file.replaced() {
            say!("    {place}  {}", styled(WARN, "replaced what stood there; disconnecting puts it back"));
        }
        for want in wanted.iter().filter(|want| want.file == file.path) {
            say!("    {}  {}", want.path.join("."), styled(DIM, want.why));
        }
    }
}

pub async fn disconnect(context: &Context, request: Disconnect) -> Result<(), Failure> {
    let Some(record) = Record::read(&context.state_dir, &request.name)? else {
        return Err(Failure::new(
            REFUSED,
            "not_found",
            format!("nothing is connected as `{}`", request.name),
            Some(&format!("connections are in `{}`", record::folder(&context.state_dir).display())),
        ));
    };
    // The token first: what matters is that it opens nothing.
    let withdrawn = match context.connect().await {
        Ok(connection) => {
            withdraw(&connection, &record.token_id).await?;
            if record.registered {
                let remove = RemoveAgentRequest { principal: record.principal.to_string() };
                if let Err(status) = connection.access().remove_agent(remove).await {
                    gone_already(status)?;
                }
            }
            true
        }
        Err(failure) if failure.exit == UNREACHABLE => false,
        Err(failure) => return Err(failure),
    };
    let mut left = Vec::new();
    for file in record.files.iter().rev() {
        left.extend(file.undo()?.into_iter().map(|place| format!("{} in {}", place, file.path.display())));
    }
    if !withdrawn {
        return Err(half_done(context, record)?);
    }
    record::forget(&context.state_dir, &record.name)?;
    if context.json() {
        let files: Vec<_> = record.files.iter().map(|file| &file.path).collect();
        return output::json(&json!({ "name": record.name, "revoked": record.token_id, "files": files, "left": left }));
    }
    say!("{} {} is disconnected; {} opens nothing any more", styled(GOOD, "✔"), record.name, record.token_id);
    for file in &record.files {
        say!("  restored {}", file.path.display());
    }
    for place in left {
        note!("{} {place} was changed since and stays", styled(WARN, "note:"));
    }
    Ok(())
}

/// Without a daemon the files are as they were and the token's file is gone, but nobody has heard that the token is to
/// open nothing. The connection stays known until somebody has.
fn half_done(context: &Context, record: Record) -> Result<Failure, Failure> {
    let record = Record { files: Vec::new(), ..record };
    record.write(&context.state_dir)?;
    record::forget_token(&context.state_dir, &record.name)?;
    let Record { name, token_id, .. } = record;
    Ok(Failure::new(
        UNREACHABLE,
        "token_not_withdrawn",
        format!("the files are restored, but no daemon runs to withdraw {token_id}, so it still opens"),
        Some(&format!("`palyra up`, then `palyra disconnect {name}` once more")),
    ))
}

/// Makes a token open nothing.
async fn withdraw(connection: &Connection, token: &TokenId) -> Result<(), Failure> {
    let revoke = RevokeTokenRequest { token_id: token.to_string(), keep_issued: false };
    connection.access().revoke_token(revoke).await.map_or_else(gone_already, |_| Ok(()))
}

/// What is gone need not be taken away.
fn gone_already(status: tonic::Status) -> Result<(), Failure> {
    let error = ApiError::from(status);
    match error.known_code() {
        Some(ProblemCode::NotFound | ProblemCode::TokenAlreadyRevoked) => Ok(()),
        _ => Err(error.into()),
    }
}

//! `palyra up` and `palyra down`: starting and stopping the daemon.

use crate::args::Up;
use crate::context::Context;
use crate::exit::{FAILED, Failure, UNREACHABLE};
use crate::output::{self, DIM, GOOD, note, say, styled};
use palyra_api::command_line::{READY, STATE_HELD};
use palyra_api::v1::{StatusReply, StatusRequest, StopRequest};
use palyra_api::{ApiError, LastStart};
use palyra_protocol::ProblemCode;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::json;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a daemon that holds the state is waited for: one that begins opens its door, one that ends lets go.
const HELD: Duration = Duration::from_secs(20);
/// How often its door is tried, and after how long a daemon of our own.
const KNOCK: Duration = Duration::from_millis(50);
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// How long the daemon gets to end.
const END: Timespec = Timespec { tv_sec: 15, tv_nsec: 0 };

pub async fn up(context: &Context, up: Up) -> Result<(), Failure> {
    if let Some(status) = running(context).await? {
        return already(context, &up, &status).await;
    }
    let start = Start::asked_for(context, &up)?;
    let patience = Instant::now() + HELD;
    loop {
        match start.run(context) {
            Ok(()) => break,
            // Another daemon is about to open its door, or has not quite ended.
            Err(NotStarted::HeldByAnother(_)) if Instant::now() < patience => {
                if let Some(status) = knock(context).await? {
                    return already(context, &up, &status).await;
                }
            }
            Err(failure) => return Err(failure.into()),
        }
    }
    let connection = context.connect().await?;
    let status = connection.daemon().status(StatusRequest { probe_sandbox: false }).await?.into_inner();
    if context.json() {
        return output::json(&super::status::document(&status));
    }
    say!("{} palyrad {} is running (pid {})", styled(GOOD, "●"), status.version, status.pid);
    for workspace in super::status::workspaces(&status)? {
        say!("  workspace  {}", workspace.root);
    }
    say!("  state      {}", status.state_dir);
    if !status.http_url.is_empty() {
        say!("  http       {}", status.http_url);
    }
    note!("\n{}", styled(DIM, "try: palyra call palyra.echo --input '{\"text\":\"hello\"}'"));
    Ok(())
}

/// The daemon that is running, if one answers.
async fn running(context: &Context) -> Result<Option<StatusReply>, Failure> {
    let Ok(connection) = context.connect().await else { return Ok(None) };
    match connection.daemon().status(StatusRequest { probe_sandbox: false }).await {
        Ok(status) => Ok(Some(status.into_inner())),
        Err(status) => match Failure::from(status) {
            // It ended between the two questions.
            failure if failure.exit == UNREACHABLE => Ok(None),
            failure => Err(failure),
        },
    }
}

/// Tries the door of a daemon that is beginning or ending.
async fn knock(context: &Context) -> Result<Option<StatusReply>, Failure> {
    let until = Instant::now() + TRY_AGAIN;
    while Instant::now() < until {
        tokio::time::sleep(KNOCK).await;
        if let Some(status) = running(context).await? {
            return Ok(Some(status));
        }
    }
    Ok(None)
}

/// Tells about a daemon that somebody else started, and registers the workspace that is named.
async fn already(context: &Context, up: &Up, status: &StatusReply) -> Result<(), Failure> {
    if let Some(directory) = &up.workspace {
        let added = super::workspaces::register(&context.connect().await?, directory).await?;
        if !context.json() {
            say!("{} {} is registered", styled(GOOD, "✔"), added.root);
        }
    }
    if context.json() {
        return output::json(&super::status::document(status));
    }
    say!("{} palyrad {} is running already (pid {})", styled(GOOD, "●"), status.version, status.pid);
    if up.config.is_some() {
        note!("{}", styled(DIM, "`--config` took no effect; `palyra down` first to change it"));
    }
    Ok(())
}

/// Why a daemon did not start.
#[derive(Debug)]
enum NotStarted {
    /// Another daemon holds the state directory.
    HeldByAnother(Failure),
    /// Anything else.
    Failed(Failure),
}

impl From<Failure> for NotStarted {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<NotStarted> for Failure {
    fn from(failure: NotStarted) -> Self {
        match failure {
            NotStarted::HeldByAnother(failure) | NotStarted::Failed(failure) => failure,
        }
    }
}

/// What a daemon is started with.
#[derive(Debug, Default)]
struct Start {
    workspace: Option<PathBuf>,
    config: Option<PathBuf>,
    http_port: Option<u16>,
}

/// Starts the daemon for a command that needs one: like the last time, whatever the environment says. Before there was
/// a last time, in this workspace.
pub fn start_unasked(context: &Context, workspace: Option<PathBuf>) -> Result<(), Failure> {
    let start = match remembered(context)? {
        Some(LastStart { config, workspace, http_port, .. }) => Start { workspace: Some(workspace), config, http_port },
        None => Start { workspace, config: std::env::var_os("PALYRA_CONFIG").map(Into::into), http_port: None },
    };
    Ok(start.run(context)?)
}

/// Starts the daemon on this configuration, whatever it was started with before.
pub fn start_with(context: &Context, workspace: PathBuf, config: PathBuf) -> Result<(), Failure> {
    let start = Start { workspace: Some(workspace), config: Some(config), http_port: None };
    Ok(start.run(context)?)
}

fn remembered(context: &Context) -> Result<Option<LastStart>, Failure> {
    LastStart::read(&context.state_dir).map_err(|e| {
        let why = std::error::Error::source(&e).map_or_else(String::new, |source| format!(": {source}"));
        let hint = "`palyra up --fresh` starts without it; name your configuration with `--config FILE`";
        Failure::new(FAILED, "last_start_unknown", format!("{e}{why}"), Some(hint))
    })
}

impl Start {
    /// What somebody asked for, and for the rest what they last did.
    fn asked_for(context: &Context, up: &Up) -> Result<Self, Failure> {
        let Up { workspace, config, fresh } = up;
        let (workspace, config) = (workspace.clone(), config.clone());
        let last = if *fresh { None } else { remembered(context)? };
        let Some(last) = last else { return Ok(Self { workspace, config, http_port: None }) };
        if let (None, Some(config)) = (&config, &last.config) {
            note!("{}", styled(DIM, format!("with `{}`, as last time; `--fresh` forgets it", config.display())));
        }
        Ok(Self {
            workspace: workspace.or_else(|| last.workspace_given.then_some(last.workspace)),
            config: config.or(last.config),
            // The daemon reads the environment itself.
            http_port: last.http_port.filter(|_| std::env::var_os("PALYRA_HTTP_PORT").is_none()),
        })
    }

    /// The daemon's options.
    fn options(&self) -> Vec<OsString> {
        let mut options: Vec<OsString> = Vec::new();
        for (name, value) in [("--workspace", &self.workspace), ("--config", &self.config)] {
            options.extend(value.iter().flat_map(|value| [name.into(), value.into()]));
        }
        options.extend(self.http_port.iter().flat_map(|port| ["--http-port".into(), port.to_string().into()]));
        options
    }

    /// Starts the daemon and waits for its word that the door is open.
    fn run(&self, context: &Context) -> Result<(), NotStarted> {
        spawn(context, &self.options())
    }
}

fn spawn(context: &Context, options: &[OsString]) -> Result<(), NotStarted> {
    let binary = daemon_binary()?;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&context.state_dir)
        .map_err(|e| Failure::io("the state directory cannot be made", &e))?;
    let log = context.state_dir.join("palyrad.log");
    let logged = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(&log)
        .map_err(|e| Failure::io("the log cannot be opened", &e))?;
    let before = logged.metadata().map_or(0, |m| m.len());
    let mut command = Command::new(&binary);
    command.arg("--state-dir").arg(&context.state_dir).args(options);
    let mut daemon = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(logged)
        // Ctrl-C in this terminal is not meant for the daemon.
        .process_group(0)
        .spawn()
        .map_err(|e| Failure::io(&format!("`{}` cannot be started", binary.display()), &e))?;
    let mut word = String::new();
    if let Some(stdout) = daemon.stdout.take() {
        BufReader::new(stdout).read_line(&mut word).map_err(|e| Failure::io("the daemon said nothing", &e))?;
    }
    if word.split(' ').next() == Some(READY) {
        return Ok(());
    }
    let code = daemon.wait().ok().and_then(|status| status.code());
    let exit = code.map_or_else(String::new, |c| format!(" (exit {c})"));
    let message = format!("the daemon did not start{exit}: {}", last_words(&log, before));
    let hint = format!("its log is `{}`", log.display());
    let failed = |code: &str| Failure::new(FAILED, code, message, Some(&hint));
    Err(match code == Some(i32::from(STATE_HELD)) {
        true => NotStarted::HeldByAnother(failed("state_held")),
        false => NotStarted::Failed(failed("daemon_did_not_start")),
    })
}

/// What the daemon wrote to its log since it was started: its own explanation.
fn last_words(log: &PathBuf, before: u64) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let start = usize::try_from(before).unwrap_or(0).min(text.len());
    let text = String::from_utf8_lossy(&text[start..]).into_owned();
    let error = text.find("error: ").map_or(text.trim(), |at| text[at + 7..].trim());
    error.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

/// The daemon that belongs to this program: beside it, or on the path.
pub fn daemon_binary() -> Result<PathBuf, Failure> {
    let beside = std::env::current_exe().ok().map(|exe| exe.with_file_name("palyrad")).filter(|path| path.exists());
    let on_path = || {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|dir| dir.join("palyrad")).find(|file| file.exists())
    };
    beside.or_else(on_path).ok_or_else(|| {
        Failure::new(
            FAILED,
            "daemon_not_installed",
            "`palyrad` is neither beside `palyra` nor on the path",
            Some("install it beside `palyra`: `cargo install --path crates/palyra-daemon`"),
        )
    })
}

pub async fn down(context: &Context) -> Result<(), Failure> {
    let pid = down_quietly(context).await?;
    if context.json() {
        return output::json(&json!({ "stopped": pid.as_raw_nonzero() }));
    }
    say!("{} palyrad (pid {pid}) has ended", styled(DIM, "○"));
    Ok(())
}

/// Ends the daemon and waits for that; tells which process it was.
pub async fn down_quietly(context: &Context) -> Result<Pid, Failure> {
    let nothing = |failure: Failure| match failure.exit {
        UNREACHABLE => {
            Failure { hint: Some("nothing to stop: no daemon runs with this state directory".to_owned()), ..failure }
        }
        _ => failure,
    };
    let connection = context.connect().await.map_err(nothing)?;
    let failed = |e: rustix::io::Errno| Failure::io("the daemon cannot be stopped", &e.into());
    let pid =
        listener(context).ok_or_else(|| Failure::new(FAILED, "unexpected_answer", "the daemon has no pid", None))?;
    let daemon = pidfd_open(pid, PidfdFlags::empty()).map_err(failed)?;
    let meant = StopRequest { pid: pid.as_raw_nonzero().get().unsigned_abs() };
    if let Err(status) = connection.daemon().stop(meant).await {
        let error = ApiError::from(status);
        let code = error.known_code();
        match Failure::from(error) {
            // It ended before its answer was out.
            failure if failure.exit == UNREACHABLE => {}
            // One that cannot decide any more, or is of another version, is ended by a signal: by its own user, who
            // shows no token and acts as nobody else.
            failure
                if context.is_local_user() && (failure.exit == FAILED || code == Some(ProblemCode::UnknownMethod)) =>
            {
                pidfd_send_signal(&daemon, Signal::TERM).map_err(failed)?;
            }
            failure => return Err(failure),
        }
    }
    drop(connection);
    let mut ended = [PollFd::new(&daemon, PollFlags::IN)];
    if poll(&mut ended, Some(&END)).map_err(failed)? == 0 {
        return Err(Failure::new(
            FAILED,
            "daemon_did_not_stop",
            format!("the daemon (pid {pid}) has not ended after 15 s"),
            Some("look at its log; `kill -9` loses nothing that was acknowledged"),
        ));
    }
    Ok(pid)
}

/// The process behind the daemon's door, as the kernel knows it.
fn listener(context: &Context) -> Option<Pid> {
    let door = UnixStream::connect(context.socket()).ok()?;
    socket_peercred(&door).ok().map(|daemon| daemon.pid)
}

//! Putting the daemon together, serving, and ending in good order.

use crate::config::{Config, ConfigError, RawConfig, RemoteConfig};
use crate::custody::AgentReach;
use crate::doors::Doors;
use crate::http::{HttpError, Listening, Port};
use crate::mtls::{RemoteDoor, RemoteError};
use crate::state::{StateDir, StateError};
use crate::{grpc, keys, mcp, policy, skill_watch};
use palyra_access::REGISTRY_FILE;
use palyra_agent::{Models, Runs};
use palyra_api::LastStart;
use palyra_api::command_line::READY;
use palyra_engine::{AccessControl, DeviceSetup, Engine, EngineParts, RegistryError};
use palyra_identity::SealedDirectory;
use palyra_policy::{CheckedSet, PolicyLoader, RefusedSet};
use palyra_protocol::{Custody, SystemClock};
use palyra_sandbox::{SandboxProcessRunnerPolicy, SandboxTier};
use palyra_workspace::Workspace;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

/// How long executions may go on after the daemon was asked to end.
const GRACE: Duration = Duration::from_secs(5);

/// How many files may be open at a time, if the host lets us.
const OPEN_FILES: u64 = 8192;

/// Where the authority's key is kept.
const DEVICE_KEYS: &str = "identity_keys";

/// Why the daemon does not serve.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// There is no home directory to keep state in.
    #[error("there is no home directory; say where to keep the state with `--state-dir DIR`")]
    NoHome,
    /// The configuration is not usable.
    #[error("the configuration cannot be used: {0}")]
    Config(#[from] ConfigError),
    /// The state is not usable.
    #[error("{0}")]
    State(#[from] StateError),
    /// The policies are not usable.
    #[error("the policies cannot be used, so nothing can be decided:\n{}", crate::policy::rendered(.0))]
    Policy(Box<RefusedSet>),
    /// Standard input or output failed.
    #[error("the stream broke off: {0}")]
    Stream(std::io::Error),
    /// The journal is not usable.
    #[error("{0}; run `palyrad verify` for the whole picture, and restore a backup if it is damaged")]
    Journal(#[from] palyra_journal::JournalError),
    /// The journal could not be verified, so nothing is known about it.
    #[error("the journal could not be verified: {}", with_cause(.0))]
    Unverified(palyra_journal::JournalError),
    /// The access registry is not usable.
    #[error(transparent)]
    Access(#[from] RegistryError),
    /// The workspace is not usable.
    #[error("{0}")]
    Workspace(#[from] palyra_workspace::FileError),
    /// The engine does not start.
    #[error("{0}")]
    Engine(#[from] palyra_engine::StartError),
    /// Open calls could not be taken care of.
    #[error("calls that the last end left open could not be taken care of: {0}")]
    Recovery(#[from] palyra_engine::EngineError),
    /// A checkpoint file is not one.
    #[error("`{}` is not a checkpoint: {reason}", path.display())]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The models are not usable.
    #[error("`[models]` cannot be used: {0}")]
    Models(String),
    /// The host failed.
    #[error("{what}: {source}")]
    Io {
        /// What failed.
        what: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// The HTTP door does not open.
    #[error("{0}")]
    Http(#[from] HttpError),
    /// The door for paired devices does not open.
    #[error("{0}")]
    Remote(#[from] RemoteError),
    /// What was given cannot be remembered, so the next start would not know it.
    #[error("this start cannot be remembered")]
    Remember(#[from] palyra_api::LastStartError),
    /// The door failed.
    #[error("the socket failed")]
    Serve(#[source] tonic::transport::Error),
}

impl DaemonError {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoHome => "no_home",
            Self::Config(ConfigError::Overlap { .. }) => "workspace_overlaps_state",
            Self::Config(ConfigError::InReach { source, .. }) => source.code(),
            Self::Config(_) | Self::Models(_) => "configuration",
            Self::State(_) => "state",
            Self::Policy(_) => "policy_refused",
            Self::Stream(_) | Self::Io { .. } => "io",
            Self::Journal(_) | Self::Recovery(_) => "journal",
            Self::Unverified(_) => "journal_unverified",
            Self::Access(_) => "access",
            Self::Workspace(_) => "workspace",
            Self::Engine(_) => "engine",
            Self::Checkpoint { .. } => "checkpoint",
            Self::Http(_) | Self::Remote(_) | Self::Serve(_) => "door",
            Self::Remember(_) => "last_start_unknown",
        }
    }

    /// What to do next, where the message does not say it.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Config(ConfigError::Overlap { .. }) => Some("name a project directory: `--workspace DIR`"),
            Self::Config(_) => Some("`palyrad check` says more"),
            Self::Unverified(palyra_journal::JournalError::Format { .. }) => {
                Some("start the daemon once: it brings a journal of the format before up to date")
            }
            Self::Unverified(_) => Some("verify it as a user who may read all of the state directory"),
            _ => None,
        }
    }
}

fn with_cause(error: &palyra_journal::JournalError) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

pub(crate) fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> DaemonError {
    move |source| DaemonError::Io { what, source }
}

/// Where everything is.
#[derive(Debug)]
pub struct Setup {
    /// The state directory.
    pub state_dir: PathBuf,
    config_path: PathBuf,
    config_required: bool,
    workspace: Option<PathBuf>,
    http_port: Option<u16>,
    remote_port: Option<u16>,
}

impl Setup {
    /// Fills in the defaults.
    ///
    /// # Errors
    /// There is no home to keep state in.
    pub fn new(
        state_dir: Option<PathBuf>,
        config: Option<PathBuf>,
        workspace: Option<PathBuf>,
        (http_port, remote_port): (Option<u16>, Option<u16>),
    ) -> Result<Self, DaemonError> {
        let config_required = config.is_some();
        let in_home = |variable: &str, fallback: &str| {
            let base = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
            base.or_else(|| std::env::home_dir().map(|home| home.join(fallback))).ok_or(DaemonError::NoHome)
        };
        let state_dir = match state_dir {
            Some(dir) => std::path::absolute(dir).map_err(io("the state directory"))?,
            None => in_home("XDG_STATE_HOME", ".local/state")?.join("palyra"),
        };
        let config_path = match config {
            Some(path) => path,
            None => in_home("XDG_CONFIG_HOME", ".config")?.join("palyra/palyra.toml"),
        };
        Ok(Self { state_dir, config_path, config_required, workspace, http_port, remote_port })
    }

    /// How processes are confined under this configuration, in this workspace or the configured one.
    ///
    /// # Errors
    /// What is wrong with the configuration.
    pub fn process_runner(&self, workspace: Option<PathBuf>) -> Result<SandboxProcessRunnerPolicy, DaemonError> {
        let raw = RawConfig::read(&self.config_path, self.config_required)?;
        let policy = raw.process_runner(workspace, &self.state_dir)?;
        self.vouched("the configuration", &self.config_path, &AgentReach::of(&policy))?;
        Ok(policy)
    }

    /// The tier that processes run in under this configuration.
    ///
    /// # Errors
    /// The configuration cannot be read.
    pub fn configured_tier(&self) -> Result<SandboxTier, DaemonError> {
        Ok(RawConfig::read(&self.config_path, self.config_required)?.tier())
    }

    pub(crate) fn config(&self, state_dir: &Path) -> Result<Config, DaemonError> {
        let raw = RawConfig::read(&self.config_path, self.config_required)?;
        let config = raw.validate(self.workspace.clone(), state_dir)?;
        // Only now it is known where agents can write. What they could have written is not obeyed.
        self.vouched("the configuration", &self.config_path, &*config.custody)?;
        self.vouched("the state directory", &self.state_dir, &*config.custody)?;
        self.vouched("the access registry", &self.state_dir.join(REGISTRY_FILE), &*config.custody)?;
        Ok(config)
    }

    /// Refuses what decides where an agent could write it.
    fn vouched(&self, what: &'static str, path: &Path, custody: &dyn Custody) -> Result<(), ConfigError> {
        custody.vouch(path).map(drop).map_err(|source| ConfigError::InReach { what, source })
    }

    /// What the next start is to be like, should nobody say.
    fn remembered(&self, config: &Config) -> LastStart {
        LastStart {
            // As it is named today, wherever the next start is made from.
            config: self.config_path.exists().then(|| std::path::absolute(&self.config_path).ok()).flatten(),
            workspace: config.workspace_root.clone(),
            workspace_given: self.workspace.is_some(),
            http_port: self.http_port,
        }
    }

    /// How the rules are read when nothing is served: with the access registry as its file stands.
    fn policy_loader(&self, config: &Config) -> Result<PolicyLoader, DaemonError> {
        self.with_registered(config.policy_loader(), &config.workspace_root)
    }

    /// The same for whoever reads rules and nothing else: whether tools could work here is not their matter.
    pub(crate) fn rules(&self) -> Result<PolicyLoader, DaemonError> {
        let raw = RawConfig::read(&self.config_path, self.config_required)?;
        self.with_registered(raw.rules()?, &raw.workspace(self.workspace.as_deref()))
    }

    fn with_registered(&self, mut loader: PolicyLoader, workspace: &Path) -> Result<PolicyLoader, DaemonError> {
        let registered = palyra_engine::peek_registry(&self.state_dir, workspace)?;
        loader.membership = loader.membership.with_registered(registered);
        Ok(loader)
    }
}

fn policies(loader: &PolicyLoader) -> Result<CheckedSet, DaemonError> {
    loader.load().map_err(|refused| DaemonError::Policy(Box::new(refused)))
}

/// Checks configuration and policies without taking the state.
///
/// # Errors
/// What is wrong with them.
#[expect(clippy::print_stdout, reason = "the command's answer")]
pub fn check(setup: &Setup) -> Result<ExitCode, DaemonError> {
    let config = setup.config(&setup.state_dir)?;
    let policy = policies(&setup.policy_loader(&config)?)?;
    println!(
        "configuration  {}",
        if setup.config_path.exists() { setup.config_path.display().to_string() } else { "defaults".to_owned() }
    );
    println!("workspace      {}", config.workspace_root.display());
    println!("policies       {} rules, {}", policy.engine.rules().count(), policy.engine.policy_hash().short());
    Ok(ExitCode::SUCCESS)
}

/// Serves until told to end.
///
/// # Errors
/// Why it does not serve.
pub fn run(setup: Setup, started: Instant) -> Result<ExitCode, DaemonError> {
    let state = StateDir::take(&setup.state_dir)?;
    let config = setup.config(state.path())?;
    allow_many_files();
    leave_no_core();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(io("the runtime"))?;
    let served = runtime.block_on(serve(&setup, &state, config, started));
    // Blocking work that outlives its calls must not hold the end up.
    runtime.shutdown_timeout(Duration::from_secs(1));
    served.map(|()| ExitCode::SUCCESS)
}

/// Every connection is an open file, and the usual soft limit is meant for programs that use `select`. What the daemon
/// runs has a limit of its own.
fn allow_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(OPEN_FILES, |most| most.min(OPEN_FILES));
    if current.is_none_or(|now| now >= wanted) {
        return;
    }
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }) {
        tracing::warn!(%error, "the number of open files stays limited");
    }
}

/// Secrets pass through this process's memory, so a crash must not write it to a file. A limit of one byte also keeps
/// the kernel from handing the memory to a program named in `core_pattern`, which a limit of zero does not.
fn leave_no_core() {
    use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
    let none = Rlimit { current: Some(1), maximum: Some(1) };
    if let Err(error) = setrlimit(Resource::Core, none) {
        tracing::warn!(%error, "a crash of this process could leave its memory in a file");
    }
    // Of a process that is not dumpable, /proc is root's: an ordinary user could not set up sandboxes any more.
    if rustix::process::geteuid().is_root()
        && let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable)
    {
        tracing::warn!(%error, "the memory of this process can be read by a debugger");
    }
}

async fn serve(setup: &Setup, state: &StateDir, config: Config, started: Instant) -> Result<(), DaemonError> {
    let journal = keys::open_journal(state)?;
    let key = keys::signing_key(state, &journal).await?;
    // The journal's clock never goes back: tokens that have expired stay expired.
    let access = AccessControl::open(state.path(), &config.workspace_root, &journal, journal.clock()).await?;
    let remembered = setup.remembered(&config);
    let remote_config = config.remote.clone().map(|remote| remote.at_port(setup.remote_port));
    let mut loader = config.policy_loader();
    loader.membership = loader.membership.with_registered(access.registered().map_err(RegistryError::from)?);
    let engine = Engine::new(EngineParts {
        policy: policies(&loader)?,
        policy_loader: config.policy_loader(),
        access,
        journal,
        workspace: Workspace::open(&config.workspace_root)?,
        config: config.tool_call,
        key,
        vault: config.vault,
    })?;
    engine.note_start(env!("CARGO_PKG_VERSION")).await?;
    state.put_key_in_place()?;
    prepare_devices(&engine, state, &remote_config).await?;
    engine.recover_memory().await?;
    // Before calls are taken up again: one that waits may be of a skill.
    engine.start_skills(skill_watch::setup(&config.skills, state.path())).await;
    let recovered = engine.recover().await?;
    tracing::info!(?recovered, "open calls taken care of");
    engine.recover_consoles().await?;
    engine.start_routines().await?;
    engine.keep_retention();
    engine.spawn_scheduler_loop();
    let _watching_skills = skill_watch::watch(&engine, &config.skills);

    // Held until the end: what it watches stops being watched with it.
    let _watching = engine.policy_directory().and_then(|directory| policy::watch::start(engine.clone(), directory));
    let models = Models::new(engine.clone(), config.models).map_err(DaemonError::Models)?;
    let runs = Runs::new(engine.clone(), models);
    let doors = Doors::new(engine.clone(), runs.clone());
    // Before the HTTP door opens: its `/readyz` says that every door is there.
    let (socket, listener) = listen(state, "palyra.sock")?;
    let (mcp_socket, mcp_listener) = listen(state, palyra_api::MCP_SOCKET)?;
    let remote = RemoteDoor::bind(doors.clone(), remote_config)?;
    doors.remote_is(&remote);
    let port = config.http.map(|configured| setup.http_port.map_or(configured, Port::This));
    let open = |port| Listening::open(doors.clone(), port, state.path());
    let http = port.map(open).transpose()?;
    let mut terminate = signal(SignalKind::terminate()).map_err(io("signal handling"))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(io("signal handling"))?;
    let mut hangup = signal(SignalKind::hangup()).map_err(io("signal handling"))?;
    tokio::spawn(mcp::socket::serve(doors.clone(), mcp_listener));

    let stop = Arc::new(Notify::new());
    let about = grpc::About {
        state_dir: state.path().to_owned(),
        config_path: setup.config_path.clone(),
        started_at_unix_ms: palyra_protocol::Clock::now(&SystemClock).unix_ms(),
        http_url: http.as_ref().map(Listening::url),
        remote: remote.clone(),
        runs: runs.clone(),
        stop: Arc::clone(&stop),
    };
    let services = grpc::Services::new(engine.clone(), about);
    remote.open(services.clone())?;
    let serving = services.serve(listener);
    remembered.write(state.path())?;
    tracing::info!(carried_on = runs.recover().await?, "open runs taken care of");
    announce(&socket);
    tracing::info!(socket = %socket.display(), start_ms = started.elapsed().as_millis() as u64, "serving");
    let served = tokio::select! {
        served = serving => served.map_err(DaemonError::Serve),
        // Without its journal a daemon can only refuse; whoever supervises it had better know.
        () = engine.journal_gone() => Err(palyra_journal::JournalError::Closed.into()),
        () = stop.notified() => Ok(()),
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        // A terminal that was closed: what runs is ended in good order too.
        _ = hangup.recv() => Ok(()),
    };
    let sockets = [socket, mcp_socket];
    Ending { engine, doors, http, remote, sockets }.run().await;
    served
}

/// What has to be ended in good order.
struct Ending {
    engine: Engine,
    doors: Doors,
    http: Option<Listening>,
    remote: RemoteDoor,
    sockets: [PathBuf; 2],
}

impl Ending {
    async fn run(self) {
        let Self { engine, doors, http, remote, sockets } = self;
        tracing::info!("ending");
        doors.ending.close();
        if let Some(http) = &http {
            http.close();
        }
        // Before the engine: a run must not take the engine's refusals for what its calls gave.
        doors.runs.close().await;
        engine.shut_down(GRACE).await;
        doors.ending.settle().await;
        if let Some(http) = &http {
            http.drained().await;
        }
        remote.drained().await;
        // A daemon that was ended is not a stale socket to connect to.
        for socket in &sockets {
            if let Err(error) = std::fs::remove_file(socket) {
                tracing::debug!(%error, "a socket was gone");
            }
        }
    }
}

/// Says where devices are known. Where there are some, they are known before anything goes on that they began; a
/// registry that cannot be opened keeps devices out, and nobody else.
async fn prepare_devices(engine: &Engine, state: &StateDir, remote: &Option<RemoteConfig>) -> Result<(), DaemonError> {
    let vault = SealedDirectory::open(&state.path().join(DEVICE_KEYS)).map_err(io("the keys of the authority"))?;
    let hosts = remote.as_ref().map_or_else(Vec::new, |remote| remote.hosts.clone());
    engine.prepare_devices(DeviceSetup { state_dir: state.path().to_owned(), hosts, vault: Arc::new(vault) });
    if let Err(error) = engine.known_devices().await {
        tracing::error!(code = error.problem.code, "no device is let in: {}", error.problem.message);
    }
    Ok(())
}

/// A socket that is the daemon's user's alone.
fn listen(state: &StateDir, name: &str) -> Result<(PathBuf, UnixListener), DaemonError> {
    let socket = state.fresh_socket(name)?;
    let listener = UnixListener::bind(&socket).map_err(io("the socket"))?;
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o600)).map_err(io("the socket"))?;
    Ok((socket, listener))
}

/// One line on standard output says that the door is open: whoever started us need not poll.
fn announce(socket: &Path) {
    let mut out = std::io::stdout();
    let told = writeln!(out, "{READY} {}", socket.display()).and_then(|()| out.flush());
    if let Err(error) = told {
        tracing::debug!(%error, "nobody reads our standard output");
    }
}

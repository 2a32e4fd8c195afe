//! Tier C: a container of namespaces, built by bubblewrap.
//!
//! The supervisor, the fence, the change of user and the view without hidden programs are those of Tier B; what it
//! executes there is bubblewrap, which makes its tree from that view, with an empty environment (it stays visible
//! inside as process 1) and no descriptors but those named to it.

use super::bwrap::{self, Blueprint, Bubblewrap, Descriptors};
use super::caches::Caches;
use super::cgroup::{Group, Limits, Seen};
use super::gate::Gate;
use super::guarded_paths;
use super::guards::{self, Guard};
use super::held_files::{HeldFiles, Put};
use super::identity::Identity;
use super::inside_listener::{self, Inside};
use super::landlock;
use super::launch::{self, ByPath, Proof};
use super::limits::{self, Counted};
use super::minimum;
use super::opened_roots::Tops;
use super::own_view;
use super::parts::{self, Part};
use super::plan::{CStrings, Held, MountStep, Plan, Program, Record, Stack, Step, c_string};
use super::profile::Profile;
use super::report::{Done, shared_network};
use super::run::{self, Backend, Job, PipePairs, Prepared};
use super::run_proxy::WayOut;
use super::seccomp;
use super::trust;
use super::walls;
use crate::environment;
use crate::error::SandboxError;
use crate::hidden_files::Hidden;
use crate::outcome::{EgressCount, Enforcement, Layer, OutputSink, ProcessExit};
use crate::policy::{EgressEnforcementMode, ProcessRequest, SandboxProcessRunnerPolicy, SandboxTier};
use crate::pump::{Attendant, Pumped};
use crate::roots::{Access, Roots};
use rustix::event::PollFlags;
use rustix::fs::MemfdFlags;
use std::cell::OnceCell;
use std::ffi::OsString;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where temporary files and the home directory are, inside.
const TEMPORARY: &str = "/tmp";
/// Bubblewrap itself: once outside, once as process 1 inside.
const BWRAP_PROCESSES: u64 = 2;

/// One Tier C run.
#[derive(Debug)]
pub(super) struct TierC {
    status: Status,
    /// What bubblewrap waits at; `None` when it is open.
    gate: Option<Gate>,
    way_out: Option<WayOut>,
    bubblewrap: Bubblewrap,
    uid: u32,
    mapped: usize,
    hidden: Arc<Hidden>,
    /// Whether overlays hide it; bubblewrap covers each by itself otherwise.
    walled: bool,
    guards: Vec<Guard>,
    proofs: Vec<Proof>,
    aside: HeldFiles,
    /// What its toolchains fill; given back when it has ended.
    _caches: Caches,
    egress: EgressEnforcementMode,
    /// The parts of this workspace that it sees, where that is not all of it.
    parts: Option<(PathBuf, Vec<Part>)>,
    memory_limit: u64,
    group: Option<Confinement>,
}

/// Prepares a run.
pub(super) fn prepare(job: Job<'_>) -> Result<(TierC, Prepared), SandboxError> {
    let bubblewrap = bwrap::find()?;
    let group = Confinement::create(job.policy)?;
    let handover = hand_over(&job, &bubblewrap, group.is_some())?;
    let Job { policy, identity, hidden, .. } = job;
    let mut held = Held::default();
    let PipePairs { ours, stdio, report } = run::pipes()?;
    let doors = group.as_ref().map(|confinement| confinement.group.doors(&mut held)).transpose().map_err(no_group)?;
    let mut plan = Plan {
        program: Program::Path(c_string(&bubblewrap.path, "bubblewrap")?),
        argv: handover.argv,
        env: CStrings::new(Vec::new()),
        working_directory: c_string("/", "the working directory")?,
        stdio: stdio.map(|fd| held.hold(fd)),
        report: held.hold(report),
        inherited: handover.inherited.into_iter().map(|fd| held.hold(fd)).collect(),
        rlimits: limits::rlimits(policy, if group.is_some() { Counted::ByGroup } else { Counted::ByUser }),
        user_namespace: identity.view.as_ref().and_then(|view| view.users.clone()).map(|fd| held.share(fd)),
        mount_namespace: identity.view.as_ref().map(|view| held.share(Arc::clone(&view.mounts))),
        own_mounts: handover.own_mounts,
        user: identity.user,
        fence: landlock::fence()?.map(|fd| held.share(fd)),
        // Landlock forbids every mount, and bubblewrap is made of mounts.
        files: None,
        // Likewise: bubblewrap installs the filter when it has finished.
        seccomp: None,
        group: doors.unwrap_or_default(),
        required: minimum::steps(policy)?,
        parent: i32::try_from(std::process::id()).unwrap_or(0),
        keep: Vec::new(),
        supervisor_stack: Stack::new(),
        command_stack: Stack::new(),
    };
    for step in &plan.own_mounts {
        if let MountStep::Attach { tree, .. } = step {
            held.share(Arc::clone(tree));
        }
    }
    plan.keep = held.numbers();
    let backend = TierC {
        status: Status { pipe: handover.status, text: String::new() },
        gate: handover.gate,
        way_out: handover.way_out,
        uid: identity.uid,
        mapped: identity.view.as_ref().map_or(0, |view| view.mapped),
        walled: is_walled(&identity),
        hidden,
        guards: handover.guards,
        proofs: handover.proofs,
        aside: handover.aside,
        _caches: handover.caches,
        egress: policy.egress,
        parts: handover.parts,
        memory_limit: policy.memory_limit_bytes,
        bubblewrap,
        group,
    };
    Ok((backend, Prepared { plan, held, pipes: ours }))
}

/// The control group of a run.
#[derive(Debug)]
struct Confinement {
    group: Group,
    limits: Limits,
    /// Whether its memory is limited already.
    is_limited: bool,
    seen: OnceCell<Seen>,
}

impl Confinement {
    /// A group, if the host has one to give.
    fn create(policy: &SandboxProcessRunnerPolicy) -> Result<Option<Self>, SandboxError> {
        let processes = policy.max_processes.saturating_add(BWRAP_PROCESSES);
        let limits = Limits { memory_bytes: policy.memory_limit_bytes, processes };
        let group = Group::create(limits)?;
        Ok(group.map(|group| Self { group, limits, is_limited: false, seen: OnceCell::new() }))
    }

    fn limit_memory(&mut self) -> Result<(), SandboxError> {
        self.group.limit_memory(self.limits).map_err(no_group)?;
        self.is_limited = true;
        Ok(())
    }
}

fn no_group(source: std::io::Error) -> SandboxError {
    SandboxError::LayerUnavailable { layer: "cgroup", source }
}

fn is_walled(identity: &Identity) -> bool {
    identity.view.as_ref().is_some_and(|view| view.walls.is_some())
}

/// What bubblewrap is given.
struct Handover {
    argv: CStrings,
    inherited: Vec<OwnedFd>,
    /// Where it tells how the command ended.
    status: OwnedFd,
    gate: Option<Gate>,
    way_out: Option<WayOut>,
    guards: Vec<Guard>,
    proofs: Vec<Proof>,
    aside: HeldFiles,
    caches: Caches,
    own_mounts: Vec<MountStep>,
    parts: Option<(PathBuf, Vec<Part>)>,
}

fn hand_over(job: &Job<'_>, bubblewrap: &Bubblewrap, grouped: bool) -> Result<Handover, SandboxError> {
    let Job { policy, executable, request, roots, working_directory, identity, hidden } = job;
    let ByPath { argv, copies, binds, proofs } = launch::by_path(policy, executable)?;
    let parts = request.package.as_ref().map(|package| parts::of(package, request.view.is_some()));
    let way_out = has_way_out(policy)
        .then(|| WayOut::closed(&policy.egress_rules, request.secrets.credentials.clone()))
        .transpose()?;
    let proxy = way_out.as_ref().map(|_| inside_listener::PORT);
    let mut environment = environment::compose(policy, &request.env, Path::new(TEMPORARY), proxy)?;
    let private = trust::files(request, roots, &mut environment)?;
    let (status, status_write) = run::pipe()?;
    rustix::io::ioctl_fionbio(&status, true)
        .map_err(|e| SandboxError::Io { action: "prepare a pipe", source: e.into() })?;
    let filter = sealed(&seccomp::filter_bytes(Profile::C))?;
    let gid = identity.user.map_or_else(|| rustix::process::getegid().as_raw(), |user| user.gid);
    let home = environment::home(policy, Path::new(TEMPORARY));
    let (users, groups) = bwrap::passwd(identity.uid, gid, home);
    let mut files = bwrap::etc_files(roots);
    files.push((sealed(users.as_bytes())?, "/etc/passwd"));
    let (mut own_mounts, mut caches) = (Vec::new(), Caches::default());
    if let Some(layers) = &request.view {
        caches = Caches::of(&policy.home)?;
        own_mounts.extend(own_view::steps(&roots.workspace, layers, identity)?);
        own_mounts.extend(caches.steps(identity)?);
    }
    let filled = caches.paths();
    let git = policy.home.git.as_ref().map(|git| sealed(git.settings().as_bytes())).transpose()?;
    let tops = Tops::open(&written_directly(roots, request))?;
    let sensitive = guarded_paths::all(&tops)?;
    let guards = guards::guards(&tops, &sensitive);
    // A guard lies in a root, so where there are no roots to look at there are no guards either.
    let (gate, waits_for) = if grouped || way_out.is_some() || !tops.is_empty() || !proofs.is_empty() || parts.is_some()
    {
        Gate::around(&groups).map(|(gate, inner)| (Some(gate), Some(inner)))?
    } else {
        files.push((sealed(groups.as_bytes())?, bwrap::GATE_FILE));
        (None, None)
    };
    let covers = if is_walled(identity) { Vec::new() } else { walls::covers(hidden)? };
    let file_numbers: Vec<_> = files.iter().map(|(fd, target)| (fd.as_raw_fd(), *target)).collect();
    let copy_numbers: Vec<_> = copies.iter().map(|(fd, inside)| (fd.as_raw_fd(), inside.as_path())).collect();
    let private_numbers: Vec<_> =
        private.iter().map(|file| (file.content.as_raw_fd(), file.path.as_path(), file.mode)).collect();
    let descriptors = Descriptors {
        private: &private_numbers,
        seccomp: filter.as_raw_fd(),
        status: status_write.as_raw_fd(),
        gate: waits_for.as_ref().map(AsRawFd::as_raw_fd),
        files: &file_numbers,
        copies: &copy_numbers,
        git: git.as_ref().map(AsRawFd::as_raw_fd),
    };
    let environment = &environment;
    let binds = &binds;
    let blueprint = Blueprint {
        policy,
        roots,
        filled: &filled,
        home,
        binds,
        parts: parts.as_deref(),
        covers: &covers,
        working_directory,
        environment,
        descriptors,
    };
    let words = sealed(&nul_separated(&bwrap::arguments(&blueprint, &guards))?)?;
    let argv = command_line(bubblewrap, &words, argv)?;
    let mut inherited = vec![filter, status_write, words];
    inherited.extend(files.into_iter().map(|(fd, _)| fd).chain(waits_for));
    inherited.extend(copies.into_iter().map(|(fd, _)| fd));
    inherited.extend(private.into_iter().map(|file| file.content).chain(git));
    inherited.extend(covers.into_iter().filter_map(|cover| cover.content));
    let aside = HeldFiles::watch(tops, &sensitive);
    let parts = parts.map(|parts| (roots.workspace.clone(), parts));
    Ok(Handover { parts, own_mounts, caches, argv, inherited, status, gate, way_out, guards, proofs, aside })
}

/// The roots whose files a run changes at once: the workspace is none of them if it works on a view.
fn written_directly(roots: &Roots, request: &ProcessRequest) -> Roots {
    match request.view {
        Some(_) => Roots { workspace_access: Access::Execute, ..roots.clone() },
        None => roots.clone(),
    }
}

/// `bwrap --args FD -- PROGRAM ARGUMENT…`.
fn command_line(bubblewrap: &Bubblewrap, words: &OwnedFd, argv: Vec<OsString>) -> Result<CStrings, SandboxError> {
    let mut line: Vec<OsString> =
        vec![bubblewrap.path.clone().into(), "--args".into(), words.as_raw_fd().to_string().into()];
    line.push("--".into());
    line.extend(argv);
    run::argument_block(&line)
}

fn nul_separated(words: &[OsString]) -> Result<Vec<u8>, SandboxError> {
    let mut bytes = Vec::new();
    for word in words {
        if word.as_bytes().contains(&0) {
            return Err(SandboxError::NulByte { what: word.to_string_lossy().escape_default().to_string() });
        }
        bytes.extend_from_slice(word.as_bytes());
        bytes.push(0);
    }
    Ok(bytes)
}

/// A file in memory, at its beginning.
pub(super) fn sealed(bytes: &[u8]) -> Result<OwnedFd, SandboxError> {
    let fault = |e: rustix::io::Errno| SandboxError::Io { action: "create a file in memory", source: e.into() };
    let fd = rustix::fs::memfd_create("palyra", MemfdFlags::CLOEXEC).map_err(fault)?;
    let mut left = bytes;
    while !left.is_empty() {
        let written = rustix::io::write(&fd, left).map_err(fault)?;
        left = &left[written..];
    }
    rustix::fs::seek(&fd, rustix::fs::SeekFrom::Start(0)).map_err(fault)?;
    Ok(fd)
}

/// What bubblewrap tells on its status pipe.
#[derive(Debug)]
struct Status {
    pipe: OwnedFd,
    text: String,
}

impl Status {
    /// Reads what is there.
    fn read(&mut self) {
        let mut buffer = [0u8; 1024];
        while let Ok(length @ 1..) = rustix::io::read(&self.pipe, &mut buffer) {
            self.text.push_str(&String::from_utf8_lossy(&buffer[..length]));
        }
    }
}

/// Whether the run's network has a way out.
pub(super) fn has_way_out(policy: &SandboxProcessRunnerPolicy) -> bool {
    policy.egress == EgressEnforcementMode::Strict && policy.egress_rules.need_a_proxy()
}

impl TierC {
    /// Lets the command begin, if everything is as it should be. An error leaves the gate to be opened after the run's
    /// end.
    fn open_gate(&mut self) -> Result<(), SandboxError> {
        // It tells before it builds. If it did not, it is gone, and how it ended says why.
        if let Some(inside) = Inside::parse(&self.status.text) {
            if let Some(group) = &mut self.group {
                group.limit_memory()?;
            }
            guards::prove(self.aside.tops(), &self.guards, inside.pid)
                .map_err(|source| SandboxError::LayerUnavailable { layer: "guarded_paths", source })?;
            launch::prove(&self.proofs, inside.pid)?;
            if let Some((workspace, parts)) = &self.parts {
                parts::prove(parts, workspace, inside.pid)?;
            }
            if let Some(way_out) = &mut self.way_out {
                way_out.open(inside)?;
            }
        }
        self.gate = None;
        Ok(())
    }

    /// Whether the network is the run's own: bubblewrap told its number, and it is not that of the host's.
    fn has_own_network(&self) -> bool {
        let own = inside_listener::own_network().ok();
        Inside::parse(&self.status.text).is_some_and(|inside| own.is_some_and(|own| own != inside.network))
    }

    fn network_layers(&self) -> Vec<Layer> {
        if !self.has_own_network() {
            return vec![Layer::missing("network_namespace", shared_network(self.egress))];
        }
        match &self.way_out {
            Some(way_out) if way_out.was_opened() => vec![
                Layer::applied(
                    "network_namespace",
                    "own, with nothing but a loopback device and the proxy's door on it",
                ),
                Layer::applied(
                    "egress_proxy",
                    format!("{} rule(s); names are resolved outside, by the proxy alone", way_out.rules()),
                ),
            ],
            _ => vec![Layer::applied("network_namespace", "own, with nothing but a loopback device: no network")],
        }
    }

    fn hidden_programs(&self) -> String {
        let gone = self.hidden.describe();
        if self.walled { gone } else { format!("{gone} (one by one: this host gives no overlays)") }
    }

    /// The walls that stand because bubblewrap reported that it started the command: it builds all of them or nothing.
    /// A run that was stopped while it still waited at the gate had no command, and no walls.
    fn built_by_bubblewrap(&self) -> Vec<Layer> {
        let (major, minor) = self.bubblewrap.version;
        let mut layers = vec![
            Layer::applied("bubblewrap", format!("{} {major}.{minor}", self.bubblewrap.path.display())),
            Layer::applied("user_namespace", "own; creating further ones is disabled"),
            Layer::applied(
                "mount_namespace",
                format!("read-only system, private /tmp, {} mapped root(s)", self.mapped),
            ),
            Layer::applied("hidden_programs", self.hidden_programs()),
            Layer::applied("pid_namespace", "sees and signals only its own processes"),
            Layer::applied("ipc_namespace", "own"),
            Layer::applied("uts_namespace", "own"),
            Layer::applied("cgroup_namespace", "own"),
            Layer::applied("capabilities", "none"),
            Layer::applied(
                "guarded_paths",
                format!(
                    "{} existing path(s) of the workspace kept from change; new ones are set aside",
                    self.guards.len()
                ),
            ),
            Layer::applied("seccomp", "deny-list of tier c"),
        ];
        let granted = |parts: usize| format!("sees the package's files and {parts} granted part(s) of the workspace");
        layers.extend(self.parts.as_ref().map(|(_, parts)| Layer::applied(parts::LAYER, granted(parts.len()))));
        if self.gate.is_none() {
            return layers;
        }
        let unbuilt = |layer: Layer| Layer::missing(&layer.name, "the run was ended before its command began");
        layers.into_iter().map(unbuilt).collect()
    }
}

impl Attendant for TierC {
    fn watched(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        match (&self.gate, &self.way_out) {
            (Some(gate), _) => Some((gate.fd(), PollFlags::OUT)),
            (None, Some(way_out)) => Some((way_out.bell(), PollFlags::IN)),
            (None, None) => None,
        }
    }

    fn attend(&mut self, sink: &mut dyn OutputSink) -> Result<(), SandboxError> {
        if self.gate.is_none() {
            self.way_out.iter_mut().for_each(|way_out| way_out.deliver(sink));
            return Ok(());
        }
        self.status.read();
        self.open_gate()
    }
}

impl Backend for TierC {
    fn settle(&mut self, sink: &mut dyn OutputSink) -> EgressCount {
        self.status.read();
        self.way_out.as_mut().map(|way_out| way_out.settle(sink)).unwrap_or_default()
    }

    fn set_aside(&mut self) -> Put {
        self.aside.put()
    }

    fn exit(&mut self, status: i32, pumped: &Pumped) -> Result<ProcessExit, SandboxError> {
        // A kernel that is out of the run's memory may choose bubblewrap itself, and then nobody is left to report.
        let out_of_memory = self.seen().out_of_memory > 0;
        if pumped.stopped_by.is_none() && !out_of_memory && bwrap::reported_exit(&self.status.text).is_none() {
            return Err(blocked(&String::from_utf8_lossy(&pumped.stderr.bytes), self.memory_limit));
        }
        Ok(limits::exit_of(status))
    }

    fn seen(&self) -> Seen {
        let look = |confinement: &Confinement| *confinement.seen.get_or_init(|| confinement.group.seen());
        self.group.as_ref().map(look).unwrap_or_default()
    }

    fn hidden(&self) -> &Hidden {
        &self.hidden
    }

    fn enforcement(&self, ended: &Record) -> Enforcement {
        let done = Done::of(ended);
        let mut layers = self.network_layers();
        layers.extend(self.built_by_bubblewrap());
        layers.extend(done.has(Step::OwnMounts).then(|| {
            Layer::applied(own_view::LAYER, "changes to the workspace go to a private layer until they are applied")
        }));
        layers.extend([
            done.layer(Step::NoNewPrivileges, "no_new_privileges", "set-id programs give nothing", "not set"),
            done.layer(Step::User, "user", format!("dropped from root to uid {}", self.uid), "the daemon's own user"),
            done.layer(
                Step::FenceProven,
                "landlock_scope",
                "signals and abstract sockets stay inside the run",
                "this kernel has no such scope; the PID namespace holds signals",
            ),
            done.layer(
                Step::Subreaper,
                "process_tree",
                "every descendant ends with the run",
                "only the process itself",
            ),
            done.layer(
                Step::Rlimits,
                "rlimits",
                format!("CPU, {} bytes of private memory per process, files, no core dumps", self.memory_limit),
                "not set",
            ),
            match &self.group {
                Some(Confinement { is_limited: true, group, limits, .. }) if done.has(Step::Group) => {
                    Layer::applied("cgroup", group.describe(*limits))
                }
                Some(_) => Layer::missing("cgroup", "not entered"),
                None => Layer::missing(
                    "cgroup",
                    format!("{}: memory and processes are limited per process and user", no_group_reason()),
                ),
            },
        ]);
        let egress = match self.egress {
            EgressEnforcementMode::Strict if !self.has_own_network() => EgressEnforcementMode::None,
            mode => mode,
        };
        Enforcement { tier: SandboxTier::C, backend: "bubblewrap", layers, egress, uid: self.uid }
    }
}

fn no_group_reason() -> &'static str {
    super::cgroup::Location::find().err().unwrap_or("none was made")
}

/// Bubblewrap ended before it started the command.
fn blocked(said: &str, memory_limit: u64) -> SandboxError {
    /// Less than it takes itself.
    const LITTLE_MEMORY: u64 = 4 << 20;
    let said = said.lines().find(|line| line.starts_with("bwrap:")).unwrap_or(said).trim();
    if memory_limit < LITTLE_MEMORY {
        let detail = format!("{memory_limit} bytes of memory are too little for it {said}").trim_end().to_owned();
        let fix = format!("a memory limit of at least {LITTLE_MEMORY} bytes");
        return SandboxError::BackendBlocked { backend: "bwrap", detail, fix };
    }
    let detail = if said.is_empty() { "it ended without a word" } else { said }.to_owned();
    SandboxError::BackendBlocked { backend: "bwrap", detail, fix: super::host::namespace_fix().into() }
}

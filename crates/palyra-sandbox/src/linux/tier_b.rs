//! Tier B: a confined child process.
//!
//! It shares the host's file tree, process table and network. What holds it: limits, no new privileges, another user
//! when the daemon is root, a view of the file tree without what is hidden from it, Landlock on files and signals, the
//! seccomp profile, and a supervisor that ends its whole tree.

use super::cgroup::Seen;
use super::grants;
use super::landlock;
use super::launch::{self, ByDescriptor};
use super::limits::{self, Counted};
use super::minimum;
use super::plan::{Doors, Held, Plan, Program, Record, Stack, Step, c_string};
use super::profile::Profile;
use super::report::{Done, shared_network};
use super::run::{self, Backend, Job, PipePairs, Prepared};
use super::seccomp;
use super::workplace::Workplace;
use crate::environment;
use crate::error::SandboxError;
use crate::hidden_files::Hidden;
use crate::outcome::{Enforcement, Layer, ProcessExit};
use crate::policy::{EgressEnforcementMode, SandboxTier};
use crate::pump::{Attendant, Pumped};
use std::sync::Arc;

/// What a host without a mount namespace means.
pub(super) const ATTRIBUTES_REFUSED: &str = "the host's mounts: instead, permissions, owners, times and attributes cannot be changed by path, \
     in the workspace neither";

/// One Tier B run.
#[derive(Debug)]
pub(super) struct TierB {
    _workplace: Workplace,
    uid: u32,
    mapped: usize,
    hidden: Arc<Hidden>,
    /// Whether overlays hide it; Landlock otherwise.
    walled: bool,
    hides_processes: bool,
    egress: EgressEnforcementMode,
    roots: usize,
    memory_limit: u64,
}

/// Prepares a run.
pub(super) fn prepare(job: Job<'_>) -> Result<(TierB, Prepared), SandboxError> {
    let Job { policy, executable, request, roots, working_directory, identity, hidden } = job;
    let view = identity.view;
    let walled = view.as_ref().is_some_and(|view| view.walls.is_some());
    let workplace = Workplace::find(grants::tier_b(&roots)?, identity.user, view.as_deref(), &hidden)?;
    let files = workplace.ruleset();
    let mut environment = environment::compose(policy, &request.env, workplace.directory(), None)?;
    if !walled && !hidden.files.is_empty() {
        // Git ends when it may not read settings that are there.
        environment.insert("GIT_CONFIG_NOSYSTEM".into(), "1".into());
    }
    let mut held = Held::default();
    let ByDescriptor { program, path, argv, inherited } = launch::by_descriptor(policy, executable)?;
    let program = match &view {
        Some(view) if !launch::is_copy(&program) => {
            let seen = view.reopen(&path, &program).ok_or(SandboxError::ExecutableChanged { path })?;
            // What keeps writers away hangs on the descriptor that it was taken with.
            held.hold(program);
            seen
        }
        _ => program,
    };
    let PipePairs { ours, stdio, report } = run::pipes()?;
    let mut plan = Plan {
        program: Program::File(held.hold(program)),
        argv: run::argument_block(&argv)?,
        env: run::environment_block(environment)?,
        working_directory: c_string(&working_directory, "the working directory")?,
        stdio: stdio.map(|fd| held.hold(fd)),
        report: held.hold(report),
        inherited: inherited.into_iter().map(|fd| held.hold(fd)).collect(),
        rlimits: limits::rlimits(policy, Counted::ByUser),
        user_namespace: view.as_ref().and_then(|view| view.users.clone()).map(|fd| held.share(fd)),
        mount_namespace: view.as_ref().map(|view| held.share(Arc::clone(&view.mounts))),
        own_mounts: Vec::new(),
        user: identity.user,
        fence: landlock::fence()?.map(|fd| held.share(fd)),
        files: files.map(|ruleset| held.share(ruleset)),
        seccomp: Some(seccomp::filter(if view.is_some() { Profile::B } else { Profile::BWithoutView })),
        group: Doors::default(),
        required: minimum::steps(policy)?,
        parent: i32::try_from(std::process::id()).unwrap_or(0),
        keep: Vec::new(),
        supervisor_stack: Stack::new(),
        command_stack: Stack::new(),
    };
    plan.keep = held.numbers();
    let backend = TierB {
        uid: identity.uid,
        mapped: view.as_ref().map_or(0, |view| view.mapped),
        hidden,
        walled,
        hides_processes: view.as_ref().is_some_and(|view| view.processes.is_some()),
        egress: policy.egress,
        memory_limit: policy.memory_limit_bytes,
        roots: roots.all().count(),
        _workplace: workplace,
    };
    Ok((backend, Prepared { plan, held, pipes: ours }))
}

impl Attendant for TierB {}

impl Backend for TierB {
    fn exit(&mut self, status: i32, _pumped: &Pumped) -> Result<ProcessExit, SandboxError> {
        Ok(limits::exit_of(status))
    }

    fn seen(&self) -> Seen {
        // Entering a group costs a third of what a process costs; Tier B promises to be cheap, and says what it lacks.
        Seen::default()
    }

    fn hidden(&self) -> &Hidden {
        &self.hidden
    }

    fn enforcement(&self, ended: &Record) -> Enforcement {
        let done = Done::of(ended);
        let abi = landlock::abi();
        let gone = self.hidden.describe();
        let (hides, gone) = match self.walled {
            true => (Step::Mounts, gone),
            false => (Step::Files, format!("{gone} (by Landlock: this host gives no overlays)")),
        };
        let layers = vec![
            done.layer(Step::NoNewPrivileges, "no_new_privileges", "set-id programs give nothing", "not set"),
            done.layer(Step::User, "user", format!("dropped from root to uid {}", self.uid), "the daemon's own user"),
            done.layer(
                Step::Mounts,
                "mount_namespace",
                format!(
                    "everything but writable roots is read-only; {} root(s) with their owner mapped; {}",
                    self.mapped,
                    if self.hides_processes {
                        "only its own processes are shown"
                    } else {
                        "THE HOST'S PROCESSES AND THEIR ARGUMENTS ARE SHOWN"
                    }
                ),
                ATTRIBUTES_REFUSED,
            ),
            done.layer(hides, "hidden_programs", gone, "not hidden"),
            done.layer(
                Step::Files,
                "landlock",
                format!("ABI {abi}, the system and {} root(s) granted", self.roots),
                "not applied",
            ),
            done.layer(
                Step::FenceProven,
                "landlock_scope",
                "signals and abstract sockets stay inside the run",
                "this kernel cannot keep signals inside: processes of the same user can be signalled",
            ),
            done.layer(
                Step::Seccomp,
                "seccomp",
                "deny-list of tier b; no UNIX sockets but connected pairs, no System V objects, no limits or priorities of others",
                "not installed",
            ),
            done.layer(
                Step::Subreaper,
                "process_tree",
                "every descendant ends with the run",
                "only the process itself",
            ),
            done.layer(Step::Session, "session", "own session and process group", "the daemon's"),
            done.layer(
                Step::Rlimits,
                "rlimits",
                format!(
                    "CPU, {} bytes of private memory per process, files, processes, no core dumps",
                    self.memory_limit
                ),
                "not set",
            ),
            Layer::missing("cgroup", "memory and processes are limited per process and user, not for the tree"),
            Layer::missing("network_namespace", shared_network(self.egress)),
        ];
        Enforcement { tier: SandboxTier::B, backend: "linux-process", layers, egress: self.egress, uid: self.uid }
    }
}

//! Tier B: a confined child process.
//!
//! It shares the host's file tree, process table and network. What holds it: limits, no new privileges, another user when
//! the daemon is root, Landlock on files and signals, the seccomp profile, and a supervisor that ends its whole tree.

use super::grants;
use super::landlock;
use super::limits;
use super::plan::{Plan, Program, Record, Step, c_string};
use super::pump::{Pipes, Pumped};
use super::report::Done;
use super::run::{self, Backend, Job, PipePairs};
use super::scratch::Scratch;
use super::seccomp;
use crate::environment;
use crate::error::SandboxError;
use crate::outcome::{Enforcement, Layer, ProcessExit};
use crate::policy::{EgressEnforcementMode, SandboxTier};

/// One Tier B run.
#[derive(Debug)]
pub(super) struct TierB {
    _scratch: Scratch,
    uid: u32,
    mapped: usize,
    egress: EgressEnforcementMode,
    grants: usize,
    memory_limit: u64,
}

/// Prepares a run.
pub(super) fn prepare(job: Job<'_>) -> Result<(TierB, Plan, Pipes), SandboxError> {
    let Job { policy, executable, request, roots, working_directory, identity } = job;
    let scratch = Scratch::create(identity.user)?;
    let grants = grants::tier_b(&roots, scratch.path())?;
    let files = landlock::files(&grants)?;
    if files.is_none() && identity.user.is_none() {
        // Same user, no walls around files: the daemon's own state would be open to it.
        let source = std::io::Error::from(std::io::ErrorKind::Unsupported);
        return Err(SandboxError::LayerUnavailable { layer: "landlock", source });
    }
    let environment = environment::compose(policy, &request.env, scratch.path())?;
    let file = run::hold(executable)?;
    let program = if executable.is_script() {
        Program::Path(c_string(executable.path(), "the program")?)
    } else {
        Program::File(file)
    };
    let PipePairs { ours, stdio, report } = run::pipes()?;
    let backend = TierB {
        uid: identity.uid(),
        mapped: identity.mapped.len(),
        egress: policy.egress,
        grants: grants.len(),
        memory_limit: policy.memory_limit_bytes,
        _scratch: scratch,
    };
    let plan = Plan {
        program,
        argv: run::argument_block(&request.argv)?,
        env: run::environment_block(environment)?,
        working_directory: c_string(&working_directory, "the working directory")?,
        stdio,
        report,
        inherited: Vec::new(),
        rlimits: limits::rlimits(policy),
        mounts: identity.mounts,
        user: identity.user,
        fence: landlock::fence()?,
        files,
        seccomp: Some(seccomp::filter(SandboxTier::B)),
        control_groups: Vec::new(),
        parent: i32::try_from(std::process::id()).unwrap_or(0),
        keep: Vec::new(),
        stack: Plan::fresh_stack(),
    };
    Ok((backend, plan, ours))
}

impl Backend for TierB {
    fn exit(&mut self, status: i32, _pumped: &Pumped) -> Result<ProcessExit, SandboxError> {
        Ok(limits::exit_of(status))
    }

    fn enforcement(&self, ended: &Record) -> Enforcement {
        let done = Done::of(ended);
        let abi = landlock::abi();
        let layers = vec![
            done.layer(Step::NoNewPrivileges, "no_new_privileges", "set-id programs give nothing", "not set"),
            done.layer(Step::User, "user", format!("dropped from root to uid {}", self.uid), "the daemon's own user"),
            done.layer(
                Step::Mounts,
                "mount_namespace",
                format!("{} root(s) attached with their owner mapped", self.mapped),
                "the host's mounts",
            ),
            done.layer(
                Step::Files,
                "landlock",
                format!("ABI {abi}, the system and {} directories granted", self.grants),
                "this kernel has none: only file permissions hold",
            ),
            done.layer(
                Step::FenceProven,
                "landlock_scope",
                "signals and abstract sockets stay inside the run",
                "this kernel cannot keep signals inside: processes of the same user can be signalled",
            ),
            done.layer(Step::Seccomp, "seccomp", "deny-list of tier b; no UNIX sockets", "not installed"),
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
            Layer::missing("network_namespace", "the host's network; egress is not enforced by the kernel in tier b"),
        ];
        Enforcement { tier: SandboxTier::B, backend: "linux-process", layers, egress: self.egress, uid: self.uid }
    }
}

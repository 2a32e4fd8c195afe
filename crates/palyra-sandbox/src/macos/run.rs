//! One run from beginning to end: check, write the profile, start, pump, tell.

use super::{SANDBOX_EXEC, paths};
use crate::environment;
use crate::error::SandboxError;
use crate::executable::{FileIdentity, ProgramFile, ResolvedExecutable};
use crate::guards::{self, Guard};
use crate::hidden_files::Hidden;
use crate::hosts::check_hosts;
use crate::minimum;
use crate::outcome::{EgressCount, Enforcement, Layer, LimitHit, OutputSink, ProcessExit, ProcessOutcome};
use crate::policy::{EgressEnforcementMode, ProcessRequest, SandboxProcessRunnerPolicy, SandboxTier};
use crate::process_group::{self, Ended, Start};
use crate::pump::{self, Bounds, Pumped};
use crate::roots::Roots;
use crate::scratch::Scratch;
use crate::seatbelt::{self, Blueprint, Network};
use palyra_egress::CancelSignal;
use rustix::process::Resource;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// How `sandbox-exec` ends when it could not do its work: the codes of sysexits.
const OWN_FAILURES: std::ops::RangeInclusive<i32> = 64..=78;

/// Runs a process to its end.
pub(crate) fn run(
    policy: &SandboxProcessRunnerPolicy,
    executable: &ResolvedExecutable,
    request: &ProcessRequest,
    cancel: &CancelSignal,
    sink: &mut dyn OutputSink,
) -> Result<ProcessOutcome, SandboxError> {
    let started = Instant::now();
    check_host(policy)?;
    if request.argv.is_empty() {
        return Err(SandboxError::EmptyCommand);
    }
    check_hosts(policy, &request.argv, &request.requested_egress_hosts)?;
    let roots = paths::roots(&Roots::resolve(policy)?)?;
    let working_directory = roots.working_directory(&request.working_directory)?;
    let scratch = Scratch::create(None)?;
    let scratch_path = paths::of_kernel(scratch.path()).map_err(SandboxError::io("name the private directory"))?;
    let guarded = guards::guards(&roots);
    let network = Network::of(policy.egress);
    let hidden = Hidden::of(policy, &roots);
    let hidden_paths = paths::hidden(&hidden)?;
    let profile = seatbelt::profile(&Blueprint {
        roots: &roots,
        guarded: &guarded,
        hidden: &hidden_paths,
        scratch: &scratch_path,
        network,
    })?;
    let mut environment = environment::compose(policy, &request.env, &scratch_path, None)?;
    if !hidden.files.is_empty() {
        // Git ends when it may not read settings that are there.
        environment.insert("GIT_CONFIG_NOSYSTEM".into(), "1".into());
    }
    let arguments = seatbelt::arguments(profile, executable.called(), &request.argv);
    check_executable(executable)?;
    let enforcement = enforcement(policy, &roots, &guarded, &hidden);
    minimum::demand(&policy.required_layers, &enforcement.layers)?;
    let start = Start {
        program: Path::new(SANDBOX_EXEC),
        arguments: &arguments,
        environment: &environment,
        working_directory: &working_directory,
        limits: &limits(policy),
    };
    let failed = |source| SandboxError::StartFailed { path: executable.path().to_owned(), source };
    let (mut group, pipes) = process_group::start(&start).map_err(failed)?;
    let bounds = Bounds {
        started,
        wall_clock: Duration::from_millis(policy.wall_clock_limit_ms),
        max_output: policy.max_output_bytes,
    };
    let pumped = pump::pump(&mut group, pipes, &request.stdin, bounds, cancel, &mut (), sink)?;
    let lost = || SandboxError::Io { action: "learn how the process ended", source: io::ErrorKind::NotFound.into() };
    let ended = group.ended().ok_or_else(lost)?;
    if let Some(said) = own_failure(&ended, &pumped) {
        return Err(blocked(said));
    }
    Ok(ProcessOutcome {
        egress: EgressCount::default(),
        set_aside: Vec::new(),
        not_set_aside: Vec::new(),
        exit: ended.exit,
        ended_by: pumped.stopped_by.or_else(|| limit_hit(policy, &ended)),
        missing_programs: hidden.missed(ended.exit, &pumped.stdout, &pumped.stderr),
        enforcement,
        stdout: pumped.stdout,
        stderr: pumped.stderr,
        duration: started.elapsed(),
        cpu_time: ended.cpu_time,
        peak_memory_bytes: ended.peak_memory_bytes,
    })
}

fn check_host(policy: &SandboxProcessRunnerPolicy) -> Result<(), SandboxError> {
    if policy.tier == SandboxTier::B && policy.egress == EgressEnforcementMode::Strict {
        return Err(SandboxError::EgressNeedsTierC);
    }
    if policy.egress == EgressEnforcementMode::Strict && policy.egress_rules.need_a_proxy() {
        // Nothing would leave, where the policy says that something may: said rather than found out.
        let detail = "strict egress with rules needs the proxy, which runs on Linux only; \
                      use strict without rules (nothing leaves) or egress mode `preflight`";
        return Err(SandboxError::Unsupported { tier: policy.tier, detail: detail.into() });
    }
    if !Path::new(SANDBOX_EXEC).exists() {
        let fix = "it is part of macOS: reinstall the system, or run the daemon on a host that has it".into();
        return Err(SandboxError::BackendMissing { backend: "sandbox-exec", fix });
    }
    if rustix::process::geteuid().is_root() {
        let detail = "the daemon is root and macOS has no user to drop to; start it as an ordinary user".into();
        return Err(SandboxError::Unsupported { tier: policy.tier, detail });
    }
    Ok(())
}

/// macOS cannot execute an open file: the identity is compared as late as possible instead.
fn check_executable(executable: &ResolvedExecutable) -> Result<(), SandboxError> {
    let is_same = |file: &ProgramFile| FileIdentity::at(&file.path).is_ok_and(|now| now == file.identity);
    let same = executable.files().all(is_same);
    let leads_there = fs::canonicalize(executable.called()).is_ok_and(|path| path == executable.path());
    if same && leads_there {
        return Ok(());
    }
    Err(SandboxError::ExecutableChanged { path: executable.path().to_owned() })
}

/// What the kernel limits. Memory is not among it: macOS takes such limits and ignores them.
fn limits(policy: &SandboxProcessRunnerPolicy) -> [(Resource, u64); 5] {
    [
        (Resource::Cpu, cpu_seconds(policy)),
        (Resource::Fsize, policy.max_file_size_bytes),
        (Resource::Nofile, policy.max_open_files.max(8)),
        // Counted per user; the policy's number is room for the run alone, so the user's other processes are added.
        (Resource::Nproc, policy.max_processes.saturating_add(process_group::user_processes())),
        (Resource::Core, 0),
    ]
}

fn cpu_seconds(policy: &SandboxProcessRunnerPolicy) -> u64 {
    policy.cpu_time_limit_ms.div_ceil(1000).max(1)
}

fn limit_hit(policy: &SandboxProcessRunnerPolicy, ended: &Ended) -> Option<LimitHit> {
    match ended.exit {
        ProcessExit::Code(0) => None,
        ProcessExit::Signal(libc::SIGXCPU) => Some(LimitHit::CpuTime),
        ProcessExit::Signal(libc::SIGXFSZ) => Some(LimitHit::FileSize),
        _ if ended.cpu_time >= Duration::from_secs(cpu_seconds(policy)) => Some(LimitHit::CpuTime),
        _ => None,
    }
}

/// What `sandbox-exec` itself said when it failed. A command can imitate that, and gains nothing: its run counts as
/// refused.
fn own_failure<'a>(ended: &Ended, pumped: &'a Pumped) -> Option<&'a [u8]> {
    let ProcessExit::Code(code) = ended.exit else { return None };
    let said = pumped.stderr.bytes.as_slice();
    (OWN_FAILURES.contains(&code) && pumped.stdout.total_bytes == 0 && said.starts_with(b"sandbox-exec: "))
        .then_some(said)
}

fn blocked(said: &[u8]) -> SandboxError {
    let said = String::from_utf8_lossy(said);
    SandboxError::BackendBlocked {
        backend: "sandbox-exec",
        detail: said.lines().next().unwrap_or_default().to_owned(),
        fix: "start the daemon outside any other sandbox; `palyra sandbox detect` tries it".into(),
    }
}

/// The profile and the limits are set before the command is executed, or it is not executed; so a run that was not
/// refused had them.
fn enforcement(policy: &SandboxProcessRunnerPolicy, roots: &Roots, guarded: &[Guard], hidden: &Hidden) -> Enforcement {
    let network = match Network::of(policy.egress) {
        Network::Host => Layer::missing(
            "network",
            "THE HOST'S NETWORK IS SHARED: the process can reach every host this machine can; sockets of the host are closed",
        ),
        Network::Nothing => Layer::applied("network", "denied by the profile: nothing leaves"),
        Network::Proxy(port) => Layer::applied("network", format!("denied by the profile but for the proxy at {port}")),
    };
    let layers = vec![
        network,
        Layer::applied(
            "seatbelt",
            format!("denied by default; the system and {} root(s) allowed", roots.all().count()),
        ),
        Layer::applied("hidden_programs", format!("{}; denied by the profile", hidden.describe())),
        Layer::applied("protected_paths", format!("{} path(s) denied last", roots.protected.len())),
        Layer::applied(
            "guarded_paths",
            format!("{} existing path(s) of the workspace kept from change", guarded.len()),
        ),
        Layer::missing("set_aside", "guarded paths that did not exist at the start can be made, and stay"),
        Layer::applied("session", "own session and process group, ended with the run"),
        Layer::applied("rlimits", "CPU per process, file size, open files, processes of the user, no core dumps"),
        Layer::missing("memory_limit", "macOS enforces no limit on memory: neither per process nor for the tree"),
        Layer::missing(
            "process_tree",
            "a process that starts a session of its own is not ended with the run; the profile stays on it",
        ),
        Layer::missing(
            "pid_namespace",
            "other processes can be seen to exist; the profile keeps signals inside the run",
        ),
        Layer::missing("user", "the daemon's own user"),
        Layer::missing(
            "executable_pinned",
            "the program's identity was compared just before the start; macOS cannot execute an open file",
        ),
    ];
    Enforcement {
        tier: policy.tier,
        backend: "sandbox-exec",
        layers,
        egress: policy.egress,
        uid: rustix::process::geteuid().as_raw(),
    }
}

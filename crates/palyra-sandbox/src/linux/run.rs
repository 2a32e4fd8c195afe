//! One run from beginning to end: check, prepare, start, pump, tell.

use super::cgroup::Seen;
use super::grants::Roots;
use super::held_files::Put;
use super::identity::{self, Identity};
use super::limits;
use super::plan::{CStrings, Held, Plan, Program, Record, TAG_ENDED, TAG_FAILED, c_string};
use super::report;
use super::sys;
use super::view::Needs;
use super::{tier_b, tier_c};
use crate::error::SandboxError;
use crate::executable::ResolvedExecutable;
use crate::hidden_files::Hidden;
use crate::hosts::check_hosts;
use crate::outcome::{EgressCount, Enforcement, OutputSink, ProcessExit, ProcessOutcome};
use crate::policy::{EgressEnforcementMode, ProcessRequest, SandboxProcessRunnerPolicy, SandboxTier};
use crate::pump::{self, Attendant, Bounds, Pipes, Pumped, Tree};
use palyra_egress::CancelSignal;
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What both tiers start from.
#[derive(Debug)]
pub(super) struct Job<'a> {
    pub(super) policy: &'a SandboxProcessRunnerPolicy,
    pub(super) executable: &'a ResolvedExecutable,
    pub(super) request: &'a ProcessRequest,
    pub(super) roots: Roots,
    pub(super) working_directory: PathBuf,
    pub(super) identity: Identity,
    pub(super) hidden: Arc<Hidden>,
}

/// A run that is ready to start.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) plan: Plan,
    pub(super) held: Held,
    pub(super) pipes: OurPipes,
}

/// What a tier makes of a job: a plan for the child, and how to read the end of it.
pub(super) trait Backend: Attendant {
    /// Ends what it attended to, when every process is gone, and counts the connections that were made.
    fn settle(&mut self, sink: &mut dyn OutputSink) -> EgressCount {
        let _nothing_to_tell = sink;
        EgressCount::default()
    }
    /// Sets aside what the run may not leave where it is.
    fn set_aside(&mut self) -> Put {
        Put::default()
    }
    /// Judges a run that ended: its exit, or that the backend itself failed.
    fn exit(&mut self, status: i32, pumped: &Pumped) -> Result<ProcessExit, SandboxError>;
    /// What a control group saw.
    fn seen(&self) -> Seen;
    /// What was hidden from it.
    fn hidden(&self) -> &Hidden;
    /// What really held.
    fn enforcement(&self, ended: &Record) -> Enforcement;
}

/// Runs a process to its end.
pub(crate) fn run(
    policy: &SandboxProcessRunnerPolicy,
    executable: &ResolvedExecutable,
    request: &ProcessRequest,
    cancel: &CancelSignal,
    sink: &mut dyn OutputSink,
) -> Result<ProcessOutcome, SandboxError> {
    let started = Instant::now();
    let job = check(policy, executable, request)?;
    match policy.tier {
        SandboxTier::B => {
            let (mut backend, prepared) = tier_b::prepare(job)?;
            finish(policy, executable, request, &mut backend, prepared, Watch { started, cancel, sink })
        }
        SandboxTier::C => {
            let (mut backend, prepared) = tier_c::prepare(job)?;
            finish(policy, executable, request, &mut backend, prepared, Watch { started, cancel, sink })
        }
    }
}

/// Everything that can be said about a run before it is prepared.
pub(super) fn check<'a>(
    policy: &'a SandboxProcessRunnerPolicy,
    executable: &'a ResolvedExecutable,
    request: &'a ProcessRequest,
) -> Result<Job<'a>, SandboxError> {
    if request.argv.is_empty() {
        return Err(SandboxError::EmptyCommand);
    }
    if policy.tier == SandboxTier::B && policy.egress == EgressEnforcementMode::Strict {
        return Err(SandboxError::EgressNeedsTierC);
    }
    check_hosts(policy, &request.argv, &request.requested_egress_hosts)?;
    let roots = Roots::resolve(policy)?;
    let working_directory = roots.working_directory(&request.working_directory)?;
    let hidden = Hidden::of(policy, &roots);
    if request.view.is_some() && policy.tier == SandboxTier::B {
        let source = std::io::Error::other("Tier B's rules name the workspace's own files, which a view replaces");
        return Err(SandboxError::LayerUnavailable { layer: super::own_view::LAYER, source });
    }
    if (!request.secrets.is_empty() || request.package.is_some()) && policy.tier == SandboxTier::B {
        let source = std::io::Error::other(
            "secrets and packages go to runs of Tier C alone, whose files and network are their own",
        );
        return Err(SandboxError::LayerUnavailable { layer: super::trust::LAYER, source });
    }
    let needs = if request.view.is_some() { Needs::OwnMounts } else { Needs::Nothing };
    let identity = identity::choose(&roots, policy.tier, &hidden, needs)?;
    Ok(Job { policy, executable, request, roots, working_directory, identity, hidden })
}

/// Our ends of a run's pipes.
#[derive(Debug)]
pub(super) struct OurPipes {
    streams: Pipes,
    /// Where the supervisor tells what it did.
    report: OwnedFd,
}

/// The pipes of a run, ours and the child's.
pub(super) struct PipePairs {
    pub(super) ours: OurPipes,
    pub(super) stdio: [OwnedFd; 3],
    pub(super) report: OwnedFd,
}

pub(super) fn pipes() -> Result<PipePairs, SandboxError> {
    let (stdin_read, stdin) = pipe()?;
    let (stdout, stdout_write) = pipe()?;
    let (stderr, stderr_write) = pipe()?;
    let (report, report_write) = pipe()?;
    for ours in [&stdin, &stdout, &stderr, &report] {
        rustix::io::ioctl_fionbio(ours, true)
            .map_err(|e| SandboxError::Io { action: "prepare a pipe", source: e.into() })?;
    }
    Ok(PipePairs {
        ours: OurPipes { streams: Pipes { stdin, stdout, stderr }, report },
        stdio: [stdin_read, stdout_write, stderr_write],
        report: report_write,
    })
}

/// A pipe whose ends lie above the standard descriptors, whatever of those the daemon has closed.
pub(super) fn pipe() -> Result<(OwnedFd, OwnedFd), SandboxError> {
    let fault = |e: Errno| SandboxError::Io { action: "create a pipe", source: e.into() };
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(fault)?;
    let lift = |fd: OwnedFd| {
        if std::os::fd::AsRawFd::as_raw_fd(&fd) > 2 {
            Ok(fd)
        } else {
            rustix::io::fcntl_dupfd_cloexec(&fd, 3).map_err(fault)
        }
    };
    Ok((lift(read)?, lift(write)?))
}

/// The environment in the form that execve takes.
pub(super) fn environment_block(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<CStrings, SandboxError> {
    let mut strings = Vec::new();
    for (mut line, value) in environment {
        line.push("=");
        line.push(value);
        strings.push(c_string(line, "an environment variable")?);
    }
    Ok(CStrings::new(strings))
}

/// The argument list in the form that execve takes.
pub(super) fn argument_block<S: AsRef<std::ffi::OsStr>>(words: &[S]) -> Result<CStrings, SandboxError> {
    let strings = words.iter().map(|word| c_string(word, "an argument")).collect::<Result<_, _>>()?;
    Ok(CStrings::new(strings))
}

impl Tree for sys::Supervisor<'_> {
    fn over(&self) -> BorrowedFd<'_> {
        self.pidfd().as_fd()
    }

    fn stop(&mut self) {
        sys::Supervisor::stop(self);
    }

    fn reap(&mut self) {
        sys::Supervisor::reap(self);
    }

    fn abandon(&mut self) {
        self.kill();
        sys::Supervisor::reap(self);
    }

    fn write(&self, pipe: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
        sys::write_quietly(pipe, bytes)
    }
}

/// The one record that the supervisor leaves behind.
fn read_report(report: &OwnedFd) -> Option<Record> {
    let mut bytes = [0u8; Record::BYTES];
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::io::read(report, &mut bytes[filled..]) {
            Ok(0) => return None,
            Ok(length) => filled += length,
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    Record::parse(&bytes)
}

/// What happens around a run.
struct Watch<'a> {
    started: Instant,
    cancel: &'a CancelSignal,
    sink: &'a mut dyn OutputSink,
}

fn finish(
    policy: &SandboxProcessRunnerPolicy,
    executable: &ResolvedExecutable,
    request: &ProcessRequest,
    backend: &mut dyn Backend,
    prepared: Prepared,
    watch: Watch<'_>,
) -> Result<ProcessOutcome, SandboxError> {
    let Prepared { plan, held, pipes } = prepared;
    let mut supervisor = sys::start_supervisor(&plan).map_err(SandboxError::io("start a process"))?;
    // While we hold the child's ends of the pipes, no stream ends.
    drop(held);
    let program = match &plan.program {
        Program::File(_) => executable.path().to_owned(),
        Program::Path(path) => PathBuf::from(path.to_string_lossy().into_owned()),
    };
    let bounds = Bounds {
        started: watch.started,
        wall_clock: Duration::from_millis(policy.wall_clock_limit_ms),
        max_output: policy.max_output_bytes,
    };
    let OurPipes { streams, report } = pipes;
    let pumped = pump::pump(&mut supervisor, streams, &request.stdin, bounds, watch.cancel, backend, watch.sink);
    // Ends whatever an error left running: what a run did is dealt with however it ended.
    drop(supervisor);
    let egress = backend.settle(watch.sink);
    let Put { moved: set_aside, left: not_set_aside } = backend.set_aside();
    let pumped = pumped?;
    let record = read_report(&report);
    if let Some(failed) = record.filter(|record| record.tag == TAG_FAILED) {
        return Err(report::start_error(&failed, &program, &request.working_directory));
    }
    let lost = || SandboxError::Io {
        action: "follow the process: its supervisor was killed",
        source: std::io::ErrorKind::BrokenPipe.into(),
    };
    let ended = record.filter(|record| record.tag == TAG_ENDED).ok_or_else(lost)?;
    let exit = backend.exit(i32::try_from(ended.value).unwrap_or(-1), &pumped)?;
    let seen = backend.seen();
    let ended_by = pumped.stopped_by;
    let ended_by =
        ended_by.or_else(|| seen.limit_hit(exit.success())).or_else(|| limits::limit_hit(policy, exit, &ended));
    let largest_process = u64::try_from(ended.peak_kib).unwrap_or(0).saturating_mul(1024);
    Ok(ProcessOutcome {
        exit,
        ended_by,
        egress,
        set_aside,
        not_set_aside,
        missing_programs: backend.hidden().missed(exit, &pumped.stdout, &pumped.stderr),
        enforcement: backend.enforcement(&ended),
        stdout: pumped.stdout,
        stderr: pumped.stderr,
        duration: watch.started.elapsed(),
        cpu_time: Duration::from_micros(u64::try_from(ended.cpu_us).unwrap_or(0)),
        peak_memory_bytes: seen.peak_bytes.unwrap_or(largest_process),
    })
}

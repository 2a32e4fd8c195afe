//! One run from beginning to end: check, try what the token reaches, start held back, put into the job, let go, listen,
//! tell.
//!
//! Windows cannot wait for pipes, processes and messages at once. So a thread waits for each and sends what happened to
//! the one place that listens; there is one deadline, and nothing looks at anything from time to time.

use super::command_line::command_line;
use super::environment_block::environment_block;
use super::job::{Job, Used};
use super::limits::{self, NO_PROCESS_LEFT, job_limits, limit_of_message};
use super::process::{self, Start};
use super::scratch::Scratch;
use super::token::RestrictedToken;
use super::{file, reach, report};
use crate::environment;
use crate::error::SandboxError;
use crate::executable::{ProgramFile, ResolvedExecutable};
use crate::hosts::check_hosts;
use crate::outcome::{
    CapturedStream, EgressCount, KILL_GRACE, LimitHit, OutputSink, OutputStream, ProcessExit, ProcessOutcome,
};
use crate::policy::{EgressEnforcementMode, ProcessRequest, SandboxProcessRunnerPolicy, SandboxTier};
use crate::roots::Roots;
use palyra_egress::CancelSignal;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::windows::ffi::OsStrExt;
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::OwnedHandle;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Others may read the file, not write, move or remove it.
const FILE_SHARE_READ: u32 = 1;
const READ_BYTES: usize = 64 * 1024;
/// Messages that may wait. When there are more, whoever reads the output waits, and so does the process that writes it.
const MOST_WAITING: usize = 32;

/// What happened.
enum Event {
    Output(OutputStream, Vec<u8>),
    Closed,
    Exited,
    Job(u32),
    Cancelled,
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
    check_promises(policy)?;
    let Some((_, arguments)) = request.argv.split_first() else { return Err(SandboxError::EmptyCommand) };
    check_hosts(policy, &request.argv, &request.requested_egress_hosts)?;
    let roots = Roots::resolve(policy)?;
    let working_directory = roots.working_directory(&request.working_directory)?;
    let unavailable = |layer| move |source| SandboxError::LayerUnavailable { layer, source };
    let token = RestrictedToken::create().map_err(unavailable("restricted_token"))?;
    reach::check(policy, &roots, &token)?;
    let scratch = Scratch::create(&token)?;
    let environment = environment::compose(policy, &request.env, &plain(scratch.path()), None)?;
    let wide = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        (name.encode_wide().collect::<Vec<u16>>(), value.encode_wide().collect::<Vec<u16>>())
    };
    let environment = environment_block(environment.into_iter().map(wide))?;
    let limits = job_limits(policy);
    let job = Arc::new(Job::create(limits).map_err(unavailable("job_object"))?);
    let _pinned = pin(executable)?;
    crate::minimum::demand(&policy.required_layers, &report::enforcement(policy, &roots, &token, limits).layers)?;
    let program = plain(executable.path());
    let name = program.to_str().ok_or_else(|| SandboxError::NotExecutable { path: executable.path().to_owned() })?;
    let command_line = command_line(name, arguments)?;
    let failed = |source| SandboxError::StartFailed { path: executable.path().to_owned(), source };
    let (streams, ours) = pipes().map_err(SandboxError::io("create a pipe"))?;
    let working_directory = plain(&working_directory);
    let suspended = process::start(Start {
        token: token.handle(),
        program: &program,
        command_line,
        environment: &environment,
        working_directory: &working_directory,
        streams,
    })
    .map_err(failed)?;
    job.take_in(suspended.process().map_err(failed)?).map_err(unavailable("job_object"))?;
    let running = Arc::new(suspended.resume().map_err(failed)?);
    let (sender, events) = sync_channel(MOST_WAITING);
    let listening = Listening(Arc::clone(&job));
    listen(&job, &running, ours, request.stdin.clone(), &sender).map_err(SandboxError::io("start a thread"))?;
    cancel.tell(move || drop(sender.send(Event::Cancelled)));
    let heard = hear(policy, started, &job, &events, sink)?;
    drop(listening);
    let exit = ProcessExit::Code(process::exit_code(&running).map_err(SandboxError::io("ask for the exit code"))?);
    let Used { cpu_time, peak_memory_bytes, .. } = job.used().map_err(SandboxError::io("ask what the job used"))?;
    Ok(ProcessOutcome {
        egress: EgressCount::default(),
        set_aside: Vec::new(),
        not_set_aside: Vec::new(),
        missing_programs: None,
        exit,
        ended_by: heard.stopped_by.or_else(|| limits::limit_hit(&heard.told, exit)),
        stdout: heard.stdout,
        stderr: heard.stderr,
        duration: started.elapsed(),
        cpu_time,
        peak_memory_bytes,
        enforcement: report::enforcement(policy, &roots, &token, limits),
    })
}

/// What cannot be kept here is not begun.
fn check_promises(policy: &SandboxProcessRunnerPolicy) -> Result<(), SandboxError> {
    let unsupported = |detail: &str| Err(SandboxError::Unsupported { tier: policy.tier, detail: detail.to_owned() });
    match (policy.tier, policy.egress) {
        (SandboxTier::B, EgressEnforcementMode::Strict) => Err(SandboxError::EgressNeedsTierC),
        (SandboxTier::B, _) => {
            unsupported("on Windows a process without a restricted token could read the daemon's state; use tier c")
        }
        (SandboxTier::C, EgressEnforcementMode::Strict) => unsupported(
            "strict egress cannot be enforced by a job object; use egress mode `preflight`, or run the daemon on Linux or macOS",
        ),
        (SandboxTier::C, EgressEnforcementMode::None | EgressEnforcementMode::Preflight) => Ok(()),
    }
}

/// Holds the files that were looked at, so that nobody can change or replace them while the first one starts.
fn pin(executable: &ResolvedExecutable) -> Result<Vec<File>, SandboxError> {
    let pin = |program: &ProgramFile| {
        let changed = || SandboxError::ExecutableChanged { path: program.path.clone() };
        let file = File::options().read(true).share_mode(FILE_SHARE_READ).open(&program.path).map_err(|_| changed())?;
        let same = file::identity(&file).map_err(|_| changed())? == program.identity;
        if same { Ok(file) } else { Err(changed()) }
    };
    executable.files().map(pin).collect()
}

/// A path without the prefix that canonical ones have, where the rest means the same: many programs do not understand
/// it.
pub(super) fn plain(path: &Path) -> PathBuf {
    let text = path.to_str().and_then(|text| text.strip_prefix(r"\\?\"));
    match text {
        Some(text) if text.as_bytes().get(1) == Some(&b':') => PathBuf::from(text),
        _ => path.to_owned(),
    }
}

/// Our ends of the pipes.
struct OurEnds {
    stdin: PipeWriter,
    stdout: PipeReader,
    stderr: PipeReader,
}

fn pipes() -> io::Result<([OwnedHandle; 3], OurEnds)> {
    let (stdin, our_stdin) = io::pipe()?;
    let (our_stdout, stdout) = io::pipe()?;
    let (our_stderr, stderr) = io::pipe()?;
    let ours = OurEnds { stdin: our_stdin, stdout: our_stdout, stderr: our_stderr };
    Ok(([stdin.into(), stdout.into(), stderr.into()], ours))
}

/// Wakes the thread that waits for messages of the job, and ends whatever an error path left running.
struct Listening(Arc<Job>);

impl Drop for Listening {
    fn drop(&mut self) {
        // A job without processes has nothing to end.
        let _ended = self.0.end();
        self.0.stop_listening();
    }
}

/// Starts the threads that wait. Each ends when what it waits for does: the job's end closes the pipes and the process.
fn listen(
    job: &Arc<Job>,
    running: &Arc<OwnedHandle>,
    ours: OurEnds,
    input: Vec<u8>,
    sender: &SyncSender<Event>,
) -> io::Result<()> {
    let spawn = |act: Box<dyn FnOnce() + Send>| std::thread::Builder::new().name("palyra-run".into()).spawn(act);
    let OurEnds { mut stdin, stdout, stderr } = ours;
    // What the process does not want to read is not an error.
    spawn(Box::new(move || drop(stdin.write_all(&input))))?;
    let out = sender.clone();
    spawn(Box::new(move || forward(stdout, OutputStream::Stdout, &out)))?;
    let err = sender.clone();
    spawn(Box::new(move || forward(stderr, OutputStream::Stderr, &err)))?;
    let (running, exited) = (Arc::clone(running), sender.clone());
    spawn(Box::new(move || {
        // Whatever the wait says, it is over: the listener ends the job then, and asks the process itself how it ended.
        let _waited = process::wait(&running);
        drop(exited.send(Event::Exited));
    }))?;
    let (job, told) = (Arc::clone(job), sender.clone());
    spawn(Box::new(move || {
        while let Ok(Some(message)) = job.next_message() {
            if told.send(Event::Job(message)).is_err() {
                return;
            }
        }
    }))?;
    Ok(())
}

/// Sends what comes out of a stream until it ends or nobody listens.
fn forward(mut stream: PipeReader, which: OutputStream, sender: &SyncSender<Event>) {
    let mut buffer = vec![0; READ_BYTES];
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        if sender.send(Event::Output(which, buffer[..length].to_vec())).is_err() {
            return;
        }
    }
    drop(sender.send(Event::Closed));
}

/// What was heard until the end.
#[derive(Debug, Default)]
struct Heard {
    stdout: CapturedStream,
    stderr: CapturedStream,
    stopped_by: Option<LimitHit>,
    told: Vec<LimitHit>,
    exited: bool,
    empty: bool,
    closed: usize,
}

fn hear(
    policy: &SandboxProcessRunnerPolicy,
    started: Instant,
    job: &Job,
    events: &Receiver<Event>,
    sink: &mut dyn OutputSink,
) -> Result<Heard, SandboxError> {
    let mut heard = Heard::default();
    let mut deadline = started + Duration::from_millis(policy.wall_clock_limit_ms);
    let mut ending = false;
    while !(heard.exited && heard.empty && heard.closed == 2) {
        let event = match events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(event) => Some(event),
            // Every sender is gone: all that could be heard was.
            Err(RecvTimeoutError::Disconnected) => return Ok(heard),
            Err(RecvTimeoutError::Timeout) => None,
        };
        let stop = event.and_then(|event| heard.take(event, policy.max_output_bytes, sink));
        let late = Instant::now() >= deadline;
        if ending && late {
            // A stream that was handed out of the job is not waited for; a process is.
            let left = job.used().map_err(SandboxError::io("ask what the job used"))?.active_processes;
            let stuck = SandboxError::TreeStuck { seconds: KILL_GRACE.as_secs() };
            return if left == 0 && heard.exited { Ok(heard) } else { Err(stuck) };
        }
        let reason = stop.or(late.then_some(LimitHit::WallClock));
        if !ending && (heard.exited || reason.is_some()) {
            ending = true;
            heard.stopped_by = reason.filter(|_| !heard.exited);
            job.end().map_err(SandboxError::io("end the job"))?;
            deadline = Instant::now() + KILL_GRACE;
        }
    }
    Ok(heard)
}

impl Heard {
    /// Takes an event; returns why the run has to be stopped, if it is for this.
    fn take(&mut self, event: Event, limit: u64, sink: &mut dyn OutputSink) -> Option<LimitHit> {
        match event {
            Event::Output(which, bytes) => {
                let stream = match which {
                    OutputStream::Stdout => &mut self.stdout,
                    OutputStream::Stderr => &mut self.stderr,
                };
                stream.keep(which, &bytes, limit, sink);
                return stream.is_flood(limit).then_some(LimitHit::Output);
            }
            Event::Closed => self.closed += 1,
            Event::Exited => self.exited = true,
            Event::Job(NO_PROCESS_LEFT) => self.empty = true,
            Event::Job(message) => self.told.extend(limit_of_message(message)),
            Event::Cancelled => return Some(LimitHit::Cancelled),
        }
        None
    }
}

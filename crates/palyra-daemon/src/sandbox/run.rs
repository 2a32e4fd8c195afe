//! `sandbox run`: a command in the sandbox, tied to our streams, its exit code passed on.

use super::streams::{self, Connections, Written};
use super::{Refused, policy, tell};
use crate::serve::Setup;
use palyra_api::command_line::{Format, Run};
use palyra_egress::{Denial, DenialCode, EgressVerdict};
use palyra_protocol::display::safe;
use palyra_sandbox::{
    CancelSignal, CapturedStream, EgressEnforcementMode, LimitHit, ProcessExit, ProcessOutcome, ProcessRequest,
    SandboxError, SandboxProcessRunnerPolicy, resolve_executable, run_constrained_process,
};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::PoisonError;
use tokio::signal::unix::{Signal, SignalKind, signal};

const SIGPIPE: u8 = 13;

pub(super) fn run(setup: &Setup, run: Run, format: Format) -> Result<ExitCode, Refused> {
    let (policy, request) = policy::attempt(setup, &run.attempt)?;
    let report = Report::open(run.report.as_deref(), format)?;
    shared_network(&policy, format);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Refused::io("the runtime did not start", &e))?;
    let ended = runtime.block_on(attempt(policy.clone(), request));
    // A reader that does not read must not hold the end up.
    runtime.shutdown_background();
    let ended = ended?;
    notes(&policy, &ended.outcome, format);
    report.write(&ended)?;
    Ok(ExitCode::from(ended.code()))
}

/// A command that has ended, and what of ours ended it.
struct Ended {
    outcome: ProcessOutcome,
    written: Written,
    signal: Option<u8>,
    connections: Connections,
}

impl Ended {
    fn code(&self) -> u8 {
        let stopped = self.outcome.ended_by == Some(LimitHit::Cancelled);
        match (stopped, self.signal, self.written) {
            (true, Some(signal), _) => 128 + signal,
            (true, None, Written::ReaderGone) => 128 + SIGPIPE,
            _ => match self.outcome.exit {
                // The kernel passes on eight bits.
                ProcessExit::Code(code) => u8::try_from(code & 0xff).unwrap_or(1),
                ProcessExit::Signal(signal) => 128 | u8::try_from(signal & 0x7f).unwrap_or(0),
            },
        }
    }
}

async fn attempt(policy: SandboxProcessRunnerPolicy, request: ProcessRequest) -> Result<Ended, Refused> {
    let executable = resolve_executable(&policy, &request.argv, &request.working_directory)?;
    let (handle, cancelled) = CancelSignal::new().map_err(SandboxError::io("prepare a cancellation"))?;
    let mut signals = Signals::new().map_err(|e| Refused::io("signal handling", &e))?;
    let (mut streams, writer) = streams::tie(handle.clone()).map_err(|e| Refused::io("the output", &e))?;
    let connections = streams.connections();
    let mut running = tokio::task::spawn_blocking(move || {
        run_constrained_process(&policy, &executable, &request, &cancelled, &mut streams)
    });
    let mut signal = None;
    let outcome = loop {
        tokio::select! {
            ended = &mut running => break ended,
            number = signals.next() => {
                signal.get_or_insert(number);
                handle.cancel();
            }
        }
    };
    let outcome = outcome.map_err(|e| Refused::new("internal", format!("the runner failed: {e}"), None))?;
    // The command is gone; what it wrote may still wait for a reader. Another signal ends that too.
    let mut written = tokio::task::spawn_blocking(move || writer.join());
    let written = tokio::select! {
        written = &mut written => written,
        number = signals.next() => std::process::exit(i32::from(128 + number)),
    };
    let written = written.ok().and_then(Result::ok).unwrap_or(Written::ReaderGone);
    let connections = std::mem::take(&mut *connections.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(Ended { outcome: outcome?, written, signal, connections })
}

/// The signals by which people and programs ask for an end.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    quit: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            quit: signal(SignalKind::quit())?,
        })
    }

    /// Waits for one, and gives its number.
    async fn next(&mut self) -> u8 {
        let kind = tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.hangup.recv() => SignalKind::hangup(),
            _ = self.quit.recv() => SignalKind::quit(),
        };
        u8::try_from(kind.as_raw_value()).unwrap_or(0)
    }
}

/// Says before the command runs that nothing holds it back from the network.
fn shared_network(policy: &SandboxProcessRunnerPolicy, format: Format) {
    let how = match policy.egress {
        EgressEnforcementMode::Strict => return,
        EgressEnforcementMode::None => "the command can reach every host that this machine can",
        EgressEnforcementMode::Preflight => "hosts in its arguments are compared beforehand, and nothing else is",
    };
    // The document says it, in `enforcement`.
    if format == Format::Text {
        tell(&format!("palyra: THE HOST'S NETWORK IS SHARED: {how}"));
    }
}

/// What the exit code alone does not tell.
fn notes(policy: &SandboxProcessRunnerPolicy, outcome: &ProcessOutcome, format: Format) {
    if format == Format::Json {
        return;
    }
    if let Some(limit) = limit(policy, outcome.ended_by) {
        tell(&format!("palyra: {limit}"));
    }
    let denials = &outcome.egress.denials;
    for denial in &denials.denials {
        tell(&format!("palyra: denied: {} ({})", safe(&denial.message), safe(&hint(denial))));
    }
    if denials.further_denials > 0 {
        tell(&format!("palyra: denied: {} further connection(s)", denials.further_denials));
    }
    if let Some(missing) = &outcome.missing_programs {
        let name = missing.names.first().map_or("NAME", String::as_str);
        tell(&format!("palyra: {}", missing.hint(&format!("allow it: `--allow-interpreter {name}`"))));
    }
    for (name, stream) in [("stdout", &outcome.stdout), ("stderr", &outcome.stderr)] {
        if stream.truncated {
            let (kept, total) = (stream.bytes.len(), stream.total_bytes);
            tell(&format!("palyra: {name} was cut: {kept} of {total} bytes (`--max-output SIZE` lets more through)"));
        }
    }
    for path in &outcome.set_aside {
        tell(&format!("palyra: set aside, it would have run as code later: {}", safe(&path.to_string_lossy())));
    }
    for path in &outcome.not_set_aside {
        tell(&format!("palyra: CANNOT BE SET ASIDE, it will run as code later: {}", safe(&path.to_string_lossy())));
    }
}

/// What to type; there is no operator to ask.
fn hint(denial: &Denial) -> String {
    match (denial.code, &denial.host, denial.port) {
        (DenialCode::EgressDenied, Some(host), Some(port)) => format!("allow it: `--allow-host {host}:{port}`"),
        _ => denial.hint.clone(),
    }
}

fn limit(policy: &SandboxProcessRunnerPolicy, hit: Option<LimitHit>) -> Option<String> {
    let ended = |limit: String| Some(format!("ended by its limit: {limit}"));
    match hit? {
        LimitHit::WallClock => ended(format!("{} ms from start to end (`--timeout`)", policy.wall_clock_limit_ms)),
        LimitHit::CpuTime => ended(format!("{} ms of CPU time (`--cpu`)", policy.cpu_time_limit_ms)),
        LimitHit::Memory => ended(format!("{} bytes of memory (`--memory`)", policy.memory_limit_bytes)),
        LimitHit::Output => ended(format!("far more than {} bytes of output", policy.max_output_bytes)),
        LimitHit::FileSize => ended(format!("{} bytes in one file", policy.max_file_size_bytes)),
        LimitHit::Processes => Some(format!("reached its limit of {} processes", policy.max_processes)),
        LimitHit::Seccomp => Some("ended by a system call that the sandbox never allows".to_owned()),
        LimitHit::Cancelled => None,
    }
}

/// Where the report goes, opened before anything runs.
struct Report {
    file: Option<std::fs::File>,
    wanted: bool,
    format: Format,
}

impl Report {
    fn open(path: Option<&Path>, format: Format) -> Result<Self, Refused> {
        let file = match path {
            Some(path) if path != Path::new("-") => {
                let made = std::fs::File::create(path);
                Some(made.map_err(|e| Refused::io(&format!("the report `{}` cannot be written", path.display()), &e))?)
            }
            _ => None,
        };
        Ok(Self { file, wanted: path.is_some() || format == Format::Json, format })
    }

    fn write(self, ended: &Ended) -> Result<(), Refused> {
        if !self.wanted {
            return Ok(());
        }
        let text = match self.format {
            Format::Json => document(ended).to_string(),
            Format::Text => summary(ended),
        };
        match self.file {
            None => tell(&text),
            Some(mut file) => {
                writeln!(file, "{text}").map_err(|e| Refused::io("the report cannot be written", &e))?;
            }
        }
        Ok(())
    }
}

fn document(ended: &Ended) -> Value {
    let outcome = &ended.outcome;
    let (code, signal) = match outcome.exit {
        ProcessExit::Code(code) => (Some(code), None),
        ProcessExit::Signal(signal) => (None, Some(signal)),
    };
    let stream = |stream: &CapturedStream| json!({ "total_bytes": stream.total_bytes, "truncated": stream.truncated });
    json!({
        "exit_code": code, "signal": signal, "ended_by": outcome.ended_by,
        "stdout": stream(&outcome.stdout), "stderr": stream(&outcome.stderr),
        "duration_ms": outcome.duration.as_millis(), "cpu_time_ms": outcome.cpu_time.as_millis(),
        "peak_memory_bytes": outcome.peak_memory_bytes, "enforcement": outcome.enforcement,
        "egress": outcome.egress, "connections": ended.connections.listed,
        "further_connections": ended.connections.further,
        "set_aside": outcome.set_aside, "not_set_aside": outcome.not_set_aside,
        "missing_programs": outcome.missing_programs,
    })
}

fn summary(ended: &Ended) -> String {
    let outcome = &ended.outcome;
    let exit = match outcome.exit {
        ProcessExit::Code(code) => format!("code {code}"),
        ProcessExit::Signal(signal) => format!("signal {signal}"),
    };
    let enforcement = &outcome.enforcement;
    let mut text = format!(
        "palyra: ended with {exit} after {} ms ({} ms CPU, {} KiB)\n  tier {}, {}, as uid {}",
        outcome.duration.as_millis(),
        outcome.cpu_time.as_millis(),
        outcome.peak_memory_bytes / 1024,
        enforcement.tier,
        enforcement.backend,
        enforcement.uid,
    );
    if enforcement.egress != EgressEnforcementMode::Strict {
        text.push_str("\n  THE HOST'S NETWORK WAS SHARED: nothing held the command back from it");
    }
    for layer in &enforcement.layers {
        let mark = if layer.applied { '✔' } else { '–' };
        // Writing to a string cannot fail.
        let _infallible = write!(text, "\n  {mark} {:<18} {}", layer.name, safe(&layer.detail));
    }
    for connection in &ended.connections.listed {
        let mark = if connection.verdict == EgressVerdict::Allowed { '✔' } else { '✘' };
        let host = connection.host.as_deref().unwrap_or("?");
        let port = connection.port.map_or_else(String::new, |port| format!(":{port}"));
        let why = connection.rule.as_deref().or(connection.code.as_deref()).unwrap_or("");
        let _infallible = write!(text, "\n  {mark} connection to {}{port} ({})", safe(host), safe(why));
    }
    if ended.connections.further > 0 {
        let _infallible = write!(text, "\n  and {} further connection(s)", ended.connections.further);
    }
    text
}

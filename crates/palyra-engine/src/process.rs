//! `palyra.process.run`: a native program in Tier B or Tier C.

use crate::execute::{Executed, printable, timed_out_by};
use crate::output::LiveOutput;
use crate::resolve::sandbox_problem;
use crate::work::RunWork;
use palyra_egress::EgressObserver;
use palyra_protocol::{CallState, EgressRecord, Problem};
use palyra_sandbox::{
    CancelSignal, LimitHit, OutputSink, OutputStream, ProcessExit, ProcessOutcome, SandboxError,
    SandboxProcessRunnerPolicy, run_constrained_process,
};
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::path::PathBuf;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Hands output and connections on while the program runs.
struct Watcher {
    output: LiveOutput,
    connections: EgressObserver,
}

impl OutputSink for Watcher {
    fn chunk(&mut self, stream: OutputStream, bytes: &[u8]) {
        self.output.chunk(stream, bytes);
    }

    fn egress(&mut self, record: &EgressRecord) {
        (self.connections)(record);
    }
}

/// The shortest of the limits on a run's time, and what gives it more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TimeLimit {
    limit: Duration,
    remedy: &'static str,
}

impl TimeLimit {
    /// From what the call itself wants, what the daemon gives any call, and what it gives a process.
    fn of(wanted: Option<Duration>, execution: Duration, wall_clock: Duration) -> Self {
        let both = "raise `execution_timeout_ms` and `wall_clock_limit_ms` in palyra.toml";
        let configured = match execution.cmp(&wall_clock) {
            Ordering::Less => Self { limit: execution, remedy: "raise `execution_timeout_ms` in palyra.toml" },
            Ordering::Equal => Self { limit: execution, remedy: both },
            Ordering::Greater => Self { limit: wall_clock, remedy: "raise `wall_clock_limit_ms` in palyra.toml" },
        };
        match wanted {
            Some(limit) if limit < configured.limit => Self { limit, remedy: "ask for more with `timeout_ms`" },
            _ => configured,
        }
    }
}

/// Runs a program on a thread of its own and tells what really happened. Whoever watches sees its output meanwhile.
pub(crate) async fn run(
    mut policy: SandboxProcessRunnerPolicy,
    work: RunWork,
    limit: Duration,
    observer: EgressObserver,
    (stop, output): (&CancellationToken, &LiveOutput),
) -> Executed {
    let time = TimeLimit::of(work.timeout, limit, Duration::from_millis(policy.wall_clock_limit_ms));
    policy.wall_clock_limit_ms = u64::try_from(time.limit.as_millis()).unwrap_or(u64::MAX);
    let (handle, signal) = match CancelSignal::new().map_err(SandboxError::io("prepare a cancellation")) {
        Ok(pair) => pair,
        Err(error) => return refused(&error),
    };
    let mut watcher = Watcher { output: output.clone(), connections: observer };
    let mut task = tokio::task::spawn_blocking(move || {
        run_constrained_process(&policy, &work.executable, &work.request, &signal, &mut watcher)
    });
    let joined = tokio::select! {
        joined = &mut task => joined,
        () = stop.cancelled() => {
            handle.cancel();
            task.await
        }
    };
    match joined {
        Ok(Ok(outcome)) => told(outcome, time),
        Ok(Err(error)) => refused(&error),
        Err(panic) => {
            tracing::error!(%panic, "the sandbox runner panicked");
            not_run(Problem::plain("internal", "the process runner failed; the daemon's log says how"))
        }
    }
}

fn refused(error: &SandboxError) -> Executed {
    tracing::warn!(error = error as &dyn std::error::Error, "a process was not run");
    not_run(sandbox_problem(error))
}

/// Nothing of the command ran, so nothing was enforced.
pub(crate) fn not_run(problem: Problem) -> Executed {
    Executed {
        state: CallState::Failed,
        output: Value::Null,
        problem: Some(problem),
        exit: None,
        enforcement: json!({ "backend": "none", "layers": [], "tier": "none" }),
    }
}

fn told(outcome: ProcessOutcome, time: TimeLimit) -> Executed {
    let enforcement = serde_json::to_value(&outcome.enforcement)
        .unwrap_or_else(|e| json!({ "error": format!("the enforcement cannot be told: {e}") }));
    let (exit_code, signal, exit) = match outcome.exit {
        ProcessExit::Code(code) => (Some(code), None, format!("code {code}")),
        ProcessExit::Signal(signal) => (None, Some(signal), format!("signal {signal}")),
    };
    let problem = problem(&outcome, time, &exit);
    let state = match (&problem, outcome.ended_by) {
        (None, _) => CallState::Succeeded,
        (Some(_), Some(LimitHit::Cancelled)) => CallState::Cancelled,
        (Some(_), _) => CallState::Failed,
    };
    let (stdout, stdout_encoding) = printable(outcome.stdout.bytes);
    let (stderr, stderr_encoding) = printable(outcome.stderr.bytes);
    let ms = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
    let names = |paths: &[PathBuf]| paths.iter().map(|path| path.to_string_lossy().into_owned()).collect::<Vec<_>>();
    let output = json!({
        "exit_code": exit_code, "signal": signal, "ended_by": outcome.ended_by,
        "stdout": stdout, "stdout_encoding": stdout_encoding,
        "stdout_total_bytes": outcome.stdout.total_bytes, "stdout_truncated": outcome.stdout.truncated,
        "stderr": stderr, "stderr_encoding": stderr_encoding,
        "stderr_total_bytes": outcome.stderr.total_bytes, "stderr_truncated": outcome.stderr.truncated,
        "duration_ms": ms(outcome.duration), "cpu_time_ms": ms(outcome.cpu_time),
        "peak_memory_bytes": outcome.peak_memory_bytes, "egress": outcome.egress,
        "set_aside": names(&outcome.set_aside), "not_set_aside": names(&outcome.not_set_aside),
    });
    Executed { state, output, problem, exit: Some(exit), enforcement }
}

fn problem(outcome: &ProcessOutcome, time: TimeLimit, exit: &str) -> Option<Problem> {
    let limit = |what: &str, key: &str| {
        Some(Problem::new(
            "limit_reached",
            format!("the {what} limit ended the process"),
            format!("do less, or raise `{key}` in palyra.toml"),
        ))
    };
    match outcome.ended_by {
        Some(LimitHit::Cancelled) => Some(Problem::plain("cancelled", "the call was cancelled; the process was ended")),
        Some(LimitHit::WallClock) => Some(timed_out_by(time.limit, time.remedy)),
        Some(LimitHit::CpuTime) => limit("CPU time", "cpu_time_limit_ms"),
        Some(LimitHit::Memory) => limit("memory", "memory_limit_bytes"),
        Some(LimitHit::Output) => limit("output", "max_output_bytes"),
        Some(LimitHit::FileSize) => limit("file size", "max_file_size_bytes"),
        Some(LimitHit::Processes) if !outcome.exit.success() => limit("process", "max_processes"),
        Some(LimitHit::Seccomp) => {
            Some(Problem::plain("syscall_denied", "the process made a system call that the sandbox never allows"))
        }
        _ if outcome.exit.success() => None,
        _ => Some(Problem {
            // Programs seldom say that it was the network, and never what to ask for.
            hint: outcome.egress.denials.denials.first().map(|denial| format!("{denial}; {}", denial.hint)),
            ..Problem::plain("nonzero_exit", format!("the process ended with {exit}"))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_that_ends_a_run_is_the_one_that_is_named() {
        let ms = Duration::from_millis;
        for (wanted, execution, wall_clock, limit, named) in [
            (None, 300_000, 2_000, 2_000, &["wall_clock_limit_ms"][..]),
            (None, 2_000, 300_000, 2_000, &["execution_timeout_ms"]),
            (None, 120_000, 120_000, 120_000, &["execution_timeout_ms", "wall_clock_limit_ms"]),
            (Some(500), 2_000, 3_000, 500, &["`timeout_ms`"]),
            (Some(9_000), 300_000, 2_000, 2_000, &["wall_clock_limit_ms"]),
        ] {
            let time = TimeLimit::of(wanted.map(ms), ms(execution), ms(wall_clock));
            assert_eq!(time.limit, ms(limit));
            let known = ["execution_timeout_ms", "wall_clock_limit_ms", "`timeout_ms`"];
            for name in known {
                assert_eq!(time.remedy.contains(name), named.contains(&name), "{name} in {}", time.remedy);
            }
        }
    }
}

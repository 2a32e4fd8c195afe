//! `palyra.process.read` and `palyra.process.stop`: a process that runs in the background.
//!
//! Both are about calls of the same principal. They touch nothing that the call of `palyra.process.start` was not
//! decided about.

use super::schema::object;
use super::{Executing, Input, Job, Made, Place, Prepared, Preparing, Tool, process_start};
use crate::flow::execute::{Executed, Running, Stopped};
use crate::flow::resolve::Refusal;
use crate::live::{LiveCall, Withdrawal};
use crate::output::{OutputPiece, OutputWatcher};
use palyra_protocol::{CallId, CallState, ExecutorKind, Facets, Problem, RiskLevel, ToolDefinition};
use palyra_sandbox::OutputStream;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

pub(super) const READ: &str = "palyra.process.read";
pub(super) const STOP: &str = "palyra.process.stop";

/// The longest that a reader waits for news.
const MAX_WAIT_MS: u64 = 30_000;
/// The most that one reading gives.
const MAX_BYTES: usize = 64 << 10;

#[derive(Debug)]
struct ProcessRead(ToolDefinition);

#[derive(Debug)]
struct ProcessStop(ToolDefinition);

fn process() -> Value {
    json!({ "type": "string", "description": "the process, as `palyra.process.start` named it" })
}

pub(super) fn read() -> Made {
    let stream = json!({ "type": "string" });
    Ok(Arc::new(ProcessRead(ToolDefinition {
        name: READ.parse()?,
        summary: "Read what a background process writes".to_owned(),
        description: "Gives what a process that `palyra.process.start` started has written since `after`, and whether it still runs. \
                      Give the `next` of one reading as the `after` of the following one. Only the newest output is kept."
            .to_owned(),
        input_schema: object(
            json!({
                "process": process(),
                "after": { "type": "integer", "minimum": 0, "description": "where the last reading ended; the beginning when absent" },
                "wait_ms": {
                    "type": "integer", "minimum": 0, "maximum": MAX_WAIT_MS,
                    "description": "how long to wait for something new; not at all when absent",
                },
            }),
            &["process"],
        ),
        output_schema: object(
            json!({
                "state": { "type": "string", "description": "`executing` while it runs, then how it ended" },
                "stdout": stream, "stderr": stream,
                "next": { "type": "integer", "description": "where the next reading begins" },
                "missed_bytes": { "type": "integer", "description": "what was written too fast to be kept" },
                "exit_code": { "type": ["integer", "null"] }, "signal": { "type": ["integer", "null"] },
            }),
            &["state", "stdout", "stderr", "next"],
        ),
        capabilities: [].into(),
        risk: RiskLevel::Low,
        executor: ExecutorKind::Builtin,
        example: json!({ "process": "call_01JQZ5YV9WXK3T8N6M4R2P7C1D" }),
    })))
}

pub(super) fn stop() -> Made {
    Ok(Arc::new(ProcessStop(ToolDefinition {
        name: STOP.parse()?,
        summary: "Stop a background process".to_owned(),
        description: "Ends a process that `palyra.process.start` started, with everything that it started. What it changed in the \
                      workspace does not count."
            .to_owned(),
        input_schema: object(json!({ "process": process() }), &["process"]),
        output_schema: object(json!({ "state": { "type": "string" } }), &["state"]),
        capabilities: [].into(),
        risk: RiskLevel::Low,
        executor: ExecutorKind::Builtin,
        example: json!({ "process": "call_01JQZ5YV9WXK3T8N6M4R2P7C1D" }),
    })))
}

fn named(input: Input<'_>) -> Result<CallId, Refusal> {
    input.text("/process").parse().map_err(|_| {
        Problem::new("unknown_process", "this names no process", "use the `process` that `palyra.process.start` gave")
            .into()
    })
}

impl Tool for ProcessRead {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn prepare(&self, input: Input<'_>, _place: &Place<'_>) -> Result<Prepared, Refusal> {
        let wait = Duration::from_millis(input.number("/wait_ms").unwrap_or(0));
        let job = Reading { process: named(input)?, after: input.number("/after").unwrap_or(0), wait };
        Ok(Prepared::new(Facets::default(), job))
    }

    fn preparing(&self) -> Preparing {
        Preparing::AtOnce
    }
}

impl Tool for ProcessStop {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn prepare(&self, input: Input<'_>, _place: &Place<'_>) -> Result<Prepared, Refusal> {
        Ok(Prepared::new(Facets::default(), Stopping { process: named(input)? }))
    }

    fn preparing(&self) -> Preparing {
        Preparing::AtOnce
    }
}

#[derive(Debug)]
struct Reading {
    process: CallId,
    after: u64,
    wait: Duration,
}

#[derive(Debug)]
struct Stopping {
    process: CallId,
}

impl Job for Reading {
    fn execute<'r>(self: Box<Self>, run: &'r Running<'_>) -> Executing<'r> {
        Box::pin(async move { Executed::in_daemon(self.read(run).await) })
    }
}

impl Job for Stopping {
    fn execute<'r>(self: Box<Self>, run: &'r Running<'_>) -> Executing<'r> {
        Box::pin(async move { Executed::in_daemon(self.stop(run).await) })
    }
}

fn unknown() -> Stopped {
    let hint = "use the `process` that `palyra.process.start` gave you";
    Problem::new("unknown_process", "there is no such background process of yours", hint).into()
}

/// The process while it runs, if it is the caller's.
fn running(run: &Running<'_>, process: &CallId) -> Option<Arc<LiveCall>> {
    run.engine().live().like(process, run.call().origin(), process_start::NAME)
}

impl Reading {
    async fn read(self, run: &Running<'_>) -> Result<Value, Stopped> {
        let Some(live) = running(run, &self.process) else { return self.ended(run).await };
        let (mut now, mut news) = live.follow();
        let mut output = live.output().watch_after(self.after);
        drop(live);
        let mut told = Told::new(self.after);
        told.take(&mut output);
        let deadline = tokio::time::sleep(self.wait.min(Duration::from_millis(MAX_WAIT_MS)));
        let mut deadline = std::pin::pin!(deadline);
        while told.bytes() == 0 && !now.state.is_terminal() {
            tokio::select! {
                () = &mut deadline => break,
                () = run.cancel().cancelled() => return Err(Stopped::cancelled()),
                piece = output.next() => match piece {
                    Some(piece) => {
                        told.add(&piece, &output);
                        told.take(&mut output);
                    }
                    None => break,
                },
                update = news.recv() => match update {
                    Ok(update) => now = update,
                    Err(_) => break,
                },
            }
        }
        told.take(&mut output);
        if now.state.is_terminal() {
            return self.ended(run).await;
        }
        Ok(told.document(now.state))
    }

    /// What is told of a process that has ended: what its outcome keeps.
    async fn ended(self, run: &Running<'_>) -> Result<Value, Stopped> {
        let view = run.engine().journal().call(&self.process).await.map_err(|_| unknown())?;
        let origin = run.call().origin();
        let here = run.engine().workspace_of_call(&view) == origin.workspace;
        if view.principal != origin.principal || view.tool != process_start::NAME || !here {
            return Err(unknown());
        }
        let output = view.outcome.as_ref().and_then(|outcome| outcome.output.clone()).unwrap_or_default();
        let text = |name: &str| output[name].as_str().unwrap_or_default().to_owned();
        Ok(json!({
            "state": view.state.as_str(), "stdout": text("stdout"), "stderr": text("stderr"), "next": 0,
            "exit_code": output["exit_code"], "signal": output["signal"],
        }))
    }
}

impl Stopping {
    async fn stop(self, run: &Running<'_>) -> Result<Value, Stopped> {
        let live = running(run, &self.process).ok_or_else(unknown)?;
        live.withdraw(Withdrawal::By(run.call().origin().principal.clone()));
        drop(live);
        let end = run.engine().redeemed_end(&self.process).await.map_err(|error| Stopped::Failed(error.problem))?;
        Ok(json!({ "state": end.state.as_str() }))
    }
}

/// What one reading gives.
struct Told {
    streams: [Vec<u8>; 2],
    after: u64,
    next: u64,
}

impl Told {
    fn new(after: u64) -> Self {
        Self { streams: [Vec::new(), Vec::new()], after, next: after }
    }

    fn bytes(&self) -> usize {
        self.streams.iter().map(Vec::len).sum()
    }

    fn take(&mut self, output: &mut OutputWatcher) {
        while self.bytes() < MAX_BYTES {
            let Some(piece) = output.ready() else { break };
            self.add(&piece, output);
        }
    }

    fn add(&mut self, piece: &OutputPiece, output: &OutputWatcher) {
        let at = usize::from(piece.stream == OutputStream::Stderr);
        self.streams[at].extend_from_slice(&piece.bytes);
        self.next = output.seen();
    }

    fn document(&self, state: CallState) -> Value {
        let text = |at: usize| String::from_utf8_lossy(&self.streams[at]).into_owned();
        json!({ "state": state.as_str(), "stdout": text(0), "stderr": text(1), "next": self.next,
            "missed_bytes": (self.next - self.after).saturating_sub(self.bytes() as u64) })
    }
}

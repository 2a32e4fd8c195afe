//! Execute: a recorded permit is carried out, and what really happened is told.
//!
//! Nothing in here decides. The executor's only entrance takes `Recorded<Permit>`: a call that was not decided, not
//! approved or not recorded cannot be expressed.

use crate::egress::{Closed, EgressLog, Unrecorded};
use crate::engine::Engine;
use crate::fetch::{self, Hops};
use crate::live::{LiveCall, Withdrawal};
use crate::permit::Permit;
use crate::process;
use crate::resolve::file_problem;
use crate::work::Work;
use base64::Engine as _;
use palyra_journal::Recorded;
use palyra_protocol::{
    Authority, CallId, CallState, DecisionId, EgressRecord, ExecutorKind, Problem, Timestamp, ToolCall,
};
use serde_json::{Value, json};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// What an execution came to.
#[derive(Debug)]
pub(crate) struct Execution {
    pub(crate) call: ToolCall,
    pub(crate) decision_id: DecisionId,
    pub(crate) authority: Authority,
    pub(crate) executor: ExecutorKind,
    pub(crate) started_at: Timestamp,
    pub(crate) finished_at: Timestamp,
    pub(crate) result: Executed,
    /// Its connections that are not on record yet.
    pub(crate) connections: Vec<EgressRecord>,
}

/// What a tool gave back.
#[derive(Debug)]
pub(crate) struct Executed {
    pub(crate) state: CallState,
    pub(crate) output: Value,
    pub(crate) problem: Option<Problem>,
    pub(crate) exit: Option<String>,
    pub(crate) enforcement: Value,
}

impl Executed {
    fn builtin(result: Result<Value, Problem>) -> Self {
        let (state, output, problem) = match result {
            Ok(output) => (CallState::Succeeded, output, None),
            Err(problem) if problem.code == "cancelled" => (CallState::Cancelled, Value::Null, Some(problem)),
            Err(problem) => (CallState::Failed, Value::Null, Some(problem)),
        };
        // The daemon's own code runs in the daemon; what confines it is the workspace's root, not a sandbox.
        // Keys in order: what is in canonical order already is attested without sorting it.
        let enforcement = json!({ "backend": "builtin", "layers": [], "tier": "none" });
        Self { state, output, problem, exit: None, enforcement }
    }

    /// Says of an execution that was cut off who did it.
    fn because(mut self, withdrawn: Option<&Withdrawal>) -> Self {
        if let (CallState::Cancelled, Some(why)) = (self.state, withdrawn) {
            self.problem = Some(match why {
                Withdrawal::By(who) => Problem::plain("cancelled", format!("`{who}` withdrew the call while it ran")),
                Withdrawal::ShuttingDown => Problem::new(
                    "cancelled",
                    "the daemon was shut down while the call ran",
                    "look at what it was about to change, then propose it anew if it is still wanted",
                ),
            });
        }
        self
    }
}

impl Engine {
    /// Carries a recorded permit out.
    ///
    /// # Errors
    /// It ran, and what it reached could not be recorded.
    pub(crate) async fn execute(
        &self,
        permit: Recorded<Permit>,
        live: &LiveCall,
    ) -> Result<Execution, (CallId, Unrecorded)> {
        let cancel = live.cancel();
        let (call, decision_id, authority, work) = permit.into_inner().spend();
        let started_at = self.clock().now();
        let limit = self.config().execution_timeout;
        let mut connections = Vec::new();
        let (executor, result) = match work {
            Work::Echo { text } => (ExecutorKind::Builtin, Executed::builtin(Ok(json!({ "text": text })))),
            Work::Sleep { duration } => {
                (ExecutorKind::Builtin, Executed::builtin(sleep(duration, limit, cancel).await))
            }
            Work::Files(work) => {
                let done = self.file_threads().run(self.workspace(), (call.id(), work), limit, cancel).await;
                (ExecutorKind::Builtin, self.confined_to_workspace(Executed::builtin(done)))
            }
            Work::Run(run) => {
                let policy = self.config().process_runner.clone();
                let log = EgressLog::open(self.clone(), call.id().clone(), cancel);
                let ran = match self.workspace().in_place() {
                    Ok(()) => process::run(policy, *run, limit, log.observer(), (log.stop(), live.output())).await,
                    Err(error) => process::not_run(file_problem(&error)),
                };
                let (ran, left) = recorded(ran, log, cancel).await.map_err(|e| (call.id().clone(), e))?;
                connections = left;
                (ExecutorKind::Process, ran)
            }
            Work::Fetch(work) => {
                let log = EgressLog::open(self.clone(), call.id().clone(), cancel);
                let hops = Hops::of(self, &call, &authority, log.observer()).await;
                let fetched = fetch::run(*work, hops, log.stop()).await;
                let rules = self.config().egress_rules.rules().len();
                let fetched = confined_to_rules(Executed::builtin(fetched), rules);
                let (fetched, left) = recorded(fetched, log, cancel).await.map_err(|e| (call.id().clone(), e))?;
                connections = left;
                (ExecutorKind::Builtin, fetched)
            }
        };
        let finished_at = self.clock().now();
        let result = result.because(live.withdrawn());
        Ok(Execution { call, decision_id, authority, executor, started_at, finished_at, result, connections })
    }

    fn confined_to_workspace(&self, mut executed: Executed) -> Executed {
        executed.enforcement["layers"] = json!([{
            "name": "workspace_root",
            "detail": format!("every open beneath `{}`, no symbolic link followed", self.workspace().root().display()),
            "applied": true,
        }]);
        executed
    }
}

/// What was executed, once its connections are in the journal, with those that have to go there with the outcome. One that
/// was ended because they did not get there in time says so.
async fn recorded(
    mut ran: Executed,
    log: EgressLog,
    cancel: &CancellationToken,
) -> Result<(Executed, Vec<EgressRecord>), Unrecorded> {
    let Closed { left, late } = log.close().await?;
    if late && ran.state == CallState::Cancelled && !cancel.is_cancelled() {
        ran.state = CallState::Failed;
        ran.problem = Some(Problem::new(
            "egress_recorded_late",
            "a connection could not be recorded when it ended, so the call was ended too; all of them are recorded now",
            "make room where the daemon's state is, then propose the call again",
        ));
    }
    Ok((ran, left))
}

fn confined_to_rules(mut executed: Executed, rules: usize) -> Executed {
    executed.enforcement["layers"] = json!([{
        "name": "egress_rules",
        "detail": format!("every hop asked of {rules} rule(s), its name resolved once, its address checked and connected to"),
        "applied": true,
    }]);
    executed
}

pub(crate) fn cancelled() -> Problem {
    Problem::plain("cancelled", "the call was cancelled")
}

pub(crate) fn timed_out(limit: Duration) -> Problem {
    timed_out_by(limit, "raise `execution_timeout_ms` in palyra.toml")
}

/// The same where another limit than the daemon's own may have been the shortest; with what would have given more time.
pub(crate) fn timed_out_by(limit: Duration, remedy: &str) -> Problem {
    Problem::new(
        "execution_timeout",
        format!("the execution was ended after {} ms", limit.as_millis()),
        format!("do less in one call, or {remedy}"),
    )
}

async fn sleep(duration: Duration, limit: Duration, cancel: &CancellationToken) -> Result<Value, Problem> {
    tokio::select! {
        () = tokio::time::sleep(duration.min(limit)) => {}
        () = cancel.cancelled() => return Err(cancelled()),
    }
    if duration > limit {
        return Err(timed_out(limit));
    }
    Ok(json!({ "slept_ms": u64::try_from(duration.as_millis()).unwrap_or(u64::MAX) }))
}

/// Bytes as text where they are text, as base64 where they are not.
pub(crate) fn printable(bytes: Vec<u8>) -> (String, &'static str) {
    match String::from_utf8(bytes) {
        Ok(text) => (text, "utf-8"),
        Err(error) => (base64::engine::general_purpose::STANDARD.encode(error.as_bytes()), "base64"),
    }
}

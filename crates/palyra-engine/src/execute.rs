//! Execute: a recorded permit is carried out, and what really happened is told.
//!
//! Nothing in here decides. The executor's only entrance takes `Recorded<Permit>`: a call that was not decided, not
//! approved or not recorded cannot be expressed.

use crate::egress::EgressLog;
use crate::engine::Engine;
use crate::fetch;
use crate::live::{LiveCall, Withdrawal};
use crate::permit::Permit;
use crate::process;
use crate::resolve::file_problem;
use crate::work::{FileWork, Work};
use crate::workspace::{FileContent, FileError, Workspace};
use base64::Engine as _;
use palyra_journal::Recorded;
use palyra_protocol::{Authority, CallState, DecisionId, EgressRecord, ExecutorKind, Problem, Timestamp, ToolCall};
use serde_json::{Value, json};
use std::sync::Arc;
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
    pub(crate) async fn execute(&self, permit: Recorded<Permit>, live: &LiveCall) -> Execution {
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
                let done = files(self.workspace(), work, limit, cancel).await;
                (ExecutorKind::Builtin, self.confined_to_workspace(Executed::builtin(done)))
            }
            Work::Run(run) => {
                let policy = self.config().process_runner.clone();
                let log = EgressLog::open(self.clone(), call.id().clone());
                let ran = process::run(policy, *run, limit, log.observer(), live).await;
                connections = log.close().await;
                (ExecutorKind::Process, ran)
            }
            Work::Fetch(work) => {
                let log = EgressLog::open(self.clone(), call.id().clone());
                let fetched = fetch::run(Arc::clone(self.fetcher()), *work, log.observer(), cancel).await;
                connections = log.close().await;
                let rules = self.config().egress_rules.rules().len();
                (ExecutorKind::Builtin, confined_to_rules(Executed::builtin(fetched), rules))
            }
        };
        let finished_at = self.clock().now();
        let result = result.because(live.withdrawn());
        Execution { call, decision_id, authority, executor, started_at, finished_at, result, connections }
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
    Problem::new(
        "execution_timeout",
        format!("the execution was ended after {} ms", limit.as_millis()),
        "do less in one call, or raise `execution_timeout_ms` in palyra.toml",
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

async fn files(
    workspace: &Arc<Workspace>,
    work: FileWork,
    limit: Duration,
    cancel: &CancellationToken,
) -> Result<Value, Problem> {
    let workspace = Arc::clone(workspace);
    let stop = cancel.child_token();
    // The work itself asks for the token between steps, so a deadline ends it too and no thread is left behind.
    let deadline = stop.clone().drop_guard();
    let on_thread = stop.clone();
    let task = tokio::task::spawn_blocking(move || on_files(&workspace, work, &|| on_thread.is_cancelled()));
    let joined = match tokio::time::timeout(limit, task).await {
        Ok(joined) => joined,
        Err(_) => {
            drop(deadline);
            return Err(timed_out(limit));
        }
    };
    drop(deadline.disarm());
    match joined {
        Ok(done) => done.map_err(|e| file_problem(&e)),
        Err(panic) => {
            tracing::error!(%panic, "a file tool panicked");
            Err(Problem::plain("internal", "the tool failed; the daemon's log says how"))
        }
    }
}

fn on_files(workspace: &Workspace, work: FileWork, stop: &dyn Fn() -> bool) -> Result<Value, FileError> {
    if stop() {
        return Err(FileError::Cancelled);
    }
    match work {
        FileWork::Read { path, range } => {
            workspace.read(&path, range).map(|content| text_or_base64(path.as_str(), content))
        }
        FileWork::List { path, options } => workspace.list(&path, options).map(|listing| json!(listing)),
        FileWork::Search(query) => workspace.search(&query, stop).map(|found| json!(found)),
        FileWork::Write { path, content, options } => workspace.write(&path, &content, &options).map(|written| {
            let mut output = json!(written);
            output["path"] = json!(path.as_str());
            output
        }),
        FileWork::Patch(plan) => workspace.apply_patch(plan).map(|outcome| json!(outcome)),
    }
}

fn text_or_base64(path: &str, content: FileContent) -> Value {
    let (text, encoding) = printable(content.bytes);
    json!({
        "path": path, "content": text, "encoding": encoding, "total_bytes": content.total_bytes,
        "truncated": content.truncated, "sha256": content.sha256_hex,
    })
}

/// Bytes as text where they are text, as base64 where they are not.
pub(crate) fn printable(bytes: Vec<u8>) -> (String, &'static str) {
    match String::from_utf8(bytes) {
        Ok(text) => (text, "utf-8"),
        Err(error) => (base64::engine::general_purpose::STANDARD.encode(error.as_bytes()), "base64"),
    }
}

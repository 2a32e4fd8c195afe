//! Execute: a recorded permit is carried out, and what really happened is told.
//!
//! Nothing in here decides. The executor's only entrance takes `Recorded<Permit>`: a call that was not decided, not
//! approved or not recorded cannot be expressed. What a call does is its tool's (`tools/`).

use crate::config::ToolCallConfig;
use crate::effects::Settled;
use crate::egress::{Closed, EgressLog, Unrecorded};
use crate::file_threads::Lane;
use crate::flow::handover;
use crate::flow::permit::Permit;
use crate::live::{LiveCall, Withdrawal};
use crate::output::LiveOutput;
use crate::tools::Elsewhere;
use crate::work::Work;
use crate::workspaces::WorkspaceEngine;
use palyra_journal::Recorded;
use palyra_protocol::{
    Authority, CallId, CallState, Carrier, DecisionId, EffectRecord, EgressRecord, ExecutorKind, Problem, Timestamp,
    ToolCall, ToolName,
};
use palyra_workspace::effects::{FileChanges, GuardRules, View};
use palyra_workspace::{Errand, FileError, ResolvedPath, Workspace};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
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
pub struct Executed {
    pub(crate) state: CallState,
    pub(crate) output: Value,
    pub(crate) problem: Option<Problem>,
    pub(crate) exit: Option<String>,
    pub(crate) enforcement: Value,
    /// What it changed in the workspace, where it could change something.
    pub(crate) effect: Option<EffectRecord>,
    /// Whether texts in the output are withheld from the journal.
    pub(crate) withheld: bool,
}

/// Why a tool has no output.
#[derive(Debug)]
pub enum Stopped {
    /// It was told to stop before it was done.
    Cancelled(Problem),
    /// It failed.
    Failed(Problem),
}

impl Stopped {
    /// The call was cancelled.
    #[must_use]
    pub fn cancelled() -> Self {
        Self::Cancelled(Problem::plain("cancelled", "the call was cancelled"))
    }
}

impl From<Problem> for Stopped {
    fn from(problem: Problem) -> Self {
        Self::Failed(problem)
    }
}

impl Executed {
    /// What code of the daemon itself came to. What confines it is the workspace's root, not a sandbox.
    #[must_use]
    pub fn in_daemon(result: Result<Value, Stopped>) -> Self {
        let (state, output, problem) = match result {
            Ok(output) => (CallState::Succeeded, output, None),
            Err(Stopped::Cancelled(problem)) => (CallState::Cancelled, Value::Null, Some(problem)),
            Err(Stopped::Failed(problem)) => (CallState::Failed, Value::Null, Some(problem)),
        };
        // Keys in order: what is in canonical order already is attested without sorting it.
        let enforcement = json!({ "backend": "builtin", "layers": [], "tier": "none" });
        Self { state, output, problem, exit: None, enforcement, effect: None, withheld: false }
    }

    /// The same, with texts of memory entries that the journal does not keep.
    pub(crate) fn withholding_texts(self) -> Self {
        Self { withheld: true, ..self }
    }

    /// Seals the texts that are withheld, after everything else that changes the output.
    fn sealed(mut self) -> Result<Self, getrandom::Error> {
        if self.withheld && self.output.is_object() {
            let mut salts = Vec::new();
            for _ in self.output["entries"].as_array().into_iter().flatten() {
                let mut salt = [0; 16];
                getrandom::fill(&mut salt)?;
                salts.push(salt);
            }
            let mut salts = salts.into_iter();
            palyra_protocol::memory::seal_texts(&mut self.output, || salts.next().unwrap_or_default());
        }
        Ok(self)
    }

    /// Nothing ran, so nothing was enforced.
    pub(crate) fn not_run(problem: Problem) -> Self {
        let enforcement = json!({ "backend": "none", "layers": [], "tier": "none" });
        let (state, output, problem) = (CallState::Failed, Value::Null, Some(problem));
        Self { state, output, problem, exit: None, enforcement, effect: None, withheld: false }
    }

    /// Enters what became of what it changed: in the output, which callers see, and for the attestation.
    pub(crate) fn with_effect(mut self, settled: Settled) -> Self {
        if self.output.is_object() {
            if let Some(record) = &settled.record {
                self.output["effect"] = json!(record);
            }
            if !settled.notes.is_empty() {
                self.output["notes"] = json!(settled.notes);
            }
        }
        self.with_effect_beside(settled)
    }

    /// The same beside an output that stays what the tool's code made it.
    pub(crate) fn with_effect_beside(mut self, settled: Settled) -> Self {
        let Settled { record, problem, .. } = settled;
        self.effect = record;
        if let Some(problem) = problem {
            self.state = CallState::Failed;
            self.problem = Some(problem);
        }
        self
    }

    fn confined_to(mut self, workspace: &Workspace) -> Self {
        self.enforcement["layers"] = json!([{
            "name": "workspace_root",
            "detail": format!("every open beneath `{}`, no symbolic link followed", workspace.root().display()),
            "applied": true,
        }]);
        self
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

/// A call that is being carried out, as its tool sees it.
#[derive(Debug)]
pub struct Running<'a> {
    engine: &'a WorkspaceEngine,
    call: &'a ToolCall,
    authority: &'a Authority,
    live: &'a LiveCall,
    /// Opened by a tool that connects to anything.
    egress: OnceLock<EgressLog>,
}

impl Running<'_> {
    /// The call.
    #[must_use]
    pub fn call(&self) -> &ToolCall {
        self.call
    }

    /// How long it may take.
    #[must_use]
    pub fn time_limit(&self) -> Duration {
        self.config().execution_timeout
    }

    /// Cancelled when the call is no longer wanted.
    #[must_use]
    pub fn cancel(&self) -> &CancellationToken {
        self.live.cancel()
    }

    pub(crate) fn engine(&self) -> &WorkspaceEngine {
        self.engine
    }

    pub(crate) fn config(&self) -> &ToolCallConfig {
        self.engine.config()
    }

    /// What allowed the call besides policy.
    pub(crate) fn authority(&self) -> &Authority {
        self.authority
    }

    /// Where output goes while the call runs.
    pub(crate) fn output(&self) -> &LiveOutput {
        self.live.output()
    }

    /// Where connections are recorded. A tool that uses it obeys [`EgressLog::stop`] and keeps no observer when it is
    /// done.
    pub(crate) fn egress(&self) -> &EgressLog {
        self.egress.get_or_init(|| EgressLog::open(self.engine.engine().clone(), self.call.id().clone(), self.cancel()))
    }

    /// Works on files, on a thread that may wait, and tells how it went.
    pub(crate) async fn with_files<W>(&self, lane: Lane, work: W) -> Executed
    where
        W: FnOnce(&Workspace, Errand<'_>) -> Result<Value, FileError> + Send + 'static,
    {
        let workspace = self.engine.workspace();
        let threads = self.engine.file_threads();
        let done = threads.run(lane, (workspace, self.call.id()), self.time_limit(), self.cancel(), work).await;
        Executed::in_daemon(done).confined_to(workspace)
    }

    /// The same outside the workspace, in the directory that was opened when the call was resolved.
    pub(crate) async fn with_files_outside<W>(&self, lane: Lane, place: Elsewhere, work: W) -> Executed
    where
        W: FnOnce((&Workspace, ResolvedPath), Errand<'_>) -> Result<Value, FileError> + Send + 'static,
    {
        let (directory, path) = place.open(self.engine.workspace());
        let work = move |directory: &Workspace, errand: Errand<'_>| work((directory, path?), errand);
        let threads = self.engine.file_threads();
        let done = threads.run(lane, (&directory, self.call.id()), self.time_limit(), self.cancel(), work).await;
        Executed::in_daemon(done).confined_to(&directory)
    }
}

impl Running<'_> {
    /// Works on files like [`Running::with_files`], in a view: what is replaced is kept, and guarded files wait.
    pub(crate) async fn with_changes<W>(&self, work: W) -> Executed
    where
        W: FnOnce(&Workspace, Errand<'_>, (&View, &GuardRules)) -> Result<(FileChanges, Value), FileError>
            + Send
            + 'static,
    {
        let workspace = self.engine.workspace();
        let (engine, call) = (self.engine.clone(), self.call.record());
        let settled: Arc<Mutex<Option<Settled>>> = Arc::default();
        let tell = Arc::clone(&settled);
        let staged = move |workspace: &Workspace, errand: Errand<'_>| {
            let (output, became) = engine.change_files(&call, |view, guard| work(workspace, errand, (view, guard)))?;
            *tell.lock().unwrap_or_else(PoisonError::into_inner) = Some(became);
            Ok(output)
        };
        let threads = self.engine.file_threads();
        let done =
            threads.run(Lane::Short, (workspace, self.call.id()), self.time_limit(), self.cancel(), staged).await;
        let executed = Executed::in_daemon(done).confined_to(workspace);
        let settled = settled.lock().unwrap_or_else(PoisonError::into_inner).take();
        match settled {
            Some(settled) => executed.with_effect(settled),
            None => executed,
        }
    }
}

impl WorkspaceEngine {
    /// Carries a recorded permit out.
    ///
    /// # Errors
    /// It ran, and what it reached could not be recorded.
    pub(crate) async fn execute(
        &self,
        permit: Recorded<Permit>,
        live: &LiveCall,
    ) -> Result<Execution, (CallId, Unrecorded)> {
        let (call, decision_id, authority, Work { tool, job }) = permit.into_inner().spend();
        let executor = match call.origin().carrier {
            Carrier::Client => ExecutorKind::Client,
            Carrier::Daemon | Carrier::Ticket => tool.definition().executor,
        };
        let may_start = handover::may_start(live).await;
        let started_at = self.clock().now();
        let run = Running { engine: self, call: &call, authority: &authority, live, egress: OnceLock::new() };
        // Asked last: a tool that was removed or replaced while its call waited does not run, and nothing runs in its
        // place.
        let ran = match may_start {
            Ok(()) if !self.catalog().holds(&tool) => Executed::not_run(tool_replaced(call.tool())),
            Ok(()) => match self.ready_to_run(&call).await {
                Ok(()) => job.execute(&run).await,
                Err(problem) => Executed::not_run(problem),
            },
            Err(not_started) => not_started,
        };
        // Whatever was released to this run, by this call or an earlier one, leaves no trace in what the call gives
        // back.
        let ran = match self.released().of(&call) {
            Some(redactor) => ran.redacted(&redactor),
            None => ran,
        };
        let ran = ran.sealed().unwrap_or_else(|error| {
            Executed::not_run(Problem::plain("memory_no_salt", format!("the host gives no randomness: {error}")))
        });
        let (ran, connections) = match run.egress.into_inner() {
            Some(log) => recorded(ran, log, live.cancel()).await.map_err(|e| (call.id().clone(), e))?,
            None => (ran, Vec::new()),
        };
        let finished_at = self.clock().now();
        let result = ran.because(live.withdrawn());
        Ok(Execution { call, decision_id, authority, executor, started_at, finished_at, result, connections })
    }

    /// What must hold when a permitted call starts, however long it waited: its directory is the one that was opened,
    /// and what it brings into its session is on record.
    async fn ready_to_run(&self, call: &ToolCall) -> Result<(), Problem> {
        self.in_place()?;
        self.note_sources(call).await.map_err(|error| error.problem)
    }
}

/// Waits until a call's connections are in the journal; gives those that have to go there with the outcome. One that
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

fn tool_replaced(tool: &ToolName) -> Problem {
    Problem::new(
        "tool_replaced",
        format!("`{tool}` was removed or replaced after this call was proposed, so the call did not run"),
        "look at the tool again with `palyra tools list`, then propose the call anew",
    )
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

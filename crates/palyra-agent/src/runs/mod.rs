//! Runs: a session has runs, a run has turns, and every tool call of a turn goes the one path.
//!
//! [`Runs`] is a client of `Engine::propose` and nothing more. It has no way to an executor, and nothing it decides
//! lets a call through. What it adds is the conversation: it asks the model ([`crate::models`]), records the answer,
//! proposes the calls in it ([`calls`]), records what they gave, and asks again, until the model is done or the budget
//! is.
//!
//! The order of records makes a run safe to carry on. An answer is durable before its calls are proposed, and each
//! call's idempotency key follows from the run, the turn and the call's place in it. So whatever instant the daemon
//! dies at, the next start proposes the same calls under the same keys, and the engine answers with what it already
//! did.

mod calls;
mod carry_on;
mod live;
mod recorded;
mod retained;
mod routine;
mod start;

pub use live::{RunNews, Watch};
pub use recorded::RunShown;
pub use start::{AskedAs, StartRun, StartedRun, WantedTools};

use crate::models::Models;
use live::LiveRun;
use palyra_engine::routines::ROUTINE_CHANNEL;
use palyra_engine::{Engine, EngineError, ErrorKind, VerifiedPeer};
use palyra_protocol::{JournalEvent, PolicyAction, Problem, RunId, RunResumed, RunState};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The code of a run whose caller is not let in any more after a restart.
const CALLER_GONE: &str = "run_caller_gone";
/// The most runs at a time.
const AT_ONCE: usize = 256;

/// The daemon's runs. Cloning gives another handle to the same ones.
#[derive(Debug, Clone)]
pub struct Runs(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    engine: Engine,
    models: Models,
    live: Mutex<HashMap<RunId, Arc<LiveRun>>>,
    closing: CancellationToken,
    tasks: TaskTracker,
}

impl Runs {
    /// Runs with these models.
    #[must_use]
    pub fn new(engine: Engine, models: Models) -> Self {
        let inner = Inner {
            engine,
            models,
            live: Mutex::default(),
            closing: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        Self(Arc::new(inner))
    }

    /// The models.
    #[must_use]
    pub fn models(&self) -> &Models {
        &self.0.models
    }

    /// The engine that its calls are proposed to.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// Carries on what the last end of the daemon left. A run whose caller would not be let in any more ends as
    /// indeterminate: nobody says what became of it, and somebody else may resume it.
    ///
    /// # Errors
    /// The runs cannot be read, or an end could not be made durable.
    pub async fn recover(&self) -> Result<usize, EngineError> {
        let mut carried_on = 0;
        for run in self.engine().open_runs().await? {
            let Err(error) = self.carry_on_recorded(&run).await else {
                carried_on += 1;
                continue;
            };
            tracing::warn!(%run, code = error.problem.code, "a run is not carried on: {error}");
            if matches!(error.kind, ErrorKind::Unauthenticated | ErrorKind::Forbidden | ErrorKind::Unavailable) {
                let problem = Problem::new(
                    CALLER_GONE,
                    format!("the daemon was started anew, and {}", error.problem.message),
                    format!("whoever may act for the run's principal resumes it: `palyra runs resume {run}`"),
                );
                self.record_end(&run, RunState::Indeterminate, Some(problem), Vec::new()).await?;
            }
        }
        Ok(carried_on)
    }

    pub(super) async fn carry_on_recorded(&self, run: &RunId) -> Result<(), EngineError> {
        let history = self.engine().recorded_run(run).await?;
        let peer = Arc::new(self.engine().peer_of_recorded_run(&history.opened.opened.origin)?);
        self.resume_as(run, peer, None).await
    }

    /// Carries a run on that nobody carries on, or that failed.
    ///
    /// # Errors
    /// There is none, the peer may not, or it goes on or has ended for good.
    pub async fn resume(&self, peer: &VerifiedPeer, run: &RunId) -> Result<(), EngineError> {
        let history = self.engine().authorize_run_cancel(peer, run).await?;
        let shown = RunShown::of(&history);
        let owner = &history.opened.opened.origin.principal;
        if self.is_live(run) || matches!(shown.state, RunState::Completed | RunState::CallerTools) {
            let message = format!("the run is {}; there is nothing to resume", self.state_of(&shown).as_str());
            return Err(EngineError::new(ErrorKind::Conflict, Problem::plain("run_not_resumable", message)));
        }
        let caller_gone = shown.problem.as_ref().is_some_and(|problem| problem.code == CALLER_GONE);
        if shown.state == RunState::Indeterminate && !caller_gone {
            let problem = Problem::new(
                "run_indeterminate",
                "it is not known whether one of the run's calls took effect, so the run is not resumed",
                "look at what the call was about to do, then start a new run in the same session",
            );
            return Err(EngineError::new(ErrorKind::Conflict, problem));
        }
        if history.opened.opened.origin.channel.as_str() == ROUTINE_CHANNEL {
            let message = "the run belongs to a routine, and only its scheduler carries it on";
            let problem = Problem::new("run_not_resumable", message, "run the routine: `palyra routines run ROUTINE`");
            return Err(EngineError::new(ErrorKind::Conflict, problem));
        }
        let agent = (owner != peer.effective()).then(|| owner.clone());
        let own = self.engine().peer_of_run(peer, agent)?;
        self.engine().authorize_run(&own, PolicyAction::RunStart)?;
        self.resume_as(run, Arc::new(own), Some(peer)).await
    }

    async fn resume_as(
        &self,
        run: &RunId,
        own: Arc<VerifiedPeer>,
        by: Option<&VerifiedPeer>,
    ) -> Result<(), EngineError> {
        let by = by.map(|peer| peer.effective().clone());
        // Entered first, so that two who resume at once do not both carry it on.
        let live = self.enter(run)?;
        let resumed = async {
            self.engine().record_run(&JournalEvent::RunResumed(RunResumed { run: run.clone(), by })).await?;
            self.active(run, own, Arc::clone(&live)).await
        };
        match resumed.await {
            Ok(active) => {
                self.spawn(active);
                Ok(())
            }
            Err(error) => {
                self.leave(run);
                Err(error)
            }
        }
    }

    /// Ends a run: the call to the model, and the tool calls that it started.
    ///
    /// # Errors
    /// There is none, the peer may not, or it has ended already.
    pub async fn cancel(&self, peer: &VerifiedPeer, run: &RunId) -> Result<RunShown, EngineError> {
        let history = self.engine().authorize_run_cancel(peer, run).await?;
        let shown = RunShown::of(&history);
        if shown.state.is_terminal() {
            let message = format!("the run has ended already: {}", shown.state.as_str());
            return Err(EngineError::new(ErrorKind::Conflict, Problem::plain("run_moved", message)));
        }
        let live = self.lock().get(run).cloned();
        match live {
            Some(live) => {
                live.cancel(peer.effective());
                live.ended().await;
            }
            None => {
                let problem = Problem::plain("cancelled", format!("cancelled by {}", peer.effective()));
                self.record_end(run, RunState::Cancelled, Some(problem), Vec::new()).await?;
            }
        }
        self.show(peer, run).await
    }

    /// A run as it stands.
    ///
    /// # Errors
    /// There is none, or the peer may not see it.
    pub async fn show(&self, peer: &VerifiedPeer, run: &RunId) -> Result<RunShown, EngineError> {
        let shown = RunShown::of(&self.engine().run_history(peer, run).await?);
        let state = self.state_of(&shown);
        Ok(RunShown { state, ..shown })
    }

    /// Runs that the peer may see, the newest first, and where to go on.
    ///
    /// # Errors
    /// The peer may see none at all, or they cannot be read.
    pub async fn list(
        &self,
        peer: &VerifiedPeer,
        before: Option<u64>,
        most: u32,
    ) -> Result<(Vec<RunShown>, Option<u64>), EngineError> {
        let (opened, last) = self.engine().runs(peer, before, most).await?;
        let mut shown = Vec::with_capacity(opened.len());
        for run in opened {
            shown.push(self.show(peer, &run.opened.run).await?);
        }
        Ok((shown, last))
    }

    /// A run as it stands, and what follows; nothing follows where nobody carries it on.
    ///
    /// # Errors
    /// There is none, or the peer may not see it.
    pub async fn watch(&self, peer: &VerifiedPeer, run: &RunId) -> Result<(RunShown, Option<Watch>), EngineError> {
        // Watching begins before the run is looked at, so that nothing happens in between.
        let live = self.lock().get(run).cloned();
        let watch = live.map(|live| live.watch());
        Ok((self.show(peer, run).await?, watch))
    }

    /// Stops carrying runs on; the next start goes on with them.
    pub async fn close(&self) {
        self.0.closing.cancel();
        self.0.tasks.close();
        if tokio::time::timeout(std::time::Duration::from_secs(2), self.0.tasks.wait()).await.is_err() {
            tracing::warn!(left = self.0.tasks.len(), "runs did not stop when they were told to");
        }
    }

    fn state_of(&self, shown: &RunShown) -> RunState {
        match shown.state {
            RunState::Running if !self.is_live(&shown.run) => RunState::Interrupted,
            state => state,
        }
    }

    pub(super) fn is_live(&self, run: &RunId) -> bool {
        self.lock().contains_key(run)
    }

    fn enter(&self, run: &RunId) -> Result<Arc<LiveRun>, EngineError> {
        let mut live = self.lock();
        if live.contains_key(run) {
            let problem = Problem::plain("run_not_resumable", "the run goes on already");
            return Err(EngineError::new(ErrorKind::Conflict, problem));
        }
        if self.0.closing.is_cancelled() {
            return Err(EngineError::new(ErrorKind::Unavailable, closing()));
        }
        if live.len() >= AT_ONCE {
            let problem =
                Problem::new("too_many_runs", format!("{AT_ONCE} runs are under way"), "wait until some have ended");
            return Err(EngineError::new(ErrorKind::Exhausted, problem));
        }
        let entry = Arc::new(LiveRun::default());
        live.insert(run.clone(), Arc::clone(&entry));
        Ok(entry)
    }

    fn leave(&self, run: &RunId) {
        if let Some(live) = self.lock().remove(run) {
            live.end();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, Arc<LiveRun>>> {
        self.0.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn closing() -> Problem {
    Problem::new("shutting_down", "the daemon is shutting down", "try again after its restart")
}

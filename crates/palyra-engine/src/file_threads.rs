//! File work: on threads, of which there is a fixed number, and never given up on.
//!
//! The journal's readers share the runtime's blocking threads, so what agents can start on them is counted: searches by
//! themselves, because one may take as long as an execution may, and everything else, which is short. Who finds no
//! thread free waits, within its own deadline.
//!
//! A deadline tells the work to stop and then waits for its answer. The work asks before it changes anything and stops
//! soon, so that the wait is short; and what is told is what happened. It must never answer for a thread that still
//! runs: a write that came a moment too late would be attested as one that did not happen.

use crate::flow::execute::{Stopped, timed_out};
use crate::flow::resolve::{Refusal, ResolvedCall, file_problem, resolve_with};
use crate::tools::Preparing;
use crate::workspaces::WorkspaceEngine;
use palyra_protocol::{CallId, Problem, ToolProposal};
use palyra_workspace::{Errand, FileError, Workspace};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// How many searches run at a time.
const SEARCHES: usize = 4;
/// How many other pieces of file work run at a time.
const OTHERS: usize = 16;

/// Which threads a piece of file work takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Those for work that may take as long as an execution may.
    Search,
    /// Those for everything else.
    Short,
}

/// The threads that file work may take.
#[derive(Debug)]
pub(crate) struct FileThreads {
    searches: Arc<Semaphore>,
    others: Arc<Semaphore>,
}

impl Default for FileThreads {
    fn default() -> Self {
        Self { searches: Arc::new(Semaphore::new(SEARCHES)), others: Arc::new(Semaphore::new(OTHERS)) }
    }
}

impl FileThreads {
    /// Does the work and tells how it went, whatever the clock said meanwhile.
    pub(crate) async fn run<W>(
        &self,
        lane: Lane,
        (workspace, call): (&Arc<Workspace>, &CallId),
        limit: Duration,
        cancel: &CancellationToken,
        work: W,
    ) -> Result<Value, Stopped>
    where
        W: FnOnce(&Workspace, Errand<'_>) -> Result<Value, FileError> + Send + 'static,
    {
        let deadline = Instant::now() + limit;
        let thread = tokio::select! {
            thread = free(self.threads(lane)) => thread?,
            () = sleep_until(deadline) => return Err(timed_out(limit).into()),
            () = cancel.cancelled() => return Err(Stopped::cancelled()),
        };
        let (workspace, call, stop) = (Arc::clone(workspace), call.clone(), cancel.child_token());
        let on_thread = stop.clone();
        let mut task = tokio::task::spawn_blocking(move || {
            let _thread = thread;
            let stop = || on_thread.is_cancelled();
            if stop() { Err(FileError::Cancelled) } else { work(&workspace, Errand { call: &call, stop: &stop }) }
        });
        let mut late = false;
        let joined = tokio::select! {
            joined = &mut task => joined,
            () = sleep_until(deadline) => {
                late = true;
                stop.cancel();
                task.await
            }
        };
        match joined {
            Ok(Err(FileError::Cancelled)) if late => Err(timed_out(limit).into()),
            Ok(Err(error @ FileError::Cancelled)) => Err(Stopped::Cancelled(file_problem(&error))),
            Ok(done) => done.map_err(|e| file_problem(&e).into()),
            Err(panic) => Err(panicked(&panic).into()),
        }
    }

    /// A thread for a short piece of file work that answers for itself.
    pub(crate) async fn short(&self) -> Result<OwnedSemaphorePermit, Problem> {
        free(&self.others).await
    }

    fn threads(&self, lane: Lane) -> &Arc<Semaphore> {
        match lane {
            Lane::Search => &self.searches,
            Lane::Short => &self.others,
        }
    }
}

impl WorkspaceEngine {
    /// Resolves a proposal: on a thread if that looks at the disk, at once if it does not.
    pub(crate) async fn resolve(&self, id: &CallId, proposal: &ToolProposal) -> Result<ResolvedCall, Refusal> {
        let tool = Arc::clone(self.catalog().find(&proposal.tool)?);
        self.in_place()?;
        match tool.preparing() {
            Preparing::AtOnce => return resolve_with(tool, &self.place(), id.clone(), proposal),
            Preparing::OnThread => {}
        }
        let thread = free(&self.file_threads().others).await?;
        let (engine, id, proposal) = (self.clone(), id.clone(), proposal.clone());
        let task = tokio::task::spawn_blocking(move || {
            let _thread = thread;
            resolve_with(tool, &engine.place(), id, &proposal)
        });
        task.await.unwrap_or_else(|panic| Err(panicked(&panic).into()))
    }
}

async fn free(threads: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Problem> {
    // Nobody closes it.
    let free = Arc::clone(threads).acquire_owned().await;
    free.map_err(|_| Problem::plain("internal", "the daemon takes no file work any more"))
}

fn panicked(panic: &tokio::task::JoinError) -> Problem {
    tracing::error!(%panic, "a tool panicked");
    Problem::plain("internal", "the tool failed; the daemon's log says how")
}

#[cfg(test)]
mod tests {
    use super::*;
    use palyra_workspace::{ListOptions, PatternSyntax, SearchQuery, WriteOptions};
    use serde_json::json;

    struct Place {
        dir: tempfile::TempDir,
        workspace: Arc<Workspace>,
    }

    fn place() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let workspace = Arc::new(Workspace::open(dir.path()).unwrap());
        Place { dir, workspace }
    }

    /// A search whose end nobody lives to see: some hundred steps for every byte of a line of eight million.
    fn endless(place: &Place) -> impl FnOnce(&Workspace, Errand<'_>) -> Result<Value, FileError> + Send + 'static {
        let mut state = 1_u32;
        let line = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if state >> 31 == 0 { b'a' } else { b'b' }
        });
        std::fs::write(place.dir.path().join("line"), line.take(8_000_000).collect::<Vec<_>>()).unwrap();
        let query = SearchQuery {
            pattern: "a[ab]{200}[^ab]".to_owned(),
            syntax: PatternSyntax::Regex,
            path: place.workspace.resolve("line").unwrap(),
            glob: None,
            include_ignored: false,
            case_insensitive: false,
            max_matches: 1,
            context_lines: 0,
        };
        move |workspace, errand| workspace.search(&query, errand.stop).map(|found| json!(found))
    }

    fn code(ended: Result<Value, Stopped>) -> String {
        match ended.unwrap_err() {
            Stopped::Cancelled(problem) | Stopped::Failed(problem) => problem.code,
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_search_ends_at_its_deadline_and_leaves_its_thread() {
        let place = place();
        let threads = FileThreads::default();
        let limit = Duration::from_millis(50);
        let (call, never) = (CallId::mint(), CancellationToken::new());
        let ended = threads.run(Lane::Search, (&place.workspace, &call), limit, &never, endless(&place)).await;
        assert_eq!(code(ended), "execution_timeout");
        assert_eq!(threads.searches.available_permits(), SEARCHES, "the answer came after the work had ended");
        let cancel = CancellationToken::new();
        cancel.cancel();
        let limit = Duration::from_secs(60);
        let ended = threads.run(Lane::Search, (&place.workspace, &call), limit, &cancel, endless(&place)).await;
        assert_eq!(code(ended), "cancelled");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn searches_wait_for_each_other_and_nobody_waits_for_them() {
        let place = place();
        let threads = FileThreads::default();
        let taken = Arc::clone(&threads.searches).acquire_many_owned(u32::try_from(SEARCHES).unwrap()).await.unwrap();
        let (limit, cancel) = (Duration::from_millis(20), CancellationToken::new());
        let call = CallId::mint();
        let ended = threads.run(Lane::Search, (&place.workspace, &call), limit, &cancel, endless(&place)).await;
        assert_eq!(code(ended), "execution_timeout");
        let path = place.workspace.resolve(".").unwrap();
        let list = move |workspace: &Workspace, errand: Errand<'_>| {
            workspace.list(&path, ListOptions::default(), errand.stop).map(|listing| json!(listing))
        };
        let limit = Duration::from_secs(60);
        assert!(threads.run(Lane::Short, (&place.workspace, &call), limit, &cancel, list).await.is_ok());
        drop(taken);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_is_told_of_a_late_write_is_what_happened() {
        let place = place();
        let threads = FileThreads::default();
        let (mut written, mut ended) = (0, 0);
        for n in 0..200_u32 {
            let name = format!("f{n}");
            let path = place.workspace.resolve(&name).unwrap();
            let write = move |workspace: &Workspace, errand: Errand<'_>| {
                let content = vec![b'x'; 1 << 20];
                workspace.write(&path, &content, &WriteOptions::default(), errand).map(|written| json!(written))
            };
            let limit = Duration::from_micros(u64::from(n) * 20);
            let (call, never) = (CallId::mint(), CancellationToken::new());
            let told = threads.run(Lane::Short, (&place.workspace, &call), limit, &never, write).await;
            let there = place.dir.path().join(&name).exists();
            assert_eq!(told.is_ok(), there, "{n}: {told:?}");
            if there { written += 1 } else { ended += 1 }
        }
        assert!(ended > 0, "no deadline was too short: {written} written");
    }
}

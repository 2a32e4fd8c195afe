//! File work: on threads, of which there is a fixed number, and never given up on.
//!
//! The journal's readers share the runtime's blocking threads, so what agents can start on them is counted: searches by
//! themselves, because one may take as long as an execution may, and everything else, which is short. Who finds no thread
//! free waits, within its own deadline.
//!
//! A deadline tells the work to stop and then waits for its answer. The work asks before it changes anything and stops
//! soon, so that the wait is short; and what is told is what happened. It must never answer for a thread that still runs: a
//! write that came a moment too late would be attested as one that did not happen.

use crate::engine::Engine;
use crate::flow::execute::{cancelled, printable, timed_out};
use crate::flow::resolve::{Refusal, ResolvedCall, file_problem};
use crate::work::FileWork;
use palyra_protocol::{CallId, FacetRule, Problem, ToolProposal};
use palyra_workspace::{Errand, FileContent, FileError, Workspace};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// How many searches run at a time.
const SEARCHES: usize = 4;
/// How many other pieces of file work run at a time.
const OTHERS: usize = 16;

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
    pub(crate) async fn run(
        &self,
        workspace: &Arc<Workspace>,
        (call, work): (&CallId, FileWork),
        limit: Duration,
        cancel: &CancellationToken,
    ) -> Result<Value, Problem> {
        let deadline = Instant::now() + limit;
        let threads = if matches!(work, FileWork::Search(_)) { &self.searches } else { &self.others };
        let thread = tokio::select! {
            thread = free(threads) => thread?,
            () = sleep_until(deadline) => return Err(timed_out(limit)),
            () = cancel.cancelled() => return Err(cancelled()),
        };
        let (workspace, call, stop) = (Arc::clone(workspace), call.clone(), cancel.child_token());
        let on_thread = stop.clone();
        let mut task = tokio::task::spawn_blocking(move || {
            let _thread = thread;
            on_files(&workspace, &call, work, &|| on_thread.is_cancelled())
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
            Ok(Err(FileError::Cancelled)) if late => Err(timed_out(limit)),
            Ok(done) => done.map_err(|e| file_problem(&e)),
            Err(panic) => Err(panicked(&panic)),
        }
    }
}

impl Engine {
    /// Resolves a proposal: on a thread if that looks at the disk, at once if it does not.
    pub(crate) async fn resolve(&self, id: &CallId, proposal: &ToolProposal) -> Result<ResolvedCall, Refusal> {
        let on_disk =
            self.catalog().find(&proposal.tool).is_ok_and(|tool| tool.facets.iter().any(|rule| on_disk(*rule)));
        if !on_disk {
            return self.resolver().resolve(id.clone(), proposal);
        }
        let thread = free(&self.file_threads().others).await?;
        let (engine, id, proposal) = (self.clone(), id.clone(), proposal.clone());
        let task = tokio::task::spawn_blocking(move || {
            let _thread = thread;
            engine.resolver().resolve(id, &proposal)
        });
        task.await.unwrap_or_else(|panic| Err(panicked(&panic).into()))
    }
}

/// Whether a facet is found out by looking at files or programs.
fn on_disk(rule: FacetRule) -> bool {
    match rule {
        FacetRule::PathRead(_)
        | FacetRule::TreeRead(_)
        | FacetRule::Listed { .. }
        | FacetRule::PathWritten(_)
        | FacetRule::PatchTargets(_)
        | FacetRule::WorkingDirectory(_)
        | FacetRule::Argv(_) => true,
        FacetRule::Environment(_)
        | FacetRule::StandardInput(_)
        | FacetRule::RequestedHosts(_)
        | FacetRule::Url(_)
        | FacetRule::Method(_) => false,
    }
}

async fn free(threads: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Problem> {
    // Nobody closes it.
    let free = Arc::clone(threads).acquire_owned().await;
    free.map_err(|_| Problem::plain("internal", "the daemon takes no file work any more"))
}

fn panicked(panic: &tokio::task::JoinError) -> Problem {
    tracing::error!(%panic, "a file tool panicked");
    Problem::plain("internal", "the tool failed; the daemon's log says how")
}

fn on_files(workspace: &Workspace, call: &CallId, work: FileWork, stop: &dyn Fn() -> bool) -> Result<Value, FileError> {
    let errand = Errand { call, stop };
    if stop() {
        return Err(FileError::Cancelled);
    }
    match work {
        FileWork::Read { path, range } => {
            workspace.read(&path, range).map(|content| text_or_base64(path.as_str(), content))
        }
        FileWork::List { path, options } => workspace.list(&path, options, stop).map(|listing| json!(listing)),
        FileWork::Search(query) => workspace.search(&query, stop).map(|found| json!(found)),
        FileWork::Write { path, content, options } => {
            workspace.write(&path, &content, &options, errand).map(|written| {
                let mut output = json!(written);
                output["path"] = json!(path.as_str());
                output
            })
        }
        FileWork::Patch(plan) => workspace.apply_patch(plan, errand).map(|outcome| json!(outcome)),
    }
}

fn text_or_base64(path: &str, content: FileContent) -> Value {
    let (text, encoding) = printable(content.bytes);
    json!({
        "path": path, "content": text, "encoding": encoding, "total_bytes": content.total_bytes,
        "truncated": content.truncated, "sha256": content.sha256_hex,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use palyra_workspace::{PatternSyntax, SearchQuery, WriteOptions};

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
    fn endless(place: &Place) -> FileWork {
        let mut state = 1_u32;
        let line = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if state >> 31 == 0 { b'a' } else { b'b' }
        });
        std::fs::write(place.dir.path().join("line"), line.take(8_000_000).collect::<Vec<_>>()).unwrap();
        FileWork::Search(SearchQuery {
            pattern: "a[ab]{200}[^ab]".to_owned(),
            syntax: PatternSyntax::Regex,
            path: place.workspace.resolve("line").unwrap(),
            glob: None,
            case_insensitive: false,
            max_matches: 1,
            context_lines: 0,
        })
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_search_ends_at_its_deadline_and_leaves_its_thread() {
        let place = place();
        let threads = FileThreads::default();
        let limit = Duration::from_millis(50);
        let ended =
            threads.run(&place.workspace, (&CallId::mint(), endless(&place)), limit, &CancellationToken::new()).await;
        assert_eq!(ended.unwrap_err().code, "execution_timeout");
        assert_eq!(threads.searches.available_permits(), SEARCHES, "the answer came after the work had ended");
        let cancel = CancellationToken::new();
        cancel.cancel();
        let ended =
            threads.run(&place.workspace, (&CallId::mint(), endless(&place)), Duration::from_secs(60), &cancel).await;
        assert_eq!(ended.unwrap_err().code, "cancelled");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn searches_wait_for_each_other_and_nobody_waits_for_them() {
        let place = place();
        let threads = FileThreads::default();
        let taken = Arc::clone(&threads.searches).acquire_many_owned(u32::try_from(SEARCHES).unwrap()).await.unwrap();
        let (limit, cancel) = (Duration::from_millis(20), CancellationToken::new());
        let ended = threads.run(&place.workspace, (&CallId::mint(), endless(&place)), limit, &cancel).await;
        assert_eq!(ended.unwrap_err().code, "execution_timeout");
        let path = place.workspace.resolve(".").unwrap();
        let list = FileWork::List { path, options: palyra_workspace::ListOptions::default() };
        assert!(threads.run(&place.workspace, (&CallId::mint(), list), Duration::from_secs(60), &cancel).await.is_ok());
        drop(taken);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_is_told_of_a_late_write_is_what_happened() {
        let place = place();
        let threads = FileThreads::default();
        let (mut written, mut ended) = (0, 0);
        for n in 0..200_u32 {
            let name = format!("f{n}");
            let work = FileWork::Write {
                path: place.workspace.resolve(&name).unwrap(),
                content: vec![b'x'; 1 << 20],
                options: WriteOptions::default(),
            };
            let limit = Duration::from_micros(u64::from(n) * 20);
            let told = threads.run(&place.workspace, (&CallId::mint(), work), limit, &CancellationToken::new()).await;
            let there = place.dir.path().join(&name).exists();
            assert_eq!(told.is_ok(), there, "{n}: {told:?}");
            if there { written += 1 } else { ended += 1 }
        }
        assert!(ended > 0, "no deadline was too short: {written} written");
    }
}

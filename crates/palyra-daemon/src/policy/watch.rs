//! Watches the policy directory: when its files have come to rest after a change, they are read anew.
//!
//! The kernel says when something happens; nobody looks for themselves. Editors and deployments write several files in several steps,
//! so a change is taken up when nothing more has happened for a moment. Whatever is wrong with the files by then, the running
//! set goes on.

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use palyra_engine::{Engine, Reloaded};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// How long files must rest before they are read.
const REST: Duration = Duration::from_millis(150);
/// How long a change can go on before it is taken up as it is.
const LONGEST: Duration = Duration::from_secs(3);

/// A watch; it ends when this is dropped.
#[derive(Debug)]
pub struct Watching {
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Starts watching. Where the host cannot, the rules are still read anew on command, and the log says so.
pub fn start(engine: Engine, directory: PathBuf) -> Option<Watching> {
    let changed = Arc::new(Notify::new());
    match watcher(&directory, Arc::clone(&changed)) {
        Ok(watcher) => Some(Watching { task: tokio::spawn(follow(engine, directory, watcher, changed)) }),
        Err(error) => {
            tracing::warn!(%error, "the policy directory cannot be watched; `palyra policy reload` reads it anew");
            None
        }
    }
}

fn watcher(directory: &Path, changed: Arc<Notify>) -> notify::Result<RecommendedWatcher> {
    let watched = directory.to_owned();
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
        let concerns = match &event {
            Ok(Event { kind: EventKind::Access(_), .. }) => false,
            // The directory's neighbours are nobody's business.
            Ok(event) => event.need_rescan() || event.paths.iter().any(|path| path.starts_with(&watched)),
            Err(_) => true,
        };
        if concerns {
            changed.notify_one();
        }
    })?;
    attach(&mut watcher, directory)?;
    Ok(watcher)
}

/// The directory, its cases, and what holds it: a directory that is put in its place is another one.
fn attach(watcher: &mut RecommendedWatcher, directory: &Path) -> notify::Result<()> {
    if let Some(parent) = directory.parent() {
        watcher.watch(parent, RecursiveMode::NonRecursive)?;
    }
    watcher.watch(directory, RecursiveMode::NonRecursive)?;
    let cases = directory.join("cases");
    if cases.is_dir() {
        watcher.watch(&cases, RecursiveMode::NonRecursive)?;
    }
    Ok(())
}

async fn follow(engine: Engine, directory: PathBuf, mut watcher: RecommendedWatcher, changed: Arc<Notify>) {
    loop {
        changed.notified().await;
        let rest = async { while tokio::time::timeout(REST, changed.notified()).await.is_ok() {} };
        // Files that never rest are read all the same.
        drop(tokio::time::timeout(LONGEST, rest).await);
        // What was replaced is no longer watched, and what came new is not yet.
        if let Err(error) = attach(&mut watcher, &directory) {
            tracing::debug!(%error, "part of the policy directory cannot be watched");
        }
        match engine.policy_files_changed().await {
            Ok(Reloaded::Unchanged) => {}
            Ok(Reloaded::Replaced { from }) => {
                tracing::info!(%from, to = %engine.policy_hash(), "the rules were replaced");
            }
            Ok(Reloaded::Refused(refused)) => {
                tracing::warn!(why = %refused.summary, "the changed rules may not run; those before go on");
            }
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "the rules could not be read anew");
            }
        }
    }
}

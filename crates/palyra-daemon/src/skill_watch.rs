//! What the daemon adds to the engine's skills: where they are kept, and a watch on the files that audits depend on.

use crate::config::SkillsConfig;
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use palyra_engine::{Engine, SkillSetup};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// How long files must rest before they are read.
const REST: Duration = Duration::from_millis(150);

/// Where skills are kept and what they are audited against.
pub(crate) fn setup(config: &SkillsConfig, state_dir: &Path) -> SkillSetup {
    SkillSetup {
        state_dir: state_dir.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        audit_policy: config.audit_policy.clone(),
        advisories: config.advisories.clone(),
        audit_interval: config.audit_interval,
        keep_record_bytes: config.keep_record_bytes,
    }
}

/// A watch; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Watching {
    task: tokio::task::JoinHandle<()>,
    _watcher: RecommendedWatcher,
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Has every skill audited again when the audit policy or an advisory changes. Where the host cannot watch, `palyra
/// skills check` and the interval do, and the log says so.
pub(crate) fn watch(engine: &Engine, config: &SkillsConfig) -> Option<Watching> {
    let files: Vec<PathBuf> = config.audit_policy.iter().chain(&config.advisories).cloned().collect();
    if files.is_empty() {
        return None;
    }
    let changed = Arc::new(Notify::new());
    match watcher(&files, Arc::clone(&changed)) {
        Ok(watcher) => {
            let task = tokio::spawn(follow(engine.clone(), changed));
            Some(Watching { task, _watcher: watcher })
        }
        Err(error) => {
            tracing::warn!(%error, "the audit policy cannot be watched; `palyra skills check` takes it up");
            None
        }
    }
}

/// Editors replace files, so the directory around each is watched, and a directory of advisories itself.
fn watcher(files: &[PathBuf], changed: Arc<Notify>) -> notify::Result<RecommendedWatcher> {
    let absolute: Vec<PathBuf> = files.iter().filter_map(|file| std::path::absolute(file).ok()).collect();
    let known = absolute.clone();
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
        let concerns = match &event {
            Ok(Event { kind: EventKind::Access(_), .. }) => false,
            Ok(event) => {
                event.need_rescan() || event.paths.iter().any(|path| known.iter().any(|k| path.starts_with(k)))
            }
            Err(_) => true,
        };
        if concerns {
            changed.notify_one();
        }
    })?;
    for file in &absolute {
        if let Some(parent) = file.parent() {
            watcher.watch(parent, RecursiveMode::NonRecursive)?;
        }
        if file.is_dir() {
            watcher.watch(file, RecursiveMode::NonRecursive)?;
        }
    }
    Ok(watcher)
}

/// Waits until nothing more happens for a moment, then has skills audited.
async fn follow(engine: Engine, changed: Arc<Notify>) {
    loop {
        changed.notified().await;
        while tokio::time::timeout(REST, changed.notified()).await.is_ok() {}
        engine.skills_changed();
    }
}

//! Watches the policy directory: when its files have come to rest after a change, they are read anew.
//!
//! The kernel says when something happens; nobody looks for themselves. Editors and deployments write several files in
//! several steps, so a change is taken up when nothing more has happened for a moment. Whatever is wrong with the files
//! by then, the running set goes on.

use crate::custody::Way;
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use palyra_engine::{Engine, Reloaded};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
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
    match Watch::new(directory, Arc::clone(&changed)) {
        Ok(watch) => Some(Watching { task: tokio::spawn(follow(engine, watch, changed)) }),
        Err(error) => {
            tracing::warn!(%error, "the policy directory cannot be watched; `palyra policy reload` reads it anew");
            None
        }
    }
}

/// The kernel's watch, and what of its news matters.
#[derive(Debug)]
struct Watch {
    directory: PathBuf,
    watcher: RecommendedWatcher,
    places: Arc<Mutex<Places>>,
    watched: BTreeSet<PathBuf>,
}

impl Watch {
    fn new(directory: PathBuf, changed: Arc<Notify>) -> notify::Result<Self> {
        let places = Arc::new(Mutex::new(Places::of(&directory)));
        let known = Arc::clone(&places);
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            let places = known.lock().unwrap_or_else(PoisonError::into_inner);
            let concerns = match &event {
                Ok(Event { kind: EventKind::Access(_), .. }) => false,
                Ok(event) => event.need_rescan() || event.paths.iter().any(|path| places.concern(path)),
                Err(_) => true,
            };
            if concerns {
                changed.notify_one();
            }
        })?;
        let mut watch = Self { directory, watcher, places, watched: BTreeSet::new() };
        watch.attach()?;
        Ok(watch)
    }

    /// Watches every place that matters now: what was replaced is no longer watched, and what came new is not yet.
    fn attach(&mut self) -> notify::Result<()> {
        let places = Places::of(&self.directory);
        let wanted = places.parents();
        *self.places.lock().unwrap_or_else(PoisonError::into_inner) = places;
        for gone in self.watched.difference(&wanted) {
            if let Err(error) = self.watcher.unwatch(gone) {
                tracing::debug!(%error, "a directory was watched no more");
            }
        }
        let mut result = Ok(());
        for directory in &wanted {
            // One that cannot be watched does not keep the others from it.
            if let Err(error) = self.watcher.watch(directory, RecursiveMode::NonRecursive) {
                result = Err(error);
            }
        }
        self.watched = wanted;
        result
    }
}

/// Where a change matters: directories with all that is in them, and single names. All are free of links.
#[derive(Debug, Default, PartialEq, Eq)]
struct Places {
    directories: BTreeSet<PathBuf>,
    names: BTreeSet<PathBuf>,
}

impl Places {
    /// The policy directory and its cases; each link on the way to them, which may be switched; and each file that a
    /// link in them leads to.
    fn of(directory: &Path) -> Self {
        let mut places = Self::default();
        for directory in [directory.to_owned(), directory.join("cases")] {
            let Some(real) = places.way(&directory) else { continue };
            for entry in std::fs::read_dir(&real).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
                    places.way(&entry.path());
                }
            }
            places.directories.insert(real);
        }
        places
    }

    /// Adds every link on the way to a path, and where the path leads; returns that, if it is there.
    fn way(&mut self, path: &Path) -> Option<PathBuf> {
        let way = Way::to(path).ok()?;
        self.names.extend(way.links);
        // Where nothing is yet, something may come.
        self.names.extend(way.names.last().cloned());
        let (real, _) = way.end?;
        self.names.insert(real.clone());
        Some(real)
    }

    fn concern(&self, path: &Path) -> bool {
        let inside = |directory: &PathBuf| path.starts_with(directory);
        self.names.contains(path) || self.directories.iter().any(inside)
    }

    /// The directories that the kernel has to be asked about.
    fn parents(&self) -> BTreeSet<PathBuf> {
        let above = self.names.iter().filter_map(|name| name.parent());
        above.map(Path::to_owned).chain(self.directories.iter().cloned()).collect()
    }
}

async fn follow(engine: Engine, mut watch: Watch, changed: Arc<Notify>) {
    loop {
        changed.notified().await;
        let rest = async { while tokio::time::timeout(REST, changed.notified()).await.is_ok() {} };
        // Files that never rest are read all the same.
        drop(tokio::time::timeout(LONGEST, rest).await);
        if let Err(error) = watch.attach() {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_on_the_way_and_files_that_links_lead_to_are_watched() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        for name in ["v1/cases", "v2", "shared"] {
            fs::create_dir_all(top.join(name)).unwrap();
        }
        fs::write(top.join("shared/team.cedar"), "").unwrap();
        symlink("../shared/team.cedar", top.join("v1/team.cedar")).unwrap();
        symlink(top.join("v1"), top.join("current")).unwrap();
        symlink("current", top.join("rules")).unwrap();
        let places = Places::of(&top.join("rules"));
        assert_eq!(places.directories, [top.join("v1"), top.join("v1/cases")].into());
        for name in ["rules", "current", "v1", "v1/cases/new.toml", "v1/any", "v1/team.cedar", "shared/team.cedar"] {
            assert!(places.concern(&top.join(name)), "{name}: {places:?}");
        }
        for name in ["v2", "v2/x.cedar", "shared/other", "elsewhere"] {
            assert!(!places.concern(&top.join(name)), "{name}: {places:?}");
        }
        assert!(places.parents().contains(&top) && places.parents().contains(&top.join("shared")));
        symlink("loop", top.join("loop")).unwrap();
        assert!(Places::of(&top.join("loop")).directories.is_empty());
    }
}

//! What a Tier B run works in: the ruleset of its files and a private directory. Kept for the next run of the same
//! kind.
//!
//! Making both takes dozens of system calls and two changes to a file system, which together cost as much as starting
//! the process. So a workplace goes back to a shelf when its run is over, if nothing happened in its directory at all;
//! a directory that was used is removed, and if that takes more than a moment its ruleset is not used again. What lies
//! on the shelf for a second is removed too, so that an idle daemon, or one that ends, leaves nothing behind.
//!
//! INVARIANT (one_run_one_workplace): two runs never use the same ruleset at the same time, and a directory never moves
//! from one ruleset to another: a rule, once given, stays in its ruleset. That of a directory that is gone means
//! nothing: a rule names the directory itself, not its path.

use super::grants::{Access, Grant, RootIdentity};
use super::landlock;
use super::plan::User;
use super::view::{View, Walls};
use crate::error::SandboxError;
use crate::hidden_files::Hidden;
use crate::scratch::Scratch;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

const SHELF_SIZE: usize = 16;
/// After this many runs a ruleset has gathered enough rules for what is gone.
const MOST_USES: u32 = 64;
/// How long a directory waits for another run.
const IDLE: Duration = Duration::from_secs(1);

/// What a workplace was made for: these grants, of these very directories, this user, this state of the system.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Key {
    grants: Vec<(Grant, RootIdentity)>,
    user: Option<User>,
    system: u64,
    /// The view that it is used in.
    view: Option<u64>,
    /// What is left out of it, because the view does not hide it.
    left_out: Option<u64>,
}

/// A ruleset and a directory for one run.
#[derive(Debug)]
pub(super) struct Workplace {
    scratch: Option<Scratch>,
    ruleset: Option<Arc<OwnedFd>>,
    /// `None`: not to be used again.
    key: Option<Key>,
    uses: u32,
}

#[derive(Debug)]
struct Shelved {
    key: Key,
    ruleset: Arc<OwnedFd>,
    scratch: Option<Scratch>,
    uses: u32,
    since: Instant,
}

static SHELF: Mutex<Vec<Shelved>> = Mutex::new(Vec::new());
static SHELVED: Condvar = Condvar::new();

fn shelf() -> MutexGuard<'static, Vec<Shelved>> {
    SHELF.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Workplace {
    /// A workplace with these grants, without what is hidden.
    pub(super) fn find(
        grants: Vec<Grant>,
        user: Option<User>,
        view: Option<&View>,
        hidden: &Hidden,
    ) -> Result<Self, SandboxError> {
        if landlock::abi() == 0 {
            return Ok(Self {
                scratch: Some(Scratch::create(user.map(|user| (user.uid, user.gid)))?),
                ruleset: None,
                key: None,
                uses: 0,
            });
        }
        let mut identified = Vec::with_capacity(grants.len());
        for grant in grants {
            let identity = RootIdentity::of(&grant.path)
                .map_err(|source| SandboxError::WorkspaceUnavailable { path: grant.path.clone(), source })?;
            identified.push((grant, identity));
        }
        let system = landlock::system_generation()?;
        let walled = view.is_some_and(|view| view.walls.is_some());
        let left_out = (!walled && !hidden.is_empty()).then_some(hidden.number);
        let key = Key { grants: identified, user, system, view: view.map(|view| view.number), left_out };
        match Self::from_shelf(&key) {
            Some(workplace) => workplace.furnished(user),
            None => Self::build(key, view, hidden)?.furnished(user),
        }
    }

    fn from_shelf(key: &Key) -> Option<Self> {
        let mut shelf = shelf();
        let at = shelf.iter().rposition(|shelved| shelved.key == *key)?;
        let Shelved { key, ruleset, scratch, uses, .. } = shelf.swap_remove(at);
        Some(Self { scratch, ruleset: Some(ruleset), key: Some(key), uses: uses + 1 })
    }

    fn build(key: Key, view: Option<&View>, hidden: &Hidden) -> Result<Self, SandboxError> {
        let grants: Vec<Grant> = key.grants.iter().map(|(grant, _)| grant.clone()).collect();
        let programs = hidden.program_files().map(|(path, _)| path).chain(hidden.files.iter().cloned());
        let left_out: Vec<PathBuf> = programs.filter(|_| key.left_out.is_some()).collect();
        let ruleset = landlock::make(&grants, &left_out)?;
        if let Some(processes) = view.and_then(|view| view.processes.as_deref()) {
            landlock::add_seen(&ruleset, processes, Access::Read)?;
        }
        if let Some(view) = view {
            add_walls(&ruleset, view)?;
        }
        // A root that was replaced meanwhile, or whose file system cannot tell: good for this run, not for another.
        let still = |(grant, identity): &(Grant, RootIdentity)| {
            identity.is_certain() && RootIdentity::of(&grant.path).is_ok_and(|now| now == *identity)
        };
        let lasting = key.grants.iter().all(still);
        Ok(Self { scratch: None, ruleset: Some(Arc::new(ruleset)), key: lasting.then_some(key), uses: 0 })
    }

    /// With a directory, one way or the other.
    fn furnished(mut self, user: Option<User>) -> Result<Self, SandboxError> {
        if self.scratch.is_none() {
            let scratch = Scratch::create(user.map(|user| (user.uid, user.gid)))?;
            if let Some(ruleset) = &self.ruleset {
                landlock::add(ruleset, &Grant { path: scratch.path().to_owned(), access: Access::Write })?;
            }
            self.scratch = Some(scratch);
        }
        Ok(self)
    }

    /// The private directory.
    pub(super) fn directory(&self) -> &Path {
        self.scratch.as_ref().map_or(Path::new("/nonexistent"), Scratch::path)
    }

    /// The ruleset; `None` without Landlock.
    pub(super) fn ruleset(&self) -> Option<Arc<OwnedFd>> {
        self.ruleset.clone()
    }
}

impl Drop for Workplace {
    fn drop(&mut self) {
        let scratch = match self.scratch.take() {
            Some(scratch) if scratch.is_untouched() => Some(scratch),
            // A directory that was used must be gone before its ruleset can reach another run.
            Some(used) => {
                if !used.remove() {
                    return;
                }
                None
            }
            None => None,
        };
        let (Some(key), Some(ruleset)) = (self.key.take(), self.ruleset.take()) else { return };
        if self.uses >= MOST_USES {
            return;
        }
        tidy_up_later();
        let mut shelf = shelf();
        if shelf.len() >= SHELF_SIZE {
            shelf.remove(0);
        }
        let keep = if shelf.iter().filter(|shelved| shelved.scratch.is_some()).count() < SHELF_SIZE / 2 {
            scratch
        } else {
            None
        };
        shelf.push(Shelved { key, ruleset, scratch: keep, uses: self.uses, since: Instant::now() });
        SHELVED.notify_one();
    }
}

/// Overlays and covers are files of their own, which the rules for what they cover do not speak of.
fn add_walls(ruleset: &OwnedFd, view: &View) -> Result<(), SandboxError> {
    let Some(Walls { hidden, files }) = &view.walls else { return Ok(()) };
    let directories = hidden.directories.iter().map(|inside| (inside.directory.as_path(), Access::Execute));
    for (path, access) in directories.chain(files.iter().map(|file| (file.as_path(), Access::Read))) {
        let gone =
            || SandboxError::LayerUnavailable { layer: "hidden_programs", source: std::io::ErrorKind::NotFound.into() };
        landlock::add_seen(ruleset, &view.open(path).ok_or_else(gone)?, access)?;
    }
    Ok(())
}

/// Sees to it, once, that idle directories go: after a while, and when the process ends.
fn tidy_up_later() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Without the thread only the end of the process removes them; there are never more than a few.
        let _started = std::thread::Builder::new().name("palyra-tidy".into()).spawn(tidy_up);
        crate::removal::at_exit(at_exit);
    });
}

/// Removes directories that no run took for a while; sleeps until there can be one.
fn tidy_up() {
    let mut shelf = shelf();
    loop {
        let now = Instant::now();
        let mut next: Option<Duration> = None;
        for shelved in shelf.iter_mut().filter(|shelved| shelved.scratch.is_some()) {
            let idle = now.saturating_duration_since(shelved.since);
            if idle >= IDLE {
                shelved.scratch = None;
            } else {
                next = Some(next.map_or(IDLE - idle, |next| next.min(IDLE - idle)));
            }
        }
        shelf = match next {
            Some(wait) => SHELVED.wait_timeout(shelf, wait).unwrap_or_else(PoisonError::into_inner).0,
            None => SHELVED.wait(shelf).unwrap_or_else(PoisonError::into_inner),
        };
    }
}

fn at_exit() {
    // A lock that is held means a run is under way in another thread; its directory is that run's business.
    if let Ok(mut shelf) = SHELF.try_lock() {
        shelf.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    const NOTHING: Hidden = Hidden { number: 0, directories: Vec::new(), files: Vec::new() };

    fn grants(path: &Path) -> Vec<Grant> {
        vec![Grant { path: path.to_owned(), access: Access::Write }]
    }

    #[test]
    fn one_run_one_workplace_and_only_an_untouched_one_serves_again() {
        let dir = TempDir::new().unwrap();
        let first = Workplace::find(grants(dir.path()), None, None, &NOTHING).unwrap();
        let path = first.directory().to_owned();
        let second = Workplace::find(grants(dir.path()), None, None, &NOTHING).unwrap();
        assert_ne!(second.directory(), path);
        drop(second);
        drop(first);
        let again = Workplace::find(grants(dir.path()), None, None, &NOTHING).unwrap();
        assert_eq!(again.directory(), path);
        std::fs::write(path.join("x"), "").unwrap();
        std::fs::remove_file(path.join("x")).unwrap();
        drop(again);
        assert!(!path.exists());
    }

    #[test]
    fn a_replaced_root_gets_another_workplace() {
        let dir = TempDir::new().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir(&root).unwrap();
        let first = Workplace::find(grants(&root), None, None, &NOTHING).unwrap();
        let ruleset = first.ruleset().unwrap();
        drop(first);
        std::fs::remove_dir(&root).unwrap();
        std::fs::create_dir(&root).unwrap();
        let second = Workplace::find(grants(&root), None, None, &NOTHING).unwrap();
        assert!(!Arc::ptr_eq(&ruleset, &second.ruleset().unwrap()));
    }
}

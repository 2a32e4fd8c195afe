//! A private directory for one run: its `TMPDIR` and `HOME`. Gone when the run is.
//!
//! All of a daemon's lie in one directory of its own, the *place*, which nobody else can write to or list. It is there
//! as long as the daemon is; what a daemon that was killed left behind, the next one removes.

use crate::error::SandboxError;
use crate::removal;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

const PREFIX: &str = "palyra-run-";

/// Where this daemon's private directories are; made when it is first asked for, and again if somebody removed it.
static PLACE: Mutex<Option<PathBuf>> = Mutex::new(None);

/// The directory that holds the private ones.
pub(crate) fn place() -> Result<PathBuf, SandboxError> {
    let mut place = PLACE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = place.as_ref().filter(|known| known.is_dir()) {
        return Ok(known.clone());
    }
    let root = rustix::process::geteuid().is_root();
    // Root's own TMPDIR may lie where nobody else may go.
    let base = if root { PathBuf::from("/tmp") } else { std::env::temp_dir() };
    let base = fs::canonicalize(&base).map_err(SandboxError::io("find the directory for temporary files"))?;
    remove_stale(&base);
    // The run of a root daemon is another user's, and has to get through.
    let made = make_unique(&base, if root { 0o711 } else { 0o700 })?;
    removal::at_exit(leave);
    *place = Some(made.clone());
    Ok(made)
}

/// Removes the place when the daemon ends.
fn leave() {
    if let Ok(mut place) = PLACE.try_lock()
        && let Some(place) = place.take()
    {
        // One that is not empty holds a run's directory, and is removed by the next daemon.
        let _kept = fs::remove_dir(place);
    }
}

fn make_unique(base: &Path, mode: u32) -> Result<PathBuf, SandboxError> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    for _ in 0..16 {
        let nanos = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.subsec_nanos());
        let count = COUNTER.fetch_add(1, Ordering::Relaxed);
        let path = base.join(format!("{PREFIX}{}-{count}-{nanos:08x}", std::process::id()));
        match DirBuilder::new().mode(mode).create(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(SandboxError::Io { action: "create a private directory", source }),
        }
    }
    let source = io::Error::from(io::ErrorKind::AlreadyExists);
    Err(SandboxError::Io { action: "create a private directory", source })
}

/// Sends the places of daemons that are gone to be removed: this user's own, by the number in their name.
fn remove_stale(base: &Path) {
    let own = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).and_then(|name| name.split('-').next());
        let Some(pid) = owner.and_then(|pid| pid.parse::<i32>().ok()).and_then(rustix::process::Pid::from_raw) else {
            continue;
        };
        let is_ours = entry.metadata().is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == own);
        let is_gone = rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH);
        if is_ours && is_gone {
            removal::later(entry.path());
        }
    }
}

/// Exists as long as this value.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    /// When it last changed: when it was made.
    born: Option<(i64, i64)>,
}

impl Scratch {
    /// Makes one, owned by this user and group if the daemon is root.
    pub(crate) fn create(user: Option<(u32, u32)>) -> Result<Self, SandboxError> {
        let path = make_unique(&place()?, 0o700)?;
        Self { path, born: None }.give_to(user)
    }

    fn give_to(mut self, user: Option<(u32, u32)>) -> Result<Self, SandboxError> {
        if let Some((uid, gid)) = user {
            std::os::unix::fs::lchown(&self.path, Some(uid), Some(gid))
                .map_err(SandboxError::io("give the private directory to its user"))?;
        }
        self.born = changed(&self.path);
        Ok(self)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether nothing was ever done in it or to it: no file made or removed, no permission or attribute set.
    #[cfg(target_os = "linux")]
    pub(crate) fn is_untouched(&self) -> bool {
        self.born.is_some() && changed(&self.path) == self.born
    }

    /// Removes it; tells whether it is gone. One that holds much goes later: how long that takes is up to whoever
    /// filled it, and nobody shall wait for it.
    #[cfg(target_os = "linux")]
    pub(crate) fn remove(self) -> bool {
        removal::remove_few(&self.path) // What is left is sent away when this value is dropped.
    }
}

fn changed(path: &Path) -> Option<(i64, i64)> {
    fs::symlink_metadata(path).ok().map(|metadata| (metadata.ctime(), metadata.ctime_nsec()))
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !removal::remove_few(&self.path) {
            removal::later(std::mem::take(&mut self.path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn it_is_private_and_goes_away() {
        let scratch = Scratch::create(None).unwrap();
        let path = scratch.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        fs::create_dir_all(path.join("a/b")).unwrap();
        fs::set_permissions(path.join("a"), Permissions::from_mode(0o0)).unwrap();
        drop(scratch);
        removal::finish();
        assert!(!path.exists());
    }

    #[test]
    fn a_few_files_go_at_once_and_many_do_not_hold_anybody_up() {
        let few = Scratch::create(None).unwrap();
        fs::write(few.path().join("x"), "").unwrap();
        assert!(few.remove());
        let many = Scratch::create(None).unwrap();
        let path = many.path().to_owned();
        for n in 0..100 {
            fs::create_dir(path.join(n.to_string())).unwrap();
        }
        assert!(!many.remove());
        removal::finish();
        assert!(!path.exists());
    }

    #[test]
    fn what_a_killed_daemon_left_is_removed_and_what_lives_or_is_not_ours_stays() {
        let base = tempfile::TempDir::new().unwrap();
        let mut gone = std::process::Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        let own = std::process::id();
        let [stale, alive, other] =
            [format!("{PREFIX}{}-0-0", gone.id()), format!("{PREFIX}{own}-0-0"), format!("{PREFIX}x")]
                .map(|name| base.path().join(name));
        for path in [&stale, &alive, &other] {
            fs::create_dir_all(path.join("inner/deep")).unwrap();
        }
        remove_stale(base.path());
        removal::finish();
        assert!(!stale.exists() && alive.exists() && other.exists());
    }
}

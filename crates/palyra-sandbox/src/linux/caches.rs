//! The caches of toolchains: a run reads the host's and fills a layer of its own, which the next run finds again.
//!
//! Each cache is an overlay like the workspace's view ([`super::own_view`]), mounted for one run. Two overlays may not
//! share an upper layer, so one run at a time has the layer that is kept; a run beside it gets an empty one that goes
//! when it ends. The host's cache is never written, so nothing that a run puts there is ever used outside the sandbox.

use super::identity::Identity;
use super::own_view;
use super::plan::MountStep;
use crate::error::SandboxError;
use crate::policy::WorkspaceView;
use crate::removal;
use crate::run_home::RunHome;
use rustix::fs::FlockOperation;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// A kept layer that has grown beyond this is emptied: a cache can be filled again.
const MOST_BYTES: u64 = 8 << 30;
const MOST_FILES: u64 = 500_000;
/// How often its size is looked at.
const MEASURED_EVERY: Duration = Duration::from_secs(600);

/// The layers of one run's caches.
#[derive(Debug, Default)]
pub(super) struct Caches(Vec<Layered>);

/// One cache.
#[derive(Debug)]
struct Layered {
    /// The host's.
    cache: PathBuf,
    layers: WorkspaceView,
    /// Held as long as the run lives, where the layer is kept.
    _lock: Option<File>,
    /// What goes with the run.
    spare: Option<PathBuf>,
}

impl Caches {
    /// A layer for each cache. `None` in the policy: they are only read.
    pub(super) fn of(home: &RunHome) -> Result<Self, SandboxError> {
        let Some(store) = &home.cache_store else { return Ok(Self::default()) };
        let failed = SandboxError::io("prepare a toolchain's cache");
        let layered = home.caches.iter().map(|cache| Layered::of(store, cache)).collect::<io::Result<_>>();
        layered.map(Self).map_err(failed)
    }

    /// The caches that have a layer.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        self.0.iter().map(|layered| layered.cache.clone()).collect()
    }

    /// The steps that put the layers over the caches.
    pub(super) fn steps(&self, identity: &Identity) -> Result<Vec<MountStep>, SandboxError> {
        let mut steps = Vec::new();
        for layered in &self.0 {
            steps.extend(own_view::steps(&layered.cache, &layered.layers, identity)?);
        }
        Ok(steps)
    }
}

impl Layered {
    fn of(store: &Path, cache: &Path) -> io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let place = store.join(name_of(cache));
        private_directory(&place)?;
        let lock = File::options().create(true).truncate(false).write(true).open(place.join("lock"))?;
        let is_ours = match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => true,
            Err(rustix::io::Errno::WOULDBLOCK) => false,
            Err(error) => return Err(error.into()),
        };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let base = match is_ours {
            true => place.join("kept"),
            false => place.join(format!("spare-{}-{number}", std::process::id())),
        };
        if is_ours {
            forget_spares(&place);
            keep_small(&place, &base)?;
        }
        private_directory(&base)?;
        let (upper, work) = (base.join("upper"), base.join("work"));
        if !upper.is_dir() {
            like(&upper, cache)?;
        }
        // The kernel marks the layers of an overlay that did not sync as not to be used again. A cache may be: what is
        // broken in it is fetched anew.
        if work.exists() {
            removal::remove_tree(&work)?;
        }
        like(&work, cache)?;
        let layers = WorkspaceView { upper, work };
        let spare = (!is_ours).then_some(base);
        Ok(Self { cache: cache.to_owned(), layers, _lock: is_ours.then_some(lock), spare })
    }
}

impl Drop for Layered {
    fn drop(&mut self) {
        if let Some(spare) = self.spare.take() {
            removal::later(spare);
        }
    }
}

/// One name for each path: hexadecimal, so that no path is another's beginning.
fn name_of(cache: &Path) -> String {
    palyra_protocol::Digest::of(cache.as_os_str().as_bytes()).to_string()
}

fn private_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// A directory with the owner and permissions of another.
fn like(path: &Path, other: &Path) -> io::Result<()> {
    let metadata = fs::metadata(other)?;
    fs::create_dir(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(metadata.mode() & 0o777))?;
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(path, Some(metadata.uid()), Some(metadata.gid()))?;
    }
    Ok(())
}

/// What runs of a daemon that is gone left behind.
fn forget_spares(place: &Path) {
    let own = format!("spare-{}-", std::process::id());
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("spare-") && !name.starts_with(&own) {
            removal::later(entry.path());
        }
    }
}

/// Empties a kept layer that has grown too large. Looked at now and then only, because that takes as long as it is
/// large.
fn keep_small(place: &Path, kept: &Path) -> io::Result<()> {
    let mark = place.join("measured");
    let last = fs::metadata(&mark).and_then(|metadata| metadata.modified()).ok();
    let age = last.and_then(|last| SystemTime::now().duration_since(last).ok());
    if age.is_some_and(|age| age < MEASURED_EVERY) || !kept.exists() {
        return Ok(());
    }
    fs::write(&mark, b"")?;
    let (mut files, mut bytes, mut waiting) = (0u64, 0u64, vec![kept.join("upper")]);
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            files += 1;
            bytes = bytes.saturating_add(metadata.blocks().saturating_mul(512));
            if metadata.is_dir() {
                waiting.push(entry.path());
            }
        }
        if files > MOST_FILES || bytes > MOST_BYTES {
            return removal::remove_tree(kept);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_run_at_a_time_has_the_layer_that_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        fs::create_dir(top.join("cache")).unwrap();
        let home =
            RunHome { caches: vec![top.join("cache")], cache_store: Some(top.join("store")), ..RunHome::default() };
        let first = Caches::of(&home).unwrap();
        let second = Caches::of(&home).unwrap();
        assert_ne!(first.0[0].layers, second.0[0].layers);
        let kept = first.0[0].layers.upper.clone();
        fs::write(kept.join("filled"), "x").unwrap();
        drop((first, second));
        let third = Caches::of(&home).unwrap();
        assert!(third.0[0].layers.upper == kept && kept.join("filled").exists());
        assert!(Caches::of(&RunHome { cache_store: None, ..home }).unwrap().paths().is_empty());
    }
}

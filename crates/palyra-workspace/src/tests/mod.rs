//! The room's tests, through its own door: a real directory, real links, real races.
//!
//! Every test has a workspace and, beside it, an `outside` with a secret in it. Whatever a test does, the secret is
//! never returned and never changed.

mod ignoring;
mod leftovers;
mod patching;
mod paths;
mod properties;
mod races;
mod reading;
mod searching;
mod secrets;
mod writing;

use super::{Errand, FileError, ReadRange, Workspace, WriteOptions};
use palyra_protocol::CallId;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

pub(super) const SECRET: &str = "the secret outside\n";

/// A workspace in a temporary directory, with something outside of it.
pub(super) struct Room {
    _temporary: tempfile::TempDir,
    pub(super) root: PathBuf,
    pub(super) outside: PathBuf,
    pub(super) workspace: Workspace,
}

impl Room {
    pub(super) fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(temporary.path()).unwrap();
        let (root, outside) = (base.join("ws"), base.join("outside"));
        fs::create_dir(&root).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("secret"), SECRET).unwrap();
        let workspace = Workspace::open(&root).unwrap();
        Self { _temporary: temporary, root, outside, workspace }
    }

    /// A room with these files.
    pub(super) fn with(files: &[(&str, &str)]) -> Self {
        let room = Self::new();
        for (path, content) in files {
            room.put(path, content);
        }
        room
    }

    pub(super) fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(super) fn link(&self, target: impl AsRef<Path>, name: &str) {
        std::os::unix::fs::symlink(target, self.root.join(name)).unwrap();
    }

    pub(super) fn text(&self, path: &str) -> String {
        fs::read_to_string(self.root.join(path)).unwrap()
    }

    pub(super) fn read(&self, path: &str) -> Result<Vec<u8>, FileError> {
        let path = self.workspace.resolve(path)?;
        Ok(self.workspace.read(&path, ReadRange::default())?.bytes)
    }

    pub(super) fn write(&self, path: &str, content: &str) -> Result<super::Written, FileError> {
        let path = self.workspace.resolve(path)?;
        self.workspace.write(&path, content.as_bytes(), &WriteOptions::default(), errand(&going_on))
    }

    pub(super) fn patch(&self, diff: &str) -> Result<super::PatchOutcome, FileError> {
        self.workspace.apply_patch(self.workspace.plan_patch(diff)?, errand(&going_on))
    }

    /// Every file and directory in the workspace, sorted, files with their content.
    pub(super) fn snapshot(&self) -> Vec<(String, Option<Vec<u8>>)> {
        let mut all = Vec::new();
        let mut dirs = vec![self.root.clone()];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let entry = entry.unwrap();
                let name = entry.path().strip_prefix(&self.root).unwrap().to_string_lossy().into_owned();
                let kind = entry.file_type().unwrap();
                all.push((name, kind.is_file().then(|| fs::read(entry.path()).unwrap())));
                if kind.is_dir() {
                    dirs.push(entry.path());
                }
            }
        }
        all.sort();
        all
    }

    /// The secret is as it was, and nothing is beside it.
    pub(super) fn assert_outside_untouched(&self) {
        assert_eq!(fs::read_to_string(self.outside.join("secret")).unwrap(), SECRET);
        assert_eq!(fs::read_dir(&self.outside).unwrap().count(), 1, "something was made outside");
    }

    /// The same, and no temporary file is left.
    pub(super) fn assert_clean(&self) {
        self.assert_outside_untouched();
        for (name, _) in self.snapshot() {
            assert!(!name.contains(super::leftovers::TEMPORARY_PREFIX), "left behind: {name}");
        }
    }
}

pub(super) fn code<T: std::fmt::Debug>(result: Result<T, FileError>) -> &'static str {
    result.unwrap_err().code()
}

/// The call that tests work for.
pub(super) static CALL: LazyLock<CallId> = LazyLock::new(CallId::mint);

/// Work for that call.
pub(super) fn errand(stop: &dyn Fn() -> bool) -> Errand<'_> {
    Errand { call: &CALL, stop }
}

/// Nobody wants to stop.
pub(super) fn going_on() -> bool {
    false
}

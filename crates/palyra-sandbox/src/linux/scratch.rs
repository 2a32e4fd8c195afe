//! A private directory for one Tier B run: its `TMPDIR` and `HOME`. Gone when the run is.

use super::plan::User;
use crate::error::SandboxError;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// Exists as long as this value.
#[derive(Debug)]
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn create(user: Option<User>) -> Result<Self, SandboxError> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        // Root's own TMPDIR may lie where nobody else may go.
        let base = if user.is_some() { PathBuf::from("/tmp") } else { std::env::temp_dir() };
        let base = fs::canonicalize(&base).map_err(SandboxError::io("find the directory for temporary files"))?;
        for _ in 0..16 {
            let nanos = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.subsec_nanos());
            let count = COUNTER.fetch_add(1, Ordering::Relaxed);
            let path = base.join(format!("palyra-run-{}-{count}-{nanos:08x}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Self(path).give_to(user),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(SandboxError::Io { action: "create a private directory", source }),
            }
        }
        let source = io::Error::from(io::ErrorKind::AlreadyExists);
        Err(SandboxError::Io { action: "create a private directory", source })
    }

    fn give_to(self, user: Option<User>) -> Result<Self, SandboxError> {
        if let Some(user) = user {
            std::os::unix::fs::lchown(&self.0, Some(user.uid), Some(user.gid))
                .map_err(SandboxError::io("give the private directory to its user"))?;
        }
        Ok(self)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The command may have made directories that even their owner cannot enter.
        if fs::remove_dir_all(&self.0).is_err() {
            open_up(&self.0);
            let _left_to_the_hosts_own_cleaning = fs::remove_dir_all(&self.0);
        }
    }
}

/// Makes every directory below `path` enterable again; symlinks are not followed.
fn open_up(path: &Path) {
    let _cannot = fs::set_permissions(path, Permissions::from_mode(0o700));
    for entry in fs::read_dir(path).into_iter().flatten().filter_map(Result::ok) {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_private_and_goes_away() {
        let scratch = Scratch::create(None).unwrap();
        let path = scratch.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        fs::create_dir_all(path.join("a/b")).unwrap();
        fs::set_permissions(path.join("a"), Permissions::from_mode(0o0)).unwrap();
        drop(scratch);
        assert!(!path.exists());
    }
}

//! A private directory for one run: its `TMPDIR` and `HOME`. Gone when the run is.

use crate::error::SandboxError;
use crate::removal::remove_tree;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

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
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        // Root's own TMPDIR may lie where nobody else may go.
        let base = if user.is_some() { PathBuf::from("/tmp") } else { std::env::temp_dir() };
        let base = fs::canonicalize(&base).map_err(SandboxError::io("find the directory for temporary files"))?;
        for _ in 0..16 {
            let nanos = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.subsec_nanos());
            let count = COUNTER.fetch_add(1, Ordering::Relaxed);
            let path = base.join(format!("palyra-run-{}-{count}-{nanos:08x}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Self { path, born: None }.give_to(user),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(SandboxError::Io { action: "create a private directory", source }),
            }
        }
        let source = io::Error::from(io::ErrorKind::AlreadyExists);
        Err(SandboxError::Io { action: "create a private directory", source })
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
}

fn changed(path: &Path) -> Option<(i64, i64)> {
    fs::symlink_metadata(path).ok().map(|metadata| (metadata.ctime(), metadata.ctime_nsec()))
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Most commands leave nothing in it.
        if fs::remove_dir(&self.path).is_ok() {
            return;
        }
        // What cannot be removed even so is left to the host's own cleaning.
        let _removed = remove_tree(&self.path);
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
        assert!(!path.exists());
    }
}

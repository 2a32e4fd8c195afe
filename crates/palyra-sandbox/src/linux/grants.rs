//! What of the host a Tier B process may touch: the policy's roots and the common layout.
//!
//! INVARIANT (protected paths): no grant is a protected path, lies in one, or holds one. The first two would hand over
//! the daemon's state; the third as well, because Landlock cannot take back a part of what it gave.

use crate::error::SandboxError;
use crate::layout;
pub(super) use crate::roots::{Access, Roots};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// One path that may be touched.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Grant {
    pub(super) path: PathBuf,
    pub(super) access: Access,
}

/// Which directory a root is. A directory that was removed and made again under the same name, even one that got the
/// same number from the file system, has another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct RootIdentity {
    device: u64,
    inode: u64,
    created: Option<SystemTime>,
}

impl RootIdentity {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        Ok(Self { device: metadata.dev(), inode: metadata.ino(), created: metadata.created().ok() })
    }

    /// Whether the file system tells enough to rely on this.
    pub(super) fn is_certain(self) -> bool {
        self.created.is_some()
    }
}

/// What a Tier B process may touch beyond the system and its private directory.
pub(super) fn tier_b(roots: &Roots) -> Result<Vec<Grant>, SandboxError> {
    let system = || layout::tier_b_system().map(|(path, _)| Path::new(path));
    for protected in &roots.protected {
        if let Some(root) = system().find(|path| protected.starts_with(path)) {
            return Err(SandboxError::ProtectedPathExposed { root: root.to_owned(), protected: protected.clone() });
        }
        if let Some(root) = roots.all().find(|root| protected.starts_with(root)) {
            return Err(SandboxError::ProtectedPathExposed { root: root.clone(), protected: protected.clone() });
        }
    }
    let grant = |path: &Path, access| Grant { path: path.to_owned(), access };
    let mut grants = vec![grant(&roots.workspace, roots.workspace_access)];
    grants.extend(roots.read.iter().map(|root| grant(root, Access::Execute)));
    grants.extend(roots.write.iter().map(|root| grant(root, Access::Write)));
    Ok(grants)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::policy;
    use tempfile::TempDir;

    #[test]
    fn a_protected_path_in_the_system_is_never_granted() {
        let dir = TempDir::new().unwrap();
        let mut policy = policy(dir.path());
        policy.protected_paths = vec!["/usr/local/palyra".into()];
        let roots = Roots::resolve(&policy).unwrap();
        let refused = tier_b(&roots).unwrap_err();
        assert_eq!(refused.code(), "sandbox_protected_path_exposed");
    }
}

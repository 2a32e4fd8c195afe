//! What of the host a Tier B process may touch: the policy's roots and the common layout, resolved and checked.
//!
//! INVARIANT (protected paths): no grant is a protected path, lies in one, or holds one. The first two would hand over the
//! daemon's state; the third as well, because Landlock cannot take back a part of what it gave.

use crate::error::SandboxError;
use crate::layout;
use crate::policy::{SandboxProcessRunnerPolicy, WorkspaceAccess};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// What may be done with a path and everything below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    /// Read.
    Read,
    /// Read and execute.
    Execute,
    /// Read, write, create, remove, execute.
    Write,
    /// Read and write, no more: a device.
    Device,
}

/// One path that may be touched.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Grant {
    pub(super) path: PathBuf,
    pub(super) access: Access,
}

/// Which directory a root is. A directory that was removed and made again under the same name, even one that got the same
/// number from the file system, has another one.
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

/// The roots that a policy names, free of symlinks, checked against the protected paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Roots {
    pub(super) workspace: PathBuf,
    pub(super) workspace_access: Access,
    pub(super) read: Vec<PathBuf>,
    pub(super) write: Vec<PathBuf>,
    /// Protected paths that exist, free of symlinks.
    pub(super) protected: Vec<PathBuf>,
}

impl Roots {
    /// Resolves the policy's roots. Every one of them must be an existing directory or file.
    pub(super) fn resolve(policy: &SandboxProcessRunnerPolicy) -> Result<Self, SandboxError> {
        let workspace = resolve_root(&policy.workspace_root)?;
        if !workspace.is_dir() {
            let source = io::Error::from(io::ErrorKind::NotADirectory);
            return Err(SandboxError::WorkspaceUnavailable { path: workspace, source });
        }
        let workspace_access = match policy.workspace_access {
            WorkspaceAccess::ReadWrite => Access::Write,
            WorkspaceAccess::ReadOnly => Access::Execute,
        };
        let resolve_all =
            |roots: &[PathBuf]| roots.iter().map(|root| resolve_root(root)).collect::<Result<Vec<_>, _>>();
        let roots = Self {
            workspace,
            workspace_access,
            read: resolve_all(&policy.read_roots)?,
            write: resolve_all(&policy.write_roots)?,
            protected: policy.protected_paths.iter().map(|path| resolve_protected(path)).collect(),
        };
        roots.check_inside_protected()?;
        Ok(roots)
    }

    /// All roots.
    pub(super) fn all(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.workspace).chain(&self.read).chain(&self.write)
    }

    /// The roots that may be written.
    pub(super) fn writable(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.workspace).filter(|_| self.workspace_access == Access::Write).chain(&self.write)
    }

    fn check_inside_protected(&self) -> Result<(), SandboxError> {
        for protected in &self.protected {
            if let Some(root) = self.all().find(|root| root.starts_with(protected)) {
                return Err(SandboxError::ProtectedPathExposed { root: root.clone(), protected: protected.clone() });
            }
        }
        Ok(())
    }

    /// Whether `path` lies within a root.
    pub(super) fn contain(&self, path: &Path) -> bool {
        self.all().any(|root| path.starts_with(root))
    }
}

fn resolve_root(root: &Path) -> Result<PathBuf, SandboxError> {
    if !root.is_absolute() {
        return Err(SandboxError::InvalidPolicy { reason: format!("the root `{}` is not absolute", root.display()) });
    }
    let resolved = fs::canonicalize(root)
        .map_err(|source| SandboxError::WorkspaceUnavailable { path: root.to_owned(), source })?;
    if resolved == Path::new("/") {
        return Err(SandboxError::InvalidPolicy { reason: "the root directory of the host cannot be granted".into() });
    }
    Ok(resolved)
}

/// A protected path as the kernel would reach it; one that is not there yet keeps its name below the nearest parent that is.
fn resolve_protected(path: &Path) -> PathBuf {
    if let Ok(resolved) = fs::canonicalize(path) {
        return resolved;
    }
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => resolve_protected(parent).join(name),
        _ => path.to_owned(),
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
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    #[test]
    fn a_symlinked_workspace_is_followed_and_a_missing_one_refused() {
        let dir = TempDir::new().unwrap();
        let real = dir.path().join("real");
        fs::create_dir(&real).unwrap();
        symlink(&real, dir.path().join("link")).unwrap();
        assert_eq!(
            Roots::resolve(&policy(dir.path().join("link"))).unwrap().workspace,
            fs::canonicalize(&real).unwrap()
        );
        let missing = Roots::resolve(&policy(dir.path().join("missing"))).unwrap_err();
        assert_eq!(missing.code(), "sandbox_workspace_unavailable");
        for bad in ["relative", "/"] {
            assert_eq!(Roots::resolve(&policy(bad)).unwrap_err().code(), "sandbox_invalid_policy", "{bad}");
        }
    }

    #[test]
    fn no_root_lies_in_a_protected_path() {
        let dir = TempDir::new().unwrap();
        let mut policy = policy(dir.path());
        policy.protected_paths = vec![dir.path().to_owned()];
        assert_eq!(Roots::resolve(&policy).unwrap_err().code(), "sandbox_protected_path_exposed");
    }

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

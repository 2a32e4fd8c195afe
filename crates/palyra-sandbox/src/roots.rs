//! The directories that a policy names: resolved, and checked against the daemon's own.
//!
//! Every backend starts here, so that a workspace means the same on every platform: an existing directory, free of symlinks,
//! that does not lie in a protected path. Whether a root may *hold* a protected path depends on whether the backend can take
//! back a part of what it gave; that is each backend's own check.

use crate::error::SandboxError;
use crate::policy::{SandboxProcessRunnerPolicy, WorkspaceAccess};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What may be done with a path and everything below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    /// Read.
    #[cfg(target_os = "linux")]
    Read,
    /// Read and execute.
    Execute,
    /// Read, write, create, remove, execute.
    Write,
    /// Read and write, no more: a device.
    #[cfg(target_os = "linux")]
    Device,
}

/// The roots that a policy names, free of symlinks, checked against the protected paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Roots {
    pub(crate) workspace: PathBuf,
    pub(crate) workspace_access: Access,
    pub(crate) read: Vec<PathBuf>,
    pub(crate) write: Vec<PathBuf>,
    /// Protected paths that exist, free of symlinks.
    pub(crate) protected: Vec<PathBuf>,
}

impl Roots {
    /// Resolves the policy's roots. Every one of them must be an existing directory or file.
    pub(crate) fn resolve(policy: &SandboxProcessRunnerPolicy) -> Result<Self, SandboxError> {
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
    pub(crate) fn all(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.workspace).chain(&self.read).chain(&self.write)
    }

    /// The roots that may be written.
    pub(crate) fn writable(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.workspace).filter(|_| self.workspace_access == Access::Write).chain(&self.write)
    }

    /// No root may lie in a protected path.
    pub(crate) fn check_inside_protected(&self) -> Result<(), SandboxError> {
        for protected in &self.protected {
            if let Some(root) = self.all().find(|root| root.starts_with(protected)) {
                return Err(SandboxError::ProtectedPathExposed { root: root.clone(), protected: protected.clone() });
            }
        }
        Ok(())
    }

    /// Where a command runs: an existing directory within a root, free of symlinks.
    pub(crate) fn working_directory(&self, wanted: &Path) -> Result<PathBuf, SandboxError> {
        let found = if *wanted == self.workspace {
            self.workspace.clone()
        } else {
            fs::canonicalize(wanted)
                .ok()
                .filter(|path| path.is_dir())
                .ok_or_else(|| SandboxError::WorkingDirectoryMissing { path: wanted.to_owned() })?
        };
        if !wanted.is_absolute() || !self.contain(&found) {
            return Err(SandboxError::WorkingDirectoryOutside { path: wanted.to_owned() });
        }
        Ok(found)
    }

    /// Whether `path` lies within a root.
    pub(crate) fn contain(&self, path: &Path) -> bool {
        self.all().any(|root| path.starts_with(root))
    }
}

fn resolve_root(root: &Path) -> Result<PathBuf, SandboxError> {
    if !root.is_absolute() {
        return Err(SandboxError::InvalidPolicy { reason: format!("the root `{}` is not absolute", root.display()) });
    }
    let resolved = fs::canonicalize(root)
        .map_err(|source| SandboxError::WorkspaceUnavailable { path: root.to_owned(), source })?;
    if resolved.parent().is_none() {
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

#[cfg(test)]
#[cfg(unix)]
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
    fn a_command_runs_within_a_root() {
        let dir = TempDir::new().unwrap();
        let workspace = dir.path().join("w");
        fs::create_dir_all(workspace.join("sub")).unwrap();
        fs::create_dir_all(dir.path().join("other")).unwrap();
        symlink(dir.path().join("other"), workspace.join("link")).unwrap();
        let roots = Roots::resolve(&policy(&workspace)).unwrap();
        assert!(roots.working_directory(&workspace.join("sub")).is_ok());
        for (bad, code) in [
            (workspace.join("link"), "sandbox_working_directory_outside"),
            (workspace.join("missing"), "sandbox_working_directory_missing"),
            (dir.path().to_owned(), "sandbox_working_directory_outside"),
        ] {
            assert_eq!(roots.working_directory(&bad).unwrap_err().code(), code, "{}", bad.display());
        }
    }
}

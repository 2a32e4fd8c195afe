//! The directories that a policy names: resolved, and checked against the daemon's own.
//!
//! Every backend starts here, so that a workspace means the same on every platform: an existing directory, free of
//! symlinks, that does not lie in a protected path. Whether a root may *hold* a protected path depends on whether the
//! backend can take back a part of what it gave; that is each backend's own check.
//!
//! INVARIANT (roots_are_not_replaceable): no root, and no protected path, is found through a directory that runs may
//! write. A run could rename that directory and put a link in its place, and the next run would be given whatever the
//! link names.

use crate::error::SandboxError;
use crate::executable::walk;
#[cfg(target_os = "linux")]
use crate::layout;
#[cfg(target_os = "linux")]
use crate::policy::SandboxTier;
use crate::policy::{SandboxProcessRunnerPolicy, WorkspaceAccess};
use std::cell::OnceCell;
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
    /// Those of `read` whose changes go to a layer of the run's own.
    #[cfg(target_os = "linux")]
    pub(crate) filled: Vec<PathBuf>,
    /// Protected paths that exist, free of symlinks.
    pub(crate) protected: Vec<PathBuf>,
}

impl Roots {
    /// A workspace that may be written, and nothing else.
    #[cfg(target_os = "linux")]
    pub(crate) fn of_workspace(workspace: &Path) -> Self {
        let (workspace, workspace_access) = (workspace.to_owned(), Access::Write);
        let (read, write, filled, protected) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { workspace, workspace_access, read, write, filled, protected }
    }

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
        let roots = Self {
            workspace,
            workspace_access,
            read: policy.read_only().map(|root| resolve_root(root)).collect::<Result<_, _>>()?,
            write: policy.write_roots.iter().map(|root| resolve_root(root)).collect::<Result<_, _>>()?,
            #[cfg(target_os = "linux")]
            filled: policy.filled_caches().map(|root| resolve_root(root)).collect::<Result<_, _>>()?,
            protected: policy.protected_paths.iter().map(|path| resolve_protected(path)).collect(),
        };
        roots.check()?;
        roots.check_ways(policy)?;
        #[cfg(target_os = "linux")]
        roots.all().try_for_each(|root| check_place(root, policy.tier))?;
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

    /// No root lies in a protected path; no root and no protected path lies in a writable root.
    pub(crate) fn check(&self) -> Result<(), SandboxError> {
        for protected in &self.protected {
            let holds = |root: &&PathBuf| protected.starts_with(root);
            let lies_in = |root: &&PathBuf| root.starts_with(protected);
            if let Some(root) = self.all().find(lies_in).or_else(|| self.writable().find(holds)) {
                return Err(SandboxError::ProtectedPathExposed { root: root.clone(), protected: protected.clone() });
            }
        }
        for inner in self.all() {
            if let Some(outer) = self.writable().find(|outer| inner != *outer && inner.starts_with(outer)) {
                return Err(SandboxError::NestedRoots { inner: inner.clone(), outer: outer.clone() });
            }
        }
        Ok(())
    }

    /// No root is named by a path that leads through a writable one, as a link in it would.
    fn check_ways(&self, policy: &SandboxProcessRunnerPolicy) -> Result<(), SandboxError> {
        let further = policy.read_only().chain(&policy.write_roots);
        // A workspace alone has nothing to lie in.
        if self.read.is_empty() && self.write.is_empty() {
            return Ok(());
        }
        for inner in further.chain([&policy.workspace_root]) {
            let met = OnceCell::new();
            let meets = |directory: &Path| {
                let outer = self.writable().find(|outer| directory.starts_with(outer));
                outer.is_some_and(|outer| met.set(outer.clone()).is_ok())
            };
            let _where_it_leads = walk(inner, meets);
            if let Some(outer) = met.into_inner() {
                return Err(SandboxError::NestedRoots { inner: inner.clone(), outer });
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

/// Whether these roots can be given to runs: what [`crate::run_constrained_process`] would say about them, beforehand.
///
/// # Errors
/// The first root that cannot be used, and why.
pub fn check_roots(policy: &SandboxProcessRunnerPolicy) -> Result<(), SandboxError> {
    Roots::resolve(policy).map(drop)
}

/// Some places cannot be handed on: the kernel's own view of the host, and what Tier C fills with files of its own.
#[cfg(target_os = "linux")]
fn check_place(root: &Path, tier: SandboxTier) -> Result<(), SandboxError> {
    let refuse = |reason| Err(SandboxError::InvalidPolicy { reason });
    if let Some(kernel) = ["/proc", "/sys", "/dev"].into_iter().find(|kernel| root.starts_with(kernel)) {
        return refuse(format!(
            "the root `{}` lies in `{kernel}`, which shows the host's processes and devices and never what a run has of \
             its own; leave it out",
            root.display()
        ));
    }
    let own = layout::ACCOUNT_FILES.iter().find(|own| Path::new(own).starts_with(root));
    match own.filter(|_| tier == SandboxTier::C) {
        Some(own) => refuse(format!(
            "the root `{}` cannot be given as a whole, because tier c puts a `{own}` of its own there; name the files or \
             directories in it that are needed",
            root.display()
        )),
        None => Ok(()),
    }
}

/// A protected path as the kernel would reach it; one that is not there yet keeps its name below the nearest parent
/// that is.
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
    fn nothing_protected_lies_where_runs_may_write() {
        let dir = TempDir::new().unwrap();
        fs::create_dir(dir.path().join("state")).unwrap();
        let mut policy = policy(dir.path());
        policy.protected_paths = vec![dir.path().join("state")];
        assert_eq!(Roots::resolve(&policy).unwrap_err().code(), "sandbox_protected_path_exposed");
        policy.workspace_access = WorkspaceAccess::ReadOnly;
        Roots::resolve(&policy).unwrap();
    }

    #[test]
    fn no_root_lies_where_runs_may_write() {
        let dir = TempDir::new().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let (outer, inner, apart) = (top.join("w"), top.join("w/a/sub"), top.join("apart"));
        for path in [&inner, &apart] {
            fs::create_dir_all(path).unwrap();
        }
        // What is named lies outside; the name does not.
        symlink(&apart, outer.join("link")).unwrap();
        symlink(outer.join("link"), top.join("link-to-link")).unwrap();
        let with = |workspace: &Path, read: &[&Path], write: &[&Path]| {
            let mut policy = policy(workspace);
            policy.read_roots = read.iter().map(|path| path.to_path_buf()).collect();
            policy.write_roots = write.iter().map(|path| path.to_path_buf()).collect();
            policy
        };
        for policy in [
            with(&outer, &[&inner], &[]),
            with(&outer, &[], &[&inner]),
            with(&inner, &[], &[&outer]),
            with(&apart, &[&inner], &[&outer]),
            with(&outer, &[&outer.join("link")], &[]),
            with(&outer, &[], &[&top.join("link-to-link")]),
            with(&outer.join("link"), &[], &[&outer]),
        ] {
            let refused = Roots::resolve(&policy).unwrap_err();
            assert_eq!(refused.code(), "sandbox_nested_roots", "{policy:?}");
            assert!(refused.to_string().contains(&format!("`{}`", outer.display())), "{refused}");
        }
        let mut read_only = with(&outer, &[&outer.join("link")], &[&inner]);
        read_only.workspace_access = WorkspaceAccess::ReadOnly;
        for policy in [
            read_only,
            with(&inner, &[&outer], &[]),
            with(&outer, &[&outer], &[&outer]),
            with(&outer, &[&apart], &[&apart]),
        ] {
            Roots::resolve(&policy).unwrap();
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_kernels_own_places_are_no_roots() {
        let dir = TempDir::new().unwrap();
        for tier in [SandboxTier::B, SandboxTier::C] {
            for (root, refused) in [
                ("/proc", true),
                ("/proc/self", true),
                ("/sys/devices", true),
                ("/dev", true),
                ("/etc", tier == SandboxTier::C),
                ("/etc/group", tier == SandboxTier::C),
                ("/etc/ssl", false),
            ] {
                let mut policy = policy(dir.path());
                policy.tier = tier;
                policy.read_roots = vec![root.into()];
                let code = Roots::resolve(&policy).err().map(|error| error.code());
                assert_eq!(code, refused.then_some("sandbox_invalid_policy"), "{root} in tier {tier}");
            }
        }
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

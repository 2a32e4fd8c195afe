//! The writable roots of a run, each opened once before it.
//!
//! A path may lead elsewhere by the time that a run is over: somebody moves the workspace and puts a link in its place.
//! So what is looked at before a run, and set aside after it, is looked at beneath these descriptors; and before the
//! command begins, the roots that bubblewrap bound are compared with them ([`super::guards`]). They are the directories
//! that the run had, wherever those are by now.

use super::grants::Roots;
use super::guarded_paths;
use crate::error::SandboxError;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

/// One writable root.
#[derive(Debug)]
pub(super) struct Top {
    /// Its path when it was opened, by which it is known.
    pub(super) root: PathBuf,
    pub(super) directory: OwnedFd,
    /// Its device and number.
    pub(super) file: (u64, u64),
    /// Whether git took it for a repository of its own before the run, as it does with somebody's `.git`.
    pub(super) is_repository: bool,
}

impl Top {
    fn open(root: &Path) -> Result<Option<Self>, SandboxError> {
        let unavailable = |e: Errno| SandboxError::WorkspaceUnavailable { path: root.to_owned(), source: e.into() };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // It was free of links when it was resolved.
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let directory = match rustix::fs::openat2(CWD, root, flags, Mode::empty(), resolve) {
            // A root may be a file, which has nothing in it.
            Err(Errno::NOTDIR) => return Ok(None),
            opened => opened.map_err(unavailable)?,
        };
        let stat = rustix::fs::fstat(&directory).map_err(unavailable)?;
        let is_repository = guarded_paths::is_repository(&directory);
        Ok(Some(Self { root: root.to_owned(), directory, file: (stat.st_dev, stat.st_ino), is_repository }))
    }

    /// Where it is now.
    pub(super) fn now(&self) -> PathBuf {
        let link = format!("/proc/self/fd/{}", self.directory.as_raw_fd());
        std::fs::read_link(link).unwrap_or_else(|_| self.root.clone())
    }
}

/// All of them, each once.
#[derive(Debug)]
pub(super) struct Tops(Vec<Top>);

impl Tops {
    /// Opens the writable roots.
    pub(super) fn open(roots: &Roots) -> Result<Self, SandboxError> {
        let mut tops: Vec<Top> = Vec::new();
        for root in roots.writable() {
            if !tops.iter().any(|top| top.root == *root) {
                tops.extend(Top::open(root)?);
            }
        }
        Ok(Self(tops))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Top> {
        self.0.iter()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The one that is known by this path.
    pub(super) fn of(&self, root: &Path) -> Option<&Top> {
        self.iter().find(|top| top.root == root)
    }

    /// Where a path lies by the names that the roots are known by.
    pub(super) fn holding(&self, path: &Path) -> Option<(&Top, PathBuf)> {
        self.iter().find_map(|top| Some((top, path.strip_prefix(&top.root).ok()?.to_owned())))
    }

    /// Where a path that holds a link leads, if that is in a root.
    pub(super) fn behind(&self, top: &Top, relative: &Path) -> Option<(&Top, PathBuf)> {
        let real = real(&top.now().join(relative))?;
        self.iter().find_map(|top| Some((top, real.strip_prefix(top.now()).ok()?.to_owned())))
    }
}

/// Where a path leads; one that leads to nothing yet keeps its name below what is there.
pub(super) fn real(path: &Path) -> Option<PathBuf> {
    if let Ok(real) = std::fs::canonicalize(path) {
        return Some(real);
    }
    // A link that leads to nothing: to where it would.
    let target = std::fs::read_link(path).ok().and_then(|target| Some(path.parent()?.join(target)));
    let path = target.as_deref().unwrap_or(path);
    Some(std::fs::canonicalize(path.parent()?).ok()?.join(path.file_name()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::policy;
    use std::fs;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    #[test]
    fn a_root_stays_what_was_opened_and_tells_where_it_is() {
        let dir = TempDir::new().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let (root, moved, other) = (top.join("w"), top.join("moved"), top.join("other"));
        for path in [&root, &other] {
            fs::create_dir(path).unwrap();
        }
        let roots = Roots::resolve(&policy(&root)).unwrap();
        let tops = Tops::open(&roots).unwrap();
        fs::rename(&root, &moved).unwrap();
        symlink(&other, &root).unwrap();
        assert_eq!(tops.of(&root).unwrap().now(), moved);
        // A link that came in between is not followed.
        assert_eq!(Tops::open(&roots).unwrap_err().code(), "sandbox_workspace_unavailable");
    }
}

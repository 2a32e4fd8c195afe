//! The parts of the workspace that a package was granted: what its script sees instead of all of it.
//!
//! Bubblewrap binds each part by its path, and would follow a link that somebody put there a moment ago. So before the
//! command begins each part is compared with what its path leads to, without following a link, in the tree that it was
//! bound from; a run whose parts are others is refused.

use crate::error::SandboxError;
use crate::policy::Package;
use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The layer's name in the report.
pub(super) const LAYER: &str = "workspace_parts";

/// A directory of the workspace that a run sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// Its path from the workspace; empty for all of it.
    path: PathBuf,
    pub(super) is_writable: bool,
}

impl Part {
    pub(super) fn path_in(&self, workspace: &Path) -> PathBuf {
        // Joining an empty path would leave a slash behind.
        if self.path.as_os_str().is_empty() { workspace.to_owned() } else { workspace.join(&self.path) }
    }
}

/// The parts of a package, outer before inner. Without a view nothing is written.
pub(super) fn of(package: &Package, on_view: bool) -> Vec<Part> {
    let plain = |path: &PathBuf| path.components().filter(|part| part.as_os_str() != ".").collect::<PathBuf>();
    let mut parts: BTreeMap<PathBuf, bool> = package.read.iter().map(|path| (plain(path), false)).collect();
    parts.extend(package.write.iter().map(|path| (plain(path), on_view)));
    parts.into_iter().map(|(path, is_writable)| Part { path, is_writable }).collect()
}

/// Compares what bubblewrap's process `pid` has bound with what the parts' paths lead to.
pub(super) fn prove(parts: &[Part], workspace: &Path, pid: i32) -> Result<(), SandboxError> {
    if parts.is_empty() {
        return Ok(());
    }
    let tree = |name: &str| {
        let path =
            PathBuf::from(format!("/proc/{pid}/root/{name}")).join(workspace.strip_prefix("/").unwrap_or(workspace));
        open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
    };
    let look = |error: Errno| SandboxError::Io { action: "look into the sandbox", source: error.into() };
    let (before, inside) = (tree("oldroot").map_err(look)?, tree("newroot").map_err(look)?);
    for part in parts {
        let is_meant = compare(before.as_fd(), inside.as_fd(), &part.path).map_err(look)?;
        if !is_meant {
            let source = std::io::Error::other(format!("`{}` leads elsewhere", part.path.display()));
            return Err(SandboxError::LayerUnavailable { layer: LAYER, source });
        }
    }
    Ok(())
}

/// Whether a part is the directory that its path leads to without a link, or is left out.
fn compare(before: BorrowedFd<'_>, inside: BorrowedFd<'_>, path: &Path) -> Result<bool, Errno> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let Some(bound) = identity(inside, path)? else { return Ok(true) };
    Ok(identity(before, path)? == Some(bound))
}

fn identity(tree: BorrowedFd<'_>, path: &Path) -> Result<Option<(u64, u64)>, Errno> {
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let opened: OwnedFd = match openat2(tree, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), how) {
        Ok(opened) => opened,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        Err(error) => return Err(error),
    };
    let stat = rustix::fs::fstat(&opened)?;
    Ok(Some((stat.st_dev, stat.st_ino)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    #[test]
    fn parts_are_sorted_and_written_only_on_a_view() {
        let package = Package {
            files: Vec::new(),
            read: vec!["data".into(), "data/in".into(), "./out".into()],
            write: vec!["out".into()],
        };
        let shown = |on_view| -> Vec<(String, bool)> {
            of(&package, on_view).iter().map(|part| (part.path.display().to_string(), part.is_writable)).collect()
        };
        let expected = |out| vec![("data".to_owned(), false), ("data/in".to_owned(), false), ("out".to_owned(), out)];
        assert_eq!((shown(true), shown(false)), (expected(true), expected(false)));
        let all = of(&Package { read: vec![".".into()], ..Package::default() }, true);
        assert_eq!(all[0].path_in(Path::new("/w")), Path::new("/w"));
    }

    #[test]
    fn a_link_in_the_place_of_a_part_is_found() {
        let dir = TempDir::new().unwrap();
        let (before, inside) = (dir.path().join("before"), dir.path().join("inside"));
        fs::create_dir_all(before.join("real")).unwrap();
        fs::create_dir_all(inside.join("linked")).unwrap();
        symlink("/etc", before.join("linked")).unwrap();
        let open = |path: &Path| open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let check = |path: &str| compare(open(&before).as_fd(), open(&inside).as_fd(), Path::new(path)).unwrap();
        assert!(!check("linked"), "it was bound, and its path leads through a link");
        assert!(check("real") && check("gone"), "what was left out shows nothing");
        let same = |path: &str| compare(open(&before).as_fd(), open(&before).as_fd(), Path::new(path)).unwrap();
        assert!(same("real") && same(""));
    }
}

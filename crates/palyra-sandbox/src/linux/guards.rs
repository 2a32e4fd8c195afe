//! Paths inside the workspace that are kept from change, and the proof that they are.
//!
//! A write to `.git/hooks` becomes code that runs later, outside. What is sensitive ([`super::sensitive`]) and is there
//! is bound onto itself, read-only; the directories on the way are bound too, so that they cannot be moved away with
//! what they hold.
//!
//! The workspace belongs to the agent, and another run in it may replace a directory by a symlink at any instant.
//! Bubblewrap takes paths, and a path that was looked at is not yet the path that is mounted: a symlink put there in
//! between would bind a directory from anywhere on the host into the sandbox. So each guard remembers which file it
//! means, found without following any symlink, and when the sandbox is built and bubblewrap waits at the gate, every
//! guard is looked at in the tree that it built: the same file, and read-only. Anything else ends the run before it
//! began.

use super::guarded_paths::{self, Found, Kind, PLAIN, Sensitive};
use super::opened_roots::Tops;
use rustix::fs::{Mode, OFlags};
use std::io;
use std::path::{Path, PathBuf};

/// A path inside the sandbox that must be a certain file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Guard {
    pub(super) path: PathBuf,
    pub(super) hold: Hold,
    file: (u64, u64),
}

/// How a path is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    /// Bound onto itself, so that it can be written but not moved away with what it holds.
    Pinned,
    /// Bound read-only.
    ReadOnly,
}

/// The sensitive paths that exist. Those that do not are left alone: a mount point would have to be created for them,
/// in the user's own directory.
pub(super) fn guards(tops: &Tops, sensitive: &[Sensitive]) -> Vec<Guard> {
    let mut guards: Vec<Guard> = Vec::new();
    for Sensitive { root, relative, kind } in sensitive {
        let Some(top) = tops.of(root).map(|top| &top.directory) else { continue };
        let Found::Plain(file, found) = guarded_paths::look(top, relative) else { continue };
        // A worktree's `.git` is a file that says where the repository is.
        if *kind == Kind::Way && !found.is_file() {
            continue;
        }
        let path = root.join(relative);
        // A second mount on what is held already would open it again.
        if guards.iter().any(|guard| guard.hold == Hold::ReadOnly && path.starts_with(&guard.path)) {
            continue;
        }
        let mut parents: Vec<&Path> = relative.ancestors().skip(1).filter(|p| !p.as_os_str().is_empty()).collect();
        parents.reverse();
        for parent in parents {
            let path = root.join(parent);
            if let Found::Plain(file, _) = guarded_paths::look(top, parent)
                && !guards.iter().any(|guard| guard.path == path)
            {
                guards.push(Guard { path, hold: Hold::Pinned, file });
            }
        }
        guards.push(Guard { path, hold: Hold::ReadOnly, file });
    }
    guards
}

/// Looks at every writable root and every guard in the tree that bubblewrap's process `pid` has built and not yet moved
/// into.
pub(super) fn prove(tops: &Tops, guards: &[Guard], pid: i32) -> io::Result<()> {
    prove_below(tops, guards, &format!("/proc/{pid}/root/newroot"))
}

fn prove_below(tops: &Tops, guards: &[Guard], root: &str) -> io::Result<()> {
    let root = rustix::fs::open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let prove = |path: &Path, file: (u64, u64), read_only: bool| {
        let inside = path.strip_prefix("/").unwrap_or(path);
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let fd = rustix::fs::openat2(&root, inside, flags, Mode::empty(), PLAIN).ok()?;
        let stat = rustix::fs::fstat(&fd).ok()?;
        let is_read_only =
            || rustix::fs::fstatvfs(&fd).is_ok_and(|fs| fs.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY));
        ((stat.st_dev, stat.st_ino) == file && (!read_only || is_read_only())).then_some(())
    };
    let tops = tops.iter().map(|top| (top.root.as_path(), top.file, false));
    let guards = guards.iter().map(|guard| (guard.path.as_path(), guard.file, guard.hold == Hold::ReadOnly));
    for (path, file, read_only) in tops.chain(guards) {
        prove(path, file, read_only).ok_or_else(|| {
            io::Error::other(format!("`{}` was replaced while the sandbox was built", path.display()))
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::grants::Roots;
    use super::*;
    use crate::testing::policy;
    use std::fs;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    fn guarded(root: &Path) -> (Tops, Vec<Guard>) {
        let tops = Tops::open(&Roots::resolve(&policy(root)).unwrap()).unwrap();
        let guards = guards(&tops, &guarded_paths::all(&tops).unwrap());
        (tops, guards)
    }

    fn found(root: &Path) -> Vec<(String, Hold)> {
        let (_tops, guards) = guarded(root);
        let name = |guard: &Guard| guard.path.strip_prefix(root).unwrap().display().to_string();
        guards.iter().map(|guard| (name(guard), guard.hold)).collect()
    }

    #[test]
    fn only_what_exists_is_guarded_and_symlinks_are_not_followed() {
        let dir = TempDir::new().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir_all(root.join(".git/hooks")).unwrap();
        fs::write(root.join(".git/config"), "").unwrap();
        symlink("/etc/passwd", root.join(".bashrc")).unwrap();
        let expect = [(".git", Hold::Pinned), (".git/hooks", Hold::ReadOnly), (".git/config", Hold::ReadOnly)];
        assert_eq!(found(&root), expect.map(|(name, hold)| (name.to_owned(), hold)));
    }

    #[test]
    fn a_directory_on_the_way_that_is_a_symlink_guards_nothing_elsewhere() {
        let dir = TempDir::new().unwrap();
        let root = dir.path().canonicalize().unwrap().join("workspace");
        fs::create_dir_all(dir.path().join("other/.git/hooks")).unwrap();
        fs::create_dir_all(&root).unwrap();
        symlink("../other/.git", root.join(".git")).unwrap();
        assert_eq!(found(&root), []);
    }

    #[test]
    fn what_a_link_in_the_tree_leads_to_is_guarded_and_nothing_twice() {
        let dir = TempDir::new().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir_all(root.join(".git")).unwrap();
        fs::create_dir_all(root.join("tools/githooks")).unwrap();
        fs::write(root.join(".git/config"), "[core]\n\thooksPath = tools/githooks/inner\n").unwrap();
        fs::create_dir_all(root.join("tools/githooks/inner")).unwrap();
        symlink("../tools/githooks", root.join(".git/hooks")).unwrap();
        let expect = [
            ("tools", Hold::Pinned),
            ("tools/githooks", Hold::ReadOnly),
            (".git", Hold::Pinned),
            (".git/config", Hold::ReadOnly),
        ];
        assert_eq!(found(&root), expect.map(|(name, hold)| (name.to_owned(), hold)));
    }

    #[test]
    fn what_is_not_the_guarded_file_is_found_out() {
        let dir = TempDir::new().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir_all(root.join(".git/hooks")).unwrap();
        let (tops, guards) = guarded(&root);
        let prove_below = |guards: &[Guard], from: &str| prove_below(&tops, guards, from);
        let own = "/";
        let pinned: Vec<Guard> = guards.iter().filter(|guard| guard.hold == Hold::Pinned).cloned().collect();
        prove_below(&pinned, own).unwrap();
        // Seen from here nothing is read-only.
        assert!(prove_below(&guards, own).is_err());
        fs::rename(root.join(".git"), root.join("moved")).unwrap();
        symlink("moved", root.join(".git")).unwrap();
        assert!(prove_below(&pinned, own).is_err());
        fs::remove_file(root.join(".git")).unwrap();
        fs::create_dir(root.join(".git")).unwrap();
        assert!(prove_below(&pinned, own).is_err());
    }

    #[test]
    fn a_root_that_is_not_what_was_opened_is_found_out() {
        let dir = TempDir::new().unwrap();
        let root = dir.path().canonicalize().unwrap().join("w");
        fs::create_dir(&root).unwrap();
        let (tops, guards) = guarded(&root);
        prove_below(&tops, &guards, "/").unwrap();
        fs::rename(&root, dir.path().join("moved")).unwrap();
        fs::create_dir(&root).unwrap();
        assert!(prove_below(&tops, &guards, "/").is_err());
    }
}

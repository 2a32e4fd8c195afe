//! Paths inside the workspace that are kept from change, and the proof that they are.
//!
//! A write to `.git/hooks` becomes code that runs later, outside. What the layout lists and the workspace has is bound onto
//! itself, read-only; the directories on the way are bound too, so that they cannot be moved away with what they hold.
//!
//! The workspace belongs to the agent, and another run in it may replace a directory by a symlink at any instant.
//! Bubblewrap takes paths, and a path that was looked at is not yet the path that is mounted: a symlink put there in
//! between would bind a directory from anywhere on the host into the sandbox. So each guard remembers which file it
//! means, found without following any symlink, and when the sandbox is built and bubblewrap waits at the gate, every
//! guard is looked at in the tree that it built: the same file, and read-only. Anything else ends the run before it began.

use super::grants::Roots;
use crate::layout;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use std::io;
use std::os::fd::OwnedFd;
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

/// No symlink on the way, and nothing above the beginning.
const PLAIN: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// The paths of the layout that exist in the writable roots. Those that do not exist are left alone: a mount point would have to
/// be created for them, in the user's own directory.
pub(super) fn guards(roots: &Roots) -> Vec<Guard> {
    let mut guards: Vec<Guard> = Vec::new();
    for root in roots.writable() {
        let Ok(top) = rustix::fs::open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) else {
            continue;
        };
        // A worktree's `.git` is a file that says where the repository is.
        let git = look(&top, ".git").filter(|(_, kind)| kind.is_file());
        guards.extend(git.map(|(file, _)| Guard { path: root.join(".git"), hold: Hold::ReadOnly, file }));
        for relative in layout::GUARDED_IN_WORKSPACE {
            let Some((file, _)) = look(&top, relative) else { continue };
            let parents = Path::new(relative).ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty());
            for parent in parents {
                let path = root.join(parent);
                if let Some((file, _)) = look(&top, parent).filter(|_| !guards.iter().any(|guard| guard.path == path)) {
                    guards.push(Guard { path, hold: Hold::Pinned, file });
                }
            }
            guards.push(Guard { path: root.join(relative), hold: Hold::ReadOnly, file });
        }
    }
    guards
}

/// Which file a path leads to without any symlink, if it is a directory or a plain file.
fn look(top: &OwnedFd, relative: impl AsRef<Path>) -> Option<((u64, u64), FileType)> {
    let fd = rustix::fs::openat2(top, relative.as_ref(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), PLAIN).ok()?;
    let stat = rustix::fs::fstat(&fd).ok()?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    (kind.is_dir() || kind.is_file()).then_some(((stat.st_dev, stat.st_ino), kind))
}

/// Looks at every guard in the tree that bubblewrap's process `pid` has built and not yet moved into.
pub(super) fn prove(guards: &[Guard], pid: i32) -> io::Result<()> {
    prove_below(guards, &format!("/proc/{pid}/root/newroot"))
}

fn prove_below(guards: &[Guard], root: &str) -> io::Result<()> {
    let root = rustix::fs::open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    for guard in guards {
        let changed =
            || io::Error::other(format!("`{}` was replaced while the sandbox was built", guard.path.display()));
        let inside = guard.path.strip_prefix("/").unwrap_or(&guard.path);
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let fd = rustix::fs::openat2(&root, inside, flags, Mode::empty(), PLAIN).map_err(|_| changed())?;
        let stat = rustix::fs::fstat(&fd).map_err(|_| changed())?;
        let read_only =
            rustix::fs::fstatvfs(&fd).is_ok_and(|fs| fs.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY));
        if (stat.st_dev, stat.st_ino) != guard.file || (guard.hold == Hold::ReadOnly && !read_only) {
            return Err(changed());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::policy;
    use std::fs;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    fn found(root: &Path) -> Vec<(String, Hold)> {
        let guards = guards(&Roots::resolve(&policy(root)).unwrap());
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
    fn what_is_not_the_guarded_file_is_found_out() {
        let dir = TempDir::new().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir_all(root.join(".git/hooks")).unwrap();
        let guards = guards(&Roots::resolve(&policy(&root)).unwrap());
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
}

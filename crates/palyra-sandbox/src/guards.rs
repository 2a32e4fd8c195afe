//! Which paths inside the writable roots a profile of macOS keeps from change: those through which a write becomes code
//! that runs later, outside. Linux mounts, and has its own.

use crate::layout;
use crate::roots::Roots;
use std::fs;
use std::path::{Path, PathBuf};

/// A path inside the workspace that must not be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Guard {
    /// May be written, but not moved away with what it holds.
    Pinned(PathBuf),
    /// May only be read.
    ReadOnly(PathBuf),
}

/// The paths of the layout that exist in the writable roots. Those that do not exist are left alone, as on Linux: `git
/// init` writes its own.
pub(crate) fn guards(roots: &Roots) -> Vec<Guard> {
    let mut guards = Vec::new();
    for root in roots.writable() {
        let git = root.join(".git");
        // A worktree's `.git` is a file that says where the repository is.
        if is_plain(&git, fs::Metadata::is_file) {
            guards.push(Guard::ReadOnly(git));
        }
        for relative in layout::GUARDED_IN_WORKSPACE {
            let path = root.join(relative);
            if !is_plain(&path, |m| m.is_dir() || m.is_file()) {
                continue;
            }
            for parent in path.ancestors().skip(1).take_while(|parent| *parent != root.as_path()) {
                let pin = Guard::Pinned(parent.to_owned());
                if !guards.contains(&pin) {
                    guards.push(pin);
                }
            }
            guards.push(Guard::ReadOnly(path));
        }
    }
    guards
}

/// Whether a path is of this kind itself, not through a symlink.
fn is_plain(path: &Path, kind: impl Fn(&fs::Metadata) -> bool) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| kind(&metadata))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::policy;
    use tempfile::TempDir;

    #[test]
    fn only_what_exists_is_guarded() {
        let dir = TempDir::new().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir_all(root.join(".git/hooks")).unwrap();
        fs::write(root.join(".git/config"), "").unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink("/etc/passwd", root.join(".bashrc")).unwrap();
        let got = guards(&Roots::resolve(&policy(&root)).unwrap());
        assert_eq!(
            got,
            [
                Guard::Pinned(root.join(".git")),
                Guard::ReadOnly(root.join(".git/hooks")),
                Guard::ReadOnly(root.join(".git/config"))
            ]
        );
    }
}

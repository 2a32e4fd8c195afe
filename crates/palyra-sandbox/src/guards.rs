//! Which paths inside the writable roots must not be changed: those through which a write becomes code that runs later, outside.

#[cfg(any(target_os = "linux", target_os = "macos"))]
use crate::{layout, roots::Roots};
use std::path::PathBuf;
#[cfg(any(target_os = "linux", target_os = "macos"))]
use std::{fs, path::Path};

/// A path inside the workspace that must not be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Guard {
    /// May be written, but not moved away with what it holds.
    Pinned(PathBuf),
    /// May only be read.
    ReadOnly(PathBuf),
}

/// The paths of the layout that exist in the writable roots. Those that do not exist are left alone: a mount point would have to
/// be created for them, in the user's own directory, and `git init` writes its own.
#[cfg(any(target_os = "linux", target_os = "macos"))]
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
#[cfg(any(target_os = "linux", target_os = "macos"))]
fn is_plain(path: &Path, kind: impl Fn(&fs::Metadata) -> bool) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| kind(&metadata))
}

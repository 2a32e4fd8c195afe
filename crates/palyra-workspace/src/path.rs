//! Paths: what a caller typed, and what it turned out to be.
//!
//! A [`ResolvedPath`] is the only thing the file tools open. Its one constructor is in `resolve.rs`, so it has no `..`,
//! no empty part, and went through no symbolic link when it was made. Policy decides about its text and the operator
//! reads it; the operation later opens exactly that text and refuses links, so nothing else can be reached by it.
//! This file must never touch the disk.

use super::error::{FileError, shown};
use std::fmt;

/// A path beneath the workspace, free of links, in its normal form: `.` for the root, otherwise `a/b`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResolvedPath {
    relative: String,
    existed: bool,
}

impl ResolvedPath {
    /// INVARIANT (resolved_path_is_plain): every component is a plain name; `resolve.rs` is the only caller.
    pub(super) fn from_components(components: &[String], existed: bool) -> Self {
        let relative = if components.is_empty() { ".".to_owned() } else { components.join("/") };
        Self { relative, existed }
    }

    /// The path as text, for policy, for people and for the journal.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.relative
    }

    /// Whether something was there when the path was resolved.
    #[must_use]
    pub fn existed(&self) -> bool {
        self.existed
    }

    /// Whether this is the workspace's root itself.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.relative == "."
    }

    /// Refuses what no file tool may write, whatever policy says: see [`FileError::Protected`].
    ///
    /// `write`, `plan_patch` and `apply_patch` check by themselves; callers use it to refuse before a human is asked.
    pub fn refuse_protected(&self) -> Result<(), FileError> {
        match self.components().find_map(protection) {
            Some((what, instead)) => Err(FileError::Protected { path: shown(&self.relative), what, instead }),
            None => Ok(()),
        }
    }

    pub(super) fn components(&self) -> impl Iterator<Item = &str> {
        self.relative.split('/').filter(|part| *part != ".")
    }

    /// The directory's path and the name in it; nothing for the root.
    pub(super) fn split(&self) -> Option<(&str, &str)> {
        match self.relative.rsplit_once('/') {
            Some(split) => Some(split),
            None if self.is_root() => None,
            None => Some((".", &self.relative)),
        }
    }
}

impl fmt::Display for ResolvedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.relative)
    }
}

/// What a component protects and what to do instead, if it is one that turns a write into a later execution.
///
/// Git runs hooks and `core.fsmonitor`, `core.sshCommand`, aliases and filters out of `.git`; `.palyra` is our own.
fn protection(component: &str) -> Option<(&'static str, &'static str)> {
    match folded(component).as_str() {
        ".git" | "git~1" => Some(("git's own files", "run git itself through `palyra.process.run`")),
        ".palyra" | "palyra~1" => Some(("palyra's own files", "change its configuration with `palyra`")),
        _ => None,
    }
}

/// Whether a path leads through a directory that no file tool writes to without consent.
pub(super) fn is_protected(path: &str) -> bool {
    path.split('/').any(|part| protection(part).is_some())
}

/// Whether a component is git's directory.
pub(super) fn is_git(component: &str) -> bool {
    matches!(folded(component).as_str(), ".git" | "git~1")
}

/// A name as the most forgiving file system compares it: without case, without the code points that HFS+ ignores,
/// without the trailing dots and blanks that NTFS drops. Those are the ways by which `.git` was smuggled past git.
pub(super) fn folded(component: &str) -> String {
    let ignored = |c: &char| matches!(*c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}');
    let name: String = component.chars().filter(|c| !ignored(c)).flat_map(char::to_lowercase).collect();
    name.trim_end_matches(['.', ' ']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protection_sees_through_disguises() {
        let check = |text: &str| {
            let parts: Vec<String> = text.split('/').map(str::to_owned).collect();
            ResolvedPath::from_components(&parts, false).refuse_protected()
        };
        for bad in [
            ".git",
            ".git/hooks/pre-commit",
            "sub/.GIT/config",
            ".Git",
            ".g\u{200c}it/config",
            ".git./config",
            ".git /x",
            "GIT~1/config",
            ".palyra/state",
            "a/.PALYRA",
            ".git...",
            "\u{feff}.git",
        ] {
            assert_eq!(check(bad).map_err(|e| e.code()), Err("protected_path"), "{bad:?}");
        }
        for good in [".gitignore", ".github/workflows/x.yml", "git", "palyra", "a.git", ".gitmodules", "..."] {
            assert!(check(good).is_ok(), "{good:?}");
        }
    }
}

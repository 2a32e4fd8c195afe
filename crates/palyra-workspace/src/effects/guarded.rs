//! Guarded paths: what no call writes without consent.
//!
//! The list is data (`guarded_paths.txt`); operators can add to it, not take from it. Three kinds of files are judged
//! by their content as well: git's settings, where a branch or remote is harmless; dependency manifests, where only a
//! new dependency or script counts; and `.git` itself, which is a directory in honest repositories and a pointer in
//! dishonest ones.

use super::git_settings;
use super::manifests;
use crate::path::folded;
use crate::path_list::{self, PathList, PathListError};
use palyra_protocol::EffectPath;

/// The largest file whose content is judged; a larger one is guarded.
pub(super) const MAX_READ_BYTES: u64 = 1 << 20;

const BUILT_IN: &str = include_str!("guarded_paths.txt");

/// Which paths are guarded.
#[derive(Debug, Clone)]
pub struct GuardRules(PathList);

/// A file before and after; nothing where there is none, or where it is too large to be read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Versions<'a> {
    pub(super) old: Option<&'a [u8]>,
    pub(super) new: Option<&'a [u8]>,
}

impl GuardRules {
    /// The built-in list and an operator's additions.
    ///
    /// # Errors
    /// An addition is not a pattern.
    pub fn new<'a>(further: impl IntoIterator<Item = &'a str>) -> Result<Self, PathListError> {
        // An operator's `!` would take away, so it is read as a part of a name.
        let plain = |line: &str| if line.starts_with('!') { format!("\\{line}") } else { line.to_owned() };
        let further: Vec<String> = further.into_iter().map(plain).collect();
        PathList::new(path_list::lines(BUILT_IN).chain(further.iter().map(String::as_str))).map(Self)
    }

    /// Whether a path is on the list. What its content says is not looked at.
    #[must_use]
    pub fn lists(&self, path: &EffectPath) -> bool {
        self.0.lists(&comparable(path))
    }

    /// Whether writing a file needs consent. For callers that have both versions at hand.
    #[must_use]
    pub fn guards_file(&self, path: &EffectPath, old: Option<&[u8]>, new: &[u8]) -> bool {
        let fits = new.len() as u64 <= MAX_READ_BYTES;
        self.guards(path, &Versions { old, new: fits.then_some(new) })
    }

    /// Whether a new or changed file needs consent.
    pub(super) fn guards(&self, path: &EffectPath, versions: &Versions<'_>) -> bool {
        if self.lists(path) || is_git_pointer(path) {
            return true;
        }
        if git_settings::is_settings(path) {
            return !git_settings::is_harmless(versions);
        }
        manifests::is_manifest(path) && manifests::gains(path, versions)
    }

    /// Whether a directory as a whole needs consent: everything in it does.
    pub(super) fn guards_directory(&self, path: &EffectPath) -> bool {
        let path = comparable(path);
        // A name that no exception could match, so that the directory counts only if all of it does.
        self.0.names(&format!("{path}/\u{1}")) && !self.0.excepts(&format!("{path}/x.sample"))
    }

    /// Whether a link needs consent: where a guarded file may not be written, a link to another may not be put.
    pub(super) fn guards_link(&self, path: &EffectPath) -> bool {
        self.lists(path)
            || self.guards_directory(path)
            || is_git_pointer(path)
            || git_settings::is_settings(path)
            || manifests::is_manifest(path)
    }

    /// Whether removing an entry needs consent: settings that hold an agent or a client back do.
    pub(super) fn guards_deletion(&self, path: &EffectPath) -> bool {
        let top_level = path.as_bytes().iter().filter(|b| **b == b'/').count() <= 1;
        top_level && (self.lists(path) || self.guards_directory(path)) && !path.is_under(b".git")
    }

    /// Whether a file is judged by its content.
    pub(super) fn reads_content(&self, path: &EffectPath) -> bool {
        git_settings::is_settings(path) || manifests::is_manifest(path)
    }
}

/// `.git` as a file or link: it makes git look elsewhere.
fn is_git_pointer(path: &EffectPath) -> bool {
    std::str::from_utf8(path.name()).is_ok_and(|name| folded(name) == ".git")
}

/// A path as the most forgiving file system compares it. Bytes that are no text hide nothing that lies beneath them.
fn comparable(path: &EffectPath) -> String {
    path_list::comparable(&path.to_text())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> EffectPath {
        text.parse().unwrap()
    }

    #[test]
    fn the_list_matches_at_any_depth_and_in_any_spelling() {
        let rules = GuardRules::new([]).unwrap();
        for guarded in [
            ".git/hooks/pre-commit",
            "sub/.git/hooks/pre-commit",
            ".GIT/Hooks/post-merge",
            ".github/workflows/x.yml",
            ".claude/settings.local.json",
            "a/b/.envrc",
            ".bashrc",
            "x.code-workspace",
            ".git/modules/a/b/config",
            ".palyra/x",
            ".g\u{200c}it/hooks/x",
        ] {
            assert!(rules.lists(&path(guarded)), "{guarded}");
        }
        for free in
            [".git/hooks/pre-commit.sample", ".github/README.md", "src/main.rs", ".git/HEAD", ".gitignore", ".env"]
        {
            assert!(!rules.lists(&path(free)), "{free}");
        }
        assert!(rules.guards_directory(&path(".claude")) && rules.guards_directory(&path("a/.vscode")));
        assert!(!rules.guards_directory(&path("src")) && !rules.guards_directory(&path(".git")));
        assert!(!rules.guards_directory(&path(".git/hooks")), "its samples are free");
    }

    #[test]
    fn operators_add_and_cannot_take_away() {
        let rules = GuardRules::new(["/infra/", "*.tf"]).unwrap();
        assert!(rules.lists(&path("infra/a/b")) && rules.lists(&path("x/y.tf")) && !rules.lists(&path("x/infra/a")));
        assert!(GuardRules::new(["!.git/hooks/"]).unwrap().lists(&path(".git/hooks/x")));
        for bad in ["", "/", "../x", "a//b", "[", "."] {
            assert!(GuardRules::new([bad]).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_pointer_named_git_is_guarded() {
        let rules = GuardRules::new([]).unwrap();
        let new = Versions { old: None, new: Some(b"gitdir: /elsewhere\n") };
        assert!(rules.guards(&path("sub/.git"), &new) && rules.guards_link(&path(".git")));
    }
}

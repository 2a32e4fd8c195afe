//! Guarded paths: what no call writes without consent.
//!
//! The list is data (`guarded_paths.txt`); operators can add to it, not take from it. To it come the paths that a
//! workspace's own settings name (`core.hooksPath`, a link in place of `.vscode`): see [`GuardRules::with_named`].
//!
//! Four kinds of files are judged by their content as well: git's settings, where a branch or remote is harmless;
//! dependency manifests, where only a new dependency or script counts; git's own instructions and the file that makes a
//! directory a repository ([`super::git_files`]); and `.git` itself, which is a directory in honest repositories and a
//! pointer in dishonest ones.

use super::manifests;
use super::{git_files, git_settings};
use crate::path::folded;
use crate::path_list::{self, PathList, PathListError};
use palyra_protocol::EffectPath;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The largest file whose content is judged; a larger one is guarded.
pub(super) const MAX_READ_BYTES: u64 = 1 << 20;

const BUILT_IN: &str = include_str!("guarded_paths.txt");

/// Which paths are guarded.
#[derive(Debug, Clone)]
pub struct GuardRules {
    list: Arc<GuardList>,
    named: Named,
}

/// The list, made once.
#[derive(Debug)]
struct GuardList {
    guarded: PathList,
    /// Directories on the way to guarded paths: a link in their place would lead there as well.
    ways: PathList,
}

/// What a workspace's own settings name.
#[derive(Debug, Clone)]
enum Named {
    /// These paths and everything beneath them, in the form in which paths are compared.
    Paths(BTreeSet<String>),
    /// They cannot be read, so that every path may be one.
    Everything,
}

/// Paths by the patterns that guarded paths are written in.
#[derive(Debug, Clone)]
pub struct PathPatterns(PathList);

impl PathPatterns {
    /// None.
    #[must_use]
    pub fn none() -> Self {
        Self(PathList::default())
    }

    /// Paths that one of these patterns names.
    ///
    /// # Errors
    /// One of them is not a pattern.
    pub fn new<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, PathListError> {
        let patterns: Vec<String> = patterns.into_iter().map(without_exception).collect();
        PathList::new(patterns.iter().map(String::as_str)).map(Self)
    }

    /// Whether a path is one of them.
    pub(super) fn hold(&self, path: &EffectPath) -> bool {
        self.0.lists(&comparable(path))
    }
}

/// An operator's line. Its `!` would take away, so it is read as a part of a name.
fn without_exception(line: &str) -> String {
    if line.starts_with('!') { format!("\\{line}") } else { line.to_owned() }
}

/// The directories on the way to what a pattern names.
fn ways(line: &str) -> impl Iterator<Item = String> {
    let (anchor, pattern) = line.strip_prefix('/').map_or(("", line), |rest| ("/", rest));
    let pattern = pattern.trim_end_matches('/');
    pattern.match_indices('/').map(move |(at, _)| format!("{anchor}{}", &pattern[..at]))
}

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
        let further: Vec<String> = further.into_iter().map(without_exception).collect();
        let lines = || path_list::lines(BUILT_IN).chain(further.iter().map(String::as_str));
        let guarded = PathList::new(lines())?;
        let ways: Vec<String> = lines().filter(|line| !line.starts_with('!')).flat_map(ways).collect();
        let list = GuardList { guarded, ways: PathList::new(ways.iter().map(String::as_str))? };
        Ok(Self { list: Arc::new(list), named: Named::Paths(BTreeSet::new()) })
    }

    /// The same rules, and these paths of the workspace with everything beneath them.
    #[must_use]
    pub fn with_named<'p>(&self, paths: impl IntoIterator<Item = &'p EffectPath>) -> Self {
        let named = Named::Paths(paths.into_iter().map(comparable).collect());
        Self { list: Arc::clone(&self.list), named }
    }

    /// The same rules where nobody can say what the workspace's settings name: everything is guarded.
    #[must_use]
    pub fn with_everything(&self) -> Self {
        Self { list: Arc::clone(&self.list), named: Named::Everything }
    }

    /// Whether the workspace's settings name a path, or a directory that holds it.
    fn is_named(&self, path: &str) -> bool {
        let slashes = path.match_indices('/').map(|(at, _)| &path[..at]);
        match &self.named {
            Named::Everything => true,
            Named::Paths(named) => !named.is_empty() && slashes.chain([path]).any(|part| named.contains(part)),
        }
    }

    /// Whether a path is on the list. What its content says is not looked at.
    #[must_use]
    pub fn lists(&self, path: &EffectPath) -> bool {
        let path = comparable(path);
        self.list.guarded.lists(&path) || self.is_named(&path)
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
        git_files::guards(path, versions) || manifests::is_manifest(path) && manifests::gains(path, versions)
    }

    /// Whether a directory as a whole needs consent: everything in it does.
    pub(super) fn guards_directory(&self, path: &EffectPath) -> bool {
        let path = comparable(path);
        // A name that no exception could match, so that the directory counts only if all of it does.
        let GuardList { guarded, .. } = &*self.list;
        guarded.names(&format!("{path}/\u{1}")) && !guarded.excepts(&format!("{path}/x.sample")) || self.is_named(&path)
    }

    /// Whether a link needs consent: where a guarded file may not be written, a link to another may not be put.
    pub(super) fn guards_link(&self, path: &EffectPath) -> bool {
        self.lists(path)
            || self.guards_directory(path)
            || is_git_pointer(path)
            || self.list.ways.lists(&comparable(path))
            || self.reads_content(path)
            || self.is_way_to_named(path)
    }

    /// Whether the workspace's settings name something beneath a path.
    fn is_way_to_named(&self, path: &EffectPath) -> bool {
        let beneath = format!("{}/", comparable(path));
        match &self.named {
            Named::Everything => true,
            Named::Paths(named) => {
                named.range(beneath.clone()..).next().is_some_and(|first| first.starts_with(&beneath))
            }
        }
    }

    /// Whether removing an entry needs consent: settings that hold an agent or a client back do.
    pub(super) fn guards_deletion(&self, path: &EffectPath) -> bool {
        let top_level = path.as_bytes().iter().filter(|b| **b == b'/').count() <= 1;
        top_level && (self.lists(path) || self.guards_directory(path)) && !path.is_under(b".git")
    }

    /// Whether a file is judged by its content.
    pub(super) fn reads_content(&self, path: &EffectPath) -> bool {
        git_settings::is_settings(path) || git_files::is_one(path) || manifests::is_manifest(path)
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
    fn what_settings_name_is_guarded_with_everything_beneath() {
        let named = ["scripts/Hooks", "conf"].map(path);
        let rules = GuardRules::new([]).unwrap().with_named(&named);
        for guarded in ["scripts/hooks/pre-commit", "scripts/Hooks", "conf/vscode/settings.json", ".git/hooks/x"] {
            assert!(rules.lists(&path(guarded)), "{guarded}");
        }
        assert!(!rules.lists(&path("scripts/build")) && !rules.lists(&path("conform")));
        assert!(rules.guards_directory(&path("scripts/hooks")) && !rules.guards_directory(&path("scripts")));
        assert!(rules.guards_link(&path("scripts")), "a link in its place would lead to other hooks");
        assert!(GuardRules::new([]).unwrap().with_everything().lists(&path("src/main.rs")));
    }

    #[test]
    fn a_link_in_place_of_a_directory_on_the_way_is_guarded() {
        let rules = GuardRules::new([]).unwrap();
        for link in [".config", ".git/modules", "a/.github", ".cargo", "gradle"] {
            assert!(rules.guards_link(&path(link)) && !rules.lists(&path(link)), "{link}");
        }
        assert!(!rules.guards_link(&path("config")) && !rules.guards_link(&path("src")));
    }

    #[test]
    fn a_pointer_named_git_is_guarded() {
        let rules = GuardRules::new([]).unwrap();
        let new = Versions { old: None, new: Some(b"gitdir: /elsewhere\n") };
        assert!(rules.guards(&path("sub/.git"), &new) && rules.guards_link(&path(".git")));
    }
}

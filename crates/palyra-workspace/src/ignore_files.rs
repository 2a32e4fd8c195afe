//! Ignore files: what a tree's own `.gitignore` and `.ignore` leave out of searches and deep listings.
//!
//! A tree is mostly generated: build output, downloaded packages. Its ignore files name that, and a search that
//! reads it first finds nothing else within its limits. The rules are git's: a pattern counts from the directory of its
//! file down, the last and the deepest match decides, and nothing beneath an ignored directory is looked at. Patterns
//! in `.ignore` outrank those in `.gitignore`. A `.gitignore` ends at the next repository beneath it.
//!
//! An agent can write ignore files as it can any other, so each is opened beneath its directory's descriptor without
//! following a link, and has limits. One that is too large or cannot be compiled is counted as unreadable and has no
//! effect: the answer then holds too much rather than too little. This file must never read an ignore file outside the
//! workspace: neither the user's own excludes nor those in `.git/info`.

use super::Workspace;
use super::beneath::{DirUse, open_regular};
use super::error::FileError;
use super::limits::{MAX_IGNORE_BYTES, MAX_IGNORE_FILE_BYTES, MAX_IGNORE_LINE_BYTES};
use super::path::ResolvedPath;
use super::read::read_all;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{AtFlags, OFlags, statat};
use std::ffi::CStr;
use std::fs::File;

const GITIGNORE: &CStr = c".gitignore";
const IGNORE: &CStr = c".ignore";
const REPOSITORY: &CStr = c".git";

/// What the ignore files of one directory say about everything beneath it.
#[derive(Debug)]
struct DirectoryRules {
    /// How many bytes of a path lead to this directory.
    base: usize,
    gitignore: Gitignore,
    ignore: Gitignore,
    /// A repository begins here.
    repository: bool,
}

/// The ignore rules from the workspace's root down to where a walk is.
#[derive(Debug)]
pub(super) struct IgnoreRules {
    directories: Vec<DirectoryRules>,
    /// How many bytes of ignore files may still be read.
    left: u64,
    /// Ignore files that have no effect because they could not be read.
    pub(super) unreadable: usize,
}

impl IgnoreRules {
    fn new() -> Self {
        Self { directories: Vec::new(), left: MAX_IGNORE_BYTES, unreadable: 0 }
    }

    /// Enters a directory whose paths begin with `prefix`.
    pub(super) fn enter(&mut self, dir: BorrowedFd<'_>, prefix: &str) {
        let rules = DirectoryRules {
            base: prefix.len(),
            gitignore: self.rules_in(dir, GITIGNORE),
            ignore: self.rules_in(dir, IGNORE),
            repository: statat(dir, REPOSITORY, AtFlags::SYMLINK_NOFOLLOW).is_ok(),
        };
        self.directories.push(rules);
    }

    /// Leaves the directory that was entered last.
    pub(super) fn leave(&mut self) {
        self.directories.pop();
    }

    /// Whether the rules ignore a path in the directory that was entered last.
    pub(super) fn ignores(&self, path: &str, is_directory: bool) -> bool {
        let from = |rules: &DirectoryRules| path.get(rules.base..).unwrap_or(path);
        let mut own = self.directories.iter().rev().map(|rules| rules.ignore.matched(from(rules), is_directory));
        if let Some(matched) = own.find(|matched| !matched.is_none()) {
            return matched.is_ignore();
        }
        for rules in self.directories.iter().rev() {
            let matched = rules.gitignore.matched(from(rules), is_directory);
            if !matched.is_none() || rules.repository {
                return matched.is_ignore();
            }
        }
        false
    }

    /// The rules in one ignore file; none if there is no such file.
    fn rules_in(&mut self, dir: BorrowedFd<'_>, name: &CStr) -> Gitignore {
        match self.read(dir, name) {
            Ok(bytes) => parsed(&bytes).unwrap_or_else(|| self.without_effect()),
            Err(FileError::NotFound { .. }) => Gitignore::empty(),
            Err(_) => self.without_effect(),
        }
    }

    fn without_effect(&mut self) -> Gitignore {
        self.unreadable += 1;
        Gitignore::empty()
    }

    fn read(&mut self, dir: BorrowedFd<'_>, name: &CStr) -> Result<Vec<u8>, FileError> {
        let shown = name.to_string_lossy();
        let (file, _) = open_regular(dir, name, &shown, OFlags::RDONLY)?;
        let most = MAX_IGNORE_FILE_BYTES.min(self.left);
        let bytes = read_all(&File::from(file), most).map_err(super::error::io_at(&shown))?;
        let too_large = || FileError::TooLarge { path: shown.into_owned(), limit: most, unit: "bytes" };
        let bytes = bytes.ok_or_else(too_large)?;
        self.left = self.left.saturating_sub(bytes.len() as u64);
        Ok(bytes)
    }
}

impl Workspace {
    /// The rules for a directory: those of the directories above it, down from the workspace's root. Where they ignore
    /// the directory itself they count no more, because a caller that names an ignored directory wants to see it.
    pub(super) fn ignore_rules_above(&self, path: &ResolvedPath) -> Result<IgnoreRules, FileError> {
        let mut rules = IgnoreRules::new();
        let mut above = String::new();
        for name in path.components() {
            let dir =
                self.open_dir(if above.is_empty() { "." } else { above.trim_end_matches('/') }, DirUse::Lookup)?;
            rules.enter(dir.as_fd(), &above);
            above.push_str(name);
            if rules.ignores(&above, true) {
                rules.directories.clear();
            }
            above.push('/');
        }
        Ok(rules)
    }
}

/// The rules that an ignore file's bytes stand for; nothing if they cannot be used.
pub(super) fn parsed(bytes: &[u8]) -> Option<Gitignore> {
    let text = String::from_utf8_lossy(bytes);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    // Paths are handed over relative to the file's directory.
    let mut rules = GitignoreBuilder::new(".");
    for line in text.lines() {
        // Reading a pattern recurses as deep as its braces are nested, so its length is bounded.
        if line.len() <= MAX_IGNORE_LINE_BYTES {
            // A line that is no pattern has no effect, as with git.
            let _not_a_pattern = rules.add_line(None, line).err();
        }
    }
    rules.build().ok()
}

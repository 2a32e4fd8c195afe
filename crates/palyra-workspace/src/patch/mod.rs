//! Patches: a unified diff over several files, applied whole or not at all.
//!
//! A patch goes through three hands. `parse.rs` reads the text; `plan_patch` resolves every path it names, which is
//! what policy and people see; `apply_patch` reads the files, computes every result in memory and commits them together
//! (`transaction.rs`). The reading is our own and strict: hunks are counted by their headers, so a removed line that
//! looks like `--- a/x` is a removed line; what is neither header nor hunk is an error, not a comment; a file may be
//! named once. A general patch library was rejected because those forgive, and what they forgive the operator did not
//! see. Binary patches, copies, links and submodules are refused.

mod apply;
mod hunk;
mod name;
mod parse;

pub use apply::{ChangeKind, FileChange, PatchOutcome};

use super::Workspace;
use super::error::{FileError, shown};
use super::limits::{MAX_PATCH_BYTES, MAX_PATCH_FILES};
use super::path::ResolvedPath;
use hunk::Hunk;
use parse::FileDiff;
use std::collections::BTreeSet;

/// A patch whose every path is resolved, and nothing of it done.
#[derive(Debug)]
pub struct PatchPlan {
    changes: Vec<Change>,
}

/// What is to happen to one file.
#[derive(Debug)]
struct Change {
    target: Target,
    /// What git's mode lines say about the execute bits.
    executable: Option<bool>,
    hunks: Vec<Hunk>,
}

#[derive(Debug)]
enum Target {
    Create(ResolvedPath),
    Edit(ResolvedPath),
    Delete(ResolvedPath),
    Rename { from: ResolvedPath, to: ResolvedPath },
}

impl Target {
    /// Where content comes from that ends up elsewhere.
    fn moved_from(&self) -> Option<&ResolvedPath> {
        match self {
            Self::Rename { from, .. } => Some(from),
            Self::Create(_) | Self::Edit(_) | Self::Delete(_) => None,
        }
    }

    fn paths(&self) -> impl Iterator<Item = &ResolvedPath> {
        let (first, second) = match self {
            Self::Create(path) | Self::Edit(path) | Self::Delete(path) => (path, None),
            Self::Rename { from, to } => (from, Some(to)),
        };
        std::iter::once(first).chain(second)
    }
}

/// The paths that a patch writes, by what happens to them. A rename is a deletion and a creation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PatchedPaths {
    pub created: Vec<ResolvedPath>,
    pub edited: Vec<ResolvedPath>,
    pub deleted: Vec<ResolvedPath>,
}

impl PatchedPaths {
    /// All of them, sorted.
    #[must_use]
    pub fn all(&self) -> Vec<&ResolvedPath> {
        let mut all: Vec<_> = self.created.iter().chain(&self.edited).chain(&self.deleted).collect();
        all.sort();
        all
    }
}

impl PatchPlan {
    /// What the patch would write, for policy and for people.
    #[must_use]
    pub fn paths_written(&self) -> PatchedPaths {
        let mut paths = PatchedPaths::default();
        for change in &self.changes {
            match &change.target {
                Target::Create(path) => paths.created.push(path.clone()),
                Target::Edit(path) => paths.edited.push(path.clone()),
                Target::Delete(path) => paths.deleted.push(path.clone()),
                Target::Rename { from, to } => {
                    paths.deleted.push(from.clone());
                    paths.created.push(to.clone());
                }
            }
        }
        paths
    }
}

/// Reads a patch and forgets it: how many files it names.
pub(super) fn parse_only(text: &str) -> Result<usize, FileError> {
    parse::parse(text).map(|files| files.len())
}

impl PatchPlan {
    /// What the patch would read beyond the places it changes: the content of a renamed file appears under another
    /// name, where other rules may hold.
    #[must_use]
    pub fn paths_read(&self) -> Vec<&ResolvedPath> {
        let mut sources: Vec<_> = self.changes.iter().filter_map(|change| change.target.moved_from()).collect();
        sources.sort();
        sources
    }
}

impl Workspace {
    /// Reads a unified diff and resolves every path in it. Changes nothing.
    pub fn plan_patch(&self, unified_diff: &str) -> Result<PatchPlan, FileError> {
        let plan = self.plan_guarded_patch(unified_diff)?;
        plan.changes
            .iter()
            .flat_map(|change| change.target.paths())
            .try_for_each(|path| self.refuse_protected(path))?;
        Ok(plan)
    }

    /// The same for a patch that is staged in a view: git's and Palyra's own files are guarded instead of refused.
    ///
    /// # Errors
    /// The text is no patch, or names what cannot be.
    pub fn plan_guarded_patch(&self, unified_diff: &str) -> Result<PatchPlan, FileError> {
        if unified_diff.len() > MAX_PATCH_BYTES {
            return Err(too_large(MAX_PATCH_BYTES as u64, "bytes"));
        }
        let diffs = parse::parse(unified_diff)?;
        if diffs.len() > MAX_PATCH_FILES {
            return Err(too_large(MAX_PATCH_FILES as u64, "files"));
        }
        let mut seen = BTreeSet::new();
        let mut changes = Vec::with_capacity(diffs.len());
        for diff in diffs {
            let line = diff.line;
            let change = self.plan_change(diff)?;
            for path in change.target.paths() {
                self.refuse_in_git(path)?;
                if !seen.insert(path.as_str().to_owned()) {
                    let reason =
                        format!("`{}` is named a second time; give each file one section", shown(path.as_str()));
                    return Err(FileError::PatchMalformed { line, reason });
                }
            }
            changes.push(change);
        }
        Ok(PatchPlan { changes })
    }

    /// Where the paths of a patch lead, as far as each can be followed: see [`Workspace::whereabouts`]. Nothing for a
    /// text that is no patch.
    #[must_use]
    pub fn patch_whereabouts(&self, unified_diff: &str) -> Vec<String> {
        if unified_diff.len() > MAX_PATCH_BYTES {
            return Vec::new();
        }
        let diffs = parse::parse(unified_diff).unwrap_or_default();
        let names = diffs.iter().take(MAX_PATCH_FILES).flat_map(|diff| [&diff.old, &diff.new]).flatten();
        let mut places: Vec<String> = names.flat_map(|name| self.whereabouts(name)).collect();
        places.sort();
        places.dedup();
        places
    }

    fn plan_change(&self, diff: FileDiff) -> Result<Change, FileError> {
        let target = match (diff.old, diff.new) {
            (None, Some(new)) => Target::Create(self.absent(&new)?),
            (Some(old), None) => Target::Delete(self.unlinked(&old)?),
            (Some(old), Some(new)) if old == new => Target::Edit(self.present(&old)?),
            (Some(old), Some(new)) => Target::Rename { from: self.unlinked(&old)?, to: self.absent(&new)? },
            (None, None) => {
                let reason = "both sides are `/dev/null`; name a file".to_owned();
                return Err(FileError::PatchMalformed { line: diff.line, reason });
            }
        };
        Ok(Change { target, executable: diff.executable, hunks: diff.hunks })
    }

    fn absent(&self, text: &str) -> Result<ResolvedPath, FileError> {
        let path = self.resolve(text)?;
        if path.existed() { Err(FileError::AlreadyExists { path: shown(path.as_str()) }) } else { Ok(path) }
    }

    fn present(&self, text: &str) -> Result<ResolvedPath, FileError> {
        let path = self.resolve(text)?;
        if path.existed() { Ok(path) } else { Err(FileError::NotFound { path: shown(path.as_str()) }) }
    }

    /// A file that is to leave its place; a link is refused, because what it points at is not what was named.
    fn unlinked(&self, text: &str) -> Result<ResolvedPath, FileError> {
        if self.resolve_fully(text)?.last_was_link {
            return Err(FileError::NotRegular { path: shown(text), kind: "a symbolic link" });
        }
        self.present(text)
    }
}

fn too_large(limit: u64, unit: &'static str) -> FileError {
    FileError::TooLarge { path: "the patch".to_owned(), limit, unit }
}

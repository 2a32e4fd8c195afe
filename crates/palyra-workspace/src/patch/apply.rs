//! Applying a planned patch: read everything, compute everything, then change everything together.
//!
//! What was read is what must still be there when the change is made: the transaction compares the file that leaves its
//! place with the one that was read. It must never write before every result is known.

use super::hunk::{Patched, patched};
use super::{Change, PatchPlan, Target};
use crate::effects::{FileChanges, GuardRules, View};
use crate::error::{FileError, io_at, shown};
use crate::limits::{MAX_PATCHED_BYTES, MAX_PATCHED_FILE_BYTES, MAX_RELOCATION_LINES};
use crate::path::ResolvedPath;
use crate::read::read_all;
use crate::transaction::{Expect, Identity, Rights, Transaction, look};
use crate::write::require_writable;
use crate::{Errand, Workspace};
use rustix::fs::Stat;
use serde::Serialize;
use std::fs::File;

/// What happened to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    Created,
    Modified,
    Deleted,
    Renamed,
}

/// One file that a patch changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileChange {
    /// Where the file is now, or was if it was deleted.
    pub path: String,
    pub change: ChangeKind,
    /// Where a renamed file was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renamed_from: Option<String>,
    /// Lines added.
    pub added: usize,
    /// Lines removed.
    pub removed: usize,
    /// Hunks that stood at another line than the patch named.
    pub relocated_hunks: usize,
}

/// What a patch did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PatchOutcome {
    /// In the order of the patch.
    pub files: Vec<FileChange>,
}

/// A change with its result, not yet made.
struct Computed {
    change: Change,
    /// The file it was computed from.
    original: Option<Stat>,
    result: Patched,
}

impl Workspace {
    /// Applies a planned patch to all its files, or to none. The errand is asked file by file, and last before anything
    /// changes; after that it is too late.
    pub fn apply_patch(&self, plan: PatchPlan, errand: Errand<'_>) -> Result<PatchOutcome, FileError> {
        let protected = plan.changes.iter().flat_map(|change| change.target.paths());
        protected.into_iter().try_for_each(|path| self.refuse_protected(path))?;
        let (transaction, outcome) = self.prepare_patch(plan, errand)?;
        transaction.commit(errand.stop)?;
        Ok(outcome)
    }

    /// Prepares a patch in a view of a store instead of applying it: what it replaces will be kept, and guarded files
    /// wait.
    ///
    /// # Errors
    /// As for [`Workspace::apply_patch`], but that git's and Palyra's own files are guarded instead of refused.
    pub fn stage_patch(
        &self,
        plan: PatchPlan,
        errand: Errand<'_>,
        (view, guard): (&View, &GuardRules),
    ) -> Result<(FileChanges, PatchOutcome), FileError> {
        let (transaction, outcome) = self.prepare_patch(plan, errand)?;
        let kept = view.kept_for_files().map_err(|error| FileError::Io {
            path: ".".to_owned(),
            source: std::io::Error::other(error.to_string()),
        })?;
        Ok((transaction.hand_over(errand.stop, (&kept, guard))?, outcome))
    }

    fn prepare_patch(&self, plan: PatchPlan, errand: Errand<'_>) -> Result<(Transaction, PatchOutcome), FileError> {
        self.in_place()?;
        let stop = errand.stop;
        let mut budget = Budget { bytes: MAX_PATCHED_BYTES, lines: MAX_RELOCATION_LINES };
        let mut computed = Vec::with_capacity(plan.changes.len());
        for change in plan.changes {
            check(stop)?;
            for path in change.target.paths() {
                self.refuse_in_git(path)?;
            }
            computed.push(self.compute(change, &mut budget)?);
        }
        let mut transaction = Transaction::new(errand.call);
        for one in &computed {
            check(stop)?;
            self.stage(one, &mut transaction)?;
        }
        let outcome = PatchOutcome { files: computed.into_iter().map(FileChange::from).collect() };
        Ok((transaction, outcome))
    }

    fn compute(&self, change: Change, budget: &mut Budget) -> Result<Computed, FileError> {
        let (source, target) = match &change.target {
            Target::Create(path) => (None, path),
            Target::Edit(path) | Target::Delete(path) => (Some(path), path),
            Target::Rename { from, to } => (Some(from), to),
        };
        let (content, original) = match source {
            Some(path) => self.original(path).map(|(content, stat)| (content, Some(stat)))?,
            None => (Vec::new(), None),
        };
        let path = source.unwrap_or(target).as_str();
        budget.spend(path, content.len())?;
        let result = patched(path, &content, &change.hunks, &mut budget.lines)?;
        budget.spend(path, result.content.len())?;
        if result.content.len() as u64 > MAX_PATCHED_FILE_BYTES {
            return Err(file_too_large(path));
        }
        if matches!(change.target, Target::Delete(_)) && !result.content.is_empty() {
            let reason = "the file has lines that the patch does not remove; delete what is there now".to_owned();
            return Err(FileError::PatchDoesNotApply { path: shown(path), hunk: change.hunks.len(), reason });
        }
        Ok(Computed { change, original, result })
    }

    fn original(&self, path: &ResolvedPath) -> Result<(Vec<u8>, Stat), FileError> {
        let (file, stat) = self.open_file(path)?;
        let content = read_all(&File::from(file), MAX_PATCHED_FILE_BYTES).map_err(io_at(path.as_str()))?;
        Ok((content.ok_or_else(|| file_too_large(path.as_str()))?, stat))
    }

    fn stage(&self, computed: &Computed, transaction: &mut Transaction) -> Result<(), FileError> {
        let content = computed.result.content.as_slice();
        let rights = computed.original.as_ref().map_or(Rights::Plain, Rights::like);
        let rights = computed.change.executable.map_or(rights, |executable| rights.with_executable(executable));
        let expect = computed.original.as_ref().map_or(Expect::AnyFile, |stat| Expect::Exactly(Identity::of(stat)));
        match &computed.change.target {
            Target::Create(path) => self.stage_new(path, content, rights, transaction),
            Target::Edit(path) => {
                let place = self.place(path, false, transaction)?;
                require_writable(&place)?;
                transaction.replace(place, content, rights, expect)
            }
            Target::Delete(path) => {
                let place = self.place(path, false, transaction)?;
                transaction.delete(place, expect)
            }
            Target::Rename { from, to } => {
                self.stage_new(to, content, rights, transaction)?;
                let place = self.place(from, false, transaction)?;
                transaction.delete(place, expect)
            }
        }
    }

    fn stage_new(
        &self,
        path: &ResolvedPath,
        content: &[u8],
        rights: Rights,
        transaction: &mut Transaction,
    ) -> Result<(), FileError> {
        let place = self.place(path, true, transaction)?;
        if look(&place)?.is_some() {
            return Err(FileError::AlreadyExists { path: shown(path.as_str()) });
        }
        transaction.create(place, content, rights)
    }
}

fn check(stop: &dyn Fn() -> bool) -> Result<(), FileError> {
    if stop() { Err(FileError::Cancelled) } else { Ok(()) }
}

/// What one patch may still use.
struct Budget {
    bytes: u64,
    lines: usize,
}

impl Budget {
    fn spend(&mut self, path: &str, bytes: usize) -> Result<(), FileError> {
        let left = self.bytes.checked_sub(bytes as u64);
        let too_large =
            || FileError::TooLarge { path: shown(path), limit: MAX_PATCHED_BYTES, unit: "bytes in all files" };
        self.bytes = left.ok_or_else(too_large)?;
        Ok(())
    }
}

fn file_too_large(path: &str) -> FileError {
    FileError::TooLarge { path: shown(path), limit: MAX_PATCHED_FILE_BYTES, unit: "bytes" }
}

impl From<Computed> for FileChange {
    fn from(computed: Computed) -> Self {
        let (path, change, from) = match computed.change.target {
            Target::Create(path) => (path, ChangeKind::Created, None),
            Target::Edit(path) => (path, ChangeKind::Modified, None),
            Target::Delete(path) => (path, ChangeKind::Deleted, None),
            Target::Rename { from, to } => (to, ChangeKind::Renamed, Some(from)),
        };
        Self {
            path: path.as_str().to_owned(),
            change,
            renamed_from: from.map(|path| path.as_str().to_owned()),
            added: computed.result.added,
            removed: computed.result.removed,
            relocated_hunks: computed.result.relocated,
        }
    }
}

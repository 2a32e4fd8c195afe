//! Carrying out a plan: one rename per step, each of which can be repeated without harm.
//!
//! | step | done by | is done when |
//! |---|---|---|
//! | add | `kept/N` → path, never replacing | the path is the staged entry |
//! | exchange | `kept/N` ⇄ path, then a look at what came out | the path is the staged entry |
//! | remove | path → `kept/N`, then a look at what came out | `kept/N` is the old entry |
//! | set mode | `chmod` | always repeated |
//!
//! The look comes after the rename because nobody can swap an entry any more once it is in the store. If it is not the
//! entry that the plan knows, the step is taken back and counts as a conflict.

use super::error::{EffectError, at};
use super::plan::{Action, Plan, Step, StepEnd};
use super::sys::{
    FileId, exchange, kind_of, look, move_new, open_dir, plain_mode, set_directory_time, set_mode, set_mode_of,
};
use crate::Workspace;
use palyra_protocol::EffectPath;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Stat, fsync};
use rustix::io::Errno;
use std::collections::BTreeSet;

/// What became of a plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    /// How many changes are in the workspace now.
    pub done: usize,
    /// Entries that somebody changed meanwhile: the workspace's version stands, the new one is kept.
    pub conflicts: Vec<EffectPath>,
    /// Guarded entries that wait for consent.
    pub withheld: Vec<EffectPath>,
    /// Bytes that are kept for an undo.
    pub kept_bytes: u64,
}

/// A plan being carried out.
pub(super) struct Run<'a> {
    pub(super) workspace: &'a Workspace,
    /// The store's directory of kept entries.
    pub(super) kept: &'a OwnedFd,
    /// The store, for entries that come from another view.
    pub(super) base: BorrowedFd<'a>,
}

impl Run<'_> {
    /// Carries out every step that is not done yet.
    pub(super) fn all(&self, plan: &Plan) -> Result<Vec<(u32, StepEnd)>, EffectError> {
        let mut ends = Vec::with_capacity(plan.steps.len());
        let mut touched = BTreeSet::new();
        let mut parent: Option<(Vec<u8>, OwnedFd)> = None;
        let mut theirs: Option<(String, OwnedFd)> = None;
        for step in &plan.steps {
            let wanted = step.path.parent();
            if parent.as_ref().is_none_or(|(open, _)| open != wanted) {
                parent = open_dir(self.workspace.root_fd(), wanted).ok().map(|fd| (wanted.to_vec(), fd));
            }
            let end = match &parent {
                Some((_, directory)) => {
                    self.fetch(step, &mut theirs)?;
                    self.step(step, directory.as_fd())?
                }
                None => StepEnd::Conflict,
            };
            touched.insert(wanted.to_vec());
            ends.push((step.number, end));
        }
        if plan.restore_times {
            for time in &plan.times {
                let path = time.path.as_ref().map_or(&b""[..], EffectPath::as_bytes);
                if let Ok(directory) = open_dir(self.workspace.root_fd(), path) {
                    set_directory_time(&directory, time.modified).map_err(at(path))?;
                }
            }
        }
        self.sync(&touched)?;
        Ok(ends)
    }

    /// Makes the renames durable.
    fn sync(&self, touched: &BTreeSet<Vec<u8>>) -> Result<(), EffectError> {
        const FEW: usize = 16;
        fsync(self.kept).map_err(at(b"kept"))?;
        if touched.len() > FEW {
            return rustix::fs::syncfs(self.kept).map_err(at(b"kept"));
        }
        for path in touched {
            match open_dir(self.workspace.root_fd(), path) {
                Ok(directory) => fsync(&directory).map_err(at(path))?,
                // Gone meanwhile, with what was in it.
                Err(_) => continue,
            }
        }
        Ok(())
    }

    fn step(&self, step: &Step, directory: BorrowedFd<'_>) -> Result<StepEnd, EffectError> {
        let number = step.number.to_string();
        let (here, kept) = ((directory, step.path.name()), (self.kept.as_fd(), number.as_bytes()));
        match step.action {
            Action::Add => add(step, here, kept),
            Action::Exchange => swap(step, here, kept),
            Action::Remove => remove(step, here, kept),
            Action::SetMode { mode, .. } => match set_mode(here.0, here.1, mode) {
                Ok(()) => Ok(StepEnd::Done),
                Err(Errno::NOENT | Errno::LOOP) => Ok(StepEnd::Conflict),
                Err(errno) => Err(EffectError::at(step.path.as_bytes(), errno)),
            },
        }
    }

    /// Takes an entry over from another view, unless that was done already.
    fn fetch(&self, step: &Step, theirs: &mut Option<(String, OwnedFd)>) -> Result<(), EffectError> {
        let Some((view, number)) = &step.from else { return Ok(()) };
        let opened = match theirs.take().filter(|(opened, _)| opened == view) {
            Some((_, opened)) => opened,
            None => open_dir(self.base, format!("{view}/kept").as_bytes()).map_err(at(view.as_bytes()))?,
        };
        let (from, to) = (number.to_string(), step.number.to_string());
        let moved = move_new((opened.as_fd(), from.as_bytes()), (self.kept.as_fd(), to.as_bytes()));
        *theirs = Some((view.clone(), opened));
        match moved {
            Ok(()) | Err(Errno::NOENT | Errno::EXIST) => Ok(()),
            Err(errno) => Err(EffectError::at(view.as_bytes(), errno)),
        }
    }
}

type Place<'a> = (BorrowedFd<'a>, &'a [u8]);

/// Whether the staged entry is in its place already.
fn is_placed(step: &Step, now: Option<&Stat>) -> bool {
    match (&step.staged, now) {
        (Some(staged), Some(now)) => staged.is_same_entry(&FileId::of(now)),
        _ => false,
    }
}

fn add(step: &Step, here: Place<'_>, kept: Place<'_>) -> Result<StepEnd, EffectError> {
    if is_placed(step, look(here.0, here.1)?.as_ref()) {
        return Ok(StepEnd::Done);
    }
    match movable(kept, || move_new(kept, here)) {
        Ok(()) => Ok(StepEnd::Done),
        Err(Errno::EXIST) => Ok(StepEnd::Conflict),
        Err(errno) => Err(EffectError::at(step.path.as_bytes(), errno)),
    }
}

fn swap(step: &Step, here: Place<'_>, kept: Place<'_>) -> Result<StepEnd, EffectError> {
    let now = look(here.0, here.1)?;
    if is_placed(step, now.as_ref()) {
        return Ok(StepEnd::Done);
    }
    let Some(now) = now else { return Ok(StepEnd::Conflict) };
    if !is_expected(step, &now) {
        return Ok(StepEnd::Conflict);
    }
    movable(kept, || movable(here, || exchange(kept, here))).map_err(at(step.path.as_bytes()))?;
    if look(kept.0, kept.1)?.is_some_and(|out| is_expected(step, &out)) {
        return Ok(StepEnd::Done);
    }
    exchange(kept, here).map_err(at(step.path.as_bytes()))?;
    Ok(StepEnd::Conflict)
}

fn remove(step: &Step, here: Place<'_>, kept: Place<'_>) -> Result<StepEnd, EffectError> {
    if look(kept.0, kept.1)?.is_some_and(|out| is_expected(step, &out)) {
        return Ok(StepEnd::Done);
    }
    let Some(now) = look(here.0, here.1)? else { return Ok(StepEnd::Conflict) };
    if !is_expected(step, &now) {
        return Ok(StepEnd::Conflict);
    }
    movable(here, || move_new(here, kept)).map_err(at(step.path.as_bytes()))?;
    if look(kept.0, kept.1)?.is_some_and(|out| is_expected(step, &out)) {
        return Ok(StepEnd::Done);
    }
    move_new(kept, here).map_err(at(step.path.as_bytes()))?;
    Ok(StepEnd::Conflict)
}

/// Whether an entry is the one that the plan knows. A directory's size and times change with its entries.
fn is_expected(step: &Step, now: &Stat) -> bool {
    let now_id = FileId::of(now);
    step.before.as_ref().is_some_and(|before| match kind_of(now) {
        FileType::Directory => before.is_same_entry(&now_id),
        _ => *before == now_id,
    })
}

/// Moves an entry; a directory that may not be written is made writable for the moment that takes.
fn movable(entry: Place<'_>, mut action: impl FnMut() -> Result<(), Errno>) -> Result<(), Errno> {
    match action() {
        Err(Errno::ACCESS) => {}
        other => return other,
    }
    let stat = rustix::fs::statat(entry.0, entry.1, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?;
    let mode = plain_mode(&stat);
    if kind_of(&stat) != FileType::Directory || mode & 0o200 != 0 {
        return Err(Errno::ACCESS);
    }
    // Held by a descriptor: it has another name when it has been moved.
    let path = rustix::fs::OFlags::PATH | rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::CLOEXEC;
    let directory = rustix::fs::openat(entry.0, entry.1, path, rustix::fs::Mode::empty())?;
    set_mode_of(&directory, mode | 0o200)?;
    let moved = action();
    set_mode_of(&directory, mode)?;
    moved
}

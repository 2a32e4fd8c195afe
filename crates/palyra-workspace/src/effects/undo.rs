//! Undo: the entries that a plan replaced come back, by a plan of their own.
//!
//! An undo is an effect like any other: it has a view, a plan and a result, and can itself be undone. It refuses to
//! touch an entry that was changed since, and names it.

use super::apply::Applied;
use super::error::EffectError;
use super::plan::{Action, PLAN_VERSION, Plan, Step, StepEnd};
use super::store::ViewStore;
use super::sys::{FileId, changed_at, kind_of, look, names, open_dir, plain_mode};
use crate::Workspace;
use palyra_protocol::{Digest, EffectPath};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

/// Why an entry cannot be put back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    /// The entry.
    pub path: EffectPath,
    /// What is in the way.
    pub reason: &'static str,
}

/// What an undo would do.
#[derive(Debug)]
pub struct UndoPlan {
    id: String,
    plan: Plan,
    /// Entries that somebody changed since; they stay as they are.
    pub obstacles: Vec<Obstacle>,
}

impl UndoPlan {
    /// Entries that would be put back or removed.
    #[must_use]
    pub fn paths(&self) -> Vec<EffectPath> {
        self.plan.steps.iter().map(|step| step.path.clone()).collect()
    }
}

impl ViewStore {
    /// Looks at what undoing a view would do. Nothing changes.
    ///
    /// # Errors
    /// Nothing is kept for it, it was undone already, or the host failed.
    pub fn plan_undo(&self, id: &str, workspace: &Workspace) -> Result<UndoPlan, EffectError> {
        let (done, ended, applied_at) = self.plan_of(id)?;
        if ended.undone_by.is_some() {
            return Err(EffectError::AlreadyUndone { id: id.to_owned() });
        }
        let mut plan = Plan {
            version: PLAN_VERSION,
            steps: Vec::new(),
            withheld: Vec::new(),
            conflicts: Vec::new(),
            times: done.times,
            restore_times: true,
            undoes: Some(id.to_owned()),
        };
        let mut obstacles = Vec::new();
        let steps = done.steps.into_iter().rev().filter(|step| ended.ends.contains(&(step.number, StepEnd::Done)));
        for (number, step) in (0..).zip(steps) {
            if let (Action::SetMode { mode, was }, true) = (step.action, comes_with(&plan, &step.path)) {
                plan.steps.push(Step { number, action: Action::SetMode { mode: was, was: mode }, ..step });
                continue;
            }
            match reverse(id, step, (workspace, applied_at))? {
                Ok(step) => plan.steps.push(Step { number, ..step }),
                Err(obstacle) => obstacles.push(obstacle),
            }
        }
        Ok(UndoPlan { id: id.to_owned(), plan, obstacles })
    }

    /// Makes an undo durable as the view `undo_id`. Returns the digest under which the intent is recorded;
    /// [`ViewStore::apply`] carries it out.
    ///
    /// # Errors
    /// There is such a view, or the host failed.
    pub fn stage_undo(&self, undo: &UndoPlan, undo_id: &str, workspace: &Workspace) -> Result<Digest, EffectError> {
        let view = self.begin(undo_id, workspace)?;
        let kept = view.make_kept()?;
        view.write_plan(&undo.plan, &kept)
    }

    /// Undoes a view at once: [`ViewStore::stage_undo`] and [`ViewStore::apply`].
    ///
    /// # Errors
    /// As those two.
    pub fn undo(&self, undo: &UndoPlan, undo_id: &str, workspace: &Workspace) -> Result<Applied, EffectError> {
        self.stage_undo(undo, undo_id, workspace)?;
        self.apply(undo_id, workspace)
    }
}

impl UndoPlan {
    /// The view that is undone.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }
}

/// Whether an entry is put into the workspace by a step that is planned already.
fn comes_with(plan: &Plan, path: &EffectPath) -> bool {
    let places = |step: &&Step| matches!(step.action, Action::Add | Action::Exchange);
    plan.steps.iter().filter(places).any(|step| path.is_under(step.path.as_bytes()))
}

/// The step that takes another back, or what is in its way.
fn reverse(
    id: &str,
    done: Step,
    (workspace, applied_at): (&Workspace, (i64, i64)),
) -> Result<Result<Step, Obstacle>, EffectError> {
    let directory = open_dir(workspace.root_fd(), done.path.parent()).ok();
    let now = match &directory {
        Some(directory) => look(directory.as_fd(), done.path.name())?,
        None => None,
    };
    let obstacle = |path: &EffectPath, reason| Ok(Err(Obstacle { path: path.clone(), reason }));
    let step = |action, staged, before| Step {
        number: 0,
        path: done.path.clone(),
        action,
        staged,
        before,
        from: matches!(action, Action::Add | Action::Exchange).then(|| (id.to_owned(), done.number)),
    };
    match done.action {
        Action::Remove if directory.is_none() => obstacle(&done.path, "its directory is gone"),
        Action::Remove if now.is_some() => obstacle(&done.path, "something else stands there now"),
        Action::Remove => Ok(Ok(step(Action::Add, done.before, None))),
        Action::SetMode { mode, was } => match &now {
            Some(now) if plain_mode(now) == mode => Ok(Ok(step(Action::SetMode { mode: was, was: mode }, None, None))),
            _ => obstacle(&done.path, "its permissions were changed since"),
        },
        Action::Add | Action::Exchange => {
            let (Some(now), Some(directory)) = (&now, &directory) else {
                return obstacle(&done.path, "it was removed since");
            };
            if let Some(path) = changed_since(&done, now, directory, applied_at)? {
                return obstacle(&path, "it was changed since");
            }
            let before = Some(FileId::of(now));
            Ok(Ok(match done.action {
                Action::Add => step(Action::Remove, None, before),
                _ => step(Action::Exchange, done.before, before),
            }))
        }
    }
}

/// The entry that was changed since the plan put it there, if there is one.
fn changed_since(
    done: &Step,
    now: &Stat,
    directory: &OwnedFd,
    applied_at: (i64, i64),
) -> Result<Option<EffectPath>, EffectError> {
    let same = |staged: &FileId| match kind_of(now) {
        FileType::Directory => staged.is_same_entry(&FileId::of(now)),
        _ => *staged == FileId::of(now),
    };
    if !done.staged.as_ref().is_some_and(same) {
        return Ok(Some(done.path.clone()));
    }
    if kind_of(now) != FileType::Directory {
        return Ok(None);
    }
    let below = match open_dir(directory.as_fd(), done.path.name()) {
        Ok(below) => below,
        // Nobody can have changed what is in it without changing its permissions first.
        Err(Errno::ACCESS) => return Ok((changed_at(now) >= applied_at).then(|| done.path.clone())),
        Err(errno) => return Err(EffectError::at(done.path.as_bytes(), errno)),
    };
    newer_below(&below, &done.path, applied_at)
}

fn newer_below(directory: &OwnedFd, path: &EffectPath, than: (i64, i64)) -> Result<Option<EffectPath>, EffectError> {
    for name in names(directory, path.as_bytes())? {
        let name = name.to_bytes();
        let Some(stat) = look(directory.as_fd(), name)? else { continue };
        let path = path.join(name)?;
        if kind_of(&stat) == FileType::Directory {
            let Ok(below) = open_dir(directory.as_fd(), name) else { continue };
            if let Some(found) = newer_below(&below, &path, than)? {
                return Ok(Some(found));
            }
        }
        if changed_at(&stat) >= than {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

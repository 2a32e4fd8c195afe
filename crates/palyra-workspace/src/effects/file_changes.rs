//! Changes of the file tools, staged like those of a run: what they replace is kept, and guarded files wait.
//!
//! A file tool prepares its files beside their targets, with every check that it makes anyway ([`crate::transaction`]).
//! Here they are moved into a view instead of taking their places, and become a plan. Directories that were made on the
//! way are there already; the plan names them so that an undo removes them.

use super::collect::{Fate, Fates, directory_times};
use super::error::{EffectError, at};
use super::guarded::GuardRules;
use super::plan::{Action, PLAN_VERSION, Plan, Step};
use super::store::{View, remove_tree};
use super::sys::{FileId, look, move_new, open_dir, plain_mode};
use crate::Workspace;
use crate::transaction::{Handed, HandedAction};
use palyra_protocol::effect::{MAX_LISTED_CHANGES, digest_of_changes};
use palyra_protocol::{
    ChangeKind, Digest, EffectChange, EffectCounts, EffectPath, EffectRecord, EffectState, EntryKind,
};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, Stat, openat};
use std::fs::File;
use std::io::Read as _;
use std::sync::Arc;

/// Changes of a file tool that are not made yet.
#[derive(Debug)]
pub struct FileChanges {
    steps: Vec<(Step, bool)>,
    changes: Vec<EffectChange>,
    bytes: u64,
    /// Directories that were made on the way: where, and their paths.
    made: Vec<(Arc<OwnedFd>, EffectPath)>,
}

impl FileChanges {
    pub(crate) fn new() -> Self {
        Self { steps: Vec::new(), changes: Vec::new(), bytes: 0, made: Vec::new() }
    }

    /// Every change, by path.
    #[must_use]
    pub fn changes(&self) -> &[EffectChange] {
        &self.changes
    }

    /// The paths that need consent.
    #[must_use]
    pub fn guarded(&self) -> Vec<EffectPath> {
        self.steps.iter().filter(|(_, guarded)| *guarded).map(|(step, _)| step.path.clone()).collect()
    }

    /// The effect as it is recorded, in this state.
    #[must_use]
    pub fn record(&self, state: EffectState) -> EffectRecord {
        let mut counts = EffectCounts::default();
        self.changes.iter().for_each(|change| counts.count(change.kind));
        let listed = self.changes.len().min(MAX_LISTED_CHANGES);
        EffectRecord {
            state,
            counts,
            bytes: self.bytes,
            changes: self.changes[..listed].to_vec(),
            unlisted: (self.changes.len() - listed) as u64,
            changes_sha256: digest_of_changes(&self.changes),
            waiting: Vec::new(),
            dropped: Vec::new(),
            conflicts: Vec::new(),
            skipped: Vec::new(),
            reversible: true,
            approval: None,
        }
    }

    /// Takes over a directory that was made on the way.
    pub(crate) fn take_directory(
        &mut self,
        parent: &Arc<OwnedFd>,
        directory: &OwnedFd,
        path: &str,
    ) -> Result<(), EffectError> {
        let path = EffectPath::new(path.as_bytes().to_vec())?;
        let stat = rustix::fs::fstat(directory).map_err(at(path.as_bytes()))?;
        self.changes.push(EffectChange { kind: ChangeKind::Added, ..described(&path, EntryKind::Directory, &stat) });
        let step = Step {
            number: self.number(),
            path,
            action: Action::Add,
            staged: Some(FileId::of(&stat)),
            before: None,
            from: None,
        };
        self.made.push((Arc::clone(parent), step.path.clone()));
        self.steps.push((step, false));
        Ok(())
    }

    /// Takes new directories out of the workspace again in which something is guarded: they wait as a whole.
    pub(crate) fn withhold_directories(&mut self, kept: &OwnedFd) -> Result<(), EffectError> {
        let made = std::mem::take(&mut self.made);
        let outermost =
            |path: &EffectPath| !made.iter().any(|(_, other)| other != path && path.is_under(other.as_bytes()));
        for (parent, top) in made.iter().filter(|(_, path)| outermost(path)) {
            let beneath = |step: &Step| step.path.is_under(top.as_bytes());
            if self.steps.iter().any(|(step, guarded)| *guarded && beneath(step)) {
                self.withhold(parent, top, kept)?;
            }
        }
        Ok(())
    }

    fn withhold(&mut self, parent: &OwnedFd, top: &EffectPath, kept: &OwnedFd) -> Result<(), EffectError> {
        let (beneath, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.steps).into_iter().partition(|(step, _)| step.path.is_under(top.as_bytes()));
        self.steps = rest;
        let Some((itself, _)) = beneath.iter().find(|(step, _)| step.path == *top) else { return Ok(()) };
        let name = itself.number.to_string();
        let place = (kept.as_fd(), name.as_bytes());
        move_new((parent.as_fd(), top.name()), place).map_err(at(top.as_bytes()))?;
        let is_ours = |stat: &Stat| itself.staged.is_some_and(|staged| staged.is_same_entry(&FileId::of(stat)));
        if !look(place.0, place.1)?.as_ref().is_some_and(is_ours) {
            move_new(place, (parent.as_fd(), top.name())).map_err(at(top.as_bytes()))?;
            return Err(EffectError::Damaged { what: top.to_text() });
        }
        let directory = open_dir(kept.as_fd(), name.as_bytes()).map_err(at(top.as_bytes()))?;
        let is_made =
            |step: &Step| !self.changes.iter().any(|c| c.path == step.path && c.entry == EntryKind::Directory);
        for (step, _) in beneath.iter().filter(|(step, _)| is_made(step)) {
            let inside = &step.path.as_bytes()[top.as_bytes().len() + 1..];
            let split = inside
                .iter()
                .rposition(|b| *b == b'/')
                .map_or((&b""[..], inside), |at| (&inside[..at], &inside[at + 1..]));
            let to = open_dir(directory.as_fd(), split.0).map_err(at(step.path.as_bytes()))?;
            let from = step.number.to_string();
            move_new((kept.as_fd(), from.as_bytes()), (to.as_fd(), split.1)).map_err(at(step.path.as_bytes()))?;
        }
        self.steps.push((itself.clone(), true));
        self.steps.sort_by_key(|(step, _)| step.number);
        Ok(())
    }

    /// Takes over one prepared file.
    pub(crate) fn take(&mut self, handed: &Handed<'_>, kept: &OwnedFd, guard: &GuardRules) -> Result<(), EffectError> {
        let path = EffectPath::new(handed.path.as_bytes().to_vec())?;
        let now = look(handed.directory, handed.name.as_bytes())?;
        let old = match &now {
            Some(_) => read_small(handed.directory, handed.name)?,
            None => None,
        };
        let number = self.number();
        let (action, staged, guarded) = match handed.action {
            HandedAction::Delete => (Action::Remove, None, guard.guards_deletion(&path)),
            HandedAction::Create | HandedAction::Replace => {
                let new = read_small(handed.directory, handed.temporary)?;
                let to = number.to_string();
                move_new((handed.directory, handed.temporary.as_bytes()), (kept.as_fd(), to.as_bytes()))
                    .map_err(at(path.as_bytes()))?;
                let guarded = match &new {
                    Some(new) => guard.guards_file(&path, old.as_deref(), new),
                    None => guard.lists(&path) || guard.reads_content(&path),
                };
                let action = if handed.action == HandedAction::Create { Action::Add } else { Action::Exchange };
                (action, look(kept.as_fd(), to.as_bytes())?, guarded)
            }
        };
        self.describe(&path, (action, staged.as_ref(), now.as_ref()), kept)?;
        let before = now.as_ref().filter(|_| action != Action::Add).map(FileId::of);
        let step = Step { number, path, action, staged: staged.as_ref().map(FileId::of), before, from: None };
        self.steps.push((step, guarded || handed.protected));
        Ok(())
    }

    fn number(&self) -> u32 {
        u32::try_from(self.steps.len()).unwrap_or(u32::MAX)
    }

    fn describe(
        &mut self,
        path: &EffectPath,
        (action, staged, now): (Action, Option<&Stat>, Option<&Stat>),
        kept: &OwnedFd,
    ) -> Result<(), EffectError> {
        let Some(stat) = staged else {
            if let Some(now) = now {
                let gone = described(path, EntryKind::File, now);
                self.changes.push(EffectChange { kind: ChangeKind::Deleted, mode: None, ..gone });
            }
            return Ok(());
        };
        let kind = if action == Action::Add { ChangeKind::Added } else { ChangeKind::Changed };
        let name = self.number().to_string();
        let file = openat(kept, name.as_str(), READ, Mode::empty()).map_err(at(path.as_bytes()))?;
        let sha256 = Digest::of_reader(File::from(file));
        let sha256 = sha256.map_err(|source| EffectError::Io { what: path.to_text(), source })?;
        self.bytes = self.bytes.saturating_add(u64::try_from(stat.st_size).unwrap_or(0));
        self.changes.push(EffectChange { kind, sha256: Some(sha256), ..described(path, EntryKind::File, stat) });
        Ok(())
    }

    /// Makes the plan durable. Returns the digest under which the intent is recorded. Nothing in the workspace changes;
    /// [`super::ViewStore::apply`] does that.
    ///
    /// # Errors
    /// The host failed. The view can still be discarded.
    pub fn stage_as(self, view: &View, workspace: &Workspace, fates: Fates) -> Result<Digest, EffectError> {
        let kept = view.make_kept()?;
        let parents = self.steps.iter().map(|(step, _)| step.path.parent().to_vec()).collect();
        let mut plan = Plan {
            version: PLAN_VERSION,
            steps: Vec::new(),
            withheld: Vec::new(),
            conflicts: Vec::new(),
            times: directory_times(workspace, &parents)?,
            restore_times: false,
            undoes: None,
        };
        for (step, guarded) in self.steps {
            match if guarded { fates.guarded } else { fates.rest } {
                Fate::Apply => plan.steps.push(step),
                Fate::Wait => plan.withheld.push(step),
                Fate::Drop => remove_tree(&kept, step.number.to_string().as_bytes())?,
            }
        }
        view.write_plan(&plan, &kept)
    }
}

const READ: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// The content of a file that the guard may judge; nothing if it is larger than any honest one, or cannot be read.
fn read_small(directory: BorrowedFd<'_>, name: &str) -> Result<Option<Vec<u8>>, EffectError> {
    let Ok(file) = openat(directory, name, READ, Mode::empty()) else { return Ok(None) };
    let most = super::guarded::MAX_READ_BYTES;
    let mut content = Vec::new();
    let read = File::from(file).take(most + 1).read_to_end(&mut content);
    read.map_err(|source| EffectError::Io { what: name.to_owned(), source })?;
    Ok((content.len() as u64 <= most).then_some(content))
}

fn described(path: &EffectPath, entry: EntryKind, stat: &Stat) -> EffectChange {
    EffectChange {
        path: path.clone(),
        kind: ChangeKind::Changed,
        entry,
        mode: Some(plain_mode(stat)),
        size: (entry == EntryKind::File).then(|| u64::try_from(stat.st_size).unwrap_or(0)),
        sha256: None,
        target: None,
        from: None,
    }
}

//! From an upper layer to a plan: what a call changed, and how it will be put into the workspace.

use super::error::{EffectError, at};
use super::guarded::GuardRules;
use super::plan::{Action, DirectoryTime, PLAN_VERSION, Plan, Step};
use super::scan::{Draft, Found, Purpose, Scan};
use super::store::{View, remove_tree};
use super::sys::{FileId, look, move_new, open_dir, plain_mode};
use super::unshare::unshare;
use crate::Workspace;
use palyra_protocol::effect::{MAX_LISTED_CHANGES, digest_of_changes};
use palyra_protocol::{
    ChangeKind, Digest, EffectChange, EffectCounts, EffectPath, EffectRecord, EffectState, EntryKind,
};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, fstat, unlinkat};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// How much a run may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Entries added, changed and deleted.
    pub max_files: u64,
    /// Bytes of new content.
    pub max_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_files: 200_000, max_bytes: 4 << 30 }
    }
}

/// What policy needs to know about an effect before it counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectFacts {
    /// Paths that were added, changed or renamed to.
    pub written: Vec<EffectPath>,
    /// Paths that are gone.
    pub deleted: Vec<EffectPath>,
    /// Paths that need consent.
    pub guarded: Vec<EffectPath>,
    /// Paths that somebody else changed meanwhile.
    pub conflicts: Vec<EffectPath>,
    /// How many changes of each kind.
    pub counts: EffectCounts,
    /// Bytes of new content.
    pub bytes: u64,
}

/// A run's effect, not yet in the workspace.
#[derive(Debug)]
pub struct Collected<'a> {
    view: &'a View,
    workspace: &'a Workspace,
    found: Found,
    digest: Digest,
    counts: EffectCounts,
}

/// What several runs have changed in one view so far.
#[derive(Debug)]
pub struct ViewSum {
    /// As it is recorded.
    pub record: EffectRecord,
    /// Every change, by path.
    pub changes: Vec<EffectChange>,
}

/// Which guarded changes count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guarded {
    /// They wait for a person.
    Withhold,
    /// Somebody consented.
    Include,
}

/// What becomes of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// They are written into the workspace.
    Apply,
    /// They wait for a person.
    Wait,
    /// They are thrown away.
    Drop,
}

/// What becomes of a call's changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fates {
    /// Of the guarded ones.
    pub guarded: Fate,
    /// Of all others.
    pub rest: Fate,
}

impl Fates {
    /// Everything is written.
    pub const APPLY: Self = Self { guarded: Fate::Apply, rest: Fate::Apply };
}

impl View {
    /// Reads what the run left. Nothing in the workspace changes.
    ///
    /// # Errors
    /// The run exceeded its limits, or the host failed.
    pub fn collect<'a>(
        &'a self,
        workspace: &'a Workspace,
        guard: &GuardRules,
        limits: Limits,
    ) -> Result<Collected<'a>, EffectError> {
        self.read(workspace, (guard, limits), Purpose::TakeOver)
    }

    /// The same for a view that further runs work on: it stays as it is, and cannot be staged.
    ///
    /// # Errors
    /// The runs exceeded their limits, or the host failed.
    pub fn sum(&self, workspace: &Workspace, guard: &GuardRules, limits: Limits) -> Result<ViewSum, EffectError> {
        let collected = self.read(workspace, (guard, limits), Purpose::Look)?;
        // Also one that holds nothing is open.
        let record = EffectRecord { state: EffectState::Open, ..collected.record(EffectState::Open) };
        Ok(ViewSum { record, changes: collected.found.changes })
    }

    fn read<'a>(
        &'a self,
        workspace: &'a Workspace,
        (guard, limits): (&GuardRules, Limits),
        purpose: Purpose,
    ) -> Result<Collected<'a>, EffectError> {
        let upper = open_dir(self.directory().as_fd(), b"upper").map_err(at(b"upper"))?;
        let lower = open_dir(workspace.root_fd(), b"").map_err(at(b"."))?;
        let scan = Scan { guard, limits, started: self.started(), purpose, found: Found::default() };
        let mut found = scan.run(&upper, &lower)?;
        found.changes.sort_by(|a, b| a.path.cmp(&b.path));
        find_renames(&lower, &mut found.changes);
        let mut counts = EffectCounts::default();
        found.changes.iter().for_each(|change| counts.count(change.kind));
        let digest = digest_of_changes(&found.changes);
        Ok(Collected { view: self, workspace, found, digest, counts })
    }
}

impl Collected<'_> {
    /// Whether the run changed nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.found.changes.is_empty()
    }

    /// What policy needs to know.
    #[must_use]
    pub fn facts(&self) -> EffectFacts {
        let paths = |wanted: fn(ChangeKind) -> bool| {
            let changes = self.found.changes.iter().filter(|change| wanted(change.kind));
            changes.map(|change| change.path.clone()).collect()
        };
        let mut deleted: Vec<EffectPath> = paths(|kind| kind == ChangeKind::Deleted);
        deleted.extend(self.found.changes.iter().filter_map(|change| change.from.clone()));
        EffectFacts {
            written: paths(|kind| kind != ChangeKind::Deleted),
            deleted,
            guarded: self.drafted(|draft| draft.guarded && !draft.conflict),
            conflicts: self.drafted(|draft| draft.conflict),
            counts: self.counts,
            bytes: self.found.bytes,
        }
    }

    /// Every change, by path.
    #[must_use]
    pub fn changes(&self) -> &[EffectChange] {
        &self.found.changes
    }

    /// The effect as it is recorded, in this state.
    #[must_use]
    pub fn record(&self, state: EffectState) -> EffectRecord {
        let listed = self.found.changes.len().min(MAX_LISTED_CHANGES);
        EffectRecord {
            state: if self.is_empty() { EffectState::Empty } else { state },
            counts: self.counts,
            bytes: self.found.bytes,
            changes: self.found.changes[..listed].to_vec(),
            unlisted: (self.found.changes.len() - listed) as u64,
            changes_sha256: self.digest,
            waiting: Vec::new(),
            dropped: Vec::new(),
            conflicts: Vec::new(),
            skipped: self.found.skipped.iter().take(MAX_LISTED_CHANGES).cloned().collect(),
            reversible: true,
            approval: None,
        }
    }

    fn drafted(&self, wanted: impl Fn(&Draft) -> bool) -> Vec<EffectPath> {
        self.found.drafts.iter().filter(|draft| wanted(draft)).map(|draft| draft.path.clone()).collect()
    }

    /// Moves every new entry into the store and makes the plan durable. Returns the digest under which the intent is
    /// recorded. Nothing in the workspace changes; [`super::ViewStore::apply`] does that.
    ///
    /// # Errors
    /// The host failed. The view can still be discarded.
    pub fn stage(self, guarded: Guarded) -> Result<Digest, EffectError> {
        let guarded = match guarded {
            Guarded::Withhold => Fate::Wait,
            Guarded::Include => Fate::Apply,
        };
        self.stage_as(Fates { guarded, rest: Fate::Apply })
    }

    /// The same, with the fate of each part.
    ///
    /// # Errors
    /// The host failed. The view can still be discarded.
    pub fn stage_as(self, fates: Fates) -> Result<Digest, EffectError> {
        let upper = open_dir(self.view.directory().as_fd(), b"upper").map_err(at(b"upper"))?;
        let kept = self.view.make_kept()?;
        for path in &self.found.discarded {
            let directory = open_dir(upper.as_fd(), path.parent()).map_err(at(path.as_bytes()))?;
            unlinkat(&directory, path.name(), AtFlags::empty()).map_err(at(path.as_bytes()))?;
        }
        let mut plan = self.empty_plan();
        let mut parents = BTreeSet::new();
        let mut parent: Option<(Vec<u8>, OwnedFd)> = None;
        for (number, draft) in (0..).zip(self.found.drafts) {
            let fate = if draft.guarded { fates.guarded } else { fates.rest };
            let step = Step {
                number,
                path: draft.path,
                action: draft.action,
                staged: draft.staged,
                before: draft.before,
                from: None,
            };
            if matches!(step.action, Action::Add | Action::Exchange) {
                let directory = match parent.take().filter(|(path, _)| path == step.path.parent()) {
                    Some((_, directory)) => directory,
                    None => open_dir(upper.as_fd(), step.path.parent()).map_err(at(step.path.as_bytes()))?,
                };
                let name = number.to_string();
                move_new((directory.as_fd(), step.path.name()), (kept.as_fd(), name.as_bytes()))
                    .map_err(at(step.path.as_bytes()))?;
                parent = Some((step.path.parent().to_vec(), directory));
            }
            if fate == Fate::Drop && !draft.conflict {
                // It was moved first, because the directory that it is in may count.
                remove_tree(&kept, number.to_string().as_bytes())?;
            } else if draft.conflict {
                plan.conflicts.push(step);
            } else if fate == Fate::Wait {
                unshare(kept.as_fd(), number.to_string().as_bytes())?;
                let staged = look(kept.as_fd(), number.to_string().as_bytes())?.as_ref().map(FileId::of);
                plan.withheld.push(Step { staged, ..step });
            } else {
                parents.insert(step.path.parent().to_vec());
                plan.steps.push(step);
            }
        }
        // New directories were staged after what was taken out of them, and are placed before it.
        plan.steps.sort_by(|a, b| a.path.cmp(&b.path));
        plan.withheld.sort_by(|a, b| a.path.cmp(&b.path));
        match fates.rest {
            Fate::Apply => add_modes(self.workspace, &self.found.modes, &mut plan)?,
            Fate::Wait => {
                let steps = std::mem::take(&mut plan.steps);
                let before = plan.withheld.len();
                add_modes(self.workspace, &self.found.modes, &mut plan)?;
                let modes = std::mem::replace(&mut plan.steps, steps);
                plan.withheld.splice(before.., modes);
            }
            Fate::Drop => {}
        }
        plan.times = directory_times(self.workspace, &parents)?;
        self.view.write_plan(&plan, &kept)
    }

    fn empty_plan(&self) -> Plan {
        Plan {
            version: PLAN_VERSION,
            steps: Vec::new(),
            withheld: Vec::new(),
            conflicts: Vec::new(),
            times: Vec::new(),
            restore_times: false,
            undoes: None,
        }
    }
}

/// Permissions that are set at the end, the deepest first: a directory that may not be written comes last.
fn add_modes(workspace: &Workspace, modes: &[(EffectPath, u32)], plan: &mut Plan) -> Result<(), EffectError> {
    let mut number = plan.steps.iter().chain(&plan.withheld).chain(&plan.conflicts).map(|step| step.number + 1).max();
    let waits = |path: &EffectPath, steps: &[Step]| steps.iter().any(|step| path.is_under(step.path.as_bytes()));
    for (path, mode) in modes.iter().rev() {
        if waits(path, &plan.withheld) || waits(path, &plan.conflicts) {
            continue;
        }
        let next = number.unwrap_or(0);
        number = Some(next + 1);
        let before = match open_dir(workspace.root_fd(), path.parent()) {
            Ok(directory) => look(directory.as_fd(), path.name())?,
            Err(_) => None,
        };
        plan.steps.push(Step {
            number: next,
            path: path.clone(),
            action: Action::SetMode { mode: *mode, was: before.as_ref().map_or(*mode | 0o700, plain_mode) },
            staged: None,
            before: before.as_ref().map(FileId::of),
            from: None,
        });
    }
    Ok(())
}

/// When the directories whose entries change were last changed.
pub(super) fn directory_times(
    workspace: &Workspace,
    parents: &BTreeSet<Vec<u8>>,
) -> Result<Vec<DirectoryTime>, EffectError> {
    let mut times = Vec::new();
    for parent in parents {
        let Ok(directory) = open_dir(workspace.root_fd(), parent) else { continue };
        let stat = fstat(&directory).map_err(at(parent))?;
        let path = if parent.is_empty() { None } else { Some(EffectPath::new(parent.clone())?) };
        times.push(DirectoryTime { path, modified: FileId::of(&stat).modified });
    }
    Ok(times)
}

/// More files than this are not compared: it is for people, and nobody reads that many.
const MAX_RENAMES: usize = 1000;

/// Finds new files that have the content of a deleted one. The list must be sorted by path, and stays so.
fn find_renames(lower: &OwnedFd, changes: &mut Vec<EffectChange>) {
    let is_file = |change: &&EffectChange, kind| change.entry == EntryKind::File && change.kind == kind;
    let mut sizes: BTreeMap<u64, Vec<EffectPath>> = BTreeMap::new();
    for change in changes.iter().filter(|change| is_file(change, ChangeKind::Deleted)).take(MAX_RENAMES) {
        sizes.entry(change.size.unwrap_or(0)).or_default().push(change.path.clone());
    }
    let wanted: BTreeSet<u64> = changes
        .iter()
        .filter(|change| is_file(change, ChangeKind::Added))
        .filter_map(|change| change.size)
        .filter(|size| *size > 0 && sizes.contains_key(size))
        .collect();
    let mut by_content: HashMap<Digest, Vec<EffectPath>> = HashMap::new();
    for path in wanted.iter().flat_map(|size| &sizes[size]) {
        if let Some(digest) = digest_at(lower, path) {
            by_content.entry(digest).or_default().push(path.clone());
        }
    }
    let mut moved = BTreeSet::new();
    for change in changes.iter_mut() {
        if change.kind != ChangeKind::Added || change.entry != EntryKind::File || change.size == Some(0) {
            continue;
        }
        let Some(digest) = change.sha256 else { continue };
        if let Some(from) = by_content.get_mut(&digest).and_then(Vec::pop) {
            moved.insert(from.clone());
            (change.kind, change.from) = (ChangeKind::Renamed, Some(from));
        }
    }
    changes.retain(|change| change.kind != ChangeKind::Deleted || !moved.contains(&change.path));
}

fn digest_at(lower: &OwnedFd, path: &EffectPath) -> Option<Digest> {
    use rustix::fs::{Mode, OFlags, openat};
    let directory = open_dir(lower.as_fd(), path.parent()).ok()?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(&directory, path.name(), flags, Mode::empty()).ok()?;
    Digest::of_reader(std::fs::File::from(file)).ok()
}

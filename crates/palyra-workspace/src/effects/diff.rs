//! Differences: what a change does to a text, for people.

use super::error::{EffectError, at};
use super::plan::{Action, Step};
use super::store::{ViewStage, ViewStore};
use super::sys::{is_whiteout, look, open_dir};
use crate::Workspace;
use palyra_protocol::EffectPath;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::io::Read as _;

/// The largest file whose difference is shown.
pub const MAX_DIFF_BYTES: u64 = 1 << 20;

/// The difference of one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeDiff {
    /// A unified difference.
    Text(String),
    /// One of the versions is not text, or is too large to be shown.
    Opaque {
        /// The old size, where there was a file.
        old: Option<u64>,
        /// The new size, where there is a file.
        new: Option<u64>,
    },
}

/// One version of a file.
enum Version {
    Absent,
    Text(String),
    Opaque(u64),
}

impl Version {
    fn size(&self) -> Option<u64> {
        match self {
            Self::Absent => None,
            Self::Text(text) => Some(text.len() as u64),
            Self::Opaque(size) => Some(*size),
        }
    }
}

/// Tells the differences that one view makes; its plan is read once.
#[derive(Debug)]
pub struct Differences {
    /// Every step by its path, with its number and whether it is done.
    steps: HashMap<Vec<u8>, (u32, bool)>,
    /// Where entries are stored by their steps; in a view that is open, its upper layer.
    kept: OwnedFd,
    root: OwnedFd,
    /// Whether runs still work on the view.
    is_open: bool,
}

impl ViewStore {
    /// Opens a view to tell its differences.
    ///
    /// # Errors
    /// Nothing is kept for it, or the host failed.
    pub fn differences(&self, id: &str, workspace: &Workspace) -> Result<Differences, EffectError> {
        let root = open_dir(workspace.root_fd(), b"").map_err(at(b"."))?;
        if self.stage_of(id)? == ViewStage::Open {
            let upper = open_dir(self.base(), format!("{id}/upper").as_bytes()).map_err(at(b"upper"))?;
            return Ok(Differences { steps: HashMap::new(), kept: upper, root, is_open: true });
        }
        let (plan, done) = match self.plan_of(id) {
            Ok((plan, ended, _)) => (plan, ended.done()),
            Err(EffectError::NotKept { .. }) => (self.staged_plan(id)?, HashSet::new()),
            Err(other) => return Err(other),
        };
        let kept = open_dir(self.base(), format!("{id}/kept").as_bytes()).map_err(at(b"kept"))?;
        let moves = |step: &Step| !matches!(step.action, Action::SetMode { .. });
        // What waits or conflicts is not in `done`, whose numbers are those of the steps that were carried out.
        let all = plan.steps.into_iter().chain(plan.withheld).chain(plan.conflicts).filter(moves);
        let steps = all.map(|step| (step.path.as_bytes().to_vec(), (step.number, done.contains(&step.number))));
        Ok(Differences { steps: steps.collect(), kept, root, is_open: false })
    }

    /// The difference that a view makes, or would make, to one path.
    ///
    /// # Errors
    /// The view does not touch the path, or the host failed.
    pub fn diff(&self, id: &str, path: &EffectPath, workspace: &Workspace) -> Result<ChangeDiff, EffectError> {
        self.differences(id, workspace)?.of(path)
    }
}

impl Differences {
    /// The difference that the view makes, or would make, to one path.
    ///
    /// # Errors
    /// The view does not touch the path, or the host failed.
    pub fn of(&self, path: &EffectPath) -> Result<ChangeDiff, EffectError> {
        let bytes = path.as_bytes();
        if self.is_open {
            return Ok(difference(path, &version(&self.root, bytes)?, &version(&self.kept, bytes)?));
        }
        // A guarded entry of a new directory is a step of its own: the longest path is the one that has it.
        let mut ends = (0..bytes.len()).filter(|at| bytes[*at] == b'/').chain([bytes.len()]).rev();
        let found = ends.find_map(|end| Some((end, *self.steps.get(&bytes[..end])?)));
        let Some((end, (number, done))) = found else {
            return Err(EffectError::NotKept { id: path.to_text() });
        };
        let mut stored = number.to_string().into_bytes();
        stored.extend_from_slice(&bytes[end..]);
        let (there, here) = (version(&self.kept, &stored)?, version(&self.root, bytes)?);
        Ok(if done { difference(path, &there, &here) } else { difference(path, &here, &there) })
    }
}

fn version(directory: &OwnedFd, path: &[u8]) -> Result<Version, EffectError> {
    let at_slash = path.iter().rposition(|b| *b == b'/');
    let (parent, name) = at_slash.map_or((&b""[..], path), |slash| (&path[..slash], &path[slash + 1..]));
    let Ok(parent) = open_dir(directory.as_fd(), parent) else { return Ok(Version::Absent) };
    if look(parent.as_fd(), name)?.as_ref().is_some_and(is_whiteout) {
        return Ok(Version::Absent);
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match openat(&parent, name, flags, Mode::empty()) {
        Ok(file) => std::fs::File::from(file),
        Err(Errno::NOENT) => return Ok(Version::Absent),
        Err(Errno::LOOP | Errno::ACCESS | Errno::NXIO) => return Ok(Version::Opaque(0)),
        Err(errno) => return Err(EffectError::at(path, errno)),
    };
    let io = |source| EffectError::Io { what: String::from_utf8_lossy(path).into_owned(), source };
    let metadata = file.metadata().map_err(io)?;
    if !metadata.is_file() || metadata.len() > MAX_DIFF_BYTES {
        return Ok(Version::Opaque(metadata.len()));
    }
    let mut bytes = Vec::new();
    file.take(MAX_DIFF_BYTES).read_to_end(&mut bytes).map_err(io)?;
    let size = bytes.len() as u64;
    match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(Version::Text(text)),
        _ => Ok(Version::Opaque(size)),
    }
}

fn difference(path: &EffectPath, old: &Version, new: &Version) -> ChangeDiff {
    let text = |version: &Version| match version {
        Version::Absent => Some(String::new()),
        Version::Text(text) => Some(text.clone()),
        Version::Opaque(_) => None,
    };
    let (Some(before), Some(after)) = (text(old), text(new)) else {
        return ChangeDiff::Opaque { old: old.size(), new: new.size() };
    };
    let name = |version: &Version, side: &str| match version {
        Version::Absent => "/dev/null".to_owned(),
        _ => format!("{side}/{path}"),
    };
    let mut options = diffy::DiffOptions::new();
    options.set_original_filename(name(old, "a")).set_modified_filename(name(new, "b"));
    ChangeDiff::Text(options.create_patch(&before, &after).to_string())
}

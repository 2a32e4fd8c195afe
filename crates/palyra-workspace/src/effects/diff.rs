//! Differences: what a change does to a text, for people.

use super::error::{EffectError, at};
use super::plan::{Plan, Step, StepEnd};
use super::store::ViewStore;
use super::sys::open_dir;
use crate::Workspace;
use palyra_protocol::EffectPath;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
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

impl ViewStore {
    /// The difference that a view makes, or would make, to one path.
    ///
    /// # Errors
    /// The view does not touch the path, or the host failed.
    pub fn diff(&self, id: &str, path: &EffectPath, workspace: &Workspace) -> Result<ChangeDiff, EffectError> {
        let (plan, done) = self.steps_of(id)?;
        let touches = |step: &&Step| path.is_under(step.path.as_bytes());
        // A guarded entry of a new directory is a step of its own: the longest path is the one that has it.
        let all = plan.steps.iter().chain(&plan.withheld).chain(&plan.conflicts);
        let step = all.filter(touches).max_by_key(|step| step.path.as_bytes().len());
        let Some(step) = step else { return Err(EffectError::NotKept { id: format!("{id}: {path}") }) };
        let kept = open_dir(self.base(), format!("{id}/kept").as_bytes()).map_err(at(b"kept"))?;
        let root = open_dir(workspace.root_fd(), b"").map_err(at(b"."))?;
        let mut stored = step.number.to_string().into_bytes();
        stored.extend_from_slice(&path.as_bytes()[step.path.as_bytes().len()..]);
        let (there, here) = (version(&kept, &stored)?, version(&root, path.as_bytes())?);
        Ok(if done.contains(&(step.number, StepEnd::Done)) {
            difference(path, &there, &here)
        } else {
            difference(path, &here, &there)
        })
    }

    fn steps_of(&self, id: &str) -> Result<(Plan, Vec<(u32, StepEnd)>), EffectError> {
        match self.plan_of(id) {
            Ok((plan, ended, _)) => Ok((plan, ended.ends)),
            Err(EffectError::NotKept { .. }) => Ok((self.staged_plan(id)?, Vec::new())),
            Err(other) => Err(other),
        }
    }
}

fn version(directory: &OwnedFd, path: &[u8]) -> Result<Version, EffectError> {
    let at_slash = path.iter().rposition(|b| *b == b'/');
    let (parent, name) = at_slash.map_or((&b""[..], path), |slash| (&path[..slash], &path[slash + 1..]));
    let Ok(parent) = open_dir(directory.as_fd(), parent) else { return Ok(Version::Absent) };
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

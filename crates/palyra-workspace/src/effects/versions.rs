//! Three versions of a file: as it was, as the call left it, and as it is now.
//!
//! What a call leaves becomes the workspace's own file, which others then edit in place. So that an undo that is
//! refused can offer a merge, small texts are copied before they leave the store; of large or many ones two versions
//! have to do.

use super::error::{EffectError, at};
use super::plan::{Action, Plan, Step};
use super::store::ViewStore;
use super::sys::{kind_of, look, open_dir};
use crate::Workspace;
use palyra_protocol::EffectPath;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Read as _, Write as _};

/// The largest file that is copied.
const MAX_BYTES: u64 = 64 * 1024;
/// The most files of one call.
const MAX_FILES: usize = 100;

impl ViewStore {
    /// Copies what a plan is about to put into the workspace, as far as it is small.
    pub(super) fn keep_versions(&self, view: &OwnedFd, kept: &OwnedFd, plan: &Plan) -> Result<(), EffectError> {
        let replaces = |step: &&Step| step.action == Action::Exchange && plan.undoes.is_none();
        let mut made: Option<OwnedFd> = None;
        for step in plan.steps.iter().filter(replaces).take(MAX_FILES) {
            let name = step.number.to_string();
            let from = match &step.from {
                None => text_at(kept.as_fd(), name.as_bytes())?,
                Some((other, number)) => {
                    let theirs = open_dir(self.base(), format!("{other}/kept").as_bytes()).map_err(at(b"kept"))?;
                    text_at(theirs.as_fd(), number.to_string().as_bytes())?
                }
            };
            let Some(text) = from else { continue };
            let after = match made.take() {
                Some(after) => after,
                None => make_after(view)?,
            };
            let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = openat(&after, name.as_str(), flags, Mode::RUSR | Mode::WUSR).map_err(at(b"after"))?;
            let io = |source| EffectError::Io { what: "after".to_owned(), source };
            File::from(file).write_all(text.as_bytes()).map_err(io)?;
            made = Some(after);
        }
        Ok(())
    }

    /// What a file would be with both the undo and what was changed since, conflicts marked; nothing where a version is
    /// missing or is no text.
    ///
    /// # Errors
    /// Nothing is kept for the view, or the host failed.
    pub fn three_way(&self, id: &str, path: &EffectPath, workspace: &Workspace) -> Result<Option<String>, EffectError> {
        let plan = self.staged_plan(id)?;
        let Some(step) = plan.steps.iter().find(|step| step.path == *path) else { return Ok(None) };
        let number = step.number.to_string();
        let version = |directory: &str| match open_dir(self.base(), format!("{id}/{directory}").as_bytes()) {
            Ok(directory) => text_at(directory.as_fd(), number.as_bytes()),
            Err(_) => Ok(None),
        };
        let now = match open_dir(workspace.root_fd(), path.parent()) {
            Ok(directory) => text_at(directory.as_fd(), path.name())?,
            Err(_) => None,
        };
        let (Some(left), Some(old), Some(now)) = (version("after")?, version("kept")?, now) else { return Ok(None) };
        Ok(Some(diffy::merge(&left, &now, &old).unwrap_or_else(|conflicts| conflicts)))
    }
}

fn make_after(view: &OwnedFd) -> Result<OwnedFd, EffectError> {
    match mkdirat(view, "after", Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => open_dir(view.as_fd(), b"after").map_err(at(b"after")),
        Err(errno) => Err(EffectError::at(b"after", errno)),
    }
}

/// A small text; nothing for anything else.
fn text_at(directory: BorrowedFd<'_>, name: &[u8]) -> Result<Option<String>, EffectError> {
    let is_small = |stat: &rustix::fs::Stat| {
        kind_of(stat) == FileType::RegularFile && u64::try_from(stat.st_size).is_ok_and(|size| size <= MAX_BYTES)
    };
    if !look(directory, name)?.as_ref().is_some_and(is_small) {
        return Ok(None);
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = openat(directory, name, flags, Mode::empty()) else { return Ok(None) };
    let mut text = String::new();
    match File::from(file).take(MAX_BYTES + 1).read_to_string(&mut text) {
        Ok(_) => Ok(Some(text).filter(|text| text.len() as u64 <= MAX_BYTES && !text.contains('\0'))),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => Ok(None),
        Err(source) => Err(EffectError::Io { what: String::from_utf8_lossy(name).into_owned(), source }),
    }
}

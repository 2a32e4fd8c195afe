//! Leftovers: what a call that was cut off by the daemon's end left in the workspace.
//!
//! A change is prepared under temporary names beside its target (`transaction.rs`). They carry the call's id, so that
//! the next start removes exactly those: of calls that the journal has as begun and not ended, in the directories of
//! the paths that were recorded for them, regular files alone, by a way on which no link is followed.
//!
//! A change of one file is whole either way: its temporary is the new content that was not put in place, or the old one
//! that was replaced. Of several files some may be changed and others not; then what may be an original is kept,
//! because it may be the only copy. It must never remove a file whose name the call did not give.

use super::Workspace;
use super::beneath::{DirUse, file_type};
use super::error::{FileError, at};
use palyra_protocol::CallId;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir, FileType, statat, unlinkat};
use std::collections::BTreeSet;

/// How the names of all temporary files begin.
pub(super) const TEMPORARY_PREFIX: &str = ".palyra-tmp-";
/// How the names end of those that may hold what was there before.
pub(super) const ORIGINAL_SUFFIX: &str = "-old";
/// How a name ends while two files are exchanged in three steps: the target may be missing then.
const MIDWAY_SUFFIX: &str = "-x";

/// How the names of a call's temporary files begin.
pub(super) fn temporary_prefix(call: &CallId) -> String {
    format!("{TEMPORARY_PREFIX}{call}-")
}

/// What became of the files that a call left.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// How many were removed.
    pub removed: usize,
    /// Those that may hold the only copy of what was there before, relative to the workspace.
    pub kept: Vec<String>,
}

impl Workspace {
    /// Removes what a call left beside the paths that it was to write, as they were recorded.
    ///
    /// # Errors
    /// A directory cannot be read, or a file in it not removed.
    pub fn remove_leftovers(&self, call: &CallId, written: &[String]) -> Result<Leftovers, FileError> {
        let mut found = Leftovers::default();
        let one_file = written.iter().collect::<BTreeSet<_>>().len() == 1;
        let parents: BTreeSet<&str> = written.iter().filter_map(|path| parent(path)).collect();
        for directory in parents {
            match self.open_dir(directory, DirUse::Content) {
                Ok(dir) => sweep(&dir, directory, &temporary_prefix(call), one_file, &mut found)?,
                // Gone, or another thing by now: what was left there is not there any more.
                Err(FileError::NotFound { .. } | FileError::NotADirectory { .. } | FileError::SymlinkRace { .. }) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(found)
    }
}

/// The directory of a recorded path; nothing if it is no path in normal form.
fn parent(path: &str) -> Option<&str> {
    let plain = path.split('/').all(|part| !matches!(part, "" | "." | ".."));
    plain.then(|| path.rsplit_once('/').map_or(".", |(parent, _)| parent))
}

fn sweep(dir: &OwnedFd, directory: &str, prefix: &str, one_file: bool, found: &mut Leftovers) -> Result<(), FileError> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir).map_err(at(directory))? {
        let entry = entry.map_err(at(directory))?;
        let name = entry.file_name().to_str().ok().filter(|name| name.starts_with(prefix));
        names.extend(name.map(str::to_owned));
    }
    let midway = names.iter().any(|name| name.ends_with(MIDWAY_SUFFIX));
    for name in names {
        let regular = statat(dir, name.as_str(), AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| file_type(&stat) == FileType::RegularFile);
        if !regular {
            continue;
        }
        if midway || (name.ends_with(ORIGINAL_SUFFIX) && !one_file) {
            found.kept.push(if directory == "." { name } else { format!("{directory}/{name}") });
            continue;
        }
        unlinkat(dir, name.as_str(), AtFlags::empty()).map_err(at(directory))?;
        found.removed += 1;
    }
    Ok(())
}

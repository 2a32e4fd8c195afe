//! The walk that finds candidates, and what it remembers.
//!
//! A directory is known by its identity and times. As long as they stand, its names are those that were read; so a
//! second walk costs one look at each directory. A directory that was read within a moment of its change is read
//! again, because its times could not tell a second change from the first.

use super::SecretRules;
use crate::Workspace;
use crate::beneath::{DirUse, file_type};
use crate::error::{FileError, at};
use rustix::fs::{AtFlags, Dir, FileType, Stat, fstat, statat};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The most directories of a workspace.
const MAX_DIRECTORIES: usize = 200_000;
/// Within this time of a directory's change, a further one may leave the same times.
const UNSETTLED: Duration = Duration::from_secs(2);

/// What tells one state of a directory from the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    file: (u64, u64),
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(stat: &Stat) -> Self {
        #[expect(clippy::unnecessary_cast, reason = "the widths differ from platform to platform")]
        Self {
            file: (stat.st_dev as u64, stat.st_ino as u64),
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        }
    }

    /// Whether nothing can have changed without changing it.
    fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let changed = Duration::from_secs(u64::try_from(self.changed.0).unwrap_or(u64::MAX));
        now.checked_sub(changed).is_some_and(|age| age > UNSETTLED)
    }
}

/// A directory as it was read.
#[derive(Debug)]
struct Known {
    stamp: Stamp,
    /// Nothing, where it was read too soon after its change.
    settled: bool,
    candidates: Vec<String>,
    /// Where candidates lead that are links, if it is into the workspace.
    linked: Vec<String>,
    below: Vec<String>,
}

/// What is known of a workspace's directories.
#[derive(Debug, Default)]
pub(super) struct Scan {
    known: HashMap<String, Known>,
    /// Where links of such names lead.
    linked: HashSet<String>,
}

impl Scan {
    /// Brings everything up to date.
    pub(super) fn refresh(&mut self, workspace: &Workspace, rules: &SecretRules) -> Result<(), FileError> {
        let mut before = std::mem::take(&mut self.known);
        let mut waiting = vec![".".to_owned()];
        while let Some(path) = waiting.pop() {
            if self.known.len() >= MAX_DIRECTORIES {
                return Err(FileError::TooLarge {
                    path: workspace.root().to_string_lossy().into_owned(),
                    limit: MAX_DIRECTORIES as u64,
                    unit: "directories, to be looked through for secret files",
                });
            }
            let stat = match statat(workspace.root_fd(), path.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if file_type(&stat) == FileType::Directory => stat,
                _ => continue,
            };
            let stamp = Stamp::of(&stat);
            let known = match before.remove(&path) {
                Some(known) if known.settled && known.stamp == stamp => known,
                _ => match read(workspace, rules, &path) {
                    Ok(known) => known,
                    // It went meanwhile, or nobody but root reads it: no run does either.
                    Err(_) => continue,
                },
            };
            waiting.extend(known.below.iter().map(|name| joined(&path, name)));
            self.known.insert(path, known);
        }
        self.linked = self.known.values().flat_map(|known| known.linked.iter().cloned()).collect();
        Ok(())
    }

    /// The paths whose names are on the list.
    pub(super) fn candidates(&self) -> impl Iterator<Item = String> {
        self.known.iter().flat_map(|(path, known)| known.candidates.iter().map(|name| joined(path, name)))
    }

    /// Where links of such names lead.
    pub(super) fn linked(&self) -> impl Iterator<Item = &str> {
        self.linked.iter().map(String::as_str)
    }

    pub(super) fn is_linked_to(&self, path: &str) -> bool {
        self.linked.contains(path)
    }
}

fn joined(directory: &str, name: &str) -> String {
    if directory == "." { name.to_owned() } else { format!("{directory}/{name}") }
}

fn read(workspace: &Workspace, rules: &SecretRules, path: &str) -> Result<Known, FileError> {
    let directory = workspace.open_dir(path, DirUse::Content)?;
    let stamp = Stamp::of(&fstat(&directory).map_err(at(path))?);
    let mut known =
        Known { stamp, settled: stamp.is_settled(), candidates: Vec::new(), linked: Vec::new(), below: Vec::new() };
    for entry in Dir::read_from(&directory).map_err(at(path))? {
        let entry = entry.map_err(at(path))?;
        // A name that is no text is on no list.
        let Ok(name) = entry.file_name().to_str() else { continue };
        if matches!(name, "." | "..") {
            continue;
        }
        let full = joined(path, name);
        let kind = match entry.file_type() {
            FileType::Unknown => {
                statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW).map_or(FileType::Unknown, |stat| file_type(&stat))
            }
            kind => kind,
        };
        match kind {
            FileType::Directory if !rules.passes_by(&full) => known.below.push(name.to_owned()),
            FileType::RegularFile if rules.may_name(&full) => known.candidates.push(name.to_owned()),
            FileType::Symlink if rules.may_name(&full) => {
                let leads = workspace.resolve(&full).ok().filter(|target| target.existed());
                // What a link leads to may change without the directory's changing.
                known.settled = false;
                known.linked.extend(leads.map(|target| target.as_str().to_owned()));
            }
            _ => {}
        }
    }
    Ok(known)
}

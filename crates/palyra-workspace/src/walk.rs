//! The walk over a tree, which listings and searches share.
//!
//! Depth first, every directory in the order of its names' bytes, so that the same tree always gives the same answer.
//! It goes over descriptors and never follows a link: a link is an entry, not a way. Entries that vanish on the way
//! are left out; directories that may not be read are counted, because silence would look like emptiness.

use super::beneath::{DirUse, file_type, open_regular, open_subdir};
use super::error::{FileError, at};
use super::ignore_files::IgnoreRules;
use super::limits::{MAX_DIRECTORY_NAMES, MAX_WALK_DEPTH};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, OFlags, Stat, statat};
use std::ffi::{CStr, CString};

/// Something that the walk came by.
#[derive(Debug)]
pub(super) struct Found {
    /// Relative to the workspace; bytes that are not UTF-8 replaced.
    pub(super) path: String,
    /// Some name on the path is not UTF-8, so that `path` does not open it.
    pub(super) lossy: bool,
    pub(super) stat: Stat,
    name: CString,
}

impl Found {
    pub(super) fn kind(&self) -> FileType {
        file_type(&self.stat)
    }

    /// The last part of the path.
    pub(super) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    pub(super) fn size(&self) -> u64 {
        u64::try_from(self.stat.st_size).unwrap_or(0)
    }
}

/// A directory on the way from the start to where the walk is.
#[derive(Debug)]
struct Level {
    dir: OwnedFd,
    prefix: String,
    lossy: bool,
    names: std::vec::IntoIter<CString>,
}

/// A walk under way.
#[derive(Debug)]
pub(super) struct TreeWalk {
    levels: Vec<Level>,
    max_depth: usize,
    /// A directory that was just found and is entered next, unless the caller prunes it.
    ahead: Option<(CString, String, bool)>,
    /// Directories that could not be read.
    unreadable: usize,
    /// Some directory had more names than are read.
    pub(super) cut: bool,
    /// Leaves out what ignore files name, where there are rules.
    ignoring: Option<IgnoreRules>,
    /// Entries that ignore files name.
    pub(super) ignored: usize,
    /// Entries that the walk came by, the ignored ones included.
    pub(super) seen: usize,
}

impl TreeWalk {
    /// Starts in a directory whose path is `path`; a depth of 1 is that directory alone.
    pub(super) fn new(dir: OwnedFd, path: &str, max_depth: usize) -> Result<Self, FileError> {
        let mut walk = Self {
            levels: Vec::new(),
            max_depth: max_depth.clamp(1, MAX_WALK_DEPTH),
            ahead: None,
            unreadable: 0,
            cut: false,
            ignoring: None,
            ignored: 0,
            seen: 0,
        };
        let names = walk.names_of(&dir).map_err(at(path))?;
        let prefix = if path == "." { String::new() } else { format!("{path}/") };
        walk.levels.push(Level { dir, prefix, lossy: false, names });
        Ok(walk)
    }

    /// Leaves out what ignore files name: those above the walk's start, and those that it comes by.
    pub(super) fn ignoring(mut self, mut rules: IgnoreRules) -> Self {
        for level in &self.levels {
            rules.enter(level.dir.as_fd(), &level.prefix);
        }
        self.ignoring = Some(rules);
        self
    }

    /// How many files and directories could not be read.
    pub(super) fn unreadable(&self) -> usize {
        self.unreadable + self.ignoring.as_ref().map_or(0, |rules| rules.unreadable)
    }

    /// The next entry.
    pub(super) fn next(&mut self) -> Option<Found> {
        self.enter_ahead();
        loop {
            let level = self.levels.last_mut()?;
            let Some(name) = level.names.next() else {
                self.levels.pop();
                if let Some(rules) = &mut self.ignoring {
                    rules.leave();
                }
                continue;
            };
            self.seen += 1;
            let Ok(stat) = statat(&level.dir, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let text = name.to_string_lossy();
            let lossy = level.lossy || matches!(text, std::borrow::Cow::Owned(_));
            let path = format!("{}{text}", level.prefix);
            let found = Found { path, lossy, stat, name };
            let is_directory = found.kind() == FileType::Directory;
            if self.ignoring.as_ref().is_some_and(|rules| rules.ignores(&found.path, is_directory)) {
                self.ignored += 1;
                continue;
            }
            if is_directory && self.levels.len() < self.max_depth {
                self.ahead = Some((found.name.clone(), found.path.clone(), lossy));
            }
            return Some(found);
        }
    }

    /// Does not enter the directory that was just found.
    pub(super) fn prune(&mut self) {
        self.ahead = None;
    }

    /// Opens the file that was just found.
    pub(super) fn open(&self, found: &Found) -> Result<OwnedFd, FileError> {
        match self.levels.last() {
            Some(level) => {
                let name = found.name.as_c_str();
                Ok(open_regular(level.dir.as_fd(), name, &found.path, OFlags::RDONLY)?.0)
            }
            None => Err(FileError::NotFound { path: found.path.clone() }),
        }
    }

    fn enter_ahead(&mut self) {
        let (Some((name, path, lossy)), Some(level)) = (self.ahead.take(), self.levels.last()) else { return };
        let opened = open_subdir(level.dir.as_fd(), name.as_c_str(), &path, DirUse::Content);
        let entered = opened.ok().and_then(|dir| self.names_of(&dir).ok().map(|names| (dir, names)));
        match entered {
            Some((dir, names)) => {
                let prefix = format!("{path}/");
                if let Some(rules) = &mut self.ignoring {
                    rules.enter(dir.as_fd(), &prefix);
                }
                self.levels.push(Level { dir, prefix, lossy, names });
            }
            None => self.unreadable += 1,
        }
    }

    fn names_of(&mut self, dir: &OwnedFd) -> rustix::io::Result<std::vec::IntoIter<CString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(dir)? {
            let entry = entry?;
            if !is_dots(entry.file_name()) {
                if names.len() == MAX_DIRECTORY_NAMES {
                    self.cut = true;
                    break;
                }
                names.push(entry.file_name().to_owned());
            }
        }
        names.sort_unstable();
        Ok(names.into_iter())
    }
}

fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

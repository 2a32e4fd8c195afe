//! Resolution: from a caller's text to a path beneath the root, with every link followed now.
//!
//! The walk goes component by component over directory descriptors, as the kernel would, but with the root as a floor:
//! `..` and links may go anywhere beneath it and nowhere else. Cleaning the text first (`a/../b` → `b`) was rejected,
//! since it differs from the kernel as soon as `a` is a link; so was `realpath`, since it works on absolute paths and
//! forgets what it saw. A race during the walk can only make it name another path *beneath* the root, or fail: the
//! answer is opened again without following links (`beneath.rs`), so what was named is what is opened.
//!
//! Components that do not exist yet are kept as plain names, which a write may create.

use super::Workspace;
use super::beneath::{DirUse, file_type, open_subdir};
use super::error::{FileError, shown};
use super::limits::{MAX_PATH_BYTES, MAX_PATH_DEPTH, MAX_SYMLINKS};
use super::path::ResolvedPath;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, readlinkat, statat};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::path::{Component, Path};

/// What resolution learnt besides the path.
#[derive(Debug)]
pub(super) struct Resolution {
    pub(super) path: ResolvedPath,
    /// The caller's last component was itself a link: a deletion would remove what it points at, not the link.
    pub(super) last_was_link: bool,
}

impl Workspace {
    /// The path beneath the root that `text` means at this moment.
    ///
    /// Links that stay inside are followed, links that leave are refused. The last components may not exist yet.
    pub fn resolve(&self, text: &str) -> Result<ResolvedPath, FileError> {
        Ok(self.resolve_fully(text)?.path)
    }

    /// Where a text leads that does not resolve: the place where the walk ended, and the one that the text names beyond
    /// it.
    ///
    /// For deciding whether a caller may be told why: the error says something of what is there. Nothing for a text
    /// that never gets beneath the root.
    #[must_use]
    pub fn whereabouts(&self, text: &str) -> Vec<String> {
        let Ok(mut walk) = Walk::new(self, text) else { return Vec::new() };
        while let Some(step) = walk.pending.pop_front() {
            let (went, name) = match step {
                Step::Up => (walk.up(), None),
                Step::Down(name) => (walk.down(name.clone()), Some(name)),
            };
            if went.is_err() {
                return walk.places(name);
            }
        }
        walk.places(None)
    }

    pub(super) fn resolve_fully(&self, text: &str) -> Result<Resolution, FileError> {
        self.in_place()?;
        let mut walk = Walk::new(self, text)?;
        while let Some(step) = walk.pending.pop_front() {
            match step {
                Step::Up => walk.up()?,
                Step::Down(name) => walk.down(name)?,
            }
        }
        walk.finish()
    }
}

/// One component that is still to be walked.
#[derive(Debug)]
enum Step {
    Up,
    Down(String),
}

/// A resolution under way.
struct Walk<'w> {
    workspace: &'w Workspace,
    text: &'w str,
    /// The directories between the root and here, with the names by which they were entered.
    entered: Vec<(String, OwnedFd)>,
    /// Names below `entered` that are no directories: at most one file, or names that do not exist.
    rest: Vec<String>,
    pending: VecDeque<Step>,
    links: usize,
    /// What `rest` begins with exists and is no directory.
    at_file: bool,
    /// The text ended in a slash: it means a directory.
    wants_directory: bool,
    /// A link was followed with nothing left to walk behind it.
    last_was_link: bool,
}

impl<'w> Walk<'w> {
    fn new(workspace: &'w Workspace, text: &'w str) -> Result<Self, FileError> {
        let relative = beneath_root(workspace, text)?;
        let mut walk = Self {
            workspace,
            text,
            entered: Vec::new(),
            rest: Vec::new(),
            pending: VecDeque::new(),
            links: 0,
            at_file: false,
            wants_directory: text.ends_with('/') || text.ends_with("/."),
            last_was_link: false,
        };
        walk.push_front(relative)?;
        Ok(walk)
    }

    /// Puts a path's components before what is still to be walked.
    fn push_front(&mut self, path: &Path) -> Result<(), FileError> {
        let mut steps = VecDeque::new();
        for component in path.components() {
            match component {
                Component::CurDir => {}
                Component::ParentDir => steps.push_back(Step::Up),
                Component::Normal(name) => match name.to_str() {
                    Some(name) => steps.push_back(Step::Down(name.to_owned())),
                    None => return Err(FileError::NotUtf8 { path: shown(self.text) }),
                },
                Component::RootDir | Component::Prefix(_) => return Err(self.outside()),
            }
        }
        steps.append(&mut self.pending);
        if steps.len() > MAX_PATH_BYTES {
            return Err(FileError::PathTooLong { path: shown(self.text) });
        }
        self.pending = steps;
        Ok(())
    }

    fn up(&mut self) -> Result<(), FileError> {
        if self.at_file {
            return Err(FileError::NotADirectory { path: shown(self.text) });
        }
        if !self.rest.is_empty() {
            // The kernel would say the same; guessing what `missing/..` means is how checks are walked around.
            return Err(FileError::NotFound { path: shown(self.text) });
        }
        self.entered.pop().map(drop).ok_or_else(|| self.outside())
    }

    fn down(&mut self, name: String) -> Result<(), FileError> {
        if self.at_file {
            return Err(FileError::NotADirectory { path: shown(self.text) });
        }
        if self.entered.len() + self.rest.len() >= MAX_PATH_DEPTH {
            return Err(FileError::PathTooLong { path: shown(self.text) });
        }
        if !self.rest.is_empty() {
            self.rest.push(name);
            return Ok(());
        }
        match statat(self.here(), name.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => self.rest.push(name),
            Err(errno) => return Err(FileError::from_errno(self.text, errno)),
            Ok(stat) => match file_type(&stat) {
                FileType::Symlink => return self.follow(&name),
                FileType::Directory => {
                    let dir = open_subdir(self.here(), name.as_str(), self.text, DirUse::Lookup)?;
                    self.entered.push((name, dir));
                }
                _ => {
                    self.at_file = true;
                    self.rest.push(name);
                }
            },
        }
        Ok(())
    }

    fn follow(&mut self, name: &str) -> Result<(), FileError> {
        self.links += 1;
        if self.links > MAX_SYMLINKS {
            return Err(FileError::SymlinkLoop { path: shown(self.text) });
        }
        let target = readlinkat(self.here(), name, Vec::new()).map_err(|errno| match errno {
            // It was a link a moment ago.
            Errno::INVAL => FileError::SymlinkRace { path: shown(self.text) },
            errno => FileError::from_errno(self.text, errno),
        })?;
        let target = target.to_str().map_err(|_| FileError::NotUtf8 { path: shown(self.text) })?;
        self.last_was_link |= self.pending.is_empty();
        self.wants_directory |= self.pending.is_empty() && target.ends_with('/');
        let target = Path::new(target);
        if !target.is_absolute() {
            return self.push_front(target);
        }
        let relative = self.workspace.strip_root(target).ok_or_else(|| self.outside())?.to_owned();
        self.entered.clear();
        self.push_front(&relative)
    }

    fn finish(self) -> Result<Resolution, FileError> {
        if self.wants_directory && self.at_file {
            return Err(FileError::NotADirectory { path: shown(self.text) });
        }
        if self.wants_directory && !self.rest.is_empty() {
            return Err(FileError::NotFound { path: shown(self.text) });
        }
        let existed = self.rest.is_empty() || self.at_file;
        let mut components: Vec<String> = self.entered.into_iter().map(|(name, _)| name).collect();
        components.extend(self.rest);
        let path = ResolvedPath::from_components(&components, existed);
        Ok(Resolution { path, last_was_link: self.last_was_link })
    }

    /// The place where the walk ended, and the one that the rest of the text names from there on.
    fn places(mut self, failed: Option<String>) -> Vec<String> {
        let mut components: Vec<String> = self.entered.into_iter().map(|(name, _)| name).collect();
        components.append(&mut self.rest);
        components.extend(failed);
        let reached = ResolvedPath::from_components(&components, false);
        for step in self.pending {
            match step {
                Step::Up => drop(components.pop()),
                Step::Down(name) => components.push(name),
            }
        }
        let named = ResolvedPath::from_components(&components, false);
        let mut places = vec![reached.as_str().to_owned()];
        places.extend(Some(named.as_str().to_owned()).filter(|named| *named != places[0]));
        places
    }

    fn here(&self) -> BorrowedFd<'_> {
        self.entered.last().map_or_else(|| self.workspace.root_fd(), |(_, dir)| dir.as_fd())
    }

    fn outside(&self) -> FileError {
        FileError::Outside { path: shown(self.text) }
    }
}

/// The checks on the text itself; gives what remains beneath the root.
fn beneath_root<'t>(workspace: &Workspace, text: &'t str) -> Result<&'t Path, FileError> {
    let invalid = |reason| Err(FileError::InvalidPath { path: shown(text), reason });
    if text.is_empty() {
        return invalid("it is empty; use `.` for the workspace root");
    }
    if text.len() > MAX_PATH_BYTES {
        return Err(FileError::PathTooLong { path: shown(text) });
    }
    if text.contains('\0') {
        return invalid("it contains a NUL byte");
    }
    if text.starts_with('~') {
        return invalid(
            "`~` is not expanded; use a path beneath the workspace root, or `./~…` for a file of that name",
        );
    }
    let path = Path::new(text);
    if !path.is_absolute() {
        return Ok(path);
    }
    workspace.strip_root(path).ok_or_else(|| FileError::Outside { path: shown(text) })
}

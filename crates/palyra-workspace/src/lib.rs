//! The workspace: the room of the built-in file tools.
//!
//! An agent names a path; policy decides about it, a human may look at it, and only then is it opened. In between
//! anything may happen to the tree, because the agent's own processes work in it. So the room has two halves:
//!
//! 1. [`Workspace::resolve`] turns untrusted text into a [`ResolvedPath`]: beneath the root, free of links. This is
//!    what policy and people see.
//! 2. Every operation takes a [`ResolvedPath`], opens it relative to the root's descriptor and refuses every link on
//!    the way. If a link was put there in the meantime, the answer is `symlink_race`, never another file.
//!
//! INVARIANT (shown-is-opened): no operation opens a file whose path differs from the text of its `ResolvedPath`.
//! The tests in `tests/races.rs` hold it.
//!
//! Writes never change a file in place: they put a finished file beside it and exchange the two (`transaction.rs`). So
//! a hard link to a file outside keeps its content, a reader sees the old or the new file and nothing between, and a
//! full disk leaves what was there.
//!
//! The code is synchronous (callers use a blocking thread). It must never use an absolute path after
//! [`Workspace::open`], follow a link, open what is not a regular file, or write to git's or Palyra's own files.

mod beneath;
mod difference;
pub mod effects;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod ignore_files;
mod leftovers;
pub mod limits;
mod list;
mod patch;
mod path;
mod pattern;
mod read;
mod rename;
mod resolve;
mod search;
mod transaction;
mod walk;
mod write;

#[cfg(test)]
mod tests;

pub use difference::WriteDifference;
pub use error::FileError;
pub use leftovers::Leftovers;
pub use list::{Entry, EntryKind, ListOptions, Listing};
pub use patch::{ChangeKind, FileChange, PatchOutcome, PatchPlan, PatchedPaths};
pub use path::ResolvedPath;
pub use pattern::PatternSyntax;
pub use read::{FileContent, ReadRange};
pub use search::{Match, SearchQuery, SearchResult};
pub use write::{WriteOptions, Written};

use error::{at, io_at, shown};
use palyra_protocol::CallId;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, fstat, openat, stat};
use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Which directory is at a path.
fn identity(path: &Path) -> std::io::Result<(u64, u64)> {
    std::fs::metadata(path).map(|found| (found.dev(), found.ino()))
}

/// On whose behalf files are changed, and how to hear that it is no longer wanted.
#[derive(Clone, Copy)]
pub struct Errand<'a> {
    /// The call: what it stages carries its id, so that what a crash leaves can be told from everything else.
    pub call: &'a CallId,
    /// Asked last before anything changes; after that it is too late.
    pub stop: &'a dyn Fn() -> bool,
}

impl fmt::Debug for Errand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Errand").field("call", self.call).finish_non_exhaustive()
    }
}

/// The directory beneath which all file tools work.
#[derive(Debug)]
pub struct Workspace {
    root: OwnedFd,
    /// Which directory it is, whatever it is called.
    identity: (u64, u64),
    /// Where the root really is.
    canonical: PathBuf,
    /// What the operator called it, which may go through links: absolute paths that begin so are understood too.
    given: PathBuf,
}

impl Workspace {
    /// Opens a workspace. Links in `root` are followed once, here; what they point at later does not matter.
    pub fn open(root: &Path) -> Result<Self, FileError> {
        let text = root.to_string_lossy();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = openat(CWD, root, flags, Mode::empty()).map_err(at(&text))?;
        let canonical = std::fs::canonicalize(root).map_err(io_at(&text))?;
        let given = std::path::absolute(root).map_err(io_at(&text))?;
        let (opened, named) = (fstat(&fd).map_err(at(&text))?, stat(&canonical).map_err(at(&text))?);
        let identity = identity(&canonical).map_err(io_at(&text))?;
        if (opened.st_dev, opened.st_ino) != (named.st_dev, named.st_ino) || identity.1 != opened.st_ino {
            return Err(FileError::SymlinkRace { path: shown(&text) });
        }
        Ok(Self { root: fd, identity, canonical, given })
    }

    /// Whether the directory is still where it was opened. Every operation asks first, and so does whoever starts a
    /// process in it: otherwise file tools would go on in a directory that was moved away, and processes in the one in
    /// its place.
    ///
    /// # Errors
    /// It was moved or removed, or another one is in its place.
    pub fn in_place(&self) -> Result<(), FileError> {
        match identity(&self.canonical) {
            Ok(found) if found == self.identity => Ok(()),
            _ => Err(FileError::WorkspaceReplaced { path: shown(&self.canonical.to_string_lossy()) }),
        }
    }

    /// Where the workspace is: absolute, without links, as of [`Workspace::open`]. To show and to mount, not to open.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.canonical
    }

    fn root_fd(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// What remains of an absolute path beneath the root.
    fn strip_root<'p>(&self, path: &'p Path) -> Option<&'p Path> {
        path.strip_prefix(&self.canonical).or_else(|_| path.strip_prefix(&self.given)).ok()
    }

    /// Whether a path may be written at all where nothing can wait for consent.
    fn refuse_protected(&self, path: &ResolvedPath) -> Result<(), FileError> {
        self.refuse_in_git(path)?;
        path.refuse_protected()
    }

    /// A root inside git's own directory makes everything git's own.
    fn refuse_in_git(&self, path: &ResolvedPath) -> Result<(), FileError> {
        let in_git = self.canonical.components().any(|part| part.as_os_str().to_str().is_some_and(path::is_git));
        if in_git {
            return Err(FileError::Protected {
                path: shown(path.as_str()),
                what: "git's own files",
                instead: "open the workspace at the working tree instead",
            });
        }
        Ok(())
    }
}

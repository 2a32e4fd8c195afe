//! Listing: what is in a directory, and below it as far as asked.
//!
//! Names are data of whoever made them: control characters stay (the CLI escapes them), bytes that are not UTF-8 are
//! replaced and flagged. A listing that was cut says so; it must never look complete when it is not. A directory's own
//! entries are all listed; a deeper listing leaves out what ignore files name (`ignore_files.rs`) and does not enter
//! `.git`.

use super::Workspace;
use super::beneath::DirUse;
use super::error::FileError;
use super::limits::{MAX_FOUND_BYTES, MAX_LIST_ENTRIES};
use super::path::{ResolvedPath, is_git};
use super::walk::{Found, TreeWalk};
use rustix::fs::FileType;
use serde::Serialize;

/// How much of a tree is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListOptions {
    /// How deep: 1 is the directory's own entries. Beyond [`super::limits::MAX_WALK_DEPTH`] it is cut.
    pub depth: usize,
    /// The most entries; beyond [`MAX_LIST_ENTRIES`] it is cut.
    pub max_entries: usize,
    /// List also what ignore files name, and what is in `.git`, where `depth` is more than 1.
    pub include_ignored: bool,
}

impl Default for ListOptions {
    fn default() -> Self {
        Self { depth: 1, max_entries: MAX_LIST_ENTRIES, include_ignored: false }
    }
}

/// What an entry is. A link is a link, whatever it points at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    File,
    Directory,
    Symlink,
    Other,
}

/// One entry of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Relative to the workspace's root.
    pub path: String,
    pub kind: EntryKind,
    /// In bytes; of a link, the length of its text.
    pub size: u64,
    /// When the content last changed, in milliseconds since 1970.
    pub modified_ms: i64,
    /// A name on the path is not UTF-8; `path` shows it with replacements and does not open it.
    pub lossy_name: bool,
}

/// The entries of a directory, sorted by the bytes of their names, each directory before what it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Listing {
    pub entries: Vec<Entry>,
    /// There is more than was returned.
    pub truncated: bool,
    /// How many directories could not be read.
    pub unreadable: usize,
    /// How many entries were left out because ignore files name them.
    pub skipped_ignored: usize,
}

impl Workspace {
    /// Lists a directory. `stop` is asked at every entry; when it says yes the answer is [`FileError::Cancelled`].
    pub fn list(
        &self,
        path: &ResolvedPath,
        options: ListOptions,
        stop: &dyn Fn() -> bool,
    ) -> Result<Listing, FileError> {
        self.in_place()?;
        let dir = self.open_dir(path.as_str(), DirUse::Content)?;
        let mut walk = TreeWalk::new(dir, path.as_str(), options.depth)?;
        let selective = options.depth > 1 && !options.include_ignored;
        if selective {
            walk = walk.ignoring(self.ignore_rules_above(path)?);
        }
        let most = options.max_entries.min(MAX_LIST_ENTRIES);
        let mut entries = Vec::new();
        let mut truncated = false;
        let mut room = MAX_FOUND_BYTES;
        while let Some(found) = walk.next() {
            if stop() {
                return Err(FileError::Cancelled);
            }
            match room.checked_sub(found.path.len()) {
                Some(left) if entries.len() < most => room = left,
                _ => {
                    truncated = true;
                    break;
                }
            }
            if selective && is_git(found.name()) {
                walk.prune();
            }
            entries.push(Entry::from(found));
        }
        Ok(Listing {
            entries,
            truncated: truncated || walk.cut,
            unreadable: walk.unreadable(),
            skipped_ignored: walk.ignored,
        })
    }
}

impl From<Found> for Entry {
    fn from(found: Found) -> Self {
        let kind = match found.kind() {
            FileType::RegularFile => EntryKind::File,
            FileType::Directory => EntryKind::Directory,
            FileType::Symlink => EntryKind::Symlink,
            _ => EntryKind::Other,
        };
        Self { kind, size: found.size(), modified_ms: modified_ms(&found), lossy_name: found.lossy, path: found.path }
    }
}

fn modified_ms(found: &Found) -> i64 {
    // The fields' types differ between systems; all of them fit.
    let nanos = i64::try_from(found.stat.st_mtime_nsec).unwrap_or(0);
    found.stat.st_mtime.saturating_mul(1000).saturating_add(nanos / 1_000_000)
}

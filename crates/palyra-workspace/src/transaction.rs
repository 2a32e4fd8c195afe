//! Changes that happen together or not at all.
//!
//! Everything that can fail for want of space or rights is done first: the new files are written and synced under
//! temporary names beside their targets. Then each step is one rename:
//!
//! | step | done | undone | finished |
//! |---|---|---|---|
//! | create | temporary → name, never replacing | name → temporary | – |
//! | replace | temporary ⇄ name | temporary ⇄ name | the old file, now temporary, is removed |
//! | delete | name → temporary | temporary → name | the temporary is removed |
//!
//! The exchange is what makes the check race-free: the file that was replaced is looked at *after* it left its place,
//! when nobody can swap it any more. If it is not what was expected (a link, a directory, another content), the step is
//! undone and nothing was lost. A plain rename over the target was rejected for that reason.
//!
//! Originals are removed only when every step is done and synced. So a crash in the middle loses no content, although
//! it may leave temporary files, and some steps of several done: across a power failure this is not atomic. Temporary
//! names carry the call's id, and those that may hold an original end in `-old`: by that the next start knows what it
//! may remove (`leftovers.rs`).
//! A transaction that is dropped undoes itself. It must never remove a file that holds an original it did not restore.

use super::beneath::{DirUse, open_subdir, require_regular};
use super::effects::{EffectError, FileChanges, GuardRules};
use super::error::{FileError, at, io_at, shown};
use super::leftovers::{ORIGINAL_SUFFIX, temporary_prefix};
use super::path::is_protected;
use super::rename::{exchange, rename_no_replace};
use palyra_protocol::CallId;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid, fchmod, fchown, fsync, openat, statat, unlinkat};
use rustix::io::Errno;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which file it was: the one thing that tells whether somebody touched it meanwhile.
///
/// The fields' types differ between systems; all of them fit into these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    device: i128,
    inode: i128,
    size: i128,
    modified: (i128, i128),
}

impl Identity {
    pub(super) fn of(stat: &Stat) -> Self {
        Self {
            device: i128::from(stat.st_dev),
            inode: i128::from(stat.st_ino),
            size: i128::from(stat.st_size),
            modified: (i128::from(stat.st_mtime), i128::from(stat.st_mtime_nsec)),
        }
    }
}

/// What must be in a file's place for it to be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expect {
    /// Any regular file.
    AnyFile,
    /// This file, with this content.
    Exactly(Identity),
}

/// The rights and owner of a new file.
#[derive(Debug, Clone, Copy)]
pub(super) enum Rights {
    /// What the process' umask leaves of `0666`.
    Plain,
    /// What the process' umask leaves of `0777`.
    Executable,
    /// Those of a file that is replaced. Set-id bits are not kept: new content has not earned them.
    LikeOf { mode: Mode, owner: (u32, u32) },
}

impl Rights {
    pub(super) fn like(stat: &Stat) -> Self {
        let mode = Mode::from_raw_mode(stat.st_mode) & (Mode::RWXU | Mode::RWXG | Mode::RWXO);
        Self::LikeOf { mode, owner: (stat.st_uid, stat.st_gid) }
    }

    /// The same with the execute bits set (for whoever may read) or cleared, as git means it.
    pub(super) fn with_executable(self, executable: bool) -> Self {
        const PAIRS: [(Mode, Mode); 3] = [(Mode::RUSR, Mode::XUSR), (Mode::RGRP, Mode::XGRP), (Mode::ROTH, Mode::XOTH)];
        match self {
            Self::LikeOf { mut mode, owner } => {
                for (read, execute) in PAIRS {
                    mode.set(execute, executable && mode.contains(read));
                }
                Self::LikeOf { mode, owner }
            }
            _ if executable => Self::Executable,
            _ => Self::Plain,
        }
    }
}

/// The place of a file: an open directory and a name in it.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) dir: Arc<OwnedFd>,
    pub(super) name: String,
    /// For messages.
    pub(super) path: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Create,
    Replace(Expect),
    Delete(Expect),
}

#[derive(Debug)]
struct Step {
    place: Place,
    action: Action,
    temporary: String,
    /// The device and inode of the file that we staged, to tell it from what others put in its place.
    staged: Option<(i128, i128)>,
    done: bool,
}

/// Changes that are staged and not yet made.
#[derive(Debug)]
pub(super) struct Transaction {
    /// How the names of its temporary files begin.
    prefix: String,
    steps: Vec<Step>,
    /// Directories that were made on the way: where, and their paths.
    made: Vec<(Arc<OwnedFd>, String)>,
    /// Directories that are open already, by their paths.
    open: Vec<(String, Arc<OwnedFd>)>,
    finished: bool,
}

impl Transaction {
    /// One that changes nothing yet, for this call.
    pub(super) fn new(call: &CallId) -> Self {
        let (steps, made, open) = (Vec::new(), Vec::new(), Vec::new());
        Self { prefix: temporary_prefix(call), steps, made, open, finished: false }
    }

    /// Stages a file that does not exist yet.
    pub(super) fn create(&mut self, place: Place, content: &[u8], rights: Rights) -> Result<(), FileError> {
        self.stage(place, Action::Create, Some((content, rights)))
    }

    /// Stages new content for a file.
    pub(super) fn replace(
        &mut self,
        place: Place,
        content: &[u8],
        rights: Rights,
        expect: Expect,
    ) -> Result<(), FileError> {
        self.stage(place, Action::Replace(expect), Some((content, rights)))
    }

    /// Stages a deletion.
    pub(super) fn delete(&mut self, place: Place, expect: Expect) -> Result<(), FileError> {
        self.stage(place, Action::Delete(expect), None)
    }

    /// Remembers a directory that was made for this transaction, to be removed with it.
    pub(super) fn made_directory(&mut self, dir: Arc<OwnedFd>, path: String) {
        self.made.push((dir, path));
    }

    /// The descriptor of a directory in which something is staged already.
    pub(super) fn directory(&self, path: &str) -> Option<Arc<OwnedFd>> {
        self.open.iter().find(|(open, _)| open == path).map(|(_, dir)| Arc::clone(dir))
    }

    pub(super) fn remember_directory(&mut self, path: &str, dir: &Arc<OwnedFd>) {
        self.open.push((path.to_owned(), Arc::clone(dir)));
    }

    /// Makes all changes, or none. `stop` is asked once, before the first: from there on they are made, because half of
    /// them would be worse and undoing takes as long.
    pub(super) fn commit(mut self, stop: &dyn Fn() -> bool) -> Result<(), FileError> {
        if stop() {
            // Dropped, it takes back what it has staged.
            return Err(FileError::Cancelled);
        }
        match self.perform() {
            Ok(()) => {
                self.finished = true;
                self.remove_originals();
                Ok(())
            }
            Err(cause) => {
                self.finished = true;
                Err(match self.undo() {
                    Ok(()) => cause,
                    Err((path, kept_as)) => FileError::RollbackIncomplete { path, kept_as, cause: Box::new(cause) },
                })
            }
        }
    }

    /// Hands over what is staged to a view of a store, where it becomes a plan: see [`FileChanges`]. `stop` is asked
    /// once, before. What is not taken over is taken back.
    pub(super) fn hand_over(
        mut self,
        stop: &dyn Fn() -> bool,
        (kept, guard): (&OwnedFd, &GuardRules),
    ) -> Result<FileChanges, FileError> {
        if stop() {
            return Err(FileError::Cancelled);
        }
        let mut changes = FileChanges::new();
        for (dir, path) in &self.made {
            let made = open_subdir(dir.as_fd(), last_part(path), path, DirUse::Content)?;
            changes.take_directory(dir, &made, path).map_err(|error| in_store(path, &error))?;
        }
        for step in &self.steps {
            step.check_in_place()?;
            let path = step.place.path.as_str();
            let handed = Handed {
                directory: step.place.dir.as_fd(),
                name: &step.place.name,
                temporary: &step.temporary,
                path,
                action: match step.action {
                    Action::Create => HandedAction::Create,
                    Action::Replace(_) => HandedAction::Replace,
                    Action::Delete(_) => HandedAction::Delete,
                },
                protected: is_protected(path),
            };
            changes.take(&handed, kept, guard).map_err(|error| in_store(path, &error))?;
        }
        changes.withhold_directories(kept).map_err(|error| in_store(".", &error))?;
        self.finished = true;
        Ok(changes)
    }

    fn stage(&mut self, place: Place, action: Action, new: Option<(&[u8], Rights)>) -> Result<(), FileError> {
        let mut temporary = temporary_name(&self.prefix);
        if new.is_none() {
            temporary.push_str(ORIGINAL_SUFFIX);
        }
        let mut step = Step { place, action, temporary, staged: None, done: false };
        let Some((content, rights)) = new else {
            self.steps.push(step);
            return Ok(());
        };
        let path = step.place.path.clone();
        let file = open_temporary(&step, rights).map_err(at(&path))?;
        let stat = rustix::fs::fstat(&file).map_err(at(&path))?;
        step.staged = Some(inode(&stat));
        // From here on the temporary exists; the step in the list is what removes it.
        self.steps.push(step);
        fill(file, content, rights, &path)
    }

    pub(super) fn perform(&mut self) -> Result<(), FileError> {
        for step in &mut self.steps {
            step.perform()?;
        }
        for (dir, _) in &self.made {
            fsync(dir).map_err(at("."))?;
        }
        for (path, dir) in &self.open {
            fsync(dir).map_err(at(path))?;
        }
        Ok(())
    }

    /// Undoes what was done, last step first; on failure the path, and the name under which its original is kept.
    fn undo(&mut self) -> Result<(), (String, String)> {
        let mut failed = None;
        for step in self.steps.iter_mut().rev() {
            if let Err(kept_as) = step.undo() {
                failed = Some((shown(&step.place.path), kept_as));
            }
        }
        for (dir, path) in self.made.iter().rev() {
            // Somebody else may have put something into it: then it stays, which is right.
            let _ = unlinkat(dir, last_part(path), AtFlags::REMOVEDIR);
        }
        failed.map_or(Ok(()), Err)
    }

    fn remove_originals(&self) {
        for step in &self.steps {
            if step.action != Action::Create {
                // The change is made and synced; a leftover temporary is untidy but wrong for nobody.
                let _ = unlinkat(&step.place.dir, step.temporary.as_str(), AtFlags::empty());
            }
        }
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if !self.finished {
            let _ = self.undo();
        }
    }
}

impl Step {
    fn perform(&mut self) -> Result<(), FileError> {
        if matches!(self.action, Action::Replace(_)) {
            self.announce_original()?;
        }
        let (dir, name, temporary) = (self.place.dir.as_fd(), self.place.name.as_str(), self.temporary.as_str());
        let path = self.place.path.as_str();
        match self.action {
            Action::Create => rename_no_replace(dir, temporary, name).map_err(at(path))?,
            Action::Replace(_) => exchange(dir, temporary, name).map_err(changed_at(path))?,
            Action::Delete(_) => rename_no_replace(dir, name, temporary).map_err(changed_at(path))?,
        }
        self.done = true;
        match self.action {
            Action::Create => Ok(()),
            Action::Replace(expect) | Action::Delete(expect) => self.check_original(expect),
        }
    }

    /// Gives the temporary the name that it has once it holds the original. Done before: whoever finds such a name
    /// after a crash may be too careful with it, never too careless.
    fn announce_original(&mut self) -> Result<(), FileError> {
        let name = format!("{}{ORIGINAL_SUFFIX}", self.temporary);
        rename_no_replace(self.place.dir.as_fd(), &self.temporary, &name).map_err(changed_at(&self.place.path))?;
        self.temporary = name;
        Ok(())
    }

    /// Looks at what is in the place, before it is planned to leave it.
    fn check_in_place(&self) -> Result<(), FileError> {
        let (Action::Replace(expect) | Action::Delete(expect)) = self.action else { return Ok(()) };
        let path = self.place.path.as_str();
        let Some((_, stat)) = look(&self.place)? else { return Err(FileError::ContentChanged { path: shown(path) }) };
        require_regular(&stat, path)?;
        match expect {
            Expect::Exactly(identity) if identity != Identity::of(&stat) => {
                Err(FileError::ContentChanged { path: shown(path) })
            }
            Expect::Exactly(_) | Expect::AnyFile => Ok(()),
        }
    }

    /// Looks at what was in the place, now that it is ours alone.
    fn check_original(&self, expect: Expect) -> Result<(), FileError> {
        let path = self.place.path.as_str();
        let stat = statat(&self.place.dir, self.temporary.as_str(), AtFlags::SYMLINK_NOFOLLOW).map_err(at(path))?;
        require_regular(&stat, path)?;
        match expect {
            Expect::AnyFile => Ok(()),
            Expect::Exactly(identity) if identity == Identity::of(&stat) => Ok(()),
            Expect::Exactly(_) => Err(FileError::ContentChanged { path: shown(path) }),
        }
    }

    /// Puts the original back and removes the temporary; on failure says where the original is.
    fn undo(&mut self) -> Result<(), String> {
        let (dir, name, temporary) = (self.place.dir.as_fd(), self.place.name.as_str(), self.temporary.as_str());
        if self.done {
            let undone = match self.action {
                Action::Create => rename_no_replace(dir, name, temporary),
                Action::Replace(_) => exchange(dir, temporary, name),
                Action::Delete(_) => rename_no_replace(dir, temporary, name),
            };
            match (undone, self.action) {
                (Ok(()), _) => {}
                // What we created is gone already: nothing to undo.
                (Err(Errno::NOENT), Action::Create) => return Ok(()),
                (Err(_), _) => return Err(self.temporary.clone()),
            }
            self.done = false;
        }
        if matches!(self.action, Action::Delete(_)) { Ok(()) } else { self.remove_staged() }
    }

    /// Removes the temporary if it is what we staged: somebody may have moved things while a step was undone.
    fn remove_staged(&self) -> Result<(), String> {
        let (dir, temporary) = (self.place.dir.as_fd(), self.temporary.as_str());
        let removed = match statat(dir, temporary, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if self.staged == Some(inode(&stat)) => unlinkat(dir, temporary, AtFlags::empty()),
            // Theirs, and back where it was.
            Ok(_) if self.action == Action::Create => rename_no_replace(dir, temporary, self.place.name.as_str()),
            Ok(_) => Err(Errno::EXIST),
            Err(errno) => Err(errno),
        };
        match removed {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(_) => Err(self.temporary.clone()),
        }
    }
}

/// A staged change that is handed over instead of being made.
#[derive(Debug)]
pub(super) struct Handed<'a> {
    pub(super) directory: BorrowedFd<'a>,
    pub(super) name: &'a str,
    /// Where the new file is, beside it.
    pub(super) temporary: &'a str,
    pub(super) path: &'a str,
    pub(super) action: HandedAction,
    /// Whether no file tool writes there without consent, whatever the list of guarded paths says.
    pub(super) protected: bool,
}

/// What a change that is handed over does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HandedAction {
    Create,
    Replace,
    Delete,
}

fn in_store(path: &str, error: &EffectError) -> FileError {
    match error {
        EffectError::DiskFull => FileError::DiskFull { path: shown(path) },
        other => FileError::Io { path: shown(path), source: std::io::Error::other(other.to_string()) },
    }
}

fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn inode(stat: &Stat) -> (i128, i128) {
    (i128::from(stat.st_dev), i128::from(stat.st_ino))
}

/// A target that vanished between the check and the step has changed, rather than never existed.
fn changed_at(path: &str) -> impl Fn(Errno) -> FileError + '_ {
    move |errno| match errno {
        Errno::NOENT => FileError::ContentChanged { path: shown(path) },
        other => FileError::from_errno(path, other),
    }
}

fn open_temporary(step: &Step, rights: Rights) -> rustix::io::Result<OwnedFd> {
    let mode = match rights {
        Rights::Plain => 0o666,
        Rights::Executable => 0o777,
        Rights::LikeOf { .. } => 0o600,
    };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(&step.place.dir, step.temporary.as_str(), flags, Mode::from_raw_mode(mode))
}

fn fill(file: OwnedFd, content: &[u8], rights: Rights, path: &str) -> Result<(), FileError> {
    let mut file = File::from(file);
    file.write_all(content).map_err(io_at(path))?;
    if let Rights::LikeOf { mode, owner } = rights {
        keep_owner(&file, owner, path)?;
        fchmod(&file, mode).map_err(at(path))?;
    }
    fsync(&file).map_err(at(path))
}

/// Keeps the owner where we may; an unprivileged daemon becomes the owner, as every editor and git do.
fn keep_owner(file: &File, (uid, gid): (u32, u32), path: &str) -> Result<(), FileError> {
    let now = rustix::fs::fstat(file).map_err(at(path))?;
    if (now.st_uid, now.st_gid) == (uid, gid) {
        return Ok(());
    }
    match fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))) {
        Ok(()) | Err(Errno::PERM) => Ok(()),
        Err(errno) => Err(FileError::from_errno(path, errno)),
    }
}

/// A name that nobody else uses and nobody can guess.
fn temporary_name(prefix: &str) -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    // Every `RandomState` has its own keys, from the system's randomness.
    let random = RandomState::new().hash_one(count);
    format!("{prefix}{count:x}-{random:016x}")
}

/// Whether what is at a place is a directory, a link, …: nothing if there is nothing.
pub(super) fn look(place: &Place) -> Result<Option<(FileType, Stat)>, FileError> {
    match statat(&place.dir, place.name.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some((super::beneath::file_type(&stat), stat))),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(FileError::from_errno(&place.path, errno)),
    }
}

//! Reading an upper layer: what a run left, compared with the workspace.
//!
//! The kernel writes an upper layer in a form of its own: a deleted entry is a character device 0:0, a directory that
//! replaces another has the attribute `user.overlay.opaque`, a changed file is there whole. A run cannot forge these:
//! it may not make devices, and the kernel keeps its own attributes apart.
//!
//! One entry of the upper layer becomes at most one [`Draft`]. A directory that is new as a whole is one draft, because
//! it can be moved with one rename, however many files are in it; guarded entries in it are drafts of their own.

use super::collect::Limits;
use super::error::{EffectError, at};
use super::guarded::{GuardRules, Versions};
use super::plan::Action;
use super::sys::{FileId, changed_at, has_set_id, is_whiteout, kind_of, look, names, open_dir, plain_mode, set_mode};
use palyra_protocol::{ChangeKind, Digest, EffectChange, EffectPath, EntryKind};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, Stat, fgetxattr, flistxattr, fremovexattr, openat, readlinkat};
use rustix::io::Errno;
use std::fs::File;

/// Deeper trees are refused: every level costs two descriptors.
const MAX_DEPTH: usize = 128;
/// Entries of git that every look at a repository rewrites: the run's version stands.
const RUN_WINS: [&[u8]; 1] = [b".git/index"];

/// One thing to do to the workspace.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) path: EffectPath,
    pub(super) action: Action,
    /// The new entry, in the upper layer.
    pub(super) staged: Option<FileId>,
    /// What stood in the workspace.
    pub(super) before: Option<FileId>,
    /// It changed in the workspace since the view began.
    pub(super) conflict: bool,
    /// It needs consent.
    pub(super) guarded: bool,
}

/// What a scan found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) drafts: Vec<Draft>,
    /// Permissions that are set when everything has been moved.
    pub(super) modes: Vec<(EffectPath, u32)>,
    pub(super) changes: Vec<EffectChange>,
    pub(super) skipped: Vec<EffectPath>,
    /// Special files in new directories: removed before the directory is moved.
    pub(super) discarded: Vec<EffectPath>,
    pub(super) bytes: u64,
    files: u64,
    /// Inside a directory that is guarded as a whole: nothing in it is drafted by itself.
    within_guarded: bool,
}

/// A scan under way.
#[derive(Debug)]
pub(super) struct Scan<'a> {
    pub(super) guard: &'a GuardRules,
    pub(super) limits: Limits,
    /// When the view began.
    pub(super) started: (i64, i64),
    /// Whether the layer is taken over next, or used again.
    pub(super) purpose: Purpose,
    pub(super) found: Found,
}

/// What becomes of the layer when it has been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Its entries are moved into the workspace: what the kernel wrote on them goes.
    TakeOver,
    /// Further runs work on it: it stays as it is.
    Look,
}

/// A directory of the upper layer and, where there is one, of the workspace.
struct Pair<'a> {
    upper: &'a OwnedFd,
    lower: Option<&'a OwnedFd>,
    path: Option<&'a EffectPath>,
    depth: usize,
}

impl Pair<'_> {
    fn join(&self, name: &[u8]) -> Result<EffectPath, EffectError> {
        Ok(match self.path {
            Some(path) => path.join(name)?,
            None => EffectPath::new(name.to_vec())?,
        })
    }
}

/// An entry of the upper layer beside what it replaces.
struct Entry<'a> {
    path: EffectPath,
    upper_dir: BorrowedFd<'a>,
    upper: Stat,
    lower_dir: Option<BorrowedFd<'a>>,
    lower: Option<Stat>,
}

impl Entry<'_> {
    fn name(&self) -> &[u8] {
        self.path.name()
    }

    fn lower_is(&self, kind: FileType) -> bool {
        self.lower.as_ref().is_some_and(|lower| kind_of(lower) == kind)
    }

    /// The action that puts the upper entry into the workspace.
    fn placing(&self) -> Action {
        if self.lower.is_some() { Action::Exchange } else { Action::Add }
    }
}

impl Scan<'_> {
    /// Reads the whole upper layer.
    pub(super) fn run(mut self, upper: &OwnedFd, lower: &OwnedFd) -> Result<Found, EffectError> {
        self.merged(&Pair { upper, lower: Some(lower), path: None, depth: 0 })?;
        Ok(self.found)
    }

    /// A directory that both layers have.
    fn merged(&mut self, pair: &Pair<'_>) -> Result<(), EffectError> {
        if pair.depth > MAX_DEPTH {
            return Err(EffectError::TooDeep);
        }
        for name in names(pair.upper, b"the view")? {
            let name = name.to_bytes();
            let Some(upper) = look(pair.upper.as_fd(), name)? else { continue };
            let lower = match pair.lower {
                Some(lower) => look(lower.as_fd(), name)?,
                None => None,
            };
            let entry = Entry {
                path: pair.join(name)?,
                upper_dir: pair.upper.as_fd(),
                upper,
                lower_dir: pair.lower.map(AsFd::as_fd),
                lower,
            };
            self.entry(&entry, pair.depth)?;
        }
        Ok(())
    }

    fn entry(&mut self, entry: &Entry<'_>, depth: usize) -> Result<(), EffectError> {
        if is_whiteout(&entry.upper) {
            return self.deleted(entry);
        }
        match kind_of(&entry.upper) {
            FileType::Directory => self.directory(entry, depth),
            FileType::RegularFile => self.file(entry),
            FileType::Symlink => self.link(entry),
            _ => {
                self.found.skipped.push(entry.path.clone());
                Ok(())
            }
        }
    }

    fn deleted(&mut self, entry: &Entry<'_>) -> Result<(), EffectError> {
        let (Some(lower), Some(lower_dir)) = (&entry.lower, entry.lower_dir) else { return Ok(()) };
        let mut conflict = self.is_newer(lower, &entry.path);
        let guarded = self.guard.guards_deletion(&entry.path);
        self.change(deletion(&entry.path, lower))?;
        if kind_of(lower) == FileType::Directory {
            let directory = open_dir(lower_dir, entry.name()).map_err(at(entry.name()))?;
            // A directory's own change time moves with its entries, which are looked at one by one.
            conflict = self.deleted_below(&directory, &entry.path, 0)?;
        }
        let before = Some(FileId::of(lower));
        let path = entry.path.clone();
        self.found.drafts.push(Draft { path, action: Action::Remove, staged: None, before, conflict, guarded });
        Ok(())
    }

    /// Lists what goes with a directory; says whether anything in it changed since the view began.
    fn deleted_below(&mut self, directory: &OwnedFd, path: &EffectPath, depth: usize) -> Result<bool, EffectError> {
        if depth > MAX_DEPTH {
            return Err(EffectError::TooDeep);
        }
        let mut conflict = false;
        for name in names(directory, path.as_bytes())? {
            let name = name.to_bytes();
            let Some(stat) = look(directory.as_fd(), name)? else { continue };
            let path = path.join(name)?;
            self.change(deletion(&path, &stat))?;
            if kind_of(&stat) == FileType::Directory {
                let below = open_dir(directory.as_fd(), name).map_err(at(name))?;
                conflict |= self.deleted_below(&below, &path, depth + 1)?;
            } else {
                conflict |= self.is_newer(&stat, &path);
            }
        }
        Ok(conflict)
    }

    fn directory(&mut self, entry: &Entry<'_>, depth: usize) -> Result<(), EffectError> {
        let upper = open_upper(entry)?;
        let read = self.opened_directory(entry, &upper, depth);
        self.restore(&upper, entry)?;
        read
    }

    /// Gives a directory that is used again the permissions that it had.
    fn restore(&self, upper: &OwnedFd, entry: &Entry<'_>) -> Result<(), EffectError> {
        let mode = entry.upper.st_mode & 0o7777;
        if self.purpose == Purpose::TakeOver || mode & 0o700 == 0o700 {
            return Ok(());
        }
        rustix::fs::fchmod(upper, Mode::from_raw_mode(mode)).map_err(at(entry.name()))
    }

    fn opened_directory(&mut self, entry: &Entry<'_>, upper: &OwnedFd, depth: usize) -> Result<(), EffectError> {
        let opaque = is_opaque(upper);
        self.strip(upper)?;
        if entry.lower_is(FileType::Directory) && !opaque {
            let (Some(lower), Some(lower_dir)) = (&entry.lower, entry.lower_dir) else { return Ok(()) };
            let lower_fd = open_dir(lower_dir, entry.name()).map_err(at(entry.name()))?;
            if plain_mode(lower) != plain_mode(&entry.upper) {
                self.found.modes.push((entry.path.clone(), plain_mode(&entry.upper)));
                self.change(described(&entry.path, ChangeKind::Mode, &entry.upper))?;
            }
            let pair = Pair { upper, lower: Some(&lower_fd), path: Some(&entry.path), depth: depth + 1 };
            return self.merged(&pair);
        }
        self.new_directory(entry, upper, depth)
    }

    /// Takes what the kernel wrote on an entry off it.
    fn strip(&self, file: &OwnedFd) -> Result<(), EffectError> {
        match self.purpose {
            Purpose::TakeOver => strip(file),
            Purpose::Look => Ok(()),
        }
    }

    /// A directory that is new as a whole, or replaces what stood there.
    fn new_directory(&mut self, entry: &Entry<'_>, upper: &OwnedFd, depth: usize) -> Result<(), EffectError> {
        let mut conflict = false;
        match (&entry.lower, entry.lower_dir) {
            (Some(lower), Some(lower_dir)) if kind_of(lower) == FileType::Directory => {
                let old = open_dir(lower_dir, entry.name()).map_err(at(entry.name()))?;
                conflict = self.replaced_below(upper, &old, &entry.path, depth)?;
            }
            (Some(lower), _) => {
                conflict = self.is_newer(lower, &entry.path);
                self.change(deletion(&entry.path, lower))?;
            }
            (None, _) => self.change(described(&entry.path, ChangeKind::Added, &entry.upper))?,
        }
        let guarded = self.guard.guards_directory(&entry.path);
        self.found.within_guarded = guarded;
        self.new_below(upper, &entry.path, depth + 1)?;
        self.found.within_guarded = false;
        if self.purpose == Purpose::Look {
            // Nothing is moved, so nothing has to be movable.
        } else if plain_mode(&entry.upper) & 0o700 != 0o700 {
            // A directory that may not be written cannot be moved: it gets its permissions when it is there.
            set_mode(entry.upper_dir, entry.name(), plain_mode(&entry.upper) | 0o700).map_err(at(entry.name()))?;
            self.found.modes.push((entry.path.clone(), plain_mode(&entry.upper)));
        } else if has_set_id(&entry.upper) {
            set_mode(entry.upper_dir, entry.name(), plain_mode(&entry.upper)).map_err(at(entry.name()))?;
        }
        self.found.drafts.push(Draft {
            path: entry.path.clone(),
            action: entry.placing(),
            staged: Some(FileId::of(&entry.upper)),
            before: entry.lower.as_ref().map(FileId::of),
            conflict,
            guarded,
        });
        Ok(())
    }

    /// Entries of a directory that is new: listed, and those that are guarded drafted by themselves.
    fn new_below(&mut self, upper: &OwnedFd, path: &EffectPath, depth: usize) -> Result<(), EffectError> {
        if depth > MAX_DEPTH {
            return Err(EffectError::TooDeep);
        }
        for name in names(upper, path.as_bytes())? {
            let name = name.to_bytes();
            let Some(stat) = look(upper.as_fd(), name)? else { continue };
            let path = path.join(name)?;
            let entry =
                Entry { path: path.clone(), upper_dir: upper.as_fd(), upper: stat, lower_dir: None, lower: None };
            match kind_of(&stat) {
                FileType::Directory => self.new_subdirectory(&entry, depth)?,
                FileType::RegularFile => {
                    let read = self.read(&entry)?;
                    if self.guard.guards(&path, &Versions { old: None, new: read.start.as_deref() }) {
                        self.cut(&entry);
                    }
                    let described = described(&path, ChangeKind::Added, &stat);
                    self.change(EffectChange { sha256: Some(read.digest), ..described })?;
                }
                FileType::Symlink => {
                    if self.guard.guards_link(&path) {
                        self.cut(&entry);
                    }
                    let target = link_target(upper.as_fd(), name)?;
                    self.change(EffectChange { target: Some(target), ..described(&path, ChangeKind::Added, &stat) })?;
                }
                _ => {
                    self.found.discarded.push(path.clone());
                    self.found.skipped.push(path);
                }
            }
        }
        Ok(())
    }

    fn new_subdirectory(&mut self, entry: &Entry<'_>, depth: usize) -> Result<(), EffectError> {
        let below = open_upper(entry)?;
        let read = self.opened_subdirectory(entry, &below, depth);
        self.restore(&below, entry)?;
        read
    }

    fn opened_subdirectory(&mut self, entry: &Entry<'_>, below: &OwnedFd, depth: usize) -> Result<(), EffectError> {
        self.strip(below)?;
        self.change(described(&entry.path, ChangeKind::Added, &entry.upper))?;
        if plain_mode(&entry.upper) & 0o700 != 0o700 {
            self.found.modes.push((entry.path.clone(), plain_mode(&entry.upper)));
        }
        let guarded = !self.found.within_guarded && self.guard.guards_directory(&entry.path);
        self.found.within_guarded |= guarded;
        self.new_below(below, &entry.path, depth + 1)?;
        if guarded {
            self.found.within_guarded = false;
            self.cut(entry);
        }
        Ok(())
    }

    /// Drafts a guarded entry of a new directory by itself, so that the rest of the directory need not wait.
    fn cut(&mut self, entry: &Entry<'_>) {
        if !self.found.within_guarded {
            self.found.drafts.push(Draft {
                path: entry.path.clone(),
                action: Action::Add,
                staged: Some(FileId::of(&entry.upper)),
                before: None,
                conflict: false,
                guarded: true,
            });
        }
    }

    /// Lists what a replaced directory had and its successor has not; says whether anything changed since the view
    /// began.
    fn replaced_below(
        &mut self,
        new: &OwnedFd,
        old: &OwnedFd,
        path: &EffectPath,
        depth: usize,
    ) -> Result<bool, EffectError> {
        if depth > MAX_DEPTH {
            return Err(EffectError::TooDeep);
        }
        let mut conflict = false;
        for name in names(old, path.as_bytes())? {
            let name = name.to_bytes();
            let Some(stat) = look(old.as_fd(), name)? else { continue };
            let path = path.join(name)?;
            let successor = look(new.as_fd(), name)?.filter(|new| !is_whiteout(new));
            if successor.is_none() {
                self.change(deletion(&path, &stat))?;
            }
            if kind_of(&stat) != FileType::Directory {
                conflict |= self.is_newer(&stat, &path);
                continue;
            }
            let below = open_dir(old.as_fd(), name).map_err(at(name))?;
            conflict |= match successor.filter(|new| kind_of(new) == FileType::Directory) {
                Some(_) => {
                    let new_below = open_dir(new.as_fd(), name).map_err(at(name))?;
                    self.replaced_below(&new_below, &below, &path, depth + 1)?
                }
                None => self.deleted_below(&below, &path, depth + 1)?,
            };
        }
        Ok(conflict)
    }

    fn file(&mut self, entry: &Entry<'_>) -> Result<(), EffectError> {
        let read = self.read(entry)?;
        let (staged, before) = (Some(FileId::of(&entry.upper)), entry.lower.as_ref().map(FileId::of));
        let mut action = entry.placing();
        let kind = match (&entry.lower, entry.lower_dir) {
            (Some(lower), Some(lower_dir)) if kind_of(lower) == FileType::RegularFile => {
                let same = lower.st_size == entry.upper.st_size
                    && content_digest(lower_dir, entry.name())?.is_some_and(|old| old == read.digest);
                let same_mode = plain_mode(lower) == plain_mode(&entry.upper);
                let same_time = FileId::of(lower).modified == FileId::of(&entry.upper).modified;
                match (same, same_mode, same_time) {
                    (true, true, true) => return Ok(()),
                    (true, false, true) => {
                        action = Action::SetMode { mode: plain_mode(&entry.upper), was: plain_mode(lower) };
                        ChangeKind::Mode
                    }
                    (true, false, false) => ChangeKind::Mode,
                    (true, true, false) => ChangeKind::Touched,
                    (false, ..) => ChangeKind::Changed,
                }
            }
            (Some(_), _) => ChangeKind::Changed,
            (None, _) => ChangeKind::Added,
        };
        let conflict = entry.lower.as_ref().is_some_and(|lower| self.is_newer(lower, &entry.path));
        let old = match entry.lower_dir.filter(|_| self.guard.reads_content(&entry.path)) {
            Some(lower_dir) if entry.lower_is(FileType::RegularFile) => beginning(lower_dir, entry.name())?,
            _ => None,
        };
        let guarded = kind != ChangeKind::Touched
            && self.guard.guards(&entry.path, &Versions { old: old.as_deref(), new: read.start.as_deref() });
        self.change(EffectChange { sha256: Some(read.digest), ..described(&entry.path, kind, &entry.upper) })?;
        self.found.drafts.push(Draft { path: entry.path.clone(), action, staged, before, conflict, guarded });
        Ok(())
    }

    fn link(&mut self, entry: &Entry<'_>) -> Result<(), EffectError> {
        let target = link_target(entry.upper_dir, entry.name())?;
        let kind = match (&entry.lower, entry.lower_dir) {
            (Some(lower), Some(lower_dir)) if kind_of(lower) == FileType::Symlink => {
                if link_target(lower_dir, entry.name())? == target {
                    return Ok(());
                }
                ChangeKind::Changed
            }
            (Some(_), _) => ChangeKind::Changed,
            (None, _) => ChangeKind::Added,
        };
        self.change(EffectChange { target: Some(target), ..described(&entry.path, kind, &entry.upper) })?;
        self.found.drafts.push(Draft {
            path: entry.path.clone(),
            action: entry.placing(),
            staged: Some(FileId::of(&entry.upper)),
            before: entry.lower.as_ref().map(FileId::of),
            conflict: entry.lower.as_ref().is_some_and(|lower| self.is_newer(lower, &entry.path)),
            guarded: self.guard.guards_link(&entry.path),
        });
        Ok(())
    }

    fn is_newer(&self, lower: &Stat, path: &EffectPath) -> bool {
        changed_at(lower) >= self.started && !RUN_WINS.contains(&path.as_bytes())
    }

    fn change(&mut self, change: EffectChange) -> Result<(), EffectError> {
        self.found.files += 1;
        if self.found.files > self.limits.max_files {
            return Err(EffectError::TooManyFiles { limit: self.limits.max_files });
        }
        self.found.changes.push(change);
        Ok(())
    }

    /// Hashes a new file, takes the kernel's attributes and set-id bits off it, and counts its bytes.
    fn read(&mut self, entry: &Entry<'_>) -> Result<Read, EffectError> {
        let size = u64::try_from(entry.upper.st_size).unwrap_or(u64::MAX);
        self.found.bytes = self.found.bytes.saturating_add(size);
        if self.found.bytes > self.limits.max_bytes {
            return Err(EffectError::TooManyBytes { limit: self.limits.max_bytes });
        }
        let name = entry.name();
        let mode = plain_mode(&entry.upper);
        let relax = mode & 0o600 != 0o600;
        if relax {
            set_mode(entry.upper_dir, name, mode | 0o600).map_err(at(name))?;
        }
        let file = openat(entry.upper_dir, name, FILE, Mode::empty()).map_err(at(name))?;
        self.strip(&file)?;
        let start = if self.guard.reads_content(&entry.path) { beginning(entry.upper_dir, name)? } else { None };
        let digest = Digest::of_reader(File::from(file))
            .map_err(|source| EffectError::Io { what: entry.path.to_text(), source })?;
        if relax || has_set_id(&entry.upper) {
            set_mode(entry.upper_dir, name, mode).map_err(at(name))?;
        }
        Ok(Read { digest, start })
    }
}

/// What reading a new file gave.
struct Read {
    digest: Digest,
    /// Its content, where the guard reads it.
    start: Option<Vec<u8>>,
}

const FILE: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// What the kernel writes on entries of an upper layer.
const OVERLAY_ATTRIBUTES: [&str; 6] = [
    "user.overlay.origin",
    "user.overlay.impure",
    "user.overlay.opaque",
    "user.overlay.redirect",
    "user.overlay.metacopy",
    "user.overlay.uuid",
];

/// Takes off what the kernel wrote. Most entries have none of it, which one look tells.
fn strip(file: &OwnedFd) -> Result<(), EffectError> {
    let mut listed = [0_u8; 1024];
    let found = flistxattr(file, &mut listed[..]).ok().map(|length| &listed[..length]);
    // A list that does not fit, or that cannot be had, may hold all of them.
    let has =
        |attribute: &str| found.is_none_or(|list| list.split(|b| *b == 0).any(|name| name == attribute.as_bytes()));
    for attribute in OVERLAY_ATTRIBUTES.into_iter().filter(|attribute| has(attribute)) {
        match fremovexattr(file, attribute) {
            Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS) => {}
            Err(errno) => return Err(EffectError::at(attribute.as_bytes(), errno)),
        }
    }
    Ok(())
}

fn is_opaque(directory: &OwnedFd) -> bool {
    let mut value = [0_u8; 4];
    fgetxattr(directory, "user.overlay.opaque", &mut value[..]).is_ok_and(|length| &value[..length] == b"y")
}

/// Opens a directory of the upper layer, even if the run took the right to.
fn open_upper(entry: &Entry<'_>) -> Result<OwnedFd, EffectError> {
    let name = entry.name();
    if plain_mode(&entry.upper) & 0o700 != 0o700 {
        set_mode(entry.upper_dir, name, plain_mode(&entry.upper) | 0o700).map_err(at(name))?;
    }
    open_dir(entry.upper_dir, name).map_err(at(name))
}

fn link_target(directory: BorrowedFd<'_>, name: &[u8]) -> Result<String, EffectError> {
    let target = readlinkat(directory, name, Vec::new()).map_err(at(name))?;
    Ok(target.to_string_lossy().into_owned())
}

/// The digest of a file of the workspace; nothing if it may not be read, or is no file by now.
fn content_digest(directory: BorrowedFd<'_>, name: &[u8]) -> Result<Option<Digest>, EffectError> {
    match openat(directory, name, FILE, Mode::empty()) {
        Ok(file) => Digest::of_reader(File::from(file))
            .map(Some)
            .map_err(|source| EffectError::Io { what: String::from_utf8_lossy(name).into_owned(), source }),
        Err(Errno::ACCESS | Errno::NOENT | Errno::LOOP) => Ok(None),
        Err(errno) => Err(EffectError::at(name, errno)),
    }
}

/// The content of a file that the guard reads; nothing if it is larger than any honest one.
fn beginning(directory: BorrowedFd<'_>, name: &[u8]) -> Result<Option<Vec<u8>>, EffectError> {
    use std::io::Read as _;
    let file = match openat(directory, name, FILE, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::ACCESS | Errno::NOENT | Errno::LOOP) => return Ok(None),
        Err(errno) => return Err(EffectError::at(name, errno)),
    };
    let mut content = Vec::new();
    let most = super::guarded::MAX_READ_BYTES;
    file.take(most + 1)
        .read_to_end(&mut content)
        .map_err(|source| EffectError::Io { what: String::from_utf8_lossy(name).into_owned(), source })?;
    Ok((content.len() as u64 <= most).then_some(content))
}

fn entry_kind(stat: &Stat) -> EntryKind {
    match kind_of(stat) {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Link,
        _ => EntryKind::Special,
    }
}

fn size_of(stat: &Stat) -> Option<u64> {
    (kind_of(stat) == FileType::RegularFile).then(|| u64::try_from(stat.st_size).unwrap_or(0))
}

fn described(path: &EffectPath, kind: ChangeKind, stat: &Stat) -> EffectChange {
    EffectChange {
        path: path.clone(),
        kind,
        entry: entry_kind(stat),
        mode: (kind_of(stat) != FileType::Symlink).then(|| plain_mode(stat)),
        size: size_of(stat),
        sha256: None,
        target: None,
        from: None,
    }
}

fn deletion(path: &EffectPath, stat: &Stat) -> EffectChange {
    EffectChange { mode: None, ..described(path, ChangeKind::Deleted, stat) }
}

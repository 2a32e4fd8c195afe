//! A view for code of the daemon's own: the workspace under an upper layer, put together here and not by the kernel.
//!
//! A process works on a view that the kernel mounts. Code that runs within the daemon, as skills in Tier A do, has no
//! mounts, so [`ViewFiles`] reads the workspace, writes the view's upper layer, and leaves there what the kernel would
//! have left: a changed file whole, a deleted entry as a device 0:0, a directory in the place of another as opaque.
//! [`View::collect`] reads it like any other, so that the changes are decided, wait for consent and are undone alike.
//!
//! A view belongs to one call, which does one thing after the other. Every path is walked from the top of both layers
//! without following a link. As on the kernel's views, a directory that was there before cannot be moved.

use super::error::EffectError;
use super::store::View;
use super::sys::{is_whiteout, kind_of, open_dir, plain_mode};
use crate::Workspace;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags, fchmod, fchown,
    fgetxattr, fsetxattr, fstat, futimens, mkdirat, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Result;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most entries of a directory that are told.
const MOST_ENTRIES: usize = 10_000;
const OPAQUE: &str = "user.overlay.opaque";

/// How a file of a view is opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpenFlags {
    /// To be written; it is read in any case.
    pub write: bool,
    /// It is made if it is not there.
    pub create: bool,
    /// It must not be there before.
    pub exclusive: bool,
    /// It is emptied.
    pub truncate: bool,
}

/// What is at a path of a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewEntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A link, which nobody follows.
    Link,
    /// Anything else, which nobody opens.
    Other,
}

/// What is known of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewStatus {
    /// What it is.
    pub kind: ViewEntryKind,
    /// Its size in bytes.
    pub size: u64,
    /// When it was last changed, in milliseconds since 1970.
    pub modified_ms: u64,
}

/// The files of a view.
#[derive(Debug)]
pub struct ViewFiles {
    upper: OwnedFd,
    lower: OwnedFd,
    /// Whose entries are made, where that is another than the daemon's own user.
    owner: Option<(Uid, Gid)>,
    /// How many bytes may still be copied from the workspace into the view.
    left: AtomicU64,
}

impl View {
    /// The files of this view, for code of the daemon's own. At most so many bytes are copied into it.
    ///
    /// # Errors
    /// The host failed.
    pub fn files(&self, workspace: &Workspace, most_bytes: u64) -> std::result::Result<ViewFiles, EffectError> {
        let fault = |errno| EffectError::at(b"the view", errno);
        let upper = open_dir(self.directory().as_fd(), b"upper").map_err(fault)?;
        let lower = open_dir(workspace.root_fd(), b"").map_err(fault)?;
        let (mine, theirs) = (rustix::process::geteuid(), fstat(&lower).map_err(fault)?);
        let other = mine.is_root() && mine.as_raw() != theirs.st_uid;
        let owner = other.then(|| (Uid::from_raw(theirs.st_uid), Gid::from_raw(theirs.st_gid)));
        Ok(ViewFiles { upper, lower, owner, left: AtomicU64::new(most_bytes) })
    }
}

/// A directory of the view: of each layer, what shows through.
#[derive(Debug)]
struct Merged {
    upper: Option<OwnedFd>,
    lower: Option<OwnedFd>,
}

/// An entry of a directory: in which layer it is.
#[derive(Debug)]
enum Entry {
    Upper(Stat),
    Lower(Stat),
    /// There is none; `true`: the upper layer hides what the workspace has.
    None(bool),
}

impl Entry {
    fn stat(&self) -> Option<&Stat> {
        match self {
            Self::Upper(stat) | Self::Lower(stat) => Some(stat),
            Self::None(_) => None,
        }
    }

    fn kind(&self) -> Option<FileType> {
        self.stat().map(kind_of)
    }
}

fn look(directory: Option<&OwnedFd>, name: &str) -> rustix::io::Result<Option<Stat>> {
    let Some(directory) = directory else { return Ok(None) };
    match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn is_opaque(directory: &OwnedFd) -> bool {
    let mut value = [0_u8; 4];
    fgetxattr(directory, OPAQUE, &mut value[..]).is_ok_and(|length| &value[..length] == b"y")
}

impl Merged {
    fn entry(&self, name: &str) -> rustix::io::Result<Entry> {
        match look(self.upper.as_ref(), name)? {
            Some(stat) if is_whiteout(&stat) => Ok(Entry::None(true)),
            Some(stat) => Ok(Entry::Upper(stat)),
            None => Ok(look(self.lower.as_ref(), name)?.map_or(Entry::None(false), Entry::Lower)),
        }
    }

    /// A directory in this one.
    fn step(&self, name: &str) -> rustix::io::Result<Self> {
        match self.entry(name)? {
            Entry::None(_) => Err(Errno::NOENT),
            entry if entry.kind() == Some(FileType::Symlink) => Err(Errno::LOOP),
            entry if entry.kind() != Some(FileType::Directory) => Err(Errno::NOTDIR),
            Entry::Lower(_) => Ok(Self { upper: None, lower: opened(self.lower.as_ref(), name)? }),
            Entry::Upper(_) => {
                let upper = opened(self.upper.as_ref(), name)?;
                let shows = !upper.as_ref().is_some_and(is_opaque);
                let below = look(self.lower.as_ref().filter(|_| shows), name)?;
                let below = below.is_some_and(|stat| kind_of(&stat) == FileType::Directory);
                let lower = if below { opened(self.lower.as_ref(), name)? } else { None };
                Ok(Self { upper, lower })
            }
        }
    }

    /// Whether the workspace has an entry that would show if the upper layer had none.
    fn has_below(&self, name: &str) -> rustix::io::Result<bool> {
        Ok(look(self.lower.as_ref(), name)?.is_some())
    }

    fn names(&self) -> rustix::io::Result<BTreeMap<String, FileType>> {
        let mut found = BTreeMap::new();
        for (layer, directory) in [(0, &self.lower), (1, &self.upper)] {
            let Some(directory) = directory else { continue };
            for entry in Dir::read_from(directory)? {
                let entry = entry?;
                let Ok(name) = entry.file_name().to_str() else { continue };
                if matches!(name, "." | "..") {
                    continue;
                }
                let Some(stat) = look(Some(directory), name)? else { continue };
                if layer == 1 && is_whiteout(&stat) {
                    found.remove(name);
                } else {
                    found.insert(name.to_owned(), kind_of(&stat));
                }
                if found.len() > MOST_ENTRIES {
                    return Err(Errno::OVERFLOW);
                }
            }
        }
        Ok(found)
    }
}

fn opened(directory: Option<&OwnedFd>, name: &str) -> rustix::io::Result<Option<OwnedFd>> {
    directory.map(|directory| open_dir(directory.as_fd(), name.as_bytes())).transpose()
}

fn told(stat: &Stat) -> ViewStatus {
    let kind = kind_told(kind_of(stat));
    let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
    let ms = u64::try_from(i128::from(stat.st_mtime_nsec)).unwrap_or(0) / 1_000_000;
    let size = if kind == ViewEntryKind::File { u64::try_from(stat.st_size).unwrap_or(0) } else { 0 };
    ViewStatus { kind, size, modified_ms: seconds.saturating_mul(1000).saturating_add(ms) }
}

fn kind_told(kind: FileType) -> ViewEntryKind {
    match kind {
        FileType::RegularFile => ViewEntryKind::File,
        FileType::Directory => ViewEntryKind::Directory,
        FileType::Symlink => ViewEntryKind::Link,
        _ => ViewEntryKind::Other,
    }
}

/// The parts of a path: plain names, none of which leads anywhere else.
fn parts(path: &str) -> rustix::io::Result<Vec<&str>> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let plain = parts.iter().all(|part| !matches!(*part, "." | "..") && !part.contains('\0'));
    if plain { Ok(parts) } else { Err(Errno::INVAL) }
}

/// Hides the workspace's entry of this name.
fn hide(upper: &OwnedFd, name: &str) -> rustix::io::Result<()> {
    #[cfg(not(target_vendor = "apple"))]
    return rustix::fs::mknodat(upper, name, FileType::CharacterDevice, Mode::empty(), 0);
    // There, only root makes devices, and no store of views is opened.
    #[cfg(target_vendor = "apple")]
    {
        let _unhidden = (upper, name);
        Err(Errno::NOSYS)
    }
}

const FILE: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

impl ViewFiles {
    fn top(&self) -> rustix::io::Result<Merged> {
        Ok(Merged { upper: Some(again(&self.upper)?), lower: Some(again(&self.lower)?) })
    }

    fn directory(&self, parts: &[&str]) -> rustix::io::Result<Merged> {
        parts.iter().try_fold(self.top()?, |here, name| here.step(name))
    }

    /// The directory that holds a path's last name, and that name.
    fn parent<'p>(&self, parts: &'p [&'p str]) -> rustix::io::Result<Option<(Merged, &'p str)>> {
        let Some((name, parents)) = parts.split_last() else { return Ok(None) };
        Ok(Some((self.directory(parents)?, name)))
    }

    /// The same directory in the upper layer, made like the workspace's where it is not there yet.
    fn upper_of(&self, parents: &[&str]) -> rustix::io::Result<OwnedFd> {
        let mut here = self.top()?;
        for name in parents {
            let next = here.step(name)?;
            if let (None, Some(upper), Some(lower)) = (&next.upper, &here.upper, &next.lower) {
                mkdirat(upper, *name, Mode::RWXU)?;
                let made = open_dir(upper.as_fd(), name.as_bytes())?;
                self.own(made.as_fd())?;
                fchmod(&made, Mode::from_raw_mode(plain_mode(&fstat(lower)?)))?;
            }
            here = here.step(name)?;
        }
        here.upper.ok_or(Errno::NOENT)
    }

    fn own(&self, entry: BorrowedFd<'_>) -> rustix::io::Result<()> {
        self.owner.map_or(Ok(()), |(uid, gid)| fchown(entry, Some(uid), Some(gid)))
    }

    /// Opens a regular file. A file of the workspace is copied into the view before it is written.
    ///
    /// # Errors
    /// As the system says: links are `ELOOP`, what is neither file nor directory `EPERM`.
    pub fn open(&self, path: &str, how: OpenFlags) -> Result<OwnedFd> {
        Ok(self.open_file(&parts(path)?, how)?)
    }

    fn open_file(&self, parts: &[&str], how: OpenFlags) -> rustix::io::Result<OwnedFd> {
        let (parent, name) = self.parent(parts)?.ok_or(Errno::ISDIR)?;
        let parents = &parts[..parts.len() - 1];
        let entry = parent.entry(name)?;
        match entry.kind() {
            Some(_) if how.exclusive => return Err(Errno::EXIST),
            Some(FileType::RegularFile) => {}
            Some(FileType::Directory) => return Err(Errno::ISDIR),
            Some(FileType::Symlink) => return Err(Errno::LOOP),
            Some(_) => return Err(Errno::PERM),
            None if how.create && how.write => return self.create(parents, name, &entry),
            None => return Err(Errno::NOENT),
        }
        let mut flags = FILE | if how.write { OFlags::RDWR } else { OFlags::RDONLY };
        let (layer, file) = match (&entry, how.write) {
            (Entry::Lower(_), false) => (parent.lower.ok_or(Errno::NOENT)?, name),
            (Entry::Lower(_), true) => {
                let upper = self.upper_of(parents)?;
                self.copy_up(&parent, &upper, name, how.truncate)?;
                (upper, name)
            }
            _ => {
                flags.set(OFlags::TRUNC, how.truncate && how.write);
                (parent.upper.ok_or(Errno::NOENT)?, name)
            }
        };
        let file = openat(&layer, file, flags, Mode::empty())?;
        // What was looked at may have been replaced since.
        if kind_of(&fstat(&file)?) == FileType::RegularFile { Ok(file) } else { Err(Errno::PERM) }
    }

    fn create(&self, parents: &[&str], name: &str, there: &Entry) -> rustix::io::Result<OwnedFd> {
        let upper = self.upper_of(parents)?;
        if matches!(there, Entry::None(true)) {
            unlinkat(&upper, name, AtFlags::empty())?;
        }
        let flags = FILE | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let file = openat(&upper, name, flags, Mode::from_raw_mode(0o644))?;
        self.own(file.as_fd())?;
        Ok(file)
    }

    /// Copies a file of the workspace into the upper layer, with its permissions and time: what is not written then
    /// counts as unchanged.
    fn copy_up(&self, parent: &Merged, upper: &OwnedFd, name: &str, empty: bool) -> rustix::io::Result<()> {
        let lower = parent.lower.as_ref().ok_or(Errno::NOENT)?;
        let from = openat(lower, name, FILE | OFlags::RDONLY, Mode::empty())?;
        let stat = fstat(&from)?;
        if kind_of(&stat) != FileType::RegularFile {
            return Err(Errno::PERM);
        }
        let size = if empty { 0 } else { u64::try_from(stat.st_size).unwrap_or(u64::MAX) };
        let enough = |left: u64| left.checked_sub(size);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enough).map_err(|_| Errno::DQUOT)?;
        let flags = FILE | OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let to = openat(upper, name, flags, Mode::RUSR | Mode::WUSR)?;
        self.own(to.as_fd())?;
        fchmod(&to, Mode::from_raw_mode(plain_mode(&stat)))?;
        if !empty {
            use std::io::Read as _;
            // The file may grow meanwhile; what was counted is what is copied.
            let copied = std::io::copy(&mut File::from(from).take(size), &mut File::from(again(&to)?));
            copied.map_err(|error| error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error))?;
            let keep = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
            let modified = Timespec { tv_sec: stat.st_mtime, tv_nsec: i64::try_from(stat.st_mtime_nsec).unwrap_or(0) };
            futimens(&to, &Timestamps { last_access: keep, last_modification: modified })?;
        }
        Ok(())
    }

    /// What is at a path; a link is told as a link.
    ///
    /// # Errors
    /// There is nothing, or the way leads through something that is no directory.
    pub fn status(&self, path: &str) -> Result<ViewStatus> {
        let parts = parts(path)?;
        let Some((parent, name)) = self.parent(&parts)? else { return Ok(told(&fstat(&self.lower)?)) };
        let entry = parent.entry(name)?;
        Ok(entry.stat().map(told).ok_or(Errno::NOENT)?)
    }

    /// What is in a directory, by name. Names that are no text are left out.
    ///
    /// # Errors
    /// It is no directory, or holds too many entries.
    pub fn entries(&self, path: &str) -> Result<Vec<(String, ViewEntryKind)>> {
        let names = self.directory(&parts(path)?)?.names()?;
        Ok(names.into_iter().map(|(name, kind)| (name, kind_told(kind))).collect())
    }

    /// Creates a directory.
    ///
    /// # Errors
    /// Something is there, or the directory around it is not.
    pub fn create_directory(&self, path: &str) -> Result<()> {
        let parts = parts(path)?;
        let (parent, name) = self.parent(&parts)?.ok_or(Errno::EXIST)?;
        let entry = parent.entry(name)?;
        let Entry::None(hidden) = entry else { return Err(Errno::EXIST.into()) };
        let upper = self.upper_of(&parts[..parts.len() - 1])?;
        if hidden {
            unlinkat(&upper, name, AtFlags::empty())?;
        }
        mkdirat(&upper, name, Mode::from_raw_mode(0o755))?;
        let made = open_dir(upper.as_fd(), name.as_bytes())?;
        self.own(made.as_fd())?;
        if hidden {
            fsetxattr(&made, OPAQUE, b"y", XattrFlags::empty())?;
        }
        Ok(())
    }

    /// Removes a file.
    ///
    /// # Errors
    /// There is none, or it is a directory.
    pub fn remove_file(&self, path: &str) -> Result<()> {
        let parts = parts(path)?;
        let (parent, name) = self.parent(&parts)?.ok_or(Errno::PERM)?;
        match parent.entry(name)?.kind() {
            None => Err(Errno::NOENT.into()),
            Some(FileType::Directory) => Err(Errno::ISDIR.into()),
            Some(_) => Ok(self.take_out(&parts, &parent, name, AtFlags::empty())?),
        }
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// There is none, or something is in it.
    pub fn remove_directory(&self, path: &str) -> Result<()> {
        let parts = parts(path)?;
        let (parent, name) = self.parent(&parts)?.ok_or(Errno::PERM)?;
        match parent.entry(name)?.kind() {
            None => return Err(Errno::NOENT.into()),
            Some(FileType::Directory) => {}
            Some(_) => return Err(Errno::NOTDIR.into()),
        }
        let directory = parent.step(name)?;
        if !directory.names()?.is_empty() {
            return Err(Errno::NOTEMPTY.into());
        }
        if let Some(upper) = &directory.upper {
            // Nothing is left in it but what hides the workspace's own entries.
            for hidden in super::sys::names(upper, name.as_bytes()).map_err(|_| Errno::IO)? {
                unlinkat(upper, hidden.as_c_str(), AtFlags::empty())?;
            }
        }
        Ok(self.take_out(&parts, &parent, name, AtFlags::REMOVEDIR)?)
    }

    /// Takes an entry out of the upper layer, and hides the workspace's.
    fn take_out(&self, parts: &[&str], parent: &Merged, name: &str, how: AtFlags) -> rustix::io::Result<()> {
        let below = parent.has_below(name)?;
        if let (Some(upper), Entry::Upper(_)) = (&parent.upper, parent.entry(name)?) {
            unlinkat(upper, name, how)?;
        }
        if below { hide(&self.upper_of(&parts[..parts.len() - 1])?, name) } else { Ok(()) }
    }

    /// Renames a file, or a directory that the view itself has made.
    ///
    /// # Errors
    /// A directory of the workspace is `EXDEV`; something is in the way of a directory.
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (parts(from)?, parts(to)?);
        let (old, old_name) = self.parent(&from)?.ok_or(Errno::PERM)?;
        let entry = old.entry(old_name)?;
        let is_directory = match entry.kind() {
            None => return Err(Errno::NOENT.into()),
            Some(FileType::RegularFile) => false,
            Some(FileType::Directory) => true,
            Some(FileType::Symlink) => return Err(Errno::LOOP.into()),
            Some(_) => return Err(Errno::PERM.into()),
        };
        if from == to {
            return Ok(());
        }
        if is_directory && to.starts_with(&from) {
            return Err(Errno::INVAL.into());
        }
        if is_directory && (matches!(entry, Entry::Lower(_)) || old.step(old_name)?.lower.is_some()) {
            return Err(Errno::XDEV.into());
        }
        let (new, new_name) = self.parent(&to)?.ok_or(Errno::PERM)?;
        let there = new.entry(new_name)?;
        match there.kind() {
            Some(FileType::Directory) => return Err(Errno::ISDIR.into()),
            Some(_) if is_directory => return Err(Errno::NOTDIR.into()),
            _ => {}
        }
        let target = self.upper_of(&to[..to.len() - 1])?;
        let source = self.upper_of(&from[..from.len() - 1])?;
        if matches!(entry, Entry::Lower(_)) {
            self.copy_up(&old, &source, old_name, false)?;
        }
        if matches!(there, Entry::None(true)) {
            unlinkat(&target, new_name, AtFlags::empty())?;
        }
        renameat(&source, old_name, &target, new_name)?;
        if is_directory && new.has_below(new_name)? {
            let moved = open_dir(target.as_fd(), new_name.as_bytes())?;
            fsetxattr(&moved, OPAQUE, b"y", XattrFlags::empty())?;
        }
        if old.has_below(old_name)? {
            hide(&source, old_name)?;
        }
        Ok(())
    }
}

fn again(file: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(file, 0)
}

#[cfg(test)]
mod tests {
    use super::super::store::ViewStore;
    use super::super::{Fates, GuardRules, Limits};
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    struct Place {
        _top: tempfile::TempDir,
        root: PathBuf,
        workspace: Workspace,
        store: ViewStore,
    }

    fn place() -> Place {
        let top = tempfile::tempdir().unwrap();
        let root = top.path().join("w");
        fs::create_dir_all(root.join("data/sub")).unwrap();
        fs::write(root.join("data/a"), "one").unwrap();
        fs::write(root.join("data/sub/b"), "two").unwrap();
        let workspace = Workspace::open(&root).unwrap();
        let store = ViewStore::open(&top.path().join("store"), &workspace).unwrap();
        Place { _top: top, root, workspace, store }
    }

    const WRITE: OpenFlags = OpenFlags { write: true, create: true, exclusive: false, truncate: false };

    fn write(files: &ViewFiles, path: &str, text: &str) -> Result<()> {
        use std::io::Write as _;
        File::from(files.open(path, OpenFlags { truncate: true, ..WRITE })?).write_all(text.as_bytes())
    }

    fn read(files: &ViewFiles, path: &str) -> Result<String> {
        std::io::read_to_string(File::from(files.open(path, OpenFlags::default())?))
    }

    fn names(files: &ViewFiles, path: &str) -> Vec<String> {
        files.entries(path).unwrap().into_iter().map(|(name, _)| name).collect()
    }

    fn errno<T>(result: Result<T>) -> Option<Errno> {
        result.err().and_then(|error| error.raw_os_error()).map(Errno::from_raw_os_error)
    }

    /// What a call's changes are, as `kind path`.
    fn collected(place: &Place, view: &View) -> Vec<String> {
        let guard = GuardRules::new(std::iter::empty()).unwrap();
        let collected = view.collect(&place.workspace, &guard, Limits::default()).unwrap();
        collected.changes().iter().map(|change| format!("{:?} {}", change.kind, change.path)).collect()
    }

    #[test]
    fn what_is_written_is_seen_in_the_view_and_not_in_the_workspace() {
        let place = place();
        let view = place.store.begin("call", &place.workspace).unwrap();
        let files = view.files(&place.workspace, 1 << 20).unwrap();
        write(&files, "data/a", "changed").unwrap();
        write(&files, "data/sub/new", "new").unwrap();
        files.remove_file("data/sub/b").unwrap();
        files.create_directory("made").unwrap();
        write(&files, "made/c", "three").unwrap();
        files.rename("made", "moved").unwrap();
        assert_eq!(read(&files, "data/a").unwrap(), "changed");
        assert_eq!(read(&files, "moved/c").unwrap(), "three");
        assert_eq!(errno(read(&files, "data/sub/b")), Some(Errno::NOENT));
        assert_eq!(
            (names(&files, "data/sub"), names(&files, "")),
            (vec!["new".into()], vec!["data".into(), "moved".into()])
        );
        assert_eq!(fs::read_to_string(place.root.join("data/a")).unwrap(), "one");
        assert!(place.root.join("data/sub/b").exists() && !place.root.join("moved").exists());
        let changes = collected(&place, &view);
        assert_eq!(
            changes,
            ["Changed data/a", "Deleted data/sub/b", "Added data/sub/new", "Added moved", "Added moved/c"]
        );
        // They count when they are applied, and can be taken back.
        let guard = GuardRules::new(std::iter::empty()).unwrap();
        view.collect(&place.workspace, &guard, Limits::default()).unwrap().stage_as(Fates::APPLY).unwrap();
        place.store.apply("call", &place.workspace).unwrap();
        assert_eq!(fs::read_to_string(place.root.join("moved/c")).unwrap(), "three");
        assert!(!place.root.join("data/sub/b").exists());
        let plan = place.store.plan_undo("call", &place.workspace).unwrap();
        place.store.undo(&plan, "undo", &place.workspace).unwrap();
        assert_eq!(fs::read_to_string(place.root.join("data/sub/b")).unwrap(), "two");
        assert_eq!(fs::read_to_string(place.root.join("data/a")).unwrap(), "one");
        assert!(!place.root.join("moved").exists());
    }

    #[test]
    fn what_is_only_opened_is_unchanged() {
        let place = place();
        let view = place.store.begin("call", &place.workspace).unwrap();
        let files = view.files(&place.workspace, 1 << 20).unwrap();
        drop(files.open("data/a", WRITE).unwrap());
        assert_eq!(collected(&place, &view), [""; 0]);
    }

    #[test]
    fn entries_are_replaced_by_others_of_the_same_name() {
        let place = place();
        let view = place.store.begin("call", &place.workspace).unwrap();
        let files = view.files(&place.workspace, 1 << 20).unwrap();
        // A directory of the workspace makes room for another, which shows nothing of it.
        files.remove_file("data/sub/b").unwrap();
        files.remove_directory("data/sub").unwrap();
        assert_eq!(errno(files.status("data/sub")), Some(Errno::NOENT));
        files.create_directory("data/sub").unwrap();
        assert_eq!(names(&files, "data/sub"), [""; 0]);
        files.rename("data/a", "data/sub/a").unwrap();
        assert_eq!((read(&files, "data/sub/a").unwrap().as_str(), names(&files, "data")), ("one", vec!["sub".into()]));
        write(&files, "data/a", "again").unwrap();
        assert_eq!(read(&files, "data/a").unwrap(), "again");
        assert_eq!(collected(&place, &view), ["Changed data/a", "Added data/sub/a", "Deleted data/sub/b"]);
    }

    #[test]
    fn links_and_odd_paths_are_refused() {
        let place = place();
        symlink("/etc", place.root.join("link")).unwrap();
        symlink("a", place.root.join("data/inner")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, place.root.join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        let view = place.store.begin("call", &place.workspace).unwrap();
        let files = view.files(&place.workspace, 4).unwrap();
        for (path, wanted) in [
            ("link/passwd", Errno::LOOP),
            ("data/inner", Errno::LOOP),
            ("pipe", Errno::PERM),
            ("../outside", Errno::INVAL),
            ("data", Errno::ISDIR),
            ("data/a/x", Errno::NOTDIR),
        ] {
            assert_eq!(errno(read(&files, path)), Some(wanted), "{path}");
            assert_eq!(errno(write(&files, path, "x")), Some(wanted), "{path}");
        }
        assert_eq!(files.status("link").unwrap().kind, ViewEntryKind::Link);
        assert_eq!(errno(files.rename("data", "elsewhere")), Some(Errno::XDEV));
        assert_eq!(errno(files.remove_directory("data")), Some(Errno::NOTEMPTY));
        assert_eq!(errno(files.create_directory("data")), Some(Errno::EXIST));
        assert_eq!(errno(files.open("data/a", OpenFlags { exclusive: true, ..WRITE })), Some(Errno::EXIST));
        // More than may be copied is not.
        drop(files.open("data/a", WRITE).unwrap());
        assert_eq!(errno(files.open("data/sub/b", WRITE)), Some(Errno::DQUOT));
        assert_eq!(collected(&place, &view), [""; 0]);
    }
}

//! The file tree as a run finds it: a mount namespace, made once and then entered by every run that needs the same.
//!
//! Both tiers need one to hide programs ([`super::walls`]). A root daemon needs one also where the run's user could not
//! use a root as it is: its owner is mapped, or the way to it is closed and has to be rebuilt. And Tier B needs one for
//! what Landlock leaves open. Landlock governs what is opened; permissions, owners, times and attributes are changed by
//! path, without opening anything, and no rule of Landlock speaks of that. A read-only mount does: so everything is
//! read-only there but the roots that may be written and the runs' private directories; and the daemon's own
//! directories, which could be looked at and watched by name, are not there at all. An ordinary daemon gets the
//! namespace inside a user namespace that maps its own user to itself; where the host gives none, the stricter of Tier
//! B's two seccomp profiles stands in ([`super::profile`]).
//!
//! For root, `/proc` is one that shows a process only whom it may trace, and Landlock lets it trace its own run alone.
//! Without root that would take a PID namespace for every run, which costs as much as the process.
//!
//! What the host mounts later arrives here writable, so a namespace is used only until the host's table of mounts
//! changes.

use super::grants::{RootIdentity, Roots};
use super::identity::{self, owner_of};
use super::plan::{MountStep, TreeAccess, User, c_string};
use super::sys::{self, Around};
use super::walls;
use crate::error::SandboxError;
use crate::hidden_files::{Hidden, HiddenIn, HiddenProgram};
use crate::layout;
use crate::scratch;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, ResolveFlags, Stat};
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A view of the file tree that runs can enter.
#[derive(Debug)]
pub(super) struct View {
    pub(super) mounts: Arc<OwnedFd>,
    /// The user namespace to enter first; `None` for root, which needs none.
    pub(super) users: Option<Arc<OwnedFd>>,
    /// Its own `/proc`, where it has one.
    pub(super) processes: Option<Arc<OwnedFd>>,
    /// The top of the tree as it is in there; kept for Tier B alone.
    top: Option<OwnedFd>,
    /// No two views have the same.
    pub(super) number: u64,
    /// How many roots have their owner mapped.
    pub(super) mapped: usize,
    /// What is hidden in there; `None`: nothing, because this host gives no overlays.
    pub(super) walls: Option<Walls>,
}

impl View {
    /// What is at a path in there.
    pub(super) fn open(&self, path: &Path) -> Option<OwnedFd> {
        let (flags, how) = (OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW, ResolveFlags::IN_ROOT);
        rustix::fs::openat2(self.top.as_ref()?, path, flags, Mode::empty(), how).ok()
    }

    /// The same file as `file`, reached through this view: what a process does to its own program by way of
    /// `/proc/self/exe` it then does on these mounts. `None`: another file is there.
    pub(super) fn reopen(&self, path: &Path, file: &OwnedFd) -> Option<OwnedFd> {
        let found = self.open(path)?;
        let (was, is) = (rustix::fs::fstat(file).ok()?, rustix::fs::fstat(&found).ok()?);
        // An overlay is a device of its own and leaves everything else as it is.
        let overlaid = self.walls.as_ref().is_some_and(|walls| walls.overlay(path));
        let same = |was: &Stat, is: &Stat| {
            (was.st_ino, was.st_size, was.st_mtime, was.st_mtime_nsec, was.st_ctime, was.st_ctime_nsec)
                == (is.st_ino, is.st_size, is.st_mtime, is.st_mtime_nsec, is.st_ctime, is.st_ctime_nsec)
        };
        let is_same = was.st_dev == is.st_dev && was.st_ino == is.st_ino || overlaid && same(&was, &is);
        is_same.then_some(found)
    }
}

/// What is hidden in a view.
#[derive(Debug, Clone)]
pub(super) struct Walls {
    pub(super) hidden: Arc<Hidden>,
    /// The files with credentials that runs of this kind could see.
    pub(super) files: Vec<PathBuf>,
}

impl Walls {
    fn of(hidden: &Arc<Hidden>, rest: &Rest) -> Option<Self> {
        // Bubblewrap's tree has nothing of `/etc` but what is copied into it.
        let shown = |file: &&PathBuf| *rest != Rest::AsItIs || layout::is_system_path(file);
        let files = hidden.files.iter().filter(shown).cloned().collect::<Vec<_>>();
        (!hidden.directories.is_empty() || !files.is_empty()).then(|| Self { hidden: Arc::clone(hidden), files })
    }

    /// Whether a path is reached through an overlay.
    fn overlay(&self, path: &Path) -> bool {
        self.hidden.directories.iter().any(|inside| path.starts_with(&inside.directory))
    }
}

impl PartialEq for Walls {
    fn eq(&self, other: &Self) -> bool {
        (self.hidden.number, &self.files) == (other.hidden.number, &other.files)
    }
}

impl Eq for Walls {}

/// What becomes of everything outside the roots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Rest {
    /// It stays as it is: bubblewrap builds its own tree later.
    AsItIs,
    /// It becomes read-only, but for the directory that holds the runs' private ones.
    ReadOnly(PathBuf, RootIdentity),
}

impl Rest {
    /// Read-only.
    pub(super) fn read_only() -> Result<Self, SandboxError> {
        let place = scratch::place()?;
        let identity = RootIdentity::of(&place).map_err(SandboxError::io("look at the directory for private ones"))?;
        Ok(Self::ReadOnly(place, identity))
    }
}

/// Whether a run has mounts of its own above its view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    /// It has none.
    Nothing,
    /// It has: so there must be a view, whose namespaces it may change.
    OwnMounts,
}

/// How one root has to be shown to the user.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shown {
    root: PathBuf,
    identity: RootIdentity,
    access: TreeAccess,
    /// Whose files shall appear as the user's own.
    mapped_from: Option<User>,
    /// The outermost directory on the way that the user may not pass through.
    blocked_at: Option<PathBuf>,
}

impl Shown {
    /// Whether the user cannot do without.
    fn is_needed(&self) -> bool {
        self.mapped_from.is_some() || self.blocked_at.is_some()
    }
}

/// What a view is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Key {
    /// `None`: the daemon's own, ordinary user.
    user: Option<User>,
    shown: Vec<Shown>,
    rest: Rest,
    /// Directories that are not to be seen.
    closed: Vec<PathBuf>,
    walls: Option<Walls>,
}

/// The daemon's own directories; bubblewrap's tree has none of them anyway.
fn closed(roots: &Roots, rest: &Rest) -> Vec<PathBuf> {
    match rest {
        Rest::AsItIs => Vec::new(),
        Rest::ReadOnly(..) => roots.protected.iter().filter(|path| path.is_dir()).cloned().collect(),
    }
}

/// The view of a root daemon's run; `None`: the host's own will do, or nothing else can be had.
pub(super) fn for_user(
    roots: &Roots,
    user: User,
    (rest, needs): (Rest, Needs),
    hidden: &Arc<Hidden>,
) -> Result<Option<Arc<View>>, SandboxError> {
    let mut shown = Vec::new();
    for root in sorted(roots.all()) {
        let shown_as = show(roots, root, Some(user))?;
        if shown_as.is_needed() || (rest != Rest::AsItIs && shown_as.access == TreeAccess::Write) {
            shown.push(shown_as);
        }
    }
    let needed = shown.iter().any(Shown::is_needed);
    let (closed, walls) = (closed(roots, &rest), Walls::of(hidden, &rest));
    match walled(Key { user: Some(user), shown, rest, closed, walls }, needs) {
        // In a container, root may lack what it takes.
        Err(SandboxError::LayerUnavailable { source, .. }) if !needed && is_refusal(&source) => Ok(None),
        other => other,
    }
}

/// The view of an ordinary daemon's run; `None`: the host's own will do, or this host gives it none.
pub(super) fn for_ordinary(
    roots: &Roots,
    (rest, needs): (Rest, Needs),
    hidden: &Arc<Hidden>,
) -> Result<Option<Arc<View>>, SandboxError> {
    static REFUSED: Mutex<bool> = Mutex::new(false);
    if *REFUSED.lock().unwrap_or_else(PoisonError::into_inner) {
        return Ok(None);
    }
    let shown = match rest {
        Rest::AsItIs => Vec::new(),
        Rest::ReadOnly(..) => {
            sorted(roots.writable()).into_iter().map(|root| show(roots, root, None)).collect::<Result<_, _>>()?
        }
    };
    let (closed, walls) = (closed(roots, &rest), Walls::of(hidden, &rest));
    match walled(Key { user: None, shown, rest, closed, walls }, needs) {
        Err(SandboxError::LayerUnavailable { source, .. }) if is_refusal(&source) => {
            // A decision of the host's, which asking again does not change.
            *REFUSED.lock().unwrap_or_else(PoisonError::into_inner) = true;
            Ok(None)
        }
        other => other,
    }
}

/// The view with this key; where the host gives no overlays, the one without them. `None` when that is the host's own.
fn walled(mut key: Key, needs: Needs) -> Result<Option<Arc<View>>, SandboxError> {
    /// What could not be hidden that way. Some directories cannot be a layer, others can.
    static REFUSED: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());
    let refused = || REFUSED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(number) = key.walls.as_ref().map(|walls| walls.hidden.number).filter(|n| !refused().contains(n)) {
        match find(key.clone()) {
            Err(SandboxError::LayerUnavailable { source, .. }) if is_refusal(&source) => drop(refused().insert(number)),
            Err(SandboxError::LayerUnavailable { .. }) => {}
            other => return other.map(Some),
        }
    }
    key.walls = None;
    if key.shown.is_empty() && key.rest == Rest::AsItIs && needs == Needs::Nothing {
        return Ok(None);
    }
    find(key).map(Some)
}

/// Whether this host lets this daemon put overlays over directories.
pub(super) fn gives_overlays() -> io::Result<()> {
    let names = [HiddenProgram { name: "palyra-probe".into(), family: "probe", is_link: false }];
    let inside = HiddenIn { directory: "/usr/bin".into(), programs: names.into() };
    let hidden = Hidden { number: 0, directories: vec![inside], files: Vec::new() };
    let steps = walls::steps(&hidden, &[]).map_err(io::Error::other)?;
    let around = if rustix::process::geteuid().is_root() { Around::Nothing } else { Around::UserNamespace };
    sys::mount_namespace(&steps, around).map(drop)
}

/// Whether the host does not let this daemon make namespaces, as opposed to one that went wrong.
fn is_refusal(error: &io::Error) -> bool {
    let refused = [libc::EPERM, libc::EACCES, libc::ENOSYS, libc::EINVAL, libc::ENOSPC, libc::EUSERS];
    error.raw_os_error().is_some_and(|errno| refused.contains(&errno))
}

/// How a root has to be shown.
fn show(roots: &Roots, root: &Path, user: Option<User>) -> Result<Shown, SandboxError> {
    let unavailable = |source| SandboxError::WorkspaceUnavailable { path: root.to_owned(), source };
    let writable = roots.writable().any(|w| w == root);
    let access = if writable { TreeAccess::Write } else { TreeAccess::ReadOnly };
    let identity = RootIdentity::of(root).map_err(unavailable)?;
    let mut shown = Shown { root: root.to_owned(), identity, access, mapped_from: None, blocked_at: None };
    if let Some(user) = user {
        let owner = owner_of(root)?;
        // What an overlay is put over is written as its owner, too.
        let written = writable || roots.filled.iter().any(|filled| filled == root);
        shown.mapped_from = (owner.uid != user.uid && (written || !identity::readable(root, user))).then_some(owner);
        shown.blocked_at = identity::first_blocked_ancestor(root, user);
    }
    Ok(shown)
}

/// The view with this key: one that is known, or a new one. Making one copies the host's table of mounts and, at the
/// end, waits for every processor; entering one does neither.
fn find(key: Key) -> Result<Arc<View>, SandboxError> {
    static KNOWN: Mutex<Vec<(Key, Arc<View>)>> = Mutex::new(Vec::new());
    const MOST_KNOWN: usize = 8;
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if mounts_changed() {
        known.clear();
    }
    if let Some((_, view)) = known.iter().find(|(of, _)| *of == key) {
        return Ok(Arc::clone(view));
    }
    let view = Arc::new(build(&key)?);
    if key.shown.iter().all(|shown| shown.identity.is_certain()) {
        if known.len() >= MOST_KNOWN {
            known.remove(0);
        }
        known.push((key, Arc::clone(&view)));
    }
    Ok(view)
}

/// Whether the host's table of mounts changed since this was last asked. One that cannot be watched always has.
fn mounts_changed() -> bool {
    static TABLE: Mutex<Option<File>> = Mutex::new(None);
    let mut table = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(watched) = table.as_ref() else {
        *table = File::open("/proc/self/mountinfo").ok();
        return true;
    };
    let mut watched = [PollFd::new(watched, PollFlags::PRI)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut watched, Some(&at_once)).is_err() || watched[0].revents().intersects(PollFlags::PRI | PollFlags::ERR)
}

fn build(key: &Key) -> Result<View, SandboxError> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let unavailable = |source| SandboxError::LayerUnavailable { layer: "mount_namespace", source };
    let processes = match (key.user, &key.rest) {
        (Some(_), Rest::ReadOnly(..)) => sys::traceable_processes().ok().map(Arc::new),
        _ => None,
    };
    let (mut steps, around) = match key.user {
        Some(user) => (steps(user, key, processes.as_ref())?, Around::Nothing),
        None => (ordinary_steps(key)?, Around::UserNamespace),
    };
    // Last: what is hidden may lie in a root.
    if let Some(Walls { hidden, files }) = &key.walls {
        steps.extend(walls::steps(hidden, files)?);
    }
    let made = sys::mount_namespace(&steps, around).map_err(unavailable)?;
    Ok(View {
        mounts: Arc::new(made.mounts),
        users: made.users.map(Arc::new),
        processes,
        top: (key.rest != Rest::AsItIs).then_some(made.top),
        number: NUMBER.fetch_add(1, Ordering::Relaxed),
        mapped: key.shown.iter().filter(|shown| shown.mapped_from.is_some()).count(),
        walls: key.walls.clone(),
    })
}

fn sorted<'a>(roots: impl Iterator<Item = &'a PathBuf>) -> Vec<&'a PathBuf> {
    let mut roots: Vec<_> = roots.collect();
    // Outer before inner, so that an inner root is attached on top.
    roots.sort_unstable();
    roots.dedup();
    roots
}

/// Root's: makes the rest read-only if that is wanted, covers what the user may not pass through by an empty directory,
/// rebuilds the path to each root in it, attaches the roots.
fn steps(user: User, key: &Key, processes: Option<&Arc<OwnedFd>>) -> Result<Vec<MountStep>, SandboxError> {
    let mut steps = Vec::new();
    if key.rest != Rest::AsItIs {
        steps.extend([MountStep::ReadOnly, MountStep::Writable(c"/proc".to_owned())]);
    }
    if let Some(tree) = processes {
        steps.push(MountStep::Attach { tree: Arc::clone(tree), target: c"/proc".to_owned() });
    }
    let mut covers: Vec<&Path> = Vec::new();
    for blocked in key.shown.iter().filter_map(|shown| shown.blocked_at.as_deref()) {
        if !covers.iter().any(|cover| blocked.starts_with(cover)) {
            covers.push(blocked);
        }
    }
    for cover in &covers {
        steps.push(MountStep::Tmpfs {
            target: c_string(cover, "a workspace's parent")?,
            options: c_string("mode=755,size=64k,nr_inodes=64", "options")?,
        });
    }
    // What lies under a cover is gone with it.
    for closed in key.closed.iter().filter(|closed| !covers.iter().any(|cover| closed.starts_with(cover))) {
        steps.push(MountStep::Hide(c_string(closed, "a protected path")?));
    }
    let mut made: Vec<PathBuf> = Vec::new();
    for shown in &key.shown {
        let root = &shown.root;
        if let Some(cover) = covers.iter().find(|cover| root.starts_with(cover)) {
            for missing in path_below(cover, root) {
                // Inside a root that is already attached the path exists.
                let exists = made.contains(&missing)
                    || key.shown.iter().any(|other| other.root != *root && missing.starts_with(&other.root));
                if !exists {
                    let place = c_string(&missing, "a workspace's parent")?;
                    let is_file = missing == *root && !root.is_dir();
                    steps.push(if is_file { MountStep::File(place) } else { MountStep::Directory(place) });
                    made.push(missing);
                }
            }
        }
        let tree = Arc::new(clone(shown, user)?);
        steps.push(MountStep::Attach { tree, target: c_string(root, "a root")? });
    }
    if let Rest::ReadOnly(place, _) = &key.rest {
        let tree = sys::clone_mount(place, TreeAccess::Write, None)
            .map_err(|source| SandboxError::LayerUnavailable { layer: "mount_namespace", source })?;
        steps.push(MountStep::Attach { tree: Arc::new(tree), target: c_string(place, "the private directories")? });
    }
    Ok(steps)
}

/// An ordinary user's: the writable trees are copied first, by the process that has the power to do so, then all
/// becomes read-only, then the copies are put where they came from.
fn ordinary_steps(key: &Key) -> Result<Vec<MountStep>, SandboxError> {
    let mut places: Vec<&Path> = key.shown.iter().map(|shown| shown.root.as_path()).collect();
    if let Rest::ReadOnly(place, _) = &key.rest {
        places.push(place);
    }
    let (mut steps, mut attach) = (Vec::new(), Vec::new());
    if key.rest == Rest::AsItIs {
        return Ok(steps);
    }
    for place in places {
        let (target, tree) = (c_string(place, "a root")?, Arc::new(AtomicI32::new(-1)));
        steps.push(MountStep::Copy { source: target.clone(), tree: Arc::clone(&tree) });
        attach.push(MountStep::AttachCopy { tree, target });
    }
    steps.extend([MountStep::ReadOnly, MountStep::Writable(c"/proc".to_owned())]);
    for closed in &key.closed {
        steps.push(MountStep::Hide(c_string(closed, "a protected path")?));
    }
    steps.extend(attach);
    Ok(steps)
}

/// A copy of the root's mount that can be attached elsewhere, its owner mapped if need be.
fn clone(shown: &Shown, user: User) -> Result<OwnedFd, SandboxError> {
    let owner_error = |source| SandboxError::WorkspaceOwner { path: shown.root.clone(), source };
    match shown.mapped_from {
        Some(owner) => {
            let table = mapping(owner, user).map_err(owner_error)?;
            sys::clone_mount(&shown.root, shown.access, Some(&table)).map_err(owner_error)
        }
        None => sys::clone_mount(&shown.root, shown.access, None)
            .map_err(|source| SandboxError::LayerUnavailable { layer: "mount_namespace", source }),
    }
}

/// `/a` and `/a/b/c` → `/a/b`, `/a/b/c`.
fn path_below(cover: &Path, root: &Path) -> Vec<PathBuf> {
    let mut below: Vec<PathBuf> =
        root.ancestors().take_while(|ancestor| *ancestor != cover).map(Path::to_owned).collect();
    below.reverse();
    below
}

type MapKey = (u32, u32, u32, u32);

/// The table that maps one owner to another; made once, then shared.
pub(super) fn mapping(disk: User, sandbox: User) -> io::Result<Arc<OwnedFd>> {
    static TABLES: Mutex<Option<HashMap<MapKey, Arc<OwnedFd>>>> = Mutex::new(None);
    let key = (disk.uid, disk.gid, sandbox.uid, sandbox.gid);
    let mut guard = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    let tables = guard.get_or_insert_with(HashMap::new);
    if let Some(table) = tables.get(&key) {
        return Ok(Arc::clone(table));
    }
    let table = Arc::new(sys::mapping_namespace(disk, sandbox)?);
    tables.insert(key, Arc::clone(&table));
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_a_root_is_rebuilt_outermost_first() {
        let got = path_below(Path::new("/srv"), Path::new("/srv/a/b"));
        assert_eq!(got, [PathBuf::from("/srv/a"), PathBuf::from("/srv/a/b")]);
    }

    #[test]
    fn a_host_that_refuses_is_told_from_one_that_fails() {
        assert!(is_refusal(&io::Error::from_raw_os_error(libc::EPERM)));
        assert!(!is_refusal(&io::Error::from_raw_os_error(libc::ENOMEM)));
        assert!(!is_refusal(&io::Error::other("x")));
    }
}

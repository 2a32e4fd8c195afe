//! Who the command runs as.
//!
//! An ordinary daemon runs it as itself. A root daemon must not: whatever walls stand, a process of root's owns root's files
//! (`bwrap` maps 0 to 0). It becomes the workspace's owner if that is an ordinary user, and `nobody` otherwise; then the
//! workspace is attached with its owner mapped, so that files it creates belong to root like the rest.
//! INVARIANT (no root): the command never runs as uid 0.

use super::grants::{RootIdentity, Roots};
use super::plan::{MountStep, User, c_string};
use super::sys::{self, TreeAccess};
use crate::error::SandboxError;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The user that owns nothing.
pub(super) const NOBODY: User = User { uid: 65534, gid: 65534 };

/// Whom to become, and how the file tree has to look for them.
#[derive(Debug)]
pub(super) struct Identity {
    /// `None`: the daemon's own user.
    pub(super) user: Option<User>,
    /// The uid that the command has, as the host counts.
    pub(super) uid: u32,
    /// `None`: the host's view.
    pub(super) mount_namespace: Option<Arc<OwnedFd>>,
    /// How many roots have their owner mapped.
    pub(super) mapped: usize,
}

/// How one root has to be shown to the user.
#[derive(Debug, Clone, PartialEq, Eq)]
struct View {
    root: PathBuf,
    identity: RootIdentity,
    read_only: bool,
    /// Whose files shall appear as the user's own.
    mapped_from: Option<User>,
    /// The outermost directory on the way that the user may not pass through.
    blocked_at: Option<PathBuf>,
}

/// Chooses the user for a run.
pub(super) fn choose(roots: &Roots) -> Result<Identity, SandboxError> {
    let own = rustix::process::geteuid();
    if !own.is_root() {
        return Ok(Identity { user: None, uid: own.as_raw(), mount_namespace: None, mapped: 0 });
    }
    let owner = owner_of(&roots.workspace)?;
    let user = if owner.uid == 0 { NOBODY } else { User { uid: owner.uid, gid: primary_group(owner.uid) } };
    let mut views = Vec::new();
    for root in sorted(roots.all()) {
        views.extend(view(roots, root, user)?);
    }
    let mapped = views.iter().filter(|view| view.mapped_from.is_some()).count();
    let mount_namespace = if views.is_empty() { None } else { Some(namespace(user, views)?) };
    Ok(Identity { user: Some(user), uid: user.uid, mount_namespace, mapped })
}

/// How a root has to be shown; `None`: as it is.
fn view(roots: &Roots, root: &Path, user: User) -> Result<Option<View>, SandboxError> {
    let unavailable = |source| SandboxError::WorkspaceUnavailable { path: root.to_owned(), source };
    let writable = roots.writable().any(|w| w == root);
    let owner = owner_of(root)?;
    let mapped_from = (owner.uid != user.uid && (writable || !readable(root, user))).then_some(owner);
    let blocked_at = first_blocked_ancestor(root, user);
    if mapped_from.is_none() && blocked_at.is_none() {
        return Ok(None);
    }
    let identity = RootIdentity::of(root).map_err(unavailable)?;
    Ok(Some(View { root: root.to_owned(), identity, read_only: !writable, mapped_from, blocked_at }))
}

type Namespaces = Vec<((User, Vec<View>), Arc<OwnedFd>)>;

/// The mount namespace with these views: made once, then entered by every run that needs the same. Making one copies the
/// host's table of mounts and, at the end, waits for every processor; entering one does neither.
fn namespace(user: User, views: Vec<View>) -> Result<Arc<OwnedFd>, SandboxError> {
    static KNOWN: Mutex<Namespaces> = Mutex::new(Vec::new());
    const MOST_KNOWN: usize = 8;
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, namespace)) = known.iter().find(|((of, shown), _)| *of == user && *shown == views) {
        return Ok(Arc::clone(namespace));
    }
    let steps = steps(user, &views)?;
    let namespace = sys::mount_namespace(&steps)
        .map_err(|source| SandboxError::LayerUnavailable { layer: "mount_namespace", source })?;
    let namespace = Arc::new(namespace);
    if views.iter().all(|view| view.identity.is_certain()) {
        if known.len() >= MOST_KNOWN {
            known.remove(0);
        }
        known.push(((user, views), Arc::clone(&namespace)));
    }
    Ok(namespace)
}

fn sorted<'a>(roots: impl Iterator<Item = &'a PathBuf>) -> Vec<&'a PathBuf> {
    let mut roots: Vec<_> = roots.collect();
    // Outer before inner, so that an inner root is attached on top.
    roots.sort_unstable();
    roots.dedup();
    roots
}

/// Covers what the user may not pass through by an empty directory, rebuilds the path to each root in it, attaches the roots.
fn steps(user: User, views: &[View]) -> Result<Vec<MountStep>, SandboxError> {
    let mut covers: Vec<&Path> = Vec::new();
    for blocked in views.iter().filter_map(|view| view.blocked_at.as_deref()) {
        if !covers.iter().any(|cover| blocked.starts_with(cover)) {
            covers.push(blocked);
        }
    }
    let mut steps = Vec::new();
    for cover in &covers {
        steps.push(MountStep::Tmpfs {
            target: c_string(cover, "a workspace's parent")?,
            options: c_string("mode=755,size=64k,nr_inodes=64", "options")?,
        });
    }
    let mut made: Vec<PathBuf> = Vec::new();
    for view in views {
        let root = &view.root;
        if let Some(cover) = covers.iter().find(|cover| root.starts_with(cover)) {
            for missing in path_below(cover, root) {
                // Inside a root that is already attached the path exists.
                let exists =
                    made.contains(&missing) || views.iter().any(|v| v.root != *root && missing.starts_with(&v.root));
                if !exists {
                    let place = c_string(&missing, "a workspace's parent")?;
                    let is_file = missing == *root && !root.is_dir();
                    steps.push(if is_file { MountStep::File(place) } else { MountStep::Directory(place) });
                    made.push(missing);
                }
            }
        }
        steps.push(MountStep::Attach { tree: clone(view, user)?, target: c_string(root, "a root")? });
    }
    Ok(steps)
}

/// A copy of the root's mount that can be attached elsewhere, its owner mapped if need be.
fn clone(view: &View, user: User) -> Result<OwnedFd, SandboxError> {
    let owner_error = |source| SandboxError::WorkspaceOwner { path: view.root.clone(), source };
    let access = if view.read_only { TreeAccess::ReadOnly } else { TreeAccess::Write };
    match view.mapped_from {
        Some(owner) => {
            let table = mapping(owner, user).map_err(owner_error)?;
            sys::clone_mount(&view.root, access, Some(&table)).map_err(owner_error)
        }
        None => sys::clone_mount(&view.root, access, None)
            .map_err(|source| SandboxError::WorkspaceUnavailable { path: view.root.clone(), source }),
    }
}

/// `/a` and `/a/b/c` → `/a/b`, `/a/b/c`.
fn path_below(cover: &Path, root: &Path) -> Vec<PathBuf> {
    let mut below: Vec<PathBuf> =
        root.ancestors().take_while(|ancestor| *ancestor != cover).map(Path::to_owned).collect();
    below.reverse();
    below
}

fn owner_of(path: &Path) -> Result<User, SandboxError> {
    let metadata =
        fs::metadata(path).map_err(|source| SandboxError::WorkspaceUnavailable { path: path.to_owned(), source })?;
    Ok(User { uid: metadata.uid(), gid: metadata.gid() })
}

/// The group of a user as `/etc/passwd` has it. Never that of the workspace, which may be a powerful one.
fn primary_group(uid: u32) -> u32 {
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    passwd
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(':').skip(2);
            Some((fields.next()?.parse::<u32>().ok()?, fields.next()?.parse::<u32>().ok()?))
        })
        .find(|(user, gid)| *user == uid && *gid != 0)
        .map_or(NOBODY.gid, |(_, gid)| gid)
}

/// The outermost directory on the way to `path` that the user may not pass through.
fn first_blocked_ancestor(path: &Path, user: User) -> Option<PathBuf> {
    let mut ancestors: Vec<&Path> = path.ancestors().skip(1).collect();
    ancestors.reverse();
    ancestors.into_iter().find(|ancestor| !permits(ancestor, user, 0o1)).map(Path::to_owned)
}

fn readable(path: &Path, user: User) -> bool {
    permits(path, user, 0o5)
}

/// Whether the mode bits give the user `bits`. Access lists may say otherwise; then the kernel refuses later.
fn permits(path: &Path, user: User, bits: u32) -> bool {
    let Ok(metadata) = fs::metadata(path) else { return false };
    let shift = if metadata.uid() == user.uid {
        6
    } else if metadata.gid() == user.gid {
        3
    } else {
        0
    };
    (metadata.mode() >> shift) & bits == bits
}

type MapKey = (u32, u32, u32, u32);

/// The table that maps one owner to another; made once, then shared.
fn mapping(disk: User, sandbox: User) -> io::Result<Arc<OwnedFd>> {
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
    fn an_unknown_user_gets_the_group_that_owns_nothing() {
        assert_eq!(primary_group(4_000_000_000), NOBODY.gid);
        assert_eq!(primary_group(0), NOBODY.gid);
    }
}

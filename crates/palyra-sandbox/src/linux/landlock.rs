//! Landlock: which files a Tier B process may touch, and which processes it may signal.
//!
//! Two rulesets are prepared before the fork and applied after it. The *fence* goes around supervisor and command alike
//! and holds no files, only the scope of signals and abstract sockets: with it the supervisor's `kill(-1)` means
//! "everything in this run" and nothing else on the machine. The *files* ruleset goes around the command alone, inside
//! the fence, so that the command can reach neither the supervisor nor anything that is not granted.
//!
//! Rules name inodes and can only add. A protected path below a granted directory cannot be cut out again: that is
//! checked before ([`super::grants`]) and refused. It must never be papered over here. A hidden program can, since what
//! lies around it is known and cannot be changed by a run: where a host gives no overlays ([`super::walls`]),
//! everything beside it is granted instead, file by file.
//!
//! The system's part of the rules is the same for every run. Its descriptors are opened once and kept until a directory
//! that holds one of them changes, so that a run pays one call per rule; the `landlock` crate pays three and cannot be
//! split between parent and child, which is why the three system calls are made here.

use super::grants::{Access, Grant};
use super::sys;
use crate::error::SandboxError;
use crate::layout;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

const EXECUTE: u64 = 1 << 0;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const MAKE_CHAR: u64 = 1 << 6;
const MAKE_BLOCK: u64 = 1 << 11;
/// Everything up to making symlinks: what the first interface knew.
const ALL_V1: u64 = (1 << 13) - 1;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEV: u64 = 1 << 15;
/// What makes sense for something that is no directory.
const OF_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;

const SCOPE_ABSTRACT_SOCKETS: u64 = 1 << 0;
const SCOPE_SIGNALS: u64 = 1 << 1;

/// The interface version of the running kernel; 0 without Landlock.
pub(super) fn abi() -> u32 {
    static VERSION: OnceLock<u32> = OnceLock::new();
    *VERSION.get_or_init(sys::landlock_abi)
}

/// Whether the kernel can keep a process from signalling those outside.
pub(super) fn scopes_signals() -> bool {
    abi() >= 6
}

/// Every right on files that the kernel can take away. What it does not know it also does not restrict.
fn handled(abi: u32) -> u64 {
    let mut rights = ALL_V1;
    if abi >= 2 {
        rights |= REFER;
    }
    if abi >= 3 {
        rights |= TRUNCATE;
    }
    if abi >= 5 {
        rights |= IOCTL_DEV;
    }
    rights
}

fn scope() -> u64 {
    if scopes_signals() { SCOPE_ABSTRACT_SOCKETS | SCOPE_SIGNALS } else { 0 }
}

/// The fence around a whole run; `None` when the kernel has no such scope.
pub(super) fn fence() -> Result<Option<Arc<OwnedFd>>, SandboxError> {
    static FENCE: Mutex<Option<Arc<OwnedFd>>> = Mutex::new(None);
    if !scopes_signals() {
        return Ok(None);
    }
    // A ruleset without rules is the same for all; each restriction makes a domain of its own from it.
    let mut fence = FENCE.lock().unwrap_or_else(PoisonError::into_inner);
    if fence.is_none() {
        *fence = Some(Arc::new(sys::landlock_create(0, scope()).map_err(unavailable)?));
    }
    Ok(fence.clone())
}

/// A ruleset with the system's part and these grants, without what is `hidden` in them.
pub(super) fn make(grants: &[Grant], hidden: &[PathBuf]) -> Result<OwnedFd, SandboxError> {
    let ruleset = sys::landlock_create(handled(abi()), scope()).map_err(unavailable)?;
    for rule in &system_rules()?.rules {
        if !add_around(&ruleset, &rule.path, rule.access, hidden)? {
            sys::landlock_add(&ruleset, &rule.fd, rule.rights).map_err(unavailable)?;
        }
    }
    for grant in grants {
        if !add_around(&ruleset, &grant.path, grant.access, hidden)? {
            add(&ruleset, grant)?;
        }
    }
    Ok(ruleset)
}

/// Grants everything in a directory that is not hidden; `false` when nothing in it is, or it may be written: what can
/// be moved away cannot be left out.
fn add_around(ruleset: &OwnedFd, directory: &Path, access: Access, hidden: &[PathBuf]) -> Result<bool, SandboxError> {
    let around = hidden.iter().any(|path| path.starts_with(directory)) && access != Access::Write;
    if !around {
        return Ok(false);
    }
    let fault = |source| SandboxError::Io { action: "look at a directory that hidden programs lie in", source };
    // Its names, and those of the directories in it, may be seen.
    let (fd, _) = open(directory, access).map_err(fault)?;
    sys::landlock_add(ruleset, &fd, READ_DIR).map_err(unavailable)?;
    for entry in fs::read_dir(directory).map_err(fault)? {
        let entry = entry.map_err(fault)?;
        let (path, kind) = (entry.path(), entry.file_type().map_err(fault)?);
        // A link grants nothing by itself; what it leads to counts.
        if kind.is_symlink() || hidden.contains(&path) || add_around(ruleset, &path, access, hidden)? {
            continue;
        }
        match open(&path, access) {
            Ok((fd, rights)) => sys::landlock_add(ruleset, &fd, rights).map_err(unavailable)?,
            // One that went away meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(fault(source)),
        }
    }
    Ok(true)
}

/// Adds a grant to a ruleset.
pub(super) fn add(ruleset: &OwnedFd, grant: &Grant) -> Result<(), SandboxError> {
    let (fd, rights) = open(&grant.path, grant.access)
        .map_err(|source| SandboxError::WorkspaceUnavailable { path: grant.path.clone(), source })?;
    sys::landlock_add(ruleset, &fd, rights).map_err(unavailable)
}

/// Grants what only a view has, and what is therefore another file than the host's at the same path.
pub(super) fn add_seen(ruleset: &OwnedFd, seen: &OwnedFd, access: Access) -> Result<(), SandboxError> {
    let is_directory = |fd| Ok::<_, Errno>(FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode).is_dir());
    let rights = rights(access) & handled(abi());
    let all = is_directory(seen).map_err(|e| unavailable(e.into()))?;
    sys::landlock_add(ruleset, seen, if all { rights } else { rights & OF_FILES }).map_err(unavailable)
}

/// A number that changes whenever the system's part of the rules does.
pub(super) fn system_generation() -> Result<u64, SandboxError> {
    system_rules().map(|rules| rules.generation)
}

fn open(path: &Path, access: Access) -> io::Result<(OwnedFd, u64)> {
    let fd = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let is_directory = FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode).is_dir();
    let rights = rights(access) & handled(abi());
    Ok((fd, if is_directory { rights } else { rights & OF_FILES }))
}

fn rights(access: Access) -> u64 {
    match access {
        Access::Read => READ_FILE | READ_DIR,
        Access::Execute => READ_FILE | READ_DIR | EXECUTE,
        Access::Device => READ_FILE | WRITE_FILE | IOCTL_DEV,
        // Everything but device nodes, which no ordinary user can make anyway.
        Access::Write => (ALL_V1 | REFER | TRUNCATE) & !(MAKE_CHAR | MAKE_BLOCK),
    }
}

/// The part of the rules that every run has.
#[derive(Debug)]
struct SystemRules {
    /// Counts up each time the rules are read anew.
    generation: u64,
    rules: Vec<SystemRule>,
    /// The directories that hold the granted names, and when each last changed.
    stamps: Vec<(PathBuf, Stamp)>,
}

#[derive(Debug)]
struct SystemRule {
    /// Free of symlinks.
    path: PathBuf,
    access: Access,
    fd: OwnedFd,
    rights: u64,
}

type Stamp = Option<(i64, i64)>;

fn stamp(directory: &Path) -> Stamp {
    fs::metadata(directory).ok().map(|metadata| (metadata.mtime(), metadata.mtime_nsec()))
}

fn system_rules() -> Result<Arc<SystemRules>, SandboxError> {
    static RULES: Mutex<Option<Arc<SystemRules>>> = Mutex::new(None);
    let mut known = RULES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(rules) = known.as_ref()
        && rules.stamps.iter().all(|(directory, at)| stamp(directory) == *at)
    {
        return Ok(Arc::clone(rules));
    }
    let fresh = Arc::new(open_system_rules()?);
    *known = Some(Arc::clone(&fresh));
    Ok(fresh)
}

fn open_system_rules() -> Result<SystemRules, SandboxError> {
    let mut directories = BTreeSet::new();
    let mut rules = Vec::new();
    let mut opened = BTreeSet::new();
    for (path, access) in layout::tier_b_system() {
        let path = Path::new(path);
        directories.extend(nearest_directory(path));
        // `/bin` and the like are symlinks into `/usr` on most systems, and then need no rule of their own.
        let Ok(real) = fs::canonicalize(path) else { continue };
        if path.is_symlink() && layout::SYSTEM_DIRECTORIES.iter().any(|dir| real.starts_with(dir)) {
            continue;
        }
        directories.extend(nearest_directory(&real));
        if !opened.insert(real.clone()) {
            continue;
        }
        match open(&real, access) {
            Ok((fd, rights)) => rules.push(SystemRule { path: real, access, fd, rights }),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {}
            Err(source) => return Err(SandboxError::Io { action: "open a system directory", source }),
        }
    }
    let stamps =
        directories.into_iter().map(|directory| (stamp(&directory), directory)).map(|(at, d)| (d, at)).collect();
    static GENERATION: AtomicU64 = AtomicU64::new(0);
    Ok(SystemRules { generation: GENERATION.fetch_add(1, Ordering::Relaxed), rules, stamps })
}

/// The directory whose change would be the first sign of a change at `path`.
fn nearest_directory(path: &Path) -> Option<PathBuf> {
    path.ancestors().skip(1).find(|ancestor| ancestor.is_dir()).map(Path::to_owned)
}

fn unavailable(source: io::Error) -> SandboxError {
    SandboxError::LayerUnavailable { layer: "landlock", source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_rules_are_kept_until_something_changes() {
        let first = system_rules().unwrap();
        assert!(first.rules.len() > 5 && !first.stamps.is_empty());
        assert!(first.stamps.iter().any(|(directory, _)| directory == Path::new("/etc")));
        assert!(Arc::ptr_eq(&first, &system_rules().unwrap()));
    }

    #[test]
    fn older_kernels_are_asked_for_less() {
        assert_eq!(handled(1), 0x1fff);
        assert_eq!(handled(3), 0x7fff);
        assert_eq!(handled(7), 0xffff);
    }
}

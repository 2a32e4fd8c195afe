//! Removing a directory that a hostile process has filled.
//!
//! The usual recursive removal keeps a descriptor and a stack frame per level: a tree a hundred thousand directories
//! deep, which takes a second to make, would bring the daemon down. Here depth costs nothing: directories found inside
//! a directory are first moved up beside it. It runs only when every process that could interfere is gone, and never
//! follows a symlink.
//!
//! How long it takes is the process's choice too: sixty thousand directories take minutes. So what is more than a few
//! files is removed by a thread of its own, and the run's answer does not wait for it.
#![expect(unsafe_code, reason = "a function for the end of the process")]

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

/// More entries than this are not removed while somebody waits.
const FEW: usize = 16;
/// How long the end of the process waits for what is still to be removed. The rest is left to the next one.
const MOST_WAIT_AT_EXIT: Duration = Duration::from_secs(20);

/// What is still to be removed, and whether something is being removed now.
#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<PathBuf>,
    busy: bool,
    at_exit: Vec<fn()>,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue { waiting: Vec::new(), busy: false, at_exit: Vec::new() });
static CHANGED: Condvar = Condvar::new();

fn queue() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes a directory that holds no more than a few files; tells whether it is gone.
pub(crate) fn remove_few(path: &Path) -> bool {
    // Most commands leave nothing in it.
    if std::fs::remove_dir(path).is_ok() {
        return true;
    }
    let Ok(entries) = std::fs::read_dir(path) else { return !path.exists() };
    let files: Vec<_> = entries.take(FEW + 1).flatten().collect();
    if files.len() > FEW || files.iter().any(|file| !file.file_type().is_ok_and(|kind| !kind.is_dir())) {
        return false;
    }
    files.iter().all(|file| std::fs::remove_file(file.path()).is_ok()) && std::fs::remove_dir(path).is_ok()
}

/// Removes a directory and everything in it, some time.
pub(crate) fn later(path: PathBuf) {
    prepare();
    queue().waiting.push(path);
    CHANGED.notify_all();
}

/// Has `act` done when the process ends, after everything is removed.
pub(crate) fn at_exit(act: fn()) {
    prepare();
    let mut queue = queue();
    if !queue.at_exit.contains(&act) {
        queue.at_exit.push(act);
    }
}

fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Without the thread, the end of the process removes it.
        let _started = std::thread::Builder::new().name("palyra-removal".into()).spawn(work);
        // SAFETY: the function takes no arguments and does not unwind.
        unsafe { libc::atexit(end) };
    });
}

fn work() {
    let mut waiting = queue();
    loop {
        match waiting.waiting.pop() {
            Some(path) => {
                waiting.busy = true;
                drop(waiting);
                // What cannot be removed even so is left to the host's own cleaning.
                let _removed = remove_tree(&path);
                waiting = queue();
                waiting.busy = false;
                CHANGED.notify_all();
            }
            None => waiting = CHANGED.wait(waiting).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// Waits until everything is removed, or for a while.
pub(crate) fn finish() {
    let deadline = Instant::now() + MOST_WAIT_AT_EXIT;
    let mut waiting = queue();
    while waiting.busy || !waiting.waiting.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        waiting = CHANGED.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
    }
}

extern "C" fn end() {
    finish();
    let acts = std::mem::take(&mut queue().at_exit);
    // As with `atexit`: what was made last goes first.
    acts.into_iter().rev().for_each(|act| act());
}

/// Removes a directory and everything in it.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    let _opened = rustix::fs::chmod(path, Mode::RWXU);
    let top = rustix::fs::open(path, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let mut moved = 0u64;
    loop {
        let directories = clear_files(top.as_fd())?;
        if directories.is_empty() {
            break;
        }
        for name in directories {
            flatten(top.as_fd(), &name, &mut moved)?;
        }
    }
    Ok(rustix::fs::rmdir(path)?)
}

/// Removes everything but directories; returns the directories' names.
fn clear_files(directory: BorrowedFd<'_>) -> io::Result<Vec<CString>> {
    let mut directories = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        if is_directory(directory, name, entry.file_type())? {
            directories.push(name.to_owned());
        } else {
            rustix::fs::unlinkat(directory, name, AtFlags::empty())?;
        }
    }
    Ok(directories)
}

fn is_directory(directory: BorrowedFd<'_>, name: &CStr, kind: FileType) -> io::Result<bool> {
    if kind != FileType::Unknown {
        return Ok(kind.is_dir());
    }
    let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode).is_dir())
}

/// Empties the directory `name` of `top` by moving its directories up into `top`, and removes it.
fn flatten(top: BorrowedFd<'_>, name: &CStr, moved: &mut u64) -> io::Result<()> {
    let directory = enter(top, name)?;
    for inner in clear_files(directory.as_fd())? {
        loop {
            *moved += 1;
            let target = format!("palyra-removal-{moved}");
            let flags = rustix::fs::RenameFlags::NOREPLACE;
            match rustix::fs::renameat_with(&directory, &inner, top, target.as_str(), flags) {
                Ok(()) => break,
                // A name that the process chose to be in the way.
                Err(rustix::io::Errno::EXIST) => {}
                // Moving a directory rewrites its `..`, for which it has to be writable.
                Err(rustix::io::Errno::ACCESS) => {
                    rustix::fs::chmodat(&directory, &inner, Mode::RWXU, AtFlags::empty())?;
                    rustix::fs::renameat_with(&directory, &inner, top, target.as_str(), flags)?;
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(rustix::fs::unlinkat(top, name, AtFlags::REMOVEDIR)?)
}

fn enter(top: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    let open = || rustix::fs::openat(top, name, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
    match open() {
        Ok(directory) if writable(&directory)? => Ok(directory),
        Ok(_) | Err(rustix::io::Errno::ACCESS) => {
            rustix::fs::chmodat(top, name, Mode::RWXU, AtFlags::empty())?;
            Ok(open()?)
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether the owner may remove what is in a directory. Root may anyway.
fn writable(directory: &OwnedFd) -> io::Result<bool> {
    Ok(rustix::fs::fstat(directory)?.st_mode & 0o700 == 0o700)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use tempfile::TempDir;

    #[test]
    fn depth_costs_nothing() {
        let dir = TempDir::new().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir(&tree).unwrap();
        let mut at = rustix::fs::open(&tree, OFlags::DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..1500 {
            rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
            at = rustix::fs::openat(&at, "d", OFlags::DIRECTORY, Mode::empty()).unwrap();
        }
        drop(at);
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
    }

    #[test]
    fn locked_directories_and_odd_names_go_and_symlinks_are_not_followed() {
        let dir = TempDir::new().unwrap();
        let (tree, outside) = (dir.path().join("tree"), dir.path().join("outside"));
        fs::create_dir_all(tree.join("a/b/palyra-removal-1")).unwrap();
        fs::create_dir_all(tree.join("palyra-removal-1")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "").unwrap();
        symlink(&outside, tree.join("a/link")).unwrap();
        fs::set_permissions(tree.join("a/b"), fs::Permissions::from_mode(0o0)).unwrap();
        fs::set_permissions(tree.join("a"), fs::Permissions::from_mode(0o0)).unwrap();
        remove_tree(&tree).unwrap();
        assert!(!tree.exists() && outside.join("kept").exists());
    }
}

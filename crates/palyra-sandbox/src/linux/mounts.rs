//! Builds a view of the file tree ([`super::view`]), in a process that lives until its namespaces are taken from it.
//!
//! That process runs on the daemon's memory, as those in [`super::child`] do, and keeps to the rule of that file: no
//! allocation, no lock, no panic, no C library; nothing but raw system calls on memory that was prepared before.
#![expect(unsafe_code, reason = "raw system calls on the daemon's memory")]

use super::child::check;
use super::plan::{MountStep, TreeAccess, User};
use super::raw::call;
use libc::{c_int, c_uint};
use std::ffi::CStr;
use std::sync::atomic::Ordering;

/// Moves into a mount namespace of its own and does all steps there.
pub(super) fn build(steps: &[MountStep]) -> Result<(), c_int> {
    // SAFETY: numbers only.
    check(unsafe { call!(libc::SYS_unshare, libc::CLONE_NEWNS) })?;
    // What is made here is for the run's user, whatever the daemon keeps from others. Unsharing made this mask our own.
    // SAFETY: numbers only.
    unsafe { call!(libc::SYS_umask, 0) };
    // Slave: what the host unmounts later goes away here too; nothing done here is seen there.
    let propagation = libc::MS_REC | libc::MS_SLAVE;
    // SAFETY: a constant string; the other pointers may be null for this operation.
    check(unsafe { call!(libc::SYS_mount, 0, c"/".as_ptr(), 0, propagation, 0) })?;
    for step in steps {
        build_mount(step)?;
    }
    Ok(())
}

/// Moves into a mount namespace above the one entered before, and does all steps there. A root daemon's steps are done
/// as the run's user, with root's powers, which are root's alone again afterwards.
pub(super) fn add(steps: &[MountStep], user: Option<User>) -> Result<(), c_int> {
    // SAFETY: numbers only.
    check(unsafe { call!(libc::SYS_unshare, libc::CLONE_NEWNS) })?;
    let propagation = libc::MS_REC | libc::MS_SLAVE;
    // SAFETY: a constant string; the other pointers may be null for this operation.
    check(unsafe { call!(libc::SYS_mount, 0, c"/".as_ptr(), 0, propagation, 0) })?;
    if let Some(user) = user {
        act_as(user.uid, user.gid)?;
    }
    let done = steps.iter().try_for_each(build_mount);
    if user.is_some() {
        act_as_root()?;
    }
    done
}

/// Keeps every power when the user changes.
const SECBIT_NO_SETUID_FIXUP: libc::c_ulong = 1 << 2;
const UNCHANGED: c_uint = c_uint::MAX;

fn act_as(uid: c_uint, gid: c_uint) -> Result<(), c_int> {
    // SAFETY: numbers only.
    unsafe {
        check(call!(libc::SYS_prctl, libc::PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0))?;
        check(call!(libc::SYS_setresgid, UNCHANGED, gid, UNCHANGED))?;
        check(call!(libc::SYS_setresuid, UNCHANGED, uid, UNCHANGED))
    }
}

fn act_as_root() -> Result<(), c_int> {
    // SAFETY: numbers only.
    unsafe {
        check(call!(libc::SYS_setresuid, UNCHANGED, 0, UNCHANGED))?;
        check(call!(libc::SYS_setresgid, UNCHANGED, 0, UNCHANGED))?;
        check(call!(libc::SYS_prctl, libc::PR_SET_SECUREBITS, 0, 0, 0, 0))
    }
}

fn build_mount(step: &MountStep) -> Result<(), c_int> {
    match step {
        MountStep::Tmpfs { target, options } => mount(c"tmpfs", target, libc::MS_NOSUID | libc::MS_NODEV, options),
        MountStep::Hide(target) => {
            let flags = libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
            mount(c"tmpfs", target, flags, c"mode=000,size=4k")
        }
        MountStep::Overlay { options, target, access } => {
            let read_only = if *access == TreeAccess::ReadOnly { libc::MS_RDONLY } else { 0 };
            mount(c"overlay", target, read_only | libc::MS_NOSUID | libc::MS_NODEV, options)
        }
        MountStep::Directory(path) => {
            // SAFETY: the string is NUL-terminated and outlives the call.
            check(unsafe { call!(libc::SYS_mkdirat, libc::AT_FDCWD, path.as_ptr(), 0o755) })
        }
        MountStep::File(path) => write_file(path, 0o644, &[]),
        MountStep::Program { path, content } => write_file(path, 0o755, content),
        MountStep::Whiteout(path) => {
            // SAFETY: as above. Device 0:0 is no device, so that making one takes no privilege.
            check(unsafe { call!(libc::SYS_mknodat, libc::AT_FDCWD, path.as_ptr(), libc::S_IFCHR, 0) })
        }
        MountStep::Cover { source, target } => {
            let cover = clone_tree(source)?;
            set_attributes(cover, c"", libc::AT_EMPTY_PATH, (MOUNT_ATTR_RDONLY, 0))?;
            attach(cover, target)
        }
        MountStep::Detach(target) => {
            // SAFETY: as above.
            check(unsafe { call!(libc::SYS_umount2, target.as_ptr(), libc::MNT_DETACH) })
        }
        MountStep::Attach { tree, target } => attach(std::os::fd::AsRawFd::as_raw_fd(&**tree), target),
        MountStep::AttachCopy { tree, target } => attach(tree.load(Ordering::Relaxed), target),
        MountStep::Copy { source, tree } => {
            let copy = clone_tree(source)?;
            tree.store(copy, Ordering::Relaxed);
            let set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
            set_attributes(copy, c"", libc::AT_EMPTY_PATH | libc::AT_RECURSIVE, (set, 0))
        }
        MountStep::ReadOnly => set_attributes(libc::AT_FDCWD, c"/", libc::AT_RECURSIVE, (MOUNT_ATTR_RDONLY, 0)),
        MountStep::Writable(path) => {
            // One that the host itself keeps read-only stays so.
            let _kept = set_attributes(libc::AT_FDCWD, path, 0, (0, MOUNT_ATTR_RDONLY));
            Ok(())
        }
    }
}

/// Mounts a new file system; its kind is also the name that the table of mounts shows.
fn mount(kind: &CStr, target: &CStr, flags: libc::c_ulong, options: &CStr) -> Result<(), c_int> {
    let (kind, target, options) = (kind.as_ptr(), target.as_ptr(), options.as_ptr());
    // SAFETY: all strings are NUL-terminated and outlive the call.
    check(unsafe { call!(libc::SYS_mount, kind, target, kind, flags, options) })
}

/// Makes a small file.
fn write_file(path: &CStr, mode: c_uint, content: &[u8]) -> Result<(), c_int> {
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY | libc::O_CLOEXEC;
    // SAFETY: the string is NUL-terminated, the content is of that length, and both outlive the calls.
    let (fd, written) = unsafe {
        let fd = call!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, mode);
        check(fd)?;
        (fd, call!(libc::SYS_write, fd, content.as_ptr(), content.len()))
    };
    // SAFETY: numbers only. A program that is open for writing cannot be executed.
    unsafe { call!(libc::SYS_close, fd) };
    check(written)?;
    if written as usize == content.len() { Ok(()) } else { Err(libc::ENOSPC) }
}

/// A copy of a mount and of all below it, attached nowhere yet.
fn clone_tree(source: &CStr) -> Result<c_int, c_int> {
    let flags = OPEN_TREE_CLONE | libc::AT_RECURSIVE as c_uint | libc::AT_SYMLINK_NOFOLLOW as c_uint;
    // SAFETY: the string is NUL-terminated and outlives the call.
    let copy = unsafe { call!(libc::SYS_open_tree, libc::AT_FDCWD, source.as_ptr(), flags) };
    check(copy)?;
    Ok(copy as c_int)
}

const OPEN_TREE_CLONE: c_uint = 1;
const MOUNT_ATTR_RDONLY: u64 = 0x1;
const MOUNT_ATTR_NOSUID: u64 = 0x2;
const MOUNT_ATTR_NODEV: u64 = 0x4;

fn attach(tree: c_int, target: &CStr) -> Result<(), c_int> {
    const MOVE_MOUNT_F_EMPTY_PATH: c_uint = 4;
    let (empty, here, flags) = (c"".as_ptr(), libc::AT_FDCWD, MOVE_MOUNT_F_EMPTY_PATH);
    // SAFETY: the strings are NUL-terminated; the source is the descriptor itself, its path empty.
    check(unsafe { call!(libc::SYS_move_mount, tree, empty, here, target.as_ptr(), flags) })
}

/// Sets and clears attributes of a mount.
fn set_attributes(directory: c_int, path: &CStr, flags: c_int, (set, clear): (u64, u64)) -> Result<(), c_int> {
    // The kernel's struct: to set, to clear, propagation, a user namespace.
    let attributes = [set, clear, 0u64, 0u64];
    let size = size_of_val(&attributes);
    // SAFETY: the path is NUL-terminated; the attributes are a live array of the struct's size and layout.
    check(unsafe { call!(libc::SYS_mount_setattr, directory, path.as_ptr(), flags, attributes.as_ptr(), size) })
}

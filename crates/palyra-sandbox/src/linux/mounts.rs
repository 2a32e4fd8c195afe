//! Builds a view of the file tree ([`super::view`]), in a process that lives until its namespaces are taken from it.
//!
//! That process runs on the daemon's memory, as those in [`super::child`] do, and keeps to the rule of that file: no allocation, no
//! lock, no panic, no C library; nothing but raw system calls on memory that was prepared before.
#![expect(unsafe_code, reason = "raw system calls on the daemon's memory")]

use super::child::check;
use super::plan::MountStep;
use super::raw::call;
use libc::{c_int, c_uint};
use std::ffi::CStr;
use std::sync::atomic::Ordering;

/// Moves into a mount namespace of its own and does all steps there.
pub(super) fn build(steps: &[MountStep]) -> Result<(), c_int> {
    // SAFETY: numbers only.
    check(unsafe { call!(libc::SYS_unshare, libc::CLONE_NEWNS) })?;
    // Slave: what the host unmounts later goes away here too; nothing done here is seen there.
    let propagation = libc::MS_REC | libc::MS_SLAVE;
    // SAFETY: a constant string; the other pointers may be null for this operation.
    check(unsafe { call!(libc::SYS_mount, 0, c"/".as_ptr(), 0, propagation, 0) })?;
    for step in steps {
        build_mount(step)?;
    }
    Ok(())
}

fn build_mount(step: &MountStep) -> Result<(), c_int> {
    match step {
        MountStep::Tmpfs { target, options } => {
            let (kind, flags) = (c"tmpfs".as_ptr(), libc::MS_NOSUID | libc::MS_NODEV);
            // SAFETY: all strings are NUL-terminated and outlive the call.
            check(unsafe { call!(libc::SYS_mount, kind, target.as_ptr(), kind, flags, options.as_ptr()) })
        }
        MountStep::Hide(target) => {
            let flags = libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
            let (kind, options) = (c"tmpfs".as_ptr(), c"mode=000,size=4k".as_ptr());
            // SAFETY: as above.
            check(unsafe { call!(libc::SYS_mount, kind, target.as_ptr(), kind, flags, options) })
        }
        MountStep::Directory(path) => {
            // SAFETY: as above.
            check(unsafe { call!(libc::SYS_mkdirat, libc::AT_FDCWD, path.as_ptr(), 0o755) })
        }
        MountStep::File(path) => {
            let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_CLOEXEC;
            // SAFETY: as above.
            check(unsafe { call!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o644) })
        }
        MountStep::Attach { tree, target } => attach(std::os::fd::AsRawFd::as_raw_fd(&**tree), target),
        MountStep::AttachCopy { tree, target } => attach(tree.load(Ordering::Relaxed), target),
        MountStep::Copy { source, tree } => {
            let flags = OPEN_TREE_CLONE | libc::AT_RECURSIVE as c_uint | libc::AT_SYMLINK_NOFOLLOW as c_uint;
            // SAFETY: as above.
            let copy = unsafe { call!(libc::SYS_open_tree, libc::AT_FDCWD, source.as_ptr(), flags) };
            check(copy)?;
            tree.store(copy as c_int, Ordering::Relaxed);
            let set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
            set_attributes(copy as c_int, c"", libc::AT_EMPTY_PATH | libc::AT_RECURSIVE, (set, 0))
        }
        MountStep::ReadOnly => set_attributes(libc::AT_FDCWD, c"/", libc::AT_RECURSIVE, (MOUNT_ATTR_RDONLY, 0)),
        MountStep::Writable(path) => {
            // One that the host itself keeps read-only stays so.
            let _kept = set_attributes(libc::AT_FDCWD, path, 0, (0, MOUNT_ATTR_RDONLY));
            Ok(())
        }
    }
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

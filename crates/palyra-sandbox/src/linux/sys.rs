//! The parent's raw system calls: those that no safe crate wraps.
//!
//! Each function is a thin, checked wrapper. None of them may run in the child: that has its own file.
#![expect(unsafe_code, reason = "system calls that rustix does not wrap")]

use super::child;
use super::plan::{Plan, User};
use libc::{c_int, c_long, c_uint};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The Landlock interface of the running kernel; 0 without it.
pub(super) fn landlock_abi() -> u32 {
    const LANDLOCK_CREATE_RULESET_VERSION: c_uint = 1;
    // SAFETY: with this flag the call takes no attributes and returns a number.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<u8>(),
            0usize,
            LANDLOCK_CREATE_RULESET_VERSION,
        )
    };
    u32::try_from(version).unwrap_or(0)
}

/// A new ruleset that takes away `files` and keeps inside what `scope` names.
pub(super) fn landlock_create(files: u64, scope: u64) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct RulesetAttr {
        files: u64,
        network: u64,
        scope: u64,
    }
    let attributes = RulesetAttr { files, network: 0, scope };
    // An older kernel wants only the part that it knows.
    let size = if scope == 0 { size_of::<u64>() } else { size_of::<RulesetAttr>() };
    // SAFETY: the attributes are a live struct of at least that size.
    let fd = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, &raw const attributes, size, 0) };
    owned(fd)
}

/// Gives `rights` on everything below `path`.
pub(super) fn landlock_add(ruleset: &OwnedFd, path: &OwnedFd, rights: u64) -> io::Result<()> {
    const LANDLOCK_RULE_PATH_BENEATH: c_int = 1;
    #[repr(C, packed)]
    struct PathBeneath {
        rights: u64,
        path: i32,
    }
    let rule = PathBeneath { rights, path: path.as_raw_fd() };
    // SAFETY: the rule is a live struct of the packed layout that the kernel defines.
    let result = unsafe {
        let (ruleset, rule) = (ruleset.as_raw_fd(), &raw const rule);
        libc::syscall(libc::SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, rule, 0)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn owned(fd: c_long) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as c_int) })
}

/// The supervisor of one run, as the daemon sees it.
#[derive(Debug)]
pub(super) struct Supervisor {
    pid: c_int,
    pidfd: OwnedFd,
    reaped: bool,
}

/// Forks the supervisor.
pub(super) fn fork_supervisor(plan: &Plan) -> io::Result<Supervisor> {
    // SAFETY: sets are plain bits, for which zero is valid; the calls fill them.
    let (all, mut before): (libc::sigset_t, libc::sigset_t) = unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        (all, std::mem::zeroed())
    };
    // No handler of the daemon's may run in the child.
    // SAFETY: both pointers are to local sets.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) };
    let mut pidfd: c_int = -1;
    let flags = c_long::from(libc::CLONE_PIDFD | libc::SIGCHLD);
    // SAFETY: without CLONE_VM and with a null stack this is a fork: the child gets a copy of everything and returns 0. It calls
    // only `supervise`, which never returns and keeps to system calls. The third argument is where the pidfd goes.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, &raw mut pidfd, 0, 0) };
    if pid == 0 {
        child::supervise(plan);
    }
    let error = io::Error::last_os_error();
    // SAFETY: restores what was saved above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    if pid < 0 {
        return Err(error);
    }
    // SAFETY: the kernel just gave us this descriptor, and nobody else has it.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Supervisor { pid: pid as c_int, pidfd, reaped: false })
}

impl Supervisor {
    /// Becomes readable when the supervisor is gone.
    pub(super) fn pidfd(&self) -> &OwnedFd {
        &self.pidfd
    }

    /// Asks it to end the run.
    pub(super) fn stop(&self) {
        self.signal(super::plan::STOP_SIGNAL);
    }

    /// Ends it without asking; whatever it supervised is then on its own.
    pub(super) fn kill(&self) {
        self.signal(libc::SIGKILL);
    }

    fn signal(&self, signal: c_int) {
        let info = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: numbers and a null pointer. A supervisor that is gone needs no signal.
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.pidfd.as_raw_fd(), signal, info, 0) };
    }

    /// Takes it off the process table; returns at once only if it is gone already.
    pub(super) fn reap(&mut self) {
        // SAFETY: waits for our own child; no status is wanted.
        while unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) } == -1
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
        self.reaped = true;
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if !self.reaped {
            // An error path: the run must not outlive the call.
            self.stop();
            self.reap();
        }
    }
}

/// Whether a cloned tree may be written through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TreeAccess {
    /// As far as the file system allows.
    Write,
    /// Not at all.
    ReadOnly,
}

/// Clones the mount at `path` and all below it, detached, without set-id programs and devices. With a table its owners are mapped.
pub(super) fn clone_mount(path: &Path, access: TreeAccess, owners: Option<&OwnedFd>) -> io::Result<OwnedFd> {
    let tree = clone_tree(path)?;
    let mut attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
    if access == TreeAccess::ReadOnly {
        attributes |= MOUNT_ATTR_RDONLY;
    }
    if owners.is_some() {
        attributes |= MOUNT_ATTR_IDMAP;
    }
    set_attributes(&tree, attributes, owners)?;
    Ok(tree)
}

const MOUNT_ATTR_RDONLY: u64 = 0x1;
const MOUNT_ATTR_NOSUID: u64 = 0x2;
const MOUNT_ATTR_NODEV: u64 = 0x4;
const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;

fn clone_tree(path: &Path) -> io::Result<OwnedFd> {
    const OPEN_TREE_CLONE: c_uint = 1;
    let path = CString::new(path.as_os_str().as_bytes())?;
    let flags = OPEN_TREE_CLONE
        | libc::O_CLOEXEC as c_uint
        | libc::AT_RECURSIVE as c_uint
        | libc::AT_SYMLINK_NOFOLLOW as c_uint;
    // SAFETY: the path is NUL-terminated and outlives the call.
    let fd = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) };
    owned(fd)
}

#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

fn set_attributes(tree: &OwnedFd, set: u64, user_namespace: Option<&OwnedFd>) -> io::Result<()> {
    let attributes = MountAttr {
        set,
        clear: 0,
        propagation: 0,
        user_namespace: user_namespace.map_or(0, |fd| u64::from(fd.as_raw_fd().unsigned_abs())),
    };
    let flags = libc::AT_EMPTY_PATH as c_uint | libc::AT_RECURSIVE as c_uint;
    // SAFETY: the attributes are a live struct of the size given; the path is empty, as AT_EMPTY_PATH wants.
    let result = unsafe {
        let (attributes, size) = (&raw const attributes, size_of::<MountAttr>());
        libc::syscall(libc::SYS_mount_setattr, tree.as_raw_fd(), c"".as_ptr(), flags, attributes, size)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A user namespace whose only purpose is to be a table: `disk` on the left, `sandbox` on the right.
pub(super) fn mapping_namespace(disk: User, sandbox: User) -> io::Result<OwnedFd> {
    // A process has to live in the namespace while its table is written: one that only waits to be killed.
    let mut pidfd: c_int = -1;
    let flags = c_long::from(libc::CLONE_NEWUSER | libc::CLONE_PIDFD | libc::SIGCHLD);
    // SAFETY: a fork, as in `fork_supervisor`; the child makes one harmless call in a loop and never returns.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, &raw mut pidfd, 0, 0) };
    if pid == 0 {
        loop {
            // SAFETY: waits for a signal; SIGKILL is the one that comes.
            unsafe { libc::pause() };
        }
    }
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nobody else has.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    let mut holder = Supervisor { pid: pid as c_int, pidfd, reaped: false };
    let namespace = write_maps(pid, disk, sandbox);
    holder.kill();
    holder.reap();
    namespace
}

fn write_maps(pid: c_long, disk: User, sandbox: User) -> io::Result<OwnedFd> {
    std::fs::write(format!("/proc/{pid}/uid_map"), map_text(disk.uid, sandbox.uid))?;
    std::fs::write(format!("/proc/{pid}/gid_map"), map_text(disk.gid, sandbox.gid))?;
    Ok(std::fs::File::open(format!("/proc/{pid}/ns/user"))?.into())
}

/// `disk` appears as `sandbox`; every other owner as itself, but for the one whose number `sandbox` took.
fn map_text(disk: u32, sandbox: u32) -> String {
    let mut lines = vec![format!("{disk} {sandbox} 1")];
    let mut start = 0u32;
    let mut cuts = [disk, sandbox];
    cuts.sort_unstable();
    for cut in cuts {
        if cut > start {
            lines.push(format!("{start} {start} {}", cut - start));
        }
        start = start.max(cut.saturating_add(1));
    }
    // The last number is reserved.
    let rest = u32::MAX - start;
    if rest > 0 {
        lines.push(format!("{start} {start} {rest}"));
    }
    lines.join("\n")
}

/// How many processes and threads the machine runs now.
pub(super) fn task_count() -> u64 {
    // SAFETY: sysinfo is plain numbers, for which zero is valid; the call fills it.
    let info = unsafe {
        let mut info: libc::sysinfo = std::mem::zeroed();
        libc::sysinfo(&raw mut info);
        info
    };
    u64::from(info.procs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_leaves_other_owners_alone() {
        assert_eq!(map_text(0, 65534), "0 65534 1\n1 1 65533\n65535 65535 4294901760");
        assert_eq!(map_text(5, 5), "5 5 1\n0 0 5\n6 6 4294967289");
    }
}

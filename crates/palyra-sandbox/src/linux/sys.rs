//! The parent's raw system calls: those that no safe crate wraps.
//!
//! Each function is a thin, checked wrapper. None of them may run in the child: that has its own file.
#![expect(unsafe_code, reason = "system calls that rustix does not wrap")]

use super::child;
use super::mounts;
use super::plan::{MountStep, Plan, Stack, TreeAccess, User};
use super::raw;
use libc::{c_int, c_long, c_uint, c_void};
use std::ffi::CString;
use std::io;
use std::marker::PhantomData;
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
pub(super) struct Supervisor<'plan> {
    pid: c_int,
    pidfd: OwnedFd,
    reaped: bool,
    /// What it works with, and on: borrowed until it is reaped.
    _plan: PhantomData<&'plan Plan>,
}

/// Starts the supervisor.
pub(super) fn start_supervisor(plan: &Plan) -> io::Result<Supervisor<'_>> {
    let argument = std::ptr::from_ref(plan).cast_mut().cast();
    // No handler of the daemon's may run in the child.
    let _blocked = BlockedSignals::all();
    // SAFETY: the stack belongs to the plan and is used for nothing else; `supervise` keeps to its file's rule and
    // reads only the plan, which outlives it: `Supervisor` borrows it and reaps when dropped.
    let started = unsafe { spawn(0, &plan.supervisor_stack, child::supervise, argument) }?;
    Ok(Supervisor { pid: started.0, pidfd: started.1, reaped: false, _plan: PhantomData })
}

/// Starts a process on this one's memory.
///
/// # Safety
/// As [`raw::spawn`]; nothing else may use the stack while the process lives.
pub(super) unsafe fn spawn(
    flags: c_int,
    stack: &Stack,
    entry: extern "C" fn(*mut c_void) -> c_int,
    argument: *mut c_void,
) -> io::Result<(c_int, OwnedFd)> {
    let mut pidfd: c_int = -1;
    let flags = libc::CLONE_VM | libc::CLONE_PIDFD | libc::SIGCHLD | flags;
    // SAFETY: the caller's promise, and a local int for the descriptor.
    let pid = unsafe { raw::spawn(flags as usize, stack.top(), entry, argument, &raw mut pidfd) };
    if pid < 0 {
        return Err(io::Error::from_raw_os_error(-(pid as c_int)));
    }
    // SAFETY: the kernel just gave us this descriptor, and nobody else has it.
    Ok((pid as c_int, unsafe { OwnedFd::from_raw_fd(pidfd) }))
}

/// While this lives, the calling thread takes no signals.
pub(super) struct BlockedSignals(libc::sigset_t);

impl BlockedSignals {
    pub(super) fn all() -> Self {
        // SAFETY: sets are plain bits, for which zero is valid; the calls get pointers to local sets.
        unsafe {
            let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            Self(before)
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: restores what was saved.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }
}

/// Writes to a pipe. One that nobody reads any more gives an error, never the signal that would end a daemon that does
/// not ignore it.
pub(super) fn write_quietly(pipe: &OwnedFd, bytes: &[u8]) -> Result<usize, rustix::io::Errno> {
    let blocked = BlockedSignals::all();
    let result = rustix::io::write(pipe, bytes);
    if result == Err(rustix::io::Errno::PIPE) {
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the set is plain bits, for which zero is valid; all pointers are to locals or null. Takes the signal
        // that this thread was just sent, before it is let through again.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&raw mut set, libc::SIGPIPE);
            libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const now);
        }
    }
    drop(blocked);
    result
}

impl Supervisor<'_> {
    /// Becomes readable when the supervisor is gone.
    pub(super) fn pidfd(&self) -> &OwnedFd {
        &self.pidfd
    }

    /// Asks it to end the run.
    pub(super) fn stop(&self) {
        signal(&self.pidfd, super::plan::STOP_SIGNAL);
    }

    /// Ends it without asking; whatever it supervised is then on its own.
    pub(super) fn kill(&self) {
        signal(&self.pidfd, libc::SIGKILL);
    }

    /// Takes it off the process table; returns at once only if it is gone already.
    pub(super) fn reap(&mut self) {
        reap(self.pid);
        self.reaped = true;
    }
}

impl Drop for Supervisor<'_> {
    fn drop(&mut self) {
        if !self.reaped {
            // An error path: the run must not outlive the call, nor the supervisor its plan.
            self.stop();
            self.reap();
        }
    }
}

fn signal(pidfd: &OwnedFd, signal: c_int) {
    let info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: numbers and a null pointer. A process that is gone needs no signal.
    unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, info, 0) };
}

/// Waits for a child of ours to be gone.
pub(super) fn reap(pid: c_int) {
    // SAFETY: waits for our own child; no status is wanted.
    while unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) } == -1
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
}

/// What a process that only holds a namespace open is given.
struct HolderTask<'a> {
    /// The daemon. A holder has the daemon's memory and descriptors, so it must never outlive it.
    parent: c_int,
    steps: &'a [MountStep],
    /// Where it is told to begin.
    begin: c_int,
    /// Where it tells whether it succeeded.
    report: c_int,
}

/// What is made around a mount namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Around {
    /// Nothing: the daemon has the power to make one.
    Nothing,
    /// A user namespace that maps the daemon's user to itself, and in which it has that power.
    UserNamespace,
}

/// A mount namespace, kept by its descriptors alone.
#[derive(Debug)]
pub(super) struct MadeNamespace {
    pub(super) mounts: OwnedFd,
    pub(super) users: Option<OwnedFd>,
    /// The top of its tree.
    pub(super) top: OwnedFd,
}

/// Makes a mount namespace with these steps done in it.
pub(super) fn mount_namespace(steps: &[MountStep], around: Around) -> io::Result<MadeNamespace> {
    let (answer, report) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let (begin, start) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let stack = Stack::new();
    let task = HolderTask { parent: own_pid(), steps, begin: begin.as_raw_fd(), report: report.as_raw_fd() };
    let argument = std::ptr::from_ref(&task).cast_mut().cast();
    let flags = if around == Around::UserNamespace { libc::CLONE_NEWUSER } else { 0 };
    let blocked = BlockedSignals::all();
    // SAFETY: the stack and the task outlive the process, which is reaped below on every path.
    let (pid, pidfd) = unsafe { spawn(flags, &stack, hold_mounts, argument) }?;
    drop(blocked);
    drop(report);
    let namespace = prepare_namespace(pid, around)
        .and_then(|()| Ok(rustix::io::write(&start, &[1]).map(drop)?))
        .and_then(|()| wait_until_built(&answer))
        .and_then(|()| take_namespace(pid, around));
    signal(&pidfd, libc::SIGKILL);
    reap(pid);
    namespace
}

/// Maps the daemon's user to itself in a user namespace, before anything is made in it: what nobody is mapped to makes
/// no files.
fn prepare_namespace(pid: c_int, around: Around) -> io::Result<()> {
    if around == Around::Nothing {
        return Ok(());
    }
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // Whoever has no power outside must give up changing groups inside before it may map its own.
    std::fs::write(format!("/proc/{pid}/setgroups"), "deny")?;
    std::fs::write(format!("/proc/{pid}/uid_map"), format!("{uid} {uid} 1"))?;
    std::fs::write(format!("/proc/{pid}/gid_map"), format!("{gid} {gid} 1"))
}

/// Hears from a holder whether it succeeded.
fn wait_until_built(answer: &OwnedFd) -> io::Result<()> {
    let mut errno = [0u8; 4];
    match rustix::io::read(answer, &mut errno)? {
        4 if i32::from_ne_bytes(errno) == 0 => Ok(()),
        4 => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(errno))),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Opens what a process holds, which may then go.
fn take_namespace(pid: c_int, around: Around) -> io::Result<MadeNamespace> {
    let open = |name: &str| std::fs::File::open(format!("/proc/{pid}/{name}")).map(OwnedFd::from);
    let users = if around == Around::UserNamespace { Some(open("ns/user")?) } else { None };
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let top = rustix::fs::open(format!("/proc/{pid}/root"), flags, rustix::fs::Mode::empty())?;
    Ok(MadeNamespace { mounts: open("ns/mnt")?, users, top })
}

/// A `/proc`, attached nowhere yet, in which a process sees only those that it may trace.
pub(super) fn traceable_processes() -> io::Result<OwnedFd> {
    const CLOSE_ON_EXEC: c_uint = 1;
    const SET_STRING: c_uint = 1;
    const CREATE: c_uint = 6;
    const MOUNT_ATTR_NOEXEC: u64 = 0x8;
    let none = std::ptr::null::<u8>();
    // SAFETY: a constant, NUL-terminated string.
    let context = owned(unsafe { libc::syscall(libc::SYS_fsopen, c"proc".as_ptr(), CLOSE_ON_EXEC) })?;
    let configure = |command: c_uint, key: *const u8, value: *const u8| {
        // SAFETY: the strings are NUL-terminated constants, or null where the command takes none.
        let done = unsafe { libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), command, key, value, 0) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    configure(SET_STRING, c"hidepid".as_ptr().cast(), c"ptraceable".as_ptr().cast())?;
    configure(CREATE, none, none)?;
    let attributes = (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC) as c_uint;
    // SAFETY: numbers only.
    owned(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), CLOSE_ON_EXEC, attributes) })
}

extern "C" fn hold_mounts(argument: *mut c_void) -> c_int {
    // SAFETY: `mount_namespace` passes a pointer to a live task.
    let task = unsafe { &*argument.cast::<HolderTask<'_>>() };
    child::die_with(task.parent);
    let mut told = 0u8;
    // SAFETY: fills a local byte.
    unsafe { raw::call!(libc::SYS_read, task.begin, &raw mut told, 1) };
    let errno: c_int = mounts::build(task.steps).err().unwrap_or(0);
    // SAFETY: a live int of four bytes.
    unsafe { raw::call!(libc::SYS_write, task.report, &raw const errno, 4) };
    wait_to_be_killed()
}

fn wait_to_be_killed() -> ! {
    loop {
        // SAFETY: all pointers are null and no descriptors are given: waits for a signal; SIGKILL is the one that
        // comes.
        unsafe { raw::call!(libc::SYS_ppoll, 0, 0, 0, 0, 8) };
    }
}

/// Clones the mount at `path` and all below it, detached, without set-id programs and devices. With a table its owners
/// are mapped.
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
    let stack = Stack::new();
    let parent = own_pid();
    let argument = std::ptr::from_ref(&parent).cast_mut().cast();
    let blocked = BlockedSignals::all();
    // A process has to live in the namespace while its table is written: one that only waits to be killed.
    // SAFETY: the stack and the number outlive the process, which is reaped below.
    let (pid, pidfd) = unsafe { spawn(libc::CLONE_NEWUSER, &stack, hold_table, argument) }?;
    drop(blocked);
    let namespace = write_maps(pid, disk, sandbox);
    signal(&pidfd, libc::SIGKILL);
    reap(pid);
    namespace
}

extern "C" fn hold_table(argument: *mut c_void) -> c_int {
    // SAFETY: `mapping_namespace` passes a pointer to a live number.
    child::die_with(unsafe { *argument.cast::<c_int>() });
    wait_to_be_killed()
}

/// The daemon's process id.
pub(super) fn own_pid() -> c_int {
    // SAFETY: no arguments; always succeeds.
    unsafe { libc::getpid() }
}

fn write_maps(pid: c_int, disk: User, sandbox: User) -> io::Result<OwnedFd> {
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

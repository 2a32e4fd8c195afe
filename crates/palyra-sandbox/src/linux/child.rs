//! The two processes between the daemon and the command: what they do after the fork.
//!
//! The daemon forks a **supervisor**, which never executes anything: it closes every descriptor that is not its own, becomes
//! the reaper of all orphans below it, raises the fence, starts the **command**, and then waits. When the command
//! ends, or the daemon asks for it, or the daemon is gone, it kills everything in the run, waits until nothing is left,
//! and reports. So a grandchild that detached itself, or holds a pipe open, ends with the run, and no other run is
//! touched. The alternatives were worse: making the daemon itself the reaper cannot tell whose orphan it adopts; process
//! groups and sessions can be left; a PID namespace needs privileges that Tier B does not presume.
//!
//! RULE OF THIS FILE: no allocation, no lock, no panic, nothing but system calls on memory that [`Plan`] prepared. The supervisor
//! is a copy of the daemon and thus holds its secrets: it makes itself unreadable before it does anything else.
#![expect(unsafe_code, reason = "raw system calls between fork and exec")]

use super::plan::{MountStep, Plan, Program, Record, STOP_SIGNAL, Step, TAG_ENDED, TAG_FAILED};
use libc::{c_int, c_long, c_uint, c_void};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// What the command, which shares the supervisor's memory until it is executed, tells it.
struct Shared<'a> {
    plan: &'a Plan,
    done: AtomicU32,
    failed_step: AtomicU32,
    errno: AtomicI32,
}

const NO_STEP: u32 = u32::MAX;
const EXIT_SETUP_FAILED: c_int = 127;

/// The supervisor's whole life. Runs in the forked child, with every signal blocked, and never returns.
pub(super) fn supervise(plan: &Plan) -> ! {
    let shared =
        Shared { plan, done: AtomicU32::new(0), failed_step: AtomicU32::new(NO_STEP), errno: AtomicI32::new(0) };
    if let Err(step) = prepare_supervisor(&shared) {
        fail(plan, step, errno());
    }
    let command = start_command(&shared);
    if command < 0 {
        fail(plan, Step::Execute, errno());
    }
    let failed = shared.failed_step.load(Ordering::Relaxed);
    if failed != NO_STEP {
        // SAFETY: reaps our own child; no status is wanted.
        unsafe { libc::waitpid(command, std::ptr::null_mut(), 0) };
        let errno = i64::from(shared.errno.load(Ordering::Relaxed));
        report(plan, Record { tag: TAG_FAILED, step: failed, value: errno, cpu_us: 0, peak_kib: 0 });
        exit(EXIT_SETUP_FAILED);
    }
    let done = shared.done.load(Ordering::Relaxed);
    release_pipes(plan);

    let status = wait_for_end(command);
    let status = end_tree(command, status, done & Step::FenceProven.bit() != 0);
    report(plan, ended_record(done, status));
    exit(0)
}

fn prepare_supervisor(shared: &Shared<'_>) -> Result<(), Step> {
    let plan = shared.plan;
    let done = |step: Step| shared.done.fetch_or(step.bit(), Ordering::Relaxed);
    // SAFETY: prctl with these options reads no memory.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
    close_others(&plan.keep).map_err(|()| Step::Descriptors)?;
    done(Step::Descriptors);
    if !plan.mounts.is_empty() {
        build_mounts(&plan.mounts).map_err(|()| Step::Mounts)?;
        done(Step::Mounts);
    }
    // SAFETY: prctl with this option reads no memory.
    ok(c_long::from(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) })).map_err(|()| Step::Subreaper)?;
    done(Step::Subreaper);

    // SAFETY: prctl with this option reads no memory.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, STOP_SIGNAL, 0, 0, 0) };
    // SAFETY: getppid takes no arguments.
    if unsafe { libc::getppid() } != plan.parent {
        exit(EXIT_SETUP_FAILED);
    }
    if let Some(fence) = &plan.fence {
        // SAFETY: prctl with this option reads no memory. Landlock demands it of whoever lacks CAP_SYS_ADMIN.
        unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
        restrict(fence.as_raw_fd()).map_err(|()| Step::Fence)?;
        done(Step::Fence);
        // The proof that `kill(-1)` will stay inside: the daemon, outside, can no longer be signalled.
        // SAFETY: kill with signal 0 only asks.
        if unsafe { libc::kill(plan.parent, 0) } == -1 && errno() == libc::EPERM {
            done(Step::FenceProven);
        }
    }
    Ok(())
}

/// Starts the command on a stack of its own, sharing memory until it is executed, so that nothing has to be copied twice.
fn start_command(shared: &Shared<'_>) -> c_int {
    let stack = &shared.plan.stack;
    // SAFETY: one past the last element of the stack's own allocation; the stack grows down from there.
    let top = unsafe { stack.as_ptr().add(stack.len()) }.cast::<c_void>().cast_mut();
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let argument = std::ptr::from_ref(shared).cast_mut().cast::<c_void>();
    // SAFETY: `command_entry` gets a pointer to `shared`, which outlives it: with CLONE_VFORK this thread stands still until
    // the command is executed or gone. Nothing else uses the stack.
    unsafe { libc::clone(command_entry, top, flags, argument) }
}

extern "C" fn command_entry(argument: *mut c_void) -> c_int {
    // SAFETY: `start_command` passes a pointer to a live `Shared`.
    let shared = unsafe { &*argument.cast::<Shared<'_>>() };
    let step = match become_command(shared) {
        Ok(never) => match never {},
        Err(step) => step,
    };
    shared.errno.store(errno(), Ordering::Relaxed);
    shared.failed_step.store(step as u32, Ordering::Relaxed);
    EXIT_SETUP_FAILED
}

/// From clone to exec. The order matters: privileged steps first, then the user, then what cannot be taken back.
fn become_command(shared: &Shared<'_>) -> Result<std::convert::Infallible, Step> {
    let plan = shared.plan;
    let done = |step: Step| shared.done.fetch_or(step.bit(), Ordering::Relaxed);

    for group in &plan.control_groups {
        // "0" means the writer itself.
        // SAFETY: the buffer is a static byte string of the given length.
        ok(unsafe { libc::write(group.as_raw_fd(), c"0".as_ptr().cast(), 1) } as c_long)
            .map_err(|()| Step::ControlGroup)?;
        done(Step::ControlGroup);
    }
    // SAFETY: setsid takes no arguments.
    ok(c_long::from(unsafe { libc::setsid() })).map_err(|()| Step::Session)?;
    done(Step::Session);
    set_rlimits(plan).map_err(|()| Step::Rlimits)?;
    done(Step::Rlimits);
    if plan.user.is_some() {
        become_user(plan).map_err(|()| Step::User)?;
        done(Step::User);
    }
    // SAFETY: the string is NUL-terminated and lives in the plan.
    ok(c_long::from(unsafe { libc::chdir(plan.working_directory.as_ptr()) })).map_err(|()| Step::WorkingDirectory)?;
    done(Step::WorkingDirectory);
    // SAFETY: prctl with this option reads no memory. After the user: changing that clears it.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
    // SAFETY: as above.
    ok(c_long::from(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }))
        .map_err(|()| Step::NoNewPrivileges)?;
    done(Step::NoNewPrivileges);
    if let Some(files) = &plan.files {
        restrict(files.as_raw_fd()).map_err(|()| Step::Files)?;
        done(Step::Files);
    }
    place_descriptors(plan).map_err(|()| Step::Descriptors)?;
    restore_signals();
    if let Some(filter) = plan.seccomp {
        install_filter(filter).map_err(|()| Step::Seccomp)?;
        done(Step::Seccomp);
    }
    done(Step::Execute);
    execute(plan);
    shared.done.fetch_and(!Step::Execute.bit(), Ordering::Relaxed);
    Err(Step::Execute)
}

fn execute(plan: &Plan) {
    let (argv, env) = (plan.argv.as_ptr(), plan.env.as_ptr());
    match &plan.program {
        Program::File(fd) => {
            // SAFETY: both arrays end in a null pointer and own their strings; the path is the empty string that AT_EMPTY_PATH wants.
            unsafe { libc::syscall(libc::SYS_execveat, fd.as_raw_fd(), c"".as_ptr(), argv, env, libc::AT_EMPTY_PATH) };
        }
        Program::Path(path) => {
            // SAFETY: as above; the path is NUL-terminated.
            unsafe { libc::execve(path.as_ptr(), argv, env) };
        }
    }
}

fn set_rlimits(plan: &Plan) -> Result<(), ()> {
    for (resource, value) in &plan.rlimits {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the pointer is to a local rlimit that the call fills.
        ok(c_long::from(unsafe { libc::getrlimit(*resource, &raw mut limit) }))?;
        let hard = if *resource == libc::RLIMIT_CPU { value.saturating_add(1) } else { *value };
        // Without privileges a limit can only be lowered: keep the host's where that is lower.
        limit.rlim_max = limit.rlim_max.min(hard);
        limit.rlim_cur = limit.rlim_max.min(*value);
        // SAFETY: the pointer is to a local, filled rlimit.
        ok(c_long::from(unsafe { libc::setrlimit(*resource, &raw const limit) }))?;
    }
    Ok(())
}

/// Gives up root for good. Raw calls: libc's would try to change every thread of the process, and there is only this one.
fn become_user(plan: &Plan) -> Result<(), ()> {
    let Some(user) = plan.user else { return Ok(()) };
    let (uid, gid) = (c_long::from(user.uid), c_long::from(user.gid));
    // SAFETY: no groups: the pointer is not read.
    ok(unsafe { libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<c_void>()) })?;
    // SAFETY: these two calls take numbers only.
    ok(unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) })?;
    // SAFETY: as above.
    ok(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) })
}

/// Puts the pipes on 0, 1 and 2 and lets the inherited descriptors through; everything else closes on exec.
fn place_descriptors(plan: &Plan) -> Result<(), ()> {
    for (target, fd) in (0..).zip(&plan.stdio) {
        // SAFETY: dup2 takes numbers only. The pipes were created above 2, so that none is overwritten here.
        ok(c_long::from(unsafe { libc::dup2(fd.as_raw_fd(), target) }))?;
    }
    for fd in &plan.inherited {
        // SAFETY: fcntl with F_SETFD takes numbers only.
        ok(c_long::from(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, 0) }))?;
    }
    Ok(())
}

/// Default handling for every signal, and none blocked: the command must not inherit what the daemon ignores.
fn restore_signals() {
    // SAFETY: an all-zero sigaction means the default handler (SIG_DFL is 0) with an empty mask.
    let default: libc::sigaction = unsafe { std::mem::zeroed() };
    for signal in 1..=64 {
        // SAFETY: the pointer is to a local sigaction. SIGKILL, SIGSTOP and libc's own signals are refused, which is right.
        unsafe { libc::sigaction(signal, &raw const default, std::ptr::null_mut()) };
    }
    // SAFETY: an all-zero set is the empty set.
    let none: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a local set.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()) };
}

fn restrict(ruleset: RawFd) -> Result<(), ()> {
    // SAFETY: the call takes numbers only.
    ok(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0) })
}

fn install_filter(filter: &[libc::sock_filter]) -> Result<(), ()> {
    const SECCOMP_SET_MODE_FILTER: c_uint = 1;
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the program points to a live filter of that length, which the kernel copies.
    ok(unsafe { libc::syscall(libc::SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &raw const program) })
}

/// Builds the private view of the file tree in a mount namespace of its own.
fn build_mounts(steps: &[MountStep]) -> Result<(), ()> {
    const MOVE_MOUNT_F_EMPTY_PATH: c_uint = 4;
    // SAFETY: unshare takes flags only.
    ok(c_long::from(unsafe { libc::unshare(libc::CLONE_NEWNS) }))?;
    // Slave: what the host unmounts later goes away here too; nothing done here is seen there.
    // SAFETY: constant NUL-terminated strings; the other pointers may be null for this operation.
    ok(c_long::from(unsafe {
        libc::mount(std::ptr::null(), c"/".as_ptr(), std::ptr::null(), libc::MS_REC | libc::MS_SLAVE, std::ptr::null())
    }))?;
    for step in steps {
        let result = match step {
            MountStep::Tmpfs { target, options } => {
                let flags = libc::MS_NOSUID | libc::MS_NODEV;
                let (kind, target, options) = (c"tmpfs".as_ptr(), target.as_ptr(), options.as_ptr().cast());
                // SAFETY: all strings are NUL-terminated and live in the plan.
                c_long::from(unsafe { libc::mount(kind, target, kind, flags, options) })
            }
            // SAFETY: the path is NUL-terminated and lives in the plan.
            MountStep::Directory(path) => c_long::from(unsafe { libc::mkdir(path.as_ptr(), 0o755) }),
            MountStep::File(path) => {
                let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_CLOEXEC;
                // SAFETY: as above.
                c_long::from(unsafe { libc::open(path.as_ptr(), flags, 0o644) })
            }
            // SAFETY: as above; the source is the descriptor itself, its path empty.
            MountStep::Attach { tree, target } => unsafe {
                let (tree, target) = (tree.as_raw_fd(), target.as_ptr());
                libc::syscall(libc::SYS_move_mount, tree, c"".as_ptr(), libc::AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH)
            },
        };
        ok(result)?;
    }
    Ok(())
}

/// Closes every descriptor that is not in `keep` (ascending). The copy of the daemon must hold none of its sockets and, above
/// all, none of the pipes of other runs, which would otherwise never see their end.
fn close_others(keep: &[RawFd]) -> Result<(), ()> {
    let mut first: c_uint = 0;
    for fd in keep {
        let fd = *fd as c_uint;
        if fd > first {
            close_range(first, fd - 1)?;
        }
        first = fd + 1;
    }
    close_range(first, c_uint::MAX)
}

fn close_range(first: c_uint, last: c_uint) -> Result<(), ()> {
    // SAFETY: the call takes numbers only.
    ok(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) })
}

/// After the start only the report is still needed: a pipe end kept here would hide the end of the stream.
fn release_pipes(plan: &Plan) {
    // Fails only without close_range, which `close_others` has already shown to exist.
    let _kept = close_others(&[plan.report.as_raw_fd()]);
}

/// Waits until the command has ended or the end is asked for. Returns the command's wait status if it ended by itself.
fn wait_for_end(command: c_int) -> Option<c_int> {
    // SAFETY: an all-zero set is the empty set; the calls get pointers to it.
    let set = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        libc::sigaddset(&raw mut set, STOP_SIGNAL);
        set
    };
    loop {
        loop {
            let mut status = 0;
            // SAFETY: the pointer is to a local int.
            let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
            if pid == command {
                return Some(status);
            }
            if pid <= 0 {
                break;
            }
        }
        // SAFETY: the set is initialised; a null info pointer is allowed.
        let signal = unsafe { libc::sigwaitinfo(&raw const set, std::ptr::null_mut()) };
        if signal == STOP_SIGNAL {
            return None;
        }
    }
}

/// Kills everything that is left of the run and waits until it is gone. Returns the command's wait status.
fn end_tree(command: c_int, ended: Option<c_int>, fenced: bool) -> c_int {
    let mut command_status = ended;
    loop {
        // The usual case: the command was the last of its tree.
        // SAFETY: no status is wanted; only whether a child is left.
        if command_status.is_some() && unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } == -1 {
            return command_status.unwrap_or(libc::SIGKILL);
        }
        if fenced {
            // Reaches every process behind the fence at once; a fork under way fails, so one pass leaves nothing.
            // SAFETY: kill takes numbers only. `fenced` was proven in `prepare_supervisor`.
            unsafe { libc::kill(-1, libc::SIGKILL) };
        } else {
            kill_children();
            if command_status.is_none() {
                // SAFETY: kill takes numbers only; the command leads a group of its own number.
                unsafe { libc::kill(-command, libc::SIGKILL) };
            }
        }
        let mut status = 0;
        // SAFETY: the pointer is to a local int.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, 0) };
        if pid == command {
            command_status = Some(status);
        } else if pid < 0 && errno() == libc::ECHILD {
            return command_status.unwrap_or(libc::SIGKILL);
        }
    }
}

/// Without the fence: kills the supervisor's own children. Those of a killed child become the supervisor's, so repeating it
/// reaches all.
fn kill_children() {
    let mut buffer = [0u8; 4096];
    // SAFETY: the path is NUL-terminated.
    let fd = unsafe { libc::open(c"/proc/thread-self/children".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if fd < 0 {
        return;
    }
    // SAFETY: the buffer is writable and of that length.
    let length = unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) };
    // SAFETY: closing our own descriptor.
    unsafe { libc::close(fd) };
    let length = usize::try_from(length).unwrap_or(0);
    let mut pid: c_int = 0;
    for byte in &buffer[..length] {
        if byte.is_ascii_digit() {
            pid = pid.wrapping_mul(10).wrapping_add(c_int::from(byte - b'0'));
        } else {
            if pid > 0 {
                // SAFETY: kill takes numbers only; a child that is not reaped yet keeps its number.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
            pid = 0;
        }
    }
}

fn ended_record(done: u32, status: c_int) -> Record {
    // SAFETY: rusage is plain numbers, for which zero is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a local rusage that the call fills.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    let micros = |t: libc::timeval| t.tv_sec.wrapping_mul(1_000_000).wrapping_add(t.tv_usec);
    Record {
        tag: TAG_ENDED,
        step: done,
        value: i64::from(status),
        cpu_us: micros(usage.ru_utime).wrapping_add(micros(usage.ru_stime)),
        peak_kib: usage.ru_maxrss,
    }
}

fn report(plan: &Plan, record: Record) {
    let bytes = std::ptr::from_ref(&record).cast::<c_void>();
    // SAFETY: the record is a live value of that many bytes, all of them initialised: five fields without padding.
    // A daemon that no longer listens is gone, and then so are we.
    unsafe { libc::write(plan.report.as_raw_fd(), bytes, Record::BYTES) };
}

fn fail(plan: &Plan, step: Step, errno: c_int) -> ! {
    report(plan, Record { tag: TAG_FAILED, step: step as u32, value: i64::from(errno), cpu_us: 0, peak_kib: 0 });
    exit(EXIT_SETUP_FAILED)
}

fn exit(code: c_int) -> ! {
    // SAFETY: ends the process without running anything of the daemon's.
    unsafe { libc::_exit(code) }
}

fn ok(result: c_long) -> Result<(), ()> {
    if result == -1 { Err(()) } else { Ok(()) }
}

fn errno() -> c_int {
    // SAFETY: points to this thread's own errno.
    unsafe { *libc::__errno_location() }
}

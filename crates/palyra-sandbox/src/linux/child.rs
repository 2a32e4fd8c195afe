//! The two processes between the daemon and the command: what they do from clone to end.
//!
//! The daemon starts a **supervisor**, which never executes anything: it closes every descriptor that is not its own,
//! becomes the reaper of all orphans below it, raises the fence, starts the **command**, and then waits. When the
//! command ends, or the daemon asks for it, or the daemon is gone, it kills everything in the run, waits until nothing
//! is left, and reports. So a grandchild that detached itself, or holds a pipe open, ends with the run, and no other
//! run is touched. The alternatives were worse: making the daemon itself the reaper cannot tell whose orphan it adopts;
//! process groups and sessions can be left; a PID namespace needs privileges that Tier B does not presume.
//!
//! Both share the daemon's memory (the command until it is executed), so that starting one costs the same however large
//! the daemon is, and no copy of its secrets is made. That is also the danger. RULE OF THIS FILE: no allocation, no
//! lock, no panic, no thread-local storage, hence no C library: nothing but [`super::raw`] system calls on memory that
//! [`Plan`] prepared and that the daemon leaves alone until the supervisor is gone.
#![expect(unsafe_code, reason = "raw system calls between clone and exec")]

use super::mounts;
use super::plan::{Plan, Program, Record, STOP_SIGNAL, Step, TAG_ENDED, TAG_FAILED};
use super::raw::{self, call};
use libc::{c_int, c_long, c_uint, c_void};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// What the command tells the supervisor, whose memory it shares.
struct Shared<'a> {
    plan: &'a Plan,
    done: AtomicU32,
    failed_step: AtomicU32,
    errno: AtomicI32,
}

/// A step that did not succeed, and the kernel's reason.
type Failure = (Step, c_int);

const NO_STEP: u32 = u32::MAX;
const EXIT_SETUP_FAILED: c_int = 127;

/// The supervisor's whole life; `argument` is the [`Plan`]. Runs with every signal blocked.
pub(super) extern "C" fn supervise(argument: *mut c_void) -> c_int {
    // SAFETY: `sys::start_supervisor` passes a pointer to a plan that outlives the supervisor.
    let plan = unsafe { &*argument.cast::<Plan>() };
    let shared =
        Shared { plan, done: AtomicU32::new(0), failed_step: AtomicU32::new(NO_STEP), errno: AtomicI32::new(0) };
    if let Err((step, errno)) = prepare_supervisor(&shared) {
        return fail(plan, step as u32, errno);
    }
    let command = start_command(&shared);
    if command < 0 {
        return fail(plan, Step::Execute as u32, -(command as c_int));
    }
    let command = command as c_int;
    let failed = shared.failed_step.load(Ordering::Relaxed);
    if failed != NO_STEP {
        wait(command, 0);
        return fail(plan, failed, shared.errno.load(Ordering::Relaxed));
    }
    // From here on only the report is needed: a pipe end kept here would hide the end of a stream. It cannot fail: it
    // did not before.
    let _closed = close_others(&[plan.report]);
    let done = shared.done.load(Ordering::Relaxed);
    let ended = wait_for_end(command);
    let status = end_tree(command, ended, done & Step::FenceProven.bit() != 0);
    report(plan, ended_record(done, status));
    0
}

fn prepare_supervisor(shared: &Shared<'_>) -> Result<(), Failure> {
    let plan = shared.plan;
    let done = |step: Step| shared.done.fetch_or(step.bit(), Ordering::Relaxed);
    close_others(&plan.keep).map_err(|e| (Step::Descriptors, e))?;
    done(Step::Descriptors);
    if let Some(namespace) = plan.user_namespace {
        // The powers that this gives in there end when the command is executed.
        // SAFETY: numbers only.
        check(unsafe { call!(libc::SYS_setns, namespace, libc::CLONE_NEWUSER) }).map_err(|e| (Step::Mounts, e))?;
    }
    if let Some(namespace) = plan.mount_namespace {
        // SAFETY: numbers only.
        check(unsafe { call!(libc::SYS_setns, namespace, libc::CLONE_NEWNS) }).map_err(|e| (Step::Mounts, e))?;
        done(Step::Mounts);
    }
    if !plan.own_mounts.is_empty() {
        mounts::add(&plan.own_mounts, plan.user).map_err(|e| (Step::OwnMounts, e))?;
        done(Step::OwnMounts);
    }
    check(prctl(libc::PR_SET_CHILD_SUBREAPER, 1)).map_err(|e| (Step::Subreaper, e))?;
    done(Step::Subreaper);
    prctl(libc::PR_SET_PDEATHSIG, STOP_SIGNAL as usize);
    // SAFETY: no arguments.
    if unsafe { call!(libc::SYS_getppid) } != plan.parent as isize {
        // The daemon was gone before we could notice.
        return Err((Step::Subreaper, libc::ESRCH));
    }
    if let Some(fence) = plan.fence {
        // Landlock demands it of whoever lacks CAP_SYS_ADMIN.
        prctl(libc::PR_SET_NO_NEW_PRIVS, 1);
        restrict(fence).map_err(|e| (Step::Fence, e))?;
        done(Step::Fence);
        // The proof that `kill(-1)` will stay inside: the daemon, outside, can no longer be signalled.
        if kill(plan.parent, 0) == -(libc::EPERM as isize) {
            done(Step::FenceProven);
        }
    }
    Ok(())
}

/// Starts the command on a stack of its own.
fn start_command(shared: &Shared<'_>) -> isize {
    let flags = (libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD) as usize;
    let argument = std::ptr::from_ref(shared).cast_mut().cast::<c_void>();
    let stack = &shared.plan.command_stack;
    if let Some(group) = shared.plan.group.directory {
        // Before: the command looks whether it has to enter by itself.
        shared.done.fetch_or(Step::Group.bit(), Ordering::Relaxed);
        // SAFETY: as below.
        let command = unsafe { raw::spawn_in_group(group, flags, stack.extent(), command_entry, argument) };
        if command > 0 {
            return command;
        }
        // An older kernel, or a filter around the daemon: it goes the slower way.
        shared.done.fetch_and(!Step::Group.bit(), Ordering::Relaxed);
    }
    // SAFETY: the stack is the plan's second one, used by nothing else. `shared` outlives the command's use of it: with
    // CLONE_VFORK this process stands still until the command is executed or gone.
    unsafe { raw::spawn(flags, stack.top(), command_entry, argument, std::ptr::null_mut()) }
}

extern "C" fn command_entry(argument: *mut c_void) -> c_int {
    // SAFETY: `start_command` passes a pointer to a live `Shared`.
    let shared = unsafe { &*argument.cast::<Shared<'_>>() };
    let (step, errno) = become_command(shared);
    shared.errno.store(errno, Ordering::Relaxed);
    shared.failed_step.store(step as u32, Ordering::Relaxed);
    EXIT_SETUP_FAILED
}

/// From clone to exec; returns only what failed.
fn become_command(shared: &Shared<'_>) -> Failure {
    match confine(shared) {
        Ok(()) => {
            shared.done.fetch_or(Step::Execute.bit(), Ordering::Relaxed);
            (Step::Execute, execute(shared.plan))
        }
        Err(failure) => failure,
    }
}

/// The order matters: privileged steps first, then the user, then what cannot be taken back.
fn confine(shared: &Shared<'_>) -> Result<(), Failure> {
    let plan = shared.plan;
    let done = |step: Step| shared.done.fetch_or(step.bit(), Ordering::Relaxed);
    offer_to_the_oom_killer();
    if !plan.group.entrances.is_empty() && shared.done.load(Ordering::Relaxed) & Step::Group.bit() == 0 {
        enter_groups(plan).map_err(|e| (Step::Group, e))?;
        done(Step::Group);
    }
    // SAFETY: no arguments.
    check(unsafe { call!(libc::SYS_setsid) }).map_err(|e| (Step::Session, e))?;
    done(Step::Session);
    set_rlimits(plan).map_err(|e| (Step::Rlimits, e))?;
    done(Step::Rlimits);
    if plan.user.is_some() {
        become_user(plan).map_err(|e| (Step::User, e))?;
        done(Step::User);
    }
    let directory = plan.working_directory.as_ptr();
    // SAFETY: the string is NUL-terminated and lives in the plan.
    check(unsafe { call!(libc::SYS_chdir, directory) }).map_err(|e| (Step::WorkingDirectory, e))?;
    done(Step::WorkingDirectory);
    // After the user: changing that clears it.
    prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as usize);
    check(prctl(libc::PR_SET_NO_NEW_PRIVS, 1)).map_err(|e| (Step::NoNewPrivileges, e))?;
    done(Step::NoNewPrivileges);
    if let Some(files) = plan.files {
        restrict(files).map_err(|e| (Step::Files, e))?;
        done(Step::Files);
    }
    place_descriptors(plan).map_err(|e| (Step::Descriptors, e))?;
    restore_signals();
    if let Some(filter) = plan.seccomp {
        install_filter(filter).map_err(|e| (Step::Seccomp, e))?;
        done(Step::Seccomp);
    }
    demand(plan.required, shared.done.load(Ordering::Relaxed))
}

/// Whatever came to be missing: below the minimum nothing is executed.
fn demand(required: u32, done: u32) -> Result<(), Failure> {
    for step in Step::ALL {
        if required & !done & step.bit() != 0 {
            return Err((step, libc::EOPNOTSUPP));
        }
    }
    Ok(())
}

/// Returns only on failure, with the error.
fn execute(plan: &Plan) -> c_int {
    let (argv, env) = (plan.argv.as_ptr(), plan.env.as_ptr());
    let result = match &plan.program {
        // SAFETY: both arrays end in a null pointer and own their strings; the path is the empty string that
        // AT_EMPTY_PATH wants.
        Program::File(fd) => unsafe { call!(libc::SYS_execveat, *fd, c"".as_ptr(), argv, env, libc::AT_EMPTY_PATH) },
        // SAFETY: as above; the path is NUL-terminated.
        Program::Path(path) => unsafe { call!(libc::SYS_execve, path.as_ptr(), argv, env) },
    };
    -(result as c_int)
}

fn set_rlimits(plan: &Plan) -> Result<(), c_int> {
    for (resource, value) in &plan.rlimits {
        let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: reads into a local rlimit; no new limit is given.
        check(unsafe { call!(libc::SYS_prlimit64, 0, *resource, 0, &raw mut limit) })?;
        // The hard limit on CPU time is the one that cannot be caught.
        let hard = if *resource == libc::RLIMIT_CPU { value.saturating_add(1) } else { *value };
        // Without privileges a limit can only be lowered: keep the host's where that is lower.
        limit.rlim_max = limit.rlim_max.min(hard);
        limit.rlim_cur = limit.rlim_max.min(*value);
        // SAFETY: the new limit is a local, filled rlimit; the old one is not asked for.
        check(unsafe { call!(libc::SYS_prlimit64, 0, *resource, &raw const limit, 0) })?;
    }
    Ok(())
}

/// When the machine runs out of memory, a run goes before the daemon and before whatever else its user runs. While
/// still root, this also sets the least that the command may ask for. Without `/proc` it stays as it was.
fn offer_to_the_oom_killer() {
    let (path, flags) = (c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
    // SAFETY: constant, NUL-terminated strings; the descriptor is our own.
    unsafe {
        let fd = call!(libc::SYS_openat, libc::AT_FDCWD, path, flags);
        if fd >= 0 {
            call!(libc::SYS_write, fd, c"800".as_ptr(), 3);
            call!(libc::SYS_close, fd);
        }
    }
}

/// Steps into the run's control groups. Whoever moves itself, and a single thread, is moved at once; for anybody else
/// the kernel waits until every processor has taken notice, which takes milliseconds.
fn enter_groups(plan: &Plan) -> Result<(), c_int> {
    for entrance in &plan.group.entrances {
        // SAFETY: a constant string of that length.
        check(unsafe { call!(libc::SYS_write, *entrance, c"0".as_ptr(), 1) })?;
    }
    Ok(())
}

/// Gives up root for good.
fn become_user(plan: &Plan) -> Result<(), c_int> {
    let Some(user) = plan.user else { return Ok(()) };
    let (uid, gid) = (user.uid, user.gid);
    // SAFETY: no groups: the pointer is not read.
    check(unsafe { call!(libc::SYS_setgroups, 0, 0) })?;
    // SAFETY: numbers only.
    check(unsafe { call!(libc::SYS_setresgid, gid, gid, gid) })?;
    // SAFETY: numbers only.
    check(unsafe { call!(libc::SYS_setresuid, uid, uid, uid) })
}

/// Puts the pipes on 0, 1 and 2 and lets the inherited descriptors through; everything else closes on exec.
fn place_descriptors(plan: &Plan) -> Result<(), c_int> {
    for (target, fd) in plan.stdio.iter().enumerate() {
        // SAFETY: numbers only. The pipes were created above 2, so that none is overwritten here.
        check(unsafe { call!(libc::SYS_dup3, *fd, target, 0) })?;
    }
    for fd in &plan.inherited {
        // SAFETY: numbers only.
        check(unsafe { call!(libc::SYS_fcntl, *fd, libc::F_SETFD, 0) })?;
    }
    Ok(())
}

/// Default handling for every signal, and none blocked: the command must not inherit what the daemon ignores.
fn restore_signals() {
    // The kernel's own sigaction: all zero is the default handler with an empty mask.
    let default = [0u64; 4];
    for signal in 1..=64 {
        // SAFETY: a local of the kernel's size. SIGKILL and SIGSTOP are refused, which is right.
        unsafe { call!(libc::SYS_rt_sigaction, signal, default.as_ptr(), 0, size_of::<u64>()) };
    }
    let none = 0u64;
    // SAFETY: a local set of the kernel's size.
    unsafe { call!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const none, 0, size_of::<u64>()) };
}

fn restrict(ruleset: RawFd) -> Result<(), c_int> {
    // SAFETY: numbers only.
    check(unsafe { call!(libc::SYS_landlock_restrict_self, ruleset, 0) })
}

fn install_filter(filter: &[libc::sock_filter]) -> Result<(), c_int> {
    const SECCOMP_SET_MODE_FILTER: c_uint = 1;
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the program points to a live filter of that length, which the kernel copies.
    check(unsafe { call!(libc::SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &raw const program) })
}

/// Ends this process at once when its parent is gone, or was gone before this could be asked for.
pub(super) fn die_with(parent: c_int) {
    prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as usize);
    // SAFETY: no arguments.
    if unsafe { call!(libc::SYS_getppid) } != parent as isize {
        // SAFETY: numbers only; does not return.
        unsafe { call!(libc::SYS_exit_group, 1) };
    }
}

/// Closes every descriptor that is not in `keep` (ascending). The supervisor must hold none of the daemon's sockets
/// and, above all, none of the pipes of other runs, which would otherwise never see their end.
fn close_others(keep: &[RawFd]) -> Result<(), c_int> {
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

fn close_range(first: c_uint, last: c_uint) -> Result<(), c_int> {
    // SAFETY: numbers only.
    check(unsafe { call!(libc::SYS_close_range, first, last, 0) })
}

/// Waits until the command has ended or the end is asked for. Returns the command's wait status if it ended by itself.
fn wait_for_end(command: c_int) -> Option<c_int> {
    let bit = |signal: c_int| 1u64 << (signal - 1);
    let set = bit(libc::SIGCHLD) | bit(STOP_SIGNAL);
    loop {
        loop {
            match wait(-1, libc::WNOHANG) {
                (pid, status) if pid == command as isize => return Some(status),
                (..=0, _) => break,
                // An orphan.
                _ => {}
            }
        }
        // SAFETY: a local set of the kernel's size; neither information nor a timeout is wanted.
        let signal = unsafe { call!(libc::SYS_rt_sigtimedwait, &raw const set, 0, 0, size_of::<u64>()) };
        if signal == STOP_SIGNAL as isize {
            return None;
        }
    }
}

/// Kills everything that is left of the run and waits until it is gone. Returns the command's wait status.
fn end_tree(command: c_int, ended: Option<c_int>, fenced: bool) -> c_int {
    let mut command_status = ended;
    loop {
        // The usual case: the command was the last of its tree.
        if command_status.is_some() && wait(-1, libc::WNOHANG).0 == -(libc::ECHILD as isize) {
            return command_status.unwrap_or(libc::SIGKILL);
        }
        if fenced {
            // Reaches every process behind the fence at once; a fork under way fails, so one pass leaves nothing.
            // `fenced` was proven in `prepare_supervisor`.
            kill(-1, libc::SIGKILL);
        } else {
            kill_children();
            if command_status.is_none() {
                // The command leads a group of its own number.
                kill(-command, libc::SIGKILL);
            }
        }
        match wait(-1, 0) {
            (pid, status) if pid == command as isize => command_status = Some(status),
            (pid, _) if pid == -(libc::ECHILD as isize) => return command_status.unwrap_or(libc::SIGKILL),
            _ => {}
        }
    }
}

/// Without the fence: kills the supervisor's own children. Those of a killed child become the supervisor's, so
/// repeating it reaches all.
fn kill_children() {
    let mut buffer = [0u8; 4096];
    let (path, flags) = (c"/proc/thread-self/children".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
    // SAFETY: a constant, NUL-terminated string.
    let fd = unsafe { call!(libc::SYS_openat, libc::AT_FDCWD, path, flags) };
    if fd < 0 {
        return;
    }
    // SAFETY: the buffer is writable and of that length; the descriptor is our own.
    let length = unsafe {
        let length = call!(libc::SYS_read, fd, buffer.as_mut_ptr(), buffer.len());
        call!(libc::SYS_close, fd);
        length
    };
    let mut pid: c_int = 0;
    for byte in buffer.iter().take(usize::try_from(length).unwrap_or(0)) {
        if byte.is_ascii_digit() {
            pid = pid.wrapping_mul(10).wrapping_add(c_int::from(byte - b'0'));
        } else {
            if pid > 0 {
                // A child that is not reaped yet keeps its number.
                kill(pid, libc::SIGKILL);
            }
            pid = 0;
        }
    }
}

fn ended_record(done: u32, status: c_int) -> Record {
    // SAFETY: rusage is plain numbers, for which zero is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: fills a local rusage.
    unsafe { call!(libc::SYS_getrusage, libc::RUSAGE_CHILDREN, &raw mut usage) };
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
    // SAFETY: the record is a live value of that many bytes, all of them initialised: five fields without padding. A
    // daemon that no longer listens is gone, and then so are we.
    unsafe { call!(libc::SYS_write, plan.report, &raw const record, Record::BYTES) };
}

fn fail(plan: &Plan, step: u32, errno: c_int) -> c_int {
    report(plan, Record { tag: TAG_FAILED, step, value: i64::from(errno), cpu_us: 0, peak_kib: 0 });
    EXIT_SETUP_FAILED
}

/// Waits for a child: its number, or a negative error, and its status.
fn wait(pid: c_int, flags: c_int) -> (isize, c_int) {
    let mut status: c_int = 0;
    // SAFETY: fills a local int.
    let result = unsafe { call!(libc::SYS_wait4, pid, &raw mut status, flags, 0) };
    (result, status)
}

fn kill(pid: c_int, signal: c_int) -> isize {
    // SAFETY: numbers only.
    unsafe { call!(libc::SYS_kill, pid, signal) }
}

fn prctl(option: c_int, value: usize) -> isize {
    // SAFETY: the options used here read no memory.
    unsafe { call!(libc::SYS_prctl, option, value, 0, 0, 0) }
}

pub(super) fn check(result: isize) -> Result<(), c_int> {
    if result < 0 { Err(-(result as c_int)) } else { Ok(()) }
}

const _: () = assert!(size_of::<c_long>() == size_of::<i64>(), "only 64-bit systems are supported");

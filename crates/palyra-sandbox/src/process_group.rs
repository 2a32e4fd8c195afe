//! A command in a session and process group of its own: what plain unix offers to hold and end a tree of processes.
//!
//! The runner of macOS stands on this; Linux has better and only tests it. Ending the group ends every process that has
//! not left it. One that starts a session of its own leaves: that is told as a missing layer, and the profile that it
//! carries stays on it all the same.
#![expect(unsafe_code, reason = "setting up a child between fork and exec, and asking what it used")]

use crate::outcome::ProcessExit;
use crate::pump::{Pipes, Tree};
use rustix::io::{Errno, FdFlags};
use rustix::process::{Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, PipeReader};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Descriptors above this number are not looked at; no daemon of ours has so many.
const MOST_DESCRIPTORS: u64 = 1 << 16;

/// What to start.
#[derive(Debug)]
pub(crate) struct Start<'a> {
    pub(crate) program: &'a Path,
    pub(crate) arguments: &'a [OsString],
    pub(crate) environment: &'a BTreeMap<OsString, OsString>,
    pub(crate) working_directory: &'a Path,
    pub(crate) limits: &'a [(Resource, u64)],
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) exit: ProcessExit,
    /// CPU time of the command and of the children that it waited for.
    pub(crate) cpu_time: Duration,
    /// The largest of them.
    pub(crate) peak_memory_bytes: u64,
}

/// A running group.
#[derive(Debug)]
pub(crate) struct Group {
    leader: Pid,
    /// Hung up when the leader is over.
    over: PipeReader,
    ended: Option<Ended>,
    abandoned: bool,
}

/// Starts a command. When this returns, it is in its own group with its limits set: a child that could not do so never
/// executed anything.
pub(crate) fn start(start: &Start<'_>) -> io::Result<(Group, Pipes)> {
    let (stdin, our_stdin) = io::pipe()?;
    let (our_stdout, stdout) = io::pipe()?;
    let (our_stderr, stderr) = io::pipe()?;
    let pipes = Pipes { stdin: our_stdin.into(), stdout: our_stdout.into(), stderr: our_stderr.into() };
    for ours in [&pipes.stdin, &pipes.stdout, &pipes.stderr] {
        rustix::io::ioctl_fionbio(ours, true)?;
    }
    no_signal(&pipes.stdin)?;
    let mut command = Command::new(start.program);
    command.args(start.arguments).env_clear().envs(start.environment).current_dir(start.working_directory);
    command.stdin(Stdio::from(stdin)).stdout(Stdio::from(stdout)).stderr(Stdio::from(stderr));
    let limits = start.limits.to_vec();
    let descriptors = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(MOST_DESCRIPTORS);
    let descriptors = RawFd::try_from(descriptors.min(MOST_DESCRIPTORS)).unwrap_or(RawFd::MAX);
    // SAFETY: between fork and exec the closure makes system calls only: it allocates nothing and takes no lock. What
    // it reads was made before.
    unsafe { command.pre_exec(move || confine(&limits, descriptors)) };
    let child = command.spawn()?;
    // The child's ends of the pipes go with it: while we hold them no stream ends.
    drop(command);
    let leader = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
    let (over, alive) = io::pipe()?;
    let group = Group { leader, over, ended: None, abandoned: false };
    std::thread::Builder::new().name("palyra-wait".into()).spawn(move || {
        // It stays on the process table, so that its number, which is also the group's, means nobody else.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while rustix::process::waitid(WaitId::Pid(leader), options).is_err_and(|error| error == Errno::INTR) {}
        drop(alive);
    })?;
    Ok((group, pipes))
}

/// In the child: a session of its own, the limits, and no descriptor of the daemon's.
fn confine(limits: &[(Resource, u64)], descriptors: RawFd) -> io::Result<()> {
    rustix::process::setsid()?;
    for number in 3..descriptors {
        // SAFETY: only the flag is set, and of a descriptor that is not open the kernel says so. They are marked rather
        // than closed: the one through which a failure is told must live until the program is executed.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        match rustix::io::fcntl_setfd(descriptor, FdFlags::CLOEXEC) {
            Ok(()) | Err(Errno::BADF) => {}
            Err(error) => return Err(error.into()),
        }
    }
    for &(resource, limit) in limits {
        // Never above what the daemon itself may have.
        let most = rustix::process::getrlimit(resource).maximum.map_or(limit, |most| most.min(limit));
        rustix::process::setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    Ok(())
}

/// A write to a pipe that nobody reads is an error, not a signal.
fn no_signal(pipe: &OwnedFd) -> io::Result<()> {
    #[cfg(target_os = "macos")]
    {
        use std::os::fd::AsRawFd;
        // SAFETY: an open descriptor and two numbers.
        if unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETNOSIGPIPE, 1) } == -1 {
            return Err(io::Error::last_os_error());
        }
    }
    #[cfg(not(target_os = "macos"))]
    let _tests_ignore_the_signal = pipe;
    Ok(())
}

impl Group {
    /// How the command ended, once it was reaped.
    pub(crate) fn ended(&self) -> Option<Ended> {
        self.ended
    }

    fn kill(&self) {
        // A group that is gone needs no signal.
        let _killed = rustix::process::kill_process_group(self.leader, Signal::KILL);
    }

    fn take(&mut self) {
        if self.ended.is_some() {
            return;
        }
        // While the leader is on the table the group's number means this group. Twice: a child that was being made
        // during the first is there for the second.
        self.kill();
        self.kill();
        self.ended = wait(self.leader).ok();
    }
}

impl Tree for Group {
    fn over(&self) -> BorrowedFd<'_> {
        self.over.as_fd()
    }

    fn stop(&mut self) {
        self.kill();
    }

    fn reap(&mut self) {
        self.take();
    }

    fn abandon(&mut self) {
        self.abandoned = true;
    }

    fn write(&self, pipe: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
        rustix::io::write(pipe, bytes)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // An error path: the run must not outlive the call.
        if !self.abandoned {
            self.take();
        }
    }
}

/// How many processes this user has now.
#[cfg(target_os = "macos")]
pub(crate) fn user_processes() -> u64 {
    const PROC_UID_ONLY: u32 = 4;
    let user = rustix::process::getuid().as_raw();
    // SAFETY: without a buffer the call tells how many bytes the list of process numbers would take.
    let bytes = unsafe { libc::proc_listpids(PROC_UID_ONLY, user, std::ptr::null_mut(), 0) };
    u64::try_from(bytes).unwrap_or(0) / size_of::<libc::pid_t>() as u64
}

/// Takes the leader off the process table.
fn wait(leader: Pid) -> io::Result<Ended> {
    let mut status = 0;
    // SAFETY: plain numbers, for which zero is valid; the call fills them.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        while libc::wait4(leader.as_raw_pid(), &raw mut status, 0, &raw mut usage) == -1 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        usage
    };
    let exit = if libc::WIFSIGNALED(status) {
        ProcessExit::Signal(libc::WTERMSIG(status))
    } else {
        ProcessExit::Code(libc::WEXITSTATUS(status))
    };
    let time = |t: libc::timeval| {
        Duration::from_secs(u64::try_from(t.tv_sec).unwrap_or(0))
            + Duration::from_micros(u64::try_from(t.tv_usec).unwrap_or(0))
    };
    // Bytes on macOS, KiB elsewhere.
    let unit = if cfg!(target_os = "macos") { 1 } else { 1024 };
    let peak_memory_bytes = u64::try_from(usage.ru_maxrss).unwrap_or(0).saturating_mul(unit);
    Ok(Ended { exit, cpu_time: time(usage.ru_utime) + time(usage.ru_stime), peak_memory_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::LimitHit;
    use crate::pump::{Bounds, Pumped, pump};
    use palyra_egress::CancelSignal;
    use std::time::Instant;

    /// Runs a script to its end.
    fn run(script: &str, input: &[u8], limits: &[(Resource, u64)], bounds: (u64, u64)) -> (Ended, Pumped) {
        let arguments = ["-c".into(), script.into()];
        let environment = BTreeMap::from([("PATH".into(), "/usr/bin:/bin".into())]);
        let (mut group, pipes) = start(&Start {
            program: Path::new("/bin/sh"),
            arguments: &arguments,
            environment: &environment,
            working_directory: Path::new("/"),
            limits,
        })
        .unwrap();
        let (milliseconds, max_output) = bounds;
        let bounds = Bounds { started: Instant::now(), wall_clock: Duration::from_millis(milliseconds), max_output };
        let pumped = pump(&mut group, pipes, input, bounds, &CancelSignal::never().unwrap(), &mut (), &mut ()).unwrap();
        (group.ended().unwrap(), pumped)
    }

    #[test]
    fn streams_status_and_environment() {
        let (ended, pumped) = run("cat; echo \"$HOME$PATH\" >&2; exit 3", b"in", &[], (60_000, 1000));
        assert_eq!(ended.exit, ProcessExit::Code(3));
        assert_eq!(pumped.stdout.bytes, b"in");
        assert_eq!(pumped.stderr.bytes, b"/usr/bin:/bin\n");
        assert!(ended.peak_memory_bytes > 0);
        let (ended, _) = run("kill -9 $$", b"", &[], (60_000, 1000));
        assert_eq!(ended.exit, ProcessExit::Signal(9));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn it_leads_its_own_session_and_has_no_descriptor_of_ours() {
        let file = std::fs::File::open("/etc/hosts").unwrap();
        let kept = rustix::io::dup(&file).unwrap();
        let (_, pumped) = run("ls /proc/self/fd; ps -o sid=,pgid=,pid= -p $$", b"", &[], (60_000, 1000));
        drop(kept);
        let text = String::from_utf8(pumped.stdout.bytes).unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        let ids: Vec<&str> = lines.pop().unwrap().split_whitespace().collect();
        assert!(ids[0] == ids[1] && ids[1] == ids[2], "{text}");
        // `ls` opens the directory itself.
        assert_eq!(lines, ["0", "1", "2", "3"]);
    }

    #[test]
    fn limits_are_set_and_hold() {
        let limits = [(Resource::Fsize, 4096), (Resource::Nofile, 32)];
        let (_, pumped) = run("ulimit -n; ulimit -H -n", b"", &limits, (60_000, 1000));
        assert_eq!(pumped.stdout.bytes, b"32\n32\n");
        let dir = tempfile::TempDir::new().unwrap();
        let script = format!("head -c 100000 /dev/zero > {}/x", dir.path().display());
        run(&script, b"", &limits, (60_000, 1000));
        assert_eq!(std::fs::metadata(dir.path().join("x")).unwrap().len(), 4096);
    }

    #[test]
    fn the_clock_ends_the_whole_group() {
        // The grandchild holds the pipe and ignores what can be ignored.
        let script = "(trap '' TERM HUP; echo $$; exec sleep 1000) & echo up; sleep 1000";
        let (ended, pumped) = run(script, b"", &[], (300, 1000));
        assert_eq!(ended.exit, ProcessExit::Signal(9));
        assert_eq!(pumped.stopped_by, Some(LimitHit::WallClock));
    }

    #[test]
    fn a_grandchild_that_holds_the_pipe_does_not_hold_us() {
        let dir = tempfile::TempDir::new().unwrap();
        let fifo = dir.path().join("fifo");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let reader = std::thread::spawn({
            let fifo = fifo.clone();
            move || std::fs::read(fifo).unwrap()
        });
        let script = format!("exec 3> {}; sleep 1000 & exec 3>&-; echo done", fifo.display());
        let (ended, pumped) = run(&script, b"", &[], (60_000, 1000));
        assert_eq!((ended.exit, pumped.stopped_by), (ProcessExit::Code(0), None));
        assert_eq!(pumped.stdout.bytes, b"done\n");
        // The last writer is gone.
        assert_eq!(reader.join().unwrap(), b"");
    }

    #[test]
    fn a_flood_is_counted_and_ended() {
        let (_, pumped) = run("exec cat /dev/zero", b"", &[], (60_000, 1000));
        assert_eq!(pumped.stopped_by, Some(LimitHit::Output));
        assert!(pumped.stdout.bytes.len() == 1000 && pumped.stdout.truncated && pumped.stdout.total_bytes > 16_000);
    }

    #[test]
    fn input_that_nobody_reads_is_no_error() {
        let (ended, _) = run("exec <&-; exit 0", &vec![b'x'; 1 << 20], &[], (60_000, 1000));
        assert_eq!(ended.exit, ProcessExit::Code(0));
    }
}

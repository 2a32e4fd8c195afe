//! The policy's numbers as resource limits, and the way back: which limit ended a process.

use super::plan::Record;
use super::sys;
use crate::outcome::{LimitHit, ProcessExit};
use crate::policy::SandboxProcessRunnerPolicy;
use libc::rlim_t;
use std::time::Duration;

/// The limits every process of a run gets. Those of memory and processes are the second line where a control group is the first.
///
/// Memory is `RLIMIT_DATA`, not `RLIMIT_AS`: address space is reserved by the gigabyte by programs that never touch it (node,
/// Go, Java, sanitizers), and what a limit on it stops is not use but start. Processes are counted by the kernel per user,
/// not per run; the number of tasks on the machine is added, so that others of the same user do not eat the run's share. A run
/// whose processes a control group counts has no such limit: a neighbour of the same user could use it up.
pub(super) fn rlimits(policy: &SandboxProcessRunnerPolicy, processes: Counted) -> Vec<(u32, rlim_t)> {
    let mut limits = vec![
        (libc::RLIMIT_CPU, cpu_seconds(policy)),
        (libc::RLIMIT_DATA, policy.memory_limit_bytes),
        (libc::RLIMIT_FSIZE, policy.max_file_size_bytes),
        (libc::RLIMIT_NOFILE, policy.max_open_files.max(8)),
        (libc::RLIMIT_CORE, 0),
        (libc::RLIMIT_MEMLOCK, 64 << 10),
        (libc::RLIMIT_MSGQUEUE, 0),
    ];
    if processes == Counted::ByUser {
        limits.push((libc::RLIMIT_NPROC, policy.max_processes.saturating_add(sys::task_count())));
    }
    limits
}

/// Who counts a run's processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counted {
    /// The kernel, for each user.
    ByUser,
    /// A control group, for each run.
    ByGroup,
}

fn cpu_seconds(policy: &SandboxProcessRunnerPolicy) -> u64 {
    policy.cpu_time_limit_ms.div_ceil(1000).max(1)
}

/// How the command ended, from its wait status.
pub(super) fn exit_of(status: i32) -> ProcessExit {
    if libc::WIFSIGNALED(status) {
        ProcessExit::Signal(libc::WTERMSIG(status))
    } else {
        ProcessExit::Code(libc::WEXITSTATUS(status))
    }
}

/// The same for a command whose signal was turned into an exit code on the way, as shells and bubblewrap do.
pub(super) fn exit_through_init(status: i32) -> ProcessExit {
    match exit_of(status) {
        ProcessExit::Code(code) if (129..=192).contains(&code) => ProcessExit::Signal(code - 128),
        other => other,
    }
}

/// Which limit ended a process that nobody stopped, as far as its end tells.
pub(super) fn limit_hit(policy: &SandboxProcessRunnerPolicy, exit: ProcessExit, ended: &Record) -> Option<LimitHit> {
    if exit.success() {
        return None;
    }
    let cpu = Duration::from_micros(u64::try_from(ended.cpu_us).unwrap_or(0));
    let peak = u64::try_from(ended.peak_kib).unwrap_or(0).saturating_mul(1024);
    match exit {
        ProcessExit::Signal(libc::SIGXCPU) => Some(LimitHit::CpuTime),
        ProcessExit::Signal(libc::SIGXFSZ) => Some(LimitHit::FileSize),
        ProcessExit::Signal(libc::SIGSYS) => Some(LimitHit::Seccomp),
        _ if cpu >= Duration::from_secs(cpu_seconds(policy)) => Some(LimitHit::CpuTime),
        // A process that ran into its memory limit ends as it likes; one that failed at the edge of it most likely did.
        _ if peak >= policy.memory_limit_bytes / 10 * 8 => Some(LimitHit::Memory),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::policy;

    fn ended(cpu_us: i64, peak_kib: i64) -> Record {
        Record { tag: super::super::plan::TAG_ENDED, step: 0, value: 0, cpu_us, peak_kib }
    }

    #[test]
    fn the_end_tells_the_limit() {
        let policy = policy("/w");
        for (exit, record, expect) in [
            (ProcessExit::Code(0), ended(99_000_000, 9_000_000), None),
            (ProcessExit::Signal(libc::SIGXCPU), ended(0, 0), Some(LimitHit::CpuTime)),
            (ProcessExit::Signal(libc::SIGKILL), ended(10_000_000, 0), Some(LimitHit::CpuTime)),
            (ProcessExit::Signal(libc::SIGXFSZ), ended(0, 0), Some(LimitHit::FileSize)),
            (ProcessExit::Signal(libc::SIGSYS), ended(0, 0), Some(LimitHit::Seccomp)),
            (ProcessExit::Code(1), ended(0, 1_000_000), Some(LimitHit::Memory)),
            (ProcessExit::Code(1), ended(0, 1000), None),
        ] {
            assert_eq!(limit_hit(&policy, exit, &record), expect, "{exit:?}");
        }
    }

    #[test]
    fn codes_of_an_init_become_signals() {
        assert_eq!(exit_through_init(137 << 8), ProcessExit::Signal(9));
        assert_eq!(exit_through_init(1 << 8), ProcessExit::Code(1));
        assert_eq!(exit_of(137 << 8), ProcessExit::Code(137));
    }
}

//! The policy's numbers as resource limits, and the way back: which limit ended a process.

use super::plan::Record;
use super::sys;
use crate::outcome::{LimitHit, ProcessExit};
use crate::policy::SandboxProcessRunnerPolicy;
use libc::rlim_t;
use std::time::Duration;

/// The limits every process of a run gets. Those of memory and processes are the second line where a control group is
/// the first.
///
/// Memory is `RLIMIT_DATA`, not `RLIMIT_AS`: address space is reserved by the gigabyte by programs that never touch it
/// (node, Go, Java, sanitizers), and what a limit on it stops is not use but start. Processes are counted by the kernel
/// per user, not per run; the number of tasks on the machine is added, so that others of the same user do not eat the
/// run's share. A run whose processes a control group counts has no such limit: a neighbour of the same user could use
/// it up.
pub(super) fn rlimits(policy: &SandboxProcessRunnerPolicy, processes: Counted) -> Vec<(u32, rlim_t)> {
    let mut limits = vec![
        (libc::RLIMIT_CPU, cpu_seconds(policy)),
        (libc::RLIMIT_DATA, policy.memory_limit_bytes),
        (libc::RLIMIT_FSIZE, policy.max_file_size_bytes),
        (libc::RLIMIT_NOFILE, policy.max_open_files.max(8)),
        // Not 0: where dumps go to a program, only the value 1 keeps the kernel from starting it (core(5)).
        (libc::RLIMIT_CORE, 1),
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

/// The signal that ended the command, as far as that can be told: shells and bubblewrap report signal n as code 128 +
/// n, and a command may choose such a code by itself. Good for a name, together with other evidence where there is
/// some.
fn signal_of(exit: ProcessExit) -> Option<i32> {
    match exit {
        ProcessExit::Signal(signal) => Some(signal),
        ProcessExit::Code(code) => (129..=192).contains(&code).then(|| code - 128),
    }
}

/// Which limit ended a process that nobody stopped, as far as its end tells.
pub(super) fn limit_hit(policy: &SandboxProcessRunnerPolicy, exit: ProcessExit, ended: &Record) -> Option<LimitHit> {
    if exit.success() {
        return None;
    }
    let cpu = Duration::from_micros(u64::try_from(ended.cpu_us).unwrap_or(0));
    let limit = Duration::from_secs(cpu_seconds(policy));
    let peak = u64::try_from(ended.peak_kib).unwrap_or(0).saturating_mul(1024);
    match signal_of(exit) {
        // The kernel counts in ticks, and may take more for used than it reports in the end.
        Some(libc::SIGXCPU) if cpu >= limit / 2 => Some(LimitHit::CpuTime),
        Some(libc::SIGKILL) if cpu >= limit => Some(LimitHit::CpuTime),
        Some(libc::SIGXFSZ) => Some(LimitHit::FileSize),
        Some(libc::SIGSYS) => Some(LimitHit::Seccomp),
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
        let mut policy = policy("/w");
        policy.cpu_time_limit_ms = 10_000;
        for (exit, record, expect) in [
            (ProcessExit::Code(0), ended(99_000_000, 9_000_000), None),
            (ProcessExit::Signal(libc::SIGXCPU), ended(9_900_000, 0), Some(LimitHit::CpuTime)),
            (ProcessExit::Signal(libc::SIGXCPU), ended(0, 0), None),
            (ProcessExit::Code(152), ended(9_900_000, 0), Some(LimitHit::CpuTime)),
            (ProcessExit::Code(152), ended(0, 0), None),
            (ProcessExit::Code(1), ended(99_000_000, 0), None),
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
    fn a_code_stays_a_code() {
        assert_eq!(exit_of(137 << 8), ProcessExit::Code(137));
        assert_eq!(exit_of(1 << 8), ProcessExit::Code(1));
        assert_eq!(exit_of(9), ProcessExit::Signal(9));
    }
}

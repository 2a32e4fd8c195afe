//! The policy's numbers as limits of a job object.

use crate::outcome::{LimitHit, ProcessExit};
use crate::policy::SandboxProcessRunnerPolicy;

/// What a job object is told: numbers in its own units, flags by its own values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct JobLimits {
    pub(super) flags: u32,
    /// Processes alive at once.
    pub(super) active_processes: u32,
    /// Committed memory of any one process.
    pub(super) process_memory_bytes: u64,
    /// Committed memory of all together.
    pub(super) job_memory_bytes: u64,
    /// User time of any one process, in 100 ns.
    pub(super) process_time: i64,
    /// User time of all together, in 100 ns.
    pub(super) job_time: i64,
    /// What is taken away of the desktop.
    pub(super) ui: u32,
}

const PROCESS_TIME: u32 = 0x2;
const JOB_TIME: u32 = 0x4;
const ACTIVE_PROCESS: u32 = 0x8;
const PROCESS_MEMORY: u32 = 0x100;
const JOB_MEMORY: u32 = 0x200;
const DIE_ON_UNHANDLED_EXCEPTION: u32 = 0x400;
const KILL_ON_JOB_CLOSE: u32 = 0x2000;

/// Handles of windows outside, the clipboard both ways, system parameters, the display, global atoms, other desktops,
/// logging off.
const ALL_UI: u32 = 0xff;

/// Units of 100 ns in a millisecond.
const PER_MILLISECOND: u64 = 10_000;

/// The limits of a policy. Neither kind of breaking away from the job is among the flags: no process leaves it.
pub(super) fn job_limits(policy: &SandboxProcessRunnerPolicy) -> JobLimits {
    let processes = u32::try_from(policy.max_processes).unwrap_or(u32::MAX).max(1);
    let time = policy.cpu_time_limit_ms.saturating_mul(PER_MILLISECOND).max(PER_MILLISECOND);
    let ticks = |time: u64| i64::try_from(time).unwrap_or(i64::MAX);
    JobLimits {
        flags: PROCESS_TIME
            | JOB_TIME
            | ACTIVE_PROCESS
            | PROCESS_MEMORY
            | JOB_MEMORY
            | DIE_ON_UNHANDLED_EXCEPTION
            | KILL_ON_JOB_CLOSE,
        active_processes: processes,
        process_memory_bytes: policy.memory_limit_bytes,
        job_memory_bytes: policy.memory_limit_bytes,
        process_time: ticks(time),
        // As much as the processes that may live at once may use.
        job_time: ticks(time.saturating_mul(processes.into())),
        ui: ALL_UI,
    }
}

/// What a job object says of a limit, by the numbers of its messages.
pub(super) fn limit_of_message(message: u32) -> Option<LimitHit> {
    match message {
        1 | 2 => Some(LimitHit::CpuTime),
        3 => Some(LimitHit::Processes),
        9 | 10 => Some(LimitHit::Memory),
        _ => None,
    }
}

/// The message that no process is left.
pub(super) const NO_PROCESS_LEFT: u32 = 4;

/// The limit that ended a process that nobody stopped. A process that was refused memory and coped was not ended by it.
pub(super) fn limit_hit(told: &[LimitHit], exit: ProcessExit) -> Option<LimitHit> {
    let has = |limit| told.contains(&limit);
    if has(LimitHit::CpuTime) {
        Some(LimitHit::CpuTime)
    } else if has(LimitHit::Memory) && !exit.success() {
        Some(LimitHit::Memory)
    } else if has(LimitHit::Processes) {
        Some(LimitHit::Processes)
    } else {
        None
    }
}

/// The numbers above are those of Windows.
#[cfg(windows)]
const _: () = {
    use windows_sys::Win32::System::JobObjects as job;
    assert!(PROCESS_TIME == job::JOB_OBJECT_LIMIT_PROCESS_TIME);
    assert!(JOB_TIME == job::JOB_OBJECT_LIMIT_JOB_TIME);
    assert!(ACTIVE_PROCESS == job::JOB_OBJECT_LIMIT_ACTIVE_PROCESS);
    assert!(PROCESS_MEMORY == job::JOB_OBJECT_LIMIT_PROCESS_MEMORY);
    assert!(JOB_MEMORY == job::JOB_OBJECT_LIMIT_JOB_MEMORY);
    assert!(DIE_ON_UNHANDLED_EXCEPTION == job::JOB_OBJECT_LIMIT_DIE_ON_UNHANDLED_EXCEPTION);
    assert!(KILL_ON_JOB_CLOSE == job::JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE);
    assert!(
        ALL_UI
            == job::JOB_OBJECT_UILIMIT_HANDLES
                | job::JOB_OBJECT_UILIMIT_READCLIPBOARD
                | job::JOB_OBJECT_UILIMIT_WRITECLIPBOARD
                | job::JOB_OBJECT_UILIMIT_SYSTEMPARAMETERS
                | job::JOB_OBJECT_UILIMIT_DISPLAYSETTINGS
                | job::JOB_OBJECT_UILIMIT_GLOBALATOMS
                | job::JOB_OBJECT_UILIMIT_DESKTOP
                | job::JOB_OBJECT_UILIMIT_EXITWINDOWS
    );
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::policy;

    #[test]
    fn every_limit_is_set_and_nothing_breaks_away() {
        const BREAKAWAY: u32 = 0x800 | 0x1000;
        let mut policy = policy("/w");
        policy.cpu_time_limit_ms = 10_000;
        let limits = job_limits(&policy);
        assert_eq!(limits.flags, 0x270e);
        assert_eq!(limits.flags & BREAKAWAY, 0);
        assert_eq!((limits.active_processes, limits.process_time, limits.job_time), (64, 100_000_000, 6_400_000_000));
        assert_eq!((limits.process_memory_bytes, limits.job_memory_bytes), (1 << 30, 1 << 30));
    }

    #[test]
    fn extreme_policies_stay_limits() {
        let mut policy = policy("/w");
        (policy.max_processes, policy.cpu_time_limit_ms) = (0, 0);
        let limits = job_limits(&policy);
        assert!(limits.active_processes == 1 && limits.process_time > 0 && limits.job_time > 0);
        (policy.max_processes, policy.cpu_time_limit_ms) = (u64::MAX, u64::MAX);
        let limits = job_limits(&policy);
        assert_eq!((limits.active_processes, limits.process_time, limits.job_time), (u32::MAX, i64::MAX, i64::MAX));
    }

    #[test]
    fn the_job_tells_the_limit() {
        let told = |messages: &[u32]| messages.iter().filter_map(|m| limit_of_message(*m)).collect::<Vec<_>>();
        for (messages, code, expect) in [
            (&[6, 7, NO_PROCESS_LEFT][..], 1, None),
            (&[2], 1816, Some(LimitHit::CpuTime)),
            (&[1], 0, Some(LimitHit::CpuTime)),
            (&[10], 1, Some(LimitHit::Memory)),
            (&[9], 0, None),
            (&[3], 0, Some(LimitHit::Processes)),
            (&[3, 9], 3, Some(LimitHit::Memory)),
        ] {
            assert_eq!(limit_hit(&told(messages), ProcessExit::Code(code)), expect, "{messages:?}");
        }
    }
}

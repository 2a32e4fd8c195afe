//! The seccomp profile: which system calls a process may not make, and why. Reviewed data.
//!
//! A deny-list: everything that could be needed by an ordinary program stays open, everything that has been a way out
//! of a sandbox, or is of no use inside one, is closed. The first rule that matches decides. Every rule carries its
//! reason, and `tests/containment` tries each from inside.

use crate::outcome::SeccompRule;
use crate::policy::SandboxTier;
use libc::{c_long, *};

/// What a rule looks at beyond the call's number. But for [`Condition::HighDiffers`], only the low 32 bits of an
/// argument are compared: all arguments used here are ints, modes or flag words that the kernel itself reads no more
/// of.
#[derive(Debug, Clone, Copy)]
pub(super) enum Condition {
    /// The argument equals the value.
    Equals(u8, u32),
    /// The argument differs from the value.
    Differs(u8, u32),
    /// The high 32 bits of the argument differ from the value. A pointer is given when either half differs from zero.
    HighDiffers(u8, u32),
    /// The argument has one of these bits set.
    AnyBit(u8, u32),
    /// The argument is none of these.
    NoneOf(u8, &'static [u32]),
}

/// One rule.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule {
    /// The system call.
    pub(super) call: c_long,
    /// All of these must hold.
    pub(super) when: &'static [Condition],
    /// The error that the caller gets.
    pub(super) errno: i32,
    /// Why.
    pub(super) reason: &'static str,
}

const fn deny(call: c_long, errno: i32, reason: &'static str) -> Rule {
    Rule { call, when: &[], errno, reason }
}

const fn deny_when(call: c_long, when: &'static [Condition], errno: i32, reason: &'static str) -> Rule {
    Rule { call, when, errno, reason }
}

const NAMESPACE_FLAGS: u32 =
    (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP) as u32;
const SET_ID_BITS: u32 = S_ISUID | S_ISGID;
/// Flags under which an open reads its mode. Without `O_DIRECTORY`, which `O_TMPFILE` includes: a plain open of a
/// directory leaves the mode's register as it was.
const CREATES: u32 = (O_CREAT | (O_TMPFILE & !O_DIRECTORY)) as u32;
const NETLINK_ROUTE_PROTOCOL: u32 = 0;

const NAMESPACES: &str = "a user namespace opens most of the kernel's privileged code to anyone";
const MOUNTS: &str = "the file tree is what the sandbox is made of";
const TRACING: &str = "reads or writes the memory of other processes, the supervisor's among them";
const KEYRING: &str = "kernel keyrings are not namespaced and may hold the host's secrets";
const URING: &str = "performs system calls that no filter sees";
const KERNEL: &str = "changes or replaces the kernel";
const HOST: &str = "changes the machine, not the process";
const OBSERVE: &str = "observes the whole machine, and is a frequent source of kernel exploits";
const NEIGHBOURS: &str = "acts on other processes of the same user, the daemon among them";
const SHARED_MEMORY: &str = "System V objects are the whole host's: no limit counts them and they outlive the run";
const CORES: &str =
    "a limit of one byte is what keeps a crash from starting the host's crash handler; nothing else may be set";
const ATTRIBUTES: &str = "changes files of the user that the process may not even open";
const SET_ID: &str = "a set-id file in the workspace would run as its owner on the host";
const OLD: &str = "obsolete, unused, and old code";

/// Rules of both tiers.
const COMMON: &[Rule] = &[
    deny(SYS_clone3, ENOSYS, "its flags hide behind a pointer; callers fall back to clone"),
    deny_when(SYS_clone, &[Condition::AnyBit(0, NAMESPACE_FLAGS)], EPERM, NAMESPACES),
    deny(SYS_unshare, EPERM, NAMESPACES),
    deny(SYS_setns, EPERM, NAMESPACES),
    deny(SYS_mount, EPERM, MOUNTS),
    deny(SYS_umount2, EPERM, MOUNTS),
    deny(SYS_pivot_root, EPERM, MOUNTS),
    deny(SYS_chroot, EPERM, MOUNTS),
    deny(SYS_fsopen, EPERM, MOUNTS),
    deny(SYS_fsconfig, EPERM, MOUNTS),
    deny(SYS_fsmount, EPERM, MOUNTS),
    deny(SYS_fspick, EPERM, MOUNTS),
    deny(SYS_open_tree, EPERM, MOUNTS),
    deny(SYS_move_mount, EPERM, MOUNTS),
    deny(SYS_mount_setattr, EPERM, MOUNTS),
    deny(467, EPERM, MOUNTS), // open_tree_attr, Linux 6.15
    deny(SYS_open_by_handle_at, EPERM, "opens files by number, past every directory on the way"),
    deny(SYS_ptrace, EPERM, TRACING),
    deny(SYS_process_vm_readv, EPERM, TRACING),
    deny(SYS_process_vm_writev, EPERM, TRACING),
    deny(SYS_kcmp, EPERM, TRACING),
    deny(SYS_pidfd_getfd, EPERM, "takes descriptors out of other processes"),
    deny(SYS_add_key, EPERM, KEYRING),
    deny(SYS_request_key, EPERM, KEYRING),
    deny(SYS_keyctl, EPERM, KEYRING),
    deny(SYS_bpf, EPERM, "loads code into the kernel"),
    deny(SYS_perf_event_open, EPERM, OBSERVE),
    deny(SYS_userfaultfd, EPERM, "pauses the kernel in mid-copy: the usual helper of kernel exploits"),
    deny(SYS_fanotify_init, EPERM, OBSERVE),
    deny(SYS_syslog, EPERM, OBSERVE),
    deny(SYS_lookup_dcookie, EPERM, OBSERVE),
    deny(SYS_io_uring_setup, ENOSYS, URING),
    deny(SYS_io_uring_enter, ENOSYS, URING),
    deny(SYS_io_uring_register, ENOSYS, URING),
    deny(SYS_init_module, EPERM, KERNEL),
    deny(SYS_finit_module, EPERM, KERNEL),
    deny(SYS_delete_module, EPERM, KERNEL),
    deny(SYS_kexec_load, EPERM, KERNEL),
    deny(SYS_reboot, EPERM, HOST),
    deny(SYS_swapon, EPERM, HOST),
    deny(SYS_swapoff, EPERM, HOST),
    deny(SYS_acct, EPERM, HOST),
    deny(SYS_quotactl, EPERM, HOST),
    deny(SYS_settimeofday, EPERM, HOST),
    deny(SYS_clock_settime, EPERM, HOST),
    deny(SYS_adjtimex, EPERM, HOST),
    deny(SYS_clock_adjtime, EPERM, HOST),
    deny(SYS_sethostname, EPERM, HOST),
    deny(SYS_setdomainname, EPERM, HOST),
    deny(SYS_vhangup, EPERM, HOST),
    deny(SYS_nfsservctl, ENOSYS, OLD),
    deny_when(SYS_personality, &[Condition::NoneOf(0, &[0, 8, 0xffff_ffff])], EPERM, "turns off address randomisation"),
    deny_when(SYS_ioctl, &[Condition::Equals(1, TIOCSTI as u32)], EPERM, "types into the terminal of the user"),
    deny_when(SYS_ioctl, &[Condition::Equals(1, TIOCLINUX as u32)], EPERM, "pastes into the console of the host"),
    deny_when(SYS_ioctl, &[Condition::Equals(1, 0x5423)], EPERM, "line disciplines are rarely used, fragile drivers"), // TIOCSETD
    deny_when(SYS_fchmod, &[Condition::AnyBit(1, SET_ID_BITS)], EPERM, SET_ID),
    deny_when(SYS_fchmodat, &[Condition::AnyBit(2, SET_ID_BITS)], EPERM, SET_ID),
    deny_when(SYS_fchmodat2, &[Condition::AnyBit(2, SET_ID_BITS)], EPERM, SET_ID),
    deny_when(SYS_mknodat, &[Condition::AnyBit(2, SET_ID_BITS)], EPERM, SET_ID),
    deny_when(SYS_openat, &[Condition::AnyBit(2, CREATES), Condition::AnyBit(3, SET_ID_BITS)], EPERM, SET_ID),
    deny_when(SYS_prlimit64, &[Condition::Equals(1, RLIMIT_CORE), Condition::Differs(2, 0)], EINVAL, CORES),
    deny_when(SYS_prlimit64, &[Condition::Equals(1, RLIMIT_CORE), Condition::HighDiffers(2, 0)], EINVAL, CORES),
    deny(SYS_openat2, ENOSYS, "its mode hides behind a pointer; callers fall back to openat"),
    deny_when(
        SYS_socket,
        &[Condition::Equals(0, AF_NETLINK as u32), Condition::Differs(2, NETLINK_ROUTE_PROTOCOL)],
        EAFNOSUPPORT,
        "of netlink only the list of interfaces is of use",
    ),
];

/// Calls that only the older architecture has.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: &[Rule] = &[
    deny(SYS_kexec_file_load, EPERM, KERNEL),
    deny(SYS_uselib, ENOSYS, OLD),
    deny(SYS_ustat, ENOSYS, OLD),
    deny(SYS_sysfs, ENOSYS, OLD),
    deny(SYS__sysctl, ENOSYS, OLD),
    deny(SYS_iopl, EPERM, HOST),
    deny(SYS_ioperm, EPERM, HOST),
    deny(SYS_modify_ldt, EPERM, "sets up segments: of use to sixteen-bit programs and exploits"),
    deny_when(SYS_setrlimit, &[Condition::Equals(0, RLIMIT_CORE)], EINVAL, CORES),
    deny_when(SYS_chmod, &[Condition::AnyBit(1, SET_ID_BITS)], EPERM, SET_ID),
    deny_when(SYS_mknod, &[Condition::AnyBit(1, SET_ID_BITS)], EPERM, SET_ID),
    deny_when(SYS_creat, &[Condition::AnyBit(1, SET_ID_BITS)], EPERM, SET_ID),
    deny_when(SYS_open, &[Condition::AnyBit(1, CREATES), Condition::AnyBit(2, SET_ID_BITS)], EPERM, SET_ID),
];
#[cfg(not(target_arch = "x86_64"))]
const ARCHITECTURE: &[Rule] = &[];

/// Tier B shares the host's file tree, process table and network: a UNIX socket reaches whatever listens there, a
/// process number any process of the same user. Landlock keeps signals and tracing inside the run, and nothing else
/// that takes such a number; so only 0, which is the caller, is let through.
const TIER_B: &[Rule] = &[
    deny_when(
        SYS_socket,
        &[Condition::NoneOf(0, &[AF_INET as u32, AF_INET6 as u32, AF_NETLINK as u32])],
        EAFNOSUPPORT,
        "UNIX sockets reach the host's services, the daemon's among them, and Landlock does not see them; the rest is obscure",
    ),
    deny_when(
        SYS_socketpair,
        &[Condition::Differs(0, AF_UNIX as u32)],
        EAFNOSUPPORT,
        "only UNIX sockets come in pairs",
    ),
    deny_when(
        SYS_socketpair,
        &[Condition::Equals(0, AF_UNIX as u32), Condition::NoneOf(1, CONNECTED_FOR_GOOD)],
        EAFNOSUPPORT,
        "a datagram socket of a pair can be connected anew, to the host's services",
    ),
    deny_when(SYS_prlimit64, &[Condition::Differs(0, 0)], EPERM, NEIGHBOURS),
    deny_when(SYS_setpriority, &[Condition::Differs(0, PRIO_PROCESS)], EPERM, NEIGHBOURS),
    deny_when(SYS_setpriority, &[Condition::Differs(1, 0)], EPERM, NEIGHBOURS),
    deny_when(SYS_ioprio_set, &[Condition::Differs(0, IOPRIO_WHO_PROCESS)], EPERM, NEIGHBOURS),
    deny_when(SYS_ioprio_set, &[Condition::Differs(1, 0)], EPERM, NEIGHBOURS),
    deny_when(SYS_sched_setaffinity, &[Condition::Differs(0, 0)], EPERM, NEIGHBOURS),
    deny_when(SYS_sched_setscheduler, &[Condition::Differs(0, 0)], EPERM, NEIGHBOURS),
    deny_when(SYS_sched_setparam, &[Condition::Differs(0, 0)], EPERM, NEIGHBOURS),
    deny_when(SYS_sched_setattr, &[Condition::Differs(0, 0)], EPERM, NEIGHBOURS),
    deny_when(SYS_migrate_pages, &[Condition::Differs(0, 0)], EPERM, NEIGHBOURS),
    deny_when(SYS_move_pages, &[Condition::Differs(0, 0)], EPERM, NEIGHBOURS),
    deny(SYS_process_madvise, EPERM, NEIGHBOURS),
    deny(SYS_process_mrelease, EPERM, NEIGHBOURS),
    deny(SYS_shmget, ENOSYS, SHARED_MEMORY),
    deny(SYS_shmat, ENOSYS, SHARED_MEMORY),
    deny(SYS_shmdt, ENOSYS, SHARED_MEMORY),
    deny(SYS_shmctl, ENOSYS, SHARED_MEMORY),
    deny(SYS_semget, ENOSYS, SHARED_MEMORY),
    deny(SYS_semop, ENOSYS, SHARED_MEMORY),
    deny(SYS_semtimedop, ENOSYS, SHARED_MEMORY),
    deny(SYS_semctl, ENOSYS, SHARED_MEMORY),
    deny(SYS_msgget, ENOSYS, SHARED_MEMORY),
    deny(SYS_msgsnd, ENOSYS, SHARED_MEMORY),
    deny(SYS_msgrcv, ENOSYS, SHARED_MEMORY),
    deny(SYS_msgctl, ENOSYS, SHARED_MEMORY),
    deny(SYS_mq_open, ENOSYS, "message queues are the host's, and a name reaches those of others"),
    deny(SYS_mq_unlink, ENOSYS, "message queues are the host's, and a name reaches those of others"),
];

/// The types of UNIX sockets that, once a pair, stay one.
const CONNECTED_FOR_GOOD: &[u32] = &[
    SOCK_STREAM as u32,
    (SOCK_STREAM | SOCK_CLOEXEC) as u32,
    (SOCK_STREAM | SOCK_NONBLOCK) as u32,
    (SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK) as u32,
    SOCK_SEQPACKET as u32,
    (SOCK_SEQPACKET | SOCK_CLOEXEC) as u32,
    (SOCK_SEQPACKET | SOCK_NONBLOCK) as u32,
    (SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK) as u32,
];
const IOPRIO_WHO_PROCESS: u32 = 1;

/// In Tier C a UNIX socket reaches only what is bound into the sandbox.
const TIER_C: &[Rule] = &[deny_when(
    SYS_socket,
    &[Condition::NoneOf(0, &[AF_UNIX as u32, AF_INET as u32, AF_INET6 as u32, AF_NETLINK as u32])],
    EAFNOSUPPORT,
    "vsock reaches the hypervisor, packet sockets the wire; the rest is obscure",
)];

/// Tier B on a host that gives it no mounts of its own. Landlock does not govern what is changed without being opened,
/// so these calls would reach every file of the user, the daemon's key among them. What is open already may be changed:
/// to open it, Landlock was asked.
const WITHOUT_VIEW: &[Rule] = &[
    deny(SYS_fchmodat, EPERM, ATTRIBUTES),
    deny(SYS_fchmodat2, EPERM, ATTRIBUTES),
    deny(SYS_fchownat, EPERM, ATTRIBUTES),
    deny_when(SYS_utimensat, &[Condition::Differs(1, 0)], EPERM, ATTRIBUTES),
    deny_when(SYS_utimensat, &[Condition::HighDiffers(1, 0)], EPERM, ATTRIBUTES),
    deny(SYS_setxattr, EPERM, ATTRIBUTES),
    deny(SYS_lsetxattr, EPERM, ATTRIBUTES),
    deny(SYS_removexattr, EPERM, ATTRIBUTES),
    deny(SYS_lremovexattr, EPERM, ATTRIBUTES),
    deny(463, EPERM, ATTRIBUTES), // setxattrat, Linux 6.13
    deny(466, EPERM, ATTRIBUTES), // removexattrat, Linux 6.13
    deny(469, EPERM, ATTRIBUTES), // file_setattr, Linux 6.17
];
#[cfg(target_arch = "x86_64")]
const WITHOUT_VIEW_ARCHITECTURE: &[Rule] = &[
    deny(SYS_chmod, EPERM, ATTRIBUTES),
    deny(SYS_chown, EPERM, ATTRIBUTES),
    deny(SYS_lchown, EPERM, ATTRIBUTES),
    deny(SYS_utime, EPERM, ATTRIBUTES),
    deny(SYS_utimes, EPERM, ATTRIBUTES),
    deny(SYS_futimesat, EPERM, ATTRIBUTES),
];
#[cfg(not(target_arch = "x86_64"))]
const WITHOUT_VIEW_ARCHITECTURE: &[Rule] = &[];

/// A set of rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Profile {
    /// Tier B, with mounts of its own.
    B,
    /// Tier B where the host gives none.
    BWithoutView,
    /// Tier C.
    C,
}

impl Profile {
    #[cfg(test)]
    pub(super) const ALL: [Self; 3] = [Self::B, Self::BWithoutView, Self::C];

    /// Its rules, in order.
    pub(super) fn rules(self) -> impl Iterator<Item = &'static Rule> {
        let own: [&[Rule]; 3] = match self {
            Self::B => [TIER_B, &[], &[]],
            Self::BWithoutView => [TIER_B, WITHOUT_VIEW, WITHOUT_VIEW_ARCHITECTURE],
            Self::C => [TIER_C, &[], &[]],
        };
        COMMON.iter().chain(ARCHITECTURE).chain(own.into_iter().flatten())
    }
}

impl Rule {
    /// Arguments for which it holds, and no other rule of the same call.
    pub(super) fn example(&self) -> [u64; 6] {
        let mut arguments = [0u64; 6];
        for condition in self.when {
            let (at, value) = match condition {
                Condition::Equals(at, value) => (at, u64::from(*value)),
                Condition::Differs(at, value) => (at, u64::from(value ^ 1)),
                Condition::HighDiffers(at, value) => (at, u64::from(value ^ 1) << 32),
                Condition::AnyBit(at, mask) => (at, u64::from(mask & mask.wrapping_neg())),
                Condition::NoneOf(at, values) => {
                    (at, (0..).find(|n| values.iter().all(|value| u64::from(*value) != *n)).unwrap_or(0))
                }
            };
            arguments[usize::from(*at)] = value;
        }
        arguments
    }
}

/// The rules in the form that people read.
pub(crate) fn describe(tier: SandboxTier) -> Vec<SeccompRule> {
    let profile = match tier {
        SandboxTier::B => Profile::B,
        SandboxTier::C => Profile::C,
    };
    let describe = |rule: &Rule| SeccompRule {
        system_call: rule.call,
        errno: rule.errno,
        conditional: !rule.when.is_empty(),
        example: rule.example(),
        reason: rule.reason,
    };
    profile.rules().map(describe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_says_why_and_answers_with_an_error() {
        for profile in Profile::ALL {
            for rule in profile.rules() {
                assert!(rule.reason.len() > 10 && rule.errno > 0, "{rule:?}");
                assert!((0..1024).contains(&rule.call), "{rule:?}");
            }
        }
    }
}

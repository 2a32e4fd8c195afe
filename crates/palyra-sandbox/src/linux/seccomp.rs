//! Turns the seccomp profile into the kernel's filter program.
//!
//! Written here rather than with a filter library because three things must hold at once: one program (bubblewrap takes
//! one), several errors in it, and an end to every foreign calling convention. A 32-bit call, and an x32 call (which on
//! x86-64 shows the same architecture, with a bit set in its number), has other numbers than the profile speaks of:
//! both end the process.

use super::profile::{Condition, Profile, Rule};
use libc::sock_filter;
use std::collections::BTreeMap;
use std::sync::OnceLock;

#[cfg(target_arch = "x86_64")]
const AUDIT_ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const AUDIT_ARCH: u32 = 0xc000_00b7;
#[cfg(target_arch = "riscv64")]
const AUDIT_ARCH: u32 = 0xc000_00f3;

const X32_BIT: u32 = 0x4000_0000;

const LOAD_WORD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const JUMP: u16 = 0x05; // BPF_JMP | BPF_JA
const JUMP_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const JUMP_GREATER_EQUAL: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
const JUMP_ANY_BIT: u16 = 0x45; // BPF_JMP | BPF_JSET | BPF_K
const RETURN: u16 = 0x06; // BPF_RET | BPF_K

const ALLOW: u32 = 0x7fff_0000;
const KILL_PROCESS: u32 = 0x8000_0000;
const ERRNO: u32 = 0x0005_0000;

// Offsets in `struct seccomp_data`.
const OFFSET_NUMBER: u32 = 0;
const OFFSET_ARCH: u32 = 4;
const OFFSET_ARGUMENTS: u32 = 16;

/// The filter of a profile: assembled once, then shared.
pub(super) fn filter(profile: Profile) -> &'static [sock_filter] {
    static FILTERS: [OnceLock<Vec<sock_filter>>; 3] = [const { OnceLock::new() }; 3];
    FILTERS[profile as usize].get_or_init(|| assemble(profile.rules()))
}

/// The filter as bytes, the form in which bubblewrap reads it.
pub(super) fn filter_bytes(profile: Profile) -> Vec<u8> {
    let mut bytes = Vec::new();
    for op in filter(profile) {
        bytes.extend_from_slice(&op.code.to_ne_bytes());
        bytes.extend_from_slice(&[op.jt, op.jf]);
        bytes.extend_from_slice(&op.k.to_ne_bytes());
    }
    bytes
}

fn assemble<'a>(rules: impl Iterator<Item = &'a Rule>) -> Vec<sock_filter> {
    let mut program = vec![
        op(LOAD_WORD, OFFSET_ARCH, 0, 0),
        op(JUMP_EQUAL, AUDIT_ARCH, 1, 0),
        op(RETURN, KILL_PROCESS, 0, 0),
        op(LOAD_WORD, OFFSET_NUMBER, 0, 0),
    ];
    if cfg!(target_arch = "x86_64") {
        program.push(op(JUMP_GREATER_EQUAL, X32_BIT, 0, 1));
        program.push(op(RETURN, KILL_PROCESS, 0, 0));
    }
    let mut by_number: BTreeMap<u32, Vec<&Rule>> = BTreeMap::new();
    for rule in rules {
        by_number.entry(u32::try_from(rule.call).unwrap_or(u32::MAX)).or_default().push(rule);
    }
    let calls: Vec<_> = by_number.into_iter().collect();
    program.extend(search(&calls));
    program
}

/// A binary search for the call's number. When a filter is installed the kernel walks it once for every call there is,
/// to learn which are always allowed: a list would cost every start of a process tens of microseconds.
fn search(calls: &[(u32, Vec<&Rule>)]) -> Vec<sock_filter> {
    match calls {
        [] => vec![op(RETURN, ALLOW, 0, 0)],
        [(number, rules)] => {
            let mut leaf = vec![op(JUMP_EQUAL, *number, 1, 0), op(RETURN, ALLOW, 0, 0)];
            for rule in rules {
                assemble_rule(rule, &mut leaf);
            }
            leaf.push(op(RETURN, ALLOW, 0, 0));
            leaf
        }
        _ => {
            let (low, high) = calls.split_at(calls.len() / 2);
            let pivot = high[0].0;
            let (low, high) = (search(low), search(high));
            // The long jump: a conditional one reaches no further than 255.
            let mut node =
                vec![op(JUMP_GREATER_EQUAL, pivot, 0, 1), op(JUMP, u32::try_from(low.len()).unwrap_or(0), 0, 0)];
            node.extend(low);
            node.extend(high);
            node
        }
    }
}

/// One rule of a call: refuses, or falls through to the next.
fn assemble_rule(rule: &Rule, program: &mut Vec<sock_filter>) {
    let mut body: Vec<Branch> = Vec::new();
    for condition in rule.when {
        assemble_condition(*condition, &mut body);
    }
    let length = body.len();
    for (at, branch) in body.into_iter().enumerate() {
        // Past the rest of the conditions and the refusal.
        let miss = local(length - at);
        program.push(match branch {
            Branch::Load(offset) => op(LOAD_WORD, offset, 0, 0),
            Branch::Need { code, value, wanted: true } => op(code, value, 0, miss),
            Branch::Need { code, value, wanted: false } => op(code, value, miss, 0),
        });
    }
    program.push(op(RETURN, ERRNO | (rule.errno.unsigned_abs() & 0xffff), 0, 0));
}

enum Branch {
    Load(u32),
    Need { code: u16, value: u32, wanted: bool },
}

fn assemble_condition(condition: Condition, body: &mut Vec<Branch>) {
    // Little-endian: the low word of an argument comes first. Every architecture above is little-endian.
    let load = |argument: u8| Branch::Load(OFFSET_ARGUMENTS + 8 * u32::from(argument));
    match condition {
        Condition::Equals(argument, value) => {
            body.push(load(argument));
            body.push(Branch::Need { code: JUMP_EQUAL, value, wanted: true });
        }
        Condition::Differs(argument, value) => {
            body.push(load(argument));
            body.push(Branch::Need { code: JUMP_EQUAL, value, wanted: false });
        }
        Condition::HighDiffers(argument, value) => {
            body.push(Branch::Load(OFFSET_ARGUMENTS + 8 * u32::from(argument) + 4));
            body.push(Branch::Need { code: JUMP_EQUAL, value, wanted: false });
        }
        Condition::AnyBit(argument, mask) => {
            body.push(load(argument));
            body.push(Branch::Need { code: JUMP_ANY_BIT, value: mask, wanted: true });
        }
        Condition::NoneOf(argument, values) => {
            body.push(load(argument));
            for value in values {
                body.push(Branch::Need { code: JUMP_EQUAL, value: *value, wanted: false });
            }
        }
    }
}

/// A jump distance. Rules are far shorter than 255 operations, which `the_program_is_sound` checks.
fn local(distance: usize) -> u8 {
    u8::try_from(distance).unwrap_or(u8::MAX)
}

const fn op(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the program as the kernel would, so that rules can be tried without making the calls.
    fn run(tier: Profile, arch: u32, number: u32, arguments: [u64; 6]) -> u32 {
        let program = filter(tier);
        let word = |offset: u32| match offset {
            OFFSET_NUMBER => number,
            OFFSET_ARCH => arch,
            _ => {
                let (at, half) = ((offset - OFFSET_ARGUMENTS) / 8, (offset - OFFSET_ARGUMENTS) % 8);
                (arguments[at as usize] >> (8 * half)) as u32
            }
        };
        let (mut at, mut accumulator) = (0usize, 0u32);
        loop {
            let op = program[at];
            at += 1;
            let holds = match op.code {
                LOAD_WORD => {
                    accumulator = word(op.k);
                    continue;
                }
                RETURN => return op.k,
                JUMP => {
                    at += op.k as usize;
                    continue;
                }
                JUMP_EQUAL => accumulator == op.k,
                JUMP_GREATER_EQUAL => accumulator >= op.k,
                JUMP_ANY_BIT => accumulator & op.k != 0,
                other => panic!("unknown code {other}"),
            };
            at += usize::from(if holds { op.jt } else { op.jf });
        }
    }

    fn call(tier: Profile, number: libc::c_long, arguments: &[u64]) -> u32 {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        run(tier, AUDIT_ARCH, number as u32, all)
    }

    #[test]
    fn the_program_is_sound() {
        for tier in Profile::ALL {
            let program = filter(tier);
            assert!(program.len() < 4096);
            for (at, op) in program.iter().enumerate() {
                assert!(at + usize::from(op.jt.max(op.jf)) < program.len());
                assert!(op.jt < 100 && op.jf < 100);
                assert!(op.code != JUMP || at + (op.k as usize) < program.len());
            }
            assert_eq!(filter_bytes(tier).len(), program.len() * 8);
        }
    }

    #[test]
    fn every_unconditional_rule_refuses() {
        for tier in Profile::ALL {
            for rule in tier.rules().filter(|rule| rule.when.is_empty()) {
                assert_eq!(call(tier, rule.call, &[]), ERRNO | rule.errno as u32, "{rule:?}");
            }
        }
    }

    #[test]
    fn every_rule_refuses_its_example_and_nothing_next_to_it() {
        for tier in Profile::ALL {
            for rule in tier.rules().filter(|rule| !rule.when.is_empty()) {
                let example = rule.example();
                let plain = tier.rules().any(|other| other.call == rule.call && other.when.is_empty());
                if !plain {
                    assert_eq!(call(tier, rule.call, &example), ERRNO | rule.errno as u32, "{tier:?} {rule:?}");
                }
            }
        }
        let b = Profile::B;
        for (number, harmless) in [
            (libc::SYS_prlimit64, [0, 4, 0, 0x7fff_0000_0000, 0, 0]),
            (libc::SYS_prlimit64, [0, 7, 0x7fff_0000_0000, 0, 0, 0]),
            (libc::SYS_setpriority, [0, 0, 19, 0, 0, 0]),
            (libc::SYS_ioprio_set, [1, 0, 3, 0, 0, 0]),
            (libc::SYS_sched_setaffinity, [0, 8, 0x7fff_0000_0000, 0, 0, 0]),
            (libc::SYS_socketpair, [1, 1 | libc::SOCK_CLOEXEC as u64, 0, 0, 0, 0]),
            (libc::SYS_fchmod, [3, 0o755, 0, 0, 0, 0]),
        ] {
            assert_eq!(call(b, number, &harmless), ALLOW, "{number}");
        }
        assert_eq!(call(Profile::BWithoutView, libc::SYS_utimensat, &[3, 0, 0, 0]), ALLOW);
        assert_eq!(call(Profile::C, libc::SYS_socketpair, &[1, 2]), ALLOW);
    }

    #[test]
    fn arguments_decide() {
        let c = Profile::C;
        let refused = |errno: i32| ERRNO | errno as u32;
        assert_eq!(call(c, libc::SYS_clone, &[libc::CLONE_NEWUSER as u64 | 17]), refused(libc::EPERM));
        assert_eq!(call(c, libc::SYS_clone, &[0x3d0f00]), ALLOW);
        assert_eq!(call(c, libc::SYS_fchmodat, &[0, 0, 0o4755]), refused(libc::EPERM));
        assert_eq!(call(c, libc::SYS_fchmodat, &[0, 0, 0o755]), ALLOW);
        assert_eq!(call(c, libc::SYS_ioctl, &[0, 0xffff_ffff_0000_5412]), refused(libc::EPERM));
        assert_eq!(call(c, libc::SYS_ioctl, &[0, libc::TCGETS]), ALLOW);
        assert_eq!(call(c, libc::SYS_socket, &[libc::AF_VSOCK as u64, 1, 0]), refused(libc::EAFNOSUPPORT));
        assert_eq!(call(c, libc::SYS_socket, &[libc::AF_NETLINK as u64, 3, 0]), ALLOW);
        assert_eq!(call(c, libc::SYS_socket, &[libc::AF_NETLINK as u64, 3, 12]), refused(libc::EAFNOSUPPORT));
        assert_eq!(call(c, libc::SYS_socket, &[libc::AF_UNIX as u64, 1, 0]), ALLOW);
        assert_eq!(call(Profile::B, libc::SYS_socket, &[libc::AF_UNIX as u64, 1, 0]), refused(libc::EAFNOSUPPORT));
        assert_eq!(call(c, libc::SYS_openat, &[0, 0, libc::O_CREAT as u64, 0o4755]), refused(libc::EPERM));
        assert_eq!(call(c, libc::SYS_openat, &[0, 0, 0, 0o4755]), ALLOW);
        assert_eq!(call(c, libc::SYS_read, &[]), ALLOW);
    }

    #[test]
    fn foreign_calling_conventions_end_the_process() {
        assert_eq!(run(Profile::C, 0x4000_0003, 1, [0; 6]), KILL_PROCESS);
        if cfg!(target_arch = "x86_64") {
            assert_eq!(run(Profile::C, AUDIT_ARCH, X32_BIT | 1, [0; 6]), KILL_PROCESS);
        }
    }
}

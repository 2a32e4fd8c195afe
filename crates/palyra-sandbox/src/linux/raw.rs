//! System calls without the C library: for processes that share the daemon's memory.
//!
//! The C library's wrappers store errors in a thread-local variable. The supervisor runs beside the daemon's thread
//! that started it, on the same memory and the same thread-local block, so that variable is not its own. These
//! functions touch nothing but registers. Results are the kernel's: a negative value is an error number.
#![expect(unsafe_code, reason = "one instruction that no compiler knows")]

use std::arch::asm;

/// Makes a system call.
///
/// # Safety
/// As the call itself: pointers among the arguments must be valid for what the kernel does with them.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn syscall(number: i64, arguments: [usize; 6]) -> isize {
    let result: isize;
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the calling convention of x86-64: number in rax, arguments in these registers, rcx and r11 overwritten.
    // The caller vouches for the arguments.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
             in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// Makes a system call.
///
/// # Safety
/// As the call itself: pointers among the arguments must be valid for what the kernel does with them.
#[cfg(target_arch = "aarch64")]
pub(super) unsafe fn syscall(number: i64, arguments: [usize; 6]) -> isize {
    let result: isize;
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the calling convention of AArch64: number in x8, arguments in x0 to x5, result in x0. The caller vouches
    // for the arguments.
    unsafe {
        asm!("svc 0", in("x8") number, inlateout("x0") a as isize => result, in("x1") b, in("x2") c, in("x3") d,
             in("x4") e, in("x5") f, options(nostack));
    }
    result
}

/// Makes a system call.
///
/// # Safety
/// As the call itself: pointers among the arguments must be valid for what the kernel does with them.
#[cfg(target_arch = "riscv64")]
pub(super) unsafe fn syscall(number: i64, arguments: [usize; 6]) -> isize {
    let result: isize;
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the calling convention of RISC-V: number in a7, arguments in a0 to a5, result in a0. The caller vouches
    // for the arguments.
    unsafe {
        asm!("ecall", in("a7") number, inlateout("a0") a as isize => result, in("a1") b, in("a2") c, in("a3") d,
             in("a4") e, in("a5") f, options(nostack));
    }
    result
}

/// Starts a process that shares this one's memory, on a stack of its own, in `entry(argument)`; what `entry` returns is
/// its exit code. Returns its number, or a negative error.
///
/// # Safety
/// `stack_top` must be the end of writable memory that nothing else uses while the process lives, aligned to 16 bytes,
/// with room for all that `entry` does; `flags` must include `CLONE_VM`; `argument` must be valid for `entry`, which
/// must not unwind, allocate, or touch thread-local storage. `pidfd` is where `CLONE_PIDFD` stores its descriptor.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn spawn(
    flags: usize,
    stack_top: *mut u8,
    entry: extern "C" fn(*mut libc::c_void) -> libc::c_int,
    argument: *mut libc::c_void,
    pidfd: *mut libc::c_int,
) -> isize {
    let result: isize;
    // SAFETY: after `syscall` both processes are here. The child has rax = 0, the same registers and its own, empty
    // stack: it calls `entry` (the stack is aligned as the convention wants before a call) and exits with what that
    // returns, so it never runs the code after this block. The parent jumps over that.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r13",
            "call r12",
            "mov edi, eax",
            "mov eax, 60",
            "syscall",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone as isize => result,
            in("rdi") flags, in("rsi") stack_top, in("rdx") pidfd, in("r10") 0, in("r8") 0,
            in("r12") entry, in("r13") argument, lateout("rcx") _, lateout("r11") _,
        );
    }
    result
}

/// Starts a process that shares this one's memory, on a stack of its own, in `entry(argument)`; what `entry` returns is
/// its exit code. Returns its number, or a negative error.
///
/// # Safety
/// As on x86-64.
#[cfg(not(target_arch = "x86_64"))]
pub(super) unsafe fn spawn(
    flags: usize,
    stack_top: *mut u8,
    entry: extern "C" fn(*mut libc::c_void) -> libc::c_int,
    argument: *mut libc::c_void,
    pidfd: *mut libc::c_int,
) -> isize {
    // The C library's wrapper does the same; only when the call fails does it store an error in the shared variable.
    // SAFETY: as this function's own.
    let result = unsafe { libc::clone(entry, stack_top.cast(), flags as libc::c_int, argument, pidfd) };
    if result < 0 { -(libc::EAGAIN as isize) } else { result as isize }
}

/// The same in a control group of version 2, which `group` is an open directory of. An error where there is no such
/// call.
///
/// # Safety
/// As [`spawn`]'s; the stack is given by its beginning and length.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn spawn_in_group(
    group: std::os::fd::RawFd,
    flags: usize,
    stack: (*mut u8, usize),
    entry: extern "C" fn(*mut libc::c_void) -> libc::c_int,
    argument: *mut libc::c_void,
) -> isize {
    // The kernel's `clone_args`: flags, three unused, signal, stack and its length, three unused, group.
    const SIGNAL_MASK: u64 = 0xff;
    const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
    let (flags, signal) = (flags as u64 & !SIGNAL_MASK, flags as u64 & SIGNAL_MASK);
    let (bottom, length) = (stack.0 as u64, stack.1 as u64);
    let arguments: [u64; 11] = [flags | CLONE_INTO_CGROUP, 0, 0, 0, signal, bottom, length, 0, 0, 0, group as u64];
    let result: isize;
    // SAFETY: as in `spawn`; the arguments are a live structure of that size, which the kernel copies.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r13",
            "call r12",
            "mov edi, eax",
            "mov eax, 60",
            "syscall",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone3 as isize => result,
            in("rdi") arguments.as_ptr(), in("rsi") size_of_val(&arguments),
            in("r12") entry, in("r13") argument, lateout("rcx") _, lateout("r11") _,
        );
    }
    result
}

/// The same in a control group: not written for this machine.
///
/// # Safety
/// Does nothing.
#[cfg(not(target_arch = "x86_64"))]
pub(super) unsafe fn spawn_in_group(
    _group: std::os::fd::RawFd,
    _flags: usize,
    _stack: (*mut u8, usize),
    _entry: extern "C" fn(*mut libc::c_void) -> libc::c_int,
    _argument: *mut libc::c_void,
) -> isize {
    -(libc::ENOSYS as isize)
}

/// A call whose arguments are all numbers, or pointers that the caller has checked.
macro_rules! call {
    ($number:expr $(, $argument:expr)* $(,)?) => {{
        let given = [$($argument as usize),*];
        let mut arguments = [0usize; 6];
        let mut at = 0;
        while at < given.len() {
            arguments[at] = given[at];
            at += 1;
        }
        $crate::linux::raw::syscall($number, arguments)
    }};
}
pub(super) use call;

#[cfg(test)]
mod tests {

    #[test]
    fn results_and_errors_come_back() {
        // SAFETY: getpid takes no arguments; close takes a number.
        let (pid, error) = unsafe { (call!(libc::SYS_getpid), call!(libc::SYS_close, usize::MAX)) };
        assert_eq!(pid, std::process::id() as isize);
        assert_eq!(error, -(libc::EBADF as isize));
    }
}

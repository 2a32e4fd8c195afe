//! Two programs of our own that runs execute, each a few machine instructions long.
//!
//! One starts a program under another name: what was checked lies elsewhere than where it was called, and many programs
//! find their files by the name that they hear. A shell could do that (`exec -a`), but a run may have none. The other
//! stands where a shell was hidden and says so, with the exit code for "cannot be executed": nobody looks whether a
//! system has a shell before starting one, so that without it `make`, `npm run` and `system(3)` fail without a reason.
//!
//! Both are written down in machine code: building programs for inside would need another toolchain, and our own binary
//! is neither small nor always the same. On other processors there are none: a program hears its new path, and shells
//! are just gone.

/// Executes its first argument with the others, the second being the name that it hears. Stack at the start: count,
/// arguments, null, environment.
#[cfg(target_arch = "x86_64")]
const EXECUTE_AS: Option<&[u8]> = Some(&[
    0x48, 0x8b, 0x7c, 0x24, 0x10, // mov rdi, [rsp+16]        the first argument
    0x48, 0x8d, 0x74, 0x24, 0x18, // lea rsi, [rsp+24]        the second and all behind it
    0x48, 0x8b, 0x04, 0x24, // mov rax, [rsp]           how many there are
    0x48, 0x8d, 0x54, 0xc4, 0x10, // lea rdx, [rsp+rax*8+16]  the environment
    0xb8, 59, 0, 0, 0, // mov eax, 59              execve
    0x0f, 0x05, // syscall
    0xbf, 126, 0, 0, 0, // mov edi, 126
    0xb8, 231, 0, 0, 0, // mov eax, 231             exit_group
    0x0f, 0x05, // syscall
]);
#[cfg(target_arch = "aarch64")]
const EXECUTE_AS: Option<&[u8]> = Some(&[
    0xe0, 0x0b, 0x40, 0xf9, // ldr x0, [sp, #16]       the first argument
    0xe1, 0x63, 0x00, 0x91, // add x1, sp, #24         the second and all behind it
    0xe2, 0x03, 0x40, 0xf9, // ldr x2, [sp]            how many there are
    0xe2, 0x6f, 0x22, 0x8b, // add x2, sp, x2, lsl #3
    0x42, 0x40, 0x00, 0x91, // add x2, x2, #16         the environment
    0xa8, 0x1b, 0x80, 0xd2, // mov x8, #221            execve
    0x01, 0x00, 0x00, 0xd4, // svc #0
    0xc0, 0x0f, 0x80, 0xd2, // mov x0, #126
    0xc8, 0x0b, 0x80, 0xd2, // mov x8, #94             exit_group
    0x01, 0x00, 0x00, 0xd4, // svc #0
]);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const EXECUTE_AS: Option<&[u8]> = None;

/// Writes the text behind it, whose length comes first, to standard error.
#[cfg(target_arch = "x86_64")]
const SAY: Option<&[u8]> = Some(&[
    0xbf, 2, 0, 0, 0, // mov edi, 2
    0x48, 0x8d, 0x35, 0x1d, 0, 0, 0, // lea rsi, [rip+29]  the text
    0x8b, 0x15, 0x13, 0, 0, 0, // mov edx, [rip+19]  its length
    0xb8, 1, 0, 0, 0, // mov eax, 1         write
    0x0f, 0x05, // syscall
    0xbf, 126, 0, 0, 0, // mov edi, 126
    0xb8, 231, 0, 0, 0, // mov eax, 231       exit_group
    0x0f, 0x05, // syscall
]);
#[cfg(target_arch = "aarch64")]
const SAY: Option<&[u8]> = Some(&[
    0x40, 0x00, 0x80, 0xd2, // mov x0, #2
    0x01, 0x01, 0x00, 0x10, // adr x1, #32    the text
    0xc2, 0x00, 0x00, 0x18, // ldr w2, #24    its length
    0x08, 0x08, 0x80, 0xd2, // mov x8, #64    write
    0x01, 0x00, 0x00, 0xd4, // svc #0
    0xc0, 0x0f, 0x80, 0xd2, // mov x0, #126
    0xc8, 0x0b, 0x80, 0xd2, // mov x8, #94    exit_group
    0x01, 0x00, 0x00, 0xd4, // svc #0
]);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const SAY: Option<&[u8]> = None;

/// `PROGRAM PATH NAME ARGUMENT…`: executes PATH as NAME. `None` on a processor that it is not written for.
pub(super) fn execute_as() -> Option<Vec<u8>> {
    EXECUTE_AS.map(program)
}

/// A program that says that those of a family are not allowed. `None` on a processor that it is not written for.
pub(super) fn refusal(family: &str) -> Option<Vec<u8>> {
    let text =
        format!("palyra: `{family}` is not allowed here; an operator can add `{family}` to `allow_interpreters`\n");
    let length = u32::try_from(text.len()).ok()?.to_le_bytes();
    SAY.map(|code| program(&[code, &length, text.as_bytes()].concat()))
}

/// An ELF file of one segment that begins with its code.
fn program(code: &[u8]) -> Vec<u8> {
    const ADDRESS: u64 = 0x40_0000;
    const HEADERS: u64 = 64 + 56;
    const MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    let size = HEADERS + code.len() as u64;
    let mut file = Vec::new();
    // 64 bits, little-endian, version 1; an executable for this machine.
    file.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    file.extend([2u16, MACHINE].map(u16::to_le_bytes).concat());
    file.extend(1u32.to_le_bytes());
    // Where it begins, where the table of segments is, and that there is none of sections.
    file.extend([ADDRESS + HEADERS, 64, 0].map(u64::to_le_bytes).concat());
    file.extend(0u32.to_le_bytes());
    // The sizes of this header and of a segment's, one segment, no sections.
    file.extend([64u16, 56, 1, 64, 0, 0].map(u16::to_le_bytes).concat());
    // The segment: loaded, read and executed; the whole file at the address, aligned to the largest page there is.
    file.extend([1u32, 5].map(u32::to_le_bytes).concat());
    file.extend([0, ADDRESS, ADDRESS, size, size, 0x1_0000].map(u64::to_le_bytes).concat());
    file.extend(code);
    file
}

#[cfg(test)]
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;
    use std::process::Command;
    use tempfile::TempDir;

    fn put(dir: &TempDir, bytes: &[u8]) -> PathBuf {
        let path = dir.path().join("stub");
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn a_program_is_executed_under_another_name_with_all_it_was_given() {
        let dir = TempDir::new().unwrap();
        let stub = put(&dir, &execute_as().unwrap());
        let line = ["/bin/sh", "some name", "-c", "echo \"$0|$1|$VALUE\"; exit 7"];
        let output = Command::new(&stub).args(&line[..3]).arg(line[3]).args(["zero", "a b"]).env("VALUE", "v").output();
        let output = output.unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "zero|a b|v\n");
        assert_eq!(output.status.code(), Some(7));
        let named = Command::new(&stub).args(["/bin/sh", "other", "-c", "cat /proc/$$/cmdline"]).output().unwrap();
        assert!(named.stdout.starts_with(b"other\0-c\0"), "{named:?}");
        let missing = Command::new(&stub).args(["/nowhere", "x"]).output().unwrap();
        assert_eq!(missing.status.code(), Some(126));
    }

    #[test]
    fn a_hidden_shell_says_how_it_is_allowed() {
        let dir = TempDir::new().unwrap();
        let output = Command::new(put(&dir, &refusal("sh").unwrap())).args(["-c", "true"]).output().unwrap();
        assert_eq!(output.status.code(), Some(126));
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said, "palyra: `sh` is not allowed here; an operator can add `sh` to `allow_interpreters`\n");
    }
}

//! What may be executed: names, copies, links, scripts, wrappers.

use super::*;
use crate::policy::WorkspaceAccess;
use crate::testing::policy;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use tempfile::TempDir;

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn executable(dir: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, bytes).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// `expect` is the error's code, or the last program that would run.
fn check(policy: &SandboxProcessRunnerPolicy, line: &str, expect: &str) {
    let got = match resolve_executable(policy, &words(line), &policy.workspace_root) {
        Ok(resolved) => base_name(resolved.programs().last().unwrap()).to_owned(),
        Err(error) => error.code().to_owned(),
    };
    assert_eq!(got, expect, "{line}");
}

#[test]
fn shells_are_denied_however_they_are_called() {
    let dir = TempDir::new().unwrap();
    let policy = policy(dir.path());
    symlink("/bin/bash", dir.path().join("ls")).unwrap();
    symlink("ls", dir.path().join("ls2")).unwrap();
    fs::copy("/bin/bash", dir.path().join("tool")).unwrap();
    fs::copy("/usr/bin/env", dir.path().join("wrap")).unwrap();
    let mut changed = fs::read("/bin/bash").unwrap();
    changed.push(0);
    executable(dir.path(), "changed", &changed);
    executable(dir.path(), "script", b"#!/bin/sh\ntrue\n");
    executable(dir.path(), "script2", b"#!/usr/bin/env -S python3 -u\n");
    executable(dir.path(), "nested", format!("#!{}/script\n", dir.path().display()).as_bytes());
    for line in [
        "bash",
        "/bin/bash",
        "sh",
        "dash",
        "python3",
        "perl",
        "awk",
        "env bash",
        "/usr/bin/env -i A=1 sh",
        "timeout 5 bash",
        "nice -n 1 timeout 5 env sh",
        "xargs sh -c x",
        "find . -exec sh -c x ;",
        "./ls",
        "./ls2",
        "./tool",
        "./changed",
        "./script",
        "./script2",
        "./nested",
        "env ./script",
        "./wrap bash",
    ] {
        check(&policy, line, "sandbox_interpreter_denied");
    }
}

#[test]
fn the_loader_and_launchers_are_denied() {
    let dir = TempDir::new().unwrap();
    let policy = policy(dir.path());
    for line in ["/lib64/ld-linux-x86-64.so.2 /bin/bash", "setpriv ls", "unshare ls", "su"] {
        check(&policy, line, "sandbox_interpreter_denied");
    }
}

#[test]
fn ordinary_programs_pass() {
    let dir = TempDir::new().unwrap();
    let policy = policy(dir.path());
    for (line, program) in [
        ("ls -l", "ls"),
        ("/bin/cat x", "cat"),
        ("env ls", "ls"),
        ("timeout 5 ls", "ls"),
        ("find . -name x", "find"),
        ("xargs -n1 cat", "cat"),
    ] {
        check(&policy, line, program);
    }
}

#[test]
fn an_interpreter_can_be_allowed_by_name_family_or_link() {
    let dir = TempDir::new().unwrap();
    let mut policy = policy(dir.path());
    executable(dir.path(), "script", b"#!/usr/bin/env python3\n");
    let python = base_name(&fs::canonicalize("/usr/bin/python3").unwrap()).to_owned();
    for entry in ["python", "python3", python.as_str()] {
        policy.allow_interpreters = vec![entry.into()];
        check(&policy, "python3 -c 1", &python);
        check(&policy, "./script", &python);
        check(&policy, "bash", "sandbox_interpreter_denied");
    }
}

#[test]
fn an_allowed_name_opens_nothing_but_what_it_means() {
    let dir = TempDir::new().unwrap();
    let mut policy = policy(dir.path());
    policy.allow_interpreters = vec!["python3".into()];
    fs::create_dir(dir.path().join("a")).unwrap();
    fs::copy("/bin/bash", dir.path().join("python3")).unwrap();
    symlink("/bin/bash", dir.path().join("a/python3")).unwrap();
    check(&policy, "./python3 -c 1", "sandbox_interpreter_denied");
    check(&policy, "./a/python3 -c 1", "sandbox_interpreter_denied");
    // A copy of the program that was allowed is that program.
    fs::copy("/usr/bin/python3", dir.path().join("copy")).unwrap();
    check(&policy, "./copy -c 1", "copy");
    policy.allowed_executables = vec!["ls".into()];
    fs::copy("/usr/bin/id", dir.path().join("a/python3.11")).unwrap();
    check(&policy, "./a/python3.11", "sandbox_executable_not_allowed");
    check(&policy, "./copy", "sandbox_executable_not_allowed");
    check(&policy, "/usr/bin/python3", base_name(&fs::canonicalize("/usr/bin/python3").unwrap()));
}

#[test]
fn what_xargs_and_find_put_together_is_refused() {
    let dir = TempDir::new().unwrap();
    let policy = policy(dir.path());
    fs::copy("/bin/true", dir.path().join("tool")).unwrap();
    fs::copy("/bin/true", dir.path().join("{}")).unwrap();
    for line in [
        "xargs env",
        "xargs timeout 5",
        "xargs nice",
        "xargs -I ls env ls -c",
        "xargs -I X ./tool X",
        "xargs git",
        "xargs sed -i s/a/b/",
        "xargs tar -tf",
        "find . -exec env -u + bash -c x ;",
        "find . -exec env ./{} x ;",
        "find . -exec env ls ;",
        "find . -execdir ./tool ;",
        "find . -exec sed {} x ;",
    ] {
        check(&policy, line, "sandbox_wrapper_refused");
    }
    for (line, expect) in [
        ("xargs --replace bash true", "sandbox_interpreter_denied"),
        ("xargs --max-lines bash true", "sandbox_interpreter_denied"),
        ("xargs -I X cp X old", "cp"),
        ("xargs ./tool", "tool"),
        ("find . -exec ./tool {} +", "tool"),
        ("find . -name x -exec grep -l y {} ;", "grep"),
    ] {
        check(&policy, line, expect);
    }
}

#[test]
fn a_shebang_hides_no_arguments() {
    let dir = TempDir::new().unwrap();
    let mut policy = policy(dir.path());
    executable(dir.path(), "s1", b"#!/usr/bin/find\n");
    executable(dir.path(), "s2", b"#!/usr/bin/tar -xf\n");
    executable(dir.path(), "s3", format!("#!{}/tool\r\n", dir.path().display()).as_bytes());
    fs::copy("/bin/true", dir.path().join("tool")).unwrap();
    fs::copy("/bin/bash", dir.path().join("tool\r")).unwrap();
    check(&policy, "./s1 -exec bash -c x ;", "sandbox_interpreter_denied");
    check(&policy, "./s1 -name x", "find");
    check(&policy, "./s2 --to-command=sh", "sandbox_wrapper_refused");
    check(&policy, "./s3", "sandbox_interpreter_denied");
    // A script that speaks of an interpreter is not one.
    executable(dir.path(), "s5", b"#!/bin/true\n# Fatal Python error: none\n");
    check(&policy, "./s5", "true");
    policy.allow_interpreters = vec!["python3".into()];
    executable(dir.path(), "s4", b"#!/usr/bin/env -S python3 -u\n");
    let resolved = resolve_executable(&policy, &words("nice ./s4 a"), dir.path()).unwrap();
    assert_eq!(resolved.command(), words("nice /usr/bin/env python3 -u ./s4 a"));
    let roles: Vec<_> = resolved.chain().into_iter().map(|step| step.role).collect();
    assert_eq!(roles, ["wrapper", "script", "wrapper", "interpreter python"]);
    let named: Vec<_> = resolved.files().map(|file| resolved.command()[file.word].clone()).collect();
    assert_eq!(named, ["nice", "./s4", "/usr/bin/env", "python3"]);
}

#[test]
fn copies_are_known_whatever_was_put_around_them() {
    let dir = TempDir::new().unwrap();
    let policy = policy(dir.path());
    for program in
        ["/bin/dash", "/bin/bash", "/usr/bin/mawk", "/lib64/ld-linux-x86-64.so.2", "/usr/bin/ssh", "/usr/bin/env"]
    {
        let mut bytes = fs::read(program).unwrap();
        bytes.push(0);
        executable(dir.path(), "longer", &bytes);
        let expect =
            if program == "/usr/bin/env" { "sandbox_environment_refused" } else { "sandbox_interpreter_denied" };
        check(&policy, "./longer LD_PRELOAD=x ls", expect);
    }
    executable(dir.path(), "padded", &fs::read("/bin/bash").unwrap());
    fs::File::options().write(true).open(dir.path().join("padded")).unwrap().set_len(65 << 20).unwrap();
    check(&policy, "./padded", "sandbox_interpreter_denied");
    // The options of a copy are those of the original.
    fs::copy("/usr/bin/tar", dir.path().join("archive")).unwrap();
    check(&policy, "./archive --to-command=sh -xf x", "sandbox_wrapper_refused");
    check(&policy, "./archive -xf x", "archive");
}

#[test]
fn names_that_can_be_led_elsewhere_are_told() {
    let dir = TempDir::new().unwrap();
    let mut policy = policy(dir.path());
    fs::copy("/bin/true", dir.path().join("tool")).unwrap();
    symlink("/bin/true", dir.path().join("link")).unwrap();
    let told = |policy: &SandboxProcessRunnerPolicy, line: &str| {
        let resolved = resolve_executable(policy, &words(line), dir.path()).unwrap();
        resolved.files().map(|file| (file.replaceable, file.writable)).collect::<Vec<_>>()
    };
    assert_eq!(told(&policy, "nice ./tool"), [(false, false), (true, true)]);
    assert_eq!(told(&policy, "./link"), [(true, false)]);
    assert_eq!(told(&policy, "/bin/true"), [(false, false)]);
    policy.workspace_access = WorkspaceAccess::ReadOnly;
    assert_eq!(told(&policy, "./tool"), [(false, false)]);
}

#[test]
fn an_allow_list_means_the_systems_file() {
    let dir = TempDir::new().unwrap();
    let mut policy = policy(dir.path());
    policy.allowed_executables = vec!["ls".into()];
    fs::copy("/bin/true", dir.path().join("ls")).unwrap();
    check(&policy, "ls", "ls");
    check(&policy, "./ls", "sandbox_executable_not_allowed");
    check(&policy, "cat", "sandbox_executable_not_allowed");
    // A wrapper has to be on the list, and so does what it wraps.
    check(&policy, "env ls", "sandbox_executable_not_allowed");
    policy.allowed_executables.push("env".into());
    check(&policy, "env ls", "ls");
    check(&policy, "env cat", "sandbox_executable_not_allowed");
    policy.allowed_executables = vec!["bash".into()];
    check(&policy, "bash", "sandbox_interpreter_denied");
}

#[test]
fn bad_commands() {
    let dir = TempDir::new().unwrap();
    let policy = policy(dir.path());
    executable(dir.path(), "text", b"echo hello\n");
    fs::write(dir.path().join("plain"), b"\x7fELF").unwrap();
    check(&policy, "", "sandbox_empty_command");
    check(&policy, "no-such-program", "sandbox_executable_not_found");
    check(&policy, "./missing", "sandbox_executable_not_found");
    check(&policy, "./text", "sandbox_not_executable");
    check(&policy, "./plain", "sandbox_not_executable");
    check(&policy, "/tmp", "sandbox_not_executable");
    // A loop of scripts ends.
    let looping = dir.path().join("loop");
    executable(dir.path(), "loop", format!("#!{}\n", looping.display()).as_bytes());
    check(&policy, "./loop", "sandbox_wrapper_refused");
}

#[test]
fn a_protected_program_does_not_exist() {
    let dir = TempDir::new().unwrap();
    let mut policy = policy(dir.path());
    fs::copy("/bin/true", dir.path().join("x")).unwrap();
    policy.protected_paths = vec![dir.path().to_owned()];
    check(&policy, "./x", "sandbox_executable_not_found");
}

//! What may be executed: names, copies, links, scripts, wrappers.

use super::*;
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

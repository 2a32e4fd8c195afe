//! What may be executed: names, copies, links, scripts, and what wrappers start where that can be told.

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
    ] {
        check(&policy, line, "sandbox_interpreter_denied");
    }
}

#[test]
fn a_denial_says_what_is_not_allowed_and_why() {
    let dir = TempDir::new().unwrap();
    let policy = policy(dir.path());
    fs::copy("/bin/bash", dir.path().join("tool")).unwrap();
    executable(dir.path(), "script", b"#!/bin/sh\n");
    executable(dir.path(), "by-env", b"#!/usr/bin/env python3\n");
    symlink("/bin/bash", dir.path().join("link")).unwrap();
    let tool = dir.path().canonicalize().unwrap().join("tool");
    for (line, expect, add) in [
        ("bash", "`bash` is not allowed here: it runs arbitrary code".to_owned(), "`bash`"),
        ("./script", "`sh` is not allowed here: `./script` is a script for it".to_owned(), "`sh`"),
        ("./by-env", "`python3` is not allowed here: `./by-env` is a script for it".to_owned(), "`python3`"),
        ("egrep x", "`sh` is not allowed here: `egrep` is a script for it".to_owned(), "`sh`"),
        ("./tool", format!("`tool` is not allowed here: `{}` is a copy of `bash`", tool.display()), "`tool`"),
        ("./link", "`link` is not allowed here: `./link` is `bash`, which runs arbitrary code".to_owned(), "`link`"),
    ] {
        let refused = resolve_executable(&policy, &words(line), dir.path()).unwrap_err();
        assert_eq!(refused.to_string(), expect, "{line}");
        let hint = refused.hint().unwrap();
        assert!(hint.contains(add) && hint.contains("`allow_interpreters`"), "{hint}");
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
        ("xargs git", "git"),
        ("xargs sed -i s/a/b/", "sed"),
        ("tar -I zstd -cf x.tar .", "tar"),
        ("git -c alias.x=!ls x", "git"),
        ("sed 1e f", "sed"),
        ("sqlite3 x.db select'a'||'b'", "sqlite3"),
        ("env PYTHONPATH=. LD_PRELOAD=x ls", "ls"),
        ("less +G x", "less"),
        ("setpriv ls", "setpriv"),
        ("/lib64/ld-linux-x86-64.so.2 /bin/bash", "ld-linux-x86-64.so.2"),
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
fn a_shell_opens_what_is_less_than_it() {
    let dir = TempDir::new().unwrap();
    let mut policy = policy(dir.path());
    policy.allow_interpreters = vec!["bash".into()];
    let awk = base_name(&fs::canonicalize("/usr/bin/awk").unwrap()).to_owned();
    check(&policy, "awk 1", &awk);
    check(&policy, "egrep x", base_name(&fs::canonicalize("/bin/sh").unwrap()));
    check(&policy, "python3", "sandbox_interpreter_denied");
}

#[test]
fn what_a_wrapper_starts_is_told_or_said_to_be_unknown() {
    let dir = TempDir::new().unwrap();
    let mut policy = policy(dir.path());
    fs::copy("/bin/true", dir.path().join("tool")).unwrap();
    executable(dir.path(), "in-{}", b"#!/bin/true\n");
    let roles = |policy: &SandboxProcessRunnerPolicy, line: &str| {
        let resolved = resolve_executable(policy, &words(line), dir.path());
        resolved.map(|found| found.chain().into_iter().map(|step| step.role).collect::<Vec<_>>().join(", "))
    };
    for (line, expect) in [
        ("xargs -I X cp X old", "wrapper, program"),
        ("xargs ./tool", "wrapper, program"),
        ("xargs -I X ./tool X", "wrapper, program"),
        ("find . -exec ./tool {} +", "wrapper, program"),
        ("xargs env", "wrapper, wrapper"),
        ("find . -exec env ls ;", "wrapper, wrapper, program"),
        ("env -S ls", "wrapper of something that cannot be told"),
        ("find . -execdir ./tool ;", "wrapper of something that cannot be told"),
    ] {
        assert_eq!(roles(&policy, line).unwrap(), expect, "{line}");
    }
    check(&policy, "xargs -I true ./in-{}", "sandbox_wrapper_refused");
    // Where only listed programs may run, one that cannot be told may not.
    policy.allowed_executables = vec!["env".into(), "ls".into()];
    check(&policy, "env ls", "ls");
    check(&policy, "env -S ls", "sandbox_wrapper_refused");
}

#[test]
fn a_shebang_hides_no_arguments() {
    let dir = TempDir::new().unwrap();
    let mut policy = policy(dir.path());
    executable(dir.path(), "s1", b"#!/usr/bin/find\n");
    executable(dir.path(), "s3", format!("#!{}/tool\r\n", dir.path().display()).as_bytes());
    fs::copy("/bin/true", dir.path().join("tool")).unwrap();
    fs::copy("/bin/bash", dir.path().join("tool\r")).unwrap();
    check(&policy, "./s1 -exec bash -c x ;", "sandbox_interpreter_denied");
    check(&policy, "./s1 -name x", "find");
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
    for program in ["/bin/dash", "/bin/bash", "/usr/bin/mawk"] {
        let mut bytes = fs::read(program).unwrap();
        bytes.push(0);
        executable(dir.path(), "longer", &bytes);
        check(&policy, "./longer x", "sandbox_interpreter_denied");
    }
    executable(dir.path(), "padded", &fs::read("/bin/bash").unwrap());
    fs::File::options().write(true).open(dir.path().join("padded")).unwrap().set_len(65 << 20).unwrap();
    check(&policy, "./padded", "sandbox_interpreter_denied");
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
fn a_bound_program_is_what_runs() {
    let dir = TempDir::new().unwrap();
    let policy = policy(dir.path());
    let tool = dir.path().join("tool");
    fs::copy("/bin/true", &tool).unwrap();
    let resolved = resolve_executable(&policy, &words("nice ./tool"), dir.path()).unwrap();
    // Whoever puts another program there now changes nothing of what runs, nor of what it counts as.
    fs::remove_file(&tool).unwrap();
    fs::copy("/bin/echo", &tool).unwrap();
    let own = ProgramContent::Digest(Digest::of(&fs::read("/bin/true").unwrap()));
    assert_eq!(
        resolved.contents().iter().map(|(_, content)| *content).collect::<Vec<_>>(),
        [ProgramContent::AsItIs, own]
    );
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

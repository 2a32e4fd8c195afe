//! Programs that are not allowed are gone, however they are started; what is left works, and what lacks one is told
//! which.

use palyra_containment::*;
use palyra_sandbox::*;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// A world in which no interpreter may run, with a program that tries to execute hidden ones by every path it knows.
fn strict(tier: SandboxTier) -> World {
    let mut world = world(tier);
    world.policy.allow_interpreters.clear();
    fs::write(world.workspace.join("probe.c"), PROBE).unwrap();
    fs::write(world.workspace.join("say.py"), "print('OWNED')\n").unwrap();
    fs::write(world.workspace.join("say.sh"), "echo OWNED\n").unwrap();
    symlink("/usr/bin/python3", world.workspace.join("tool")).unwrap();
    let made = std::process::Command::new("cc").args(["-o", "probe", "probe.c"]).current_dir(&world.workspace).status();
    assert!(made.unwrap().success());
    world
}

/// Executes what its arguments name by path, by descriptor and through `/proc`, then tries to take the walls down and
/// does it again.
const PROBE: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
static void try(int directory, const char *path, char *const argv[], int flags) {
    if (fork() == 0) { syscall(SYS_execveat, directory, path, argv, environ, flags); _exit(1); }
    wait(0);
}
static void all(char *program, char *script) {
    char *argv[] = { program, script, 0 };
    const char *from[] = { "", "/proc/self/root", "/proc/1/root", "/proc/thread-self/root", "/proc/self/cwd/../../../../..", "/." };
    char path[4096];
    for (int i = 0; i < 6; i++) { snprintf(path, sizeof path, "%s%s", from[i], program); try(AT_FDCWD, path, argv, 0); }
    snprintf(path, sizeof path, "/proc/%d/root%s", getppid(), program); try(AT_FDCWD, path, argv, 0);
    for (int flags = 0; flags < 2; flags++) {
        int fd = open(program, flags ? O_PATH : O_RDONLY);
        if (fd >= 0) { try(fd, "", argv, AT_EMPTY_PATH); close(fd); }
    }
    int top = open("/", O_PATH | O_DIRECTORY), usr = open("/usr", O_PATH | O_DIRECTORY);
    try(top, program + 1, argv, 0);
    if (strncmp(program, "/usr/", 5) == 0) try(usr, program + 5, argv, 0);
    unlink("linked"); symlink(program, "linked"); try(AT_FDCWD, "linked", argv, 0);
    unlink("hard"); if (link(program, "hard") == 0) { puts("LINKED"); try(AT_FDCWD, "hard", argv, 0); }
    int in = open(program, O_RDONLY), out = open("copied", O_CREAT | O_TRUNC | O_WRONLY, 0755);
    char bytes[65536]; ssize_t n, all = 0;
    while (in >= 0 && (n = read(in, bytes, sizeof bytes)) > 0) { write(out, bytes, n); all += n; }
    close(out); if (all > 4096) { puts("COPIED"); try(AT_FDCWD, "./copied", argv, 0); }
    char *loaders[] = { "/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1" };
    for (int i = 0; i < 2; i++) { char *loaded[] = { loaders[i], program, script, 0 }; try(AT_FDCWD, loaders[i], loaded, 0); }
}
int main(int count, char **argv) {
    for (int round = 0; round < 2; round++) {
        for (int i = 1; i + 1 < count; i += 2) all(argv[i], argv[i + 1]);
        if (umount2("/usr/bin", MNT_DETACH) == 0) puts("UNMOUNTED");
        unshare(CLONE_NEWUSER | CLONE_NEWNS);
        umount2("/usr/bin", MNT_DETACH);
        mount("tmpfs", "/usr/bin", "tmpfs", 0, "");
    }
    puts("done");
    return 0;
}
"#;

/// Real files and links, of shells and of others.
fn attacks() -> Vec<String> {
    let mut words = vec!["./probe".to_owned()];
    for (name, script) in [("sh", "say.sh"), ("bash", "say.sh"), ("dash", "say.sh"), ("python3", "say.py")] {
        let path = Path::new("/usr/bin").join(name);
        let real = path.canonicalize().unwrap();
        for path in [path, real, Path::new("/bin").join(name)] {
            words.extend([path.display().to_string(), script.to_owned()]);
        }
    }
    words
}

/// Everything that must not start a hidden program.
fn nothing_starts_a_hidden_program(world: &World) {
    let words = attacks();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let probed = world.run(&words);
    assert_eq!(stdout(&probed), "done\n", "{} {}", world.policy.tier, stderr(&probed));
    let makefile = "direct:\n\tpython3 say.py\nlinked:\n\t./tool say.py\nshell:\n\techo OWNED > owned; true\n\
                    loaded:\n\t/lib64/ld-linux-x86-64.so.2 /usr/bin/python3 say.py\n\
                    perl:\n\tperl -e system\n";
    fs::write(world.workspace.join("Makefile"), makefile).unwrap();
    for (argv, stdin) in [
        (&["xargs", "env"][..], "python3 say.py"),
        (&["xargs", "env"], "sh say.sh"),
        (&["xargs", "-I", "X", "nice", "X", "say.py"], "python3"),
        (&["xargs", "-a", "say.py", "env", "-S", "python3 say.py"], ""),
        (&["env", "-S", "bash say.sh"], ""),
        (&["env", "--split-string=dash say.sh"], ""),
        (&["find", ".", "-name", "tool", "-exec", "{}", "say.py", ";"], ""),
        (&["find", ".", "-name", "say.py", "-execdir", "./tool", "{}", "+"], ""),
        (&["make", "-k", "direct", "linked", "shell", "loaded", "perl"], ""),
        (&["/lib64/ld-linux-x86-64.so.2", "/usr/bin/python3", "say.py"], ""),
        (&["git", "-c", "alias.x=!echo OWNED", "x"], ""),
        (&["git", "-c", "core.pager=echo OWNED", "-p", "--version"], ""),
        (&["tar", "--to-command=echo OWNED", "-xf", "x.tar"], ""),
        (&["tar", "-I", "echo OWNED", "-cf", "x.tar", "say.py"], ""),
        (&["sed", "1e echo OWNED", "say.py"], ""),
        (&["setpriv", "python3", "say.py"], ""),
        (&["timeout", "-k", "1", "9", "setsid", "-w", "env", "-S", "python3 say.py"], ""),
        (&["cc", "-wrapper", "python3,say.py", "probe.c"], ""),
    ] {
        let ran = world.run_with(argv, stdin);
        let written = stdout(&ran) + &stderr(&ran);
        let owned = written.lines().any(|line| line == "OWNED");
        assert!(!owned && !world.workspace.join("owned").exists(), "{} {argv:?}: {ran:?}", world.policy.tier);
    }
}

#[test]
fn what_is_not_allowed_cannot_be_executed_however_it_is_started() {
    for tier in TIERS {
        let world = strict(tier);
        nothing_starts_a_hidden_program(&world);
        let outcome = world.run(&["true"]);
        let layer = outcome.enforcement.layers.iter().find(|layer| layer.name == "hidden_programs").unwrap();
        assert!(layer.applied && !layer.detail.contains("no overlays"), "{layer:?}");
        for family in ["bash", "perl", "python", "sh"] {
            assert!(layer.detail.contains(family), "{layer:?}");
        }
    }
}

/// The proof that the probe would be seen.
#[test]
fn what_is_allowed_is_executed_by_every_path() {
    for tier in TIERS {
        let mut world = strict(tier);
        world.policy.allow_interpreters = ["sh", "bash", "python3"].map(str::to_owned).to_vec();
        let words = attacks();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let probed = world.run(&words);
        assert_eq!(probed.ended_by, None, "{tier}");
        let owned = stdout(&probed).lines().filter(|line| *line == "OWNED").count();
        // At least by its path, by two descriptors, through two directories, by a link and by the loader, in both
        // rounds.
        assert!(owned >= 4 * 3 * 2 * 6, "{tier} {owned}: {}", stderr(&probed));
    }
}

/// A workspace may hold anything that can be compiled, so a copy of an interpreter in it is no more than that. It is
/// recognised where a call names it, and not where something else starts it.
#[test]
fn a_copy_in_the_workspace_is_beyond_the_walls() {
    for tier in TIERS {
        let world = strict(tier);
        fs::copy("/usr/bin/python3", world.workspace.join("copy")).unwrap();
        let refused = world.try_run(&world.request(&["./copy", "say.py"])).unwrap_err();
        assert_eq!(refused.code(), "sandbox_interpreter_denied");
        fs::write(world.workspace.join("Makefile"), "all:\n\t@./copy say.py\n").unwrap();
        expect_output(&world.run(&["make"]), "OWNED");
    }
}

#[test]
fn ordinary_commands_work_without_a_shell() {
    for tier in TIERS {
        let world = strict(tier);
        fs::write(world.workspace.join("paths"), "a/b\nc//d\n").unwrap();
        fs::write(world.workspace.join("Makefile"), "$(info to $(PREFIX))\nall:\n\t@true\n").unwrap();
        let git = |line: &str| {
            let ran = std::process::Command::new("git").args(line.split(' ')).current_dir(&world.workspace).output();
            assert!(ran.unwrap().status.success(), "{line}");
        };
        ["init -q -b main .", "config alias.st status", "config alias.two rev-parse"].iter().for_each(|line| git(line));
        for (argv, stdin, expect) in [
            (&["cut", "-d/", "-f2", "paths"][..], "", "b\n"),
            (&["tr", "/", "_"], "a/b", "a_b"),
            (&["sort", "-t/", "-rk1", "paths"], "", "c//d\na/b"),
            (&["grep", "//", "paths"], "", "c//d"),
            (&["make", "PREFIX=/opt/x"], "", "to /opt/x"),
            (&["sqlite3", "x.db", "select 'a' || 'b'"], "", "ab"),
            (&["xargs", "sed", "-n", "1p"], "paths", "a/b"),
            (&["xargs", "git", "rev-parse"], "--is-inside-work-tree", "true"),
            (&["git", "st", "--short", "paths"], "", "?? paths"),
            (&["git", "-c", "core.pager=cat", "two", "--is-bare-repository"], "", "false"),
            (&["env", "PYTHONPATH=.", "printenv", "PYTHONPATH"], "", "."),
            (&["less", "+G", "paths"], "", "a/b\nc//d"),
            (&["find", ".", "-name", "paths", "-exec", "grep", "-c", "d", "{}", ";"], "", "1"),
        ] {
            let ran = world.run_with(argv, stdin);
            assert_eq!(stdout(&ran).trim(), expect.trim(), "{tier} {argv:?}: {}", stderr(&ran));
        }
    }
}

#[test]
fn what_needs_a_shell_works_with_one_and_says_so_without() {
    for tier in TIERS {
        let mut world = strict(tier);
        fs::write(world.workspace.join("f"), "one\n").unwrap();
        fs::write(world.workspace.join("f.gz"), gzipped(&world)).unwrap();
        fs::write(world.workspace.join("Makefile"), "all:\n\t@echo one; true\n").unwrap();
        let scripts: [&[&str]; 4] =
            [&["which", "ls"], &["egrep", "one", "f"], &["zcat", "f.gz"], &["gunzip", "-c", "f.gz"]];
        for argv in scripts {
            let refused = world.try_run(&world.request(argv)).unwrap_err();
            let said = format!("`sh` is not allowed here: `{}` is a script for it", argv[0]);
            assert_eq!((refused.code(), refused.to_string()), ("sandbox_interpreter_denied", said));
            assert_eq!(refused.hint().unwrap(), "an operator can add `sh` to `allow_interpreters`");
        }
        let refused = world.try_run(&world.request(&["ldd", "/bin/ls"])).unwrap_err();
        assert!(refused.to_string().starts_with("`bash` is not allowed here"), "{refused}");
        let inner: [&[&str]; 3] =
            [&["make"], &["git", "-c", "alias.x=!true; true", "x"], &["tar", "-I", "zstd", "-cf", "x.tar.zst", "f"]];
        for argv in inner {
            let failed = world.run(argv);
            let missing = failed.missing_programs.clone().unwrap_or_else(|| panic!("{tier} {argv:?}: {failed:?}"));
            assert!(!failed.exit.success() && missing.names == ["sh"], "{tier} {argv:?}: {missing:?}");
            assert!(stderr(&failed).contains("palyra: `sh` is not allowed here"), "{}", stderr(&failed));
            assert_eq!(
                missing.hint("allow it"),
                "`sh` is not allowed here, so Palyra hides it; allow it",
                "{tier} {argv:?}"
            );
        }
        let lacking = world.run(&["env", "-S", "python3 say.py"]);
        assert_eq!(lacking.exit, ProcessExit::Code(127));
        assert_eq!(lacking.missing_programs.unwrap().names, ["python3"]);
        world.policy.allow_interpreters = vec!["sh".into()];
        for argv in scripts.iter().chain(&inner) {
            let ran = world.run(argv);
            assert!(ran.exit.success(), "{tier} {argv:?}: {}", stderr(&ran));
        }
        // A shell includes what is less than it.
        world.policy.allow_interpreters = vec!["bash".into()];
        for argv in [&["awk", "{print $1}", "f"][..], &["ldd", "/bin/ls"], &["egrep", "one", "f"], &["make"]] {
            let ran = world.run(argv);
            assert!(ran.exit.success(), "{tier} {argv:?}: {}", stderr(&ran));
        }
    }
}

fn gzipped(world: &World) -> Vec<u8> {
    std::process::Command::new("gzip").arg("-c").arg(world.workspace.join("f")).output().unwrap().stdout
}

/// In the host's directories, so behind a mount of our own.
#[test]
fn what_is_installed_meanwhile_is_hidden_too() {
    const NAME: &str = "walls::what_is_installed_meanwhile_is_hidden_too";
    let prepare = "mount --make-rprivate / && mount -t tmpfs -o mode=755 none /usr/local/bin && exec \"$@\"";
    as_root_alone(NAME, &["unshare", "--mount", "sh", "-c", prepare, "sh"], || {
        for tier in TIERS {
            let world = strict(tier);
            let added = Path::new("/usr/local/bin/python9");
            fs::write(world.workspace.join("Makefile"), "all:\n\t/usr/local/bin/python9 say.py\n").unwrap();
            assert!(world.run(&["true"]).exit.success());
            fs::copy("/usr/bin/python3", added).unwrap();
            let ran = world.run(&["make"]);
            assert!(!ran.exit.success() && !stdout(&ran).contains("OWNED\n"), "{tier}: {ran:?}");
            fs::remove_file(added).unwrap();
        }
    });
}

/// A third overlay over two others is one too many for the kernel.
const NO_OVERLAYS: &str = "mount --make-rprivate / && mount -t tmpfs -o mode=755 none /mnt && mkdir /mnt/none && \
     mount -t overlay -o lowerdir=/mnt/none:/usr/bin none /usr/bin && \
     mount -t overlay -o lowerdir=/mnt/none:/usr/bin none /usr/bin && ";

fn nothing_is_weaker_without_overlays() {
    for tier in TIERS {
        let world = strict(tier);
        let outcome = world.run(&["true"]);
        let layer = outcome.enforcement.layers.iter().find(|layer| layer.name == "hidden_programs").unwrap();
        assert!(layer.applied && layer.detail.contains("this host gives no overlays"), "{layer:?}");
        nothing_starts_a_hidden_program(&world);
        expect_output(&world.run(&["cut", "-d/", "-f1", "say.sh"]), "echo OWNED");
        let mut allowed = strict(tier);
        allowed.policy.allow_interpreters = vec!["python3".into()];
        expect_output(&allowed.run(&["python3", "say.py"]), "OWNED");
    }
}

#[test]
fn where_there_are_no_overlays_other_walls_stand() {
    const NAME: &str = "walls::where_there_are_no_overlays_other_walls_stand";
    let prepare = format!("{NO_OVERLAYS} exec \"$@\"");
    as_root_alone(NAME, &["unshare", "--mount", "sh", "-c", &prepare, "sh"], nothing_is_weaker_without_overlays);
}

#[test]
fn where_there_are_no_overlays_other_walls_stand_for_an_ordinary_user() {
    const NAME: &str = "walls::where_there_are_no_overlays_other_walls_stand_for_an_ordinary_user";
    prepared_by_root(NAME, NO_OVERLAYS, nothing_is_weaker_without_overlays);
}

/// A host that keeps tokens where everybody may read them.
const CREDENTIALS: &str = "mount --make-rprivate / && mount -t tmpfs -o mode=755 none /mnt && cp -a /etc /mnt/ && \
     for f in /mnt/etc /usr/etc /usr/local/etc; do [ -d $f ] || continue; \
     [ $f = /mnt/etc ] || mount -t tmpfs -o mode=755 none $f; printf '[user]\\n\\tname = TOKEN\\n' > $f/gitconfig; \
     echo //registry.test/:_authToken=TOKEN > $f/npmrc; chmod 644 $f/gitconfig $f/npmrc; done && \
     mount --bind /mnt/etc /etc && ";

fn no_credentials_of_the_host_are_shown() {
    for tier in TIERS {
        let world = world(tier);
        let line = "for d in /etc /usr/etc /usr/local/etc; do cat $d/gitconfig $d/npmrc; done; git config user.name; \
                    git init -q . && git status >/dev/null && echo works";
        let said = world.shell(line);
        assert!(said.exit.success() && stdout(&said) == "works\n", "{tier}: {} {}", stdout(&said), stderr(&said));
        let refused = world.try_run(&world.request(&["cat", "/etc/npmrc"])).unwrap_err();
        assert_eq!(refused.code(), "sandbox_argument_outside");
    }
}

#[test]
fn system_wide_credentials_are_not_shown() {
    const NAME: &str = "walls::system_wide_credentials_are_not_shown";
    let prepare = format!("{CREDENTIALS} exec \"$@\"");
    as_root_alone(NAME, &["unshare", "--mount", "sh", "-c", &prepare, "sh"], no_credentials_of_the_host_are_shown);
}

#[test]
fn system_wide_credentials_are_not_shown_to_an_ordinary_user() {
    const NAME: &str = "walls::system_wide_credentials_are_not_shown_to_an_ordinary_user";
    prepared_by_root(NAME, CREDENTIALS, no_credentials_of_the_host_are_shown);
}

/// A directory of programs that an operator gives, with the search path into it.
#[test]
fn a_root_on_the_search_path_is_behind_the_walls_too() {
    const NAME: &str = "walls::a_root_on_the_search_path_is_behind_the_walls_too";
    let tools = tempfile::TempDir::new().unwrap();
    fs::set_permissions(tools.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(tools.path().join("bin")).unwrap();
    fs::copy("/usr/bin/python3", tools.path().join("bin/python3")).unwrap();
    fs::copy("/usr/bin/id", tools.path().join("bin/mine")).unwrap();
    let path = format!("PATH={}/bin:/usr/bin:/bin", tools.path().display());
    alone(NAME, &["env", &path], || {
        let path = std::env::var("PATH").unwrap();
        let bin = Path::new(path.split(':').next().unwrap());
        for tier in TIERS {
            let mut world = strict(tier);
            world.policy.read_roots.push(bin.parent().unwrap().to_owned());
            world.policy.env_allowlist.push("PATH".into());
            let python = bin.join("python3");
            fs::write(world.workspace.join("Makefile"), format!("all:\n\t{} say.py\n", python.display())).unwrap();
            let ran = world.run(&["make"]);
            assert!(!ran.exit.success() && !stdout(&ran).contains("OWNED\n"), "{tier}: {ran:?}");
            assert!(world.run(&["mine"]).exit.success());
            world.policy.allow_interpreters = vec!["python3".into()];
            let ran = world.run(&["make"]);
            assert!(ran.exit.success() && stdout(&ran).contains("OWNED\n"), "{tier}: {ran:?}");
        }
    });
}

//! Files: the host's are out of reach, the workspace is as the policy says, and what was checked is what runs.

use palyra_containment::*;
use palyra_sandbox::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

#[test]
fn a_read_only_workspace_stays_as_it_is() {
    for tier in TIERS {
        let mut world = world(tier);
        world.policy.workspace_access = WorkspaceAccess::ReadOnly;
        fs::write(world.workspace.join("in"), "text").unwrap();
        let outcome = world.run(&[
            "bash",
            "-c",
            "cat in; (echo x > new) 2>/dev/null; (echo x >> in) 2>/dev/null; rm -f in 2>/dev/null; true",
        ]);
        expect_output(&outcome, "text");
        let names: Vec<_> = fs::read_dir(&world.workspace).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["in"]);
    }
}

#[test]
fn host_files_are_out_of_reach() {
    for tier in TIERS {
        let world = world(tier);
        let outside = world.workspace.parent().unwrap().join("outside");
        fs::write(&outside, "outside-secret").unwrap();
        fs::set_permissions(&outside, fs::Permissions::from_mode(0o666)).unwrap();
        std::os::unix::fs::symlink(&outside, world.workspace.join("link")).unwrap();
        let code = format!(
            r#"
import os
for path in {paths:?}:
    try:
        with open(path, 'rb') as f:
            if f.read(1): print('READ', path)
    except OSError: pass
    try:
        with open(path, 'r+b', buffering=0) as f: f.write(b'x')
        print('WRITTEN', path)
    except OSError: pass
for d in ['/root', '/home', '/var/lib', {state:?}]:
    try:
        if os.listdir(d): print('LISTED', d)
    except OSError: pass
print('done')
"#,
            paths = [
                world.state.join("key").to_str().unwrap(),
                outside.to_str().unwrap(),
                "link",
                "../outside",
                "/etc/shadow",
                "/etc/ssh/sshd_config",
                concat!("/root", "/.bashrc"),
                "/proc/1/environ",
                "/proc/kcore",
                "/dev/vda",
                "/proc/sysrq-trigger",
            ],
            state = world.state,
        );
        expect_output(&world.python(&code), "done");
        assert_eq!(fs::read(&outside).unwrap(), b"outside-secret");
    }
}

#[test]
fn set_id_programs_give_nothing() {
    for tier in TIERS {
        let world = world(tier);
        let suid = world.workspace.join("suid-id");
        fs::copy("/usr/bin/id", &suid).unwrap();
        fs::set_permissions(&suid, fs::Permissions::from_mode(0o4755)).unwrap();
        // Its owner is root where the suite is; elsewhere only the kernel's own programs are root's.
        let outcome = world.run(&["./suid-id", "-u"]);
        assert_eq!(outcome.exit, ProcessExit::Code(0), "{outcome:?}");
        assert_ne!(stdout(&outcome).trim(), "0", "{tier}");
        assert!(outcome.enforcement.has("no_new_privileges"));
        let code = "import os\nfound = [p for p in ['/usr/bin/su', '/usr/bin/passwd', '/usr/bin/mount', '/usr/bin/chsh'] if os.path.exists(p) and os.stat(p).st_mode & 0o4000]\n\
                    print(len(found) > 0)\nfor p in found:\n  r, w = os.pipe()\n  if os.fork() == 0:\n    os.dup2(w, 1); os.dup2(w, 2); os.execv(p, [p, '--help'])\n  os.wait(); os.close(w)\n\
                    print(open('/proc/self/status').read().split('NoNewPrivs:')[1].split()[0], os.geteuid() != 0)";
        expect_output(&world.python(code), "True\n1 True");
    }
}

#[test]
fn what_would_run_later_is_read_only_in_tier_c() {
    let world = world(SandboxTier::C);
    fs::create_dir_all(world.workspace.join(".git/hooks")).unwrap();
    fs::write(world.workspace.join(".git/config"), "[core]\n").unwrap();
    fs::write(world.workspace.join(".bashrc"), "").unwrap();
    let outcome = world.run(&[
        "bash",
        "-c",
        "(echo x > .git/hooks/pre-commit) 2>/dev/null && echo HOOK; (echo x >> .git/config) 2>/dev/null && echo CONFIG; \
         (echo x >> .bashrc) 2>/dev/null && echo RC; mv .git moved 2>/dev/null && echo MOVED; rm -rf .git/hooks 2>/dev/null && echo REMOVED; \
         echo ref > .git/HEAD && echo ok",
    ]);
    expect_output(&outcome, "ok");
    assert!(fs::read_dir(world.workspace.join(".git/hooks")).unwrap().next().is_none());
    assert!(!world.workspace.join(".palyra").exists());
}

#[test]
fn a_protected_path_below_the_workspace() {
    for tier in TIERS {
        let mut world = world(tier);
        let inner = world.workspace.join("state");
        fs::create_dir(&inner).unwrap();
        fs::write(inner.join("key"), "secret").unwrap();
        world.policy.protected_paths.push(inner.clone());
        // A run that may write could move it away, to a place where nothing hides it from the next.
        let refused = world.try_run(&world.request(&["true"])).unwrap_err();
        assert_eq!(refused.code(), "sandbox_protected_path_exposed");
        world.policy.workspace_access = WorkspaceAccess::ReadOnly;
        match tier {
            SandboxTier::B => {
                let refused = world.try_run(&world.request(&["true"])).unwrap_err();
                assert_eq!(refused.code(), "sandbox_protected_path_exposed");
            }
            SandboxTier::C => {
                let outcome = world.run(&[
                    "bash",
                    "-c",
                    "cat state/key 2>/dev/null; ls state 2>/dev/null; mv state s2 2>/dev/null; echo done",
                ]);
                expect_output(&outcome, "done");
                assert_eq!(fs::read(inner.join("key")).unwrap(), b"secret");
            }
        }
    }
}

/// A root inside a writable one could be replaced by a link, and the next run would be given what the link names.
#[test]
fn a_root_that_a_run_could_replace_is_refused() {
    for tier in TIERS {
        let mut world = world(tier);
        let victim = world.top().canonicalize().unwrap().join("victim");
        let inner = world.workspace.join("a/sub");
        for path in [&victim, &inner] {
            fs::create_dir_all(path).unwrap();
        }
        fs::write(victim.join("key"), "host-secret").unwrap();
        expect_output(
            &world.shell(&format!("mv a a2 && mkdir a && ln -s {} a/sub && echo done", victim.display())),
            "done",
        );
        let look = |world: &World| world.try_run(&world.request(&["cat", "a/sub/key"]));
        let (mut reads, mut writes) = (world.policy.clone(), world.policy.clone());
        reads.read_roots.push(inner.clone());
        writes.write_roots.push(inner);
        for policy in [reads, writes] {
            world.policy = policy;
            let refused = look(&world).unwrap_err();
            assert_eq!(refused.code(), "sandbox_nested_roots", "{refused}");
        }
    }
}

#[test]
fn a_writable_root_below_one_that_is_read_works() {
    for tier in TIERS {
        let mut world = world(tier);
        let inner = world.workspace.join("a/sub");
        fs::create_dir_all(&inner).unwrap();
        world.policy.workspace_access = WorkspaceAccess::ReadOnly;
        world.policy.write_roots.push(inner.clone());
        let line = "(mv a a2) 2>/dev/null && echo MOVED; (echo x > a/x) 2>/dev/null && echo WRITTEN; echo x > a/sub/made && echo done";
        expect_output(&world.shell(line), "done");
        assert!(inner.join("made").exists());
    }
}

#[test]
fn the_file_that_was_checked_is_the_file_that_runs() {
    for tier in TIERS {
        let world = world(tier);
        let tool = world.workspace.join("tool");
        fs::copy("/bin/true", &tool).unwrap();
        let request = world.request(&["./tool"]);
        let executable = resolve_executable(&world.policy, &request.argv, &world.workspace).unwrap();
        let never = CancelSignal::never().unwrap();
        assert!(run_constrained_process(&world.policy, &executable, &request, &never, &mut ()).unwrap().exit.success());
        fs::remove_file(&tool).unwrap();
        fs::copy("/bin/false", &tool).unwrap();
        let refused = run_constrained_process(&world.policy, &executable, &request, &never, &mut ()).unwrap_err();
        assert_eq!(refused.code(), "sandbox_executable_changed");
    }
}

#[test]
fn a_workspace_that_is_a_symlink_or_vanishes() {
    for tier in TIERS {
        let mut world = world(tier);
        let link = world.workspace.parent().unwrap().join("link");
        std::os::unix::fs::symlink(&world.workspace, &link).unwrap();
        world.policy.workspace_root = link.clone();
        let mut request = world.request(&["bash", "-c", "echo x > made; pwd"]);
        request.working_directory = link;
        expect_output(&world.try_run(&request).unwrap(), world.workspace.to_str().unwrap());
        fs::remove_dir_all(&world.workspace).unwrap();
        let refused = world.try_run(&request).unwrap_err();
        assert_eq!(refused.code(), "sandbox_workspace_unavailable", "{refused}");
    }
}

#[test]
fn a_working_directory_outside_is_refused() {
    for tier in TIERS {
        let world = world(tier);
        let mut request = world.request(&["ls"]);
        request.working_directory = "/etc".into();
        assert_eq!(world.try_run(&request).unwrap_err().code(), "sandbox_working_directory_outside");
        request.working_directory = world.workspace.join("missing");
        assert_eq!(world.try_run(&request).unwrap_err().code(), "sandbox_working_directory_missing");
    }
}

#[test]
fn a_link_that_flips_never_leads_out() {
    for tier in TIERS {
        let world = world(tier);
        fs::write(world.top().join("outside"), "outside-secret").unwrap();
        fs::write(world.workspace.join("inside"), "inside").unwrap();
        let code = r"
import os, threading, time
os.symlink('inside', 'a'); os.symlink('../outside', 'b')
stop = False
def flip():
    while not stop:
        os.rename('a', 'c'); os.rename('b', 'a'); os.rename('c', 'b')
t = threading.Thread(target=flip); t.start()
seen, end = set(), time.time() + 1
while time.time() < end:
    try: seen.add(open('a').read())
    except OSError: pass
stop = True; t.join()
print(sorted(seen))
";
        expect_output(&world.python(code), "['inside']");
    }
}

/// One run swaps `.git` for a link to somewhere else as fast as it can, while others are started in the same workspace.
#[test]
fn a_directory_swapped_while_the_sandbox_is_built_binds_nothing_of_the_host() {
    let mut flipper = world(SandboxTier::C);
    let top = flipper.top().to_owned();
    fs::create_dir_all(top.join("other/hooks")).unwrap();
    fs::write(top.join("other/hooks/secret"), "host-secret").unwrap();
    fs::write(top.join("other/config"), "host-secret").unwrap();
    let victim_policy = flipper.policy.clone();
    // It turns for as long as the others run, however busy the machine is.
    (flipper.policy.wall_clock_limit_ms, flipper.policy.cpu_time_limit_ms) = (3_600_000, 3_600_000);
    let code = r"
import ctypes, os
os.symlink('../other', 'link'); os.makedirs('dir/hooks'); open('dir/config', 'w').close(); os.rename('dir', '.git')
libc = ctypes.CDLL(None)
open('ready', 'w').close()
while not os.path.exists('enough'):
    for _ in range(2000): libc.syscall(316, -100, b'.git', -100, b'link', 2)
print('flipped')
";
    std::thread::scope(|scope| {
        let flipping = scope.spawn(|| flipper.python(code));
        while !flipper.workspace.join("ready").exists() && !flipping.is_finished() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let (mut ran, mut refused) = (0, 0);
        for _ in 0..60 {
            let request = flipper.request(&["bash", "-c", "cat .git/hooks/secret .git/config 2>/dev/null; echo end"]);
            let executable = resolve_executable(&victim_policy, &request.argv, &request.working_directory).unwrap();
            let never = CancelSignal::never().unwrap();
            match run_constrained_process(&victim_policy, &executable, &request, &never, &mut ()) {
                Ok(outcome) => {
                    ran += 1;
                    assert!(!stdout(&outcome).contains("host-secret"), "{outcome:?}");
                }
                Err(_) => refused += 1,
            }
        }
        fs::write(flipper.workspace.join("enough"), "").unwrap();
        expect_output(&flipping.join().unwrap(), "flipped");
        assert!(ran > 0 && ran + refused == 60, "{ran} ran, {refused} were refused");
    });
}

#[test]
fn a_link_in_place_of_git_makes_nothing_writable() {
    let mut world = world(SandboxTier::C);
    let library = world.top().canonicalize().unwrap().join("library");
    fs::create_dir_all(library.join(".git/hooks")).unwrap();
    fs::write(library.join(".git/config"), "").unwrap();
    std::os::unix::fs::symlink("../library/.git", world.workspace.join(".git")).unwrap();
    world.policy.read_roots.push(library.clone());
    let line = "(echo x > .git/hooks/pre-commit) 2>/dev/null && echo HOOK; (echo x > ../library/.git/x) 2>/dev/null && echo WRITTEN; echo done";
    expect_output(&world.shell(line), "done");
    assert!(!library.join(".git/hooks/pre-commit").exists() && !library.join(".git/x").exists());
}

#[test]
fn what_would_run_later_and_is_new_is_set_aside() {
    let world = world(SandboxTier::C);
    let outcome = world.shell(
        "echo evil > .bashrc; echo evil > .envrc; mkdir -p .vscode .palyra .config/fish; echo evil > .config/fish/config.fish; \
         ln -s /tmp/x .zshrc; git init -q . && git config user.email a@b && echo evil > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit; \
         echo x > kept; ls -A | wc -l",
    );
    assert!(outcome.exit.success(), "{outcome:?}");
    let mut names: Vec<_> =
        outcome.set_aside.iter().map(|p| p.strip_prefix(&world.workspace).unwrap().display().to_string()).collect();
    names.sort();
    let expect = [".bashrc", ".config/fish", ".envrc", ".git/hooks", ".palyra", ".vscode", ".zshrc"];
    assert_eq!(names, expect.map(|name| format!("{name}.held")));
    for name in expect {
        assert!(!world.workspace.join(name).exists() && !world.workspace.join(name).is_symlink(), "{name}");
    }
    assert!(world.workspace.join("kept").exists() && world.workspace.join(".git/config").exists());
    // The repository that it made can be worked in, and its configuration is guarded from now on.
    let outcome = world.shell(
        "git config user.name a 2>/dev/null && echo CONFIG; git add kept && git -c user.name=a commit -qm first && git log --oneline | wc -l",
    );
    expect_output(&outcome, "1");
    assert!(outcome.set_aside.is_empty(), "{outcome:?}");
}

/// What git of the user would run, asked outside, after the run.
fn git_runs(world: &World) -> bool {
    let marker = world.top().join("PWNED");
    let git = |arguments: &[&str]| {
        let mut git = std::process::Command::new("git");
        git.args(["-c", "safe.directory=*"]).args(arguments).current_dir(&world.workspace).env("MARKER", &marker);
        let _whatever_it_says = git.output().unwrap();
    };
    git(&["status"]);
    git(&["commit", "--allow-empty", "-m", "x"]);
    marker.exists()
}

fn repository(world: &World) {
    for line in ["init -q -b main .", "config user.email a@b", "config user.name a", "commit -q --allow-empty -m first"]
    {
        let ran =
            std::process::Command::new("git").args(line.split(' ')).current_dir(&world.workspace).output().unwrap();
        assert!(ran.status.success(), "{line}: {ran:?}");
    }
}

/// Ways in which a run could make the user's git start a program, each in one or two runs.
#[test]
fn nothing_that_a_run_leaves_in_a_repository_starts_a_program() {
    let evil = r#"printf '[core]\n\trepositoryformatversion = 0\n\tfsmonitor = "touch $MARKER; false"\n'"#;
    let hook = r#"printf '#!/bin/sh\ntouch $MARKER\n'"#;
    for (what, lines) in [
        ("commondir", vec![format!("mkdir evil; cp -r .git/objects .git/refs evil/; {evil} > evil/config; echo ../evil > .git/commondir")]),
        ("a setting behind its section", vec!["rm -rf .git 2>/dev/null; git init -q other; printf '[core]fsmonitor = \"touch $MARKER; false\" ;]\n' >> other/.git/config; cp -r other/.git . 2>/dev/null; true".to_owned()]),
        ("a second name", vec!["ln .git/config alias 2>/dev/null; true".to_owned(), format!("{evil} >> alias")]),
        ("hooks behind a link", vec![format!("{hook} > hooks-elsewhere/pre-commit; chmod +x hooks-elsewhere/pre-commit")]),
        ("hooks that settings name", vec![format!("mkdir -p .husky; {hook} > .husky/pre-commit; chmod +x .husky/pre-commit")]),
        ("a closed top", vec![format!("mkdir -p x/hooks; {hook} > x/hooks/pre-commit; {evil} > .git/config.worktree; chmod 555 .git; chmod 555 .")]),
    ] {
        let world = world(SandboxTier::C);
        repository(&world);
        let git = |arguments: &[&str]| std::process::Command::new("git").args(arguments).current_dir(&world.workspace).status().unwrap();
        if what == "hooks behind a link" {
            fs::remove_dir_all(world.workspace.join(".git/hooks")).unwrap();
            fs::create_dir(world.workspace.join("hooks-elsewhere")).unwrap();
            std::os::unix::fs::symlink("../hooks-elsewhere", world.workspace.join(".git/hooks")).unwrap();
        }
        if what == "hooks that settings name" {
            assert!(git(&["config", "core.hooksPath", ".husky"]).success());
        }
        if what == "a closed top" {
            assert!(git(&["config", "extensions.worktreeConfig", "true"]).success());
        }
        for line in &lines {
            let outcome = world.shell(line);
            assert!(outcome.not_set_aside.is_empty(), "{what}: {outcome:?}");
        }
        assert!(!git_runs(&world), "{what}: a program ran");
    }
}

#[test]
fn a_new_repository_cannot_be_turned_against_its_user_later() {
    let evil = r#"printf '[core]\n\trepositoryformatversion = 0\n\tfsmonitor = "touch $MARKER; false"\n'"#;
    for (what, lines) in [
        ("a second name", vec!["git init -q . && ln .git/config alias".to_owned(), format!("{evil} >> alias")]),
        (
            "a setting behind its section",
            vec!["git init -q . && printf '[core]fsmonitor = \"touch $MARKER; false\" ;]\n' >> .git/config".to_owned()],
        ),
        ("no directory of its own", vec![format!("git init -q --bare . && {evil} > config")]),
        (
            "names that are taken",
            vec![format!("git init -q .; {evil} > .git/config; touch .git/config.held .git/config.held-{{2..999}}")],
        ),
        ("a closed directory", vec![format!("git init -q .; {evil} > .git/config; chmod 555 .git .")]),
    ] {
        let world = world(SandboxTier::C);
        for line in &lines {
            let outcome = world.shell(line);
            assert!(outcome.not_set_aside.is_empty(), "{what}: {outcome:?}");
        }
        assert!(!git_runs(&world), "{what}: a program ran");
    }
}

/// The proof that the probes above would be seen.
#[test]
fn a_hostile_repository_does_start_a_program_outside() {
    let world = world(SandboxTier::C);
    repository(&world);
    let config = world.workspace.join(".git/config");
    let text = fs::read_to_string(&config).unwrap() + "[core]\n\tfsmonitor = \"touch $MARKER; false\"\n";
    fs::write(&config, text).unwrap();
    assert!(git_runs(&world));
}

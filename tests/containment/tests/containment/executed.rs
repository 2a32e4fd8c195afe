//! What was checked is what runs: links, directories, wrapped programs and scripts that are exchanged meanwhile.

use palyra_containment::*;
use palyra_sandbox::*;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// A world in which no interpreter may run.
fn strict(tier: SandboxTier) -> World {
    let mut world = world(tier);
    world.policy.allow_interpreters.clear();
    world
}

fn program(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn copy(from: &str, to: &Path) {
    fs::copy(from, to).unwrap();
}

/// Looks at a command, lets `meanwhile` happen, and runs what was looked at.
fn run_after(world: &World, argv: &[&str], meanwhile: impl FnOnce()) -> Result<ProcessOutcome, SandboxError> {
    let request = world.request(argv);
    let executable = resolve_executable(&world.policy, &request.argv, &world.workspace)?;
    meanwhile();
    run_constrained_process(&world.policy, &executable, &request, &CancelSignal::never().unwrap(), &mut ())
}

#[test]
fn a_link_that_is_put_elsewhere_after_the_check_changes_nothing() {
    for tier in TIERS {
        let world = strict(tier);
        let tool = world.workspace.join("tool");
        for argv in
            [&["./tool", "-c", "echo SHELL$BASH_VERSION"][..], &["nice", "./tool", "-c", "echo SHELL$BASH_VERSION"]]
        {
            drop(fs::remove_file(&tool));
            symlink("/usr/bin/echo", &tool).unwrap();
            let swap = || {
                fs::remove_file(&tool).unwrap();
                symlink("/bin/bash", &tool).unwrap();
            };
            let outcome = run_after(&world, argv, swap).unwrap();
            expect_output(&outcome, "-c echo SHELL$BASH_VERSION");
        }
    }
}

#[test]
fn a_wrapped_program_or_interpreter_that_was_replaced_is_refused() {
    for tier in TIERS {
        let mut world = strict(tier);
        let tool = world.workspace.join("tool");
        for argv in [
            &["nice", "./tool", "-c", "echo SHELL"][..],
            &["timeout", "5", "env", "A=b", "./tool", "-c", "echo SHELL"],
            &["find", ".", "-maxdepth", "0", "-exec", "./tool", "-c", "echo SHELL", ";"],
        ] {
            fs::copy("/usr/bin/echo", &tool).unwrap();
            let refused = run_after(&world, argv, || copy("/bin/bash", &tool)).unwrap_err();
            assert_eq!(refused.code(), "sandbox_executable_changed", "{argv:?}");
        }
        // The program behind a shebang.
        fs::copy("/usr/bin/echo", &tool).unwrap();
        program(&world.workspace.join("script"), &format!("#!{}\n", tool.display()));
        expect_output(&world.run(&["./script", "hi"]), "./script hi");
        let refused = run_after(&world, &["./script"], || copy("/bin/bash", &tool)).unwrap_err();
        assert_eq!(refused.code(), "sandbox_executable_changed");
        // The script itself.
        world.policy.allow_interpreters = vec!["sh".into()];
        let script = world.workspace.join("run");
        program(&script, "#!/bin/sh\necho one\n");
        let refused = run_after(&world, &["./run"], || program(&script, "#!/bin/sh\necho two\n")).unwrap_err();
        assert_eq!(refused.code(), "sandbox_executable_changed");
    }
}

/// Exchanges two names as fast as it can while `run` is called, and tells what came of it.
fn flipping(world: &World, names: [&str; 2], argv: &[&str]) -> (u32, u32) {
    let over = AtomicBool::new(false);
    let [a, b] = names.map(|name| world.workspace.join(name));
    let (mut ran, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let exchange = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(rustix::fs::CWD, &a, rustix::fs::CWD, &b, exchange).unwrap();
            }
        });
        for _ in 0..40 {
            match world.try_run(&world.request(argv)) {
                Ok(outcome) => {
                    ran += 1;
                    assert!(!stdout(&outcome).contains("SHELL5"), "{argv:?}: {outcome:?}");
                }
                Err(_) => refused += 1,
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    (ran, refused)
}

#[test]
fn names_that_are_exchanged_all_the_time_never_lead_to_a_shell() {
    for tier in TIERS {
        let world = strict(tier);
        for (dir, program) in [("a", "/usr/bin/echo"), ("b", "/bin/bash")] {
            fs::create_dir(world.workspace.join(dir)).unwrap();
            fs::copy(program, world.workspace.join(dir).join("tool")).unwrap();
            fs::copy(program, world.workspace.join(format!("p{dir}"))).unwrap();
            symlink(program, world.workspace.join(format!("l{dir}"))).unwrap();
        }
        let shell = ["-c", "echo SHELL$BASH_VERSION"];
        let mut all = 0;
        for (names, command) in [
            (["a", "b"], &["./a/tool"][..]),
            (["a", "b"], &["nice", "./a/tool"]),
            (["pa", "pb"], &["./pa"]),
            (["pa", "pb"], &["nice", "./pa"]),
            (["la", "lb"], &["./la"]),
            (["la", "lb"], &["env", "./la"]),
        ] {
            let (ran, refused) = flipping(&world, names, &[command, &shell].concat());
            assert!(refused > 0, "{tier} {command:?}: the exchange was never seen");
            all += ran;
        }
        assert!(all > 0, "{tier}: nothing ran at all");
    }
}

#[test]
fn programs_of_the_workspace_run_under_their_names_and_behind_wrappers() {
    for tier in TIERS {
        let world = world(tier);
        fs::create_dir(world.workspace.join("bin")).unwrap();
        let code = "#include <stdio.h>\nint main(int n, char **v) { printf(\"%s\", v[0]); for (int i = 1; i < n; i++) printf(\" %s\", v[i]); puts(\"\"); }\n";
        fs::write(world.workspace.join("say.c"), code).unwrap();
        assert!(world.run(&["cc", "-o", "bin/say", "say.c"]).exit.success());
        symlink("bin/say", world.workspace.join("link")).unwrap();
        expect_output(&world.run(&["bin/say", "a b", "c"]), "bin/say a b c");
        expect_output(&world.run(&["./link", "x"]), "./link x");
        expect_output(&world.run(&["timeout", "5", "nice", "./bin/say", "x"]), "./bin/say x");
        expect_output(&world.run(&["env", "A=1", "./link"]), "./link");
        let found = world.run(&["find", "bin", "-name", "say", "-exec", "./bin/say", "{}", "+"]);
        assert!(found.exit.success() && stdout(&found).ends_with(" bin/say\n"), "{found:?}");
        let mut fed = world.request(&["xargs", "-n1", "./bin/say"]);
        fed.stdin = b"one two".to_vec();
        let fed = world.try_run(&fed).unwrap();
        assert!(fed.exit.success() && stdout(&fed).lines().count() == 2, "{fed:?}");
        let exported = world.run(&["env", "-i", "A=1", "./bin/say"]);
        expect_output(&exported, "./bin/say");
    }
}

#[test]
fn scripts_and_virtual_environments_find_what_lies_beside_them() {
    for tier in TIERS {
        let world = world(tier);
        fs::create_dir(world.workspace.join("sub")).unwrap();
        let script = world.workspace.join("sub/run");
        program(&script, "#!/bin/sh\necho \"$0 $1 $(cat \"$(dirname \"$0\")/beside\")\"\n");
        fs::write(world.workspace.join("sub/beside"), "here").unwrap();
        expect_output(&world.run(&["./sub/run", "x"]), "./sub/run x here");
        expect_output(&world.run(&["timeout", "5", "sub/run", "x"]), "sub/run x here");
        program(&world.workspace.join("sub/tool.py"), "#!/usr/bin/env python3\nimport other; print(other.x)\n");
        fs::write(world.workspace.join("sub/other.py"), "x = 'imported'\n").unwrap();
        expect_output(&world.run(&["./sub/tool.py"]), "imported");
        symlink("sub/tool.py", world.workspace.join("tool")).unwrap();
        expect_output(&world.run(&["./tool"]), "imported");
        for line in [
            &["python3", "-m", "venv", "--without-pip", "venv"][..],
            &["python3", "-m", "venv", "--without-pip", "--copies", "copied"],
        ] {
            let made = world.run(line);
            assert!(made.exit.success(), "{tier}: {}", stderr(&made));
        }
        for venv in ["venv", "copied"] {
            let python = format!("./{venv}/bin/python3");
            let prefix = "import sys; print(sys.prefix)";
            let expect = world.workspace.join(venv).display().to_string();
            expect_output(&world.run(&[&python, "-c", prefix]), &expect);
            expect_output(&world.run(&["timeout", "9", &python, "-c", prefix]), &expect);
            let script = world.workspace.join(venv).join("bin/tool");
            program(&script, &format!("#!{}/bin/python3\n{prefix}\n", expect));
            expect_output(&world.run(&[&format!("{venv}/bin/tool")]), &expect);
        }
    }
}

//! What must work: ordinary commands, real tools, streams, parallel runs.

use palyra_containment::*;
use palyra_sandbox::*;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

#[test]
fn an_ordinary_command_works() {
    for tier in TIERS {
        let world = world(tier);
        let outcome = world.run(&["echo", "hello"]);
        expect_output(&outcome, "hello");
        assert_eq!(outcome.ended_by, None);
        assert_eq!(outcome.enforcement.tier, tier);
        assert!(outcome.enforcement.has("seccomp") && outcome.enforcement.has("process_tree"));
        assert_ne!(outcome.enforcement.uid, 0);
        let outcome = world.run(&["bash", "-c", "echo out; echo err >&2; exit 7"]);
        assert_eq!(outcome.exit, ProcessExit::Code(7));
        assert_eq!((&outcome.stdout.bytes[..], &outcome.stderr.bytes[..]), (&b"out\n"[..], &b"err\n"[..]));
        let outcome = world.run(&["bash", "-c", "kill -9 $$"]);
        assert_eq!(outcome.exit, signal(tier, 9));
        // A code is a code, whatever shells make of it, and names no limit that was not reached.
        for code in [129, 137, 152, 192] {
            let outcome = world.shell(&format!("exit {code}"));
            assert_eq!((outcome.exit, outcome.ended_by), (ProcessExit::Code(code), None), "{tier}");
        }
    }
}

#[test]
fn the_workspace_can_be_written_and_keeps_its_owner() {
    for tier in TIERS {
        let world = world(tier);
        fs::write(world.workspace.join("in"), "text").unwrap();
        let outcome = world.run(&["bash", "-c", "cat in > out && mkdir d && mv out d/ && cat d/out"]);
        expect_output(&outcome, "text");
        let made = fs::metadata(world.workspace.join("d/out")).unwrap();
        let owner = fs::metadata(&world.workspace).unwrap();
        assert_eq!((made.uid(), made.gid()), (owner.uid(), owner.gid()), "{tier}");
    }
}

#[test]
fn output_is_kept_whole_and_counted() {
    for tier in TIERS {
        let mut world = world(tier);
        let outcome = world.python("import sys; sys.stdout.buffer.write(bytes(range(256)) * 1000)");
        assert_eq!(outcome.stdout.bytes, (0..=255u8).cycle().take(256_000).collect::<Vec<_>>());
        assert!(!outcome.stdout.truncated);
        world.policy.max_output_bytes = 1000;
        let outcome = world.python("import sys; sys.stdout.write('x' * 5000); sys.stderr.write('y' * 1000)");
        assert_eq!(outcome.exit, ProcessExit::Code(0));
        let out = &outcome.stdout;
        assert_eq!((out.bytes.len(), out.total_bytes, out.truncated), (1000, 5000, true));
        let err = &outcome.stderr;
        assert_eq!((err.bytes.len(), err.total_bytes, err.truncated), (1000, 1000, false));
        assert_eq!(outcome.ended_by, None);
    }
}

#[test]
fn input_arrives_and_may_be_left_unread() {
    for tier in TIERS {
        let world = world(tier);
        let mut request = world.request(&["cat"]);
        request.stdin = vec![7; 700_000];
        let outcome = world.try_run(&request).unwrap();
        assert_eq!(outcome.stdout.bytes, request.stdin);
        request.argv = vec!["true".into()];
        assert_eq!(world.try_run(&request).unwrap().exit, ProcessExit::Code(0));
        request.argv = ["bash", "-c", "exec <&-; sleep 0.1; echo ok"].map(str::to_owned).to_vec();
        expect_output(&world.try_run(&request).unwrap(), "ok");
    }
}

#[test]
fn live_output_reaches_the_sink() {
    struct Collect(Vec<(OutputStream, Vec<u8>)>);
    impl OutputSink for Collect {
        fn chunk(&mut self, stream: OutputStream, bytes: &[u8]) {
            self.0.push((stream, bytes.to_vec()));
        }
    }
    for tier in TIERS {
        let world = world(tier);
        let request = world.request(&["bash", "-c", "echo one; sleep 0.2; echo two >&2"]);
        let executable = resolve_executable(&world.policy, &request.argv, &world.workspace).unwrap();
        let mut sink = Collect(vec![]);
        run_constrained_process(&world.policy, &executable, &request, &CancelSignal::never().unwrap(), &mut sink)
            .unwrap();
        assert_eq!(sink.0, [(OutputStream::Stdout, b"one\n".to_vec()), (OutputStream::Stderr, b"two\n".to_vec())]);
    }
}

#[test]
fn eight_at_once() {
    for tier in TIERS {
        let world = world(tier);
        std::thread::scope(|scope| {
            let runs: Vec<_> = (0..8)
                .map(|n| {
                    let world = &world;
                    scope.spawn(move || world.run(&["bash", "-c", &format!("echo {n} > f{n}; cat f{n}")]))
                })
                .collect();
            for (n, run) in runs.into_iter().enumerate() {
                expect_output(&run.join().unwrap(), &n.to_string());
            }
        });
    }
}

#[test]
fn real_work_is_unharmed() {
    for tier in TIERS {
        let world = world(tier);
        let git = "git init -q . && git config user.email a@b && git config user.name a && echo x > f && git add f && \
                   git commit -qm first && git log --oneline | wc -l";
        expect_output(&world.run(&["bash", "-c", git]), "1");
        fs::write(world.workspace.join("hello.c"), "#include <stdio.h>\nint main(){puts(\"hello\");}\n").unwrap();
        let outcome = world.run(&["gcc", "-O1", "-o", "hello", "hello.c"]);
        assert!(outcome.exit.success(), "{tier}: {}", String::from_utf8_lossy(&outcome.stderr.bytes));
        expect_output(&world.run(&["./hello"]), "hello");
        // The repository exists now: its hooks and configuration can be read, and work goes on.
        expect_output(&world.run(&["git", "status", "--short"]), "?? hello\n?? hello.c");
        if tier == SandboxTier::C {
            // Named semaphores live in /dev/shm, which tier b would share with the host and therefore does not grant.
            expect_output(
                &world.python("import multiprocessing.pool as p; print(p.ThreadPool(4).map(len, ['a', 'bb']))"),
                "[1, 2]",
            );
        }
        expect_output(
            &world.run(&[
                "bash",
                "-c",
                "ls /proc/self/fd | wc -l >/dev/null; echo $((1+1)) | cat > x; cat x; mktemp >/dev/null",
            ]),
            "2",
        );
    }
}

#[test]
fn a_workspace_behind_a_closed_door_is_reached() {
    for tier in TIERS {
        let world = world(tier);
        let parent = world.workspace.parent().unwrap();
        fs::set_permissions(parent, fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(parent.join("beside"), "secret").unwrap();
        let outcome = world.run(&["bash", "-c", "echo x > made && cat made && cat ../beside 2>/dev/null; ls .. "]);
        let listed = stdout(&outcome);
        assert!(listed.starts_with("x\n") && !listed.contains("secret"), "{tier} {listed:?}");
        let (made, owner) =
            (fs::metadata(world.workspace.join("made")).unwrap(), fs::metadata(&world.workspace).unwrap());
        assert_eq!(made.uid(), owner.uid());
        // Again: what was prepared for the first run serves the second.
        expect_output(&world.run(&["cat", "made"]), "x");
    }
}

#[test]
fn this_host_is_described_as_it_is() {
    let host = detect();
    assert!(host.tier_b && host.tier_c, "{host:?}");
    for name in ["landlock", "seccomp", "bubblewrap", "user_namespaces"] {
        assert!(host.capability(name).unwrap().available, "{name}");
    }
    for capability in host.capabilities.iter().filter(|c| !c.available) {
        assert!(capability.fix.is_some(), "{capability:?}");
    }
    assert!(serde_json::to_string(&host).unwrap().contains("landlock_scope"));
}

#[test]
fn make_and_the_c_compiler_work() {
    for tier in TIERS {
        let world = world(tier);
        fs::write(world.workspace.join("sum.c"), "int sum(int a, int b) { return a + b; }\n").unwrap();
        let main = "#include <stdio.h>\nint sum(int, int);\nint main(void) { printf(\"%d\\n\", sum(40, 2)); }\n";
        fs::write(world.workspace.join("main.c"), main).unwrap();
        let makefile = "answer: main.o sum.o\n\tcc -o $@ $^\n%.o: %.c\n\tcc -c -o $@ $<\ntest: answer\n\t./answer\n";
        fs::write(world.workspace.join("Makefile"), makefile).unwrap();
        let outcome = world.run(&["make", "--silent", "-j2", "test"]);
        expect_output(&outcome, "42");
    }
}

#[test]
fn cargo_builds_and_tests_offline() {
    let rustc = std::process::Command::new("rustc").args(["--print", "sysroot"]).output().unwrap();
    let sysroot = String::from_utf8(rustc.stdout).unwrap().trim().to_owned();
    for tier in TIERS {
        let mut world = world(tier);
        let manifest = "[package]\nname = \"inner\"\nversion = \"0.1.0\"\nedition = \"2021\"\n";
        fs::write(world.workspace.join("Cargo.toml"), manifest).unwrap();
        fs::create_dir(world.workspace.join("src")).unwrap();
        let code = "fn main() { println!(\"built\"); }\n#[test]\nfn works() { assert_eq!(1 + 1, 2); }\n";
        fs::write(world.workspace.join("src/main.rs"), code).unwrap();
        // What an operator does for a toolchain in somebody's home: one more root to read, and a search path.
        world.policy.read_roots.push(sysroot.clone().into());
        world.policy.env_allowlist.push("PATH".to_owned());
        world.policy.max_file_size_bytes = 256 << 20;
        world.policy.memory_limit_bytes = 2 << 30;
        world.policy.wall_clock_limit_ms = 120_000;
        let cargo = format!("{sysroot}/bin/cargo");
        for command in [
            &["build", "--offline", "--quiet"][..],
            &["test", "--offline", "--quiet"],
            &["run", "--offline", "--quiet"],
        ] {
            let mut request = world.request(&[&[cargo.as_str()], command].concat());
            request.env.insert("PATH".to_owned(), format!("{sysroot}/bin:/usr/bin:/bin"));
            let outcome = world.try_run(&request).unwrap();
            assert!(outcome.exit.success(), "{tier} {command:?}: {}", stderr(&outcome));
            if command[0] == "run" {
                expect_output(&outcome, "built");
            }
        }
    }
}

#[test]
fn python_and_node_run_their_tests() {
    for tier in TIERS {
        let mut world = world(tier);
        let test = "import unittest, tempfile, subprocess, threading\nclass T(unittest.TestCase):\n  def test_one(self):\n    \
                    with tempfile.TemporaryDirectory() as d: open(d + '/x', 'w').close()\n    \
                    self.assertEqual(subprocess.run(['echo', 'hi'], capture_output=True).stdout, b'hi\\n')\n    \
                    t = threading.Thread(target=lambda: None); t.start(); t.join()\n";
        fs::write(world.workspace.join("test_inner.py"), test).unwrap();
        let outcome = world.run(&["python3", "-m", "unittest", "-q"]);
        assert!(outcome.exit.success(), "{tier}: {}", stderr(&outcome));
        let test = "const test = require('node:test'), assert = require('node:assert'), http = require('node:http');\n\
                    test('adds', () => assert.equal(1 + 1, 2));\n";
        fs::write(world.workspace.join("inner.test.js"), test).unwrap();
        fs::write(world.workspace.join("package.json"), r#"{"name":"inner","scripts":{"test":"node --test"}}"#)
            .unwrap();
        world.policy.memory_limit_bytes = 2 << 30;
        let outcome = world.run(&["node", "--test"]);
        assert!(outcome.exit.success(), "{tier}: {} {}", stdout(&outcome), stderr(&outcome));
        let outcome = world.run(&["npm", "test"]);
        assert!(outcome.exit.success(), "{tier}: {} {}", stdout(&outcome), stderr(&outcome));
        let test = "import os, pytest\n\n@pytest.fixture\ndef made(tmp_path):\n    path = tmp_path / 'x'\n    path.write_text('x')\n    \
                    path.chmod(0o600)\n    return path\n\ndef test_fixture(made):\n    assert made.read_text() == 'x'\n\n\
                    @pytest.mark.parametrize('n', [1, 2])\ndef test_many(n, monkeypatch, capsys):\n    monkeypatch.setenv('N', str(n))\n    \
                    print(os.environ['N'])\n    assert capsys.readouterr().out == f'{n}\\n'\n";
        fs::write(world.workspace.join("test_pytest.py"), test).unwrap();
        let outcome = world.run(&["python3", "-m", "pytest", "-q", "test_pytest.py"]);
        assert!(outcome.exit.success() && stdout(&outcome).contains("3 passed"), "{tier}: {outcome:?}");
    }
}

#[test]
fn a_repository_that_exists_can_be_worked_in() {
    for tier in TIERS {
        let world = world(tier);
        let git = |line: &str| {
            let ran =
                std::process::Command::new("git").args(line.split(' ')).current_dir(&world.workspace).output().unwrap();
            assert!(ran.status.success(), "{line}: {ran:?}");
        };
        for line in
            ["init -q -b main .", "config user.email a@b", "config user.name a", "commit -q --allow-empty -m first"]
        {
            git(line);
        }
        let line = "echo x > f && git add f && git commit -qm second && git branch topic && git checkout -q topic && \
                    echo y >> f && git commit -qam third && git checkout -q main && git merge -q topic && git stash list && \
                    git tag v1 && git diff HEAD~1 --stat >/dev/null && git log --oneline | wc -l && git clone -q . inner && git -C inner log --oneline | wc -l";
        expect_output(&world.shell(line), "3\n3");
    }
}

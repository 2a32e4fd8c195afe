//! Limits: what takes too much is ended, by name.

use palyra_containment::*;
use palyra_sandbox::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

#[test]
fn endless_processes_end_on_the_clock() {
    for tier in TIERS {
        let mut world = world(tier);
        // A busy machine may not even begin within the shorter times.
        let begun = [400, 4_000, 40_000].into_iter().any(|limit| {
            world.policy.wall_clock_limit_ms = limit;
            let outcome = world.run(&["bash", "-c", "trap '' TERM INT HUP; echo begun; while :; do sleep 1000; done"]);
            assert_eq!(outcome.ended_by, Some(LimitHit::WallClock), "{tier} {limit} ms");
            stdout(&outcome) == "begun\n"
        });
        assert!(begun, "{tier}");
    }
}

/// However short the time is, that it ran out is what is told: not that the host lacks a wall which there was no time
/// to build.
#[test]
fn time_that_ends_before_the_command_begins_is_told_as_such() {
    for tier in TIERS {
        let mut world = world(tier);
        fs::create_dir_all(world.workspace.join(".git/hooks")).unwrap();
        for limit in 0..40 {
            world.policy.wall_clock_limit_ms = limit;
            let outcome = world.run(&["bash", "-c", "echo begun; sleep 1000"]);
            assert_eq!(outcome.ended_by, Some(LimitHit::WallClock), "{tier} {limit} ms");
            let (begun, walls) = (!outcome.stdout.bytes.is_empty(), outcome.enforcement.has("seccomp"));
            assert!(walls || !begun, "{tier} {limit} ms: {:?}", outcome.enforcement);
        }
    }
}

#[test]
fn a_flood_is_ended_by_name() {
    for tier in TIERS {
        let mut world = world(tier);
        world.policy.max_output_bytes = 100_000;
        let outcome = world.run(&["yes"]);
        assert_eq!(outcome.ended_by, Some(LimitHit::Output));
        assert_eq!(outcome.stdout.bytes.len(), 100_000);
        assert!(outcome.stdout.truncated);
    }
}

#[test]
fn cpu_time_is_limited() {
    for tier in TIERS {
        let mut world = world(tier);
        world.policy.cpu_time_limit_ms = 1000;
        let outcome = world.python("while True: pass");
        assert_eq!(outcome.ended_by, Some(LimitHit::CpuTime), "{outcome:?}");
        let spent = outcome.cpu_time;
        assert!(spent >= Duration::from_millis(700) && spent < Duration::from_secs(4), "{tier} {spent:?}");
        // The limit is one process's: several that together take longer and fail for another reason did not reach it.
        let several =
            "for i in 1 2 3; do python3 -c 'import time\nwhile time.process_time() < 0.5: pass'; done; exit 1";
        let outcome = world.shell(several);
        assert_eq!((outcome.exit, outcome.ended_by), (ProcessExit::Code(1), None), "{tier}");
        assert!(outcome.cpu_time > Duration::from_secs(1), "{tier}: nothing was tried");
    }
}

#[test]
fn memory_is_limited_and_named() {
    for tier in TIERS {
        let mut world = world(tier);
        world.policy.memory_limit_bytes = 200 << 20;
        let outcome = world.python("b = []\nwhile True: b.append(bytearray(1 << 20))");
        assert_eq!(outcome.ended_by, Some(LimitHit::Memory), "{outcome:?}");
        assert!(outcome.peak_memory_bytes < 400 << 20);
    }
}

#[test]
fn file_size_is_limited() {
    for tier in TIERS {
        let mut world = world(tier);
        world.policy.max_file_size_bytes = 1 << 20;
        let outcome = world.run(&["head", "-c", "10000000", "/dev/zero"]);
        assert_eq!(outcome.exit, ProcessExit::Code(0), "{outcome:?}");
        let outcome = world.run(&["dd", "if=/dev/zero", "of=big", "bs=1M", "count=10"]);
        assert_eq!(outcome.ended_by, Some(LimitHit::FileSize), "{outcome:?}");
        assert!(fs::metadata(world.workspace.join("big")).unwrap().len() <= 1 << 20);
    }
}

#[test]
fn a_fork_bomb_is_contained() {
    for tier in TIERS {
        let mut world = world(tier);
        world.policy.max_processes = 50;
        world.policy.wall_clock_limit_ms = 1500;
        let code = r"
import os
while True:
    try: os.fork()
    except OSError: pass
";
        let outcome = world.python(code);
        assert!(matches!(outcome.ended_by, Some(LimitHit::WallClock | LimitHit::Processes)), "{:?}", outcome.ended_by);
        let left = fs::read_dir("/proc").unwrap().filter_map(|e| fs::read(e.ok()?.path().join("cmdline")).ok());
        assert_eq!(left.filter(|c| String::from_utf8_lossy(c).contains("try: os.fork()")).count(), 0);
    }
}

/// Whether a control group held the run. Root can always have one; without it that is a known hole, which has to be
/// said.
fn has_group(outcome: &ProcessOutcome) -> bool {
    let layer = outcome.enforcement.layers.iter().find(|layer| layer.name == "cgroup").unwrap();
    assert!(layer.applied || !is_root(), "{layer:?}");
    assert!(layer.applied || layer.detail.contains("limited per process and user"), "{layer:?}");
    layer.applied
}

#[test]
fn memory_that_is_shared_counts_in_tier_c() {
    let mut world = world(SandboxTier::C);
    world.policy.memory_limit_bytes = 100 << 20;
    let code = "import mmap\nm = mmap.mmap(-1, 400 << 20)\nfor i in range(0, len(m), 4096): m[i] = 1\nprint('FILLED')";
    let outcome = world.python(code);
    if has_group(&outcome) {
        assert_eq!(outcome.ended_by, Some(LimitHit::Memory), "{outcome:?}");
        assert!(outcome.peak_memory_bytes <= 110 << 20);
    }
    let fill = "bash -c 'head -c 300000000 /dev/zero > /dev/shm/x; head -c 300000000 /dev/zero > /tmp/x; echo x > /y; echo x > /dev/y'";
    let outcome = world.run(&[
        "bash",
        "-c",
        &format!("{fill} 2>/dev/null; du -sm /dev/shm /tmp 2>/dev/null | awk '{{s+=$1}} END {{print s}}'"),
    ]);
    assert!(stdout(&outcome).trim().parse::<u64>().unwrap_or(0) <= 210, "{outcome:?}");
}

#[test]
fn a_memory_limit_that_nothing_fits_in_harms_nobody_else() {
    // Until it is executed the command shares this process's memory: a kernel that ended it for want of memory would
    // end both.
    let mut world = world(SandboxTier::C);
    let many = "x".repeat(100_000);
    for bytes in [4096, 64 << 10, 256 << 10, 1 << 20, 2 << 20, 4 << 20] {
        world.policy.memory_limit_bytes = bytes;
        match world.try_run(&world.request(&["echo", &many, &many, &many])) {
            Ok(outcome) if outcome.exit.success() => assert!(outcome.enforcement.has("rlimits"), "{outcome:?}"),
            Ok(outcome) => assert!(outcome.ended_by.is_some(), "{bytes}: {outcome:?}"),
            Err(error) if bytes < 4 << 20 && error.code() == "sandbox_backend_blocked" => {
                assert!(error.to_string().contains("bytes of memory are too little"), "{bytes}: {error}");
            }
            Err(error) => assert!(!error.to_string().ends_with(": "), "{bytes}: {error}"),
        }
    }
    world.policy.memory_limit_bytes = 512 << 20;
    expect_output(&world.run(&["echo", "the next one works"]), "the next one works");
}

#[test]
fn a_fork_bomb_in_tier_c_meets_the_groups_limit() {
    let mut world = world(SandboxTier::C);
    world.policy.max_processes = 20;
    let outcome = world.python("import os, time\nn = 0\ntry:\n  while n < 200:\n    if os.fork() == 0: time.sleep(100)\n    n += 1\nexcept OSError: print(n); raise SystemExit(3)");
    if has_group(&outcome) {
        assert!(stdout(&outcome).trim().parse::<u64>().unwrap() <= 20, "{outcome:?}");
        assert_eq!(outcome.ended_by, Some(LimitHit::Processes));
    }
}

#[test]
fn a_full_private_disk_is_the_commands_problem() {
    let mut world = world(SandboxTier::C);
    world.policy.memory_limit_bytes = 64 << 20;
    world.policy.max_file_size_bytes = 1 << 30;
    let outcome =
        world.shell("cd /tmp; for i in 1 2 3 4 5 6 7 8 9; do head -c 16M /dev/zero > f$i || break; done; echo ended");
    // Either the directory is full, or what fills it is more than the run's memory.
    assert!(stdout(&outcome).contains("ended") || outcome.ended_by == Some(LimitHit::Memory), "{outcome:?}");
    expect_output(&world.run(&["echo", "the next one works"]), "the next one works");
}

#[test]
fn a_run_that_takes_all_it_may_does_not_disturb_others() {
    for tier in TIERS {
        let mut greedy = world(tier);
        greedy.policy.wall_clock_limit_ms = 2000;
        greedy.policy.max_output_bytes = 10_000_000;
        let code = "import os\nfor _ in range(20):\n  if os.fork() == 0: break\nwhile True: pass";
        std::thread::scope(|scope| {
            let bomb = scope.spawn(|| greedy.python(code));
            for n in 0..5 {
                let calm = world(tier);
                expect_output(&calm.shell(&format!("echo {n}")), &n.to_string());
            }
            let outcome = bomb.join().unwrap();
            assert!(matches!(outcome.ended_by, Some(LimitHit::WallClock | LimitHit::CpuTime)), "{outcome:?}");
        });
    }
}

/// Replaces bubblewrap for one process of this suite, in a view of the files of its own. That takes root.
fn with_bwrap(name: &str, replacement: &str, body: impl FnOnce()) {
    let line = format!("mount --make-rprivate / && mount --bind {replacement} \"$(command -v bwrap)\" && exec \"$@\"");
    as_root_alone(name, &["unshare", "--mount", "sh", "-c", &line, "sh"], body);
}

#[test]
fn a_missing_bubblewrap_is_named_with_what_installs_it() {
    with_bwrap("limits::a_missing_bubblewrap_is_named_with_what_installs_it", "/dev/null", || {
        let world = world(SandboxTier::C);
        let refused = world.try_run(&world.request(&["true"])).unwrap_err();
        assert_eq!(refused.code(), "sandbox_backend_missing");
        assert!(refused.hint().unwrap().contains("apt-get install bubblewrap"));
        assert!(!detect().tier_c && detect().tier_b);
    });
}

#[test]
fn a_blocked_bubblewrap_is_named_with_what_it_said() {
    let fake = "/tmp/palyra-fake-bwrap";
    let script = "#!/bin/sh\n[ \"$1\" = --version ] && echo bubblewrap 0.8.0 && exit 0\n\
                  echo 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n";
    fs::write(fake, script).unwrap();
    fs::set_permissions(fake, fs::Permissions::from_mode(0o755)).unwrap();
    with_bwrap("limits::a_blocked_bubblewrap_is_named_with_what_it_said", fake, || {
        let world = world(SandboxTier::C);
        for guarded in [false, true] {
            if guarded {
                fs::create_dir_all(world.workspace.join(".git/hooks")).unwrap();
            }
            let refused = world.try_run(&world.request(&["true"])).unwrap_err();
            assert_eq!(refused.code(), "sandbox_backend_blocked", "{refused}");
            assert!(refused.to_string().contains("setting up uid map: Permission denied"), "{refused}");
            assert!(refused.hint().is_some());
        }
        assert!(!detect().tier_c);
    });
}

#[test]
fn below_the_minimum_nothing_runs() {
    for (tier, layer, there) in [
        (SandboxTier::B, "landlock_scope", true),
        (SandboxTier::B, "mount_namespace", true),
        (SandboxTier::B, "cgroup", false),
        (SandboxTier::B, "network_namespace", false),
        (SandboxTier::B, "user", is_root()),
        (SandboxTier::C, "network_namespace", true),
        (SandboxTier::C, "user", is_root()),
        (SandboxTier::C, "egress_proxy", false),
        (SandboxTier::C, "cgroup", world(SandboxTier::C).run(&["true"]).enforcement.has("cgroup")),
    ] {
        let mut world = world(tier);
        world.policy.required_layers = vec![layer.to_owned()];
        let request = world.request(&["touch", "ran"]);
        match world.try_run(&request) {
            Ok(outcome) => assert!(there && outcome.enforcement.has(layer), "{tier} {layer}"),
            Err(error) => {
                assert_eq!((there, error.code()), (false, "sandbox_layer_unavailable"), "{tier} {layer}");
                assert!(error.to_string().contains(layer), "{error}");
            }
        }
        assert_eq!(world.workspace.join("ran").exists(), there, "{tier} {layer}");
        assert_eq!(explain(&world.policy, &request).refusal.is_none(), there, "{tier} {layer}");
    }
}

#[test]
fn an_answer_does_not_wait_for_what_the_command_left_to_remove() {
    for tier in TIERS {
        let world = world(tier);
        let code = "import os\nfor n in range(4000): os.makedirs(os.environ['TMPDIR'] + f'/{n}/a')";
        // An answer that waited would come after as long as removing the same takes here, each time.
        let quick = (0..20).any(|_| {
            let started = Instant::now();
            let outcome = world.python(code);
            assert_eq!(outcome.exit, ProcessExit::Code(0), "{tier}: {}", stderr(&outcome));
            let after = started.elapsed().saturating_sub(outcome.duration);
            let same = tempfile::TempDir::new().unwrap();
            (0..4000).for_each(|n| fs::create_dir_all(same.path().join(format!("{n}/a"))).unwrap());
            let removing = Instant::now();
            drop(same);
            after < removing.elapsed() / 2
        });
        assert!(quick, "{tier}");
    }
}

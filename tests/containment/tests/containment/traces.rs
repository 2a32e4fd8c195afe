//! Traces: nothing of a run is left on the host, in the workspace or in the daemon.

use palyra_containment::*;
use palyra_sandbox::*;
use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

/// Everything that a run could leave behind, as names.
fn traces() -> BTreeSet<String> {
    let names = |directory: &str| -> Vec<String> {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        entries.map(|entry| format!("{directory}/{}", entry.file_name().to_string_lossy())).collect()
    };
    let mut found = BTreeSet::new();
    // Other processes run at the same time; the names hold the number of the one that made them.
    let own = format!("/palyra-run-{}-", std::process::id());
    let is_ours = |name: &String| name.contains(&own);
    // The directory that holds the private ones is there as long as this process is.
    found.extend(names("/tmp").into_iter().filter(is_ours).flat_map(|place| names(&place)));
    for kind in ["shm", "sem", "msg"] {
        let objects = fs::read_to_string(format!("/proc/sysvipc/{kind}")).unwrap();
        found.extend(objects.lines().map(|line| format!("{kind} {line}")));
    }
    found.extend(names("/dev/mqueue"));
    for line in fs::read_to_string("/proc/self/cgroup").unwrap().lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next().unwrap(), fields.next().unwrap());
        let tree = if controllers.is_empty() { "unified" } else { controllers };
        for directory in [format!("/sys/fs/cgroup/{tree}{path}"), format!("/sys/fs/cgroup{path}")] {
            found.extend(names(directory.trim_end_matches('/')).into_iter().filter(is_ours));
        }
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    found.extend(mounts.lines().filter(|line| line.contains("/workspace ")).map(str::to_owned));
    let children = format!("/proc/self/task/{}/children", rustix::thread::gettid().as_raw_nonzero());
    found.extend(fs::read_to_string(children).unwrap().split_whitespace().map(|pid| format!("child {pid}")));
    found
}

fn count(directory: &str) -> usize {
    fs::read_dir(directory).unwrap().count()
}

/// Runs of every kind, good and bad.
fn runs(world: &mut World) {
    world.policy.max_output_bytes = 1 << 20;
    for line in [
        "true",
        "exit 3",
        "kill -9 $$",
        "echo x > $TMPDIR/a; mkdir -p $TMPDIR/b/c; chmod 0 $TMPDIR/b",
        "(setsid sleep 1000 &) ; true",
    ] {
        assert!(world.shell(line).enforcement.has("process_tree"), "{line}");
    }
    let patience = std::mem::replace(&mut world.policy.wall_clock_limit_ms, 2_000);
    for line in ["trap '' TERM; sleep 1000", "mkfifo $TMPDIR/f; cat $TMPDIR/f"] {
        assert_eq!(world.shell(line).ended_by, Some(LimitHit::WallClock), "{line}");
    }
    world.policy.wall_clock_limit_ms = patience;
    let refused = world.try_run(&world.request(&["no-such-program"])).unwrap_err();
    assert_eq!(refused.code(), "sandbox_executable_not_found");
    world.policy.max_output_bytes = 1000;
    assert_eq!(world.run(&["yes"]).ended_by, Some(LimitHit::Output));
    assert_eq!(count(world.workspace.to_str().unwrap()), 0);
}

#[test]
fn nothing_is_left_behind() {
    alone("traces::nothing_is_left_behind", &[], || {
        for tier in TIERS {
            // Once for what is kept on purpose: descriptors of system directories, a namespace for the workspace's
            // owner.
            let mut world = world(tier);
            runs(&mut world);
            settle();
            let (before, descriptors, threads) = (traces(), count("/proc/self/fd"), count("/proc/self/task"));
            runs(&mut world);
            settle();
            let left: Vec<_> = traces().difference(&before).cloned().collect();
            assert!(left.is_empty(), "{tier} {left:?}");
            assert_eq!((count("/proc/self/fd"), count("/proc/self/task")), (descriptors, threads), "{tier}");
        }
    });
}

/// Directories of Tier B are kept for a second, in case another run wants one.
fn settle() {
    let deadline = Instant::now() + Duration::from_secs(300);
    while Instant::now() < deadline && traces().iter().any(|name| name.contains("/tmp/palyra-run-")) {
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn the_workspace_holds_what_the_command_made_and_no_more() {
    for tier in TIERS {
        let world = world(tier);
        fs::create_dir_all(world.workspace.join(".git/hooks")).unwrap();
        let outcome = world.shell("echo x > made; ls -A");
        expect_output(&outcome, ".git\nmade");
        let mut names: Vec<_> = fs::read_dir(&world.workspace).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, [".git", "made"], "{tier}");
    }
}

//! What would run later, where it is harder to find: a workspace that is moved meanwhile, settings of unusual size, and
//! somebody's `.git` as a root of its own.

use palyra_containment::*;
use palyra_sandbox::*;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

fn git(directory: &Path, line: &str) -> std::process::Output {
    let identity = ["-c", "safe.directory=*", "-c", "user.name=a", "-c", "user.email=a@b"];
    Command::new("git").args(identity).args(line.split(' ')).current_dir(directory).output().unwrap()
}

/// Somebody moves the workspace while a run lasts, and puts a link in its place.
#[test]
fn a_workspace_moved_while_a_run_lasts_is_the_one_that_is_looked_at() {
    let world = world(SandboxTier::C);
    let top = world.top().canonicalize().unwrap();
    let (other, moved) = (top.join("other"), top.join("moved"));
    fs::create_dir(&other).unwrap();
    fs::write(other.join(".bashrc"), "mine").unwrap();
    let line = "echo evil > .bashrc; touch ready; while [ ! -e enough ]; do sleep 0.02; done";
    let outcome = std::thread::scope(|scope| {
        let running = scope.spawn(|| world.shell(line));
        while !world.workspace.join("ready").exists() && !running.is_finished() {
            std::thread::sleep(Duration::from_millis(5));
        }
        fs::rename(&world.workspace, &moved).unwrap();
        symlink(&other, &world.workspace).unwrap();
        fs::write(moved.join("enough"), "").unwrap();
        running.join().unwrap()
    });
    assert_eq!(outcome.set_aside, [moved.join(".bashrc.held")], "{outcome:?}");
    assert!(outcome.not_set_aside.is_empty(), "{outcome:?}");
    assert_eq!(fs::read(other.join(".bashrc")).unwrap(), b"mine");
    assert_eq!(fs::read(moved.join(".bashrc.held")).unwrap(), b"evil\n");
    assert!(!moved.join(".bashrc").exists());
}

/// Settings that are long keep what they name guarded; settings that are too long to be looked through end the run
/// before it began.
#[test]
fn what_long_settings_name_is_guarded_or_the_run_refused() {
    let world = world(SandboxTier::C);
    fs::create_dir_all(world.workspace.join(".husky")).unwrap();
    assert!(git(&world.workspace, "init -q .").status.success());
    let config = world.workspace.join(".git/config");
    let plain = fs::read_to_string(&config).unwrap();
    let many: String = (0..100).map(|n| format!("[include]\n\tpath = ../settings-{n}\n")).collect();
    let long = "# x\n".repeat(50_000);
    fs::write(&config, format!("{plain}{long}{many}[core]\n\thooksPath = .husky\n")).unwrap();
    let attempt = "(echo evil > .husky/pre-commit) 2>/dev/null && echo WRITTEN; echo done";
    expect_output(&world.shell(attempt), "done");
    fs::write(&config, format!("{plain}{}[core]\n\thooksPath = .husky\n", long.repeat(6))).unwrap();
    let refused = world.try_run(&world.request(&["true"])).unwrap_err();
    assert_eq!(refused.code(), "sandbox_settings_unguarded", "{refused}");
    assert!(!world.workspace.join(".husky/pre-commit").exists());
}

/// The workspace is a linked worktree, and the repository that it belongs to may be written.
#[test]
fn a_repository_that_is_a_root_does_not_lead_its_worktrees_elsewhere() {
    let mut world = world(SandboxTier::C);
    let top = world.top().canonicalize().unwrap();
    let main = top.join("main");
    fs::create_dir(&main).unwrap();
    for line in ["init -q -b main .", "commit -q --allow-empty -m first", "worktree add -q ../workspace/tree"] {
        let ran = git(&main, line);
        assert!(ran.status.success(), "{line}: {ran:?}");
    }
    let tree = world.workspace.join("tree");
    let inner = main.join(".git/worktrees/tree");
    let before = fs::read(inner.join("commondir")).unwrap();
    world.policy.workspace_root = tree.clone();
    world.policy.write_roots.push(main.join(".git"));
    let line = format!(
        "cp -r {git} evil; printf '[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = \"touch {marker}; false\"\\n' > evil/config; \
         cd {inner}; for name in commondir gitdir; do (rm $name && echo {tree}/evil > $name) 2>/dev/null && echo $name; done; \
         printf '[core]\\n\\tfsmonitor = evil\\n' > config.worktree; mv ../tree ../moved 2>/dev/null && echo MOVED; echo done",
        git = main.join(".git").display(),
        marker = top.join("PWNED").display(),
        inner = inner.display(),
        tree = tree.display(),
    );
    let mut request = world.request(&["bash", "-c", &line]);
    request.working_directory = tree.clone();
    let outcome = world.try_run(&request).unwrap();
    expect_output(&outcome, "done");
    assert_eq!(outcome.set_aside, [inner.join("config.worktree.held")], "{outcome:?}");
    assert_eq!(fs::read(inner.join("commondir")).unwrap(), before);
    let _whatever_it_says = git(&tree, "status");
    assert!(!top.join("PWNED").exists());
}

//! Runs on a view of the workspace: nothing counts until it is applied, and what is applied can be undone.

use palyra_containment::{World, world};
use palyra_sandbox::{
    CancelSignal, ProcessExit, ProcessOutcome, SandboxTier, WorkspaceView, resolve_executable, run_constrained_process,
};
use palyra_workspace::Workspace;
use palyra_workspace::effects::{Applied, GuardRules, Guarded, Limits, View, ViewStore};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixListener;

struct Views {
    world: World,
    workspace: Workspace,
    store: ViewStore,
    guard: GuardRules,
}

impl Views {
    fn new() -> Self {
        let world = world(SandboxTier::C);
        let workspace = Workspace::open(&world.workspace).unwrap();
        let store = ViewStore::open(&world.state.join("views"), &workspace).unwrap();
        Self { world, workspace, store, guard: GuardRules::new([]).unwrap() }
    }

    fn run(&self, id: &str, script: &str) -> (View, ProcessOutcome) {
        let view = self.store.begin(id, &self.workspace).unwrap();
        let mut request = self.world.request(&["bash", "-c", script]);
        request.view = Some(WorkspaceView { upper: view.upper(), work: view.work() });
        let executable = resolve_executable(&self.world.policy, &request.argv, &request.working_directory).unwrap();
        let never = CancelSignal::never().unwrap();
        let outcome = run_constrained_process(&self.world.policy, &executable, &request, &never, &mut ()).unwrap();
        let said = String::from_utf8_lossy(&outcome.stderr.bytes).into_owned();
        assert_eq!(outcome.exit, ProcessExit::Code(0), "{script}: {said}");
        (view, outcome)
    }

    fn apply(&self, view: &View) -> Applied {
        let collected = view.collect(&self.workspace, &self.guard, Limits::default()).unwrap();
        collected.stage(Guarded::Withhold).unwrap();
        self.store.apply(view.id(), &self.workspace).unwrap()
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.world.workspace.join(path)).unwrap()
    }
}

#[test]
fn a_run_on_a_view_changes_nothing_until_it_is_applied_and_can_be_undone() {
    let views = Views::new();
    let root = &views.world.workspace;
    fs::write(root.join("a.txt"), "one\n").unwrap();
    fs::create_dir(root.join("d")).unwrap();
    fs::write(root.join("d/b.txt"), "two\n").unwrap();
    let owner = fs::metadata(root).unwrap().uid();
    let script = "set -e; cat a.txt; echo changed > a.txt; rm -rf d; mkdir n; echo new > n/c.txt; test \"$(cat a.txt)\" = changed";
    let (view, outcome) = views.run("c1", script);
    assert_eq!(outcome.stdout.bytes, b"one\n");
    let layer = outcome.enforcement.layers.iter().find(|layer| layer.name == "workspace_view");
    assert!(layer.is_some_and(|layer| layer.applied), "{:?}", outcome.enforcement);
    assert_eq!((views.text("a.txt").as_str(), views.text("d/b.txt").as_str()), ("one\n", "two\n"));
    assert!(!root.join("n").exists());
    let applied = views.apply(&view);
    assert!(applied.conflicts.is_empty() && applied.withheld.is_empty(), "{applied:?}");
    assert_eq!((views.text("a.txt").as_str(), views.text("n/c.txt").as_str()), ("changed\n", "new\n"));
    assert!(!root.join("d").exists());
    assert_eq!(fs::metadata(root.join("n/c.txt")).unwrap().uid(), owner, "new files belong to the workspace's owner");
    let plan = views.store.plan_undo("c1", &views.workspace).unwrap();
    assert!(plan.obstacles.is_empty(), "{:?}", plan.obstacles);
    views.store.undo(&plan, "u1", &views.workspace).unwrap();
    assert_eq!((views.text("a.txt").as_str(), views.text("d/b.txt").as_str()), ("one\n", "two\n"));
    assert!(!root.join("n").exists());
}

#[test]
fn git_works_on_a_view_and_what_it_would_run_later_waits() {
    let views = Views::new();
    let script = "set -e; export HOME=/tmp; git init -q .; git config user.email a@b; git config user.name n; \
                  echo x > f; git add f; git commit -qm one; git checkout -qb other; git branch -m third; \
                  git remote add o https://h/x; git stash list; git checkout -q -b main2; git branch -d third";
    let (view, _) = views.run("c1", script);
    let applied = views.apply(&view);
    assert!(applied.conflicts.is_empty() && applied.withheld.is_empty(), "{applied:?}");
    assert!(views.text(".git/config").contains("https://h/x"));
    let (view, _) =
        views.run("c2", "printf '#!/bin/sh\\n' > .git/hooks/pre-commit; git config core.fsmonitor ./evil; echo y > g");
    let applied = views.apply(&view);
    let waiting: Vec<String> = applied.withheld.iter().map(ToString::to_string).collect();
    assert_eq!(waiting, [".git/config", ".git/hooks/pre-commit"]);
    assert_eq!(views.text("g"), "y\n");
    assert!(!views.text(".git/config").contains("evil"));
}

#[test]
fn sockets_of_the_host_in_the_workspace_are_closed_to_a_view() {
    let views = Views::new();
    let _listener = UnixListener::bind(views.world.workspace.join("h.sock")).unwrap();
    let probe = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ntry:\n  s.connect('h.sock'); print('reached')\nexcept OSError as e:\n  print('closed')";
    let (_, outcome) = views.run("c1", &format!("python3 -c \"{probe}\""));
    assert_eq!(outcome.stdout.bytes, b"closed\n");
    // A run's own sockets work.
    let own = "import socket,os\nl=socket.socket(socket.AF_UNIX); l.bind('own.sock'); l.listen()\ns=socket.socket(socket.AF_UNIX); s.connect('own.sock'); print('own')";
    let (view, outcome) = views.run("c2", &format!("python3 -c \"{own}\""));
    assert_eq!(outcome.stdout.bytes, b"own\n");
    views.apply(&view);
    assert!(!views.world.workspace.join("own.sock").exists(), "sockets are not taken over");
}

#[test]
fn the_store_is_not_visible_in_a_view() {
    let views = Views::new();
    let store = views.world.state.display();
    let (_, outcome) = views.run("c1", &format!("ls {store} 2>&1 || echo gone; mount | grep -c upperdir || true"));
    let said = String::from_utf8_lossy(&outcome.stdout.bytes);
    assert!(said.contains("gone"), "{said}");
}

#[test]
fn two_runs_at_once_have_two_views() {
    let views = Views::new();
    fs::write(views.world.workspace.join("shared"), "0\n").unwrap();
    std::thread::scope(|scope| {
        for id in ["one", "two"] {
            let views = &views;
            scope.spawn(move || {
                let (_, outcome) = views.run(id, &format!("cat shared; echo {id} > shared; sleep 0.2; cat shared"));
                assert_eq!(String::from_utf8_lossy(&outcome.stdout.bytes), format!("0\n{id}\n"));
            });
        }
    });
    assert_eq!(views.text("shared"), "0\n");
}

//! Effects against a real overlay: a shell works on the view, then the effect is applied, undone, cut off and repeated.

use super::*;
use crate::Workspace;
use palyra_protocol::{ChangeKind, EffectPath, EffectState};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

struct Bench {
    _temporary: tempfile::TempDir,
    root: PathBuf,
    workspace: Workspace,
    store: ViewStore,
    guard: GuardRules,
}

/// Everything that an undo must bring back.
type Snapshot = BTreeMap<PathBuf, (u32, i64, i64, u64, Vec<u8>)>;

impl Bench {
    fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(temporary.path()).unwrap();
        let root = base.join("ws");
        fs::create_dir(&root).unwrap();
        let workspace = Workspace::open(&root).unwrap();
        let store = ViewStore::open(&base.join("store"), &workspace).unwrap();
        Self { _temporary: temporary, root, workspace, store, guard: GuardRules::new([]).unwrap() }
    }

    fn with(files: &[(&str, &str)]) -> Self {
        let bench = Self::new();
        for (path, content) in files {
            bench.put(path, content);
        }
        bench
    }

    fn put(&self, path: &str, content: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.root.join(path)).unwrap()
    }

    fn exists(&self, path: &str) -> bool {
        self.root.join(path).symlink_metadata().is_ok()
    }

    /// Runs a script on a view of the workspace, and leaves the view.
    fn run(&self, id: &str, script: &str) -> View {
        let view = self.store.begin(id, &self.workspace).unwrap();
        self.run_in(&view, script);
        view
    }

    fn run_in(&self, view: &View, script: &str) {
        let (root, upper, work) = (self.root.display(), view.upper(), view.work());
        let options =
            format!("lowerdir={root},upperdir={},workdir={},userxattr,volatile", upper.display(), work.display());
        let mount = format!("mount -t overlay overlay -o {options} {root} && cd {root} && {script}");
        let ran = Command::new("unshare").args(["--user", "--map-root-user", "--mount", "sh", "-c", &mount]).output();
        let ran = ran.expect("unshare is part of util-linux");
        assert!(ran.status.success(), "{script}: {}", String::from_utf8_lossy(&ran.stderr));
        // What the kernel keeps there would be in the way of the same view's next mount.
        drop(fs::remove_dir_all(view.work().join("work")));
    }

    /// Runs a script and applies its effect, guarded paths withheld.
    fn apply(&self, id: &str, script: &str) -> (EffectFacts, Applied) {
        let view = self.run(id, script);
        let collected = view.collect(&self.workspace, &self.guard, Limits::default()).unwrap();
        let facts = collected.facts();
        collected.stage(Guarded::Withhold).unwrap();
        (facts, self.store.apply(id, &self.workspace).unwrap())
    }

    fn undo(&self, id: &str) -> Applied {
        let plan = self.store.plan_undo(id, &self.workspace).unwrap();
        assert_eq!(plan.obstacles, [], "{id}");
        self.store.undo(&plan, &format!("undo-{id}"), &self.workspace).unwrap()
    }

    fn snapshot(&self) -> Snapshot {
        let mut all = BTreeMap::new();
        let mut waiting = vec![self.root.clone()];
        while let Some(path) = waiting.pop() {
            let meta = fs::symlink_metadata(&path).unwrap();
            let content = if meta.is_dir() {
                waiting.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                Vec::new()
            } else if meta.is_symlink() {
                fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            } else {
                fs::read(&path).unwrap()
            };
            all.insert(path, (meta.mode(), meta.mtime(), meta.mtime_nsec(), meta.ino(), content));
        }
        all
    }
}

fn path(text: &str) -> EffectPath {
    text.parse().unwrap()
}

#[test]
fn an_effect_is_what_the_run_changed_and_counts_only_when_applied() {
    let bench =
        Bench::with(&[("a.txt", "one\n"), ("gone.txt", "bye\n"), ("d/e.txt", "deep\n"), ("same.txt", "same\n")]);
    let view =
        bench.run("c1", "echo two > a.txt; rm gone.txt; mkdir n; echo new > n/x; chmod 755 d/e.txt; cat same.txt");
    assert_eq!((bench.text("a.txt").as_str(), bench.exists("gone.txt"), bench.exists("n")), ("one\n", true, false));
    let collected = view.collect(&bench.workspace, &bench.guard, Limits::default()).unwrap();
    let kinds: Vec<_> = collected.changes().iter().map(|c| (c.path.to_text(), c.kind)).collect();
    let expect = [
        ("a.txt", ChangeKind::Changed),
        ("d/e.txt", ChangeKind::Mode),
        ("gone.txt", ChangeKind::Deleted),
        ("n", ChangeKind::Added),
        ("n/x", ChangeKind::Added),
    ];
    assert_eq!(kinds, expect.map(|(path, kind)| (path.to_owned(), kind)));
    assert_eq!(collected.record(EffectState::Applied).counts.total(), 5);
    collected.stage(Guarded::Withhold).unwrap();
    assert_eq!(bench.text("a.txt"), "one\n", "staging changes nothing");
    let applied = bench.store.apply("c1", &bench.workspace).unwrap();
    assert!(applied.conflicts.is_empty() && applied.withheld.is_empty());
    assert_eq!((bench.text("a.txt").as_str(), bench.text("n/x").as_str()), ("two\n", "new\n"));
    assert!(!bench.exists("gone.txt"));
    assert_eq!(fs::metadata(bench.root.join("d/e.txt")).unwrap().mode() & 0o777, 0o755);
}

#[test]
fn an_undo_brings_everything_back_as_it_was() {
    for (number, script) in [
        "rm -rf *",
        "for f in $(find . -name '*.txt'); do echo changed >> $f; done",
        "rm -rf d; mkdir d; echo other > d/e.txt",
        "rm a.txt; mkdir a.txt; echo x > a.txt/y",
        "rm -rf d; echo file > d",
        "ln -sf elsewhere l; rm a.txt; ln -s /etc/passwd a.txt",
        "mv a.txt b.txt; chmod 700 d; touch -d 2001-01-01 h1.txt",
        "echo changed > h1.txt; mkdir -p new/deep; echo x > new/deep/y; chmod 000 new/deep",
        "printf '' > d/e.txt; truncate -s 1M sparse",
    ]
    .into_iter()
    .enumerate()
    {
        let bench =
            Bench::with(&[("a.txt", "one\n"), ("d/e.txt", "deep\n"), ("d/f/g.txt", "deeper\n"), ("h1.txt", "h\n")]);
        std::os::unix::fs::symlink("a.txt", bench.root.join("l")).unwrap();
        fs::hard_link(bench.root.join("h1.txt"), bench.root.join("h2.txt")).unwrap();
        fs::set_permissions(bench.root.join("d/f"), fs::Permissions::from_mode(0o555)).unwrap();
        let before = bench.snapshot();
        let id = format!("c{number}");
        let (_, applied) = bench.apply(&id, script);
        assert_eq!(applied.conflicts, [], "{script}");
        let changed = bench.snapshot();
        assert_ne!(changed, before, "{script}");
        bench.undo(&id);
        assert_eq!(bench.snapshot(), before, "{script}");
        // And the undo is undone.
        bench.undo(&format!("undo-{id}"));
        let again = bench.snapshot();
        let contents = |all: &Snapshot| all.iter().map(|(p, e)| (p.clone(), e.0, e.4.clone())).collect::<Vec<_>>();
        assert_eq!(contents(&again), contents(&changed), "{script}");
    }
}

#[test]
fn guarded_paths_wait_while_the_rest_counts() {
    let bench = Bench::with(&[(".git/config", "[core]\n\tbare = false\n"), ("package.json", "{}")]);
    let script = "echo ok > src.txt; mkdir -p .git/hooks .github/workflows; echo evil > .git/hooks/pre-commit; \
                  echo sample > .git/hooks/x.sample; echo on: push > .github/workflows/x.yml; \
                  printf '{\"dependencies\":{\"evil\":\"1\"}}' > package.json; \
                  printf '[remote \"o\"]\\n\\turl = https://h/x\\n' >> .git/config";
    let (facts, applied) = bench.apply("c1", script);
    let guarded = [".git/hooks/pre-commit", ".github/workflows", "package.json"].map(path);
    assert_eq!(facts.guarded, guarded);
    assert_eq!(applied.withheld, guarded);
    assert_eq!(bench.text("src.txt"), "ok\n");
    assert!(bench.exists(".git/hooks/x.sample") && bench.text(".git/config").contains("https://h/x"));
    assert!(!bench.exists(".git/hooks/pre-commit") && !bench.exists(".github/workflows/x.yml"));
    assert_eq!(bench.text("package.json"), "{}");
    let shown = bench.store.diff("c1", &path("package.json"), &bench.workspace).unwrap();
    assert!(matches!(&shown, ChangeDiff::Text(text) if text.contains("+{\"dependencies\"")), "{shown:?}");
    let hook = bench.store.diff("c1", &path(".git/hooks/pre-commit"), &bench.workspace).unwrap();
    assert!(
        matches!(&hook, ChangeDiff::Text(text) if text.contains("+evil") && text.contains("/dev/null")),
        "{hook:?}"
    );
}

#[test]
fn what_waits_shares_no_file_with_what_counts() {
    let bench = Bench::with(&[]);
    let script = "echo shown > ok.txt; ln ok.txt .envrc; mkdir .vscode; ln ok.txt .vscode/settings.json; \
                  chmod 640 ok.txt; touch .vscode/.unshared-0";
    let (_, applied) = bench.apply("c1", script);
    assert_eq!(applied.withheld, [".envrc", ".vscode"].map(path));
    // In place, as an editor or a program on the workspace itself does it.
    bench.put("ok.txt", "other\n");
    bench.store.stage_withheld("c1", "c1.held", &bench.workspace).unwrap();
    let released = bench.store.apply("c1.held", &bench.workspace).unwrap();
    assert_eq!(released.conflicts, []);
    for name in [".envrc", ".vscode/settings.json"] {
        assert_eq!(bench.text(name), "shown\n", "{name}");
        assert_eq!(fs::metadata(bench.root.join(name)).unwrap().mode() & 0o777, 0o640, "{name}");
    }
    bench.put("ok.txt", "third\n");
    assert_eq!(bench.text(".envrc"), "shown\n");
}

#[test]
fn what_changed_meanwhile_is_a_conflict_and_nothing_is_lost() {
    let bench = Bench::with(&[("a.txt", "one\n"), ("b.txt", "one\n"), ("d/x.txt", "one\n")]);
    let view = bench.run("c1", "echo run > a.txt; echo run > b.txt; rm -rf d; echo run > new.txt");
    bench.put("a.txt", "person\n");
    bench.put("d/x.txt", "person\n");
    bench.put("new.txt", "person\n");
    let collected = view.collect(&bench.workspace, &bench.guard, Limits::default()).unwrap();
    collected.stage(Guarded::Withhold).unwrap();
    let applied = bench.store.apply("c1", &bench.workspace).unwrap();
    assert_eq!(applied.conflicts, ["a.txt", "d", "new.txt"].map(path));
    for stands in ["a.txt", "d/x.txt", "new.txt"] {
        assert_eq!(bench.text(stands), "person\n", "{stands}");
    }
    assert_eq!(bench.text("b.txt"), "run\n");
    let shown = bench.store.diff("c1", &path("a.txt"), &bench.workspace).unwrap();
    assert!(matches!(shown, ChangeDiff::Text(text) if text.contains("-person") && text.contains("+run")));
}

#[test]
fn two_views_conflict_only_where_both_changed_a_file() {
    let bench = Bench::with(&[("a.txt", "0\n"), ("b.txt", "0\n"), ("c.txt", "0\n")]);
    let one = bench.run("one", "echo 1 > a.txt; echo 1 > b.txt");
    let two = bench.run("two", "echo 2 > b.txt; echo 2 > c.txt");
    for (view, conflicts) in [(&one, vec![]), (&two, vec![path("b.txt")])] {
        let collected = view.collect(&bench.workspace, &bench.guard, Limits::default()).unwrap();
        collected.stage(Guarded::Withhold).unwrap();
        assert_eq!(bench.store.apply(view.id(), &bench.workspace).unwrap().conflicts, conflicts, "{}", view.id());
    }
    assert_eq!(
        (bench.text("a.txt"), bench.text("b.txt"), bench.text("c.txt")),
        ("1\n".into(), "1\n".into(), "2\n".into())
    );
}

#[test]
fn calls_in_a_row_never_conflict() {
    let bench = Bench::with(&[("a.txt", "0\n")]);
    for number in 0..20 {
        let (_, applied) = bench.apply(&format!("c{number}"), &format!("echo {number} > a.txt"));
        assert_eq!(applied.conflicts, [], "{number}");
    }
    assert_eq!(bench.text("a.txt"), "19\n");
}

#[test]
fn hostile_entries_are_left_behind() {
    let bench = Bench::with(&[("a.txt", "one\n")]);
    let script = "mkfifo p; mkdir n; mkfifo n/p; echo x > n/f; chmod 6777 n n/f; ln -s ../../outside n/out; \
                  printf x > \"$(printf 'n/\\377\\376')\"; chmod 000 a.txt";
    let (_, applied) = bench.apply("c1", script);
    assert!(applied.conflicts.is_empty());
    assert!(!bench.exists("p") && !bench.exists("n/p") && bench.exists("n/f"));
    for name in ["n", "n/f"] {
        assert_eq!(fs::symlink_metadata(bench.root.join(name)).unwrap().mode() & 0o7777, 0o777, "{name}");
    }
    assert_eq!(fs::read_link(bench.root.join("n/out")).unwrap(), Path::new("../../outside"));
    let odd =
        std::ffi::OsString::from(std::os::unix::ffi::OsStrExt::from_bytes(&b"n/\xff\xfe"[..]) as &std::ffi::OsStr);
    assert_eq!(fs::read(bench.root.join(odd)).unwrap(), b"x");
    bench.undo("c1");
    assert!(!bench.exists("n"));
}

#[test]
fn a_link_put_in_the_way_is_never_followed() {
    let bench = Bench::with(&[("d/a.txt", "one\n")]);
    let outside = bench.root.parent().unwrap().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("a.txt"), "secret\n").unwrap();
    let view = bench.run("c1", "echo run > d/a.txt");
    let collected = view.collect(&bench.workspace, &bench.guard, Limits::default()).unwrap();
    collected.stage(Guarded::Withhold).unwrap();
    fs::rename(bench.root.join("d"), bench.root.join("d.real")).unwrap();
    std::os::unix::fs::symlink(&outside, bench.root.join("d")).unwrap();
    let applied = bench.store.apply("c1", &bench.workspace).unwrap();
    assert_eq!(applied.conflicts, [path("d/a.txt")]);
    assert_eq!(fs::read_to_string(outside.join("a.txt")).unwrap(), "secret\n");
}

#[test]
fn limits_are_told_and_nothing_is_applied() {
    let bench = Bench::with(&[]);
    let view = bench.run("c1", "for i in 1 2 3 4; do echo $i > f$i; done");
    let few = Limits { max_files: 3, ..Limits::default() };
    let small = Limits { max_bytes: 7, ..Limits::default() };
    assert_eq!(view.collect(&bench.workspace, &bench.guard, few).unwrap_err().code(), "effect_too_many_files");
    assert_eq!(view.collect(&bench.workspace, &bench.guard, small).unwrap_err().code(), "effect_too_large");
    bench.store.discard("c1").unwrap();
    assert_eq!(bench.store.unfinished().unwrap(), (vec![], vec![]));
    assert!(!bench.exists("f1"));
}

#[test]
fn applying_can_be_cut_off_anywhere_and_repeated() {
    let script = "echo two > a.txt; rm b.txt; mkdir n; echo x > n/y; rm -rf d; mkdir d; echo z > d/z; chmod 755 c.txt";
    let files = [("a.txt", "one\n"), ("b.txt", "b\n"), ("c.txt", "c\n"), ("d/e.txt", "e\n")];
    let contents = |bench: &Bench| {
        bench
            .snapshot()
            .into_iter()
            .map(|(p, e)| (p.strip_prefix(&bench.root).unwrap().to_owned(), e.0, e.4))
            .collect::<Vec<_>>()
    };
    let whole = Bench::with(&files);
    whole.apply("c1", script);
    let expect = contents(&whole);
    for cut in 0..8 {
        let bench = Bench::with(&files);
        let view = bench.run("c1", script);
        let collected = view.collect(&bench.workspace, &bench.guard, Limits::default()).unwrap();
        let digest = collected.stage(Guarded::Withhold).unwrap();
        assert_eq!(bench.store.plan_digest("c1").unwrap(), digest);
        // The first steps alone, as a process does that is killed after them.
        let mut plan = bench.store.staged_plan("c1").unwrap();
        plan.steps.truncate(cut);
        let kept = sys::open_dir(bench.store.base(), b"c1/kept").unwrap();
        apply::Run { workspace: &bench.workspace, kept: &kept, base: bench.store.base() }.all(&plan).unwrap();
        assert_eq!(bench.store.unfinished().unwrap(), (vec!["c1".to_owned()], vec![]));
        let applied = bench.store.apply("c1", &bench.workspace).unwrap();
        assert_eq!(applied.conflicts, [], "cut after {cut}");
        assert_eq!(contents(&bench), expect, "cut after {cut}");
        assert_eq!(bench.store.apply("c1", &bench.workspace).unwrap().conflicts, [], "and once more");
        bench.undo("c1");
        assert_eq!(bench.text("a.txt"), "one\n");
    }
}

#[test]
fn an_undo_refuses_what_was_changed_since() {
    let bench = Bench::with(&[("a.txt", "one\n"), ("b.txt", "one\n")]);
    bench.apply("c1", "echo two > a.txt; echo two > b.txt; mkdir n; echo x > n/y");
    bench.put("a.txt", "person\n");
    bench.put("n/z", "person\n");
    let plan = bench.store.plan_undo("c1", &bench.workspace).unwrap();
    let named: Vec<_> = plan.obstacles.iter().map(|o| o.path.to_text()).collect();
    assert_eq!(named, ["n/z", "a.txt"]);
    assert_eq!(plan.paths(), [path("b.txt")]);
    bench.store.undo(&plan, "u1", &bench.workspace).unwrap();
    assert_eq!((bench.text("a.txt").as_str(), bench.text("b.txt").as_str()), ("person\n", "one\n"));
    assert_eq!(bench.store.plan_undo("c1", &bench.workspace).unwrap_err().code(), "effect_already_undone");
}

#[test]
fn what_is_kept_has_an_end() {
    let bench = Bench::with(&[("a.txt", &"x".repeat(1000))]);
    for number in 0..4 {
        bench.apply(&format!("c{number}"), &format!("head -c 1000 /dev/zero | tr '\\0' {number} > a.txt"));
    }
    let kept = bench.store.kept().unwrap();
    assert_eq!(
        kept.iter().map(|kept| (kept.id.as_str(), kept.bytes)).collect::<Vec<_>>(),
        [("c0", 1000), ("c1", 1000), ("c2", 1000), ("c3", 1000)]
    );
    let removed = bench.store.prune(Retention { max_bytes: 2500, ..Retention::default() }).unwrap();
    assert_eq!(removed, ["c0", "c1"]);
    assert_eq!(bench.store.plan_undo("c0", &bench.workspace).unwrap_err().code(), "effect_not_kept");
    bench.undo("c3");
    assert_eq!(bench.text("a.txt"), "2".repeat(1000));
    let age = Retention { max_age: std::time::Duration::ZERO, ..Retention::default() };
    std::thread::sleep(std::time::Duration::from_millis(2));
    assert_eq!(bench.store.prune(age).unwrap().len(), 3);
}

#[test]
fn renames_are_recognised() {
    let bench = Bench::with(&[("old.txt", "content\n"), ("empty.txt", "")]);
    let view = bench.run("c1", "mkdir to; mv old.txt to/new.txt; mv empty.txt void.txt");
    let collected = view.collect(&bench.workspace, &bench.guard, Limits::default()).unwrap();
    let renamed: Vec<_> = collected.changes().iter().filter_map(|c| Some((c.from.clone()?, c.path.clone()))).collect();
    assert_eq!(renamed, [(path("old.txt"), path("to/new.txt"))]);
    assert_eq!(collected.facts().deleted, [path("empty.txt"), path("old.txt")]);
}

#[test]
fn a_store_elsewhere_is_refused() {
    let bench = Bench::with(&[]);
    let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
    let error = ViewStore::open(elsewhere.path(), &bench.workspace).unwrap_err();
    assert_eq!(error.code(), "effect_other_file_system");
}

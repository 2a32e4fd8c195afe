//! Effects: starting on a view beside starting without one, writing back beside `cp -a`, undoing beside renames that are
//! made durable, and a build on a view.

use crate::Result;
use crate::report::Report;
use crate::sandbox::{Run, fill, in_turns};
use palyra_sandbox::{SandboxTier, WorkspaceView};
use palyra_workspace::Workspace;
use palyra_workspace::effects::{Fates, GuardRules, Limits, ViewStore};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const ROUNDS: usize = 100;
const FILES: usize = 1000;

pub fn run(report: &mut Report) -> Result {
    let directory = tempfile::tempdir()?;
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755))?;
    let (empty, full) = (directory.path().join("empty"), directory.path().join("full"));
    std::fs::create_dir(&empty)?;
    fill(&full)?;
    for (what, root) in [("an empty workspace", &empty), ("200,000 files", &full)] {
        start(report, what, root, &directory.path().join(format!("store of {what}")))?;
    }
    write_back(report, &directory.path().join("files"), directory.path())?;
    build(report, &directory.path().join("crate"), directory.path())
}

/// From `begin` to the view being thrown away, beside the same run on the workspace itself.
fn start(report: &mut Report, what: &str, root: &Path, store: &Path) -> Result {
    let workspace = Workspace::open(root)?;
    let store = ViewStore::open(store, &workspace)?;
    let plain = Run::new(SandboxTier::C, root, 0)?;
    let mut number = 0_u32;
    let mut on_view = || -> Result {
        number += 1;
        let view = store.begin(&format!("v{number}"), &workspace)?;
        Run::new(SandboxTier::C, root, 0)?.on(WorkspaceView { upper: view.upper(), work: view.work() }).once()?;
        Ok(store.discard(view.id())?)
    };
    let times = in_turns(ROUNDS, &mut [&mut on_view, &mut || plain.once()])?;
    report.at_most(&format!("tier c on a view of {what}, over none"), times[0], times[1], 1.15);
    Ok(())
}

/// Writing back and undoing 1,000 changed files, beside copying them and renaming them.
fn write_back(report: &mut Report, root: &Path, base: &Path) -> Result {
    std::fs::create_dir(root)?;
    for n in 0..FILES {
        std::fs::write(root.join(format!("f{n}")), "old content\n".repeat(100))?;
    }
    let workspace = Workspace::open(root)?;
    let store = ViewStore::open(&base.join("store"), &workspace)?;
    let guard = GuardRules::new([])?;
    let (mut applied, mut copied, mut undone, mut renamed) = (vec![], vec![], vec![], vec![]);
    for round in 0..5 {
        let id = format!("c{round}");
        let content = || format!("round {round}\n").repeat(100);
        let (source, copy) = (base.join(format!("source{round}")), base.join(format!("copy{round}")));
        std::fs::create_dir(&source)?;
        (0..FILES).try_for_each(|n| std::fs::write(source.join(format!("f{n}")), content()))?;
        settle()?;
        copied.push(timed(|| {
            let done = Command::new("cp").arg("-a").arg(&source).arg(&copy).status()?;
            if done.success() { Ok(()) } else { Err("cp failed".into()) }
        })?);
        // Writing back makes durable, which copying does not: it pays for its own files, not for the copy's.
        settle()?;
        let view = store.begin(&id, &workspace)?;
        // What a run leaves in the upper layer is plain files.
        (0..FILES).try_for_each(|n| std::fs::write(view.upper().join(format!("f{n}")), content()))?;
        applied.push(timed(|| {
            view.collect(&workspace, &guard, Limits::default())?.stage_as(Fates::APPLY)?;
            store.apply(&id, &workspace)?;
            Ok(())
        })?);
        undone.push(timed(|| {
            let plan = store.plan_undo(&id, &workspace)?;
            store.undo(&plan, &format!("u{round}"), &workspace)?;
            Ok(())
        })?);
        settle()?;
        let away = base.join(format!("away{round}"));
        std::fs::create_dir(&away)?;
        renamed.push(timed(|| {
            let names = (0..FILES).map(|n| format!("f{n}"));
            names.into_iter().try_for_each(|name| std::fs::rename(copy.join(&name), away.join(&name)))?;
            // As durable as an undo is.
            [&copy, &away].into_iter().try_for_each(|directory| std::fs::File::open(directory)?.sync_all())?;
            Ok(())
        })?);
    }
    let middle = |times: Vec<Duration>| crate::report::median(times);
    report.at_most("writing back 1,000 files, over cp -a", middle(applied), middle(copied), 2.0);
    report.at_most("undoing 1,000 files, over their renames", middle(undone), middle(renamed), 2.0);
    Ok(())
}

/// Waits until what was written before is on the disk.
fn settle() -> Result {
    let done = Command::new("sync").status()?;
    if done.success() { Ok(()) } else { Err("sync failed".into()) }
}

/// A small crate with one dependency of its own, built from nothing: on a view, beside on the workspace itself.
fn build(report: &mut Report, root: &Path, base: &Path) -> Result {
    const BUILDS: usize = 7;
    let module = |n: usize| format!("pub fn f{n}(x: u64) -> String {{ format!(\"{{}}\", x.wrapping_mul({n})) }}\n");
    for (file, content) in [
        (
            "Cargo.toml",
            "[package]\nname = \"small\"\nedition = \"2021\"\n[dependencies]\npart = { path = \"part\" }\n".to_owned(),
        ),
        ("src/main.rs", "fn main() { println!(\"{}\", part::f1(2)) }\n".to_owned()),
        ("part/Cargo.toml", "[package]\nname = \"part\"\nedition = \"2021\"\n".to_owned()),
        ("part/src/lib.rs", (0..200).map(module).collect()),
    ] {
        std::fs::create_dir_all(root.join(file).parent().ok_or("no directory")?)?;
        std::fs::write(root.join(file), content)?;
    }
    let workspace = Workspace::open(root)?;
    let store = ViewStore::open(&base.join("store of builds"), &workspace)?;
    let direct = Run::cargo_build(root)?;
    // The first one writes the lock file.
    direct.once()?;
    let (mut on_view, mut on_workspace) = (vec![], vec![]);
    for round in 0..BUILDS {
        std::fs::remove_dir_all(root.join("target"))?;
        on_workspace.push(timed(|| direct.once())?);
        std::fs::remove_dir_all(root.join("target"))?;
        let view = store.begin(&format!("b{round}"), &workspace)?;
        let run = Run::cargo_build(root)?.on(WorkspaceView { upper: view.upper(), work: view.work() });
        on_view.push(timed(|| run.once())?);
        store.discard(view.id())?;
        direct.once()?;
    }
    let middle = crate::report::median;
    report.at_most("cargo build on a view, over on the workspace", middle(on_view), middle(on_workspace), 1.1);
    Ok(())
}

fn timed(work: impl FnOnce() -> Result) -> Result<Duration> {
    let started = Instant::now();
    work()?;
    Ok(started.elapsed())
}

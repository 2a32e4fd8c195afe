//! Other sandboxes on the same command, started the way their users start them, beside our own command line.
//!
//! They are fetched by their package names into the build directory when the benchmark runs, and never kept with the
//! source. What is missing is said aloud, and the rest is measured.

use crate::Result;
use crate::report::{Report, show};
use crate::sandbox::{finish, in_turns};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGES: [&str; 2] = ["@anthropic-ai/sandbox-runtime", "@openai/codex"];
const ROUNDS: usize = 15;

struct Rival {
    name: &'static str,
    program: PathBuf,
    arguments: &'static [&'static str],
}

pub fn run(report: &mut Report, workspace: &Path) -> Result {
    let own = std::env::current_exe()?;
    let release = own.parent().ok_or("no directory")?;
    let cache = release.parent().ok_or("no build directory")?.join("bench-rivals");
    if let Err(reason) = fetch(&cache) {
        report.figure("other sandboxes", &format!("not measured: {reason}"));
        return Ok(());
    }
    let bin = cache.join("node_modules/.bin");
    let rivals = [
        Rival {
            name: "palyra sandbox run",
            program: release.join("palyra"),
            arguments: &["sandbox", "run", "--tier", "c", "--"],
        },
        Rival { name: "Anthropic's sandbox-runtime", program: bin.join("srt"), arguments: &["--"] },
        Rival { name: "Codex's sandbox", program: bin.join("codex"), arguments: &["sandbox", "--"] },
    ];
    let path = search_path(&cache)?;
    // Not among temporary files: one of them refuses to keep its helpers there.
    let home = cache.join("home");
    std::fs::create_dir_all(&home)?;
    let command = |rival: &Rival| {
        let mut command = Command::new(&rival.program);
        command.args(rival.arguments).arg("/bin/true").current_dir(workspace).env("PATH", &path).env("HOME", &home);
        command
    };
    let mut able = Vec::new();
    for rival in rivals {
        if !rival.program.exists() {
            report.figure(rival.name, "not measured: not built; `cargo build --release` first");
            continue;
        }
        match finish(command(&rival)) {
            Ok(()) => able.push(rival),
            Err(error) => report.figure(rival.name, &format!("not measured: {error}")),
        }
    }
    let mut work: Vec<_> = able.iter().map(|rival| || finish(command(rival))).collect();
    let mut subjects: Vec<&mut dyn FnMut() -> Result> = work.iter_mut().map(|work| work as _).collect();
    let times = in_turns(ROUNDS, &mut subjects)?;
    for (rival, time) in able.iter().zip(times) {
        report.figure(&format!("{}, start to exit", rival.name), &show(time));
    }
    Ok(())
}

fn fetch(cache: &Path) -> std::result::Result<(), String> {
    if PACKAGES.iter().all(|package| cache.join("node_modules").join(package).exists()) {
        return Ok(());
    }
    std::fs::create_dir_all(cache).map_err(|error| error.to_string())?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--silent", "--no-fund", "--no-audit", "--ignore-scripts", "--prefix"])
        .arg(cache)
        .args(PACKAGES);
    finish(npm).map_err(|error| format!("npm could not fetch {}: {error}", PACKAGES.join(" and ")))
}

/// The search path with the `rg` that one of the packages brings: another one needs it.
fn search_path(cache: &Path) -> Result<OsString> {
    let found = find(&cache.join("node_modules/@openai"), "rg", 6);
    let own = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&own).chain(found.and_then(|rg| rg.parent().map(Path::to_owned)));
    Ok(std::env::join_paths(directories)?)
}

fn find(directory: &Path, name: &str, depth: usize) -> Option<PathBuf> {
    let entries: Vec<_> = std::fs::read_dir(directory).ok()?.filter_map(|e| e.ok().map(|e| e.path())).collect();
    let here = entries.iter().find(|path| path.ends_with(name) && path.is_file()).cloned();
    here.or_else(|| entries.iter().filter(|p| depth > 0 && p.is_dir()).find_map(|p| find(p, name, depth - 1)))
}

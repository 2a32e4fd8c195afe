//! The console in a real Chromium: how soon a question is seen beside the same over `approvals watch`, the first paint
//! of each page as history grows, what is transferred, what an open console costs the daemon, and an idle screen.

use crate::Result;
use crate::process::binaries;
use crate::report::Report;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How many calls history has in the end; a build without optimisation would take too long to make them.
const CALLS: u32 = if cfg!(debug_assertions) { 2_000 } else { 100_000 };
/// How much later than a line of `approvals watch` a question may be on screen.
const LATER: Duration = Duration::from_millis(50);
/// How much longer the first paint may take with all of them than with a hundred.
const SLOWER: f64 = 1.5;
const MOST_BYTES: u64 = 150_000;
const MOST_SCRIPTS: u64 = 60_000;
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// What the browser's script measured: milliseconds and bytes.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Measured {
    calls: u32,
    few: BTreeMap<String, f64>,
    many: BTreeMap<String, f64>,
    on_screen: f64,
    on_line: f64,
    bytes: u64,
    scripts: u64,
    each: f64,
    idle: f64,
}

pub fn run(report: &mut Report) -> Result {
    let found = |name: &&&str| {
        std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(name).exists()))
    };
    let browser = BROWSERS.iter().find(found).ok_or("there is no Chromium: `cargo xtask setup` installs it")?;
    let dir = tempfile::tempdir_in("/tmp")?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../xtask/browser/bench.mjs");
    let mut node = Command::new("node");
    node.arg(script).arg(browser).arg(binaries()?).arg(dir.path().join("console")).arg(CALLS.to_string());
    let output = node.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err("the browser measured nothing".into());
    }
    let measured: Measured = serde_json::from_slice(&output.stdout)?;
    tell(report, &measured);
    Ok(())
}

fn tell(report: &mut Report, measured: &Measured) {
    let later = measured.on_screen - measured.on_line;
    let figures = format!(
        "{:.1} ms, `approvals watch` {:.1} ms, {later:.1} ms later (promised ≤ {} ms)",
        measured.on_screen,
        measured.on_line,
        LATER.as_millis()
    );
    report.promise("a question is on screen, p50", &figures, later <= LATER.as_secs_f64() * 1000.0);
    for (page, few) in &measured.few {
        let many = measured.many.get(page).copied().unwrap_or(f64::INFINITY);
        let ours = Duration::from_secs_f64(many.min(1e6) / 1000.0);
        let what = format!("first paint of {page}, {} calls against 100", measured.calls);
        report.at_most(&what, ours, Duration::from_secs_f64(few / 1000.0), SLOWER);
    }
    let sizes = format!(
        "{} bytes, {} of them scripts (promised ≤ {MOST_BYTES}, {MOST_SCRIPTS})",
        measured.bytes, measured.scripts
    );
    report.promise(
        "what all pages transfer besides data",
        &sizes,
        measured.bytes <= MOST_BYTES && measured.scripts <= MOST_SCRIPTS,
    );
    report.figure("memory of one open console, of 100", &format!("{:.1} KiB", measured.each / 1024.0));
    report.promise(
        "processor time of an idle screen",
        &format!("{:.2} % (promised ≤ 0.5 %)", measured.idle * 100.0),
        measured.idle <= 0.005,
    );
}

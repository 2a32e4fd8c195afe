//! The browser's part of `cargo xtask test`, in a real Chromium: pages of other origins cannot reach a single route,
//! and people can use every page of the console, with a screen reader too.

use crate::host::Host;
use crate::setup;
use crate::shell::{Failure, Result, Trying as _, program, root};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The version of axe-core.
const AXE: &str = "4.14.0";

/// Starts a daemon and lets the browser attack it.
pub fn run() -> Result<()> {
    let browser = setup::browser().ok_or_else(|| Failure("there is no Chromium".to_owned()))?;
    let kept = root().join("target/browser");
    std::fs::create_dir_all(&kept).trying("making target/browser")?;
    let host = Host::start(&kept)?;
    let script = root().join("xtask/browser/foreign_page.mjs");
    let words: [&OsStr; 4] = [script.as_ref(), browser.as_ref(), host.url.as_ref(), host.token.as_ref()];
    program("/usr/bin/node", words).run("the test of other origins")?;
    drop(host);
    let script = root().join("xtask/browser/console.mjs");
    let (programs, axe) = (root().join("target/debug"), axe(&kept)?);
    let words: [&OsStr; 5] = [script.as_ref(), browser.as_ref(), programs.as_ref(), kept.as_ref(), axe.as_ref()];
    program("/usr/bin/node", words).run("the test of the console")
}

/// The accessibility checks that every page has to pass: one script without dependencies. No build needs it.
fn axe(kept: &Path) -> Result<PathBuf> {
    let script = kept.join(format!("npm-{AXE}/node_modules/axe-core/axe.min.js"));
    if !script.exists() {
        let place = kept.join(format!("npm-{AXE}"));
        let package = format!("axe-core@{AXE}");
        let options = ["install", "--no-fund", "--no-audit", "--ignore-scripts", "--prefix"];
        let words = options.map(OsStr::new).into_iter().chain([place.as_ref(), OsStr::new(&package)]);
        program("/usr/bin/npm", words).run("fetching axe-core, which looks at pages for people who cannot see them")?;
    }
    Ok(script)
}

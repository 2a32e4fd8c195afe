//! The browser's part of `cargo xtask test`, in a real Chromium: pages of other origins cannot reach a single route,
//! and people can use every page of the console.

use crate::host::Host;
use crate::setup;
use crate::shell::{Failure, Result, Trying as _, program, root};
use std::ffi::OsStr;

/// Starts a daemon and lets the browser attack it.
pub fn run() -> Result<()> {
    let browser = setup::browser().ok_or_else(|| Failure("there is no Chromium".to_owned()))?;
    let kept = root().join("target/browser");
    std::fs::create_dir_all(&kept).trying("making target/browser")?;
    let host = Host::start(&kept)?;
    let script = root().join("xtask/browser/foreign_page.mjs");
    let words: [&OsStr; 4] = [script.as_ref(), browser.as_ref(), host.url.as_ref(), host.token.as_ref()];
    program("/usr/bin/node", words).run("the test of other origins")?;
    let script = root().join("xtask/browser/console.mjs");
    let palyra = root().join("target/debug/palyra");
    let (state, workspace, pictures) = (host.state(), host.workspace(), kept.join("screenshots"));
    let words: [&OsStr; 6] =
        [script.as_ref(), browser.as_ref(), palyra.as_ref(), state.as_ref(), workspace.as_ref(), pictures.as_ref()];
    program("/usr/bin/node", words).run("the test of the console")
}

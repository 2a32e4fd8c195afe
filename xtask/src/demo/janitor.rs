//! Leaving nothing behind, even when the demo is interrupted or killed.
//!
//! The demo starts a second process of this program in a process group of its own, where Ctrl-C does not reach it, and
//! holds one end of a pipe to it. The pipe closes when the demo ends, however it ends, and then the janitor stops the
//! daemon and removes the directory. No signal handler can promise that: SIGKILL cannot be caught. `palyra up` holds
//! the pipe as well while it runs, so that a daemon that is just starting is not missed.

use crate::shell::{Result, Trying as _};
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

/// What the demo says when there is nothing left to clean.
const DISMISSED: &[u8] = b"dismissed";

/// The janitor, seen from the demo.
#[derive(Debug)]
pub struct Janitor {
    process: Child,
    /// Closing it is the call to work.
    pipe: Option<ChildStdin>,
}

impl Janitor {
    /// From here on `dir` is removed when this process ends.
    pub fn hire(palyra: &Path, dir: &Path) -> Result<Self> {
        // Not by its path: a build may have put another program there meanwhile.
        let mut process = Command::new("/proc/self/exe")
            .arg("clean-up-after-demo")
            .args([palyra, dir])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .trying("starting the process that cleans up")?;
        let pipe = process.stdin.take();
        Ok(Self { process, pipe })
    }

    /// Our end of the pipe once more, for a process that must end before the work begins.
    pub fn hold(&self) -> Result<Stdio> {
        match &self.pipe {
            Some(pipe) => Ok(pipe.as_fd().try_clone_to_owned().trying("sharing the pipe")?.into()),
            None => Ok(Stdio::null()),
        }
    }

    /// Everything is in order; the janitor goes home.
    pub fn dismiss(mut self) -> Result<()> {
        match &mut self.pipe {
            Some(pipe) => pipe.write_all(DISMISSED).trying("dismissing the process that cleans up"),
            None => Ok(()),
        }
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        drop(self.pipe.take());
        if let Err(error) = self.process.wait() {
            eprintln!("the process that cleans up cannot be waited for: {error}");
        }
    }
}

/// What the janitor does: wait for the end, then clean.
pub fn work(palyra: &Path, dir: &Path) -> std::result::Result<(), String> {
    let mut word = Vec::new();
    // A pipe that cannot be read has lost its other end too.
    if std::io::stdin().read_to_end(&mut word).is_ok() && word == DISMISSED {
        return Ok(());
    }
    let state = dir.join("state");
    if state.join("palyra.sock").exists() {
        let down = Command::new(palyra).arg("down").env("PALYRA_STATE_DIR", &state).stderr(Stdio::null()).status();
        if !down.is_ok_and(|status| status.success()) {
            eprintln!("the demo's daemon could not be stopped; its state is in {}", state.display());
        }
    }
    std::fs::remove_dir_all(dir).map_err(|error| format!("{} cannot be removed: {error}", dir.display()))
}

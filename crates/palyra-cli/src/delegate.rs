//! Commands that need a room which only the daemon has: this program becomes `palyrad`, which does them.
//!
//! Streams, signals and the exit code are passed on because nothing stands between.

use crate::commands::up::daemon_binary;
use crate::context::Context;
use crate::exit::Failure;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Becomes `palyrad` with these words; comes back only if that fails.
pub fn become_daemon(context: &Context, words: Vec<OsString>) -> Failure {
    let binary = match daemon_binary() {
        Ok(binary) => binary,
        Err(failure) => return failure,
    };
    let error = Command::new(&binary).arg("--state-dir").arg(&context.state_dir).args(words).exec();
    Failure::io(&format!("`{}` cannot be started", binary.display()), &error)
}

//! `palyra sandbox`: handed over to `palyrad`, which has the sandbox.
//!
//! This program becomes that one: streams, signals and the exit code are passed on because nothing stands between.

use super::up::daemon_binary;
use crate::context::Context;
use crate::delegate::words_after;
use crate::exit::Failure;
use palyra_api::command_line::REFUSED;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Becomes `palyrad sandbox` with the words that were typed after `sandbox`. They were parsed already, so they are well
/// formed.
pub fn hand_over(context: &Context) -> Result<(), Failure> {
    // Not to be taken for the code of a command that never ran.
    let refused = |failure| Failure { exit: REFUSED, ..failure };
    let binary = daemon_binary().map_err(refused)?;
    let mut command = Command::new(&binary);
    command.arg("--state-dir").arg(&context.state_dir).arg("sandbox");
    command.args(["--output", if context.json() { "json" } else { "text" }]);
    command.args(words_after("sandbox", std::env::args_os()));
    let error = command.exec();
    Err(refused(Failure::io(&format!("`{}` cannot be started", binary.display()), &error)))
}

//! `cargo xtask demo`: one tool call from proposal to verified journal, with the real programs, on this machine.
//!
//! Nothing here is acted: every command is run as it is shown, and its exit code and its words are checked, so the demo
//! is also the shortest end-to-end test. It lives in a directory of its own and leaves nothing behind, however it ends.

mod command;
pub mod janitor;
mod stage;
mod story;

use crate::shell::{Built, Result, programs};
use stage::Stage;
use std::io::IsTerminal as _;

/// What becomes of the daemon when the demo has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It is stopped and its directory removed.
    Once,
    /// On a terminal it stays, for somebody who wants to go on by hand.
    KeepOnTerminal,
}

pub fn run(end: End, built: Built) -> Result<()> {
    let programs = programs(built, &["palyra-cli", "palyra-daemon"])?;
    let stage = Stage::set(&programs)?;
    let told = story::tell(&stage);
    if told.is_err() {
        stage.show_log();
        return told;
    }
    match end {
        End::KeepOnTerminal if std::io::stdout().is_terminal() => stage.keep(),
        End::Once | End::KeepOnTerminal => stage.clear(),
    }
}

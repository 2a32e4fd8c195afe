//! `palyrad access`: the ways out when the daemon does not start on its access registry. They take the state for
//! themselves, so they never run beside a daemon.

use crate::serve::{DaemonError, Setup, io};
use crate::state::StateDir;
use palyra_journal::JournalStore;
use palyra_protocol::{Clock as _, SystemClock};
use std::process::ExitCode;
use std::sync::Arc;

/// Accepts the registry as it stands.
///
/// # Errors
/// There is none, or it contradicts itself.
#[expect(clippy::print_stdout, reason = "the command's answer")]
pub fn accept(setup: &Setup) -> Result<ExitCode, DaemonError> {
    let (state, journal) = take(setup)?;
    let accepting = palyra_engine::accept_registry(state.path(), &journal);
    let revision = runtime()?.block_on(accepting)?;
    println!("accepted, as revision {revision}; the journal says so. Start the daemon: palyra up");
    Ok(ExitCode::SUCCESS)
}

/// Starts over.
///
/// # Errors
/// The files cannot be written.
#[expect(clippy::print_stdout, reason = "the command's answer")]
pub fn reset(setup: &Setup) -> Result<ExitCode, DaemonError> {
    let (state, journal) = take(setup)?;
    let resetting = palyra_engine::reset_registry(state.path(), &journal, SystemClock.now());
    let aside = runtime()?.block_on(resetting)?;
    match aside {
        Some(path) => println!("the old registry is now `{}`", path.display()),
        None => println!("there was no registry"),
    }
    println!("no tokens are left, and `user:local` is the only owner. Start the daemon: palyra up");
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn take(setup: &Setup) -> Result<(StateDir, JournalStore), DaemonError> {
    let state = StateDir::take(&setup.state_dir)?;
    let journal = JournalStore::open(&state.journal(), Arc::new(SystemClock))?;
    Ok((state, journal))
}

pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, DaemonError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(io("the runtime"))
}

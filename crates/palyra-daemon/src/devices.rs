//! `palyrad devices`: the way out when no device is let in because the device registry is not the one that the daemon
//! wrote. It takes the state for itself, so it never runs beside a daemon.

use crate::access::{runtime, take};
use crate::serve::{DaemonError, Setup, io};
use palyra_identity::{LAST_SEEN_FILE, REGISTRY_FILE, SHARDS_DIRECTORY};
use palyra_protocol::{Clock as _, Digest, JournalEvent, Principal, SystemClock};
use std::io::ErrorKind;
use std::process::ExitCode;

/// Starts over: the registry is put aside, and the next device to be paired meets a new authority.
///
/// # Errors
/// The files or the journal cannot be written.
#[expect(clippy::print_stdout, reason = "the command's answer")]
pub fn reset(setup: &Setup) -> Result<ExitCode, DaemonError> {
    let (state, journal) = take(setup)?;
    let aside = format!("aside-{}", SystemClock.now().unix_ms());
    let recorded = async {
        let (revision, before) = match journal.last_device_change().await? {
            Some(JournalEvent::DevicesChanged { revision, after, .. }) => (revision, Some(after)),
            _ => (0, None),
        };
        // A registry of which nothing is left: what is found from now on is refused, and a new one is begun.
        let event = JournalEvent::DevicesChanged {
            by: Principal::local_owner(),
            change: serde_json::json!({ "change": "registry_given_up", "aside": aside }),
            revision: revision + 1,
            before,
            after: Digest::ZERO,
        };
        journal.note(&event).await
    };
    runtime()?.block_on(recorded)?;
    for name in [REGISTRY_FILE, SHARDS_DIRECTORY, LAST_SEEN_FILE] {
        let from = state.path().join(name);
        match std::fs::rename(&from, state.path().join(format!("{name}.{aside}"))) {
            Ok(()) => println!("the old `{name}` is now `{name}.{aside}`"),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(io("the device registry cannot be put aside")(error)),
        }
    }
    println!("no device is let in any more; pair them again: palyra up, then palyra pairing code");
    Ok(ExitCode::SUCCESS)
}

//! `palyrad verify`: the journal is checked where it lies, for when the daemon does not start.

use crate::serve::{DaemonError, Setup, io};
use crate::state;
use palyra_journal::{Against, Verdict};
use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;

/// The exit code of a journal that does not hold.
const BROKEN: u8 = 8;

/// Verifies and tells.
///
/// # Errors
/// The journal or the checkpoint cannot be read at all.
#[expect(clippy::print_stdout, clippy::print_stderr, reason = "the command's answer, and its progress")]
pub fn run(setup: &Setup, against: Option<&Path>) -> Result<ExitCode, DaemonError> {
    let path = state::journal(&setup.state_dir);
    if !path.exists() {
        return Err(io("the journal")(std::io::Error::other(format!(
            "there is none in `{}`",
            setup.state_dir.display()
        ))));
    }
    let against = against.map(|file| read(file, &setup.state_dir)).transpose()?;
    let shown = std::io::stderr().is_terminal();
    let verdict = palyra_journal::verify(&path, against.as_ref(), &mut |seen| {
        if shown {
            eprint!("\r{seen} events verified");
        }
    });
    if shown {
        eprint!("\r\x1b[K");
    }
    let verdict = match verdict {
        Ok(verdict) => verdict,
        // Whether it holds is not known.
        Err(error) if error.is_unreachable() => return Err(DaemonError::Unverified(error)),
        // The file is there and is no journal that can be followed to its end: that is an answer, not a failure to give
        // one.
        Err(error) => {
            let cause = std::error::Error::source(&error).map_or_else(String::new, |cause| format!(": {cause}"));
            println!("broken: it cannot be followed to its end: {error}{cause}; restore a backup");
            return Ok(ExitCode::from(BROKEN));
        }
    };
    match verdict {
        Verdict::Intact(head) => {
            println!("intact: {} events, head {}", head.size, head.hash);
            Ok(ExitCode::SUCCESS)
        }
        Verdict::Broken(fault) => {
            println!("broken: {fault}");
            Ok(ExitCode::from(BROKEN))
        }
        Verdict::Unfounded(fault) => {
            println!("broken: {fault}");
            Ok(ExitCode::from(BROKEN))
        }
        Verdict::Contradicts(fault) => {
            println!("contradicts the checkpoint: {fault}");
            Ok(ExitCode::from(BROKEN))
        }
    }
}

fn read(file: &Path, state_dir: &Path) -> Result<Against, DaemonError> {
    let text = std::fs::read_to_string(file).map_err(io("the checkpoint"))?;
    let checkpoint = serde_json::from_str(&text)
        .map_err(|e| DaemonError::Checkpoint { path: file.to_owned(), reason: e.to_string() })?;
    let key = state::read_key(&state::key_file(state_dir))?.public();
    Ok(Against { checkpoint, key })
}

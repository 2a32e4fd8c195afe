//! The commands, one file each.

pub mod access;
pub mod approvals;
pub mod attest;
pub mod call;
pub mod connect;
pub mod doctor;
mod event_line;
pub mod grants;
pub mod journal;
pub mod live;
pub mod mcp;
pub mod policy;
pub mod sandbox;
pub mod status;
pub mod tools;
pub mod up;

use crate::exit::Failure;
use clap::CommandFactory as _;
use serde::de::DeserializeOwned;

/// Prints a completion script.
pub fn completions(shell: clap_complete::Shell) {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut crate::args::Cli::command(), "palyra", &mut script);
    crate::output::bytes(&script);
}

/// A document that the daemon sent.
fn read<T: DeserializeOwned>(document: &str) -> Result<T, Failure> {
    serde_json::from_str(document).map_err(|e| Failure::bug(&e))
}

/// A document that the daemon may have sent.
fn read_optional<T: DeserializeOwned>(document: &str) -> Result<Option<T>, Failure> {
    if document.is_empty() { Ok(None) } else { read(document).map(Some) }
}

//! The commands, one file each.

pub mod access;
pub mod approvals;
pub mod attest;
pub mod call;
mod call_list;
pub mod config;
pub mod connect;
pub mod console;
pub mod devices;
pub mod doctor;
pub mod effects;
mod event_line;
pub mod grants;
pub mod hook;
pub mod hosts;
pub mod init;
pub mod journal;
pub mod live;
mod managed_skills;
pub mod mcp;
pub mod memory;
pub mod models;
pub mod pair;
pub mod pairing;
pub mod policy;
pub mod redeem;
pub mod routines;
pub mod runs;
pub mod sandbox;
pub mod skills;
pub mod status;
pub mod tools;
pub mod up;
pub mod vault;
pub mod workspaces;

use crate::exit::Failure;
use serde::de::DeserializeOwned;

/// Prints a completion script. It runs this program for every Tab, which asks the daemon for ids, tools and principals.
pub fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    let shells = clap_complete::env::Shells::builtins();
    let Some(completer) = shells.completer(&shell.to_string()) else {
        return Err(Failure::usage(format!("there are no completions for `{shell}`"), "choose another shell"));
    };
    let mut script = Vec::new();
    completer
        .write_registration(COMPLETE, "palyra", "palyra", "palyra", &mut script)
        .map_err(|e| Failure::io("the script cannot be written", &e))?;
    crate::output::bytes(&script);
    Ok(())
}

/// The variable by which a shell asks for completions.
pub const COMPLETE: &str = "COMPLETE";

/// A document that the daemon sent.
pub fn read<T: DeserializeOwned>(document: &str) -> Result<T, Failure> {
    serde_json::from_str(document).map_err(|e| Failure::bug(&e))
}

/// A document that the daemon may have sent.
pub fn read_optional<T: DeserializeOwned>(document: &str) -> Result<Option<T>, Failure> {
    if document.is_empty() { Ok(None) } else { read(document).map(Some) }
}

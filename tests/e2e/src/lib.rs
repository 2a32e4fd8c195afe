//! What the tests against the real binaries share: a host to run a daemon on, the command line, the client library,
//! and a hand that tampers with the journal.
//!
//! Nothing here sleeps or polls. Tests wait for lines, for states of a call and for processes to end; [`PATIENCE`] only
//! turns a hang into a failure and is never part of what is asserted.

#![expect(clippy::expect_used, clippy::panic, reason = "a harness fails by panicking")]

pub mod api;
pub mod cli;
pub mod clock;
pub mod console;
pub mod host;
pub mod http;
pub mod mcp;
pub mod model;
pub mod network;
pub mod tamper;
pub mod terminal;

pub use api::{Caller, Proposal, Underway};
pub use cli::{Ran, Running};
pub use host::{Host, Stopped};
pub use http::{Answer, Http};
pub use model::{Model, Say};
pub use network::Network;
pub use terminal::Terminal;

use std::time::Duration;

/// How long nothing may happen before a test counts as hung.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// The names of an object's fields, sorted.
#[must_use]
pub fn fields(value: &serde_json::Value) -> Vec<&str> {
    let object = value.as_object().unwrap_or_else(|| panic!("not an object: {value}"));
    let mut names: Vec<_> = object.keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

/// A text that must be there.
#[must_use]
pub fn text<'a>(value: &'a serde_json::Value, pointer: &str) -> &'a str {
    let found = value.pointer(pointer).and_then(serde_json::Value::as_str);
    found.unwrap_or_else(|| panic!("no text at `{pointer}` in {value}"))
}

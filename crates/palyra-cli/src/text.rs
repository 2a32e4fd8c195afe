//! Text for people.

pub use palyra_protocol::display::{safe, safe_lines};

/// A JSON document for people: indented, and safe.
#[must_use]
pub fn pretty(value: &serde_json::Value) -> String {
    let text = serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string());
    safe_lines(&text)
}

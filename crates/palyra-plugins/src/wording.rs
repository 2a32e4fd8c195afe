//! Limits that wasmtime reports in words only: its errors have no type that others can name.
//!
//! Should a version change its words, the tests that exceed each limit say so.

use crate::limits::{Limit, Limits};

/// Which limit an error of wasmtime's is about, if it is about one.
pub(crate) fn limit_in(text: &str, limits: &Limits) -> Option<(Limit, u64)> {
    let phrases: [(&str, Limit, u64); 12] = [
        ("store handle limit exceeded", Limit::Handles, limits.handles),
        ("instance count too high", Limit::Instances, limits.instances),
        ("core module instances, which exceeds", Limit::Instances, limits.instances),
        ("aggregated core instance runtime space which exceeds", Limit::Instances, limits.instances),
        ("table count too high", Limit::Tables, limits.tables),
        ("tables, which exceeds", Limit::Tables, limits.tables),
        ("defined tables count", Limit::Tables, limits.tables),
        ("minimum element size", Limit::TableElements, limits.table_elements),
        ("memory count too high", Limit::Memories, limits.memories),
        ("Wasm linear memories, which exceeds", Limit::Memories, limits.memories),
        ("defined memories count", Limit::Memories, limits.memories),
        ("minimum byte size", Limit::MemoryBytes, limits.memory_bytes),
    ];
    phrases.into_iter().find(|(phrase, ..)| text.contains(phrase)).map(|(_, limit, value)| (limit, value))
}

/// Whether a guest handed over more than it may at a time.
pub(crate) fn is_too_much_at_once(text: &str) -> bool {
    text.contains("too much data is being copied between the host and the guest")
}

//! Hostile bytes as JSON of strangers.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| palyra_protocol::fuzzing::json(bytes));

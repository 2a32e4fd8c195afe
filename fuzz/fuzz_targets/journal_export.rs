//! Hostile bytes as an exported journal.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| palyra_protocol::fuzzing::journal_export(bytes));

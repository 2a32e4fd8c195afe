//! Hostile bytes as a patch.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| palyra_workspace::fuzzing::patch(bytes));

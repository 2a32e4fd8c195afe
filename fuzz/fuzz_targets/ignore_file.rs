//! Hostile bytes as an ignore file.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| palyra_workspace::fuzzing::ignore_file(bytes));

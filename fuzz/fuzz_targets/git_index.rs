//! Hostile bytes as git's index.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| palyra_workspace::fuzzing::git_index(bytes));

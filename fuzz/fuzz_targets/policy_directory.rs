//! Hostile bytes as a policy directory.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| palyra_policy::fuzzing::policy_directory(bytes));

//! Hostile bytes as the access registry's file.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| palyra_access::fuzzing::fuzz_registry(bytes));

//! Hostile bytes as a token that a stranger presents.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| palyra_access::fuzzing::fuzz_token(bytes));

//! Hostile bytes as what an authenticator and a browser say about a decision.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| palyra_protocol::fuzzing::passkey_assertion(bytes));

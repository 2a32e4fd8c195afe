//! Hostile bytes as a TLS greeting.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| palyra_egress::fuzzing::greeting(bytes));

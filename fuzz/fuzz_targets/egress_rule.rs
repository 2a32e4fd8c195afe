//! Hostile bytes as an egress rule, a URL, a redirect.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| palyra_egress::fuzzing::rule(bytes));

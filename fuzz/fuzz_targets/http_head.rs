//! Hostile bytes as the head of a request or an answer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| palyra_egress::fuzzing::http_head(bytes));

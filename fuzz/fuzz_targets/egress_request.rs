//! Hostile bytes against the egress proxy's parsers: HTTP heads and bodies, SOCKS5, TLS greetings, rules.
//!
//! `cargo +nightly fuzz run egress_request`. The property tests of `palyra-sandbox` call the same function.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| palyra_sandbox::egress::fuzzing::request(bytes));

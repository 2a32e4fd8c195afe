//! Hostile bytes against the egress proxy's parsers: HTTP heads and bodies, SOCKS5, TLS greetings, rules, redirects.
//!
//! `cargo +nightly fuzz run egress_request fuzz/corpus fuzz/seeds/egress_request -- -dict=fuzz/egress_request.dict`,
//! where the corpus is a directory that grows. The property tests of `palyra-sandbox` call the same function, on the
//! seeds too.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| palyra_egress::fuzzing::request(bytes));

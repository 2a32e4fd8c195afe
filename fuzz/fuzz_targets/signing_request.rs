//! Hostile bytes against what reads a device's request for a certificate.
//!
//! `cargo +nightly fuzz run signing_request fuzz/corpus fuzz/seeds/signing_request`, where the corpus is a directory
//! that grows. The property tests of `palyra-identity` call the same function, on the seeds too.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| palyra_identity::fuzzing::signing_request(bytes));

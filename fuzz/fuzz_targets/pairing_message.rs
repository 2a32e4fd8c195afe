//! Hostile bytes against what reads pairing messages, frames and codes.
//!
//! `cargo +nightly fuzz run pairing_message fuzz/corpus fuzz/seeds/pairing_message`, where the corpus is a directory
//! that grows. The property tests of `palyra-identity` call the same function, on the seeds too.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| palyra_identity::fuzzing::pairing_message(bytes));

//! Hostile values and texts against the redaction scanner: no value stays in a text, however the text is cut.
//!
//! `cargo +nightly fuzz run redaction fuzz/corpus fuzz/seeds/redaction`, where the corpus is a directory that grows.
//! The tests of `palyra-vault` call the same function, on the seeds too.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| palyra_vault::fuzzing::redaction(bytes));

//! Hostile bytes against what reads signatures, bills of materials, provenance, advisories, trust stores and rotation
//! statements.
//!
//! `cargo +nightly fuzz run skill_signature fuzz/corpus fuzz/seeds/skill_signature`, where the corpus is a directory
//! that grows. The tests of `palyra-skills` call the same function, on the seeds too.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| palyra_skills::fuzzing::fuzz_signature(bytes));

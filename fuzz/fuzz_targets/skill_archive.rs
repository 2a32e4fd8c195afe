//! Hostile bytes against what reads archives, whole artifacts and their audit.
//!
//! `cargo +nightly fuzz run skill_archive fuzz/corpus fuzz/seeds/skill_archive`, where the corpus is a directory that
//! grows. The tests of `palyra-skills` call the same function, on the seeds too.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| palyra_skills::fuzzing::fuzz_archive(bytes));

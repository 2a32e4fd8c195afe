//! Hostile bytes against what reads manifests, audit policies, lock files and the heads of `SKILL.md`.
//!
//! `cargo +nightly fuzz run skill_manifest fuzz/corpus fuzz/seeds/skill_manifest`, where the corpus is a directory that
//! grows. The tests of `palyra-skills` call the same function, on the seeds too.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| palyra_skills::fuzzing::fuzz_manifest(bytes));

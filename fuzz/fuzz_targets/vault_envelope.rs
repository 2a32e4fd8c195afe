//! Hostile bytes against what the vault reads from a disk: blobs, the vault's header, exports, references, bindings.
//!
//! `cargo +nightly fuzz run vault_envelope fuzz/corpus fuzz/seeds/vault_envelope`, where the corpus is a directory that
//! grows. The tests of `palyra-vault` call the same function, on the seeds too.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| palyra_vault::fuzzing::envelope(bytes));

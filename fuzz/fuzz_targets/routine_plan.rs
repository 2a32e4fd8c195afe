//! Hostile bytes as plans of routines, memory scopes and outputs of searches.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| palyra_protocol::fuzzing::routine_plan(bytes));

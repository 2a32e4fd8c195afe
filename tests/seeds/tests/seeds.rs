//! Every fuzz target on its seeds: whole, cut at many places, and with single bytes changed.
//!
//! Fuzzing needs a nightly compiler and time; this needs neither, and keeps the targets from rotting. A target that is
//! not in the table, or calls another function than the table says, fails.

use std::fs;
use std::path::{Path, PathBuf};

type Target = (&'static str, &'static str, fn(&[u8]));

macro_rules! targets {
    ($($name:literal => $entry:path),+ $(,)?) => {
        [$(($name, stringify!($entry), $entry as fn(&[u8]))),+]
    };
}

const TARGETS: [Target; 18] = targets! {
    "egress_request" => palyra_egress::fuzzing::request,
    "egress_rule" => palyra_egress::fuzzing::rule,
    "http_head" => palyra_egress::fuzzing::http_head,
    "ignore_file" => palyra_workspace::fuzzing::ignore_file,
    "journal_export" => palyra_protocol::fuzzing::journal_export,
    "json" => palyra_protocol::fuzzing::json,
    "pairing_message" => palyra_identity::fuzzing::pairing_message,
    "passkey_assertion" => palyra_protocol::fuzzing::passkey_assertion,
    "patch" => palyra_workspace::fuzzing::patch,
    "policy_directory" => palyra_policy::fuzzing::policy_directory,
    "redaction" => palyra_vault::fuzzing::redaction,
    "routine_plan" => palyra_protocol::fuzzing::routine_plan,
    "signing_request" => palyra_identity::fuzzing::signing_request,
    "skill_archive" => palyra_skills::fuzzing::fuzz_archive,
    "skill_manifest" => palyra_skills::fuzzing::fuzz_manifest,
    "skill_signature" => palyra_skills::fuzzing::fuzz_signature,
    "tls_greeting" => palyra_egress::fuzzing::greeting,
    "vault_envelope" => palyra_vault::fuzzing::envelope,
};

/// How many cuts and changes of one seed are tried. A policy set is compiled each time, which takes long without
/// optimisation.
fn tries(target: &str) -> usize {
    if target == "policy_directory" { 4 } else { 64 }
}

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

#[test]
fn every_target_is_in_the_table_and_calls_what_it_says() {
    let mut found: Vec<String> = fs::read_dir(fuzz().join("fuzz_targets"))
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    found.sort_unstable();
    assert_eq!(found, TARGETS.map(|(name, ..)| name.to_owned()), "the table has every target, sorted");
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
    for (name, entry, _) in TARGETS {
        let text = fs::read_to_string(fuzz().join("fuzz_targets").join(name).with_extension("rs")).unwrap();
        let entry = entry.replace(' ', "");
        assert!(
            text.contains(&format!("fuzz_target!(|bytes: &[u8]| {entry}(bytes));")),
            "{name} calls {entry}: {text}"
        );
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name} is a program of fuzz/Cargo.toml");
    }
}

#[test]
fn seeds_do_no_harm() {
    for (name, _, entry) in TARGETS {
        let mut seeds = 0;
        for seed in fs::read_dir(fuzz().join("seeds").join(name)).unwrap() {
            let bytes = fs::read(seed.unwrap().path()).unwrap();
            entry(&bytes);
            let step = (bytes.len() / tries(name)).max(1);
            for at in (0..bytes.len()).step_by(step) {
                entry(&bytes[..at]);
                let mut changed = bytes.clone();
                changed[at] ^= 0x20;
                entry(&changed);
            }
            seeds += 1;
        }
        assert!(seeds >= 2, "{name} has {seeds} seeds");
    }
}

//! Every fuzz target on its seeds: whole, cut at many places, and with single bytes changed.
//!
//! Fuzzing needs a nightly compiler and time; this needs neither, and keeps the targets from rotting. A target that is
//! not in the table, or calls another function than the table says, fails. With `FUZZ_SECONDS` in the environment,
//! seeds are changed at random for so long, and the number of executions is printed with `--nocapture`.

use std::fs;
use std::path::{Path, PathBuf};

type Target = (&'static str, &'static str, fn(&[u8]));

macro_rules! targets {
    ($($name:literal => $entry:path),+ $(,)?) => {
        [$(($name, stringify!($entry), $entry as fn(&[u8]))),+]
    };
}

const TARGETS: [Target; 19] = targets! {
    "access_registry" => palyra_access::fuzzing::fuzz_registry,
    "access_token" => palyra_access::fuzzing::fuzz_token,
    "egress_request" => palyra_egress::fuzzing::request,
    "egress_rule" => palyra_egress::fuzzing::rule,
    "http_head" => palyra_egress::fuzzing::http_head,
    "ignore_file" => palyra_workspace::fuzzing::ignore_file,
    "journal_export" => palyra_protocol::fuzzing::journal_export,
    "json" => palyra_protocol::fuzzing::json,
    "pairing_message" => palyra_identity::fuzzing::pairing_message,
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

/// Random numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap()
    }

    fn below(&mut self, end: usize) -> usize {
        self.next() % end.max(1)
    }

    /// A seed with a few changes: bits, bytes, pieces taken out, doubled, or taken from another seed.
    fn changed(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = seeds[self.below(seeds.len())].clone();
        for _ in 0..=self.below(6) {
            let (from, other) = (self.below(bytes.len()), &seeds[self.below(seeds.len())]);
            let until = (from + 1 + self.below(24)).min(bytes.len());
            match self.below(5) {
                0 if from < bytes.len() => bytes[from] ^= 1 << self.below(8),
                1 if from < bytes.len() => bytes[from] = [0, 9, 10, 13, 32, 34, 92, 0x7f, 0x80, 0xff][self.below(10)],
                2 => drop(bytes.drain(from..until.max(from))),
                3 => {
                    let piece = bytes[from..until.max(from)].to_vec();
                    bytes.splice(from..from, piece);
                }
                _ => {
                    let start = self.below(other.len());
                    let end = (start + self.below(64)).min(other.len());
                    bytes.splice(from..from, other[start..end].iter().copied());
                }
            }
            bytes.truncate(1 << 16);
        }
        bytes
    }
}

#[test]
#[expect(clippy::print_stderr, reason = "a long run says how long it was")]
fn seeds_changed_at_random_do_no_harm() {
    let seconds: Option<u64> = std::env::var("FUZZ_SECONDS").ok().map(|text| text.parse().unwrap());
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for (name, _, entry) in TARGETS {
        let files = fs::read_dir(fuzz().join("seeds").join(name)).unwrap();
        let mut paths: Vec<PathBuf> = files.map(|seed| seed.unwrap().path()).collect();
        paths.sort();
        let seeds: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
        let (begun, mut executions) = (std::time::Instant::now(), 0);
        let share = std::time::Duration::from_secs(seconds.unwrap_or(0)) / u32::try_from(TARGETS.len()).unwrap();
        while executions < tries(name) || begun.elapsed() < share {
            let bytes = random.changed(&seeds);
            let unharmed = std::panic::catch_unwind(|| entry(&bytes)).is_ok();
            assert!(unharmed, "{name} is harmed by {:?}", String::from_utf8_lossy(&bytes));
            executions += 1;
        }
        if seconds.is_some() {
            eprintln!("{name}: {executions} executions, nothing found");
        }
    }
}

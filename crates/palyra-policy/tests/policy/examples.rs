//! The ready sets in `policies/examples`: each passes every check, and each rule of theirs decides some case.

use palyra_policy::{Membership, PolicyLoader};
use std::path::Path;

fn membership() -> Membership {
    Membership::from_lists(&["user:*", "agent:*"], &["cli"], &["user:local"]).unwrap()
}

#[test]
fn every_example_passes_its_own_cases() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/examples");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(examples).unwrap() {
        let directory = entry.unwrap().path();
        let name = directory.file_name().unwrap().to_string_lossy().into_owned();
        let loader = PolicyLoader { directory: Some(directory), membership: membership() };
        let set = loader.load().unwrap_or_else(|refused| {
            let flaws: Vec<_> = refused.error.flaws().iter().map(palyra_policy::Flaw::render).collect();
            panic!("{name}: {refused}\n{}", flaws.join("\n\n"))
        });
        assert!(set.cases >= 5, "{name} has {} cases", set.cases);
        assert!(set.notes.is_empty(), "{name}: {:?}", set.notes);
        names.push(name);
    }
    names.sort();
    assert_eq!(names, ["ci-agent", "personal-coding-agent", "production-two-approvers", "read-only-reviewer"]);
}

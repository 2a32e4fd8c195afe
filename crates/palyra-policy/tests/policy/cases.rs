//! The cases beside the default rules, and that they leave no rule untried.

use palyra_policy::cases::CaseFile;
use palyra_policy::{Membership, PolicyEngine};
use std::collections::BTreeSet;

const CASES: &str = include_str!("../../../../policies/cases/default.toml");

#[test]
fn default_rules_answer_their_cases() {
    let file = CaseFile::parse(CASES).unwrap();
    let engine = PolicyEngine::with_defaults(&file.membership(&Membership::default()).unwrap().unwrap()).unwrap();
    let failures: Vec<_> = file.run(&engine, None).failures.iter().map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn every_default_rule_decides_some_case() {
    let file = CaseFile::parse(CASES).unwrap();
    let engine = PolicyEngine::with_defaults(&file.membership(&Membership::default()).unwrap().unwrap()).unwrap();
    let tried = file.run(&engine, None).deciding;
    let all: BTreeSet<_> = engine.rules().map(|rule| rule.id().to_owned()).collect();
    assert_eq!(tried, all);
}

#[test]
fn a_case_that_comes_out_otherwise_is_reported() {
    let file = CaseFile::parse(&CASES.replace("expect = \"ask\"", "expect = \"allow\"")).unwrap();
    let engine = PolicyEngine::with_defaults(&file.membership(&Membership::default()).unwrap().unwrap()).unwrap();
    let failures = file.run(&engine, None).failures;
    assert_eq!(failures.len(), CASES.matches("expect = \"ask\"").count());
    assert!(failures[0].to_string().contains("expects allow"), "{}", failures[0]);
    assert!(CaseFile::parse("[[case]]\nnome = 'x'").is_err());
}

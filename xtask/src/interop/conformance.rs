//! The protocol's own conformance suite: which of its scenarios such a server can be asked, and why not the others.
//!
//! Every scenario that the suite has stands in one of the two tables, so that a later version's are looked at. The
//! suite's other scenarios were written for a reference server with tools, prompts and resources of certain names.

use crate::shell::{Failure, Result, Trying as _};
use std::process::Command;

const BEFORE: &str = "2025-11-25";
const CURRENT: &str = "2026-07-28";

/// What is asked, in which revision.
const SCENARIOS: [(&str, &str); 13] = [
    ("server-initialize", BEFORE),
    ("server-session-lifecycle", BEFORE),
    ("ping", BEFORE),
    ("tools-list", BEFORE),
    ("server-sse-polling", BEFORE),
    ("server-sse-multiple-streams", BEFORE),
    ("dns-rebinding-protection", BEFORE),
    ("tools-list", CURRENT),
    ("server-stateless", CURRENT),
    ("server-sse-multiple-streams", CURRENT),
    ("dns-rebinding-protection", CURRENT),
    ("caching", CURRENT),
    ("http-header-validation", CURRENT),
];

/// Checks of these scenarios that do not apply, and why.
const EXCUSED: [(&str, &str); 7] = [
    ("sep-2575-server-rejects-undeclared-capability", "calls `test_missing_capability` of the reference server"),
    ("sep-2575-missing-capability-http-400", "calls `test_missing_capability` of the reference server"),
    ("sep-2575-http-server-no-independent-requests-on-stream", "calls a tool of the reference server"),
    ("sep-2575-server-no-log-without-loglevel", "calls a tool of the reference server"),
    ("sep-2549-prompts-list-caching-hints", "there are no prompts"),
    ("sep-2549-resources-list-caching-hints", "there are no resources"),
    ("sep-2549-resources-templates-list-caching-hints", "there are no resources"),
];

/// What is not asked, by how its name begins, and why.
const NOT_APPLICABLE: [(&str, &str); 13] = [
    ("logging-set-level", "there is no logging: what is logged is the operator's"),
    ("completion-complete", "there is no completion"),
    ("tools-call-", "calls tools of the reference server (`test_simple_text`, `test_image_content`, …)"),
    ("json-schema-2020-12", "lists a tool of the reference server (`json_schema_2020_12_tool`)"),
    ("elicitation-sep1034-defaults", "calls a tool of the reference server"),
    ("elicitation-sep1330-enums", "calls a tool of the reference server"),
    ("resources-", "there are no resources"),
    ("sep-2164-resource-not-found", "there are no resources"),
    ("sep-2640-skills-", "an extension that is not declared; there are no resources"),
    ("prompts-", "there are no prompts"),
    ("http-custom-header-server-validation", "no tool of ours takes a parameter from a header"),
    ("tasks-", "an extension that is not declared"),
    ("input-required-result-", "calls tools of the reference server that ask for input"),
];

/// Runs every scenario that applies. `suite` starts the suite with more words to come.
pub fn run(suite: impl Fn() -> Command, url: &str) -> Result<()> {
    every_scenario_is_known(suite())?;
    for (scenario, revision) in SCENARIOS {
        let mut suite = suite();
        suite.args(["server", "--url", url, "--scenario", scenario, "--spec-version", revision]);
        let output = suite.output().trying("starting the conformance suite")?;
        let said = String::from_utf8_lossy(&output.stdout);
        let result = said.lines().find(|line| line.starts_with("Passed: ")).unwrap_or("no result");
        println!("{scenario}, {revision}: {result}");
        let failed = said.lines().filter(|line| line.contains("FAILURE"));
        let unexcused = failed.filter(|line| !EXCUSED.iter().any(|(check, _)| line.contains(check))).count();
        if result == "no result" || unexcused > 0 {
            return Err(Failure(said.into_owned()));
        }
    }
    println!("not applicable:");
    for (scenario, why) in NOT_APPLICABLE.into_iter().chain(EXCUSED) {
        println!("  {scenario}{}: {why}", if scenario.ends_with('-') { "*" } else { "" });
    }
    Ok(())
}

fn every_scenario_is_known(mut suite: Command) -> Result<()> {
    let output = suite.args(["list", "--server"]).output().trying("starting the conformance suite")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let names = said.lines().filter_map(|line| line.trim().strip_prefix("- ")?.split(' ').next());
    let known = |name: &&str| {
        SCENARIOS.iter().any(|(scenario, _)| scenario == name)
            || NOT_APPLICABLE.iter().any(|(scenario, _)| name.starts_with(scenario))
    };
    let unknown: Vec<_> = names.filter(|name| !known(name)).collect();
    if unknown.is_empty() { Ok(()) } else { Err(Failure(format!("scenarios that nobody looked at: {unknown:?}"))) }
}

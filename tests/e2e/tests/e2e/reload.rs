//! Rules that change while the daemon runs: taken up whole or not at all, by themselves or on command.

use crate::policy::with_policies;
use palyra_e2e::{Host, Running, text};
use serde_json::{Value, json};
use std::fs;

const NO_PUSH: &str = "@id(\"no_push\")\n@reason(\"Nobody pushes.\")\n\
    forbid (principal, action == Action::\"tool.execute\", resource)\n\
    when { context.argv_prefixes.contains(\"git push\") };\n";
const BROKEN: &str = "@id(\"x\") @reason(\"y\")\npermit (principal, action, resource)\nwhen { context.nope };\n";

/// Follows the journal from now on.
fn following(host: &Host) -> Running {
    host.palyra_started(&["journal", "tail", "--last", "0", "--follow"])
}

/// The next event of a kind.
fn next(journal: &Running, kind: &str) -> Value {
    loop {
        let event = journal.json();
        if event["kind"] == kind {
            return event["body"].clone();
        }
    }
}

fn explained(host: &Host, argv: &[&str]) -> String {
    let input = json!({ "argv": argv }).to_string();
    let explained = host.palyra(&["policy", "explain", "palyra.process.run", "--input", &input]).good();
    text(&explained, "/decision/decision").to_owned()
}

#[test]
fn changed_files_are_taken_up_and_broken_ones_are_not() {
    let mut host = with_policies(&[]);
    host.start();
    let journal = following(&host);
    assert_eq!(explained(&host, &["git", "push"]), "needs_approval");
    let file = host.path("policies").join("a.cedar");

    fs::write(&file, NO_PUSH).unwrap();
    let reloaded = next(&journal, "policy.reloaded");
    assert_eq!(reloaded["by"], "system:palyrad");
    assert_ne!(reloaded["from"], reloaded["to"]);
    assert_eq!(explained(&host, &["git", "push"]), "deny");
    let status = host.palyra(&["status"]).good();
    assert_eq!(status["policy"]["hash"], reloaded["to"]);
    assert_eq!(status["policy"]["refused"], Value::Null);

    fs::write(&file, BROKEN).unwrap();
    let rejected = next(&journal, "policy.rejected");
    assert_eq!(rejected["running"], reloaded["to"]);
    assert!(text(&rejected, "/flaws/0").starts_with("a.cedar:3:"), "{rejected}");
    assert_eq!(explained(&host, &["git", "push"]), "deny", "the set before goes on");
    let status = host.palyra(&["status"]).good();
    assert_eq!(status["policy"]["hash"], reloaded["to"]);
    assert_eq!(status["policy"]["refused"]["flaws"][0]["at"]["line"], 3);
    assert_eq!(status["policy"]["refused"]["files"], rejected["files"]);
    let said = host.palyra_text(&["status"]).exits(0);
    assert!(said.stderr.contains("may not run") && said.stderr.contains("a.cedar:3"), "{said:?}");
    let unwell = host.palyra_text(&["doctor"]).exits(1);
    assert!(unwell.stdout.contains("✘ policy") && unwell.stdout.contains("a.cedar:3"), "{unwell:?}");

    fs::remove_file(&file).unwrap();
    next(&journal, "policy.reloaded");
    assert_eq!(explained(&host, &["git", "push"]), "needs_approval");
    assert_eq!(host.palyra(&["status"]).good()["policy"]["refused"], Value::Null);
}

#[test]
fn cases_are_part_of_the_set() {
    let mut host = with_policies(&[("a.cedar", NO_PUSH)]);
    host.start();
    let journal = following(&host);
    fs::create_dir(host.path("policies/cases")).unwrap();
    fs::write(
        host.path("policies/cases/a.toml"),
        "[[case]]\nname = \"pushing is fine\"\nprincipal = \"agent:x\"\naction = \"tool.execute\"\n\
         resource = \"tool:palyra.process.run\"\nexpect = \"allow\"\n\
         context = { channel = \"cli\", facets = { argv = [\"git\", \"push\"] } }\n",
    )
    .unwrap();
    let refused = host.palyra(&["policy", "reload"]).exits(8);
    assert_eq!(refused.json()["outcome"]["outcome"], "refused");
    assert_eq!(refused.json()["outcome"]["flaws"][0]["kind"], "case_failed");
    assert!(text(&next(&journal, "policy.rejected"), "/flaws/0").contains("pushing is fine"));
    assert_eq!(explained(&host, &["git", "push"]), "deny");
    // Nor does it start so.
    host.kill();
    assert!(host.refused().log.contains("cases/a.toml:2"));
}

#[test]
fn a_directory_that_is_swapped_whole_is_taken_up() {
    let mut host = with_policies(&[]);
    host.start();
    let journal = following(&host);
    fs::create_dir(host.path("new")).unwrap();
    fs::write(host.path("new/b.cedar"), NO_PUSH).unwrap();
    fs::rename(host.path("policies"), host.path("old")).unwrap();
    fs::rename(host.path("new"), host.path("policies")).unwrap();
    next(&journal, "policy.reloaded");
    assert_eq!(explained(&host, &["git", "push"]), "deny");
    fs::write(host.path("policies/b.cedar"), "// gone\n").unwrap();
    next(&journal, "policy.reloaded");
    assert_eq!(explained(&host, &["git", "push"]), "needs_approval");
}

#[test]
fn reading_anew_is_the_owners_and_says_what_came_of_it() {
    let mut host = with_policies(&[("a.cedar", NO_PUSH)]);
    host.start();
    assert_eq!(host.palyra(&["policy", "reload"]).good()["outcome"]["outcome"], "unchanged");
    host.palyra(&["--as", "agent:demo", "policy", "reload"]).fails(10, "forbidden");
    let events = host.palyra(&["journal", "tail"]).exits(0).json_lines();
    assert!(events.iter().all(|event| event["kind"] != "policy.reloaded"), "{events:?}");
}

#[test]
fn an_answer_under_the_rules_before_no_longer_holds() {
    let mut host = with_policies(&[]);
    host.start();
    let journal = following(&host);
    let ls = json!({ "argv": ["ls"] });
    let (call, asked) = host.ask("palyra.process.run", &ls, &["--session", "s"]);
    host.decide(&asked, "allow", &["--scope", "session"]).exits(0).done();
    host.palyra(&["calls", "follow", &call]).exits(0).done();
    fs::write(host.path("policies/a.cedar"), NO_PUSH).unwrap();
    next(&journal, "policy.reloaded");
    drop(host.ask("palyra.process.run", &ls, &["--session", "s"]));
}

#[test]
fn a_question_outlives_rules_that_others_replace_only_if_those_ask_the_same() {
    let mut host = with_policies(&[]);
    host.start();
    let journal = following(&host);
    let ls = json!({ "argv": ["ls"] });
    let (stays, asked) = host.ask("palyra.process.run", &ls, &[]);
    fs::write(host.path("policies/a.cedar"), NO_PUSH).unwrap();
    next(&journal, "approval.rebound");
    host.decide(&asked, "allow", &[]).exits(0).done();
    host.palyra(&["calls", "follow", &stays]).exits(0).done();

    let (ends, asked) = host.ask("palyra.process.run", &ls, &[]);
    fs::write(host.path("policies/a.cedar"), NO_PUSH.replace("git push", "ls")).unwrap();
    let error = host.palyra(&["calls", "follow", &ends]);
    assert_eq!(error.error()["code"], "policy_changed", "whoever waits is told at once: {error:?}");
    assert_eq!(host.palyra(&["approvals", "show", &asked]).good()["state"], "cancelled");
    host.decide(&asked, "allow", &[]).fails(10, "approval_already_resolved");
}

#[test]
fn members_who_have_nothing_to_do_with_it_end_no_question() {
    let host = Host::up();
    let (call, asked) = host.ask("palyra.process.run", &json!({ "argv": ["ls"] }), &["--as", "agent:demo"]);
    host.palyra(&["access", "agent", "add", "agent:unrelated"]).exits(0).done();
    host.decide(&asked, "allow", &[]).exits(0).done();
    host.palyra(&["calls", "follow", &call]).exits(0).done();
}

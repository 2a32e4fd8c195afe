//! What is forbidden is forbidden before anything is told of it: errors say nothing of what exists there.

use super::{House, asked, ended, owner};
use crate::flow::propose::Proposal;
use palyra_protocol::{CallState, DecisionKind};
use serde_json::{Value, json};
use std::os::unix::fs::symlink;

const NO_SECRETS: &str = "@id(\"no_secrets\") @reason(\"Secrets are secret.\")\n\
    forbid (principal, action == Action::\"tool.execute\", resource)\n\
    when { context.read_under.contains(\"secrets\") || context.written_under.contains(\"secrets\") };\n\
    @id(\"no_secret_programs\") @reason(\"Secrets are secret.\")\n\
    forbid (principal, action == Action::\"tool.execute\", resource == Tool::\"palyra.process.run\")\n\
    when { context.argv_prefixes.contains(\"secrets/tool\") || context.argv_prefixes.contains(\"secrets/none\") };";

fn patch(name: &str) -> String {
    format!("--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+x\n")
}

fn proposal((tool, input): &(&str, Value)) -> Proposal {
    Proposal { tool: (*tool).to_owned(), input: input.to_string().into_bytes(), ..Proposal::default() }
}

async fn house() -> House {
    let house = House::with_rules(NO_SECRETS).await;
    let at = |name: &str| house.workspace().join(name);
    std::fs::create_dir_all(at("secrets/dir")).unwrap();
    std::fs::write(at("secrets/file"), "x").unwrap();
    std::fs::write(at("file"), "x").unwrap();
    symlink("/etc", at("secrets/out")).unwrap();
    symlink("loop", at("secrets/loop")).unwrap();
    symlink("secrets", at("way")).unwrap();
    house
}

#[tokio::test]
async fn errors_tell_nothing_of_what_lies_beneath_a_forbidden_path() {
    let house = house().await;
    let mut told = Vec::new();
    for call in [
        ("palyra.fs.read", json!({ "path": "secrets/file" })),
        ("palyra.fs.read", json!({ "path": "secrets/none" })),
        ("palyra.fs.read", json!({ "path": "secrets/file/x" })),
        ("palyra.fs.read", json!({ "path": "secrets/none/x" })),
        ("palyra.fs.read", json!({ "path": "secrets/none/.." })),
        ("palyra.fs.read", json!({ "path": "secrets/none/../../file" })),
        ("palyra.fs.list", json!({ "path": "secrets/file/" })),
        ("palyra.fs.list", json!({ "path": "secrets/dir/" })),
        ("palyra.fs.read", json!({ "path": "secrets/out/passwd" })),
        ("palyra.fs.read", json!({ "path": "secrets/loop" })),
        ("palyra.fs.read", json!({ "path": "way/file/x" })),
        ("palyra.fs.write", json!({ "path": "secrets/file/x", "content": "x" })),
        ("palyra.fs.apply_patch", json!({ "patch": patch("secrets/file") })),
        ("palyra.fs.apply_patch", json!({ "patch": patch("secrets/none") })),
    ] {
        let end = ended(&mut house.engine.propose(&owner(), proposal(&call))).await;
        let problem = end.outcome.clone().unwrap().problem.clone().unwrap();
        assert_eq!((end.state, problem.code.as_str()), (CallState::Denied, "policy_denied"), "{call:?}: {problem:?}");
        assert_eq!(end.decision.as_ref().unwrap().rules, ["no_secrets"], "{call:?}");
        told.push(problem.message.replace(call.0, "TOOL"));
        let (_, explained) = house.engine.explain(&owner(), proposal(&call)).await.unwrap();
        assert_eq!(explained.decision, DecisionKind::Deny, "{call:?}");
    }
    told.dedup();
    assert_eq!(told.len(), 1, "{told:?}");
}

#[tokio::test]
async fn a_program_is_forbidden_before_it_is_looked_for() {
    let house = house().await;
    for program in ["secrets/tool", "secrets/none"] {
        let call = ("palyra.process.run", json!({ "argv": [program] }));
        let end = ended(&mut house.engine.propose(&owner(), proposal(&call))).await;
        let code = end.outcome.unwrap().problem.as_ref().unwrap().code.clone();
        assert_eq!((end.state, code.as_str()), (CallState::Denied, "policy_denied"), "{program}");
    }
}

/// A path as deep as a workspace has is asked about like any other.
#[tokio::test]
async fn a_deep_path_is_asked_about_for_the_right_reason() {
    let house = house().await;
    for depth in [60, 100, 128] {
        let question = asked(&mut house.write(&vec!["d"; depth].join("/"))).await;
        assert!(question.why.ends_with("(deny_sensitive)"), "{depth}: {}", question.why);
    }
    let end = ended(&mut house.write(&vec!["d"; 129].join("/"))).await;
    let outcome = end.outcome.unwrap();
    let problem = outcome.problem.as_ref().unwrap();
    assert_eq!(problem.code, "path_too_long", "{problem:?}");
}

#[tokio::test]
async fn elsewhere_errors_say_what_is_wrong() {
    let house = house().await;
    for (call, code) in [
        (("palyra.fs.read", json!({ "path": "file/x" })), "not_a_directory"),
        (("palyra.fs.read", json!({ "path": "none/.." })), "not_found"),
        (("palyra.fs.read", json!({ "path": "../x" })), "path_outside_workspace"),
        (("palyra.fs.apply_patch", json!({ "patch": patch("file") })), "already_exists"),
    ] {
        let end = ended(&mut house.engine.propose(&owner(), proposal(&call))).await;
        assert_eq!(end.outcome.unwrap().problem.as_ref().unwrap().code, code, "{call:?}");
        let explained = house.engine.explain(&owner(), proposal(&call)).await.unwrap_err();
        assert_eq!(explained.problem.code, code, "{call:?}");
    }
}

//! What listings show, what `whoami` and `explain` say, and what becomes of questions when the rules change.

use super::{Place, code, owner, told};
use crate::access::VerifiedPeer;
use crate::approvals::answer::Answer;
use crate::engine::Engine;
use crate::flow::propose::{CallInProgress, Proposal};
use palyra_journal::ApprovalFilter;
use palyra_policy::{PolicyAction, PolicySource};
use palyra_protocol::access::RightDecision;
use palyra_protocol::{
    ApprovalDecision, ApprovalRecord, ApprovalScope, ApprovalState, CallState, DecisionKind, GrantMatcher,
};
use std::sync::Arc;

/// Every call of `palyra.echo` needs a person.
const ASKS: &str = r#"@id("echo_asks") @reason("Somebody looks.")
forbid (principal, action == Action::"tool.execute", resource == Tool::"palyra.echo") unless { context.allow_sensitive_tools };
"#;

fn acting_as(engine: &Engine, name: &str) -> VerifiedPeer {
    engine.act_as(owner(), name.parse().unwrap()).unwrap()
}

fn echo() -> Proposal {
    Proposal { tool: "palyra.echo".to_owned(), input: b"{\"text\":\"x\"}".to_vec(), ..Proposal::default() }
}

/// A call that waits for a person, and its question.
async fn asked(engine: &Engine, peer: &VerifiedPeer, proposal: Proposal) -> (CallInProgress, Arc<ApprovalRecord>) {
    let mut call = engine.propose(peer, proposal);
    loop {
        if let Some(approval) = call.updates.recv().await.unwrap().approval {
            return (call, approval);
        }
    }
}

async fn allow(
    engine: &Engine,
    approval: &ApprovalRecord,
    scope: ApprovalScope,
) -> Result<ApprovalRecord, crate::error::EngineError> {
    let answer = Answer {
        approval_id: approval.approval_id.clone(),
        decision: ApprovalDecision::Allow,
        scope,
        matcher: GrantMatcher::ExactCall,
        reason: None,
        digest: None,
        signature: None,
    };
    engine.decide_approval(&owner(), answer).await.map(Arc::unwrap_or_clone)
}

#[tokio::test]
async fn what_a_rule_hides_is_in_no_listing() {
    let place = Place::new();
    let rules = format!(
        "{ASKS}{}",
        r#"@id("payroll_is_private") @reason("r")
        forbid (principal, action in [Action::"approval.list", Action::"grant.list"], resource in Agent::"payroll");
        @id("not_listed") @reason("r") forbid (principal, action == Action::"tool.list", resource == Tool::"palyra.fs.list");
        @id("no_network_listed") @reason("r") forbid (principal, action == Action::"tool.list", resource in Capability::"network");
        @id("payroll_keeps_its_grants") @reason("r") forbid (principal, action == Action::"grant.revoke", resource in Agent::"payroll");"#
    );
    let engine = place.engine_with("work", &rules).await;
    let mut grants = Vec::new();
    for agent in ["agent:payroll", "agent:demo"] {
        let (call, approval) = asked(&engine, &acting_as(&engine, agent), echo()).await;
        let seen = agent == "agent:demo";
        let listed = engine.approvals(&owner(), ApprovalFilter::Pending, None).await.unwrap().records;
        assert_eq!(listed.iter().any(|a| a.approval_id == approval.approval_id), seen, "{agent}");
        assert_eq!(engine.approval(&owner(), &approval.approval_id).await.is_ok(), seen, "{agent}");
        assert_eq!(engine.sees_approval(&owner(), &approval), seen);
        let answered = allow(&engine, &approval, ApprovalScope::Session).await.unwrap();
        assert_eq!(call.end.await.unwrap().unwrap().state, CallState::Succeeded);
        grants.push(answered.resolution.unwrap().grant.unwrap());
    }
    let unknown = code(engine.approval(&owner(), &"apr_01K5QPZ0000000000000000000".parse().unwrap()).await);
    let (_, hidden) = asked(&engine, &acting_as(&engine, "agent:payroll"), echo()).await;
    assert_eq!(code(engine.approval(&owner(), &hidden.approval_id).await), unknown, "hidden looks like absent");
    let listed: Vec<_> =
        engine.grants(&owner(), None).await.unwrap().records.into_iter().map(|grant| grant.grant_id).collect();
    assert_eq!(listed, [grants[1].clone()]);
    let refused = engine.revoke_grant(&owner(), &grants[0]).await.unwrap_err();
    assert_eq!(refused.problem.code, "forbidden");
    assert_eq!(refused.problem.denial.unwrap().rules, ["payroll_keeps_its_grants"], "as structured as a call's");
    engine.revoke_grant(&owner(), &grants[1]).await.unwrap();
    let tools: Vec<_> = engine.tools(&owner()).unwrap().into_iter().map(|(tool, _)| tool.name().to_string()).collect();
    assert!(tools.contains(&"palyra.fs.read".to_owned()), "{tools:?}");
    for hidden in ["palyra.fs.list", "palyra.http.fetch"] {
        assert!(!tools.contains(&hidden.to_owned()), "{hidden}");
        assert_eq!(code(engine.tool(&owner(), hidden)), "unknown_tool");
        assert!(!engine.callable(&owner()).unwrap().iter().any(|tool| tool.name().as_str() == hidden));
    }
}

#[tokio::test]
async fn the_workspace_is_known_for_every_request() {
    let place = Place::new();
    let root = std::fs::canonicalize(place.dir.path().join("work")).unwrap();
    let rules = format!(
        r#"@id("here_only") @reason("r") forbid (principal, action in [Action::"tool.list", Action::"token.create", Action::"tool.execute"], resource)
        unless {{ context has workspace && context.workspace == Workspace::"{}" }};"#,
        root.display()
    );
    let engine = place.engine_with("work", &rules).await;
    assert!(!engine.tools(&owner()).unwrap().is_empty());
    assert!(engine.create_token(&owner(), super::new_token("user:local")).await.is_ok());
    let me = engine.whoami(&owner()).unwrap();
    let right = |action: &str, of: &str| {
        me.rights.iter().find(|right| right.action == action && right.resource.contains(of)).unwrap().decision
    };
    let found = (right("tool.list", ""), right("tool.execute", "palyra.echo"));
    assert_eq!(found, (RightDecision::Allow, RightDecision::Allow));
    let call = engine.propose(&owner(), echo()).end.await.unwrap().unwrap();
    assert_eq!(call.state, CallState::Succeeded);
}

#[tokio::test]
async fn a_denial_that_hinges_on_arguments_is_said_to() {
    let place = Place::new();
    let engine = place
        .engine_with(
            "work",
            r#"@id("src_only") @reason("r") forbid (principal, action == Action::"tool.execute", resource == Tool::"palyra.fs.list")
            unless { context.read_under.contains("src") };
            @id("no_echo") @reason("r") forbid (principal, action == Action::"tool.execute", resource == Tool::"palyra.echo");"#,
        )
        .await;
    let me = engine.whoami(&owner()).unwrap();
    let right = |tool: &str| me.rights.iter().find(|right| right.resource == tool).unwrap().decision;
    assert_eq!(
        (right("tool:palyra.fs.list"), right("tool:palyra.echo")),
        (RightDecision::Depends, RightDecision::Deny)
    );
    let callable: Vec<_> = engine.callable(&owner()).unwrap().iter().map(|tool| tool.name().to_string()).collect();
    assert_eq!(callable, ["palyra.fs.list"], "what some arguments allow is listed");
    let agent = engine.whoami(&acting_as(&engine, "agent:nobody")).unwrap();
    assert_eq!(agent.role, None, "an agent has its own role, not that of whoever acts as it");
}

#[tokio::test]
async fn explain_knows_of_standing_answers() {
    let place = Place::new();
    let engine = place.engine_with("work", ASKS).await;
    let demo = acting_as(&engine, "agent:demo");
    let proposal = || Proposal { session: Some("s".parse().unwrap()), ..echo() };
    let (call, approval) = asked(&engine, &demo, proposal()).await;
    assert_eq!(engine.explain(&demo, proposal()).await.unwrap().1.decision, DecisionKind::NeedsApproval);
    let answered = allow(&engine, &approval, ApprovalScope::Session).await.unwrap();
    drop(call.end.await);
    let (_, explained) = engine.explain(&demo, proposal()).await.unwrap();
    assert_eq!(explained.decision, DecisionKind::Allow);
    assert!(explained.summary.contains(answered.resolution.unwrap().grant.unwrap().as_str()), "{}", explained.summary);
    assert_eq!(engine.explain(&demo, echo()).await.unwrap().1.decision, DecisionKind::NeedsApproval, "another session");
    let ran = engine.propose(&demo, proposal()).end.await.unwrap().unwrap();
    assert_eq!(ran.state, CallState::Succeeded);
}

#[tokio::test]
async fn a_question_stays_where_the_answer_stays_and_ends_where_it_does_not() {
    let place = Place::new();
    let engine = place.engine_with("work", ASKS).await;
    let demo = acting_as(&engine, "agent:demo");
    let (stays, kept) = asked(&engine, &demo, echo()).await;
    let before = engine.policy_hash();
    engine.add_agent(&owner(), "agent:unrelated".parse().unwrap(), String::new()).await.unwrap();
    assert_ne!(engine.policy_hash(), before, "other members are other rules");
    let journal = told(&engine).await;
    assert!(journal.contains("approval.rebound"), "{journal}");
    let listed = engine.approvals(&owner(), ApprovalFilter::Pending, None).await.unwrap().records;
    assert_eq!((listed.len(), listed[0].policy_hash), (1, engine.policy_hash()));
    allow(&engine, &kept, ApprovalScope::Once).await.unwrap();
    assert_eq!(stays.end.await.unwrap().unwrap().state, CallState::Succeeded);

    let (ends, gone) = asked(&engine, &demo, echo()).await;
    std::fs::write(place.dir.path().join("rules/test.cedar"), "").unwrap();
    engine.policy_files_changed().await.unwrap();
    let end = ends.end.await.unwrap().unwrap();
    assert_eq!(end.state, CallState::Cancelled);
    assert_eq!(end.outcome.unwrap().problem.clone().unwrap().code, "policy_changed", "its caller is told at once");
    assert_eq!(engine.approval(&owner(), &gone.approval_id).await.unwrap().state, ApprovalState::Cancelled);
    assert!(engine.approvals(&owner(), ApprovalFilter::Pending, None).await.unwrap().records.is_empty());
}

/// Other members are other rules, and those end a grant, also when the members are the same again.
#[tokio::test]
async fn a_grant_ends_with_the_members_it_was_given_under() {
    let place = Place::new();
    let engine = place.engine_with("work", ASKS).await;
    let demo = acting_as(&engine, "agent:demo");
    let (call, approval) = asked(&engine, &demo, echo()).await;
    allow(&engine, &approval, ApprovalScope::Window { ms: 60_000 }).await.unwrap();
    drop(call.end.await);
    let before = engine.policy_hash();
    engine.add_agent(&owner(), "agent:unrelated".parse().unwrap(), String::new()).await.unwrap();
    engine.remove_agent(&owner(), "agent:unrelated".parse().unwrap()).await.unwrap();
    assert_eq!(engine.policy_hash(), before, "the rules are back");
    let grants = engine.grants(&owner(), None).await.unwrap().records;
    assert!(grants[0].void.is_some(), "{grants:?}");
    let journal = told(&engine).await;
    assert!(journal.contains("grant.voided"), "{journal}");
    asked(&engine, &demo, echo()).await;
}

/// A call that was decided before other rules took over, and is recorded after, is decided by the others.
#[tokio::test]
async fn decided_by_rules_in_force() {
    let place = Place::new();
    let engine = place.engine().await;
    let turn = engine.running_policy().turn().await;
    let mut call = engine.propose(&owner(), echo());
    let decision = loop {
        if let Some(decision) = call.updates.recv().await.unwrap().decision {
            break decision.decision;
        }
    };
    assert_eq!(decision, DecisionKind::Allow);
    let no_echo = r#"@id("no_echo") @reason("r") forbid (principal, action == Action::"tool.execute", resource == Tool::"palyra.echo");"#;
    let other = engine.policy().with_rules(PolicySource::new("other.cedar", no_echo)).unwrap();
    engine.running_policy().reseat(other);
    drop(turn);
    let end = call.end.await.unwrap().unwrap();
    assert_eq!(end.state, CallState::Denied);
    assert!(!told(&engine).await.contains("tool.started"));
}

#[tokio::test]
async fn a_token_for_a_tool_that_is_not_there_is_not_issued() {
    let place = Place::new();
    let engine = place.engine().await;
    let scoped = super::scoped("user:local", "operator", &["tool.execute:palyra.nope"]);
    assert_eq!(code(engine.create_token(&owner(), scoped).await), "unknown_tool");
}

/// Whatever a rule can speak of is asked somewhere: for every action and type of resource in the schema, the engine's
/// sources have a question about the two.
#[test]
fn every_question_of_the_schema_is_asked_somewhere() {
    let sources = sources();
    // Asked by a function that several share, further down in the same file.
    let shared =
        ["call.", "token.", "act_as", "effect.read", "effect.undo", "vault.", "memory.", "cron.", "run.", "skill."];
    for (name, resource) in pairs() {
        // Nobody waives: it is asked with the call that would need a person. `whoami` asks `access.read`; its file
        // lists every right, so it is no source here.
        // The routes for OpenAI's clients are asked about by the HTTP door's gate, from its table of rights.
        if ["approval.waive", "access.read"].contains(&name.as_str()) || name.starts_with("compat.") {
            continue;
        }
        let action = PolicyAction::ALL.iter().find(|action| action.as_str() == name).unwrap();
        let (verb, noun) =
            (format!("PolicyAction::{action:?}"), format!("policyresource::{}", resource.to_lowercase()));
        let anywhere = resource == "Daemon" || shared.iter().any(|beginning| name.starts_with(beginning));
        let asks = |source: &String| {
            source.match_indices(&verb).any(|(at, _)| {
                let whole = source[at + verb.len()..].chars().next().is_none_or(|c| !c.is_alphanumeric());
                let from = source.floor_char_boundary(if anywhere { 0 } else { at.saturating_sub(300) });
                let to = source.floor_char_boundary(if anywhere { source.len() } else { (at + 300).min(source.len()) });
                // Questions about the daemon go through functions that name it elsewhere.
                whole && (resource == "Daemon" || source[from..to].to_lowercase().contains(&noun))
            })
        };
        assert!(sources.iter().any(asks), "nothing asks `{name}` of a {resource}");
    }
}

fn sources() -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    left.push(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../palyra-daemon/src"));
    left.push(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../palyra-agent/src"));
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && path.file_name().is_some_and(|name| name != "tests") {
                left.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") && !path.ends_with("whoami.rs") {
                found.push(std::fs::read_to_string(path).unwrap());
            }
        }
    }
    found
}

/// What applies to what, by the schema's text: this crate does not know Cedar.
fn pairs() -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    for line in palyra_policy::SCHEMA_SRC.lines().filter(|line| line.starts_with("action \"")) {
        let action = line.split('"').nth(1).unwrap();
        let resources = line.split("resource: [").nth(1).unwrap().split(']').next().unwrap();
        pairs.extend(resources.split(", ").map(|resource| (action.to_owned(), resource.to_owned())));
    }
    assert!(pairs.len() > 30, "the schema reads otherwise");
    pairs
}

/// Begins something that the journal is to know of, and goes away in the very moment in which it does.
async fn gone_when_recorded<T>(engine: &Engine, asked_for: impl Future<Output = T>) {
    let mut head = engine.journal().head();
    head.mark_unchanged();
    tokio::select! {
        biased;
        recorded = head.changed() => recorded.unwrap(),
        _ = asked_for => panic!("it was over before it was recorded"),
    }
}

/// Whoever answers may go away before they are told that it counts: the call goes on all the same.
#[tokio::test]
async fn an_answer_reaches_its_call_though_its_giver_is_gone() {
    let place = Place::new();
    let engine = place.engine_with("work", ASKS).await;
    let (call, approval) = asked(&engine, &acting_as(&engine, "agent:demo"), echo()).await;
    gone_when_recorded(&engine, allow(&engine, &approval, ApprovalScope::Once)).await;
    let end = tokio::time::timeout(std::time::Duration::from_secs(20), call.end).await.unwrap();
    assert_eq!(end.unwrap().unwrap().state, CallState::Succeeded);
}

/// Rules that the journal knows of are those that decide, also if whoever had them read is gone.
#[tokio::test]
async fn rules_on_record_decide_though_whoever_had_them_read_is_gone() {
    let place = Place::new();
    let engine = place.engine_with("work", ASKS).await;
    std::fs::write(place.dir.path().join("rules/test.cedar"), "").unwrap();
    gone_when_recorded(&engine, engine.reload_policy(&owner())).await;
    // Nobody is asked any more: the call is decided by the new rules, which it waits for.
    let end = engine.propose(&owner(), echo()).end.await.unwrap().unwrap();
    assert_eq!(end.state, CallState::Succeeded);
}

//! A rule that counts people has this very call shown to a person, whatever grants there are.

use super::{House, asked, ended, owner};
use crate::approvals::answer::Answer;
use crate::flow::propose::Proposal;
use palyra_protocol::{ApprovalDecision, ApprovalScope, ApprovalState, CallState, GrantMatcher, JournalEvent};

const INFRA_ASKS: &str = "@id(\"infra_always_asks\") @reason(\"One by one.\")\n\
    forbid (principal, action == Action::\"tool.execute\", resource) when { context.written_under.contains(\"infra\") }\n\
    unless { context.approval_count >= 1 };";

#[tokio::test]
async fn a_grant_for_every_write_does_not_cover_what_a_rule_asks_about() {
    let house = House::with_rules(INFRA_ASKS).await;
    std::fs::create_dir(house.workspace().join("infra")).unwrap();
    let mut elsewhere = house.write("notes");
    let question = asked(&mut elsewhere).await;
    assert!(!question.fresh);
    house.grant_for_a_minute(&question).await;
    assert_eq!(elsewhere.end.await.unwrap().unwrap().state, CallState::Succeeded);
    assert_eq!(ended(&mut house.write("other")).await.state, CallState::Succeeded, "the grant covers it");

    let mut infra = house.write("infra/prod.tf");
    let question = asked(&mut infra).await;
    assert!(question.fresh && question.why.ends_with("A person has to approve this very call."), "{question:?}");
    let answer = |scope, matcher| Answer {
        approval_id: question.approval_id.clone(),
        decision: ApprovalDecision::Allow,
        scope,
        matcher,
        reason: None,
        digest: None,
        signature: None,
    };
    let wide = house.engine.decide_approval(&owner(), answer(ApprovalScope::Session, GrantMatcher::ExactCall)).await;
    assert_eq!(wide.unwrap_err().problem.code, "approval_scope", "nor does the answer leave a grant");
    let once = answer(ApprovalScope::Once, GrantMatcher::ExactCall);
    house.engine.decide_approval(&owner(), once).await.unwrap();
    assert_eq!(infra.end.await.unwrap().unwrap().state, CallState::Succeeded);
    asked(&mut house.write("infra/prod.tf")).await;

    let fresh = house.events(1).await.into_iter().filter_map(|event| match event {
        JournalEvent::ToolDecided { decision, .. } => Some(decision.fresh),
        _ => None,
    });
    assert_eq!(fresh.collect::<Vec<_>>(), [false, false, true, true]);
}

/// What a call uses is decided again with the call: an approval that the memory's rule asks for outlives other rules.
#[tokio::test]
async fn an_approval_that_a_used_thing_asks_for_outlives_rules_that_ask_the_same() {
    let asks = "@id(\"recall_asks\") @reason(\"A person looks first.\")\n\
        forbid (principal, action == Action::\"memory.search\", resource) unless { context.allow_sensitive_tools };\n";
    let house = House::with_rules(asks).await;
    let input = serde_json::json!({ "query": "database" }).to_string().into_bytes();
    let proposal = Proposal { tool: "palyra.memory.search".to_owned(), input, ..Proposal::default() };
    let mut call = house.engine.propose(&owner(), proposal);
    let question = asked(&mut call).await;
    house.replace_rules(&format!("{asks}{INFRA_ASKS}")).await;
    let now = house.engine.journal().approval(&question.approval_id).await.unwrap();
    assert_eq!((now.state, now.policy_hash), (ApprovalState::Pending, house.engine.policy_hash()));
    assert_ne!(now.policy_hash, question.policy_hash);
    house.replace_rules(INFRA_ASKS).await;
    let now = house.engine.journal().approval(&question.approval_id).await.unwrap();
    assert_eq!(now.state, ApprovalState::Cancelled, "no rule asks any more");
    assert_eq!(call.end.await.unwrap().unwrap().state, CallState::Cancelled);
}

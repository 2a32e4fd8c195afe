//! A rule that counts people has this very call shown to a person, whatever grants there are.

use super::{House, asked, ended, owner};
use crate::approvals::answer::Answer;
use palyra_protocol::{ApprovalDecision, ApprovalScope, CallState, GrantMatcher, JournalEvent};

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

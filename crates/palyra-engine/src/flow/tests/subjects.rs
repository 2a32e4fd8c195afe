//! Approvals that are about no call: asked for, answered, expired, withdrawn; and found again after a restart.

use super::{House, owner};
use crate::approvals::answer::Answer;
use crate::approvals::request::ApprovalRequest;
use palyra_protocol::{
    ApprovalDecision, ApprovalRecord, ApprovalScope, ApprovalState, ApprovalSubject, Digest, Facets, GrantMatcher,
    Principal, Problem, RiskLevel, SkillChange,
};
use std::time::Duration;

fn request(patience: Duration) -> ApprovalRequest {
    let subject = ApprovalSubject::SkillChange(Box::new(SkillChange {
        skill: "acme.weather".to_owned(),
        from: None,
        to: "1.0.0".to_owned(),
        package_sha256: Digest::of(b"package"),
        what: "asks for the network".to_owned(),
    }));
    ApprovalRequest {
        subject,
        subject_id: "skill:acme.weather".to_owned(),
        tool: "palyra.skill.update".parse().unwrap(),
        digest: Digest::of(b"shown"),
        risk: RiskLevel::High,
        principal: Principal::local_owner(),
        proposed_by: Principal::local_owner(),
        token: None,
        workspace: None,
        session: "s".parse().unwrap(),
        input: serde_json::json!({ "skill": "acme.weather" }),
        facets: Facets::default(),
        why: "an update asks for more".to_owned(),
        people: 1,
        patience: Some(patience),
    }
}

fn answer(asked: &ApprovalRecord, decision: ApprovalDecision, scope: ApprovalScope) -> Answer {
    let approval_id = asked.approval_id.clone();
    Answer {
        approval_id,
        decision,
        scope,
        matcher: GrantMatcher::ExactCall,
        reason: None,
        digest: None,
        signature: None,
    }
}

#[tokio::test]
async fn an_approval_about_no_call_is_answered_like_any_other() {
    let house = House::with_rules("").await;
    for (decision, state) in
        [(ApprovalDecision::Allow, ApprovalState::Allowed), (ApprovalDecision::Deny, ApprovalState::Denied)]
    {
        let waiting = house.engine.request_approval(request(Duration::from_secs(60))).await.unwrap();
        let listed = house.engine.approval(&owner(), &waiting.record.approval_id).await.unwrap();
        assert_eq!(listed, *waiting.record);
        let wide = answer(&waiting.record, ApprovalDecision::Allow, ApprovalScope::Session);
        let refused = house.engine.decide_approval(&owner(), wide).await.unwrap_err();
        assert_eq!(refused.problem.code, "approval_scope", "it leaves no grant");
        house.engine.decide_approval(&owner(), answer(&listed, decision, ApprovalScope::Once)).await.unwrap();
        assert_eq!(waiting.end.await.unwrap().state, state);
    }
}

#[tokio::test]
async fn an_approval_about_no_call_expires_or_is_withdrawn() {
    let house = House::with_rules("").await;
    let waiting = house.engine.request_approval(request(Duration::from_millis(20))).await.unwrap();
    assert_eq!(waiting.end.await.unwrap().state, ApprovalState::Expired);
    let waiting = house.engine.request_approval(request(Duration::from_secs(500))).await.unwrap();
    let problem = Problem::plain("gone", "nobody wants it any more");
    house.engine.withdraw_request(&waiting.record, problem.clone()).await.unwrap();
    assert_eq!(waiting.end.await.unwrap().state, ApprovalState::Cancelled);
    house.engine.withdraw_request(&waiting.record, problem).await.unwrap();
}

#[tokio::test]
async fn an_approval_about_no_call_waits_again_after_a_restart() {
    let house = House::with_rules("").await;
    let waiting = house.engine.request_approval(request(Duration::from_secs(600))).await.unwrap();
    let id = waiting.record.approval_id.clone();
    house.engine.shut_down(Duration::ZERO).await;
    assert!(waiting.end.await.is_err(), "the daemon ended first");
    let house = house.restarted().await;
    assert_eq!(house.engine.recover().await.unwrap().waiting, 1);
    let asked = house.engine.approval(&owner(), &id).await.unwrap();
    house.engine.decide_approval(&owner(), answer(&asked, ApprovalDecision::Allow, ApprovalScope::Once)).await.unwrap();
    assert_eq!(house.engine.approval(&owner(), &id).await.unwrap().state, ApprovalState::Allowed);
}

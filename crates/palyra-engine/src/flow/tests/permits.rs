//! What a permit is made from: a call together with the decision about it, and for an approval one that is about just
//! that.

use super::{House, owner};
use crate::flow::decide::{AskableCall, Decided};
use crate::flow::permit::{NotApproved, Permit};
use crate::flow::propose::Proposal;
use palyra_protocol::{
    ApprovalId, ApprovalRecord, ApprovalState, Authority, CallId, Digest, GrantId, RiskLevel, Timestamp,
};

const RULES: &str = "@id(\"no_secrets\") @reason(\"Nobody writes secrets.\")\n\
    forbid (principal, action == Action::\"tool.execute\", resource) when { context.written_under.contains(\"secret\") };\n\
    @id(\"counted\") @reason(\"Two people.\")\n\
    forbid (principal, action == Action::\"tool.execute\", resource) when { context.written_under.contains(\"prod\") }\n\
    unless { context.approval_count >= 2 };";

async fn decided(house: &House, tool: &str, input: &str) -> Decided {
    let proposal = Proposal { tool: tool.to_owned(), input: input.into(), ..Proposal::default() };
    let proposal = house.engine.alleged(&owner(), None, proposal);
    let here = house.engine.in_workspace_of(&owner()).unwrap();
    here.decide(here.resolve(&CallId::mint(), &proposal).await.unwrap())
}

async fn write(house: &House, path: &str) -> Decided {
    decided(house, "palyra.fs.write", &format!(r#"{{"path":"{path}","content":"x"}}"#)).await
}

async fn askable(house: &House, path: &str) -> AskableCall {
    match write(house, path).await {
        Decided::Askable(call) => call,
        Decided::Grantable(call) => call.without_grant(),
        other => panic!("{other:?}"),
    }
}

fn approval_of(asked: &AskableCall) -> ApprovalRecord {
    let (call, decision) = (asked.call(), asked.decision());
    ApprovalRecord {
        approval_id: ApprovalId::mint(),
        call_id: call.id().clone(),
        subject_id: call.subject_id(),
        subject: palyra_protocol::ApprovalSubject::ToolCall,
        tool: call.tool().clone(),
        call_digest: call.digest(),
        decision_id: decision.decision_id.clone(),
        policy_hash: decision.policy_hash,
        risk: RiskLevel::High,
        principal: call.origin().principal.clone(),
        proposed_by: call.origin().proposed_by.clone(),
        token: None,
        session: call.origin().session.clone(),
        workspace: None,
        input: call.input().clone(),
        facets: call.facets().clone(),
        why: String::new(),
        requested_at: Timestamp::from_unix_ms(1),
        expires_at: Timestamp::from_unix_ms(2),
        people: decision.people,
        fresh: decision.fresh,
        given: vec![],
        state: ApprovalState::Allowed,
        resolution: None,
    }
}

#[tokio::test]
async fn no_execution_without_permit() {
    let house = House::with_rules(RULES).await;
    let Decided::Allowed(call) = decided(&house, "palyra.echo", r#"{"text":"x"}"#).await else { panic!() };
    assert_eq!(*Permit::by_policy(call).authority(), Authority::Policy);
    let Decided::Grantable(call) = write(&house, "src/x").await else { panic!() };
    let grant = GrantId::mint();
    assert_eq!(*Permit::by_grant(call, grant.clone()).authority(), Authority::Grant(grant));
    assert!(matches!(write(&house, "prod/x").await, Decided::Askable(_)), "no grant makes a permit of it");
    assert!(matches!(write(&house, "secret/x").await, Decided::Denied(_)), "nor does anybody's approval");
}

#[tokio::test]
async fn decision_belongs_to_call() {
    let house = House::with_rules(RULES).await;
    let call = askable(&house, "src/x").await;
    assert_eq!(call.decision().call_digest, Some(call.call().digest()));
    let approval = approval_of(&call);
    let permit = Permit::by_approval(call, &approval).unwrap();
    assert_eq!(*permit.authority(), Authority::Approval(approval.approval_id.clone()));
    assert_eq!((permit.decision_id(), permit.call().digest()), (&approval.decision_id, approval.call_digest));

    type Change = fn(&mut ApprovalRecord);
    let changes: [(Change, NotApproved); 5] = [
        (|approval| approval.call_digest = Digest::of(b"another call"), NotApproved::OtherCall),
        (|approval| approval.call_id = CallId::mint(), NotApproved::OtherCall),
        (|approval| approval.state = ApprovalState::Pending, NotApproved::OtherCall),
        (|approval| approval.policy_hash = Digest::of(b"other rules"), NotApproved::OtherRules),
        (|approval| approval.people = 1, NotApproved::OtherRules),
    ];
    for (change, why) in changes {
        let call = askable(&house, "prod/x").await;
        let mut approval = approval_of(&call);
        change(&mut approval);
        assert_eq!(Permit::by_approval(call, &approval).unwrap_err(), why);
    }
    // Two calls that would do the same are two calls.
    let (one, other) = (askable(&house, "src/x").await, askable(&house, "src/x").await);
    assert_eq!(one.call().digest(), other.call().digest());
    assert_eq!(Permit::by_approval(other, &approval_of(&one)).unwrap_err(), NotApproved::OtherCall);
}

//! What a token proposed ends with it; and rules see of a token what it is, not what its principal is without it.

use super::{NewToken, Place, code, come, issue, new_token, owner, scoped, told};
use crate::approvals::answer::Answer;
use crate::engine::Engine;
use crate::flow::propose::Proposal;
use crate::queries::review::SimulationNews;
use palyra_access::{Feature, IssuedTokens};
use palyra_journal::ApprovalFilter;
use palyra_policy::PolicyFile;
use palyra_protocol::access::RightDecision;
use palyra_protocol::{
    ApprovalDecision, ApprovalRecord, ApprovalScope, ApprovalState, CallState, GrantMatcher, Principal, ToolOutcome,
    WorkspaceRole,
};
use std::sync::Arc;
use std::time::Duration;

const ASKS: &str = "@id(\"echo_asks\") @reason(\"Somebody has to say yes.\")\n\
    forbid (principal, action == Action::\"tool.execute\", resource == Tool::\"palyra.echo\")\n\
    unless { context.allow_sensitive_tools };";

fn who(name: &str) -> Principal {
    name.parse().unwrap()
}

fn echo() -> Proposal {
    Proposal { tool: "palyra.echo".to_owned(), input: br#"{"text":"x"}"#.to_vec(), ..Proposal::default() }
}

fn allow(asked: &ApprovalRecord) -> Answer {
    Answer {
        approval_id: asked.approval_id.clone(),
        decision: ApprovalDecision::Allow,
        scope: ApprovalScope::Once,
        matcher: GrantMatcher::ExactCall,
        reason: None,
        digest: None,
        signature: None,
    }
}

/// An agent's token has proposed a call that waits for a person.
struct Waiting {
    place: Place,
    engine: Engine,
    token: palyra_protocol::TokenId,
    asked: ApprovalRecord,
    end: tokio::sync::oneshot::Receiver<Result<crate::live::CallUpdate, crate::error::EngineError>>,
}

impl Waiting {
    async fn new() -> Self {
        let place = Place::new();
        let engine = place.engine_with("work", ASKS).await;
        engine.add_agent(&owner(), who("agent:ci"), String::new()).await.unwrap();
        let life = Some(Duration::from_secs(30));
        let (token, text) = issue(&engine, NewToken { life, ..new_token("agent:ci") }).await;
        let mut call = engine.propose(&come(&engine, &text).unwrap(), echo());
        let asked = loop {
            if let Some(asked) = call.updates.recv().await.unwrap().approval {
                break Arc::unwrap_or_clone(asked);
            }
        };
        assert_eq!(asked.token.as_ref().and_then(|shown| shown.credential.token_id()), Some(&token.token_id));
        Self { place, engine, token: token.token_id, asked, end: call.end }
    }

    async fn ended(self) -> (ApprovalRecord, ToolOutcome, Engine) {
        let update = self.end.await.unwrap().unwrap();
        let approval = self.engine.approval(&owner(), &self.asked.approval_id).await.unwrap();
        (approval, Arc::unwrap_or_clone(update.outcome.unwrap()), self.engine)
    }
}

async fn ends_with(waiting: Waiting, expect: &str) {
    let asked = waiting.asked.clone();
    let (approval, outcome, engine) = waiting.ended().await;
    assert_eq!((approval.state, outcome.state), (ApprovalState::Cancelled, CallState::Cancelled));
    assert_eq!(approval.resolution.unwrap().by, Principal::daemon());
    assert_eq!(outcome.problem.unwrap().code, expect);
    let late = engine.decide_approval(&owner(), allow(&asked)).await;
    assert_eq!(code(late), "approval_already_resolved");
    let told = told(&engine).await;
    assert!(told.contains("approval.resolved") && told.contains(expect), "{told}");
    assert!(!told.contains("tool.started"), "nothing ran");
}

#[tokio::test]
async fn a_question_ends_when_its_token_is_withdrawn() {
    let waiting = Waiting::new().await;
    waiting.engine.revoke_token(&owner(), waiting.token.clone(), IssuedTokens::Withdrawn).await.unwrap();
    ends_with(waiting, "token_revoked").await;
}

#[tokio::test]
async fn a_question_ends_when_its_agent_is_removed() {
    let waiting = Waiting::new().await;
    waiting.engine.remove_agent(&owner(), who("agent:ci")).await.unwrap();
    ends_with(waiting, "token_revoked").await;
}

#[tokio::test]
async fn a_question_ends_when_no_token_opens_anything() {
    let waiting = Waiting::new().await;
    waiting.engine.set_feature(&owner(), Feature::ApiTokens, false).await.unwrap();
    ends_with(waiting, "tokens_closed").await;
}

#[tokio::test]
async fn a_question_ends_when_its_token_expires() {
    let waiting = Waiting::new().await;
    let life = waiting.asked.requested_at.until(waiting.asked.expires_at);
    assert_eq!(life, Duration::from_secs(30), "not after the minute that questions have");
    waiting.place.later(life);
    // Whoever answers now finds it ended.
    let late = waiting.engine.decide_approval(&owner(), allow(&waiting.asked)).await;
    assert_eq!(code(late), "approval_already_resolved");
    ends_with(waiting, "token_expired").await;
}

#[tokio::test]
async fn a_start_ends_what_its_token_left_behind() {
    let waiting = Waiting::new().await;
    let Waiting { place, engine, asked, end, .. } = waiting;
    engine.shut_down(Duration::ZERO).await;
    drop(end.await);
    drop(engine);
    place.later(Duration::from_secs(31));
    let engine = place.engine_with("work", ASKS).await;
    engine.recover().await.unwrap();
    assert!(engine.approvals(&owner(), ApprovalFilter::Pending, None).await.unwrap().records.is_empty());
    let outcome = engine.call(&owner(), &asked.call_id).await.unwrap().outcome.unwrap();
    assert_eq!(outcome.problem.as_ref().unwrap().code, "token_expired");
}

#[tokio::test]
async fn other_changes_leave_a_question_alone() {
    let waiting = Waiting::new().await;
    let Waiting { engine, asked, token, .. } = &waiting;
    let (other, _) = issue(engine, new_token("agent:ci")).await;
    engine.revoke_token(&owner(), other.token_id, IssuedTokens::Withdrawn).await.unwrap();
    let hour = Duration::from_secs(3600);
    engine.rotate_token(&owner(), token.clone(), hour, IssuedTokens::Withdrawn).await.unwrap();
    engine.decide_approval(&owner(), allow(asked)).await.unwrap();
    assert_eq!(waiting.ended().await.1.state, CallState::Succeeded);
}

#[tokio::test]
async fn an_answer_says_by_which_token_it_was_given() {
    let place = Place::new();
    let engine = place.engine_with("work", ASKS).await;
    engine.set_member(&owner(), who("user:ada"), WorkspaceRole::Admin).await.unwrap();
    let scopes = ["tool.execute", "approval.decide"];
    let (token, text) = issue(&engine, scoped("user:ada", "admin", &scopes)).await;
    let ada = come(&engine, &text).unwrap();
    let mut call = engine.propose(&ada, echo());
    let asked = loop {
        if let Some(asked) = call.updates.recv().await.unwrap().approval {
            break asked;
        }
    };
    let blank = Answer { reason: Some(" \t".to_owned()), ..allow(&asked) };
    engine.set_feature(&owner(), Feature::ApprovalReasons, true).await.unwrap();
    assert_eq!(code(engine.decide_approval(&ada, blank).await), "reason_required", "a blank is no reason");
    let said = Answer { reason: Some("fine".to_owned()), ..allow(&asked) };
    let record = engine.decide_approval(&ada, said).await.unwrap();
    let by = record.resolution.clone().unwrap().token.unwrap();
    assert_eq!(by.credential.token_id(), Some(&token.token_id));
    assert_eq!(by.issuers, [who("user:local")]);
    assert_eq!(record.token.as_ref().unwrap().credential.token_id(), Some(&token.token_id));
}

/// Scopes, role and policy are intersected also where the policy speaks of roles.
#[tokio::test]
async fn rules_see_the_role_that_a_token_leaves() {
    let rules = "@id(\"owners_echo\") @reason(\"Only owners echo.\")\n\
        forbid (principal, action == Action::\"tool.execute\", resource) unless { principal in Role::\"owner\" };";
    let place = Place::new();
    let engine = place.engine_with("work", rules).await;
    engine.set_member(&owner(), who("user:otto"), WorkspaceRole::Owner).await.unwrap();
    for (role, state) in [("operator", CallState::Denied), ("owner", CallState::Succeeded)] {
        let scopes = ["tool.execute", "access.read", "policy.explain"];
        let otto = come(&engine, &issue(&engine, scoped("user:otto", role, &scopes)).await.1).unwrap();
        let ended = engine.propose(&otto, echo()).end.await.unwrap().unwrap();
        assert_eq!(ended.state, state, "{role}");
        let rights = engine.whoami(&otto).unwrap().rights;
        let echoes = rights.iter().find(|right| right.resource == "tool:palyra.echo").unwrap();
        assert_eq!(
            echoes.decision == RightDecision::Allow,
            state == CallState::Succeeded,
            "whoami says the same: {echoes:?}"
        );
        let (record, decision) = engine.explain(&otto, echo()).await.unwrap();
        assert_eq!(decision.decision.as_str() == "allow", state == CallState::Succeeded, "and so does explain");
        assert_eq!(record.origin.token.as_ref().unwrap().role.as_str(), role);
    }
    // What was decided is decided again from the journal, with the role as it was.
    let since = palyra_protocol::Timestamp::from_unix_ms(0);
    let file = PolicyFile { name: "test.cedar".to_owned(), bytes: rules.as_bytes().to_vec() };
    let mut news = engine.simulate_policy(&owner(), since, vec![file]).await.unwrap();
    let report = loop {
        if let SimulationNews::Done(report) = news.recv().await.unwrap() {
            break report.unwrap();
        }
    };
    assert_eq!((report.replayed, report.unchanged), (2, 2), "{report:?}");
}

/// A change of members is a change of what decides, and the journal says of which rules to which.
#[tokio::test]
async fn rules_after_a_change_of_members_are_in_the_journal() {
    let place = Place::new();
    let engine = place.engine().await;
    let before = engine.policy_hash();
    engine.set_member(&owner(), who("user:ada"), WorkspaceRole::Admin).await.unwrap();
    let after = engine.policy_hash();
    assert_ne!(before, after);
    let events = told(&engine).await;
    let event = events.lines().last().unwrap();
    assert!(event.contains(&format!("\"policy_before\":\"{before}\",\"policy_after\":\"{after}\"")), "{event}");
    issue(&engine, new_token("user:ada")).await;
    let events = told(&engine).await;
    assert!(!events.lines().last().unwrap().contains("policy_"), "tokens change no rules");
}

/// Somebody else's call and none at all look the same, at every door.
#[tokio::test]
async fn a_call_of_somebody_else_looks_like_none() {
    let place = Place::new();
    let engine = place.engine().await;
    for name in ["agent:a", "agent:b"] {
        engine.add_agent(&owner(), who(name), String::new()).await.unwrap();
    }
    let a = come(&engine, &issue(&engine, new_token("agent:a")).await.1).unwrap();
    let b = come(&engine, &issue(&engine, new_token("agent:b")).await.1).unwrap();
    let theirs = engine.propose(&a, echo()).end.await.unwrap().unwrap().call_id;
    let nobodys = palyra_protocol::CallId::mint();
    let told = |id: palyra_protocol::CallId| {
        let (engine, b) = (&engine, &b);
        async move {
            let answers = [
                engine.call(b, &id).await.map(drop),
                engine.follow(b, &id).await.map(drop),
                engine.cancel(b, &id).await.map(drop),
                engine.watch_call(b, &id).await.map(drop),
            ];
            answers.map(|answer| answer.unwrap_err().problem.message.replace(id.as_str(), "ID"))
        }
    };
    assert_eq!(told(theirs.clone()).await, told(nobodys).await);
    assert!(engine.call(&a, &theirs).await.is_ok());
}

//! What a token opens, and what it does not.

use super::{Place, code, come, issue, new_token, owner, scoped, told};
use crate::error::ErrorKind;
use crate::flow::propose::Proposal;
use palyra_access::{Feature, IssuedTokens};
use palyra_policy::PolicyAction;
use palyra_protocol::access::RightDecision;
use palyra_protocol::{CallState, PrincipalKind, WorkspaceRole};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn a_token_speaks_for_its_principal_and_is_kept_nowhere() {
    let place = Place::new();
    let engine = place.engine().await;
    engine.add_agent(&owner(), "agent:ci".parse().unwrap(), String::new()).await.unwrap();
    let (view, text) = issue(&engine, new_token("agent:ci")).await;
    assert!(text.starts_with(&view.prefix));
    let peer = come(&engine, &text).unwrap();
    assert_eq!(peer.principal().kind(), PrincipalKind::Agent);
    assert_eq!(engine.tokens(&owner()).unwrap()[0].last_used_at, Some(engine.clock().now()));
    engine.shut_down(Duration::ZERO).await;
    let secret = &text[view.prefix.len()..];
    assert!(!told(&engine).await.contains(secret), "the journal holds no secret");
    for entry in std::fs::read_dir(place.state()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!found, "no file holds the secret");
    }
    assert_eq!(place.engine().await.tokens(&owner()).unwrap()[0].last_used_at, Some(engine.clock().now()));
}

#[tokio::test]
async fn whoever_shows_no_secret_gets_one_answer() {
    let place = Place::new();
    let engine = place.engine().await;
    let (_, text) = issue(&engine, new_token("user:local")).await;
    let (other, _) = palyra_access::token::fresh(&palyra_protocol::TokenId::mint()).unwrap();
    let other = String::from_utf8(other.expose().to_vec()).unwrap();
    let (revoked, dead) = issue(&engine, new_token("user:local")).await;
    engine.revoke_token(&owner(), revoked.token_id.clone(), IssuedTokens::Withdrawn).await.unwrap();
    // A well-formed token with the id of one that exists and a secret of its own.
    let (forged, _) = palyra_access::token::fresh(&revoked.token_id).unwrap();
    let forged = String::from_utf8(forged.expose().to_vec()).unwrap();
    let mut answers = std::collections::BTreeSet::new();
    for bad in ["", "palyra_", "ghp_abcdef", &text[..80], &text.replace("palyra_", "palyro_"), &other, &forged] {
        let error = come(&engine, bad).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unauthenticated, "{bad}");
        answers.insert(format!("{:?}", error.problem));
    }
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!(code(come(&engine, &dead)), "token_revoked", "whoever holds the secret may know");
    engine.settle_access().await;
    let told = told(&engine).await;
    for reason in ["malformed", "unknown", "wrong_secret", "revoked"] {
        assert!(told.contains(&format!("\"{reason}\":")), "{reason}: {told}");
    }
}

#[tokio::test]
async fn expired_revoked_and_rotated_tokens_open_nothing() {
    let place = Place::new();
    let engine = place.engine().await;
    let (view, old) = issue(&engine, super::NewToken { life: Some(HOUR * 24), ..new_token("user:local") }).await;
    let (_, new) = engine.rotate_token(&owner(), view.token_id.clone(), HOUR, IssuedTokens::Withdrawn).await.unwrap();
    let new = String::from_utf8(new.expose().to_vec()).unwrap();
    assert!(come(&engine, &old).is_ok() && come(&engine, &new).is_ok(), "both hold for a while");
    place.later(HOUR - Duration::from_millis(1));
    assert!(come(&engine, &old).is_ok());
    place.later(Duration::from_millis(1));
    assert_eq!(code(come(&engine, &old)), "token_rotated");
    assert!(come(&engine, &new).is_ok());
    let (_, newest) =
        engine.rotate_token(&owner(), view.token_id.clone(), Duration::ZERO, IssuedTokens::Withdrawn).await.unwrap();
    let newest = String::from_utf8(newest.expose().to_vec()).unwrap();
    assert_eq!(code(come(&engine, &new)), "token_rotated", "no overlap, if none is wanted");
    assert_eq!(code(come(&engine, &old)), "unauthenticated", "the one before is forgotten");
    place.later(HOUR * 23);
    assert_eq!(code(come(&engine, &newest)), "token_expired");
    assert_eq!(
        code(engine.rotate_token(&owner(), view.token_id, HOUR, IssuedTokens::Withdrawn).await),
        "token_not_active"
    );
    let (view, text) = issue(&engine, new_token("user:local")).await;
    engine.revoke_token(&owner(), view.token_id.clone(), IssuedTokens::Withdrawn).await.unwrap();
    assert_eq!(code(come(&engine, &text)), "token_revoked");
    assert_eq!(
        code(engine.revoke_token(&owner(), view.token_id, IssuedTokens::Withdrawn).await),
        "token_already_revoked"
    );
}

#[tokio::test]
async fn a_token_of_another_workspace_is_refused() {
    let place = Place::new();
    let engine = place.engine().await;
    let (_, text) = issue(&engine, new_token("user:local")).await;
    assert!(come(&engine, &text).is_ok());
    drop(engine);
    let elsewhere = place.engine_with("other", "").await;
    assert_eq!(code(come(&elsewhere, &text)), "token_other_workspace");
    drop(elsewhere);
    assert!(come(&place.engine().await, &text).is_ok());
}

#[tokio::test]
async fn a_peer_that_is_in_loses_what_its_token_loses() {
    let place = Place::new();
    let engine = place.engine().await;
    engine.set_member(&owner(), "user:ana".parse().unwrap(), WorkspaceRole::Admin).await.unwrap();
    let new = scoped("user:ana", "admin", &["tool.list", "approval.list", "token.list"]);
    let (view, text) = issue(&engine, new).await;
    let peer = come(&engine, &text).unwrap();
    assert!(engine.may_watch_approvals(&peer).is_ok());
    engine.set_member(&owner(), "user:ana".parse().unwrap(), WorkspaceRole::Operator).await.unwrap();
    assert_eq!(code(engine.may_watch_approvals(&peer)), "role_insufficient", "a lower role holds at once");
    assert!(engine.tools(&peer).is_ok());
    engine.set_feature(&owner(), Feature::ApiTokens, false).await.unwrap();
    assert_eq!(code(engine.tools(&peer)), "tokens_closed");
    engine.set_feature(&owner(), Feature::ApiTokens, true).await.unwrap();
    assert!(engine.tools(&peer).is_ok());
    engine.revoke_token(&owner(), view.token_id, IssuedTokens::Withdrawn).await.unwrap();
    assert_eq!(code(engine.tools(&peer)), "token_revoked");
}

#[tokio::test]
async fn scopes_role_and_policy_are_intersected() {
    let place = Place::new();
    let rules = "@id(\"no_status\") @reason(\"Not for Ana.\")\n\
                 forbid (principal == User::\"ana\", action == Action::\"daemon.status\", resource);";
    let engine = place.engine_with("work", rules).await;
    engine.set_member(&owner(), "user:ana".parse().unwrap(), WorkspaceRole::Admin).await.unwrap();
    let new = scoped("user:ana", "operator", &["tool.list", "daemon.status", "tool.execute:palyra.echo"]);
    let peer = come(&engine, &issue(&engine, new).await.1).unwrap();
    assert!(engine.tools(&peer).is_ok());
    assert_eq!(code(engine.status(&peer)), "forbidden", "policy says no");
    assert_eq!(code(engine.tokens(&peer)), "role_insufficient");
    assert_eq!(code(engine.whoami(&peer)), "scope_missing");
    let propose = |tool: &str, input: &str| {
        let proposal = Proposal { tool: tool.to_owned(), input: input.into(), ..Proposal::default() };
        let call = engine.propose(&peer, proposal);
        async move { call.end.await.unwrap().unwrap() }
    };
    assert_eq!(propose("palyra.echo", "{\"text\":\"x\"}").await.state, CallState::Succeeded);
    let denied = propose("palyra.fs.list", "{}").await;
    assert_eq!(denied.state, CallState::Denied);
    assert_eq!(denied.outcome.unwrap().problem.clone().unwrap().code, "scope_missing");
}

#[tokio::test]
async fn whoami_and_explain_tell_the_same_truth_as_the_call() {
    let place = Place::new();
    let engine = place.engine().await;
    let scopes = ["access.read", "policy.explain", "tool.execute:palyra.echo", "tool.list"];
    let peer = come(&engine, &issue(&engine, scoped("user:local", "operator", &scopes)).await.1).unwrap();
    let me = engine.whoami(&peer).unwrap();
    let right = |action: &str, resource: &str| {
        me.rights.iter().find(|r| r.action == action && r.resource == resource).unwrap().decision
    };
    for (tool, input) in [("palyra.echo", "{\"text\":\"x\"}"), ("palyra.fs.list", "{}")] {
        let proposal = || Proposal { tool: tool.to_owned(), input: input.into(), ..Proposal::default() };
        let (_, explained) = engine.explain(&peer, proposal()).await.unwrap();
        let call = engine.propose(&peer, proposal()).end.await.unwrap().unwrap();
        let allowed = call.state == CallState::Succeeded;
        assert_eq!(explained.decision.as_str() == "allow", allowed, "{tool}");
        assert_eq!(right("tool.execute", &format!("tool:{tool}")) == RightDecision::Allow, allowed, "{tool}");
    }
    engine.settle_access().await;
    assert!(!told(&engine).await.contains("access.attempts"), "asking what one may do is no attempt to do it");
    assert_eq!(right("tool.list", "daemon") == RightDecision::Allow, engine.tools(&peer).is_ok());
    assert_eq!(right("token.list", "daemon") == RightDecision::Allow, engine.tokens(&peer).is_ok());
    assert_eq!(right("daemon.status", "daemon") == RightDecision::Allow, engine.status(&peer).is_ok());
    // Every action has its line, but the one that nobody does.
    for action in PolicyAction::ALL.iter().filter(|a| **a != PolicyAction::ApprovalWaive) {
        assert!(me.rights.iter().any(|r| r.action == action.as_str()), "{action}");
    }
}

#[tokio::test]
async fn a_rate_limit_holds_and_recovers() {
    let place = Place::new();
    let engine = place.engine().await;
    let new = super::NewToken { rate_per_minute: Some(5), ..new_token("user:local") };
    let (_, text) = issue(&engine, new).await;
    for _ in 0..5 {
        assert!(come(&engine, &text).is_ok());
    }
    let error = come(&engine, &text).unwrap_err();
    assert_eq!((error.kind, error.problem.code.as_str()), (ErrorKind::Exhausted, "rate_limited"));
    assert_eq!(error.retry_after, Some(Duration::from_secs(12)));
    place.later(Duration::from_secs(12));
    assert!(come(&engine, &text).is_ok());
    assert!(come(&engine, &text).is_err());
}

#[tokio::test]
async fn guessing_at_speed_is_slowed_counted_and_locks_nobody_out() {
    let place = Place::new();
    let engine = place.engine().await;
    let (_, text) = issue(&engine, new_token("user:local")).await;
    let before = engine.journal().head().borrow().size;
    let mut slowed = 0;
    for _ in 0..2000 {
        let error = come(&engine, "palyra_guess").unwrap_err();
        if error.problem.code == "too_many_attempts" {
            assert!(error.retry_after.is_some());
            slowed += 1;
        }
    }
    assert!(slowed > 1900, "{slowed}");
    assert!(come(&engine, &text).is_ok(), "the right token still opens from there");
    engine.settle_access().await;
    let events = engine.journal().head().borrow().size - before;
    assert!(events <= 3, "{events} events for 2000 guesses");
    let told = told(&engine).await;
    let counted: u64 = told
        .lines()
        .filter_map(|line| line.strip_prefix("access.attempts "))
        .map(|body| serde_json::from_str::<serde_json::Value>(body).unwrap()["refused"]["malformed"].as_u64().unwrap())
        .sum();
    assert_eq!(counted, 2000);
}

#[tokio::test]
async fn an_answer_needs_a_reason_where_the_feature_says_so() {
    let place = Place::new();
    let engine = place.engine().await;
    let features = engine.features(&owner()).unwrap();
    assert_eq!(features.len(), Feature::ALL.len());
    assert!(!engine.access().feature(Feature::ApprovalReasons));
    engine.set_feature(&owner(), Feature::ApprovalReasons, true).await.unwrap();
    assert!(engine.access().feature(Feature::ApprovalReasons));
    drop(engine);
    assert!(place.engine().await.access().feature(Feature::ApprovalReasons), "it survives a restart");
}

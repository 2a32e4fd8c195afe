//! How far somebody's hand reaches: not into another workspace, not past their own withdrawal, and not on through
//! tokens that they issued.

use super::{NewToken, Place, code, come, issue, new_token, owner, scoped, told};
use crate::access::VerifiedPeer;
use crate::engine::Engine;
use palyra_access::IssuedTokens;
use palyra_protocol::access::TokenView;
use palyra_protocol::{Principal, WorkspaceRole};
use std::sync::Arc;
use std::time::Duration;

const MANAGING: [&str; 6] = ["tool.list", "token.create", "token.list", "token.rotate", "token.revoke", "agent.manage"];

fn who(name: &str) -> Principal {
    name.parse().unwrap()
}

async fn add(engine: &Engine, people: &[(&str, WorkspaceRole)], agents: &[&str]) {
    for (name, role) in people {
        engine.set_member(&owner(), who(name), *role).await.unwrap();
    }
    for name in agents {
        engine.add_agent(&owner(), who(name), String::new()).await.unwrap();
    }
}

/// Issues a token with another one.
async fn passed_on(engine: &Engine, by: &VerifiedPeer, new: NewToken) -> (TokenView, String) {
    let (view, text) = engine.create_token(by, new).await.unwrap();
    (view, String::from_utf8(text.expose().to_vec()).unwrap())
}

#[tokio::test]
async fn an_admin_reaches_no_token_of_another_workspace() {
    let place = Place::new();
    let engine = place.engine().await;
    add(&engine, &[("user:otto", WorkspaceRole::Owner), ("user:ada", WorkspaceRole::Admin)], &["agent:deployer"]).await;
    let mut theirs = Vec::new();
    for (name, role) in [("agent:deployer", "operator"), ("user:otto", "owner"), ("user:ada", "admin")] {
        theirs.push(issue(&engine, scoped(name, role, &["tool.list"])).await);
    }
    drop(engine);

    let engine = place.engine_with("other", "").await;
    add(&engine, &[("user:eve", WorkspaceRole::Admin), ("user:mallory", WorkspaceRole::Owner)], &[]).await;
    let eve = come(&engine, &issue(&engine, scoped("user:eve", "admin", &MANAGING)).await.1).unwrap();
    let seen = engine.tokens(&eve).unwrap();
    assert!(seen.iter().all(|token| token.principal == who("user:eve")), "{seen:?}");
    for (token, _) in &theirs {
        let id = || token.token_id.clone();
        let rotated = engine.rotate_token(&eve, id(), Duration::ZERO, IssuedTokens::Withdrawn).await;
        assert_eq!(code(rotated), "not_found", "{token:?}");
        assert_eq!(code(engine.revoke_token(&eve, id(), IssuedTokens::Withdrawn).await), "not_found", "{token:?}");
        let by_owner = engine.revoke_token(&owner(), id(), IssuedTokens::Withdrawn).await;
        assert_eq!(code(by_owner), "not_found", "not even an owner of both, from here");
    }
    // What workspaces share is for those who own all that are concerned.
    assert_eq!(code(engine.remove_agent(&eve, who("agent:deployer")).await), "more_than_held");
    let scopes = ["member.manage", "feature.set", "agent.manage"];
    let mallory = come(&engine, &issue(&engine, scoped("user:mallory", "owner", &scopes)).await.1).unwrap();
    assert_eq!(code(engine.remove_agent(&mallory, who("agent:deployer")).await), "more_than_held");
    let off = engine.set_feature(&mallory, palyra_access::Feature::ApiTokens, false).await;
    assert_eq!(code(off), "more_than_held");
    let group = engine.set_group(&mallory, "ops".parse().unwrap(), vec!["user:mallory".parse().unwrap()], vec![]).await;
    assert_eq!(code(group), "more_than_held");
    drop((eve, mallory, engine));

    let engine = place.engine().await;
    for (_, text) in &theirs {
        come(&engine, text).unwrap();
    }
    engine.remove_agent(&owner(), who("agent:deployer")).await.unwrap();
    assert_eq!(code(come(&engine, &theirs[0].1)), "token_revoked");
}

#[tokio::test]
async fn an_owner_of_both_removes_an_agent_with_all_its_tokens() {
    let place = Place::new();
    let engine = place.engine().await;
    add(&engine, &[], &["agent:deployer"]).await;
    let (_, text) = issue(&engine, new_token("agent:deployer")).await;
    drop(engine);
    let engine = place.engine_with("other", "").await;
    engine.remove_agent(&owner(), who("agent:deployer")).await.unwrap();
    drop(engine);
    assert_eq!(code(come(&place.engine().await, &text)), "token_revoked");
}

/// The registry's lock is held, a withdrawal waits for it, and behind that a change by the token that is withdrawn.
#[tokio::test]
async fn whoever_was_withdrawn_while_they_waited_changes_nothing() {
    let place = Place::new();
    let engine = place.engine().await;
    add(&engine, &[("user:ada", WorkspaceRole::Admin)], &["agent:ci"]).await;
    let (token, text) = issue(&engine, scoped("user:ada", "admin", &MANAGING)).await;
    let (ada, local) = (come(&engine, &text).unwrap(), owner());
    let held = Arc::clone(&engine.access().writing).lock_owned().await;
    // Each is asked in this order, and gets as far as the lock.
    let (revoked, created, added, ()) = tokio::join!(
        biased;
        engine.revoke_token(&local, token.token_id.clone(), IssuedTokens::Withdrawn),
        engine.create_token(&ada, scoped("user:ada", "admin", &["tool.list"])),
        engine.add_agent(&ada, who("agent:late"), String::new()),
        async { drop(held) },
    );
    revoked.unwrap();
    assert_eq!(code(created), "token_revoked");
    assert_eq!(code(added), "token_revoked");
    assert_eq!(engine.tokens(&owner()).unwrap().len(), 1);
    let told = told(&engine).await;
    // Refused attempts are recorded in sums, whenever those are written.
    let changes: Vec<_> = told.lines().filter(|line| line.starts_with("access.changed ")).collect();
    assert!(changes.last().unwrap().contains("token.revoked"), "nothing changed after it: {told}");
}

#[tokio::test]
async fn the_brake_and_a_lower_role_reach_whoever_waits_as_well() {
    let place = Place::new();
    let engine = place.engine().await;
    add(&engine, &[("user:ada", WorkspaceRole::Admin)], &[]).await;
    let ada = come(&engine, &issue(&engine, scoped("user:ada", "admin", &MANAGING)).await.1).unwrap();
    let local = owner();
    let held = Arc::clone(&engine.access().writing).lock_owned().await;
    let (lowered, created, ()) = tokio::join!(
        biased;
        engine.set_member(&local, who("user:ada"), WorkspaceRole::Operator),
        engine.create_token(&ada, scoped("user:ada", "operator", &["tool.list"])),
        async { drop(held) },
    );
    lowered.unwrap();
    assert_eq!(code(created), "role_insufficient");
    engine.set_member(&owner(), who("user:ada"), WorkspaceRole::Admin).await.unwrap();
    let held = Arc::clone(&engine.access().writing).lock_owned().await;
    let (off, created, ()) = tokio::join!(
        biased;
        engine.set_feature(&local, palyra_access::Feature::ApiTokens, false),
        engine.create_token(&ada, scoped("user:ada", "admin", &["tool.list"])),
        async { drop(held) },
    );
    off.unwrap();
    assert_eq!(code(created), "tokens_closed");
}

/// A leaked token issues a copy of itself, that one another, and takes over a third; all go with it.
#[tokio::test]
async fn what_a_token_issued_goes_with_it() {
    let place = Place::new();
    let engine = place.engine().await;
    add(&engine, &[("user:ada", WorkspaceRole::Admin)], &["agent:ci", "agent:other"]).await;
    let (leaked, text) = issue(&engine, scoped("user:ada", "admin", &MANAGING)).await;
    let thief = come(&engine, &text).unwrap();
    let (child, child_text) = passed_on(&engine, &thief, scoped("user:ada", "admin", &MANAGING)).await;
    assert_eq!((child.issued_with.as_ref(), child.by.to_string()), (Some(&leaked.token_id), "user:ada".to_owned()));
    assert_eq!(child.issuers, [who("user:ada"), who("user:local")], "and whoever issued the token it was issued with");
    let childs = come(&engine, &child_text).unwrap();
    // A child that replaces its own secret does not become somebody else's.
    let own = engine.rotate_token(&childs, child.token_id.clone(), Duration::ZERO, IssuedTokens::Kept).await.unwrap();
    assert_eq!(own.0.token.issued_with.as_ref(), Some(&leaked.token_id));
    let childs = come(&engine, std::str::from_utf8(own.1.expose()).unwrap()).unwrap();
    let (_, grandchild) = passed_on(&engine, &childs, scoped("agent:ci", "operator", &["tool.list"])).await;
    let (taken, taken_text) = issue(&engine, scoped("agent:other", "operator", &["tool.list"])).await;
    let (_, untouched) = issue(&engine, scoped("agent:other", "operator", &["tool.list"])).await;
    let hour = Duration::from_secs(3600);
    engine.rotate_token(&thief, taken.token_id.clone(), hour, IssuedTokens::Withdrawn).await.unwrap();

    let gone = engine.revoke_token(&owner(), leaked.token_id, IssuedTokens::Withdrawn).await.unwrap();
    assert_eq!(gone.issued_revoked.len(), 3, "{gone:?}");
    for text in [&text, &child_text, &grandchild, &taken_text] {
        let refused = code(come(&engine, text));
        assert!(["token_revoked", "token_rotated"].contains(&refused.as_str()), "{refused}");
    }
    come(&engine, &untouched).unwrap();
    let told = told(&engine).await;
    let event = told.lines().last().unwrap();
    assert!(gone.issued_revoked.iter().all(|id| event.contains(id.as_str())), "{event}");
}

#[tokio::test]
async fn what_was_issued_stays_where_somebody_says_so_or_takes_it_over() {
    let place = Place::new();
    let engine = place.engine().await;
    add(&engine, &[("user:ada", WorkspaceRole::Admin)], &["agent:ci"]).await;
    let (first, text) = issue(&engine, scoped("user:ada", "admin", &MANAGING)).await;
    let ada = come(&engine, &text).unwrap();
    let (_, kept) = passed_on(&engine, &ada, scoped("agent:ci", "operator", &["tool.list"])).await;
    let rotate = |overlap, issued| engine.rotate_token(&ada, first.token_id.clone(), overlap, issued);
    // The old secret holds on: nothing was taken from anybody.
    let (changed, _) = rotate(Duration::from_secs(60), IssuedTokens::Withdrawn).await.unwrap();
    assert!(changed.issued_revoked.is_empty());
    let (taken_over, text) = passed_on(&engine, &ada, scoped("agent:ci", "operator", &["tool.list"])).await;
    let at_once = Duration::ZERO;
    let by_owner = engine.rotate_token(&owner(), taken_over.token_id, at_once, IssuedTokens::Withdrawn).await.unwrap();
    assert_eq!((by_owner.0.token.issued_with, code(come(&engine, &text))), (None, "token_rotated".to_owned()));
    engine.revoke_token(&owner(), first.token_id.clone(), IssuedTokens::Kept).await.unwrap();
    come(&engine, &kept).unwrap();
    come(&engine, std::str::from_utf8(by_owner.1.expose()).unwrap()).unwrap();

    // Without an overlap the holder is shut out, and so is what they issued.
    let (second, text) = issue(&engine, scoped("user:ada", "admin", &MANAGING)).await;
    let ada = come(&engine, &text).unwrap();
    let (_, issued) = passed_on(&engine, &ada, scoped("agent:ci", "operator", &["tool.list"])).await;
    let id = second.token_id.clone();
    let (changed, _) = engine.rotate_token(&owner(), id, at_once, IssuedTokens::Withdrawn).await.unwrap();
    assert_eq!((changed.issued_revoked.len(), code(come(&engine, &issued))), (1, "token_revoked".to_owned()));
    // Whoever leaves takes along what they issued.
    let (_, third) = issue(&engine, scoped("user:ada", "admin", &MANAGING)).await;
    let ada = come(&engine, &third).unwrap();
    let (_, issued) = passed_on(&engine, &ada, scoped("agent:ci", "operator", &["tool.list"])).await;
    engine.remove_member(&owner(), who("user:ada")).await.unwrap();
    assert_eq!(code(come(&engine, &issued)), "token_revoked");
}

#[tokio::test]
async fn a_rate_is_passed_on_and_never_raised() {
    let place = Place::new();
    let engine = place.engine().await;
    add(&engine, &[("user:ada", WorkspaceRole::Admin)], &["agent:ci"]).await;
    let slow = NewToken { rate_per_minute: Some(5), ..scoped("user:ada", "admin", &MANAGING) };
    let ada = come(&engine, &issue(&engine, slow).await.1).unwrap();
    let wanted = |rate| NewToken { rate_per_minute: rate, ..scoped("agent:ci", "operator", &["tool.list"]) };
    assert_eq!(code(engine.create_token(&ada, wanted(Some(6))).await), "more_than_held");
    assert_eq!(engine.create_token(&ada, wanted(Some(5))).await.unwrap().0.rate_per_minute, 5);
    assert_eq!(engine.create_token(&ada, wanted(None)).await.unwrap().0.rate_per_minute, 5, "as much as it may");
    let (fast, _) = issue(&engine, wanted(Some(600))).await;
    let rotated = engine.rotate_token(&ada, fast.token_id, Duration::ZERO, IssuedTokens::Withdrawn).await;
    assert_eq!(code(rotated), "more_than_held");
}

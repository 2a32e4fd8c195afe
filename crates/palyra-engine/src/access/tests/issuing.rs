//! Nobody gives more than they hold, and somebody always owns.

use super::{NewToken, Place, code, come, issue, new_token, owner, scoped, told};
use crate::access::VerifiedPeer;
use crate::engine::Engine;
use palyra_access::{IssuedTokens, REGISTRY_FILE};
use palyra_protocol::access::GroupMember;
use palyra_protocol::{Principal, WorkspaceRole};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

fn who(name: &str) -> Principal {
    name.parse().unwrap()
}

async fn with_people() -> (Place, Engine) {
    let place = Place::new();
    let engine = place.engine().await;
    for (name, role) in [
        ("user:olga", WorkspaceRole::Owner),
        ("user:ana", WorkspaceRole::Admin),
        ("user:ada", WorkspaceRole::Admin),
        ("user:otto", WorkspaceRole::Operator),
    ] {
        engine.set_member(&owner(), who(name), role).await.unwrap();
    }
    engine.add_agent(&owner(), who("agent:ci"), "the build".to_owned()).await.unwrap();
    (place, engine)
}

const ALL_OF_ADMIN: [&str; 12] = [
    "tool.list",
    "tool.execute",
    "access.read",
    "token.create",
    "token.list",
    "token.rotate",
    "token.revoke",
    "member.list",
    "member.manage",
    "agent.manage",
    "approval.decide",
    "journal.read",
];

async fn admin(engine: &Engine) -> VerifiedPeer {
    come(engine, &issue(engine, scoped("user:ana", "admin", &ALL_OF_ADMIN)).await.1).unwrap()
}

#[tokio::test]
async fn nobody_issues_more_than_they_hold() {
    let (_place, engine) = with_people().await;
    let ana = admin(&engine).await;
    for (new, expect) in [
        (scoped("agent:ci", "operator", &["tool.execute"]), None),
        (scoped("agent:ci", "operator", &["tool.execute:palyra.echo"]), None),
        (scoped("user:otto", "operator", &["tool.list"]), None),
        (scoped("user:ana", "admin", &["journal.read"]), None),
        // A scope that the issuer's own token lacks, though the role has it.
        (scoped("agent:ci", "operator", &["daemon.status"]), Some("more_than_held")),
        // A role above the issuer's, or above the principal's.
        (scoped("user:olga", "owner", &["tool.list"]), Some("more_than_held")),
        (scoped("user:otto", "admin", &["tool.list"]), Some("role_beyond_principal")),
        (scoped("agent:ci", "admin", &["tool.list"]), Some("role_beyond_principal")),
        // An equal's or a better's voice.
        (scoped("user:ada", "operator", &["tool.list"]), Some("more_than_held")),
        (scoped("user:olga", "operator", &["tool.list"]), Some("more_than_held")),
        (scoped("user:local", "operator", &["tool.list"]), Some("more_than_held")),
        // What programs never hold.
        (scoped("agent:ci", "operator", &["approval.decide"]), Some("agents_never_hold")),
        (scoped("agent:ci", "operator", &["token.create"]), Some("agents_never_hold")),
        // What the role does not have.
        (scoped("user:otto", "operator", &["journal.read"]), Some("scope_beyond_role")),
        (scoped("user:ana", "admin", &["feature.set"]), Some("scope_beyond_role")),
        (scoped("agent:ci", "operator", &["no.such"]), Some("unknown_scope")),
        (scoped("agent:nobody", "operator", &["tool.list"]), Some("not_found")),
        // A life longer than the issuer's own.
        (
            NewToken { life: Some(Duration::from_secs(91 * 86_400)), ..scoped("agent:ci", "operator", &["tool.list"]) },
            Some("more_than_held"),
        ),
        (
            NewToken {
                life: Some(Duration::from_secs(367 * 86_400)),
                ..scoped("agent:ci", "operator", &["tool.list"])
            },
            Some("expiry"),
        ),
        (NewToken { rate_per_minute: Some(1_000_000), ..scoped("agent:ci", "operator", &["tool.list"]) }, Some("rate")),
        (NewToken { label: "x".repeat(129), ..scoped("agent:ci", "operator", &["tool.list"]) }, Some("label")),
        (NewToken { label: "a\u{1b}b".to_owned(), ..scoped("agent:ci", "operator", &["tool.list"]) }, Some("label")),
    ] {
        let shown = format!("{new:?}");
        let issued = engine.create_token(&ana, new).await;
        assert_eq!(issued.err().map(|e| e.problem.code).as_deref(), expect, "{shown}");
    }
}

#[tokio::test]
async fn rotating_and_revoking_go_no_further_than_issuing() {
    let (_place, engine) = with_people().await;
    let ana = admin(&engine).await;
    let (olgas, _) = issue(&engine, scoped("user:olga", "owner", &["tool.list"])).await;
    let (adas, _) = issue(&engine, scoped("user:ada", "admin", &["tool.list"])).await;
    let (bots, text) = issue(&engine, scoped("agent:ci", "operator", &["tool.list"])).await;
    let (wide, _) = issue(&engine, scoped("agent:ci", "operator", &["daemon.status"])).await;
    let hour = Duration::from_secs(3600);
    assert_eq!(
        code(engine.rotate_token(&ana, olgas.token_id.clone(), hour, IssuedTokens::Withdrawn).await),
        "more_than_held"
    );
    assert_eq!(code(engine.rotate_token(&ana, adas.token_id, hour, IssuedTokens::Withdrawn).await), "more_than_held");
    assert_eq!(code(engine.rotate_token(&ana, wide.token_id, hour, IssuedTokens::Withdrawn).await), "more_than_held");
    assert!(engine.rotate_token(&ana, bots.token_id.clone(), hour, IssuedTokens::Withdrawn).await.is_ok());
    assert_eq!(
        code(engine.rotate_token(&ana, bots.token_id.clone(), hour * 200, IssuedTokens::Withdrawn).await),
        "overlap"
    );
    assert_eq!(code(engine.revoke_token(&ana, olgas.token_id, IssuedTokens::Withdrawn).await), "more_than_held");
    assert!(come(&engine, &text).is_ok());
    assert!(engine.revoke_token(&ana, bots.token_id, IssuedTokens::Withdrawn).await.is_ok());
    assert_eq!(code(come(&engine, &text)), "token_revoked");
}

#[tokio::test]
async fn nobody_rises_and_the_last_owner_stays() {
    let (_place, engine) = with_people().await;
    let ana = admin(&engine).await;
    for (name, role) in [("user:ana", WorkspaceRole::Owner), ("user:new", WorkspaceRole::Owner)] {
        assert_eq!(code(engine.set_member(&ana, who(name), role).await), "more_than_held", "{name}");
    }
    assert_eq!(code(engine.set_member(&ana, who("user:olga"), WorkspaceRole::Operator).await), "more_than_held");
    assert_eq!(code(engine.remove_member(&ana, who("user:olga")).await), "more_than_held");
    assert!(engine.set_member(&ana, who("user:new"), WorkspaceRole::Admin).await.is_ok());
    assert_eq!(code(engine.set_member(&ana, who("agent:ci"), WorkspaceRole::Operator).await), "not_a_person");
    let group = || "approvers".parse().unwrap();
    let me = || vec![GroupMember::Principal(who("user:ana"))];
    assert_eq!(code(engine.set_group(&ana, group(), me(), vec![]).await), "more_than_held", "groups are the owners'");
    // Two owners: the other one may go, the one who runs the daemon stays.
    assert_eq!(code(engine.remove_member(&owner(), who("user:local")).await), "local_owner_stays");
    assert!(engine.remove_member(&owner(), who("user:olga")).await.is_ok());
    assert_eq!(code(engine.remove_member(&owner(), who("user:local")).await), "last_owner");
    assert_eq!(code(engine.set_member(&owner(), who("user:local"), WorkspaceRole::Admin).await), "last_owner");
    assert_eq!(code(engine.remove_member(&owner(), who("user:nobody")).await), "not_found");
}

#[tokio::test]
async fn whoever_leaves_takes_their_tokens_with_them() {
    let (_place, engine) = with_people().await;
    let (_, anas) = issue(&engine, scoped("user:ana", "admin", &["tool.list"])).await;
    let (_, bots) = issue(&engine, new_token("agent:ci")).await;
    let group = || "builders".parse().unwrap();
    engine.set_group(&owner(), group(), vec!["agent:ci".parse().unwrap()], vec![]).await.unwrap();
    engine.remove_member(&owner(), who("user:ana")).await.unwrap();
    engine.remove_agent(&owner(), who("agent:ci")).await.unwrap();
    assert_eq!(code(come(&engine, &anas)), "token_revoked");
    assert_eq!(code(come(&engine, &bots)), "token_revoked");
    assert!(engine.groups(&owner()).unwrap()[0].members.is_empty(), "the name's next holder inherits nothing");
    // Coming back does not bring the tokens back.
    engine.set_member(&owner(), who("user:ana"), WorkspaceRole::Admin).await.unwrap();
    assert_eq!(code(come(&engine, &anas)), "token_revoked");
}

#[tokio::test]
async fn groups_reach_the_rules_at_once_and_never_hold_themselves() {
    let rules = "@id(\"ops_seal\") @reason(\"Ops seal the journal.\")\n\
                 permit (principal in Group::\"ops\", action == Action::\"journal.checkpoint\", resource);";
    let place = Place::new();
    let engine = place.engine().await;
    let set = |name: &str, members: &[&str]| {
        let members = members.iter().map(|m| m.parse().unwrap()).collect();
        let (engine, name) = (engine.clone(), name.parse().unwrap());
        async move { engine.set_group(&owner(), name, members, vec![]).await }
    };
    set("ops", &[]).await.unwrap();
    drop(engine);
    let engine = place.engine_with("work", rules).await;
    let set = |name: &str, members: &[&str]| {
        let members = members.iter().map(|m| m.parse().unwrap()).collect();
        let (engine, name) = (engine.clone(), name.parse().unwrap());
        async move { engine.set_group(&owner(), name, members, vec![]).await }
    };
    let seal = |engine: &Engine| {
        let request = palyra_policy::PolicyRequest {
            principal: who("user:ana"),
            action: palyra_policy::PolicyAction::JournalCheckpoint,
            resource: palyra_policy::PolicyResource::Journal,
        };
        let context = palyra_policy::PolicyRequestContext::new(super::channel());
        engine.policy().evaluate_with_context(&request, &context).decision == palyra_policy::PolicyDecision::Allow
    };
    assert!(!seal(&engine));
    let before = engine.policy_hash();
    set("night", &["user:ana"]).await.unwrap();
    set("ops", &["group:night"]).await.unwrap();
    assert!(seal(&engine), "through a group in a group, at once");
    assert_ne!(engine.policy_hash(), before);
    for (name, member) in [("night", "group:ops"), ("night", "group:night"), ("ops", "group:nowhere")] {
        assert_eq!(code(set(name, &[member]).await), "registry_flaw", "{name} {member}");
    }
    assert_eq!(code(set("tool_callers", &["user:ana"]).await), "registry_flaw", "the configuration's own");
    let refused = engine.remove_group(&owner(), "night".parse().unwrap()).await;
    assert_eq!(code(refused), "group_in_use", "another group holds it");
    engine.set_group(&owner(), "ops".parse().unwrap(), vec![], vec!["group:night".parse().unwrap()]).await.unwrap();
    assert_eq!(
        code(engine.remove_group(&owner(), "ops".parse().unwrap()).await),
        "group_in_use",
        "a rule speaks of it"
    );
    assert!(!seal(&engine));
}

#[tokio::test]
async fn every_change_is_journalled_and_the_file_is_private() {
    let (place, engine) = with_people().await;
    let mode = std::fs::metadata(place.state().join(REGISTRY_FILE)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let (view, _) = issue(&engine, new_token("agent:ci")).await;
    engine.rotate_token(&owner(), view.token_id.clone(), Duration::ZERO, IssuedTokens::Withdrawn).await.unwrap();
    engine.revoke_token(&owner(), view.token_id, IssuedTokens::Withdrawn).await.unwrap();
    let told = told(&engine).await;
    for change in ["member.set", "agent.added", "token.created", "token.rotated", "token.revoked"] {
        assert!(told.contains(&format!("\"change\":\"{change}\"")), "{change}");
    }
    let hash = palyra_protocol::Digest::of(&std::fs::read(place.registry()).unwrap()).to_string();
    assert!(told.lines().last().unwrap().contains(&hash), "the newest change names the file as it is");
}

#[tokio::test]
async fn changes_at_once_are_made_one_after_the_other() {
    let (place, engine) = with_people().await;
    let mut waiting = Vec::new();
    for n in 0..20 {
        let engine = engine.clone();
        waiting.push(tokio::spawn(async move {
            engine.set_member(&owner(), who(&format!("user:p{n}")), WorkspaceRole::Operator).await.unwrap();
        }));
    }
    for one in waiting {
        one.await.unwrap();
    }
    assert_eq!(engine.members(&owner()).unwrap().len(), 25);
    drop(engine);
    assert_eq!(place.engine().await.members(&owner()).unwrap().len(), 25);
}

//! The registry's document: what is accepted, and everything that is not.

use super::{RegistryDocument, RegistryFlaw};
use crate::{Edit, Edited, Feature, IssuedTokens, NewToken, Registry, TokenRefusal};
use palyra_protocol::access::WorkspaceRecord;
use palyra_protocol::{Digest, JournalId, Principal, SystemClock, WorkspaceId, WorkspaceRole};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn registry() -> Registry {
    let nowhere = Path::new("/nonexistent");
    Registry::open(nowhere, None, Path::new("/work"), &JournalId::mint(), Arc::new(SystemClock))
}

/// Makes a change as the local owner and puts it in force.
fn change<T>(registry: &Registry, edit: impl FnOnce(Edit<'_>) -> Edited<T>) -> T {
    let home = registry.home().workspace_id.clone();
    let draft = registry.draft(&home, Principal::local_owner(), None, edit).unwrap();
    let mut document = draft.document;
    let bytes = document.sealed(0).unwrap();
    registry.install(document, Digest::of(&bytes));
    draft.told
}

fn new_token(principal: &str, role: &str, scopes: &[&str]) -> NewToken {
    NewToken {
        principal: principal.parse().unwrap(),
        label: String::new(),
        role: Some(role.parse().unwrap()),
        scopes: scopes.iter().map(|scope| scope.parse().unwrap()).collect(),
        life: None,
        rate_per_minute: None,
    }
}

fn written(registry: &Registry) -> Value {
    serde_json::from_slice(&registry.state().document().bytes().unwrap()).unwrap()
}

/// A document with something of everything, as the daemon writes it.
fn whole() -> Value {
    let registry = registry();
    change(&registry, |edit| edit.set_member("user:ana".parse().unwrap(), WorkspaceRole::Admin));
    change(&registry, |edit| edit.add_agent("agent:ci".parse().unwrap(), "the build".to_owned()));
    for (name, member) in [("inner", "user:ana"), ("outer", "group:inner")] {
        change(&registry, |edit| edit.set_group(name.parse().unwrap(), vec![member.parse().unwrap()], vec![]));
    }
    change(&registry, |edit| edit.set_feature(Feature::ApprovalReasons, true));
    change(&registry, |edit| edit.create_token(new_token("agent:ci", "operator", &[])));
    change(&registry, |edit| edit.create_token(new_token("user:ana", "admin", &["journal.read"])));
    written(&registry)
}

/// What the refusal says, and an edit that earns it.
type Tampering = (&'static str, Box<dyn Fn(&mut Value)>);

fn parse(document: &Value) -> Result<RegistryDocument, RegistryFlaw> {
    RegistryDocument::parse(document.to_string().as_bytes())
}

#[test]
fn what_was_written_is_read_back() {
    let document = whole();
    let read = parse(&document).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&read.bytes().unwrap()).unwrap(), document);
    assert_eq!(read.revision, 7);
}

#[test]
fn edits_by_hand_that_make_no_sense_are_refused() {
    let document = whole();
    let other = "ws_01ARZ3NDEKTSV4RRFFQ69G5FAV";
    let edits: Vec<Tampering> = vec![
        ("schema 2", Box::new(|d| d["schema"] = json!(2))),
        ("cannot be read", Box::new(|d| d["schema"] = json!("1"))),
        ("cannot be read", Box::new(|d| d["revision"] = json!(-1))),
        ("unknown field", Box::new(|d| d["extra"] = json!(1))),
        ("unknown field", Box::new(|d| d["tokens"][0]["secret"] = json!("x"))),
        ("missing field", Box::new(|d| drop(d.as_object_mut().unwrap().remove("members")))),
        ("cannot be read", Box::new(|d| d["members"] = json!({}))),
        ("cannot be read", Box::new(|d| d["members"][0]["role"] = json!("root"))),
        ("has no owner", Box::new(|d| d["members"][0]["role"] = json!("admin"))),
        (
            "twice",
            Box::new(|d| {
                let m = d["members"][0].clone();
                d["members"].as_array_mut().unwrap().push(m);
            }),
        ),
        ("does not exist", Box::new(move |d| d["members"][1]["workspace"] = json!(other))),
        ("only people", Box::new(|d| d["members"][1]["principal"] = json!("agent:ci"))),
        (
            "twice",
            Box::new(|d| {
                let a = d["agents"][0].clone();
                d["agents"].as_array_mut().unwrap().push(a);
            }),
        ),
        ("is none", Box::new(|d| d["agents"][0]["principal"] = json!("user:ana"))),
        ("hold itself", Box::new(|d| d["groups"][0]["members"] = json!(["group:outer"]))),
        ("hold itself", Box::new(|d| d["groups"][0]["members"] = json!(["group:inner"]))),
        ("which is none", Box::new(|d| d["groups"][0]["members"] = json!(["group:gone"]))),
        ("twice", Box::new(|d| d["groups"][1]["name"] = json!("inner"))),
        ("configuration's", Box::new(|d| d["groups"][1]["name"] = json!("tool_callers"))),
        ("no feature", Box::new(|d| d["features"][0]["name"] = json!("disable_journal"))),
        (
            "twice",
            Box::new(|d| {
                let t = d["tokens"][0].clone();
                d["tokens"].as_array_mut().unwrap().push(t);
            }),
        ),
        ("hash", Box::new(|d| d["tokens"][1]["token_hash_sha256"] = d["tokens"][0]["token_hash_sha256"].clone())),
        ("cannot be read", Box::new(|d| d["tokens"][0]["token_hash_sha256"] = json!("ABC"))),
        ("who is not here", Box::new(|d| d["tokens"][0]["principal"] = json!("agent:gone"))),
        ("does not exist", Box::new(move |d| d["tokens"][0]["workspace"] = json!(other))),
        ("let a program", Box::new(|d| d["tokens"][0]["scopes"] = json!(["approval.decide"]))),
        ("let a program be owner", Box::new(|d| d["tokens"][0]["role"] = json!("owner"))),
        ("unknown scope", Box::new(|d| d["tokens"][0]["scopes"] = json!(["tool.everything"]))),
        ("no scopes", Box::new(|d| d["tokens"][0]["scopes"] = json!([]))),
        ("longer than", Box::new(|d| d["tokens"][0]["expires_at"] = json!(9_000_000_000_000_u64))),
        ("rate", Box::new(|d| d["tokens"][0]["rate_per_minute"] = json!(0))),
        ("control characters", Box::new(|d| d["tokens"][0]["label"] = json!("a\u{7}"))),
    ];
    for (said, edit) in edits {
        let mut edited = document.clone();
        edit(&mut edited);
        let flaw = parse(&edited).unwrap_err().to_string();
        assert!(flaw.contains(said), "expected `{said}`: {flaw}");
    }
}

#[test]
fn agents_hold_no_approval_rights_whatever_the_file_says() {
    let document = whole();
    let mut actions = 0;
    for action in palyra_protocol::PolicyAction::ALL {
        let mut edited = document.clone();
        edited["tokens"][0]["scopes"] = json!([action.as_str()]);
        let held = crate::rights::kind_may_hold(palyra_protocol::PrincipalKind::Agent, *action);
        assert_eq!(parse(&edited).is_ok(), held, "{action}");
        actions += usize::from(!held);
    }
    assert!(actions > 15 && parse(&document).is_ok());
}

#[test]
fn a_long_chain_of_groups_is_no_trouble_and_a_ring_is_found() {
    let mut document = whole();
    let ring = |n: usize, next: usize| json!({ "name": format!("g{n}"), "members": [format!("group:g{next}")] });
    let mut chain: Vec<_> = (0..9999).map(|n| ring(n, n + 1)).collect();
    chain.push(json!({ "name": "g9999", "members": ["user:ana"] }));
    document["groups"] = Value::Array(chain);
    assert!(parse(&document).is_ok());
    document["groups"][9999]["members"] = json!(["group:g0"]);
    assert!(parse(&document).unwrap_err().to_string().contains("hold itself"));
}

#[test]
fn a_registry_cut_anywhere_is_refused() {
    let document = whole();
    let text = serde_json::to_vec_pretty(&document).unwrap();
    for end in 0..text.len() {
        assert!(RegistryDocument::parse(&text[..end]).is_err(), "cut at {end}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        prop_assert!(RegistryDocument::parse(&bytes).is_err());
    }

    #[test]
    fn any_json_is_read_or_refused(schema in 0_u32..3, key in "[a-z]{1,9}", number in any::<i64>(), depth in 0_usize..200) {
        let deep = (0..depth).fold(json!(number), |inner, _| json!([inner]));
        let document = json!({ "schema": schema, key: deep, "tokens": [number] });
        prop_assert!(parse(&document).is_err());
    }
}

/// A registry of a version that did not keep who issued what.
#[test]
fn a_record_without_its_issuers_names_whoever_issued_it() {
    let registry = registry();
    let (view, _) = change(&registry, |edit| edit.create_token(new_token("user:local", "operator", &[])));
    let overlap = Duration::from_secs(60);
    change(&registry, |edit| edit.rotate_token(&view.token_id, overlap, IssuedTokens::Kept));
    let mut document = written(&registry);
    let token = document["tokens"][0].as_object_mut().unwrap();
    token.remove("issuers").unwrap();
    token["replaced"].as_object_mut().unwrap().remove("issuers").unwrap();
    let read = RegistryDocument::parse(document.to_string().as_bytes()).unwrap();
    let local = Principal::local_owner();
    assert_eq!((read.tokens[0].issuers(), read.tokens[0].replaced_issuers()), (&[local.clone()][..], &[local][..]));
}

#[test]
fn a_workspace_that_is_removed_takes_its_tokens_along() {
    let registry = registry();
    let journal = JournalId::mint();
    let add = |edit: Edit<'_>| edit.add_workspace(&journal, "/second".to_owned());
    let second = change(&registry, add).workspace_id;
    let home = registry.home().workspace_id.clone();
    let again = registry.draft(&home, Principal::local_owner(), None, add).unwrap_err();
    assert_eq!(again.code(), "workspace_exists");
    let within = |workspace: &WorkspaceId, edit: &dyn Fn(Edit<'_>) -> Edited<WorkspaceRecord>| {
        let mut document = registry.draft(workspace, Principal::local_owner(), None, edit).unwrap().document;
        let bytes = document.sealed(0).unwrap();
        registry.install(document, Digest::of(&bytes));
    };
    let token = new_token("user:local", "operator", &["tool.list"]);
    let made = registry.draft(&second, Principal::local_owner(), None, |edit| edit.create_token(token)).unwrap();
    let text = String::from_utf8(made.told.1.expose().to_vec()).unwrap();
    let mut document = made.document;
    let bytes = document.sealed(0).unwrap();
    registry.install(document, Digest::of(&bytes));
    assert_eq!(registry.check(&text).unwrap().workspace(), &second);
    assert_eq!(registry.state().role(&home, &"user:ana".parse().unwrap()), None);

    within(&second, &|edit| edit.remove_workspace());
    assert_eq!(registry.check(&text).unwrap_err(), TokenRefusal::Revoked);
    assert_eq!(registry.state().role(&second, &Principal::local_owner()), None, "it has no members any more");
    let gone = registry.draft(&second, Principal::local_owner(), None, |edit| edit.remove_workspace()).unwrap_err();
    assert_eq!(gone.code(), "more_than_held", "nobody owns what is not there");
    // Registered again, it has the same id, and what was revoked stays revoked.
    assert_eq!(change(&registry, add).workspace_id, second);
    assert_eq!(registry.check(&text).unwrap_err(), TokenRefusal::Revoked);
}

//! A crash between any two steps of a change, and files that somebody else wrote.

use super::super::control::{accept, reset};
use super::{Place, come, issue, new_token, owner, told};
use crate::access::RegistryError;
use crate::engine::Engine;
use palyra_access::IssuedTokens;
use palyra_protocol::WorkspaceRole;
use std::fs;

/// A registry with one token, and what its file held before and after the token was withdrawn.
async fn with_history() -> (Place, String, Vec<u8>, Vec<u8>) {
    let place = Place::new();
    let engine = place.engine().await;
    let (view, text) = issue(&engine, new_token("user:local")).await;
    let before = fs::read(place.registry()).unwrap();
    engine.revoke_token(&owner(), view.token_id, IssuedTokens::Withdrawn).await.unwrap();
    let after = fs::read(place.registry()).unwrap();
    drop(engine);
    (place, text, before, after)
}

async fn refused(place: &Place) -> String {
    let journal = place.journal();
    let before = journal.head().borrow().size;
    let error = place.open("work", &journal).await.unwrap_err();
    let said = error.to_string();
    assert!(matches!(error, RegistryError::Refused { .. }), "{said}");
    assert!(said.contains("access_registry.json") && said.contains("palyrad access accept"), "{said}");
    let events = journal.events(before + 1, 10).await.unwrap();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].kind, "access.registry_refused");
    said
}

async fn starts(place: &Place) -> Engine {
    place.engine().await
}

#[tokio::test]
async fn a_crash_after_any_step_leaves_the_old_registry_or_the_new_one() {
    let (place, text, before, after) = with_history().await;
    let beside = place.state().join("access_registry.json.new");

    // After the record, before the replacement: the withdrawal counts, and the start finishes it.
    fs::write(place.registry(), &before).unwrap();
    fs::write(&beside, &after).unwrap();
    let engine = starts(&place).await;
    assert_eq!(super::code(come(&engine, &text)), "token_revoked");
    assert_eq!(fs::read(place.registry()).unwrap(), after);
    assert!(!beside.exists());
    drop(engine);

    // Before the record: what was prepared, whole or not, counts for nothing, and the next change writes over it.
    for prepared in [&b"{}"[..], &before, &after[..after.len() / 2], b""] {
        let (place, text, _, after) = with_history().await;
        fs::write(place.state().join("access_registry.json.new"), prepared).unwrap();
        let engine = starts(&place).await;
        assert_eq!(super::code(come(&engine, &text)), "token_revoked");
        assert_eq!(fs::read(place.registry()).unwrap(), after);
        engine.set_member(&owner(), "user:ana".parse().unwrap(), WorkspaceRole::Operator).await.unwrap();
        drop(engine);
        assert_eq!(starts(&place).await.members(&owner()).unwrap().len(), 2);
    }
}

#[tokio::test]
async fn a_replacement_that_failed_is_made_good_by_the_next_change() {
    let place = Place::new();
    let engine = place.engine().await;
    // A directory stands in the way of the rename.
    fs::create_dir_all(place.registry().join("in_the_way")).unwrap();
    engine.set_member(&owner(), "user:ana".parse().unwrap(), WorkspaceRole::Operator).await.unwrap();
    assert_eq!(engine.members(&owner()).unwrap().len(), 2, "recorded means in force");
    fs::remove_dir_all(place.registry()).unwrap();
    drop(engine);
    let engine = starts(&place).await;
    assert_eq!(engine.members(&owner()).unwrap().len(), 2, "and the start finishes it");
}

#[tokio::test]
async fn a_file_that_somebody_else_wrote_is_refused_and_widens_nothing() {
    let (place, text, before, after) = with_history().await;
    // Cut off, emptied, edited, replaced by an older one that fits itself and would revive the token, or gone.
    let wider = String::from_utf8(after.clone()).unwrap().replace("\"operator\"", "\"owner\"");
    for (bytes, said) in [
        (&after[..after.len() - 10], "cannot be read"),
        (b"", "cannot be read"),
        (wider.as_bytes(), "is not revision"),
        (&before, "is not revision"),
    ] {
        fs::write(place.registry(), bytes).unwrap();
        let refusal = refused(&place).await;
        assert!(refusal.contains(said), "{refusal}");
    }
    fs::remove_file(place.registry()).unwrap();
    assert!(refused(&place).await.contains("missing"));
    fs::write(place.registry(), &after).unwrap();
    let engine = starts(&place).await;
    assert_eq!(super::code(come(&engine, &text)), "token_revoked", "put back as it was, all is well");
}

#[tokio::test]
async fn a_link_in_the_place_of_the_file_is_not_followed() {
    let (place, _, _, after) = with_history().await;
    let elsewhere = place.dir.path().join("elsewhere.json");
    fs::write(&elsewhere, &after).unwrap();
    fs::remove_file(place.registry()).unwrap();
    std::os::unix::fs::symlink(&elsewhere, place.registry()).unwrap();
    let journal = place.journal();
    assert!(matches!(place.open("work", &journal).await, Err(RegistryError::Io { .. })));
}

#[tokio::test]
async fn a_file_without_a_journal_is_not_accepted() {
    let (place, _, _, after) = with_history().await;
    let fresh = Place::new();
    fs::write(fresh.registry(), &after).unwrap();
    assert!(refused(&fresh).await.contains("nothing in the journal"));
    drop(place);
}

#[tokio::test]
async fn an_edit_is_accepted_deliberately_and_recorded() {
    let (place, text, before, _) = with_history().await;
    fs::write(place.registry(), &before).unwrap();
    refused(&place).await;
    let journal = place.journal();
    let revision = accept(&place.state(), &journal).await.unwrap();
    assert_eq!(revision, 3, "revisions only grow");
    drop(journal);
    let engine = starts(&place).await;
    assert!(come(&engine, &text).is_ok(), "the owner wanted the token back");
    assert!(told(&engine).await.contains("registry.accepted"));
    drop(engine);
    // Nonsense is not accepted even so.
    fs::write(place.registry(), b"{\"schema\":1}").unwrap();
    let journal = place.journal();
    assert!(matches!(accept(&place.state(), &journal).await, Err(RegistryError::Refused { .. })));
}

#[tokio::test]
async fn starting_over_leaves_no_rights_but_the_owners() {
    let (place, text, _, _) = with_history().await;
    fs::write(place.registry(), b"garbage").unwrap();
    let journal = place.journal();
    let aside = reset(&place.state(), &journal, palyra_protocol::Clock::now(&*place.clock)).await.unwrap().unwrap();
    assert_eq!(fs::read(aside).unwrap(), b"garbage", "nothing is thrown away");
    drop(journal);
    let engine = starts(&place).await;
    assert!(engine.tokens(&owner()).unwrap().is_empty());
    assert_eq!(super::code(come(&engine, &text)), "unauthenticated");
    assert!(told(&engine).await.contains("registry.reset"));
    engine.set_member(&owner(), "user:ana".parse().unwrap(), WorkspaceRole::Operator).await.unwrap();
}

#[tokio::test]
async fn nothing_changes_when_it_cannot_be_written() {
    let place = Place::new();
    let engine = place.engine().await;
    let before = engine.journal().head().borrow().size;
    // Something that cannot be written over stands where the next content is prepared.
    fs::create_dir(place.state().join("access_registry.json.new")).unwrap();
    let refused = engine.set_member(&owner(), "user:ana".parse().unwrap(), WorkspaceRole::Owner).await;
    assert_eq!(super::code(refused), "registry_unavailable");
    assert_eq!(engine.members(&owner()).unwrap().len(), 1);
    assert_eq!(engine.journal().head().borrow().size, before, "and nothing is said to have changed");
}

/// An edit while the daemon runs changes nobody's rights, and is neither taken over nor lost.
#[tokio::test]
async fn a_file_edited_while_the_daemon_runs_is_kept_aside_and_told() {
    let place = Place::new();
    let engine = place.engine().await;
    let add = |name: &str| {
        let (engine, who) = (engine.clone(), name.parse().unwrap());
        async move { engine.set_member(&owner(), who, WorkspaceRole::Operator).await.unwrap() }
    };
    add("user:ana").await;
    let wider = fs::read_to_string(place.registry()).unwrap().replace("\"operator\"", "\"owner\"");
    fs::write(place.registry(), &wider).unwrap();
    add("user:bob").await;
    let aside: Vec<_> = fs::read_dir(place.state())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().contains(".refused-"))
        .collect();
    assert_eq!(aside.len(), 1, "{aside:?}");
    assert_eq!(fs::read_to_string(&aside[0]).unwrap(), wider);
    let refusals =
        || async { told(&engine).await.lines().filter(|event| event.starts_with("access.registry_refused")).count() };
    assert_eq!(refusals().await, 1);
    fs::remove_file(place.registry()).unwrap();
    add("user:eve").await;
    assert_eq!(refusals().await, 2, "removing it is told as well");
    add("user:zoe").await;
    assert_eq!(refusals().await, 2, "and then all is as it was");
    drop(engine);
    let engine = starts(&place).await;
    assert_eq!(engine.members(&owner()).unwrap().len(), 5);
}

#[tokio::test]
async fn a_registry_that_others_can_read_is_made_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let (place, ..) = with_history().await;
    fs::set_permissions(place.registry(), fs::Permissions::from_mode(0o644)).unwrap();
    drop(starts(&place).await);
    assert_eq!(fs::metadata(place.registry()).unwrap().permissions().mode() & 0o777, 0o600);
}

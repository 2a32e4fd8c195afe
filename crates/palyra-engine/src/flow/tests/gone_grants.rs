//! A grant that ends between its look-up and its use: the call is resolved and decided anew, whatever it has become.

use super::{House, asked, ended};
use palyra_protocol::{CallState, JournalEvent};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

const NO_SECRETS: &str = "@id(\"no_secrets\") @reason(\"Nobody writes secrets.\")\n\
    forbid (principal, action == Action::\"tool.execute\", resource) when { context.written_under.contains(\"secret\") };";

/// A daemon with a grant for every write, and a link `way` that leads to a harmless directory.
async fn granted() -> House {
    let house = House::with_rules(NO_SECRETS).await;
    for name in ["open", "secret"] {
        std::fs::create_dir(house.workspace().join(name)).unwrap();
    }
    symlink("open", house.workspace().join("way")).unwrap();
    let mut first = house.write("way/first");
    let question = asked(&mut first).await;
    house.grant_for_a_minute(&question).await;
    assert_eq!(first.end.await.unwrap().unwrap().state, CallState::Succeeded);
    assert_eq!(ended(&mut house.write("way/second")).await.state, CallState::Succeeded, "the grant covers it");
    house
}

/// Leads `way` elsewhere and lets every grant expire.
fn lead_elsewhere(house: &House, target: &'static str) -> impl FnOnce() + Send + 'static {
    let (way, other): (PathBuf, PathBuf) = (house.workspace().join("way"), house.workspace().join("other"));
    let clock = house.clock.clone();
    move || {
        symlink(target, &other).unwrap();
        std::fs::rename(&other, &way).unwrap();
        clock.advance(Duration::from_secs(61));
    }
}

#[tokio::test]
async fn a_call_that_became_forbidden_is_denied_and_shown_to_nobody() {
    let house = granted().await;
    house.clock.when_read_by("palyra-journal", lead_elsewhere(&house, "secret"));
    let first_event = house.recorded() + 1;
    let mut call = house.write("way/third");
    let end = ended(&mut call).await;
    assert_eq!(end.state, CallState::Denied);
    assert_eq!(end.outcome.unwrap().problem.as_ref().unwrap().code, "policy_denied");
    assert_eq!(std::fs::read_dir(house.workspace().join("secret")).unwrap().count(), 0);
    let events = house.events(first_event).await;
    let [JournalEvent::ToolProposed { call }, JournalEvent::ToolDecided { decision, .. }, ..] = events.as_slice()
    else {
        panic!("{events:?}")
    };
    assert_eq!(call.facets.paths_written, ["secret/third"]);
    assert_eq!(decision.rules, ["no_secrets"]);
}

#[tokio::test]
async fn a_call_that_no_longer_resolves_is_on_record_under_its_id() {
    let house = granted().await;
    house.clock.when_read_by("palyra-journal", lead_elsewhere(&house, "/"));
    let mut call = house.write("way/third");
    let end = ended(&mut call).await;
    assert_eq!((end.state, &end.call_id), (CallState::Denied, &call.call_id));
    let recorded = house.engine.journal().call(&call.call_id).await.unwrap();
    assert_eq!(recorded.outcome.unwrap().problem.unwrap().code, "path_outside_workspace");
}

#[tokio::test]
async fn a_call_that_stayed_the_same_is_asked_about() {
    let house = granted().await;
    let clock = house.clock.clone();
    house.clock.when_read_by("palyra-journal", move || clock.advance(Duration::from_secs(61)));
    let mut call = house.write("way/third");
    let question = asked(&mut call).await;
    assert_eq!(question.facets.paths_written, ["open/third"]);
    house.grant_for_a_minute(&question).await;
    assert_eq!(call.end.await.unwrap().unwrap().state, CallState::Succeeded);
}

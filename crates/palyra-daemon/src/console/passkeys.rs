//! Passkeys: those of the person at the page, and adding one.

use super::rendered::{document, seen};
use super::signed::Signed;
use super::tables::{Cell, Section};
use crate::http::{Caller, Door, Refused};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use palyra_engine::NewPasskey;
use palyra_protocol::{ConsoleKey, Passkey, PasskeyAssertion};
use serde::Deserialize;
use serde_json::json;

/// The passkeys, as a section of the page about access.
pub(super) fn section(passkeys: &[Passkey]) -> Section {
    let row = |passkey: &Passkey| {
        let id: String = passkey.id.chars().take(24).collect();
        vec![Cell::text(&passkey.label), Cell::code(id), Cell::text(&passkey.host), Cell::time(passkey.at)]
    };
    Section {
        title: "Your passkeys",
        about: "With a passkey you confirm who you are where a rule demands it: `context.approver_verified`. \
                `palyra console passkeys remove` takes one away."
            .to_owned(),
        columns: &["name", "id", "at", "since"],
        rows: passkeys.iter().map(row).collect(),
        empty: "You have none. Add one here: a fingerprint, a face, a security key or the PIN of this machine.",
        older: None,
    }
}

/// The ids of the caller's own, for the browser to choose from.
pub(super) async fn own(State(door): State<Door>, caller: Caller) -> Result<Response, Refused> {
    let own = door.engine.passkeys(&caller.peer)?;
    document(&json!({
        "principal": caller.peer.effective(),
        "passkeys": own.iter().map(|passkey| &passkey.id).collect::<Vec<_>>(),
    }))
}

/// A passkey that the page has made.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Made {
    id: String,
    key: ConsoleKey,
    label: String,
    proof: PasskeyAssertion,
    #[serde(default)]
    by: Option<PasskeyAssertion>,
}

pub(super) async fn add(
    State(door): State<Door>,
    caller: Caller,
    headers: HeaderMap,
    Signed(made): Signed<Made>,
) -> Result<Response, Refused> {
    let origin = door.origin(&headers).ok_or_else(|| Refused::malformed("the host is missing"))?;
    let authority = origin.split_once("://").map_or("", |(_, authority)| authority);
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host).to_owned();
    let Made { id, key, label, proof, by } = made;
    let new = NewPasskey { id, key, label: seen(label), host, origin, proof, by };
    document(&door.engine.add_passkey(&caller.peer, new).await?)
}

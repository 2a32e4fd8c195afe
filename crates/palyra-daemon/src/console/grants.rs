//! Grants: the standing answers, and withdrawing one.

use super::rendered::document;
use super::session::Nothing;
use super::signed::Signed;
use super::tables::{Act, Cell, Section, page};
use crate::http::{Asked, Caller, Door, Id, Refused};
use axum::extract::State;
use axum::response::Response;
use palyra_protocol::{GrantEffect, GrantId, GrantRecord, Timestamp};
use serde::Deserialize;

/// Which page of them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    #[serde(default)]
    before: Option<GrantId>,
}

pub(super) async fn list(
    State(door): State<Door>,
    caller: Caller,
    Asked(which): Asked<Which>,
) -> Result<Response, Refused> {
    let found = door.engine.grants(&caller.peer, which.before.as_ref()).await?;
    let now = door.engine.now();
    let last = found.records.last().map(|grant| grant.grant_id.to_string());
    let older = last.filter(|_| found.more).map(|last| format!("/console/grants?before={last}"));
    let section = Section {
        title: "Standing answers",
        about:
            "A yes or no that was given for longer than one call. Calls that one covers are answered by it and counted."
                .to_owned(),
        columns: &["holds", "covers", "for", "given by", "given", "ends", "used", ""],
        rows: found.records.iter().map(|grant| row(grant, now)).collect(),
        empty: "There are none. When you allow something for a session or a time, the grant that this leaves is listed here, \
                and can be taken back.",
        older,
    };
    page(&[section], &[])
}

fn row(grant: &GrantRecord, now: Timestamp) -> Vec<Cell> {
    let over = grant.expires_at.is_some_and(|end| end <= now);
    let (word, tone) = match (&grant.revoked_at, &grant.void, grant.effect) {
        (Some(_), _, _) => ("withdrawn", "plain"),
        (None, Some(_), _) => ("void", "plain"),
        (None, None, _) if over => ("over", "plain"),
        (None, None, GrantEffect::Allow) => ("allows", "good"),
        (None, None, GrantEffect::Deny) => ("denies", "bad"),
    };
    let holds = tone != "plain";
    let act = || {
        let asks = format!("Withdraw {}? The next such call asks again.", grant.grant_id);
        Cell::Acts(vec![Act::new("Withdraw", format!("/console/api/grants/{}/revoke", grant.grant_id), asks)])
    };
    let ends = match (grant.expires_at, &grant.session) {
        (Some(end), _) => Cell::time(end),
        (None, Some(session)) => Cell::text(format!("with session {session}")),
        (None, None) => Cell::nothing(),
    };
    let what = grant.shown.as_ref().map_or_else(String::new, |shown| format!(" (given for `{}`)", shown.what));
    vec![
        Cell::Badge(word.to_owned(), tone),
        Cell::text(format!("{}: {}{what}", grant.tool, grant.matcher.describe())),
        Cell::text(&grant.principal),
        Cell::text(&grant.granted_by),
        Cell::time(grant.created_at),
        ends,
        Cell::text(grant.uses),
        if holds { act() } else { Cell::nothing() },
    ]
}

pub(super) async fn revoke(
    State(door): State<Door>,
    caller: Caller,
    Id(grant): Id<GrantId>,
    Signed(Nothing {}): Signed<Nothing>,
) -> Result<Response, Refused> {
    document(&door.engine.revoke_grant(&caller.peer, &grant).await?)
}

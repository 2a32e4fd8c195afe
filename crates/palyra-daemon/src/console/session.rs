//! Sessions: a page registers its key, learns who it acts for, and can be shown out.

use super::rendered::document;
use super::signed::{Signed, posted};
use super::tables::{Act, Cell, Section, page};
use crate::doors::DoorName;
use crate::http::{Caller, Door, Id, Refused};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use palyra_engine::{ConsoleRegistration, SessionView, VerifiedPeer};
use palyra_identity::ConnectedDevice;
use palyra_protocol::{ConsoleId, ConsoleKey, Problem};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What a page sends to be let in.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Registration {
    /// The code from the address; none on the connection of a paired device.
    #[serde(default)]
    code: Option<String>,
    key: ConsoleKey,
    /// What the browser calls itself.
    label: String,
}

/// Opens a session. The code is what lets the page in; everything after it is signed.
pub(super) async fn open(State(door): State<Door>, request: Request) -> Result<Response, Refused> {
    let device = request.extensions().get::<Arc<ConnectedDevice>>().cloned();
    let body = posted(request).await?;
    let Registration { code, key, label, .. } = serde_json::from_slice(&body).map_err(|error| {
        let problem = Problem::plain("body_invalid", format!("the body cannot be read: {error}"));
        Refused::new(StatusCode::UNPROCESSABLE_ENTITY, problem)
    })?;
    let page = ConsoleRegistration { key, label };
    let session: SessionView = match (code, device) {
        (None, Some(device)) => {
            let peer = VerifiedPeer::by_device(&door.engine, &device, DoorName::Remote.channel())?;
            door.engine.open_device_console(&peer, page).await?
        }
        (Some(code), None) => door.engine.open_console(&code, page).await?,
        (Some(_), Some(_)) => return Err(Refused::malformed("a paired device needs no code")),
        (None, None) => return Err(Refused::malformed("the code is missing")),
    };
    tracing::info!(by = %session.principal, session = %session.session, "a console was opened");
    document(&session)
}

/// Who the page acts for, and where things stand.
#[derive(Debug, Serialize)]
struct Me {
    principal: String,
    role: Option<String>,
    session: Option<String>,
    /// The journal's end, where the person may know it.
    head: Option<u64>,
    /// How many approvals wait, where the person may know it.
    waiting: Option<u64>,
    policy: Option<String>,
}

pub(super) async fn me(State(door): State<Door>, caller: Caller) -> Result<Response, Refused> {
    let who = door.engine.whoami(&caller.peer)?;
    let status = door.engine.status(&caller.peer).ok();
    let counts = door.engine.may_watch_approvals(&caller.peer).is_ok();
    document(&Me {
        principal: who.principal.to_string(),
        role: who.role.map(|role| role.to_string()),
        session: caller.peer.console_id().map(ToString::to_string),
        head: status.as_ref().map(|status| status.journal_head.size),
        waiting: status.as_ref().filter(|_| counts).map(|status| status.pending_approvals),
        policy: status.map(|status| status.policy_hash.to_string()),
    })
}

/// The console sessions, as a section of the page about access.
pub(super) fn section(sessions: &[SessionView], own: Option<&ConsoleId>) -> Section {
    let row = |session: &SessionView| {
        let this = own == Some(&session.session);
        let asks = match this {
            true => "End this session? This page gets nothing any more; `palyra console` opens another.".to_owned(),
            false => format!("End the session {}? Its pages get nothing any more.", session.session),
        };
        let path = format!("/console/api/sessions/{}/end", session.session);
        vec![
            Cell::code(&session.session),
            Cell::text(&session.principal),
            Cell::text(if this { format!("this browser: {}", session.label) } else { session.label.clone() }),
            Cell::time(session.opened_at),
            Cell::time(session.last_used_at),
            Cell::time(session.ends_at),
            Cell::Acts(vec![Act::new("End", path, asks)]),
        ]
    };
    Section {
        title: "Console sessions",
        about: "Browsers that were let in. Each has a key of its own, which never leaves it.".to_owned(),
        columns: &["session", "acts for", "browser", "opened", "last used", "ends", ""],
        rows: sessions.iter().map(row).collect(),
        empty: "No console is open.",
        older: None,
    }
}

pub(super) async fn list(State(door): State<Door>, caller: Caller) -> Result<Response, Refused> {
    let sessions = door.engine.console_sessions(&caller.peer).await?;
    page(&[section(&sessions, caller.peer.console_id())], &[])
}

/// Nothing more has to be said.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

pub(super) async fn end(
    State(door): State<Door>,
    caller: Caller,
    Id(session): Id<ConsoleId>,
    Signed(Nothing {}): Signed<Nothing>,
) -> Result<Response, Refused> {
    document(&door.engine.end_console(&caller.peer, &session).await?)
}

//! Devices: those that were let in, pairing another with a code that a phone scans, and revoking one.

use super::rendered::{When, document, fragment};
use super::session::Nothing;
use super::signed::Signed;
use super::tables::{Act, Cell, Field, FieldKind, Form, Section, page_with};
use crate::http::{Caller, Door, Id, Refused};
use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use palyra_engine::PairingOrder;
use palyra_identity::pairing::{DEFAULT_CODE_LIFE, PairingCode};
use palyra_identity::{DeviceState, DeviceView};
use palyra_protocol::{Problem, WorkspaceRole};
use serde::Deserialize;

pub(super) async fn list(State(door): State<Door>, caller: Caller) -> Result<Response, Refused> {
    let devices = door.engine.device_list(&caller.peer).await?;
    let section = Section {
        title: "Paired devices",
        about: "Phones, laptops and browsers with a certificate of their own. `palyra pairing code` lets another in."
            .to_owned(),
        columns: &["name", "state", "acts for", "role", "paired", "last seen", "worth a look", ""],
        rows: devices.iter().map(row).collect(),
        empty: "No device is paired. `palyra pairing code --qr` shows a code that a phone can scan.",
        older: None,
    };
    page_with(&[section], &[], &[form(&door)])
}

fn form(door: &Door) -> Form {
    let open = door.remote().is_some_and(|remote| remote.address().is_some());
    let about = match open {
        true => {
            "The code lives five minutes and lets one device in, after you have compared four words on both screens."
        }
        false => "The door for devices is closed: `[remote] listen = \"0.0.0.0:7443\"` in the configuration opens it.",
    };
    let roles = ["operator", "viewer", "admin", "owner"].map(str::to_owned);
    Form {
        title: "Pair a device",
        about,
        path: "/console/api/devices/code".to_owned(),
        submit: "Show a code",
        fields: vec![Field::new("role", "It may do as much as a member who is", FieldKind::Choice(roles.into()), "")],
        open: false,
    }
}

/// What the new device may do.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    role: String,
}

/// A pairing code as it is shown: scanned by a phone, or typed on another machine.
#[derive(Template)]
#[template(path = "console/pairing.html")]
struct Pairing {
    code: String,
    side: usize,
    /// The dark modules, as one path.
    path: String,
    ends: When,
    loopback_only: bool,
}

/// Makes a pairing code and shows it as a picture. It is in this answer and nowhere else.
pub(super) async fn code(
    State(door): State<Door>,
    caller: Caller,
    Signed(wanted): Signed<Wanted>,
) -> Result<Response, Refused> {
    let role = wanted.role.parse::<WorkspaceRole>().map_err(|_| Refused::malformed("there is no such role"))?;
    let closed = || {
        let hint = "write in the configuration: `[remote] listen = \"0.0.0.0:7443\"`";
        let problem = Problem::new("remote_closed", "the door for devices is closed", hint);
        Refused::new(StatusCode::CONFLICT, problem)
    };
    let remote = door.remote().ok_or_else(closed)?;
    let order = PairingOrder { principal: None, role, life: DEFAULT_CODE_LIFE, device: None, address: None };
    let made = remote.create_code(&caller.peer, order, Some(None)).await?;
    let PairingCode::Qr(qr) = &made.code.code else { return Err(closed()) };
    let modules = qr.modules().map_err(|error| Refused::malformed(error.to_string()))?;
    let dark = modules.dark.iter().map(|(x, y)| format!("M{x} {y}h1v1h-1z"));
    fragment(&Pairing {
        code: qr.reveal().to_string(),
        side: modules.side,
        path: dark.collect(),
        ends: When(made.code.expires_at),
        loopback_only: made.loopback_only,
    })
}

fn row(view: &DeviceView) -> Vec<Cell> {
    let device = &view.device;
    let tone = match view.state {
        DeviceState::Active => "good",
        DeviceState::Lapsed => "warn",
        DeviceState::Revoked => "plain",
    };
    let warnings = serde_json::to_value(&view.warnings).ok();
    let warnings = warnings.and_then(|list| {
        let words = list.as_array()?.iter().map(|word| word.as_str().map_or_else(|| word.to_string(), str::to_owned));
        Some(words.collect::<Vec<_>>().join(", "))
    });
    let act = || {
        let asks = format!("Revoke {}? It is cut off at once, and has to be paired again.", device.name);
        Cell::Acts(vec![Act::new("Revoke", format!("/console/api/devices/{}/revoke", device.device_id), asks)])
    };
    vec![
        Cell::text(&device.name),
        Cell::Badge(view.state.as_str().to_owned(), tone),
        Cell::text(&device.principal),
        Cell::text(device.role),
        Cell::time(device.created_at),
        Cell::maybe(view.last_seen),
        Cell::text(warnings.unwrap_or_default()),
        if view.state == DeviceState::Active { act() } else { Cell::nothing() },
    ]
}

pub(super) async fn revoke(
    State(door): State<Door>,
    caller: Caller,
    Id(device): Id<String>,
    Signed(Nothing {}): Signed<Nothing>,
) -> Result<Response, Refused> {
    document(&door.engine.revoke_device(&caller.peer, device, "revoked in the console".to_owned()).await?)
}

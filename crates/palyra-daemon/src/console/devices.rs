//! Devices: those that were let in, and revoking one.

use super::rendered::document;
use super::session::Nothing;
use super::signed::Signed;
use super::tables::{Act, Cell, Section, page};
use crate::http::{Caller, Door, Id, Refused};
use axum::extract::State;
use axum::response::Response;
use palyra_identity::{DeviceState, DeviceView};

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
    page(&[section], &[])
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
        Cell::Act(Act { label: "Revoke", path: format!("/console/api/devices/{}/revoke", device.device_id), asks })
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

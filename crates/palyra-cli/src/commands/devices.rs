//! `palyra devices`: those that were let in, and the authority that signs for them.

use super::read;
use crate::args::devices::{Authority, Devices};
use crate::context::Context;
use crate::exit::{FAILED, Failure};
use crate::hosts::issued_of;
use crate::output::{self, BAD, BOLD, DIM, GOOD, WARN, note, remaining, say, styled, when};
use crate::text::safe;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use palyra_api::Connection;
use palyra_api::v1::{
    AddBrowserRequest, AuthorityRequest, DeviceDocument, GetDeviceRequest, ListDevicesRequest, OwnDeviceRequest,
    RemoveDeviceRequest, RenameDeviceRequest, RevokeDeviceRequest, RotateAuthorityRequest, RotateDeviceRequest,
    SetDeviceRoleRequest,
};
use palyra_identity::{BrowserRequest, DeviceState, DeviceView, DeviceWarning};
use palyra_protocol::{Clock as _, SystemClock, Timestamp};
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

pub async fn run(context: &Context, command: Devices) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let mut devices = connection.devices();
    let changed = match command {
        Devices::List => return list(context, &connection).await,
        Devices::Show { device } => {
            let view = document(devices.get(GetDeviceRequest { device }).await?)?;
            return show(context, &view);
        }
        Devices::Rename { device, name } => {
            let view = document(devices.rename(RenameDeviceRequest { device, name }).await?)?;
            (format!("it is called `{}` now", safe(view.device.name.as_str())), view)
        }
        Devices::Role { device, role } => {
            let request = SetDeviceRoleRequest { device, role: role.to_string() };
            let view = document(devices.set_role(request).await?)?;
            (format!("`{}` is {role} from its next request on", safe(view.device.name.as_str())), view)
        }
        Devices::Rotate { device } => {
            let view = document(devices.rotate(RotateDeviceRequest { device }).await?)?;
            let name = safe(view.device.name.as_str());
            (format!("`{name}` gets a new key when it next comes; what it has holds for an hour"), view)
        }
        Devices::Revoke { device, reason } => {
            let view = document(devices.revoke(RevokeDeviceRequest { device, reason }).await?)?;
            (format!("`{}` is shut out", safe(view.device.name.as_str())), view)
        }
        Devices::Remove { device } => {
            let removed = devices.remove(RemoveDeviceRequest { device }).await?.into_inner().device_id;
            if context.json() {
                return output::json(&json!({ "removed": removed }));
            }
            say!("{} {removed} is forgotten", styled(GOOD, "✔"));
            return Ok(());
        }
        Devices::Browser { to, name } => return browser(context, &connection, &to, name).await,
        Devices::Authority(command) => return authority(context, &connection, command).await,
    };
    let (sentence, view) = changed;
    if context.json() {
        return output::json(&view);
    }
    say!("{} {sentence}", styled(GOOD, "✔"));
    Ok(())
}

fn document(reply: tonic::Response<DeviceDocument>) -> Result<DeviceView, Failure> {
    read(&reply.into_inner().document_json)
}

async fn list(context: &Context, connection: &Connection) -> Result<(), Failure> {
    let reply = connection.devices().list(ListDevicesRequest {}).await?.into_inner();
    let views = reply.documents_json.iter().map(|text| read(text)).collect::<Result<Vec<DeviceView>, _>>()?;
    if context.json() {
        return output::json(&views);
    }
    if views.is_empty() {
        say!("No device was let in. `palyra pairing code` lets one in.");
        return Ok(());
    }
    let rows: Vec<_> = views.iter().map(row).collect();
    output::table(&["NAME", "STATE", "ROLE", "ACTS FOR", "LAST SEEN", "CERTIFICATE", "ID", "WARNINGS"], &rows);
    Ok(())
}

fn row(view: &DeviceView) -> Vec<String> {
    let device = &view.device;
    vec![
        safe(device.name.as_str()),
        view.state.as_str().to_owned(),
        device.role.to_string(),
        device.principal.to_string(),
        ago(view.last_seen),
        view.certificate_age_seconds.map_or_else(String::new, |age| format!("{} old", span(age))),
        device.device_id.to_string(),
        view.warnings.iter().map(|warning| warned(*warning)).collect::<Vec<_>>().join(", "),
    ]
}

fn ago(at: Option<Timestamp>) -> String {
    at.map_or_else(|| "never".to_owned(), |at| format!("{} ago", span(at.until(SystemClock.now()).as_secs())))
}

/// A time in words, from its seconds.
fn span(seconds: u64) -> String {
    remaining(SystemClock.now().plus(Duration::from_secs(seconds))).replace("now", "0 s")
}

fn warned(warning: DeviceWarning) -> &'static str {
    match warning {
        DeviceWarning::NeverSeen => "has not come since it was paired",
        DeviceWarning::LongUnseen => "has not come for a month",
        DeviceWarning::Lapsed => "certificate over",
        DeviceWarning::RenewalOverdue => "renewal overdue",
        DeviceWarning::AuthorityRetiring => "authority retires soon",
        DeviceWarning::OwnerRole => "may do everything",
    }
}

fn show(context: &Context, view: &DeviceView) -> Result<(), Failure> {
    if context.json() {
        return output::json(view);
    }
    let device = &view.device;
    let style = match view.state {
        DeviceState::Active => GOOD,
        DeviceState::Lapsed => WARN,
        DeviceState::Revoked => BAD,
    };
    say!("{} {}", styled(BOLD, safe(device.name.as_str())), styled(style, view.state.as_str()));
    let invited = device.invited_by.as_ref().map_or_else(String::new, |by| format!(", by a code of {by}"));
    let certificate = match device.newest() {
        Some(newest) => {
            format!("{} until {}, authority {}", newest.serial, when(newest.holds_until()), newest.authority)
        }
        None => "none".to_owned(),
    };
    for (name, value) in [
        ("id", device.device_id.to_string()),
        ("kind", device.kind.as_str().to_owned()),
        ("acts for", format!("{}, as {}", device.principal, device.role)),
        ("paired", format!("{}, let in by {}{invited}", when(device.created_at), device.by)),
        ("last seen", ago(view.last_seen)),
        ("certificate", certificate),
        ("belongs to", device.parent.as_ref().map_or_else(String::new, ToString::to_string)),
    ] {
        if !value.is_empty() {
            say!("  {}{}{value}", styled(BOLD, name), " ".repeat(14 - name.len()));
        }
    }
    if let Some(revoked) = &device.revoked {
        say!(
            "  {}{}{} by {}: {}",
            styled(BOLD, "revoked"),
            " ".repeat(7),
            when(revoked.at),
            revoked.by,
            safe(&revoked.reason)
        );
    }
    for warning in &view.warnings {
        say!("  {} {}", styled(WARN, "!"), warned(*warning));
    }
    Ok(())
}

async fn browser(context: &Context, connection: &Connection, to: &Path, name: Option<String>) -> Result<(), Failure> {
    let own = connection.devices().own(OwnDeviceRequest {}).await?.into_inner();
    let name = name.unwrap_or_else(|| format!("{} browser", own.name.chars().take(48).collect::<String>()));
    let name = name
        .parse()
        .map_err(|e: palyra_identity::NameError| Failure::usage(e.to_string(), "choose another `--name`"))?;
    let failed = |error: palyra_identity::BrowserError| Failure::new(FAILED, error.code(), error.to_string(), None);
    let request = BrowserRequest::begin(name).map_err(failed)?;
    let asked = AddBrowserRequest { name: request.name().to_string(), signing_request: request.request().to_vec() };
    let issued = issued_of(connection.devices().add_browser(asked).await?.into_inner());
    let issued = issued.map_err(|error| Failure::bug(&*error))?;
    let (until, device_id) = (issued.not_after, issued.device_id.clone());
    let file = request.pack(&issued).map_err(failed)?;
    write_private(to, &file.pkcs12)?;
    if context.json() {
        return output::json(&json!({
            "file": to, "password": file.reveal_password(), "device_id": device_id, "certificate_until": until,
        }));
    }
    say!("{}", file.reveal_password());
    note!("is the password of `{}`, shown this once. Import the file into the browser, then delete it.", to.display());
    note!("The certificate holds for {} and is revoked with this device.", remaining(until));
    Ok(())
}

/// A new file that only its owner reads: an earlier one is not overwritten.
fn write_private(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = made.and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()));
    written.map_err(|e| Failure::io(&format!("`{}` cannot be written", path.display()), &e))
}

async fn authority(context: &Context, connection: &Connection, command: Authority) -> Result<(), Failure> {
    let mut devices = connection.devices();
    match command {
        Authority::Show => {
            let reply = devices.authority(AuthorityRequest {}).await?.into_inner();
            let generations: Vec<Value> =
                reply.generations_json.iter().map(|text| read(text)).collect::<Result<_, _>>()?;
            if context.json() {
                return output::json(&json!({ "zone": reply.zone, "generations": generations }));
            }
            say!("{}", styled(BOLD, &reply.zone));
            generations.iter().for_each(generation);
            Ok(())
        }
        Authority::Export { to } => {
            let reply = devices.authority(AuthorityRequest {}).await?.into_inner();
            let pem: String = reply.trusted.iter().map(|der| pem(der)).collect();
            match to {
                Some(to) => std::fs::write(&to, pem)
                    .map_err(|e| Failure::io(&format!("`{}` cannot be written", to.display()), &e)),
                None => {
                    output::bytes(pem.as_bytes());
                    Ok(())
                }
            }
        }
        Authority::Rotate { overlap, hosts } => {
            let overlap_ms = u64::try_from(overlap.as_millis()).unwrap_or(u64::MAX);
            let request = RotateAuthorityRequest { overlap_ms, set_hosts: !hosts.is_empty(), hosts };
            let newest: Value = read(&devices.rotate_authority(request).await?.into_inner().document_json)?;
            if context.json() {
                return output::json(&newest);
            }
            say!("{} generation {} signs from now on", styled(GOOD, "✔"), newest["generation"]);
            if overlap.is_zero() {
                note!("every device has to be paired again");
            } else {
                note!(
                    "devices that come within {} take it up by themselves",
                    remaining(SystemClock.now().plus(overlap))
                );
            }
            Ok(())
        }
    }
}

fn generation(generation: &Value) {
    let text = |field: &str| generation[field].as_str().unwrap_or("").to_owned();
    let trusted = if generation["trusted"] == true { styled(GOOD, "trusted") } else { styled(DIM, "retired") };
    say!("  {} {} {trusted}", styled(BOLD, "generation"), generation["generation"]);
    say!("    fingerprint  {}", text("fingerprint"));
    for (name, field) in [("created", "created_at"), ("until", "not_after"), ("retires", "retires_at")] {
        if let Ok(at) = serde_json::from_value::<Timestamp>(generation[field].clone()) {
            say!("    {name}{}{}", " ".repeat(13 - name.len()), when(at));
        }
    }
    let hosts: Vec<_> = generation["hosts"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    say!("    hosts        {}", if hosts.is_empty() { "this machine".to_owned() } else { hosts.join(", ") });
}

fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line).into_owned()).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

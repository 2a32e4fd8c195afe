//! The vault: which secrets there are, what they are bound to, and who used one. Never a value.

use super::tables::{Cell, Section, page};
use crate::http::{Asked, Caller, Door, Refused};
use axum::extract::State;
use axum::response::Response;
use palyra_protocol::{SecretBlame, SecretRef};
use serde::Deserialize;
use serde_json::Value;

/// Which secret.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    /// The secret.
    secret: String,
}

pub(super) async fn list(State(door): State<Door>, caller: Caller) -> Result<Response, Refused> {
    let listing = door.engine.vault_list(&caller.peer, None).await?;
    let bindings = door.engine.vault_bindings(&caller.peer).await?;
    let secret = |known: &palyra_engine::vault::SecretMetadata| {
        let newest = known.versions.last();
        let name = known.reference.to_string();
        vec![
            Cell::Link { href: format!("/console/vault?secret={}", escaped(&name)), text: name },
            Cell::text(known.version),
            Cell::maybe(newest.map(|version| version.created_at)),
            Cell::text(newest.map_or_else(String::new, |version| format!("{} bytes", version.bytes))),
        ]
    };
    let secrets = Section {
        title: "Secrets",
        about: "What the vault holds. Values are never shown here; open one to see who used it.".to_owned(),
        columns: &["secret", "version", "put", "size"],
        rows: listing.secrets.iter().map(secret).collect(),
        empty: "The vault is empty. Put a secret in with `palyra vault put`: agents use it and never see it.",
        older: None,
    };
    let bound = |binding: &Value| {
        let text = |name: &str| match &binding[name] {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            Value::Array(list) => {
                let texts = list.iter().map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned));
                texts.collect::<Vec<_>>().join(", ")
            }
            other => other.to_string(),
        };
        ["id", "secret", "hosts", "header", "program", "methods", "path"].map(|name| Cell::code(text(name))).into()
    };
    let documents: Vec<Value> = bindings.iter().filter_map(|binding| serde_json::to_value(binding).ok()).collect();
    let bindings = Section {
        title: "Bindings",
        about: "Where a secret may go. The proxy puts it into the header of requests that fit, and into no others."
            .to_owned(),
        columns: &["binding", "secret", "hosts", "header", "program", "methods", "path"],
        rows: documents.iter().map(bound).collect(),
        empty: "No secret is bound to a host. `palyra vault bind` lets the proxy attach one.",
        older: None,
    };
    page(&[secrets, bindings], &[])
}

/// A secret's name in a query.
fn escaped(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    name.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

pub(super) async fn blame(
    State(door): State<Door>,
    caller: Caller,
    Asked(which): Asked<Which>,
) -> Result<Response, Refused> {
    let secret: SecretRef = which.secret.parse().map_err(|_| Refused::not_found("secret", &which.secret))?;
    let uses = door.engine.vault_blame(&caller.peer, &secret).await?;
    let row = |one: &SecretBlame| {
        vec![
            Cell::time(one.at),
            Cell::text(&one.what),
            Cell::text(&one.by),
            one.call_id.as_ref().map_or_else(Cell::nothing, |call| Cell::call(call.as_str())),
            Cell::code(one.program.as_deref().unwrap_or("")),
            Cell::text(one.endpoints.join(", ")),
            Cell::text(one.decision.as_deref().unwrap_or("")),
        ]
    };
    let section = Section {
        title: "Who used it",
        about: format!("Every use of {secret} and every change to it, newest first."),
        columns: &["when", "what", "by", "call", "program", "endpoints", "decision"],
        rows: uses.iter().map(row).collect(),
        empty: "Nobody has used it yet.",
        older: None,
    };
    page(&[section], &[])
}

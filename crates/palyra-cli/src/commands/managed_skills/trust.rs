//! `palyra skills trust`.

use super::{text, told};
use crate::args::managed_skills::Trust;
use crate::context::Context;
use crate::exit::Failure;
use crate::output::{self, say};
use crate::text::safe;
use palyra_api::Connection;
use palyra_api::v1::{SkillRequest, TrustAddRequest, TrustKeyRequest, TrustListRequest, TrustRotateRequest};
use serde_json::Value;

pub(super) async fn run(context: &Context, connection: &Connection, command: Trust) -> Result<(), Failure> {
    let mut skills = connection.skills();
    let reply = match command {
        Trust::List => skills.trust_list(TrustListRequest {}).await?,
        Trust::Add { publisher, public_key, expires_at } => {
            let expires_at_unix_ms = expires_at.unwrap_or(0);
            skills.trust_add(TrustAddRequest { publisher, public_key, expires_at_unix_ms }).await?
        }
        Trust::Remove { key_id } => skills.trust_remove(TrustKeyRequest { key_id, reason: String::new() }).await?,
        Trust::Revoke { key_id, reason } => skills.trust_revoke(TrustKeyRequest { key_id, reason }).await?,
        Trust::Rotate { statement } => {
            let read = std::fs::read(&statement);
            let statement = read.map_err(|error| Failure::io(&format!("`{}`", statement.display()), &error))?;
            skills.trust_rotate(TrustRotateRequest { statement }).await?
        }
        Trust::ResetVersions { skill } => {
            skills.trust_reset_versions(SkillRequest { skill, version: String::new() }).await?
        }
        Trust::Reset { yes: true } => skills.trust_reset(TrustListRequest {}).await?,
        Trust::Reset { yes: false } => {
            let message = "this forgets every trusted key and quarantines every skill";
            return Err(Failure::usage(message.to_owned(), "say `--yes` if that is what you want"));
        }
    };
    list(context, &told(reply)?)
}

fn list(context: &Context, keys: &Value) -> Result<(), Failure> {
    if context.json() {
        return output::json(keys);
    }
    let rows: Vec<Vec<String>> = keys.as_array().into_iter().flatten().map(row).collect();
    if rows.is_empty() {
        say!("No key is trusted. `palyra skills trust add PUBLISHER KEY` trusts one.");
        return Ok(());
    }
    output::table(&["PUBLISHER", "KEY ID", "ORIGIN", "STATE", "SKILLS"], &rows);
    Ok(())
}

fn row(key: &Value) -> Vec<String> {
    let state = match (&key["state"], key.pointer("/state/revoked/reason")) {
        (_, Some(reason)) => format!("revoked: {}", safe(reason.as_str().unwrap_or(""))),
        (Value::String(state), _) => safe(state),
        (state, _) => state.as_object().and_then(|state| state.keys().next().cloned()).unwrap_or_default(),
    };
    vec![
        safe(text(key, "/publisher")),
        safe(text(key, "/key_id")),
        safe(text(key, "/origin")),
        state,
        key["skills"].to_string(),
    ]
}

//! `palyra status`.

use super::workspaces::Workspace;
use crate::context::Context;
use crate::exit::Failure;
use crate::output::{self, BOLD, DIM, GOOD, WARN, note, say, styled, when};
use crate::text::safe;
use palyra_api::v1::{StatusReply, StatusRequest};
use palyra_protocol::Timestamp;
use serde_json::json;

/// Where the workspace is, and what is wrong with it.
fn workspace(status: &StatusReply) -> String {
    match (status.workspace_root.as_str(), status.workspace_problem.as_str()) {
        ("", _) => styled(DIM, "none is named here: `palyra workspaces list`"),
        (root, "") => root.to_owned(),
        (_, problem) => styled(WARN, safe(problem)),
    }
}

/// The registered workspaces.
pub fn workspaces(status: &StatusReply) -> Result<Vec<Workspace>, Failure> {
    status.workspaces_json.iter().map(|document| super::read(document)).collect()
}

pub async fn status(context: &Context) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let status = connection.daemon().status(StatusRequest { probe_sandbox: false }).await?.into_inner();
    if context.json() {
        return output::json(&document(&status));
    }
    say!("{} palyrad {} (pid {})", styled(GOOD, "●"), status.version, status.pid);
    let started = when(Timestamp::from_unix_ms(status.started_at_unix_ms));
    let pending = match status.pending_approvals {
        0 => "none".to_owned(),
        n => styled(WARN, format!("{n}, see `palyra approvals list`")),
    };
    let refused = refused(&policy(&status));
    let known = workspaces(&status)?;
    let unwell = known.iter().filter(|workspace| workspace.problem.is_some()).count();
    let registered = match unwell {
        0 => format!("{} workspaces", known.len()),
        _ => styled(WARN, format!("{} workspaces, {unwell} closed: see `palyra workspaces list`", known.len())),
    };
    for (name, value) in [
        ("since", started),
        ("you are", status.principal.clone()),
        ("workspace", workspace(&status)),
        ("registered", registered),
        ("state", status.state_dir.clone()),
        ("http", if status.http_url.is_empty() { "closed".to_owned() } else { status.http_url.clone() }),
        ("remote", if status.remote_address.is_empty() { "closed".to_owned() } else { status.remote_address.clone() }),
        ("policy", format!("{} rules, {}", status.policy_rules, &status.policy_hash[..12])),
        ("processes", format!("tier {}, egress {}", status.process_tier, status.process_egress)),
        ("tools", status.tools.to_string()),
        ("calls under way", status.open_calls.to_string()),
        ("waiting for you", pending),
        ("can be undone", kept(&effects(&status))),
        ("journal", format!("{} events, head {}", status.journal_size, &status.journal_head[..12])),
        ("public key", styled(DIM, &status.public_key)),
    ] {
        say!("  {}{}{value}", styled(BOLD, name), " ".repeat(18 - name.len()));
    }
    if let Some(refused) = refused {
        note!("\n{} {refused}", styled(WARN.bold(), "warning:"));
        note!(
            "{} policy {} goes on; see all flaws with `palyra policy reload`",
            styled(BOLD, "hint:"),
            &status.policy_hash[..12]
        );
    }
    Ok(())
}

/// What is kept for undoing, as the daemon tells it.
pub fn effects(status: &StatusReply) -> serde_json::Value {
    serde_json::from_str(&status.effects_json).unwrap_or_else(|_| json!({}))
}

/// How much is kept, and for how long.
fn kept(effects: &serde_json::Value) -> String {
    if let Some(problem) = effects["problem"]["message"].as_str() {
        return styled(WARN, safe(problem));
    }
    if effects.as_object().is_none_or(serde_json::Map::is_empty) {
        return styled(DIM, "no workspace is named here");
    }
    let number = |name: &str| effects[name].as_u64().unwrap_or(0);
    let days = number("max_age_ms") / (24 * 60 * 60 * 1000);
    let (kept, used, most) = (number("kept"), number("kept_bytes") >> 20, number("max_bytes") >> 20);
    format!("{kept} calls, {used} MiB of {most} MiB, kept {days} days")
}

/// How the rules stand. `hash` and `rules` are what they always were; the rest comes from the daemon as it is.
pub fn policy(status: &StatusReply) -> serde_json::Value {
    let mut policy: serde_json::Value = serde_json::from_str(&status.policy_json).unwrap_or_else(|_| json!({}));
    if let Some(fields) = policy.as_object_mut() {
        fields.remove("policy_hash");
    }
    policy["hash"] = json!(status.policy_hash);
    policy["rules"] = json!(status.policy_rules);
    policy
}

/// A refused set in one line: where, why, and how many more.
pub fn refused(policy: &serde_json::Value) -> Option<String> {
    let refused = policy.get("refused").filter(|refused| !refused.is_null())?;
    let files =
        refused["files"].as_str().map_or_else(String::new, |hash| format!(" (files {})", &hash[..hash.len().min(12)]));
    Some(format!("the set found since may not run{files}: {}", safe(refused["summary"].as_str().unwrap_or(""))))
}

pub fn document(status: &StatusReply) -> serde_json::Value {
    json!({
        "version": status.version, "pid": status.pid, "started_at": status.started_at_unix_ms,
        "principal": status.principal, "state_dir": status.state_dir, "workspace_root": status.workspace_root,
        "workspaces": workspaces(status).unwrap_or_default(),
        "config_path": status.config_path,
        "http_url": (!status.http_url.is_empty()).then_some(&status.http_url),
        "remote_address": (!status.remote_address.is_empty()).then_some(&status.remote_address),
        "policy": policy(status),
        "process_runner": { "tier": status.process_tier, "egress": status.process_egress },
        "tools": status.tools, "open_calls": status.open_calls, "pending_approvals": status.pending_approvals,
        "journal": { "origin": status.journal_origin, "size": status.journal_size, "head": status.journal_head },
        "public_key": status.public_key, "effects": effects(status),
    })
}

//! `palyra status`.

use crate::context::Context;
use crate::exit::Failure;
use crate::output::{self, BOLD, DIM, GOOD, WARN, say, styled, when};
use palyra_api::v1::{StatusReply, StatusRequest};
use palyra_protocol::Timestamp;
use serde_json::json;

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
    for (name, value) in [
        ("since", started),
        ("you are", status.principal),
        ("workspace", status.workspace_root),
        ("state", status.state_dir),
        ("http", if status.http_url.is_empty() { "closed".to_owned() } else { status.http_url }),
        ("policy", format!("{} rules, {}", status.policy_rules, &status.policy_hash[..12])),
        ("processes", format!("tier {}, egress {}", status.process_tier, status.process_egress)),
        ("tools", status.tools.to_string()),
        ("calls under way", status.open_calls.to_string()),
        ("waiting for you", pending),
        ("journal", format!("{} events, head {}", status.journal_size, &status.journal_head[..12])),
        ("public key", styled(DIM, status.public_key)),
    ] {
        say!("  {}{}{value}", styled(BOLD, name), " ".repeat(18 - name.len()));
    }
    Ok(())
}

pub fn document(status: &StatusReply) -> serde_json::Value {
    json!({
        "version": status.version, "pid": status.pid, "started_at": status.started_at_unix_ms,
        "principal": status.principal, "state_dir": status.state_dir, "workspace_root": status.workspace_root,
        "config_path": status.config_path,
        "http_url": (!status.http_url.is_empty()).then_some(&status.http_url),
        "policy": { "hash": status.policy_hash, "rules": status.policy_rules },
        "process_runner": { "tier": status.process_tier, "egress": status.process_egress },
        "tools": status.tools, "open_calls": status.open_calls, "pending_approvals": status.pending_approvals,
        "journal": { "origin": status.journal_origin, "size": status.journal_size, "head": status.journal_head },
        "public_key": status.public_key,
    })
}

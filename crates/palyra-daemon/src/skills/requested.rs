//! A manifest's capabilities, as the host of guests understands them.

use super::refusal::Refusal;
use palyra_plugins::{RequestedCapabilities, RequestedLimits, WasmPluginRunnerPolicy};
use palyra_skills::manifest::Capabilities;
use std::fmt::Display;
use std::str::FromStr;

/// What a manifest asks for.
pub(super) fn requested(asked: &Capabilities) -> Result<RequestedCapabilities, Refusal> {
    let secrets: Vec<String> = asked.secrets.iter().map(|secret| format!("{}/{}", secret.scope, secret.key)).collect();
    Ok(RequestedCapabilities {
        http_hosts: parsed(asked.egress.iter().map(ToString::to_string))?,
        secrets: parsed(secrets)?,
        read_roots: parsed(asked.read_roots.iter().map(|root| root.workspace_path().to_owned()))?,
        write_roots: parsed(asked.write_roots.iter().map(|root| root.workspace_path().to_owned()))?,
        storage_bytes: asked.storage_bytes,
        limits: RequestedLimits {
            fuel: Some(asked.quotas.fuel_budget),
            memory_bytes: Some(asked.quotas.max_memory_bytes),
            wall_clock_ms: Some(asked.quotas.wall_clock_ms),
            ..RequestedLimits::default()
        },
    })
}

fn parsed<T: FromStr<Err: Display>>(texts: impl IntoIterator<Item = String>) -> Result<Vec<T>, Refusal> {
    let parse = |text: String| {
        text.parse().map_err(|error| Refusal::refused("capability_not_grantable", format!("{error}"), None))
    };
    texts.into_iter().map(parse).collect()
}

/// A policy that allows an author's own skill what it asks for, within the usual maxima.
pub(super) fn allowing(asked: &RequestedCapabilities) -> WasmPluginRunnerPolicy {
    WasmPluginRunnerPolicy {
        allowed_hosts: asked.http_hosts.clone(),
        allowed_secrets: asked.secrets.clone(),
        allowed_read_roots: asked.read_roots.clone(),
        allowed_write_roots: asked.write_roots.clone(),
        max_storage_bytes: asked.storage_bytes,
        ..WasmPluginRunnerPolicy::default()
    }
}

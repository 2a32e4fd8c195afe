//! `palyra calls list`, and what `calls show` tells besides a call's end: what it was given, and what held it.

use super::{read, read_optional};
use crate::args::CallFilter;
use crate::context::Context;
use crate::exit::Failure;
use crate::output::{self, BOLD, note, say, styled, when};
use crate::review::StyledLine;
use crate::text::{pretty, safe};
use palyra_api::Connection;
use palyra_api::v1::{CallUpdate, DiffEffectsRequest, ListCallsRequest};
use palyra_protocol::{ApprovalState, CallRecord, CallState, Review, Timestamp, ToolOutcome};
use serde_json::Value;

/// The most that one answer of the daemon holds.
const PAGE: u32 = 250;

pub async fn list(context: &Context, connection: &Connection, filter: CallFilter) -> Result<(), Failure> {
    let text = |value: Option<String>| value.unwrap_or_default();
    let mut request = ListCallsRequest {
        principal: text(filter.principal.map(|who| who.to_string())),
        tool: text(filter.tool),
        session: text(filter.session.map(String::from)),
        state: text(filter.state.map(|state| state.as_str().to_owned())),
        since_unix_ms: filter.since.unwrap_or(0),
        before: String::new(),
        most: filter.last.min(PAGE),
    };
    let mut calls: Vec<Value> = Vec::new();
    loop {
        let page = connection.calls().list(request.clone()).await?.into_inner();
        for call in &page.calls_json {
            calls.push(read(call)?);
        }
        if page.go_on_before.is_empty() || calls.len() >= filter.last as usize {
            break;
        }
        request.before = page.go_on_before;
    }
    calls.truncate(filter.last as usize);
    // The newest last, where the eye is.
    calls.reverse();
    if context.json() {
        return output::json(&calls);
    }
    table(&calls);
    Ok(())
}

/// Calls, a line each.
pub fn table(calls: &[Value]) {
    if calls.is_empty() {
        say!("No calls.");
        return;
    }
    let text = |call: &Value, key: &str| safe(call[key].as_str().unwrap_or(""));
    let rows: Vec<_> = calls
        .iter()
        .map(|call| {
            let at = call["at"].as_u64().map_or_else(String::new, |ms| when(Timestamp::from_unix_ms(ms)));
            let what: String = text(call, "what").chars().take(80).collect();
            vec![at, text(call, "call_id"), text(call, "state"), text(call, "principal"), text(call, "tool"), what]
        })
        .collect();
    output::table(&["WHEN", "CALL", "STATE", "WHO", "TOOL", "WHAT"], &rows);
}

/// What a call was given: its review while it waits, its input and its difference otherwise. Standard output is for
/// what the call returned.
pub fn given(update: &CallUpdate) -> Result<(), Failure> {
    let Some(call) = read_optional::<CallRecord>(&update.call_json)? else { return Ok(()) };
    note!("{}  {}  {}", styled(BOLD, &call.tool), call.origin.principal, safe(&update.state));
    let what = call.facets.command_line().unwrap_or_else(|| call.facets.paths_written.join(", "));
    if !what.is_empty() {
        note!("    {}", styled(BOLD, safe(&what)));
    }
    let patch = call.input.get("patch").and_then(Value::as_str).filter(|_| call.tool.as_str().ends_with("apply_patch"));
    match patch {
        Some(patch) => {
            for StyledLine { style, text } in crate::review::diff_lines(patch) {
                note!("{}", styled(style, text));
            }
        }
        None => note!("{}\n{}", styled(BOLD, "input"), pretty(&call.input)),
    }
    if let Some(approval) = read_optional::<palyra_protocol::ApprovalRecord>(&update.approval_json)? {
        if approval.state == ApprovalState::Pending {
            note!("waits for {}: {}", approval.approval_id, Review::of(&approval).headline());
        } else {
            note!("{} {}", approval.approval_id, super::approvals::state(&approval));
        }
    }
    Ok(())
}

/// What a call changed, as a difference, where it changed something and that is kept.
pub async fn changed(connection: &Connection, call_id: &str) {
    let request = DiffEffectsRequest { id: call_id.to_owned(), path: String::new() };
    // Most calls change nothing; that is no failure of showing one.
    let Ok(reply) = connection.effects().diff(request).await else { return };
    let diff = reply.into_inner().diff;
    if diff.is_empty() {
        return;
    }
    note!("{}", styled(BOLD, "changes"));
    for StyledLine { style, text } in crate::review::diff_lines(&diff) {
        note!("{}", styled(style, text));
    }
}

/// The walls that held while it ran, as the attestation tells them.
pub fn held(update: &CallUpdate) -> Result<(), Failure> {
    let Some(outcome) = read_optional::<ToolOutcome>(&update.outcome_json)? else { return Ok(()) };
    if let Some(attestation) = outcome.attestation.filter(|_| outcome.state != CallState::Denied) {
        note!("{}", styled(BOLD, "walls"));
        for line in super::attest::walls(&attestation.statement.sandbox_enforcement) {
            note!("{line}");
        }
    }
    Ok(())
}

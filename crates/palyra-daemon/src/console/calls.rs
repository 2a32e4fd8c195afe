//! Calls: the list, and one call from its proposal to its attestation.

use super::rendered::{When, cut, document, fragment, seen};
use super::session::Nothing;
use super::signed::Signed;
use super::tables::{Cell, Filter, Section, address, page};
use crate::http::{Asked, Caller, Door, Id, Refused};
use askama::Template;
use axum::extract::State;
use axum::response::Response;
use palyra_engine::{CallFilter, CallSummary, CallUpdate};
use palyra_protocol::display::safe_lines;
use palyra_protocol::json::canonical_value;
use palyra_protocol::{CallId, CallRecord, CallState, ChainedEvent, JournalEvent, Principal, ShownCall, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

/// How many calls a page has.
const PAGE: u32 = 100;
/// Milliseconds of an hour.
const HOUR: u64 = 3_600_000;

const STATES: &[&str] = &[
    "awaiting_approval",
    "executing",
    "succeeded",
    "failed",
    "denied",
    "rejected",
    "expired",
    "cancelled",
    "indeterminate",
];

/// Which calls: what the page's address says.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Which {
    principal: String,
    tool: String,
    session: String,
    state: String,
    hours: String,
    before: Option<CallId>,
}

impl Which {
    fn filter(&self, now: Timestamp) -> Result<CallFilter, Refused> {
        let text = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        let bad = |what: &str| Refused::malformed(format!("`{what}` does not narrow anything"));
        let principal = text(&self.principal).map(|name| name.parse::<Principal>());
        let state = text(&self.state).map(|state| CallState::parse(&state).ok_or_else(|| bad("state")));
        let hours = text(&self.hours).map(|hours| hours.parse::<u64>());
        let since = hours.transpose().map_err(|_| bad("hours"))?;
        let since =
            since.map(|hours| Timestamp::from_unix_ms(now.unix_ms().saturating_sub(hours.saturating_mul(HOUR))));
        Ok(CallFilter {
            principal: principal.transpose().map_err(|_| bad("principal"))?,
            tool: text(&self.tool),
            session: text(&self.session),
            state: state.transpose()?,
            since,
            before: self.before.clone(),
            most: PAGE,
        })
    }

    fn fields(&self) -> Vec<Filter> {
        let field = |name, label, value: &String, choices, example| {
            let value = value.clone();
            Filter { name, label, value, choices, example }
        };
        vec![
            field("state", "State", &self.state, STATES, ""),
            field("tool", "Tool", &self.tool, &[], "palyra.process.run"),
            field("principal", "For", &self.principal, &[], "agent:builder"),
            field("session", "Session", &self.session, &[], "work"),
            field("hours", "Last hours", &self.hours, &[], "24"),
        ]
    }

    /// The address of the page after this one.
    fn older(&self, last: &CallId) -> String {
        let fields = [
            ("state", self.state.as_str()),
            ("tool", &self.tool),
            ("principal", &self.principal),
            ("session", &self.session),
            ("hours", &self.hours),
            ("before", last.as_str()),
        ];
        address("/console/calls", &fields)
    }
}

pub(super) fn tone(state: CallState) -> &'static str {
    match state {
        CallState::Succeeded => "good",
        CallState::Failed | CallState::Denied | CallState::Rejected | CallState::Indeterminate => "bad",
        CallState::AwaitingApproval | CallState::Approved | CallState::Executing | CallState::Proposed => "warn",
        CallState::Expired | CallState::Cancelled => "plain",
    }
}

pub(super) async fn list(
    State(door): State<Door>,
    caller: Caller,
    Asked(which): Asked<Which>,
) -> Result<Response, Refused> {
    let filter = which.filter(door.engine.now())?;
    let (found, last) = door.engine.calls(&caller.peer, filter).await?;
    let row = |call: &CallSummary| {
        vec![
            Cell::time(call.at),
            Cell::Badge(call.state.as_str().replace('_', " "), tone(call.state)),
            Cell::Link { href: format!("/console/call?id={}", call.call_id), text: cut(&call.what_or_tool(), 100) },
            Cell::text(&call.tool),
            Cell::text(&call.principal),
            Cell::text(&call.session),
        ]
    };
    let section = Section {
        title: "Calls",
        about: "Everything that agents proposed, newest first.".to_owned(),
        columns: &["when", "state", "what", "tool", "for", "session"],
        rows: found.records.iter().map(row).collect(),
        empty: "No call fits. `palyra exec -- date` proposes one; `palyra connect` puts an agent behind Palyra.",
        older: last.filter(|_| found.more).map(|last| which.older(&last)),
    };
    page(&[section], &which.fields())
}

trait WhatOrTool {
    fn what_or_tool(&self) -> String;
}

impl WhatOrTool for CallSummary {
    fn what_or_tool(&self) -> String {
        if self.what.is_empty() { self.tool.clone() } else { self.what.clone() }
    }
}

/// One call.
#[derive(Template)]
#[template(path = "console/call.html")]
struct Call {
    id: String,
    tool: String,
    state: &'static str,
    tone: &'static str,
    what: String,
    facts: Vec<(&'static str, String)>,
    input: String,
    steps: Vec<Step>,
    runs: bool,
    ended: bool,
    problem: Option<(String, String)>,
    approval: Option<String>,
}

/// One step of its life.
struct Step {
    at: When,
    seq: u64,
    title: String,
    detail: String,
    /// Text of several lines: rules, walls.
    more: Vec<(String, String)>,
}

pub(super) async fn show(State(door): State<Door>, caller: Caller, Id(id): Id<CallId>) -> Result<Response, Refused> {
    let (engine, peer) = (&door.engine, &caller.peer);
    let update =
        engine.call(peer, &id).await.map_err(|error| Refused::from(error).or_not_found("call", id.as_str()))?;
    let record = engine.call_record(peer, &id).await?;
    // The steps are the journal's, for those who may read it.
    let events = engine.events_of_call(peer, &id).await.unwrap_or_default();
    let rules = engine.rules(peer, None).unwrap_or_default();
    let steps = events.iter().filter_map(|event| step(event, &rules)).collect();
    fragment(&call(&update, record.as_ref(), steps))
}

fn call(update: &CallUpdate, record: Option<&CallRecord>, steps: Vec<Step>) -> Call {
    let state = update.state;
    let facts = record.map_or_else(Vec::new, |record| {
        let origin = &record.origin;
        let facets = &record.facets;
        let held = facets.containment.as_ref().map_or_else(String::new, |held| held.describe());
        [
            ("for", origin.principal.to_string()),
            ("through", origin.channel.to_string()),
            ("session", origin.session.to_string()),
            ("run", origin.run.to_string()),
            ("in", facets.working_directory.clone().unwrap_or_default()),
            ("runs", facets.executable.clone().unwrap_or_default()),
            ("reads", facets.paths_read.join(", ")),
            ("writes", facets.paths_written.join(", ")),
            ("contacts", facets.hosts.join(", ")),
            ("held by", held),
            ("digest", record.digest.to_string()),
        ]
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| (name, seen(value)))
        .collect()
    });
    let what = record.map(|record| ShownCall::of(&record.facets).what).filter(|what| !what.is_empty());
    let what = what.unwrap_or_else(|| update.tool.clone());
    let problem = update.outcome.as_ref().and_then(|outcome| outcome.problem.as_ref());
    Call {
        id: update.call_id.to_string(),
        tool: seen(&update.tool),
        state: state.as_str(),
        tone: tone(state),
        what: cut(&what, 2000),
        facts,
        input: record.map_or_else(String::new, |record| pretty(&record.input)),
        steps,
        runs: state == CallState::Executing,
        ended: update.outcome.as_ref().is_some_and(|outcome| outcome.attestation.is_some()),
        problem: problem.map(|problem| (seen(&problem.message), seen(problem.hint.as_deref().unwrap_or("")))),
        approval: (state == CallState::AwaitingApproval)
            .then(|| update.approval.as_ref().map(|approval| approval.approval_id.to_string()))
            .flatten(),
    }
}

pub(super) fn pretty(value: &Value) -> String {
    safe_lines(&serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string()))
}

/// What an event was to its call.
fn step(event: &ChainedEvent, rules: &[palyra_policy::RuleText]) -> Option<Step> {
    let at = When(event.at);
    let made = |title: &str, detail: String| {
        Some(Step { at, seq: event.seq, title: title.to_owned(), detail: seen(detail), more: Vec::new() })
    };
    match serde_json::from_str::<JournalEvent>(&event.body).ok()? {
        JournalEvent::ToolProposed { call } => {
            made("Proposed", format!("by {} through `{}`", call.origin.principal, call.origin.channel))
        }
        JournalEvent::ToolRejected { problem, .. } => made("Refused before it was a call", problem.message),
        JournalEvent::ToolDecided { decision, .. } => {
            let mut step = made("Decided", format!("{}: {}", decision.decision.as_str(), decision.summary))?;
            let text = |id: &String| {
                let rule = rules.iter().find(|rule| rule.id == *id);
                let text = rule.map_or("(the rules in force have no such rule any more)", |rule| rule.text.as_str());
                (seen(id), safe_lines(text))
            };
            step.more = decision.rules.iter().map(text).collect();
            Some(step)
        }
        JournalEvent::ApprovalRequested { approval } => {
            made("A person was asked", format!("{} ({})", approval.why, approval.approval_id))
        }
        JournalEvent::ApprovalGiven { given, .. } => {
            let signed = given.signature.map_or_else(String::new, |signed| format!(", {signed}"));
            made("One person approved", format!("{}{signed}", given.by))
        }
        JournalEvent::ApprovalRebound { .. } => made("Asked again under other rules", String::new()),
        JournalEvent::ApprovalResolved { state, resolution, .. } => {
            let reason = resolution.reason.map_or_else(String::new, |reason| format!(": {reason}"));
            let signed = resolution.signature.map_or_else(String::new, |signed| format!(", {signed}"));
            made("Answered", format!("{} by {}{signed}{reason}", state.as_str(), resolution.by))
        }
        JournalEvent::ApprovalTakenBack { by, .. } => made("An answer was taken back", by.to_string()),
        JournalEvent::ToolStarted { authority, .. } => {
            let authority = serde_json::to_value(authority).unwrap_or_default();
            made(
                "Started",
                format!("by the authority of {}", authority.to_string().replace(['"', '{', '}'], "").replace(':', " ")),
            )
        }
        JournalEvent::EgressConnection { connection, .. } => {
            let host = connection.host.clone().unwrap_or_default();
            let verdict = serde_json::to_value(&connection.verdict).unwrap_or_default();
            made("Network", format!("{host} {}", verdict.to_string().replace('"', "")))
        }
        JournalEvent::VaultAccessed { access } => {
            let secret = access.secret.map_or_else(String::new, |secret| secret.to_string());
            made("A secret was used", format!("{secret} {}", access.purpose))
        }
        JournalEvent::EffectIntended { .. } => made("Its changes are about to be applied", String::new()),
        JournalEvent::EffectSettled { reason, done, .. } => {
            made("Its changes were settled", format!("{done} entries changed; {reason}"))
        }
        JournalEvent::EffectUndone { by, done, .. } => made("Undone", format!("{done} entries put back by {by}")),
        JournalEvent::ToolFinished(finished) => {
            let mut step = made("Finished", finished.state.as_str().to_owned())?;
            let walls = &finished.attestation.statement.sandbox_enforcement;
            step.more = vec![("walls that held".to_owned(), pretty(walls))];
            Some(step)
        }
        JournalEvent::ToolEnded { state, problem, .. } => {
            made("Ended", format!("{}: {}", state.as_str(), problem.message))
        }
        _ => None,
    }
}

/// Everything that the page needs to check the attestation by itself: the texts that were hashed, as they were.
pub(super) async fn evidence(
    State(door): State<Door>,
    caller: Caller,
    Id(id): Id<CallId>,
) -> Result<Response, Refused> {
    let found = door.engine.call(&caller.peer, &id).await;
    let update = found.map_err(|error| Refused::from(error).or_not_found("call", id.as_str()))?;
    let Some(outcome) = &update.outcome else { return document(&json!({ "ended": false })) };
    let canonical = |value: &Value| canonical_value(value).ok();
    let output = outcome.output.as_ref().and_then(canonical);
    let problem = outcome.problem.as_ref().and_then(|problem| serde_json::to_value(problem).ok());
    let attestation = outcome.attestation.as_ref().and_then(|attestation| serde_json::to_value(attestation).ok());
    let statement = attestation.clone().and_then(|mut whole| {
        let fields = whole.as_object_mut()?;
        fields.retain(|name, _| !["execution_sha256", "public_key", "signature"].contains(&name.as_str()));
        canonical(&whole)
    });
    document(&json!({
        "ended": true,
        "output": output,
        "problem": problem.as_ref().and_then(canonical),
        "attestation": attestation,
        "statement": statement,
        "daemon_key": door.engine.status(&caller.peer).ok().map(|status| status.public_key),
    }))
}

pub(super) async fn cancel(
    State(door): State<Door>,
    caller: Caller,
    Id(id): Id<CallId>,
    Signed(Nothing {}): Signed<Nothing>,
) -> Result<Response, Refused> {
    let ended = door.engine.cancel(&caller.peer, &id).await?;
    document(&json!({ "call_id": ended.call_id, "state": ended.state }))
}

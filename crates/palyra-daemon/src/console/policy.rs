//! Policy: the rules with their text and whom they bit lately; a candidate that is checked, compared and replayed before
//! somebody with the right to adopts it.

use super::health::newest_events;
use super::rendered::{When, cut, document, fragment, seen};
use super::signed::Signed;
use crate::http::{Caller, Door, Refused};
use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use palyra_engine::{Reloaded, SimulationNews};
use palyra_policy::{Effect, Example, PolicyDiff, PolicyFile, ReplayReport, RuleText, Shift, Suggestion};
use palyra_protocol::display::safe_lines;
use palyra_protocol::{JournalEvent, Problem, Timestamp};
use serde::Deserialize;
use std::collections::HashMap;

/// How far back suggestions look, and a simulation unless the page says otherwise: 30 days.
const BACK_MS: u64 = 30 * 24 * 3_600_000;
/// How often the same answer makes a suggestion.
const AGAIN: usize = 3;
/// The file that a candidate is written to where none is named.
const NEW_FILE: &str = "console.cedar";

#[derive(Template)]
#[template(path = "console/policy.html")]
struct Policy {
    hash: String,
    directory: String,
    loaded: When,
    cases: usize,
    refused: Option<String>,
    rules: Vec<ShownRule>,
    files: Vec<(String, String)>,
    suggestions: Vec<Suggested>,
    new_file: &'static str,
    /// Whether the reader may adopt a candidate.
    adopts: bool,
}

struct ShownRule {
    id: String,
    effect: &'static str,
    reason: String,
    source: String,
    text: String,
    lately: Option<Lately>,
}

/// What a rule decided lately.
#[derive(Clone)]
struct Lately {
    times: u64,
    call: String,
    principal: String,
    at: When,
}

struct Suggested {
    spared: usize,
    covers: String,
    rule: String,
}

impl ShownRule {
    fn of(rule: &RuleText) -> Self {
        let effect = match rule.effect {
            Effect::Permit => "permit",
            Effect::Forbid => "forbid",
        };
        Self {
            id: seen(&rule.id),
            effect,
            reason: seen(&rule.reason),
            source: seen(&rule.source),
            text: safe_lines(&rule.text),
            lately: None,
        }
    }
}

/// How often each rule decided among the newest events, and the last call that it decided about.
async fn decided_lately(door: &Door, caller: &Caller) -> HashMap<String, Lately> {
    let mut found: HashMap<String, Lately> = HashMap::new();
    let mut callers: HashMap<String, String> = HashMap::new();
    newest_events(door, caller, |event| match serde_json::from_str::<JournalEvent>(&event.body) {
        Ok(JournalEvent::ToolProposed { call }) => {
            callers.insert(event.call_id.clone(), call.origin.principal.to_string());
        }
        Ok(JournalEvent::ToolDecided { decision, .. }) => {
            let principal = callers.remove(&event.call_id).unwrap_or_default();
            for rule in &decision.rules {
                let times = found.get(rule).map_or(0, |lately| lately.times) + 1;
                let (call, principal) = (event.call_id.clone(), seen(&principal));
                found.insert(rule.clone(), Lately { times, call, principal, at: When(event.at) });
            }
        }
        _ => {}
    })
    .await;
    found
}

pub(super) async fn show(State(door): State<Door>, caller: Caller) -> Result<Response, Refused> {
    let (engine, peer) = (&door.engine, &caller.peer);
    let status = engine.policy_status(peer)?;
    let rules = engine.rules(peer, None)?;
    // What cannot be read is told below, as what was refused.
    let files = engine.policy_files(peer).await.unwrap_or_default();
    let since = Timestamp::from_unix_ms(engine.now().unix_ms().saturating_sub(BACK_MS));
    let suggestions = engine.suggest_rules(peer, since, AGAIN).await.unwrap_or_default();
    let lately = decided_lately(&door, &caller).await;
    let text = |file: PolicyFile| (file.name, String::from_utf8_lossy(&file.bytes).into_owned());
    let suggested = |one: &Suggestion| Suggested {
        spared: one.spared,
        covers: cut(&one.covers.join(", "), 200),
        rule: safe_lines(&one.rule),
    };
    fragment(&Policy {
        hash: status.policy_hash.to_string(),
        directory: status.directory.map_or_else(String::new, |path| seen(path.display().to_string())),
        loaded: When(status.loaded_at),
        cases: status.cases,
        refused: status.refused.map(|refused| seen(refused.lines().join("; "))),
        rules: rules
            .iter()
            .map(|rule| ShownRule { lately: lately.get(&rule.id).cloned(), ..ShownRule::of(rule) })
            .collect(),
        adopts: engine.may_adopt_policy(peer),
        files: files
            .into_iter()
            .map(text)
            .filter(|(name, _)| name.ends_with(".cedar") || name.ends_with(".toml"))
            .collect(),
        suggestions: suggestions.iter().map(suggested).collect(),
        new_file: NEW_FILE,
    })
}

/// A file of rules, as it would be.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Candidate {
    /// The file in the operator's directory whose place it takes; a new one where there is none of this name.
    name: String,
    text: String,
}

/// The operator's files with one of them replaced.
async fn files(door: &Door, caller: &Caller, candidate: Candidate) -> Result<Vec<PolicyFile>, Refused> {
    let mut files = door.engine.policy_files(&caller.peer).await?;
    let name = if candidate.name.is_empty() { NEW_FILE.to_owned() } else { candidate.name };
    files.retain(|file| file.name != name);
    files.push(PolicyFile { name, bytes: candidate.text.into_bytes() });
    Ok(files)
}

#[derive(Template)]
#[template(path = "console/difference.html")]
struct Difference {
    to: String,
    added: Vec<ShownRule>,
    removed: Vec<ShownRule>,
    changed: Vec<(ShownRule, ShownRule)>,
    members: bool,
}

impl Difference {
    fn of(diff: &PolicyDiff) -> Self {
        let all = |rules: &[RuleText]| rules.iter().map(ShownRule::of).collect();
        let changed = diff.changed.iter().map(|rule| (ShownRule::of(&rule.from), ShownRule::of(&rule.to)));
        Self {
            to: diff.to.to_string(),
            added: all(&diff.added),
            removed: all(&diff.removed),
            changed: changed.collect(),
            members: diff.members_changed,
        }
    }
}

/// Checks a candidate: it parses, fits the schema, and every case comes out as it expects.
pub(super) async fn check(
    State(door): State<Door>,
    caller: Caller,
    Signed(candidate): Signed<Candidate>,
) -> Result<Response, Refused> {
    let files = files(&door, &caller, candidate).await?;
    let diff = door.engine.compare_policy(&caller.peer, files).await?;
    fragment(&Difference::of(&diff))
}

#[derive(Template)]
#[template(path = "console/replay.html")]
struct Replayed {
    replayed: u64,
    unchanged: u64,
    shifts: Vec<(&'static str, &'static str, u64, Vec<Past>)>,
}

struct Past {
    call: String,
    at: When,
    what: String,
    principal: String,
    why: String,
}

impl Past {
    fn of(example: &Example) -> Self {
        let what = if example.what.is_empty() { &example.tool } else { &example.what };
        Self {
            call: example.call_id.to_string(),
            at: When(example.at),
            what: cut(what, 120),
            principal: seen(&example.principal),
            why: seen(&example.why),
        }
    }
}

impl Replayed {
    fn of(report: &ReplayReport) -> Self {
        let shift = |name, tone, shift: &Shift| {
            (name, tone, shift.count, shift.examples.iter().map(Past::of).collect::<Vec<_>>())
        };
        Self {
            replayed: report.replayed,
            unchanged: report.unchanged,
            shifts: vec![
                shift("would be allowed, and were not", "bad", &report.newly_allowed),
                shift("would ask a person, and did not", "warn", &report.newly_asking),
                shift("would be denied, and were not", "good", &report.newly_denied),
            ],
        }
    }
}

/// What a candidate would have decided about the calls of the last 30 days.
pub(super) async fn simulate(
    State(door): State<Door>,
    caller: Caller,
    Signed(candidate): Signed<Candidate>,
) -> Result<Response, Refused> {
    let files = files(&door, &caller, candidate).await?;
    let since = Timestamp::from_unix_ms(door.engine.now().unix_ms().saturating_sub(BACK_MS));
    let mut news = door.engine.simulate_policy(&caller.peer, since, files).await?;
    while let Some(one) = news.recv().await {
        if let SimulationNews::Done(report) = one {
            return fragment(&Replayed::of(&(*report)?));
        }
    }
    let problem = Problem::plain("internal", "the simulation was cut off");
    Err(Refused::new(StatusCode::INTERNAL_SERVER_ERROR, problem))
}

/// Adopts a candidate: checked, written into the operator's directory, and in force from then on.
pub(super) async fn adopt(
    State(door): State<Door>,
    caller: Caller,
    Signed(candidate): Signed<Candidate>,
) -> Result<Response, Refused> {
    let name = if candidate.name.is_empty() { NEW_FILE.to_owned() } else { candidate.name };
    let file = PolicyFile { name, bytes: candidate.text.into_bytes() };
    if let Reloaded::Refused(refused) = door.engine.adopt_policy(&caller.peer, file).await? {
        let message =
            format!("it was written, and what stands in the directory may not run: {}", refused.lines().join("; "));
        return Err(Refused::new(StatusCode::CONFLICT, Problem::plain("policy_refused", message)));
    }
    document(&serde_json::json!({ "policy": door.engine.policy_status(&caller.peer)?.policy_hash }))
}

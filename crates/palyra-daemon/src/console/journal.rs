//! The journal: its events, newest first, and its links, from which the browser recomputes the chain by itself.

use super::rendered::{cut, document};
use super::session::Nothing;
use super::signed::Signed;
use super::tables::{Cell, Filter, Section, address, page};
use crate::http::{Asked, Caller, Door, Refused};
use axum::extract::State;
use axum::response::Response;
use palyra_protocol::display::safe_lines;
use palyra_protocol::{ChainedEvent, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

/// How many events a page shows.
const PAGE: usize = 100;
/// How many events are looked at for one page: a filter that fits little looks no further in one go.
const MOST_SCANNED: u64 = 5_000;
/// How many events are read at once.
const READ: u32 = 500;
/// How much of a body is shown.
const BODY: usize = 4_000;

const KINDS: &[&str] = &[
    "tool.",
    "approval.",
    "grant.",
    "policy.",
    "access.",
    "console.",
    "devices.",
    "vault.",
    "effect.",
    "egress.",
    "run.",
    "skill.",
    "memory.",
    "routine.",
    "daemon.",
];

/// What a decision can say.
const VERDICTS: &[&str] = &["allow", "deny", "needs_approval"];
/// Milliseconds of an hour.
const HOUR: u64 = 3_600_000;

/// Which events: what the page's address says.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Which {
    kind: String,
    principal: String,
    tool: String,
    verdict: String,
    hours: String,
    text: String,
    before: Option<u64>,
}

impl Which {
    /// From when on, where the address says that.
    fn since(&self, now: Timestamp) -> Result<Option<Timestamp>, Refused> {
        if self.hours.trim().is_empty() {
            return Ok(None);
        }
        let hours: u64 = self.hours.trim().parse().map_err(|_| Refused::malformed("`hours` is a number"))?;
        Ok(Some(Timestamp::from_unix_ms(now.unix_ms().saturating_sub(hours.saturating_mul(HOUR)))))
    }

    fn fits(&self, event: &ChainedEvent) -> bool {
        let text = self.text.trim();
        // Bodies are JSON without spaces, so a field is found by its letters. Values are compared as JSON writes them.
        let says = |names: &[&str], value: &str| {
            let value = Value::from(value.trim()).to_string();
            value == "\"\"" || names.iter().any(|name| event.body.contains(&format!("\"{name}\":{value}")))
        };
        event.kind.starts_with(&self.kind)
            && (text.is_empty() || event.call_id == text || event.body.contains(text))
            && says(&["principal", "by", "proposed_by"], &self.principal)
            && says(&["tool"], &self.tool)
            && (self.verdict.is_empty() || event.kind == "tool.decided" && says(&["decision"], &self.verdict))
    }

    fn fields(&self) -> Vec<Filter> {
        let field = |name, label, value: &String, choices, example| {
            let value = value.clone();
            Filter { name, label, value, choices, example }
        };
        vec![
            field("kind", "Kind", &self.kind, KINDS, ""),
            field("verdict", "Verdict", &self.verdict, VERDICTS, ""),
            field("principal", "Who", &self.principal, &[], "agent:builder"),
            field("tool", "Tool", &self.tool, &[], "palyra.process.run"),
            field("hours", "Last hours", &self.hours, &[], "24"),
            field("text", "Holds", &self.text, &[], "a word, or a call"),
        ]
    }

    fn older(&self, before: u64) -> String {
        let before = before.to_string();
        let fields = [
            ("kind", self.kind.as_str()),
            ("verdict", &self.verdict),
            ("principal", &self.principal),
            ("tool", &self.tool),
            ("hours", &self.hours),
            ("text", &self.text),
            ("before", &before),
        ];
        address("/console/journal", &fields)
    }
}

pub(super) async fn list(
    State(door): State<Door>,
    caller: Caller,
    Asked(which): Asked<Which>,
) -> Result<Response, Refused> {
    let head = *door.engine.watch_journal(&caller.peer)?.borrow();
    let mut end = which.before.map_or(head.size, |before| before.saturating_sub(1).min(head.size));
    let since = which.since(door.engine.now())?;
    let (mut found, mut too_old) = (Vec::new(), false);
    let last = end.saturating_sub(MOST_SCANNED);
    while end > last && found.len() < PAGE && !too_old {
        let first = end.saturating_sub(u64::from(READ)).max(last) + 1;
        let count = u32::try_from(end - first + 1).unwrap_or(READ);
        let events = door.engine.events(&caller.peer, first, count).await?;
        // Time only goes on in a journal, so what is older than the first that is too old is so as well.
        too_old = events.first().is_some_and(|first| since.is_some_and(|since| first.at < since));
        let mut fitting =
            events.iter().rev().filter(|event| since.is_none_or(|since| event.at >= since) && which.fits(event));
        found.extend(fitting.by_ref().take(PAGE - found.len()).map(row));
        end = if found.len() == PAGE { fitting_end(&found, first) } else { first - 1 };
    }
    let full = found.len() == PAGE;
    let rows = found.into_iter().map(|(_, cells)| cells).collect();
    let section = Section {
        title: "Events",
        about: format!("{} events; the last one's hash is {}.", head.size, head.hash),
        columns: &["event", "when", "kind", "call", "what it says"],
        rows,
        empty: "No event fits among those that were looked at.",
        older: (end > 0 && (full || !too_old)).then(|| which.older(end + 1)),
    };
    page(&[section], &which.fields())
}

/// The event before the last that is shown.
fn fitting_end(found: &[(u64, Vec<Cell>)], first: u64) -> u64 {
    found.last().map_or(first, |(seq, _)| *seq).saturating_sub(1)
}

fn row(event: &ChainedEvent) -> (u64, Vec<Cell>) {
    let body: Value = serde_json::from_str(&event.body).unwrap_or_default();
    let pretty = serde_json::to_string_pretty(&body).unwrap_or_else(|_| event.body.clone());
    let whole = pretty.chars().count() <= BODY;
    let mut text: String = pretty.chars().take(BODY).collect();
    if !whole {
        text.push_str("\n… `palyra journal show` has all of it");
    }
    // Every body begins with its kind, which has a column of its own.
    let said = event.body.split_once(',').map_or("", |(_, rest)| rest.trim_end_matches('}'));
    let cells = vec![
        Cell::text(event.seq),
        Cell::time(event.at),
        Cell::code(&event.kind),
        if event.call_id.is_empty() { Cell::nothing() } else { Cell::call(&event.call_id) },
        Cell::More { summary: cut(said, 80), text: safe_lines(&text) },
    ];
    (event.seq, cells)
}

/// From where on, and how many.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct From {
    first: u64,
    most: u32,
}

/// Events as the chain has them: the browser hashes them itself.
pub(super) async fn links(
    State(door): State<Door>,
    caller: Caller,
    Asked(from): Asked<From>,
) -> Result<Response, Refused> {
    let head = *door.engine.watch_journal(&caller.peer)?.borrow();
    let events = door.engine.events(&caller.peer, from.first.max(1), from.most.clamp(1, READ)).await?;
    document(&json!({ "head": { "size": head.size, "hash": head.hash }, "events": events }))
}

pub(super) async fn checkpoint(
    State(door): State<Door>,
    caller: Caller,
    Signed(Nothing {}): Signed<Nothing>,
) -> Result<Response, Refused> {
    document(&door.engine.checkpoint(&caller.peer)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use palyra_protocol::Digest;

    #[test]
    fn filters_find_fields_and_not_words_elsewhere() {
        let event = |kind: &str, body: Value| ChainedEvent {
            seq: 1,
            at: Timestamp::from_unix_ms(1),
            kind: kind.to_owned(),
            call_id: "call_x".to_owned(),
            body: body.to_string(),
            prev: Digest::ZERO,
            hash: Digest::ZERO,
        };
        let decided = event("tool.decided", json!({ "decision": { "decision": "deny", "note": "agent:a" } }));
        let proposed = event("tool.proposed", json!({ "call": { "tool": "palyra.echo", "principal": "agent:a" } }));
        let which = |fields: Value| -> Which { serde_json::from_value(fields).unwrap() };
        assert!(which(json!({ "verdict": "deny" })).fits(&decided));
        assert!(!which(json!({ "verdict": "allow" })).fits(&decided));
        assert!(!which(json!({ "verdict": "deny" })).fits(&proposed));
        assert!(which(json!({ "principal": "agent:a", "tool": " palyra.echo " })).fits(&proposed));
        assert!(!which(json!({ "principal": "agent:a" })).fits(&decided), "it stands elsewhere");
        assert!(!which(json!({ "tool": "palyra.ech" })).fits(&proposed));
        assert!(which(json!({ "text": "call_x" })).fits(&decided) && which(json!({})).fits(&decided));
    }
}

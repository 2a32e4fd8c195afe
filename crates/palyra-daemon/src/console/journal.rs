//! The journal: its events, newest first, and its links, from which the browser recomputes the chain by itself.

use super::rendered::{cut, document};
use super::session::Nothing;
use super::signed::Signed;
use super::tables::{Cell, Filter, Section, page};
use crate::http::{Asked, Caller, Door, Refused};
use axum::extract::State;
use axum::response::Response;
use palyra_protocol::ChainedEvent;
use palyra_protocol::display::safe_lines;
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
    "daemon.",
];

/// Which events: what the page's address says.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Which {
    kind: String,
    text: String,
    before: Option<u64>,
}

impl Which {
    fn fits(&self, event: &ChainedEvent) -> bool {
        let text = self.text.trim();
        event.kind.starts_with(&self.kind) && (text.is_empty() || event.call_id == text || event.body.contains(text))
    }

    fn older(&self, before: u64) -> String {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~:".contains(&byte);
        let escape = |text: &str| -> String {
            text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
        };
        format!("/console/journal?kind={}&text={}&before={before}", escape(&self.kind), escape(&self.text))
    }
}

pub(super) async fn list(
    State(door): State<Door>,
    caller: Caller,
    Asked(which): Asked<Which>,
) -> Result<Response, Refused> {
    let head = *door.engine.watch_journal(&caller.peer)?.borrow();
    let mut end = which.before.map_or(head.size, |before| before.saturating_sub(1).min(head.size));
    let mut found = Vec::new();
    let last = end.saturating_sub(MOST_SCANNED);
    while end > last && found.len() < PAGE {
        let first = end.saturating_sub(u64::from(READ)).max(last) + 1;
        let count = u32::try_from(end - first + 1).unwrap_or(READ);
        let events = door.engine.events(&caller.peer, first, count).await?;
        let mut fitting = events.iter().rev().filter(|event| which.fits(event));
        found.extend(fitting.by_ref().take(PAGE - found.len()).map(row));
        end = if found.len() == PAGE { fitting_end(&found, first) } else { first - 1 };
    }
    let rows = found.into_iter().map(|(_, cells)| cells).collect();
    let section = Section {
        title: "Events",
        about: format!("{} events; the last one's hash is {}.", head.size, head.hash),
        columns: &["event", "when", "kind", "call", "what it says"],
        rows,
        empty: "No event fits among those that were looked at.",
        older: (end > 0).then(|| which.older(end + 1)),
    };
    let filters = [
        Filter { name: "kind", label: "Kind", value: which.kind.clone(), choices: KINDS, example: "" },
        Filter {
            name: "text",
            label: "Holds",
            value: which.text.clone(),
            choices: &[],
            example: "a principal, a tool, a verdict",
        },
    ];
    page(&[section], &filters)
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

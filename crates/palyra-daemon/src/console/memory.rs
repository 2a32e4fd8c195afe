//! Memory: what was retained for people and agents, where it came from, and having it forgotten.

use super::rendered::{cut, document};
use super::session::Nothing;
use super::signed::Signed;
use super::tables::{Act, Cell, Field, FieldKind, Filter, Form, Section, address, page_with};
use crate::http::{Asked, Caller, Door, Id, Refused};
use axum::extract::State;
use axum::response::Response;
use palyra_engine::{MemoryHit, NewMemoryEntry};
use palyra_protocol::display::safe_lines;
use palyra_protocol::{MemoryId, MemoryTrust};
use serde::Deserialize;

/// How many hits of a search are shown.
const HITS: usize = 50;
/// How much of a text is shown in its row.
const BEGINNING: usize = 160;

/// Which entries: what the page's address says.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Which {
    words: String,
    scope: String,
    before: Option<MemoryId>,
}

pub(super) async fn list(
    State(door): State<Door>,
    caller: Caller,
    Asked(which): Asked<Which>,
) -> Result<Response, Refused> {
    let (engine, peer) = (&door.engine, &caller.peer);
    let (words, scope) = (which.words.trim(), which.scope.trim());
    let (found, next) = if words.is_empty() {
        engine.memory_list(peer, scope, which.before).await?
    } else {
        (engine.memory_search(peer, words.to_owned(), scope, HITS).await?, None)
    };
    let older = next.map(|next| address("/console/memory", &[("scope", scope), ("before", next.as_str())]));
    let section = Section {
        title: "What is remembered",
        about:
            "Texts that people and agents had retained: data, never instructions. Forgetting destroys a text and its \
                key; the journal keeps that it was there."
                .to_owned(),
        columns: &["when", "text", "for", "trust", "comes from", ""],
        rows: found.iter().map(row).collect(),
        empty: "Nothing fits. An agent retains with the tool `palyra.memory.retain`, a person below.",
        older,
    };
    let filters = [
        Filter { name: "words", label: "Words", value: which.words.clone(), choices: &[], example: "deploy checklist" },
        Filter { name: "scope", label: "For", value: which.scope.clone(), choices: &[], example: "workspace" },
    ];
    let choice = |choices: &[&str]| FieldKind::Choice(choices.iter().map(|&choice| choice.to_owned()).collect());
    let form = Form {
        title: "Remember something",
        about: "It is yours, or the workspace's: then every agent here may find it.",
        path: "/console/api/memory".to_owned(),
        submit: "Remember it",
        fields: vec![
            Field::new("text", "Text", FieldKind::Lines, "Releases are tagged on Thursdays."),
            Field::new("scope", "For", choice(&["principal", "workspace"]), ""),
            Field::new("source", "Where it comes from", FieldKind::Line, "the team's handbook"),
        ],
        open: false,
    };
    page_with(&[section], &filters, &[form])
}

fn row(hit: &MemoryHit) -> Vec<Cell> {
    let record = &hit.record;
    let tone = match record.trust {
        MemoryTrust::Person => "good",
        MemoryTrust::Agent => "plain",
        MemoryTrust::External => "warn",
    };
    let whole = hit.text.chars().count() <= BEGINNING && !hit.text.contains('\n');
    let sources: Vec<_> = record.sources.iter().map(palyra_protocol::MemorySource::as_str).collect();
    let asks = "Have it forgotten? Its text and key are destroyed, and cannot come back.".to_owned();
    let path = format!("/console/api/memory/{}/forget", record.entry_id);
    vec![
        Cell::time(record.at),
        match whole {
            true => Cell::text(&hit.text),
            false => Cell::More { summary: cut(&hit.text, BEGINNING), text: safe_lines(&hit.text) },
        },
        Cell::text(&record.scope),
        Cell::Badge(record.trust.to_string(), tone),
        Cell::Text(cut(&sources.join(", "), 200)),
        Cell::Acts(vec![Act::new("Forget", path, asks)]),
    ]
}

/// What is to be remembered.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Retain {
    text: String,
    scope: String,
    #[serde(default)]
    source: String,
}

pub(super) async fn add(
    State(door): State<Door>,
    caller: Caller,
    Signed(Retain { text, scope, source }): Signed<Retain>,
) -> Result<Response, Refused> {
    let source = Some(source).filter(|source| !source.trim().is_empty());
    document(&door.engine.memory_add(&caller.peer, NewMemoryEntry { text, scope, source, trust: None }).await?)
}

pub(super) async fn forget(
    State(door): State<Door>,
    caller: Caller,
    Id(entry): Id<MemoryId>,
    Signed(Nothing {}): Signed<Nothing>,
) -> Result<Response, Refused> {
    document(&door.engine.memory_forget(&caller.peer, entry).await?)
}

//! Effects: what calls changed in the workspace, and putting it back.

use super::rendered::{cut, document, seen};
use super::session::Nothing;
use super::signed::Signed;
use super::tables::{Act, Cell, Section, page};
use crate::http::{Caller, Door, Id, Refused};
use axum::extract::State;
use axum::response::Response;
use palyra_engine::{EffectListing, UndoTarget};
use palyra_protocol::{EffectChange, EffectState};

/// How many are listed.
const MOST: usize = 200;

pub(super) async fn list(State(door): State<Door>, caller: Caller) -> Result<Response, Refused> {
    let effects = door.engine.effects_kept(&caller.peer, None).await?;
    let section = Section {
        title: "What calls changed",
        about: "Newest first, as far as it is kept. An undo puts files back as they were; what somebody changed since stays."
            .to_owned(),
        columns: &["when", "call", "what", "state", "changes", ""],
        rows: effects.iter().take(MOST).map(row).collect(),
        empty: "Nothing is kept. When a call changes files, the change is listed here and can be undone.",
        older: None,
    };
    page(&[section], &[])
}

fn row(effect: &EffectListing) -> Vec<Cell> {
    let (word, tone) = match effect.effect.state {
        EffectState::Empty => ("empty", "plain"),
        EffectState::Applied => ("applied", "good"),
        EffectState::PartlyApplied => ("partly applied", "warn"),
        EffectState::Waiting => ("waits", "warn"),
        EffectState::Discarded => ("discarded", "plain"),
        EffectState::Undone => ("undone", "plain"),
    };
    let changes: Vec<String> = effect.effect.changes.iter().map(change).collect();
    let open = matches!(effect.effect.state, EffectState::Applied | EffectState::PartlyApplied);
    let act = || {
        let asks = format!("Put back what {} changed? What somebody changed since stays as it is.", effect.call_id);
        Cell::Acts(vec![Act::new("Undo", format!("/console/api/effects/{}/undo", effect.view), asks)])
    };
    vec![
        Cell::time(effect.at),
        Cell::call(effect.call_id.as_str()),
        Cell::Code(cut(&effect.what, 120)),
        Cell::Badge(word.to_owned(), tone),
        Cell::More {
            summary: format!("{} paths", changes.len() as u64 + effect.effect.unlisted),
            text: changes.join("\n"),
        },
        if open && effect.undone_by.is_none() { act() } else { Cell::nothing() },
    ]
}

fn change(change: &EffectChange) -> String {
    let kind = serde_json::to_value(change.kind).unwrap_or_default();
    seen(format!("{} {}", kind.as_str().unwrap_or(""), change.path.to_text()))
}

pub(super) async fn undo(
    State(door): State<Door>,
    caller: Caller,
    Id(id): Id<String>,
    Signed(Nothing {}): Signed<Nothing>,
) -> Result<Response, Refused> {
    document(&door.engine.undo(&caller.peer, UndoTarget { id, dry_run: false }).await?)
}

//! `palyra effects` and `palyra undo`: what calls changed, and putting it back.

use super::read;
use crate::args::effects::{Effects, Undo, Which};
use crate::context::Context;
use crate::exit::{FAILED, Failure};
use crate::output::{self, BOLD, DIM, GOOD, WARN, say, styled, when};
use crate::text::safe;
use palyra_api::v1::{DiffEffectsRequest, ListEffectsRequest, ShowEffectsRequest, UndoRequest};
use palyra_protocol::display::safe_lines;
use palyra_protocol::{EffectChange, EffectPath, EffectRecord, EntryKind, Timestamp};
use serde::Deserialize;
use serde_json::Value;

/// An effect as the daemon tells it.
#[derive(Debug, Deserialize)]
struct Told {
    call_id: String,
    view: String,
    what: String,
    at: Timestamp,
    effect: EffectRecord,
    #[serde(default)]
    undone_by: Option<String>,
    #[serde(default)]
    undoes: Option<String>,
    #[serde(default)]
    all_changes: Vec<EffectChange>,
}

#[derive(Debug, Deserialize)]
struct Report {
    undone: Vec<Undone>,
}

#[derive(Debug, Deserialize)]
struct Undone {
    what: String,
    #[serde(default)]
    undo: Option<String>,
    paths: Vec<EffectPath>,
    refused: Vec<Refused>,
}

#[derive(Debug, Deserialize)]
struct Refused {
    path: EffectPath,
    reason: String,
    #[serde(default)]
    three_way: Option<String>,
}

pub async fn run(context: &Context, command: Effects) -> Result<(), Failure> {
    let connection = context.connect().await?;
    match command {
        Effects::List { session } => {
            let session = session.map(String::from).unwrap_or_default();
            let told = connection.effects().list(ListEffectsRequest { session }).await?.into_inner().effects_json;
            if context.json() {
                return output::json(&documents(&told)?);
            }
            list(&told)
        }
        Effects::Show(which) => {
            let told = connection.effects().show(ShowEffectsRequest { id: which.id() }).await?.into_inner();
            if context.json() {
                return output::json(&documents(&told.effects_json)?);
            }
            told.effects_json.iter().try_for_each(|effect| read(effect).map(|told: Told| show(&told)))
        }
        Effects::Diff { which, path } => diff(context, which, path).await,
    }
}

async fn diff(context: &Context, which: Which, path: Option<String>) -> Result<(), Failure> {
    let request = DiffEffectsRequest { id: which.id(), path: path.unwrap_or_default() };
    let diff = context.connect().await?.effects().diff(request).await?.into_inner().diff;
    if context.json() {
        return output::json(&serde_json::json!({ "diff": diff }));
    }
    for line in safe_lines(&diff).lines() {
        match line.as_bytes().first() {
            Some(b'+') => say!("{}", styled(GOOD, line)),
            Some(b'-') => say!("{}", styled(output::BAD, line)),
            Some(b'@') => say!("{}", styled(DIM, line)),
            _ => say!("{line}"),
        }
    }
    Ok(())
}

pub async fn undo(context: &Context, undo: Undo) -> Result<(), Failure> {
    let Undo { id, dry_run } = undo;
    let request = UndoRequest { id, dry_run };
    let told = context.connect().await?.effects().undo(request).await?.into_inner().report_json;
    let report: Report = read(&told)?;
    if context.json() {
        output::json(&read::<Value>(&told)?)?;
    } else {
        report.undone.iter().for_each(|undone| print_undone(undone, dry_run));
    }
    let refused: usize = report.undone.iter().map(|undone| undone.refused.len()).sum();
    if refused == 0 || dry_run {
        return Ok(());
    }
    Err(Failure::new(
        FAILED,
        "undo_incomplete",
        format!("{refused} path(s) were changed since and stay as they are"),
        Some("what is shown above is the file with both changes; put it there by hand if it is what you want"),
    ))
}

fn print_undone(undone: &Undone, dry_run: bool) {
    let count = undone.paths.len();
    let head = match (dry_run, &undone.undo) {
        (true, _) => format!("would put back {count} path(s)"),
        (false, Some(undo)) => format!("put back {count} path(s); take that back with `palyra undo {undo}`"),
        (false, None) if count > 0 => {
            format!("threw away {count} path(s) of the session's view; nothing of it counted")
        }
        (false, None) => "nothing was put back".to_owned(),
    };
    say!("{} {}: {head}", styled(GOOD, "✔"), safe(&undone.what));
    undone.paths.iter().take(20).for_each(|path| say!("    {}", safe(&path.to_text())));
    if count > 20 {
        say!("    {}", styled(DIM, format!("and {} more", count - 20)));
    }
    for Refused { path, reason, three_way } in &undone.refused {
        say!("  {} {}: {}", styled(WARN, "stays"), safe(&path.to_text()), safe(reason));
        if let Some(merged) = three_way {
            safe_lines(merged).lines().for_each(|line| say!("      {line}"));
        }
    }
}

fn documents(told: &[String]) -> Result<Vec<Value>, Failure> {
    told.iter().map(|effect| read(effect)).collect()
}

fn list(told: &[String]) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for effect in told.iter().rev() {
        let told: Told = read(effect)?;
        rows.push(vec![told.view.clone(), when(told.at), state(&told), counts(&told.effect), safe(&told.what)]);
    }
    if rows.is_empty() {
        say!("Nothing is kept: no call changed anything, or its time is over.");
        return Ok(());
    }
    output::table(&["CALL", "WHEN", "STATE", "CHANGES", "WHAT"], &rows);
    Ok(())
}

fn state(told: &Told) -> String {
    let state = serde_json::to_value(told.effect.state).ok().and_then(|state| state.as_str().map(str::to_owned));
    match (&told.undone_by, &told.undoes) {
        (Some(undo), _) => format!("undone by {undo}"),
        (None, Some(_)) => "undo".to_owned(),
        (None, None) => state.unwrap_or_default().replace('_', " "),
    }
}

fn counts(effect: &EffectRecord) -> String {
    let counts = effect.counts;
    let parts = [
        (counts.added, "added"),
        (counts.changed, "changed"),
        (counts.deleted, "deleted"),
        (counts.renamed, "renamed"),
        (counts.metadata, "mode or time"),
    ];
    let parts = parts.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    parts.collect::<Vec<_>>().join(", ")
}

fn show(told: &Told) {
    say!("{} {}", styled(BOLD, &told.view), safe(&told.what));
    if told.view != told.call_id {
        say!("  call      {}", safe(&told.call_id));
    }
    say!("  when      {}", when(told.at));
    say!("  state     {}", state(told));
    say!("  changes   {}, {} bytes written", counts(&told.effect), told.effect.bytes);
    for change in &told.all_changes {
        let kind = serde_json::to_value(change.kind).ok().and_then(|kind| kind.as_str().map(str::to_owned));
        let from = change.from.as_ref().map_or_else(String::new, |from| format!("{} → ", safe(&from.to_text())));
        let slash = if change.entry == EntryKind::Directory { "/" } else { "" };
        say!("    {:<9} {from}{}{slash}", kind.unwrap_or_default(), safe(&change.path.to_text()));
    }
    let EffectRecord { waiting, dropped, conflicts, skipped, approval, .. } = &told.effect;
    let asked = approval.as_ref().map_or_else(String::new, |id| format!("; `palyra approvals show {id}`"));
    for (name, paths, why) in [
        ("waiting", waiting, format!("for a person{asked}")),
        ("dropped", dropped, "not let through".to_owned()),
        ("conflicts", conflicts, "changed in the workspace meanwhile; the call's version is kept".to_owned()),
        ("skipped", skipped, "sockets, named pipes and devices are never taken over".to_owned()),
    ] {
        if !paths.is_empty() {
            say!("  {name:<9} {}", styled(DIM, why));
            paths.iter().for_each(|path| say!("    {}", safe(&path.to_text())));
        }
    }
}

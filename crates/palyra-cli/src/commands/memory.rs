//! `palyra memory`: what is remembered, and having it forgotten.

use super::read;
use crate::args::memory::Memory;
use crate::context::Context;
use crate::exit::Failure;
use crate::output::{self, BOLD, DIM, GOOD, WARN, say, styled, when};
use crate::text::{safe, safe_lines};
use palyra_api::v1::{AddMemoryRequest, ListMemoryRequest, MemoryRequest, SearchMemoryRequest};
use palyra_protocol::{MemoryRecord, MemoryTrust};
use serde::{Deserialize, Serialize};

/// An entry as the daemon tells it.
#[derive(Debug, Serialize, Deserialize)]
struct Told {
    #[serde(flatten)]
    record: MemoryRecord,
    text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fits_journal: Option<bool>,
}

pub async fn run(context: &Context, command: Memory) -> Result<(), Failure> {
    let connection = context.connect().await?;
    match command {
        Memory::List { scope } => {
            let mut entries: Vec<Told> = Vec::new();
            let mut before = String::new();
            loop {
                let request = ListMemoryRequest { scope: scope.clone(), before };
                let page = connection.memory().list(request).await?.into_inner();
                for entry in &page.entries_json {
                    entries.push(read(entry)?);
                }
                if page.next.is_empty() {
                    break;
                }
                before = page.next;
            }
            // The newest last, where the eye is.
            entries.reverse();
            print(context, &entries, "nothing is remembered that you may see")
        }
        Memory::Search { query, scope, limit } => {
            let request = SearchMemoryRequest { query: query.join(" "), scope, limit };
            let found = connection.memory().search(request).await?.into_inner().entries_json;
            let entries = found.iter().map(|entry| read(entry)).collect::<Result<Vec<Told>, _>>()?;
            print(context, &entries, "nothing fits")
        }
        Memory::Show { entry } => {
            let request = MemoryRequest { entry_id: entry.to_string() };
            let told: Told = read(&connection.memory().show(request).await?.into_inner().document_json)?;
            if context.json() {
                return output::json(&told);
            }
            show(&told);
            Ok(())
        }
        Memory::Add { text, scope, source, trust } => {
            let trust = trust.map(|trust| trust.as_str().to_owned()).unwrap_or_default();
            let request = AddMemoryRequest { text, scope, source: source.unwrap_or_default(), trust };
            let added: MemoryRecord = read(&connection.memory().add(request).await?.into_inner().document_json)?;
            if context.json() {
                return output::json(&added);
            }
            say!("{} {} is remembered for {}, trust {}", styled(GOOD, "✔"), added.entry_id, added.scope, added.trust);
            Ok(())
        }
        Memory::Forget { entry } => {
            let request = MemoryRequest { entry_id: entry.to_string() };
            let gone: MemoryRecord = read(&connection.memory().forget(request).await?.into_inner().document_json)?;
            if context.json() {
                return output::json(&gone);
            }
            say!("{} {} is forgotten: its key and its text are destroyed", styled(GOOD, "✔"), gone.entry_id);
            Ok(())
        }
    }
}

fn print(context: &Context, entries: &[Told], none: &str) -> Result<(), Failure> {
    if context.json() {
        return output::json(&entries);
    }
    if entries.is_empty() {
        say!("{none}");
    }
    for told in entries {
        let MemoryRecord { entry_id, scope, trust, principal, at, .. } = &told.record;
        say!(
            "{}  {}  {}  {}",
            styled(BOLD, entry_id),
            trusted(*trust),
            styled(DIM, format!("{scope}, by {principal}")),
            styled(DIM, when(*at))
        );
        say!("  {}", safe(&excerpt(&told.text)));
    }
    Ok(())
}

fn show(told: &Told) {
    let record = &told.record;
    say!("{}", styled(BOLD, &record.entry_id));
    say!("scope     {}", record.scope);
    say!("trust     {}", trusted(record.trust));
    say!("retained  {} by {}", when(record.at), record.principal);
    if let Some(call) = &record.call_id {
        say!("call      {call}");
    }
    let sources: Vec<_> = record.sources.iter().map(|source| source.as_str()).collect();
    say!("sources   {}", safe(&sources.join(", ")));
    match told.fits_journal {
        Some(true) => say!("journal   {} its ciphertext opens to this text", styled(GOOD, "✔")),
        Some(false) => say!("journal   {} its ciphertext does not open to this text", styled(WARN, "✘")),
        None => {}
    }
    say!("\n{}", safe_lines(&told.text));
}

fn trusted(trust: MemoryTrust) -> String {
    let style = if trust == MemoryTrust::External { WARN } else { DIM };
    styled(style, trust)
}

fn excerpt(text: &str) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() > 100 { line.chars().take(99).chain(['…']).collect() } else { line }
}

//! A trial for people: grants and denials, what the guest used, and the tighter manifest.

use super::show::size;
use super::trial::{Outcome, Subject};
use crate::printing::say;
use palyra_plugins::Grant;
use palyra_protocol::display::{safe, safe_lines};
use std::fmt::Display;

pub(super) fn outcome(subject: &Subject, outcome: &Outcome) {
    let metadata = &subject.manifest.metadata;
    say(&format!("{} {}, tool {}", metadata.skill_id, metadata.version, outcome.tool));
    grant(&outcome.execution.grant);
    for line in &outcome.execution.log {
        let level = serde_json::to_value(line.level).ok().and_then(|level| level.as_str().map(str::to_owned));
        for text in safe_lines(&line.text).lines() {
            say(&format!("log         {}: {text}", level.as_deref().unwrap_or("log")));
        }
    }
    if let Ok(output) = &outcome.output {
        say(&format!("output      {}", safe(&output.to_string())));
    }
    used(outcome);
    for file in &outcome.changed_files {
        say(&format!("changed     {}", safe(file)));
    }
    compared(outcome);
}

fn grant(grant: &Grant) {
    let line = |what: &str, items: Vec<String>| {
        if !items.is_empty() {
            say(&format!("granted     {what} {}", safe(&items.join(", "))));
        }
    };
    line("http", texts(grant.http()));
    line("secrets", texts(grant.secrets()));
    line("read", texts(grant.read_roots()));
    line("write", texts(grant.write_roots()));
    if grant.storage_bytes() > 0 {
        say(&format!("granted     storage of {} bytes", grant.storage_bytes()));
    }
    let nothing =
        grant.http().is_empty() && grant.secrets().is_empty() && grant.roots().is_empty() && grant.storage_bytes() == 0;
    if nothing {
        say("granted     nothing but computing");
    }
    for withheld in grant.withheld() {
        say(&format!("withheld    {}", safe(&withheld.to_string())));
    }
}

fn texts<T: Display>(items: &[T]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}

fn used(outcome: &Outcome) {
    let (usage, limits) = (&outcome.execution.usage, outcome.execution.grant.limits());
    let memory = |bytes: u64| size(usize::try_from(bytes).unwrap_or(usize::MAX));
    say(&format!(
        "used        fuel {} of {}, memory {} of {}, {} ms",
        usage.fuel,
        limits.fuel,
        memory(usage.peak_memory_bytes),
        memory(limits.memory_bytes),
        usage.duration.as_millis()
    ));
    let calls: Vec<String> = usage
        .host_calls
        .by_kind()
        .iter()
        .map(|(kind, count)| {
            let name = serde_json::to_value(kind).ok().and_then(|name| name.as_str().map(str::to_owned));
            format!("{} {count}", name.unwrap_or_default())
        })
        .collect();
    if !calls.is_empty() {
        say(&format!("host calls  {}", calls.join(", ")));
    }
}

fn compared(outcome: &Outcome) {
    for row in &outcome.rows {
        let declared = safe(&row.declared);
        match row.used.as_slice() {
            [] => say(&format!("not used    {} {declared}", row.capability)),
            used => say(&format!("observed    {} {declared}: {}", row.capability, safe(&used.join(", ")))),
        }
    }
    for denied in &outcome.execution.observed.denied {
        say(&format!("denied      {} (skill.toml does not ask for it)", safe(denied)));
    }
    if let Some(tighter) = &outcome.tighter {
        say("\nThis call would have done with less. A tighter skill.toml:");
        for change in &tighter.changes {
            say(&format!("  {}", safe(change)));
        }
        say("One call does not show everything that a skill needs; `palyra skills try … --write` takes it over.");
    }
}

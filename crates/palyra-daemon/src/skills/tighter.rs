//! Observed against declared, and the manifest that asks for no more than was used.
//!
//! Only what a single call shows is taken away or narrowed: entries that nothing used, wildcards that stand for what
//! was seen, and quotas far above what was used. Comments and order of the author's file stay.

use super::refusal::Refusal;
use super::trial::Subject;
use palyra_plugins::{Execution, HostCallKind, Observed};
use palyra_skills::Manifest;
use palyra_skills::manifest::hosts::EgressHost;
use palyra_skills::manifest::{Capabilities, RootPath, WildcardCapability};
use serde::Serialize;
use std::collections::BTreeSet;
use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table, TableLike, Value, value};

/// How much more than one call used a quota leaves.
const FUEL_MARGIN: u64 = 10;
const MEMORY_MARGIN: u64 = 2;
const LEAST_FUEL: u64 = 1_000_000;
const MIB: u64 = 1 << 20;

/// One entry of the manifest, and what of it was used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Row {
    pub(super) capability: &'static str,
    pub(super) declared: String,
    pub(super) used: Vec<String>,
}

/// A manifest that asks for less.
#[derive(Debug, Serialize)]
pub(super) struct Tighter {
    pub(super) changes: Vec<String>,
    pub(super) manifest: String,
}

/// Every entry of the manifest, with what was observed of it.
pub(super) fn compare(declared: &Capabilities, execution: &Execution) -> Vec<Row> {
    let uses_storage = execution.usage.host_calls.of(HostCallKind::Storage) > 0;
    rows(declared, &execution.observed, uses_storage)
}

fn rows(declared: &Capabilities, observed: &Observed, uses_storage: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut row = |capability, declared: String, used| rows.push(Row { capability, declared, used });
    for host in &declared.egress {
        let reached = |name: &&String| EgressHost::parse(name).is_ok_and(|name| host.covers(&name));
        row("http.egress", host.to_string(), observed.hosts.iter().filter(reached).cloned().collect());
    }
    for secret in &declared.secrets {
        let is_it = |name: &&String| {
            let named = name.split_once('/');
            named.is_some_and(|(scope, key)| scope == secret.scope && (secret.key == "*" || secret.key == key))
        };
        row("secrets", secret.to_string(), observed.secrets.iter().filter(is_it).cloned().collect());
    }
    for (capability, roots, paths) in [
        ("filesystem.read_roots", &declared.read_roots, &observed.read),
        ("filesystem.write_roots", &declared.write_roots, &observed.written),
    ] {
        for root in roots {
            row(capability, root.to_string(), paths.iter().filter(|path| holds(root, path)).cloned().collect());
        }
    }
    if declared.storage_bytes > 0 {
        let used = if uses_storage { vec!["yes".to_owned()] } else { Vec::new() };
        row("storage", format!("{} bytes", declared.storage_bytes), used);
    }
    rows
}

fn holds(root: &RootPath, path: &str) -> bool {
    let below = path.strip_prefix(root.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    root.is_wildcard() || below
}

/// The tighter manifest; nothing if there is nothing to take away.
pub(super) fn offer(subject: &Subject, execution: &Execution) -> Result<Option<Tighter>, Refusal> {
    let rows = compare(&subject.manifest.capabilities, execution);
    let (fuel, memory) = (execution.usage.fuel, execution.usage.peak_memory_bytes);
    tightened(&subject.manifest_text, &subject.manifest, &rows, (fuel, memory))
}

fn tightened(
    text: &[u8],
    manifest: &Manifest,
    rows: &[Row],
    (fuel, memory): (u64, u64),
) -> Result<Option<Tighter>, Refusal> {
    let text = std::str::from_utf8(text).map_err(|error| Refusal::bug(&error))?;
    let mut document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| Refusal::bug(&error))?;
    let mut edit = Edit { document: &mut document, changes: Vec::new() };
    let declared = &manifest.capabilities;
    let is_wildcard = |capability: &str, entry: &str| {
        let wildcards = declared.wildcards.iter();
        wildcards.clone().any(|wildcard| wildcard.capability.as_str() == capability && wildcard.pattern == entry)
    };
    for (capability, path) in [
        ("http.egress", ["http", "egress"].as_slice()),
        ("filesystem.read_roots", &["filesystem", "read_roots"]),
        ("filesystem.write_roots", &["filesystem", "write_roots"]),
        ("secrets", &["secrets"]),
    ] {
        let own = rows.iter().filter(|row| row.capability == capability);
        let fates: Vec<Fate> = own.map(|row| fate(row, is_wildcard(capability, &row.declared))).collect();
        edit.entries(capability, path, &fates);
    }
    edit.wildcards(rows, declared);
    if rows.iter().any(|row| row.capability == "storage" && row.used.is_empty()) {
        edit.remove(&["storage", "max_bytes"], "storage is not used");
    }
    let quotas = &declared.quotas;
    edit.lower("fuel_budget", quotas.fuel_budget, rounded((fuel * FUEL_MARGIN).max(LEAST_FUEL)));
    edit.lower("max_memory_bytes", quotas.max_memory_bytes, (memory * MEMORY_MARGIN).max(MIB).div_ceil(MIB) * MIB);
    let changes = edit.changes;
    if changes.is_empty() {
        return Ok(None);
    }
    let offered = document.to_string();
    // What is offered must be a manifest, or it is not offered.
    Manifest::parse(offered.as_bytes()).map_err(|error| Refusal::bug(&error))?;
    Ok(Some(Tighter { changes, manifest: offered }))
}

/// What becomes of an entry.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Keep,
    Drop(String),
    Narrow(String, Vec<String>),
}

fn fate(row: &Row, is_wildcard: bool) -> Fate {
    if row.used.is_empty() {
        return Fate::Drop(row.declared.clone());
    }
    if !is_wildcard {
        return Fate::Keep;
    }
    let narrower: BTreeSet<String> = match row.capability {
        "filesystem.read_roots" | "filesystem.write_roots" => row.used.iter().map(|path| directory_of(path)).collect(),
        _ => row.used.iter().cloned().collect(),
    };
    // A file in the workspace itself lies in no directory that could be named.
    if narrower.contains("*") { Fate::Keep } else { Fate::Narrow(row.declared.clone(), narrower.into_iter().collect()) }
}

fn directory_of(path: &str) -> String {
    path.rsplit_once('/').map_or_else(|| "*".to_owned(), |(directory, _)| directory.to_owned())
}

/// Two digits that count, rounded up.
fn rounded(number: u64) -> u64 {
    let unit = 10_u64.pow(number.max(1).ilog10().saturating_sub(1));
    number.div_ceil(unit).saturating_mul(unit)
}

struct Edit<'a> {
    document: &'a mut DocumentMut,
    changes: Vec<String>,
}

impl Edit<'_> {
    fn capabilities(&mut self) -> Option<&mut dyn TableLike> {
        self.document.get_mut("capabilities")?.as_table_like_mut()
    }

    /// The item at a path below `capabilities`.
    fn item(&mut self, path: &[&str]) -> Option<&mut Item> {
        let (last, before) = path.split_last()?;
        let mut table = self.capabilities()?;
        for name in before {
            table = table.get_mut(name)?.as_table_like_mut()?;
        }
        table.get_mut(last)
    }

    /// Changes a list; its entries stand in the order of the fates.
    fn entries(&mut self, capability: &str, path: &[&str], fates: &[Fate]) {
        if fates.iter().all(|fate| *fate == Fate::Keep) {
            return;
        }
        match self.item(path) {
            Some(Item::Value(Value::Array(list))) => change_list(list, fates),
            Some(Item::ArrayOfTables(tables)) => change_tables(tables, fates),
            _ => return,
        }
        for fate in fates {
            match fate {
                Fate::Keep => {}
                Fate::Drop(entry) => self.changes.push(format!("{capability}: without `{entry}`, which was not used")),
                Fate::Narrow(entry, names) => {
                    self.changes.push(format!("{capability}: `{}` instead of `{entry}`", names.join("`, `")));
                }
            }
        }
    }

    /// Takes out the reasons of wildcards that are no longer there.
    fn wildcards(&mut self, rows: &[Row], declared: &Capabilities) {
        let stays = |capability: WildcardCapability, pattern: &str| {
            let row = rows.iter().find(|row| row.capability == capability.as_str() && row.declared == pattern);
            row.is_some_and(|row| fate(row, true) == Fate::Keep)
        };
        let keep: Vec<bool> = declared.wildcards.iter().map(|own| stays(own.capability, &own.pattern)).collect();
        let mut at = keep.iter();
        match self.item(&["wildcards"]) {
            Some(Item::ArrayOfTables(tables)) => tables.retain(|_| at.next().copied().unwrap_or(true)),
            Some(Item::Value(Value::Array(list))) => list.retain(|_| at.next().copied().unwrap_or(true)),
            _ => {}
        }
    }

    fn remove(&mut self, path: &[&str], change: &str) {
        let Some((last, before)) = path.split_last() else { return };
        let Some(table) = self.item(before).and_then(Item::as_table_like_mut) else { return };
        if table.remove(last).is_some() {
            self.changes.push(change.to_owned());
        }
    }

    /// Lowers a quota that is more than twice too high.
    fn lower(&mut self, quota: &str, declared: u64, enough: u64) {
        let Ok(number) = i64::try_from(enough) else { return };
        if enough > declared / 2 {
            return;
        }
        let table = |item: &mut Item| {
            if item.is_none() {
                let mut table = Table::new();
                table.set_implicit(true);
                *item = Item::Table(table);
            }
        };
        let capabilities = self.document.entry("capabilities").or_insert(Item::None);
        table(capabilities);
        let Some(capabilities) = capabilities.as_table_like_mut() else { return };
        let quotas = capabilities.entry("quotas").or_insert(Item::Table(Table::new()));
        let Some(quotas) = quotas.as_table_like_mut() else { return };
        quotas.insert(quota, value(number));
        self.changes.push(format!("quotas.{quota}: {enough} instead of {declared}"));
    }
}

fn change_list(list: &mut Array, fates: &[Fate]) {
    let mut changed = Array::new();
    for (entry, fate) in list.iter().zip(fates) {
        match fate {
            Fate::Keep => changed.push_formatted(entry.clone()),
            Fate::Drop(_) => {}
            Fate::Narrow(_, names) => {
                for name in names {
                    changed.push(narrowed(entry, name));
                }
            }
        }
    }
    changed.fmt();
    *list = changed;
}

/// A narrower entry in the form of the wider one: a text, or a table of scope and key.
fn narrowed(entry: &Value, name: &str) -> Value {
    match (entry, name.split_once('/')) {
        (Value::InlineTable(table), Some((scope, key))) => {
            let mut table = table.clone();
            table.insert("scope", scope.into());
            table.insert("key", key.into());
            Value::InlineTable(table)
        }
        _ => name.into(),
    }
}

fn change_tables(tables: &mut ArrayOfTables, fates: &[Fate]) {
    let mut changed = ArrayOfTables::new();
    for (entry, fate) in tables.iter().zip(fates) {
        match fate {
            Fate::Keep => changed.push(entry.clone()),
            Fate::Drop(_) => {}
            Fate::Narrow(_, names) => {
                for (scope, key) in names.iter().filter_map(|name| name.split_once('/')) {
                    let mut table = entry.clone();
                    table.insert("scope", value(scope));
                    table.insert("key", value(key));
                    changed.push(table);
                }
            }
        }
    }
    *tables = changed;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(capabilities: &str) -> String {
        format!(
            r#"# A comment that stays.
format = 1
[metadata]
skill_id = "acme.x"
version = "1.0.0"
publisher = "acme"
name = "X"
[entrypoints]
module = "modules/x.wasm"
[[entrypoints.tools]]
id = "run"
description = "Runs."
risk = "critical"
input_schema = {{ type = "object" }}
output_schema = {{ type = "object" }}
{capabilities}
[compat]
required_protocol_major = 1
min_palyra_version = "0.1.0"
"#
        )
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn offered(capabilities: &str, observed: &Observed, used: (u64, u64)) -> Option<Tighter> {
        let text = manifest(capabilities);
        let manifest = Manifest::parse(text.as_bytes()).unwrap();
        let rows = rows(&manifest.capabilities, observed, false);
        tightened(text.as_bytes(), &manifest, &rows, used).unwrap()
    }

    const EVERYTHING: (u64, u64) = (2_000_000_000, 256 << 20);

    #[test]
    fn what_was_used_stays_and_the_rest_goes() {
        let asked = r#"
[capabilities.http]
egress = ["api.example.org", "evil.example.org"]
[capabilities.filesystem]
read_roots = ["data", "docs"] # what it reads
write_roots = ["*"]
[[capabilities.secrets]]
scope = "global"
key = "*"
[[capabilities.secrets]]
scope = "other"
key = "key"
[capabilities.storage]
max_bytes = 10
[[capabilities.wildcards]]
capability = "filesystem.write_roots"
pattern = "*"
reason = "anywhere"
[[capabilities.wildcards]]
capability = "secrets"
pattern = "global/*"
reason = "any"
"#;
        let observed = Observed {
            hosts: names(&["api.example.org:443"]),
            secrets: names(&["global/token"]),
            read: names(&["data/a.csv"]),
            written: names(&["reports/2024/a.txt", "reports/b.txt"]),
            ..Observed::default()
        };
        let tighter = offered(asked, &observed, EVERYTHING).unwrap();
        assert!(tighter.manifest.starts_with("# A comment that stays."), "{}", tighter.manifest);
        let manifest = Manifest::parse(tighter.manifest.as_bytes()).unwrap().capabilities;
        let texts = |roots: &[RootPath]| roots.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(manifest.egress.iter().map(ToString::to_string).collect::<Vec<_>>(), ["api.example.org"]);
        assert_eq!(texts(&manifest.read_roots), ["data"]);
        assert_eq!(texts(&manifest.write_roots), ["reports", "reports/2024"]);
        assert_eq!(manifest.secrets.iter().map(ToString::to_string).collect::<Vec<_>>(), ["global/token"]);
        assert_eq!((manifest.storage_bytes, manifest.wildcards.len()), (0, 0));
        assert_eq!(tighter.changes.len(), 6, "{:?}", tighter.changes);
    }

    #[test]
    fn quotas_are_lowered_only_when_they_are_far_too_high() {
        let lowered = offered("", &Observed::default(), (1_234_567, 1)).unwrap();
        let quotas = Manifest::parse(lowered.manifest.as_bytes()).unwrap().capabilities.quotas;
        assert_eq!((quotas.fuel_budget, quotas.max_memory_bytes), (13_000_000, MIB));
        assert!(offered("", &Observed::default(), EVERYTHING).is_none());
        let inline = "capabilities = { quotas = { fuel_budget = 2_000_000_000 } }\n";
        let text = manifest("").replacen("format = 1\n", &format!("format = 1\n{inline}"), 1);
        let parsed = Manifest::parse(text.as_bytes()).unwrap();
        let tighter = tightened(text.as_bytes(), &parsed, &[], (1, 256 << 20)).unwrap().unwrap();
        assert_eq!(tighter.changes, ["quotas.fuel_budget: 1000000 instead of 2000000000"]);
    }

    #[test]
    fn a_wildcard_that_a_file_of_the_workspace_itself_needs_stays() {
        let asked = r#"
[capabilities.filesystem]
read_roots = ["*"]
[[capabilities.wildcards]]
capability = "filesystem.read_roots"
pattern = "*"
reason = "anywhere"
"#;
        let observed = Observed { read: names(&["README.md"]), ..Observed::default() };
        assert!(offered(asked, &observed, EVERYTHING).is_none());
    }
}

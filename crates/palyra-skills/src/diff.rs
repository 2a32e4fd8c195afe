//! What an update changes, and whether it may do more than before.
//!
//! A person who approved one version has not approved the next. [`SkillDiff`] names every difference in what a skill
//! asks for and in what a model is told, and says of each whether it widens: an update that widens nothing needs no new
//! consent.

use crate::audit::{ImportClass, classify};
use crate::ids::SkillVersion;
use crate::manifest::{Manifest, SkillKind, Tool};
use crate::package::Inspection;
use palyra_protocol::json::canonical_value;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;

/// What a difference is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// Another key signed.
    Key,
    /// Directories that are read.
    ReadRoot,
    /// Directories that are written.
    WriteRoot,
    /// Hosts.
    Host,
    /// Secrets.
    Secret,
    /// Private storage.
    Storage,
    /// Fuel, memory, time.
    Quota,
    /// Imports of the components.
    Import,
    /// Tools that come or go.
    Tool,
    /// What a model is told about a tool.
    Description,
    /// A tool's input or output.
    Schema,
    /// What the publisher says about a tool's risk.
    Risk,
    /// Code and other files.
    Content,
    /// What it runs on.
    Compat,
}

impl ChangeKind {
    /// The name in listings.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::ReadRoot => "read_root",
            Self::WriteRoot => "write_root",
            Self::Host => "host",
            Self::Secret => "secret",
            Self::Storage => "storage",
            Self::Quota => "quota",
            Self::Import => "import",
            Self::Tool => "tool",
            Self::Description => "description",
            Self::Schema => "schema",
            Self::Risk => "risk",
            Self::Content => "content",
            Self::Compat => "compat",
        }
    }
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SkillChange {
    /// What it is about.
    pub kind: ChangeKind,
    /// Of which tool, entry or quota, where there are several.
    pub subject: String,
    /// What was there before.
    pub before: Option<String>,
    /// What is there now.
    pub after: Option<String>,
    /// Whether the skill may do more, or a model is told something else, than what was approved.
    pub widens: bool,
}

impl fmt::Display for SkillChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |text: &Option<String>| text.clone().unwrap_or_else(|| "–".to_owned());
        let mark = if self.widens { "+" } else { " " };
        let subject = if self.subject.is_empty() { String::new() } else { format!(" {}", self.subject) };
        write!(f, "{mark} {}{subject}: {} → {}", self.kind.as_str(), show(&self.before), show(&self.after))
    }
}

/// The difference between two artifacts of a skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SkillDiff {
    /// The version before.
    pub from: SkillVersion,
    /// The version after.
    pub to: SkillVersion,
    /// Whether any change widens.
    pub widens: bool,
    /// Every change, those that widen first.
    pub changes: Vec<SkillChange>,
}

impl SkillDiff {
    /// Compares two artifacts.
    #[must_use]
    pub fn between(old: &Inspection, new: &Inspection) -> Self {
        let mut changes = Changes::default();
        if old.key_id != new.key_id {
            changes.replaced(ChangeKind::Key, "", old.key_id.as_str(), new.key_id.as_str(), true);
        }
        capabilities(&mut changes, &old.manifest, &new.manifest);
        imports(&mut changes, old, new);
        tools(&mut changes, &old.manifest, &new.manifest);
        content(&mut changes, old, new);
        let (before, after) = (&old.manifest.compat, &new.manifest.compat);
        for (subject, before, after) in [
            ("min_palyra_version", before.min_palyra_version.to_string(), after.min_palyra_version.to_string()),
            (
                "required_protocol_major",
                before.required_protocol_major.to_string(),
                after.required_protocol_major.to_string(),
            ),
        ] {
            if before != after {
                changes.replaced(ChangeKind::Compat, subject, &before, &after, false);
            }
        }
        let mut changes = changes.0;
        changes.sort_by_key(|change| (!change.widens, change.kind));
        Self {
            from: old.manifest.metadata.version.clone(),
            to: new.manifest.metadata.version.clone(),
            widens: changes.iter().any(|change| change.widens),
            changes,
        }
    }
}

#[derive(Default)]
struct Changes(Vec<SkillChange>);

impl Changes {
    fn replaced(&mut self, kind: ChangeKind, subject: &str, before: &str, after: &str, widens: bool) {
        let (before, after) = (Some(before.to_owned()), Some(after.to_owned()));
        self.0.push(SkillChange { kind, subject: subject.to_owned(), before, after, widens });
    }

    fn added(&mut self, kind: ChangeKind, subject: &str, after: String, widens: bool) {
        self.0.push(SkillChange { kind, subject: subject.to_owned(), before: None, after: Some(after), widens });
    }

    fn removed(&mut self, kind: ChangeKind, subject: &str, before: String) {
        let before = Some(before);
        self.0.push(SkillChange { kind, subject: subject.to_owned(), before, after: None, widens: false });
    }

    /// Compares two lists. What is new widens unless something before covers it.
    fn list<T: PartialEq + fmt::Display>(
        &mut self,
        kind: ChangeKind,
        old: &[T],
        new: &[T],
        covers: impl Fn(&T, &T) -> bool,
    ) {
        for item in new.iter().filter(|item| !old.contains(item)) {
            let widens = !old.iter().any(|before| covers(before, item));
            self.added(kind, "", item.to_string(), widens);
        }
        for item in old.iter().filter(|item| !new.contains(item)) {
            self.removed(kind, "", item.to_string());
        }
    }

    fn number(&mut self, kind: ChangeKind, subject: &str, old: u64, new: u64) {
        if old != new {
            self.replaced(kind, subject, &old.to_string(), &new.to_string(), new > old);
        }
    }
}

fn capabilities(changes: &mut Changes, old: &Manifest, new: &Manifest) {
    let (old, new) = (&old.capabilities, &new.capabilities);
    changes.list(ChangeKind::ReadRoot, &old.read_roots, &new.read_roots, |a, b| a.covers(b));
    changes.list(ChangeKind::WriteRoot, &old.write_roots, &new.write_roots, |a, b| a.covers(b));
    changes.list(ChangeKind::Host, &old.egress, &new.egress, |a, b| a.covers(b));
    changes.list(ChangeKind::Secret, &old.secrets, &new.secrets, |a, b| a.scope == b.scope && a.is_wildcard());
    changes.number(ChangeKind::Storage, "max_bytes", old.storage_bytes, new.storage_bytes);
    let (old, new) = (&old.quotas, &new.quotas);
    changes.number(ChangeKind::Quota, "fuel_budget", old.fuel_budget, new.fuel_budget);
    changes.number(ChangeKind::Quota, "max_memory_bytes", old.max_memory_bytes, new.max_memory_bytes);
    changes.number(ChangeKind::Quota, "wall_clock_ms", old.wall_clock_ms, new.wall_clock_ms);
}

/// Imports of all components, without their versions: a toolchain's new minor version is no news.
fn imports(changes: &mut Changes, old: &Inspection, new: &Inspection) {
    let all = |inspection: &Inspection| -> BTreeSet<String> {
        let facts = inspection.modules.iter().filter_map(|module| module.facts.as_ref());
        facts.flat_map(|facts| facts.imports.iter().cloned()).collect()
    };
    let plain = |name: &String| name.split('@').next().unwrap_or(name).to_owned();
    let (before, after) = (all(old), all(new));
    let known: BTreeSet<String> = before.iter().map(plain).collect();
    let kept: BTreeSet<String> = after.iter().map(plain).collect();
    for import in after.iter().filter(|import| !known.contains(&plain(import))) {
        changes.added(ChangeKind::Import, "", import.clone(), classify(import) != ImportClass::Harmless);
    }
    for import in before.iter().filter(|import| !kept.contains(&plain(import))) {
        changes.removed(ChangeKind::Import, "", import.clone());
    }
}

fn tools(changes: &mut Changes, old: &Manifest, new: &Manifest) {
    let of = |manifest: &'_ Manifest, tool: &Tool| manifest.tools.iter().find(|other| other.id == tool.id).cloned();
    for tool in &new.tools {
        let id = tool.id.as_str();
        let Some(before) = of(old, tool) else {
            changes.added(ChangeKind::Tool, id, tool.description.clone(), true);
            continue;
        };
        if before.description != tool.description {
            changes.replaced(ChangeKind::Description, id, &before.description, &tool.description, true);
        }
        for (which, was, is) in [
            ("input", &before.input_schema, &tool.input_schema),
            ("output", &before.output_schema, &tool.output_schema),
        ] {
            if was != is {
                changes.replaced(ChangeKind::Schema, &format!("{id} {which}"), &text(was), &text(is), true);
            }
        }
        if before.risk != tool.risk {
            let (was, is) = (before.risk.as_str(), tool.risk.as_str());
            // Policy may treat a smaller risk more leniently.
            changes.replaced(ChangeKind::Risk, id, was, is, tool.risk < before.risk);
        }
        if before.code != tool.code {
            changes.replaced(
                ChangeKind::Content,
                id,
                before.code.entry(),
                tool.code.entry(),
                new.kind == SkillKind::Instructions,
            );
        }
    }
    for tool in old.tools.iter().filter(|tool| of(new, tool).is_none()) {
        changes.removed(ChangeKind::Tool, tool.id.as_str(), tool.description.clone());
    }
    let (was, is) = (&old.metadata.description, &new.metadata.description);
    if was != is {
        let show = |text: &Option<String>| text.clone().unwrap_or_default();
        changes.replaced(ChangeKind::Description, "", &show(was), &show(is), true);
    }
}

fn text(schema: &Value) -> String {
    canonical_value(schema).unwrap_or_default()
}

/// Files that differ. A component can only use what it is granted, so new code of it widens nothing; the scripts and
/// instructions of a folder are what a person approved, so they do.
fn content(changes: &mut Changes, old: &Inspection, new: &Inspection) {
    let widens = old.manifest.kind != new.manifest.kind || new.manifest.kind == SkillKind::Instructions;
    let metadata = ["skill.toml", "sbom.cdx.json", "provenance.json"];
    let is_content = |name: &str| !metadata.contains(&name);
    for entry in new.entries.iter().filter(|entry| is_content(&entry.name)) {
        match old.entries.iter().find(|before| before.name == entry.name) {
            Some(before) if before.sha256 == entry.sha256 => {}
            Some(before) => {
                changes.replaced(
                    ChangeKind::Content,
                    &entry.name,
                    &before.sha256.short(),
                    &entry.sha256.short(),
                    widens,
                );
            }
            None => changes.added(ChangeKind::Content, &entry.name, entry.sha256.short(), widens),
        }
    }
    for entry in old.entries.iter().filter(|entry| is_content(&entry.name)) {
        if !new.entries.iter().any(|after| after.name == entry.name) {
            changes.removed(ChangeKind::Content, &entry.name, entry.sha256.short());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instructions::{ImportRequest, import_files};
    use crate::package::{build, inspect};
    use crate::testing::{component, key, manifest, signed_by, source};

    fn inspection(capabilities: &str, imports: &[&str]) -> Inspection {
        let text = manifest("1.0.0").replace("# CAPABILITIES", capabilities);
        inspect(&build(&source(&text, component(imports)), &key(1)).unwrap().bytes).unwrap()
    }

    /// The changes as `mark kind after`.
    fn shown(old: &Inspection, new: &Inspection) -> Vec<String> {
        let diff = SkillDiff::between(old, new);
        assert_eq!(diff.widens, diff.changes.iter().any(|change| change.widens));
        let mark = |change: &SkillChange| if change.widens { "+" } else { "=" };
        let value =
            |c: &SkillChange| c.after.clone().or(c.before.as_ref().map(|b| format!("-{b}"))).unwrap_or_default();
        diff.changes.iter().map(|c| format!("{} {} {}", mark(c), c.kind.as_str(), value(c))).collect()
    }

    #[test]
    fn capabilities_widen_or_narrow() {
        let old = inspection(
            "[capabilities.filesystem]\nread_roots = [\"data\"]\n[capabilities.http]\negress = [\"a.org\"]\n[capabilities.quotas]\nwall_clock_ms = 10",
            &[],
        );
        let new = inspection(
            "[capabilities.filesystem]\nread_roots = [\"data/x\", \"more\"]\n[capabilities.http]\negress = [\"a.org:443\", \"b.org\"]\n[capabilities.quotas]\nwall_clock_ms = 20\n[[capabilities.secrets]]\nscope = \"s\"\nkey = \"k\"",
            &[],
        );
        assert_eq!(
            shown(&old, &new),
            [
                "+ read_root more",
                "+ host b.org",
                "+ secret s/k",
                "+ quota 20",
                "= read_root data/x",
                "= read_root -data",
                "= host a.org:443",
                "= host -a.org",
            ]
        );
        let back = SkillDiff::between(&new, &old);
        let widening: Vec<_> = back.changes.iter().filter(|c| c.widens).map(|c| c.after.clone().unwrap()).collect();
        assert_eq!(widening, ["data", "a.org"]);
        assert_eq!(shown(&old, &old), [""; 0]);
    }

    #[test]
    fn imports_are_compared_by_interface() {
        let old = inspection("", &["wasi:io/streams@0.2.0"]);
        let new = inspection("", &["wasi:io/streams@0.2.6", "wasi:filesystem/types@0.2.0", "wasi:random/random@0.2.0"]);
        let found = shown(&old, &new);
        assert_eq!(found[..2], ["+ import wasi:filesystem/types@0.2.0", "= import wasi:random/random@0.2.0"]);
        assert!(found[2].starts_with("= content"), "other code by itself widens nothing");
    }

    #[test]
    fn what_a_model_is_told_is_compared() {
        let old = inspection("", &[]);
        let with = |from: &str, to: &str| {
            let text = manifest("1.0.1").replacen(from, to, 1);
            inspect(&build(&source(&text, component(&[])), &key(1)).unwrap().bytes).unwrap()
        };
        assert_eq!(shown(&old, &with("it is given", "it got")), ["+ description Gives back what it got."]);
        assert_eq!(shown(&old, &with("risk = \"low\"", "risk = \"high\"")), ["= risk high"]);
        let schema =
            with("input_schema = { type = \"object\" }", "input_schema = { type = \"object\", maxProperties = 1 }");
        assert_eq!(shown(&old, &schema), ["+ schema {\"maxProperties\":1,\"type\":\"object\"}"]);
        assert_eq!(shown(&old, &with("id = \"echo\"", "id = \"say\""))[0], "+ tool Gives back what it is given.");
        let other_key = inspect(&signed_by("1.0.0", 2).bytes).unwrap();
        assert_eq!(shown(&old, &other_key), [format!("+ key {}", key(2).key_id())]);
    }

    #[test]
    fn scripts_are_what_was_approved() {
        let folder = |script: &str| {
            let request = ImportRequest {
                publisher: "acme".parse().unwrap(),
                version: "1.0.0".parse().unwrap(),
                read_roots: vec![],
                write_roots: vec![],
                egress: vec![],
                min_palyra_version: semver::Version::new(0, 1, 0),
            };
            let files = [("SKILL.md", "---\nname: x\ndescription: y\n---\n"), ("scripts/a.sh", script)];
            let files = files.map(|(name, text)| crate::archive::Entry::new(name, text.as_bytes().to_vec()));
            let source = import_files(files.to_vec(), &request).unwrap();
            inspect(&build(&source, &key(1)).unwrap().bytes).unwrap()
        };
        let found = shown(&folder("echo 1"), &folder("curl evil"));
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("+ content"));
    }
}

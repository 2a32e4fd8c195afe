//! Artifacts and audits for people. Every text of a skill goes through `safe`: a manifest's words must not reach a
//! terminal as commands.

use crate::printing::say;
use palyra_protocol::display::{safe, safe_lines};
use palyra_skills::audit::{AuditReport, Check, CheckStatus, ImportClass, classify};
use palyra_skills::manifest::{Capabilities, ToolCode};
use palyra_skills::package::Inspection;

/// A number of bytes for people.
pub(super) fn size(bytes: usize) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

/// What is in an artifact.
pub(super) fn inspection(inspection: &Inspection) {
    let (manifest, metadata) = (&inspection.manifest, &inspection.manifest.metadata);
    say(&format!("{} {}: {}", metadata.skill_id, metadata.version, safe(&metadata.name)));
    for (what, text) in
        [("", &metadata.description), ("license     ", &metadata.license), ("homepage    ", &metadata.homepage)]
    {
        if let Some(text) = text {
            say(&format!("{what}{}", safe_lines(text)));
        }
    }
    say(&format!("kind        {}", manifest.kind.as_str()));
    say(&format!(
        "publisher   {} (says the file; `palyra skills package verify` asks whether its key is trusted)",
        metadata.publisher
    ));
    say(&format!("key id      {}", inspection.key_id));
    say(&format!("public key  {}", inspection.public_key));
    say(&format!("sha256      {}", inspection.artifact_sha256));
    say(&format!("content     {}", inspection.content_sha256));
    say(&format!(
        "runs on     Palyra {} or later, protocol {}",
        manifest.compat.min_palyra_version, manifest.compat.required_protocol_major
    ));
    say("\ntools");
    for tool in &manifest.tools {
        let code = match &tool.code {
            ToolCode::Module(entry) => safe(entry),
            ToolCode::Script { path, interpreter } => safe(&format!("{} {path}", interpreter.join(" "))),
        };
        say(&format!("  {} (risk {}, {code})", tool.id, manifest.risk_of(tool)));
        for line in safe_lines(&tool.description).lines() {
            say(&format!("    {line}"));
        }
        say(&format!("    input   {}", safe(&tool.input_schema.to_string())));
        say(&format!("    output  {}", safe(&tool.output_schema.to_string())));
    }
    say("\nasks for");
    for line in asked(&manifest.capabilities) {
        say(&format!("  {line}"));
    }
    modules(inspection);
    say("\nfiles");
    for entry in &inspection.entries {
        say(&format!("  {}  {:>10}  {}", entry.sha256, size(entry.bytes), safe(&entry.name)));
    }
}

/// What a manifest asks for, a line for each.
pub(super) fn asked(capabilities: &Capabilities) -> Vec<String> {
    let list = |what: &str, items: Vec<String>| {
        let items: Vec<String> = items.iter().map(|item| safe(item)).collect();
        (!items.is_empty()).then(|| format!("{what:<12}{}", items.join(", ")))
    };
    let texts = |items: &[palyra_skills::manifest::RootPath]| items.iter().map(ToString::to_string).collect();
    let mut lines: Vec<String> = [
        list("http", capabilities.egress.iter().map(ToString::to_string).collect()),
        list("secrets", capabilities.secrets.iter().map(ToString::to_string).collect()),
        list("read", texts(&capabilities.read_roots)),
        list("write", texts(&capabilities.write_roots)),
        (capabilities.storage_bytes > 0).then(|| format!("{:<12}{} bytes", "storage", capabilities.storage_bytes)),
    ]
    .into_iter()
    .flatten()
    .collect();
    if lines.is_empty() {
        lines.push("nothing but computing".to_owned());
    }
    let quotas = &capabilities.quotas;
    lines.push(format!(
        "{:<12}fuel {}, memory {} bytes, {} ms",
        "at most", quotas.fuel_budget, quotas.max_memory_bytes, quotas.wall_clock_ms
    ));
    let wildcards = capabilities.wildcards.iter();
    lines.extend(wildcards.map(|wildcard| {
        let capability = wildcard.capability.as_str();
        format!("{:<12}{capability} {}: {}", "wildcard", safe(&wildcard.pattern), safe(&wildcard.reason))
    }));
    lines
}

fn modules(inspection: &Inspection) {
    for module in &inspection.modules {
        say(&format!("\n{} imports", safe(&module.name)));
        match (&module.facts, &module.fault) {
            (Some(facts), _) => {
                if facts.imports.is_empty() {
                    say("  nothing");
                }
                for import in &facts.imports {
                    let means = match classify(import) {
                        ImportClass::Harmless => "harmless".to_owned(),
                        ImportClass::Capability { needs, .. } => format!("needs {needs}"),
                        ImportClass::Forbidden { why } => format!("forbidden: {why}"),
                    };
                    say(&format!("  {}  ({means})", safe(import)));
                }
                if let Some(fault) = &facts.world {
                    say(&format!("  it is no skill: {}", safe(&fault.to_string())));
                }
            }
            (None, fault) => say(&format!("  {}", safe(fault.as_deref().unwrap_or("it cannot be read")))),
        }
    }
}

/// The answer of an audit.
pub(super) fn audit(report: &AuditReport) {
    for check in &report.checks {
        say(&format!("{} {}", mark(check.status), check.id.as_str()));
        lines_of(check);
    }
    let count = |status| report.with_status(status).count();
    let (pass, warn, fail) = (count(CheckStatus::Pass), count(CheckStatus::Warn), count(CheckStatus::Fail));
    say(&format!(
        "\n{pass} pass, {warn} warn, {fail} fail: {}",
        match report.verdict {
            CheckStatus::Fail => "this skill would be quarantined",
            CheckStatus::Warn => "this skill would be eligible; look at the warnings",
            CheckStatus::Pass => "this skill would be eligible",
        }
    ));
}

fn lines_of(check: &Check) {
    if check.status == CheckStatus::Pass {
        return;
    }
    for evidence in &check.evidence {
        say(&format!("    {}", safe(evidence)));
    }
    if let Some(remedy) = check.remedy {
        say(&format!("    remedy: {remedy}"));
    }
}

fn mark(status: CheckStatus) -> &'static str {
    match status {
        CheckStatus::Pass => "✔",
        CheckStatus::Warn => "!",
        CheckStatus::Fail => "✘",
    }
}

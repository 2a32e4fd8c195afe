//! Skills on the screen: tables, grants, audits, differences.

use super::text;
use crate::context::Context;
use crate::exit::Failure;
use crate::output::{self, BAD, BOLD, DIM, GOOD, WARN, say, styled, when};
use crate::text::safe;
use palyra_protocol::Timestamp;
use serde_json::Value;

fn items<'a>(document: &'a Value, pointer: &str) -> &'a [Value] {
    document.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn words(document: &Value, pointer: &str) -> String {
    items(document, pointer).iter().filter_map(Value::as_str).map(safe).collect::<Vec<_>>().join(", ")
}

fn time(document: &Value, pointer: &str) -> String {
    let at = document.pointer(pointer).and_then(|at| serde_json::from_value::<Timestamp>(at.clone()).ok());
    at.map_or_else(|| "–".to_owned(), when)
}

pub(super) fn list(context: &Context, listing: &Value) -> Result<(), Failure> {
    if context.json() {
        return output::json(listing);
    }
    if let Some(problem) = listing.get("problem") {
        say!("{} no skill is served: {}", styled(BAD, "✘"), safe(text(problem, "/message")));
    }
    let skills = items(listing, "/skills");
    if skills.is_empty() {
        say!("No skill is installed. `palyra skills install FILE` installs one.");
        return Ok(());
    }
    let row = |skill: &Value| {
        let current = if skill["current"] == true { "*" } else { "" };
        let eligible = if skill["eligible"] == true { "yes" } else { "no" };
        let audit = match text(skill, "/verdict") {
            "" => "–".to_owned(),
            verdict => format!("{} {}", safe(verdict), time(skill, "/last_audit")),
        };
        vec![
            safe(text(skill, "/skill")),
            format!("{}{current}", safe(text(skill, "/version"))),
            safe(text(skill, "/runtime_status")),
            eligible.to_owned(),
            safe(text(skill, "/trust")),
            safe(text(skill, "/publisher")),
            audit,
            words(skill, "/checks"),
        ]
    };
    let rows: Vec<_> = skills.iter().map(row).collect();
    output::table(
        &["SKILL", "VERSION", "STATUS", "ELIGIBLE", "TRUST", "PUBLISHER", "LAST AUDIT", "FAILED CHECKS"],
        &rows,
    );
    if let Some(pass) = listing.get("pass") {
        say!("{}", styled(DIM, format!("{} read and audited, {} unchanged", pass["read"], pass["unchanged"])));
    }
    Ok(())
}

pub(super) fn available(context: &Context, listing: &Value) -> Result<(), Failure> {
    if context.json() {
        return output::json(listing);
    }
    if let Some(registry) = listing["registry"].as_str() {
        say!("registry {}, list {}, key {}", safe(registry), listing["revision"], safe(text(listing, "/key_id")));
    }
    let row = |artifact: &Value| {
        let state = if artifact["is_withdrawn"] == true { "withdrawn" } else { "" };
        let column = |pointer: &str| safe(text(artifact, pointer));
        vec![column("/skill_id"), column("/version"), column("/publisher"), state.to_owned()]
    };
    let rows: Vec<_> = items(listing, "/artifacts").iter().map(row).collect();
    output::table(&["SKILL", "VERSION", "PUBLISHER", ""], &rows);
    for file in items(listing, "/refused") {
        say!("{} {}: {}", styled(WARN, "!"), safe(text(file, "/0")), safe(text(file, "/1")));
    }
    Ok(())
}

pub(super) fn info(context: &Context, info: &Value) -> Result<(), Failure> {
    if context.json() {
        return output::json(info);
    }
    let (skill, version) = (safe(text(info, "/skill")), safe(text(info, "/version")));
    say!("{} {version}  {}", styled(BOLD, &skill), safe(text(info, "/name")));
    let status = text(info, "/runtime_status");
    let style = if status == "eligible" { GOOD } else { WARN };
    say!("  status     {}  {}", styled(style, safe(status)), safe(text(info, "/reason")));
    if !items(info, "/checks").is_empty() {
        say!("  failed     {}", words(info, "/checks"));
    }
    if !items(info, "/change/overridden").is_empty() {
        say!("  let pass   {} by {}", words(info, "/change/overridden"), safe(text(info, "/change/by")));
    }
    say!(
        "  publisher  {}  key {}  {}",
        safe(text(info, "/publisher")),
        safe(text(info, "/key_id")),
        safe(text(info, "/trust"))
    );
    say!("  installed  {} by {}", time(info, "/installed_at"), safe(text(info, "/installed_by")));
    say!("  versions   {}", words(info, "/versions"));
    for tool in items(info, "/tools_listed") {
        let allowed = if tool["allowed"] == true { String::new() } else { styled(WARN, "  not in `allowed_tools`") };
        say!("  tool       {}  {}{allowed}", safe(text(tool, "/name")), styled(DIM, safe(text(tool, "/risk"))));
    }
    grant(info);
    if info["audit"].is_object() {
        let verdict = safe(text(info, "/audit/verdict"));
        say!("  audit      {verdict}, {}; `palyra skills audit {skill}` shows every check", time(info, "/last_audit"));
    }
    Ok(())
}

/// What was asked for and granted, and what was asked for and withheld.
fn grant(info: &Value) {
    for (name, key) in [("hosts", "http"), ("secrets", "secrets"), ("reads", "read"), ("writes", "write")] {
        let granted = words(info, &format!("/grant/{key}"));
        if !granted.is_empty() {
            say!("  {name:<10} {granted}");
        }
    }
    if let Some(bytes) = info.pointer("/grant/storage_bytes").and_then(Value::as_u64).filter(|bytes| *bytes > 0) {
        say!("  storage    {bytes} bytes");
    }
    let limit = |name: &str| info.pointer(&format!("/grant/limits/{name}")).and_then(Value::as_u64).unwrap_or(0);
    let (fuel, memory, time) = (limit("fuel"), limit("memory_bytes"), limit("wall_clock_ms"));
    say!("  limits     {fuel} fuel, {memory} bytes of memory, {time} ms");
    for one in items(info, "/grant/withheld") {
        say!("  {}   {}", styled(WARN, "withheld"), withheld(one));
    }
    say!("  grant      {}", safe(text(info, "/grant_sha256")));
}

/// One thing that was asked for and is not granted, or not all of it.
pub(super) fn withheld(withheld: &Value) -> String {
    let (kind, asked) = (safe(text(withheld, "/kind")), safe(text(withheld, "/asked")));
    match words(withheld, "/granted") {
        granted if granted.is_empty() => format!("{kind} {asked}: `[wasm_runtime]` does not allow it"),
        granted => format!("{kind} {asked}: only {granted}"),
    }
}

pub(super) fn audit(context: &Context, audit: &Value) -> Result<(), Failure> {
    if context.json() {
        return output::json(audit);
    }
    if audit.is_null() {
        say!("It was not audited yet by this daemon; `palyra skills check` audits everything now.");
        return Ok(());
    }
    for check in items(audit, "/checks") {
        let (mark, style) = match text(check, "/status") {
            "pass" => ("✔", GOOD),
            "warn" => ("!", WARN),
            _ => ("✘", BAD),
        };
        say!("{} {}", styled(style, mark), safe(text(check, "/id")));
        if text(check, "/status") != "pass" {
            items(check, "/evidence").iter().filter_map(Value::as_str).for_each(|line| say!("    {}", safe(line)));
            say!("    {}", styled(DIM, safe(text(check, "/remedy"))));
        }
    }
    say!("verdict: {}", safe(text(audit, "/verdict")));
    Ok(())
}

pub(super) fn diff(context: &Context, diff: &Value) -> Result<(), Failure> {
    if context.json() {
        return output::json(diff);
    }
    if diff.is_null() {
        say!("No other version of this skill runs, so nothing changes.");
        return Ok(());
    }
    say!("{} → {}", safe(text(diff, "/from")), safe(text(diff, "/to")));
    for change in items(diff, "/changes") {
        let widens = change["widens"] == true;
        let part = |pointer: &str| match text(change, pointer) {
            "" => "–".to_owned(),
            text => safe(text),
        };
        let (kind, subject) = (safe(text(change, "/kind")), safe(text(change, "/subject")));
        let mark = if widens { styled(WARN, "+") } else { " ".to_owned() };
        say!("{mark} {kind} {subject}: {} → {}", part("/before"), part("/after"));
    }
    say!("{}", if diff["widens"] == true { "It may do more than before." } else { "It may do no more than before." });
    Ok(())
}

pub(super) fn replayed(context: &Context, report: &Value) -> Result<(), Failure> {
    if context.json() {
        return output::json(report);
    }
    let ended = safe(text(report, "/ended"));
    say!("{} {} ended the same: {ended}", styled(GOOD, "✔"), safe(text(report, "/call_id")));
    if let Some(digest) = report["output_sha256"].as_str() {
        say!("  output     {} as attested", safe(digest));
    }
    say!("  component  {}", safe(text(report, "/module_sha256")));
    say!("  fuel       {}, {} recorded answers", report["fuel_used"], report["recorded_answers"]);
    Ok(())
}

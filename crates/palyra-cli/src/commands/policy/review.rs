//! `palyra policy diff`, `simulate` and `suggest`.

use super::super::read;
use super::candidate::files;
use super::indent;
use crate::args::{Simulate, Suggest};
use crate::context::Context;
use crate::exit::{FAILED, Failure};
use crate::output::{self, BAD, BOLD, DIM, GOOD, WARN, note, say, styled, when};
use crate::text::{safe, safe_lines};
use anstyle::Style;
use palyra_api::Connection;
use palyra_api::v1::{ComparePolicyRequest, SimulatePolicyRequest, StatusRequest, SuggestRulesRequest};
use palyra_protocol::Timestamp;
use serde_json::Value;
use std::path::PathBuf;

pub async fn diff(context: &Context, directory: Option<PathBuf>) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let directory = match directory {
        Some(directory) => directory,
        None => own_directory(&connection).await?,
    };
    let files = files(&directory)?;
    let reply = connection.policy().compare(ComparePolicyRequest { files }).await?.into_inner();
    let diff: Value = read(&reply.diff_json)?;
    let same = diff["from"] == diff["to"];
    if context.json() {
        output::json(&diff)?;
    } else if same {
        say!("{} this is the set in force", styled(GOOD, "✔"));
    } else {
        print_diff(&diff);
    }
    if same {
        return Ok(());
    }
    Err(Failure::new(FAILED, "policy_differs", "the sets are not the same", None))
}

/// The directory that the daemon reads its rules from.
async fn own_directory(connection: &Connection) -> Result<PathBuf, Failure> {
    let status = connection.daemon().status(StatusRequest { probe_sandbox: false }).await?.into_inner();
    let policy: Value = read(&status.policy_json)?;
    policy["directory"].as_str().map(PathBuf::from).ok_or_else(|| {
        Failure::new(
            FAILED,
            "no_policy_dir",
            "the daemon has no policy directory",
            Some("name one: `palyra policy diff DIR`"),
        )
    })
}

fn print_diff(diff: &Value) {
    let all = |key: &str| diff[key].as_array().cloned().unwrap_or_default();
    let text = |rule: &Value, key: &str| safe(rule[key].as_str().unwrap_or(""));
    let body = |rule: &Value| indent(&safe_lines(rule["text"].as_str().unwrap_or("")));
    for rule in all("removed") {
        say!("{} {}  {}", styled(BAD, "-"), styled(BOLD, text(&rule, "id")), styled(DIM, text(&rule, "source")));
        say!("{}", styled(BAD, body(&rule)));
    }
    for rule in all("added") {
        say!("{} {}  {}", styled(GOOD, "+"), styled(BOLD, text(&rule, "id")), styled(DIM, text(&rule, "source")));
        say!("{}", styled(GOOD, body(&rule)));
    }
    for change in all("changed") {
        let (from, to) = (&change["from"], &change["to"]);
        say!("{} {}  {}", styled(WARN, "~"), styled(BOLD, text(to, "id")), styled(DIM, text(to, "source")));
        say!("{}\n{}", styled(BAD, body(from)), styled(GOOD, body(to)));
    }
    if diff["members_changed"] == Value::Bool(true) {
        say!("{} groups or members differ", styled(WARN, "~"));
    }
}

pub async fn simulate(context: &Context, simulate: &Simulate) -> Result<(), Failure> {
    let request = SimulatePolicyRequest { since_unix_ms: simulate.since, files: files(&simulate.candidate)? };
    let connection = context.connect().await?;
    let mut updates = connection.policy().simulate(request).await?.into_inner();
    let mut report = None;
    while let Some(update) = updates.message().await? {
        if update.report_json.is_empty() {
            note!("{}", styled(DIM, format!("{} decisions replayed", update.replayed)));
        } else {
            report = Some(read::<Value>(&update.report_json)?);
        }
    }
    let report = report.ok_or_else(|| {
        Failure::new(FAILED, "unexpected_answer", "the daemon broke off", Some("try again; see `palyra doctor`"))
    })?;
    if context.json() {
        return output::json(&report);
    }
    let since = when(Timestamp::from_unix_ms(simulate.since));
    say!("{} decisions since {since}, {} of them unchanged", report["replayed"], report["unchanged"]);
    shift("newly allowed", &report["newly_allowed"], GOOD);
    shift("newly denied", &report["newly_denied"], BAD);
    shift("newly asking", &report["newly_asking"], WARN);
    Ok(())
}

fn shift(name: &str, shift: &Value, style: Style) {
    say!("\n{} {}", styled(style.bold(), name), shift["count"]);
    for example in shift["examples"].as_array().into_iter().flatten() {
        let text = |key: &str| safe(example[key].as_str().unwrap_or(""));
        let at = example["at"].as_u64().map_or_else(String::new, |ms| when(Timestamp::from_unix_ms(ms)));
        say!(
            "  • {} {} by {}, {at} ({})",
            styled(BOLD, text("tool")),
            text("what"),
            text("principal"),
            text("call_id")
        );
        say!("    was {}, would be {}: {}", text("was"), text("would_be"), text("why"));
    }
}

/// Writes each suggestion as a rule with its cases. Nothing that is there is replaced.
fn write(context: &Context, suggestions: &[Value], directory: &std::path::Path) -> Result<(), Failure> {
    let mut written = Vec::new();
    for suggestion in suggestions {
        let text = |key: &str| suggestion[key].as_str().unwrap_or("");
        let id = text("id");
        // The daemon makes these ids; a name that leads elsewhere is none of them.
        if id.is_empty() || !id.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')) {
            return Err(Failure::new(FAILED, "unexpected_answer", format!("`{}` is no rule's id", safe(id)), None));
        }
        for (name, content) in [(format!("{id}.cedar"), text("rule")), (format!("{id}.cases.toml"), text("cases"))] {
            let path = directory.join(&name);
            let made = std::fs::File::options().write(true).create_new(true).open(&path);
            let put = made.and_then(|mut file| std::io::Write::write_all(&mut file, content.as_bytes()));
            put.map_err(|e| Failure::io(&format!("`{}` cannot be written", safe(&path.to_string_lossy())), &e))?;
            written.push(path);
        }
    }
    if context.json() {
        return output::json(&written);
    }
    for path in &written {
        say!("{} {}", styled(GOOD, "✔"), safe(&path.to_string_lossy()));
    }
    if written.is_empty() {
        note!("nothing was approved so often, and so alike, that a narrow rule would have spared it");
    } else {
        let hint = format!("try it: palyra policy check {}", safe(&directory.to_string_lossy()));
        note!("{}", styled(DIM, hint));
    }
    Ok(())
}

pub async fn suggest(context: &Context, suggest: &Suggest) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let request = SuggestRulesRequest { since_unix_ms: suggest.since, least: suggest.least };
    let reply = connection.policy().suggest(request).await?.into_inner();
    let suggestions: Vec<Value> = read(&reply.suggestions_json)?;
    if let Some(directory) = &suggest.to {
        return write(context, &suggestions, directory);
    }
    if context.json() {
        return output::json(&suggestions);
    }
    if suggestions.is_empty() {
        note!("nothing was approved so often, and so alike, that a narrow rule would have spared it");
    }
    for suggestion in &suggestions {
        let text = |key: &str| suggestion[key].as_str().unwrap_or("").trim_end();
        let id = safe(text("id"));
        say!("{}  would have spared {} approvals", styled(BOLD, &id), suggestion["spared"]);
        say!("\n{}\n{}", styled(DIM, format!("{id}.cedar")), safe_lines(text("rule")));
        say!("\n{}\n{}\n", styled(DIM, format!("{id}.cases.toml")), safe_lines(text("cases")));
    }
    if !suggestions.is_empty() {
        note!(
            "{}",
            styled(DIM, "nothing was applied; put what you agree with into your policy directory, its cases beside it")
        );
    }
    Ok(())
}

//! `palyra policy`: what would be decided, and why; and what can be done with rules.

mod candidate;
mod review;
mod rules;

use super::read;
use crate::args::{Policy, PolicyDirectory, Proposed};
use crate::context::Context;
use crate::delegate::become_daemon;
use crate::exit::Failure;
use crate::output::{self, BAD, BOLD, DIM, GOOD, WARN, say, styled};
use crate::text::{safe, safe_lines};
use palyra_protocol::{CallRecord, DecisionKind, ToolDecision};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::PathBuf;

pub async fn run(context: &Context, command: Policy) -> Result<(), Failure> {
    match command {
        Policy::Explain { proposed, candidate } => explain(context, &proposed, candidate).await,
        Policy::Check(directory) => Err(on_directory(context, "check", directory)),
        Policy::Test(directory) => Err(on_directory(context, "test", directory)),
        Policy::Decide { candidate, workspace, config, jsonl: _ } => {
            let mut words = Vec::new();
            option(&mut words, "--workspace", workspace);
            option(&mut words, "--config", config);
            let format = if context.json() { "json" } else { "text" };
            words.extend(["policy", "decide", "--jsonl", "--output", format].map(OsString::from));
            option(&mut words, "--candidate", candidate);
            Err(become_daemon(context, words))
        }
        Policy::Simulate(simulate) => review::simulate(context, &simulate).await,
        Policy::Suggest(suggest) => review::suggest(context, &suggest).await,
        Policy::Diff { directory } => review::diff(context, directory).await,
        Policy::Show { id } => rules::show(context, id).await,
        Policy::Reload => rules::reload(context).await,
    }
}

/// Hands a command about a directory over to `palyrad`.
fn on_directory(context: &Context, command: &str, directory: PolicyDirectory) -> Failure {
    let mut words = Vec::new();
    option(&mut words, "--config", directory.config);
    words.extend(["policy", command, "--output", if context.json() { "json" } else { "text" }].map(OsString::from));
    words.extend(directory.directory.map(OsString::from));
    become_daemon(context, words)
}

fn option(words: &mut Vec<OsString>, name: &str, value: Option<PathBuf>) {
    if let Some(value) = value {
        words.extend([name.into(), value.into_os_string()]);
    }
}

async fn explain(context: &Context, proposed: &Proposed, candidate: Option<PathBuf>) -> Result<(), Failure> {
    let mut request = super::call::request(proposed, None)?;
    if let Some(directory) = candidate {
        (request.by_candidate, request.candidate) = (true, candidate::files(&directory)?);
    }
    let connection = context.connect().await?;
    let reply = connection.policy().explain(request).await?.into_inner();
    let decision = super::call::decision(&reply.decision_json)?;
    let call: CallRecord = read(&reply.call_json)?;
    if context.json() {
        return output::json(&json!({ "decision": decision, "call": call }));
    }
    print(&decision, &call);
    Ok(())
}

fn print(decision: &ToolDecision, call: &CallRecord) {
    let verdict = match decision.decision {
        DecisionKind::Allow => styled(GOOD.bold(), "allow"),
        DecisionKind::NeedsApproval => styled(WARN.bold(), "needs approval"),
        DecisionKind::Deny => styled(BAD.bold(), "deny"),
    };
    say!("{verdict}  {} for {}", styled(BOLD, &call.tool), call.origin.principal);
    say!("{}", safe(&decision.summary));
    if decision.people > 1 {
        say!("{} different people have to approve.", decision.people);
    }
    if let Some(held) = &call.facets.containment {
        let contained = if held.contained() { "contained" } else { "not contained" };
        say!("{contained}: {}", safe(&held.describe()));
    }
    let explanation = &decision.explanation;
    section("rule that stands in for a person", &explanation["waiver"]["rules"], rule);
    section("rules that decided", &explanation["rules"], rule);
    let fact = |fact: &Value| {
        format!("{} = {}", safe(fact["name"].as_str().unwrap_or("")), safe(fact["value"].as_str().unwrap_or("")))
    };
    section("facts that the rule in a person's place looked at", &explanation["waiver"]["facts"], fact);
    section("facts that mattered", &explanation["facts"], fact);
    section("rules that nearly stood in for a person", &explanation["nearly_waived"], change);
    section("facts of the call", &facts(decision, call), fact);
    section("what would change it", &explanation["what_would_change"], change);
    section("errors", &explanation["errors"], |error| safe(error.as_str().unwrap_or("")));
    say!("\n{}", styled(DIM, format!("policy {} · call digest {}", decision.policy_hash.short(), call.digest.short())));
}

/// Every fact of the call that rules can speak about.
fn facts(decision: &ToolDecision, call: &CallRecord) -> Value {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let origin = &call.origin;
    let mut facts = vec![
        ("principal".to_owned(), origin.principal.to_string()),
        ("proposed_by".to_owned(), origin.proposed_by.to_string()),
        ("channel".to_owned(), origin.channel.to_string()),
        ("session".to_owned(), origin.session.to_string()),
        ("run".to_owned(), origin.run.to_string()),
        ("tool".to_owned(), call.tool.to_string()),
        ("workspace".to_owned(), call.workspace_root.clone()),
    ];
    if let Some(basis) = &decision.basis {
        facts.push(("allowlisted".to_owned(), basis.allowlisted.to_string()));
        facts.push(("risk".to_owned(), basis.risk.to_string()));
        let powers: Vec<_> = basis.capabilities.iter().map(ToString::to_string).collect();
        facts.push(("capabilities".to_owned(), powers.join(", ")));
    }
    let facets = json!(call.facets);
    let touched = facets.as_object().into_iter().flatten();
    facts.extend(touched.map(|(name, value)| (name.clone(), text(value))));
    facts.into_iter().map(|(name, value)| json!({ "name": name, "value": value })).collect()
}

/// A rule with its text.
fn rule(rule: &Value) -> String {
    let text = |key: &str| safe(rule[key].as_str().unwrap_or(""));
    let source = rule["text"].as_str().map_or_else(String::new, |t| format!("\n{}", indent(&safe_lines(t))));
    format!("{} ({}): {}{}", styled(BOLD, text("id")), text("effect"), text("reason"), styled(DIM, source))
}

/// One way to another answer: a rule, and what it waits for.
fn change(change: &Value) -> String {
    let text = |value: &Value| safe(value.as_str().unwrap_or(""));
    let conditions = change["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let conditions: Vec<String> = conditions
        .iter()
        .map(|condition| {
            let wanted = if condition["must_be"] == json!(false) { "must not hold" } else { "must hold" };
            let hint = condition["hint"].as_str().map_or_else(String::new, |hint| format!(" ({})", safe(hint)));
            format!("\n      `{}` {wanted}{hint}", text(&condition["condition"]))
        })
        .collect();
    let remedy = change["remedy"].as_str().map_or_else(String::new, |remedy| format!(": {}", safe(remedy)));
    format!("{}{remedy}{}", styled(BOLD, text(&change["rule"])), conditions.concat())
}

fn section(title: &str, items: &Value, line: impl Fn(&Value) -> String) {
    let Some(items) = items.as_array().filter(|items| !items.is_empty()) else { return };
    say!("\n{}", styled(BOLD, title));
    for item in items {
        say!("  • {}", line(item));
    }
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("      {line}")).collect::<Vec<_>>().join("\n")
}

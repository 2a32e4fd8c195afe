//! `palyra policy show` and `palyra policy reload`.

use super::super::read;
use super::indent;
use crate::context::Context;
use crate::exit::{Failure, UNVERIFIED};
use crate::output::{self, BAD, BOLD, DIM, GOOD, say, styled};
use crate::text::{safe, safe_lines};
use palyra_api::v1::{ReloadPolicyRequest, ShowRulesRequest};
use serde::Deserialize;
use serde_json::{Value, json};

pub async fn show(context: &Context, id: Option<String>) -> Result<(), Failure> {
    let whole = id.is_some();
    let connection = context.connect().await?;
    let reply = connection.policy().show(ShowRulesRequest { id: id.unwrap_or_default() }).await?.into_inner();
    let rules: Vec<Value> = read(&reply.rules_json)?;
    if context.json() {
        return output::json(&json!({ "policy_hash": reply.policy_hash, "rules": rules }));
    }
    let text = |rule: &Value, key: &str| safe(rule[key].as_str().unwrap_or(""));
    if whole {
        for rule in &rules {
            say!("{}  {}", styled(BOLD, text(rule, "id")), styled(DIM, text(rule, "source")));
            say!("{}", safe_lines(rule["text"].as_str().unwrap_or("")));
        }
        return Ok(());
    }
    let rows: Vec<Vec<String>> =
        rules.iter().map(|rule| ["id", "effect", "source", "reason"].map(|key| text(rule, key)).to_vec()).collect();
    output::table(&["RULE", "EFFECT", "WHERE", "WHY"], &rows);
    Ok(())
}

/// What reading the rules anew came to.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
enum Outcome {
    Unchanged {},
    Replaced {},
    Refused {},
}

pub async fn reload(context: &Context) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let reply = connection.policy().reload(ReloadPolicyRequest {}).await?.into_inner();
    let outcome: Value = read(&reply.outcome_json)?;
    let status: Value = read(&reply.status_json)?;
    let came_to: Outcome = read(&reply.outcome_json)?;
    let refused = matches!(came_to, Outcome::Refused {});
    if context.json() {
        output::json(&json!({ "outcome": outcome, "policy": status }))?;
    } else if !refused {
        let what = match came_to {
            Outcome::Replaced {} => "decides from now on",
            Outcome::Unchanged {} | Outcome::Refused {} => "is in force already",
        };
        say!("{} policy {} {what}", styled(GOOD, "✔"), short(&status["policy_hash"]));
        say!("  {} rules, {} of them yours, {} cases", status["rules"], status["operator_rules"], status["cases"]);
        for note in status["notes"].as_array().into_iter().flatten() {
            let text = |key: &str| safe(note[key].as_str().unwrap_or(""));
            say!("  – {}: `{}`: {}", text("at"), text("rule"), text("message"));
        }
    } else {
        flaws(&outcome);
    }
    if !refused {
        return Ok(());
    }
    Err(Failure::new(
        UNVERIFIED,
        "policy_refused",
        format!("the rules may not run; policy {} goes on", short(&status["policy_hash"])),
        Some("mend the files, then try again; `palyra policy check` tells without a daemon"),
    ))
}

/// What is wrong with a refused set, each with its line.
pub fn flaws(refused: &Value) {
    let flaws = refused["flaws"].as_array().map_or(&[][..], Vec::as_slice);
    if flaws.is_empty() {
        say!("{} {}", styled(BAD, "✘"), safe(refused["summary"].as_str().unwrap_or("")));
    }
    for flaw in flaws {
        let text = |key: &str| safe(flaw[key].as_str().unwrap_or(""));
        let at = &flaw["at"];
        let place = format!("{}:{}:{}", safe(at["source"].as_str().unwrap_or("")), at["line"], at["column"]);
        say!("{} {}: {}", styled(BAD, "✘"), styled(BOLD, place), text("message"));
        if !text("excerpt").is_empty() {
            say!("{}", styled(DIM, indent(&text("excerpt"))));
        }
    }
}

fn short(hash: &Value) -> String {
    hash.as_str().unwrap_or("").chars().take(12).collect()
}

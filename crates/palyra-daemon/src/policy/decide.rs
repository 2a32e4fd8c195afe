//! `decide --jsonl`: a stream of proposed calls in, a stream of decisions with explanations out.
//!
//! A line is a call (`{"tool": …, "input": …, "principal": …}`), resolved in the workspace as the daemon would, or a
//! question (`{"principal": …, "action": …, "resource": …, "context": …}`), asked as it stands. Each line gets one
//! line, in order. A line that is neither gets an error and the stream goes on. Nothing is recorded and nothing is
//! executed.

use super::{Decide, REJECTED, loader};
use crate::doors::DoorName;
use crate::serve::{DaemonError, Setup};
use palyra_engine::{Advisor, Proposal};
use palyra_policy::{Detail, PolicyAction, PolicyRequest, PolicyRequestContext, PolicyResource};
use palyra_protocol::{Carrier, ChannelId, Principal, Problem, RunId, SessionId};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{BufRead, Read as _, Write};
use std::process::ExitCode;

/// The longest line: an input and its frame.
const MAX_LINE_BYTES: usize = 2 << 20;

/// A call, to be resolved in the workspace.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    /// Comes back with the answer.
    #[serde(default)]
    id: Value,
    tool: String,
    #[serde(default = "no_input")]
    input: Value,
    principal: Principal,
    #[serde(default)]
    proposed_by: Option<Principal>,
    #[serde(default = "local_channel")]
    channel: String,
    #[serde(default)]
    session: Option<SessionId>,
    #[serde(default)]
    run: Option<RunId>,
}

/// A question, asked as it stands.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    #[serde(default)]
    id: Value,
    principal: Principal,
    action: PolicyAction,
    resource: PolicyResource,
    context: PolicyRequestContext,
}

fn no_input() -> Value {
    json!({})
}

fn local_channel() -> String {
    DoorName::Cli.as_str().to_owned()
}

pub(super) fn run(setup: &Setup, options: &Decide) -> Result<ExitCode, DaemonError> {
    // How a candidate decides is worth knowing most where its cases fail.
    let loaded = loader(setup, options.candidate.clone())?.load_untried();
    let rules = loaded.map_err(|refused| DaemonError::Policy(Box::new(refused)))?;
    let config = setup.config(&setup.state_dir)?;
    let advisor = Advisor::new(rules, config.open_workspace()?, config.tool_call)?;
    let all_answered = stream(&advisor, &mut std::io::stdin().lock(), &mut std::io::stdout().lock());
    let all_answered = all_answered.map_err(DaemonError::Stream)?;
    Ok(if all_answered { ExitCode::SUCCESS } else { ExitCode::from(REJECTED) })
}

/// Answers every line; says whether each could be decided.
fn stream(advisor: &Advisor, input: &mut impl BufRead, output: &mut impl Write) -> std::io::Result<bool> {
    let mut all_answered = true;
    let mut line = Vec::new();
    for number in 1u64.. {
        line.clear();
        let read = (&mut *input).take(MAX_LINE_BYTES as u64 + 1).read_until(b'\n', &mut line)?;
        if read == 0 {
            break;
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let mut answer = if line.len() > MAX_LINE_BYTES {
            skip_line(input)?;
            let most = MAX_LINE_BYTES / 1024 / 1024;
            Err(problem("line_too_long", &format!("a line has at most {most} MiB"), &Value::Null))
        } else {
            decided(advisor, &line)
        };
        all_answered &= answer.is_ok();
        let (Ok(document) | Err(document)) = &mut answer;
        document["line"] = json!(number);
        serde_json::to_writer(&mut *output, document)?;
        output.write_all(b"\n")?;
        // Whoever asks line by line waits for each.
        output.flush()?;
    }
    Ok(all_answered)
}

fn skip_line(input: &mut impl BufRead) -> std::io::Result<()> {
    loop {
        let buffer = input.fill_buf()?;
        let (length, found) = match buffer.iter().position(|byte| *byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), false),
        };
        input.consume(length);
        if found || length == 0 {
            return Ok(());
        }
    }
}

fn problem(code: &str, message: &str, id: &Value) -> Value {
    json!({ "id": id, "error": { "code": code, "message": message } })
}

fn decided(advisor: &Advisor, line: &[u8]) -> Result<Value, Value> {
    let malformed = |message: String| problem("line_malformed", &message, &Value::Null);
    let value: Value = serde_json::from_slice(line).map_err(|e| malformed(format!("this is not JSON: {e}")))?;
    let id = value.get("id").cloned().unwrap_or_default();
    let misread = |e: serde_json::Error| problem("line_malformed", &e.to_string(), &id);
    if value.get("tool").is_some() {
        return called(advisor, serde_json::from_value(value).map_err(misread)?);
    }
    let question: Question = serde_json::from_value(value).map_err(misread)?;
    Ok(asked(advisor, &question))
}

fn called(advisor: &Advisor, call: Call) -> Result<Value, Value> {
    let refused = |refused: &Problem, id: &Value| json!({ "id": id, "decision": "rejected", "error": { "code": refused.code, "message": refused.message, "hint": refused.hint } });
    let channel: ChannelId =
        call.channel.parse().map_err(|_| problem("line_malformed", "`channel` is no channel", &call.id))?;
    let proposal = Proposal {
        tool: call.tool,
        input: call.input.to_string().into_bytes(),
        session: call.session,
        run: call.run,
        idempotency_key: None,
        request: None,
        carrier: Carrier::Daemon,
    };
    let proposed_by = call.proposed_by.unwrap_or_else(|| call.principal.clone());
    let (record, decision) = advisor
        .decide(call.principal, proposed_by, channel, proposal)
        .map_err(|problem| refused(&problem, &call.id))?;
    Ok(json!({
        "id": call.id,
        "decision": decision.decision,
        "people": decision.people,
        "fresh": decision.fresh,
        "rules": decision.rules,
        "summary": decision.summary,
        "policy_hash": decision.policy_hash,
        "facets": record.facets,
        "denial": decision.denial,
        "explanation": decision.explanation,
    }))
}

fn asked(advisor: &Advisor, question: &Question) -> Value {
    let request = PolicyRequest {
        principal: question.principal.clone(),
        action: question.action,
        resource: question.resource.clone(),
    };
    let policy = advisor.policy();
    let verdict = policy.decide(&request, &question.context);
    let record = verdict.record(Detail::WithRuleText);
    json!({
        "id": question.id,
        "decision": record.decision,
        "people": verdict.people(),
        "fresh": verdict.is_fresh(),
        "rules": verdict.rule_ids(),
        "summary": record.summary,
        "policy_hash": policy.policy_hash(),
        "explanation": record.explanation,
        "with_approval": record.with_approval,
        "waiver": record.waiver,
    })
}

//! `palyra call` and `palyra calls`: proposing, following, cancelling.

use super::{read, read_optional};
use crate::args::{Call, Calls, Proposed};
use crate::context::Context;
use crate::exit::{CANCELLED, FAILED, Failure};
use crate::output::{self, BOLD, DIM, GOOD, WARN, note, say, styled};
use crate::text::{pretty, safe, safe_lines};
use palyra_api::Connection;
use palyra_api::v1::{CallUpdate, CancelCallRequest, GetCallRequest, ProposeRequest};
use palyra_protocol::{ApprovalRecord, ApprovalState, CallState, ToolOutcome};
use serde_json::{Value, json};
use std::io::Read as _;
use tonic::Streaming;

/// More than the daemon accepts: it is the daemon that says so, with the reason.
const MAX_READ: u64 = 8 << 20;

pub async fn call(context: &Context, call: Call) -> Result<(), Failure> {
    let request = request(&call.proposed, call.idempotency_key.map(String::from))?;
    let connection = context.connect().await?;
    let updates = connection.calls().propose(request).await?.into_inner();
    follow(context, &connection, updates, call.detach).await
}

pub async fn calls(context: &Context, command: Calls) -> Result<(), Failure> {
    let connection = context.connect().await?;
    match command {
        Calls::Show { call } => {
            let update = connection.calls().get(GetCallRequest { call_id: call.into() }).await?.into_inner();
            show(context, &update)
        }
        Calls::Follow { call } => {
            let updates = connection.calls().follow(GetCallRequest { call_id: call.into() }).await?.into_inner();
            follow(context, &connection, updates, false).await
        }
        Calls::Cancel { call } => {
            let update = connection.calls().cancel(CancelCallRequest { call_id: call.into() }).await?.into_inner();
            show(context, &update)
        }
    }
}

/// The proposal as it travels.
pub fn request(proposed: &Proposed, key: Option<String>) -> Result<ProposeRequest, Failure> {
    Ok(ProposeRequest {
        tool: proposed.tool.clone(),
        input: input(&proposed.input)?,
        session: proposed.session.clone().map_or_else(String::new, String::from),
        run: proposed.run.clone().map_or_else(String::new, String::from),
        idempotency_key: key.unwrap_or_default(),
    })
}

fn input(given: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = match given {
        "-" => std::io::stdin().take(MAX_READ).read_to_end(&mut bytes),
        given => match given.strip_prefix('@') {
            Some(path) => std::fs::File::open(path).and_then(|file| file.take(MAX_READ).read_to_end(&mut bytes)),
            None => return Ok(given.as_bytes().to_vec()),
        },
    };
    read.map_err(|e| Failure::io(&format!("the input `{}` cannot be read", safe(given)), &e))?;
    Ok(bytes)
}

/// Follows a call to its end. Ctrl-C withdraws it.
async fn follow(
    context: &Context,
    connection: &Connection,
    mut updates: Streaming<CallUpdate>,
    detach: bool,
) -> Result<(), Failure> {
    let mut call_id = String::new();
    let mut asked = false;
    loop {
        let update = tokio::select! {
            update = updates.message() => update?,
            _ = tokio::signal::ctrl_c() => return withdraw(connection, &call_id).await,
        };
        let Some(update) = update else {
            return Err(Failure::new(
                FAILED,
                "transport",
                "the daemon stopped telling about the call",
                Some("`palyra calls show ID` tells how it ended"),
            ));
        };
        call_id.clone_from(&update.call_id);
        let recorded = !update.approval_json.is_empty() || update.state == CallState::Executing.as_str();
        if !update.outcome_json.is_empty() || (detach && recorded) {
            return show(context, &update);
        }
        if let Some(approval) = read_optional::<ApprovalRecord>(&update.approval_json)?
            && !std::mem::replace(&mut asked, true)
            && approval.state == ApprovalState::Pending
            && !context.json()
        {
            waiting(&approval);
        }
    }
}

async fn withdraw(connection: &Connection, call_id: &str) -> Result<(), Failure> {
    if call_id.is_empty() {
        return Err(Failure::new(
            CANCELLED,
            "cancelled",
            "interrupted before the daemon answered; the call may still be made",
            Some("`palyra journal tail` shows whether it was"),
        ));
    }
    connection.calls().cancel(CancelCallRequest { call_id: call_id.to_owned() }).await?;
    Err(Failure::new(CANCELLED, "cancelled", "cancelled; the call was withdrawn", None))
}

fn waiting(approval: &ApprovalRecord) {
    note!("{} waiting for approval: {}", styled(WARN, "◌"), safe(&approval.why));
    note!("  decide in another terminal, within {}:", output::remaining(approval.expires_at));
    note!("    palyra approvals show {}", approval.approval_id);
    note!("    palyra approvals decide {} allow", approval.approval_id);
}

/// A call as a document: what `--output json` prints and `palyra attest verify` reads.
fn document(update: &CallUpdate, outcome: Option<&ToolOutcome>) -> Result<Value, Failure> {
    let mut document = json!({
        "call_id": update.call_id, "state": update.state, "tool": update.tool, "session": update.session,
        "run": update.run, "replayed": update.replayed,
    });
    if let Some(decision) = read_optional::<Value>(&update.decision_json)? {
        document["decision"] = decision;
    }
    if let Some(approval) = read_optional::<Value>(&update.approval_json)? {
        document["approval"] = approval;
    }
    if let Some(outcome) = outcome {
        document["output"] = json!(outcome.output);
        document["problem"] = json!(outcome.problem);
        document["attestation"] = json!(outcome.attestation);
        document["ended_at"] = json!(outcome.ended_at);
    }
    Ok(document)
}

/// Prints a call, and fails as it failed.
fn show(context: &Context, update: &CallUpdate) -> Result<(), Failure> {
    let outcome: Option<ToolOutcome> = read_optional(&update.outcome_json)?;
    if context.json() {
        output::json(&document(update, outcome.as_ref())?)?;
    } else {
        print(update, outcome.as_ref())?;
    }
    match outcome {
        Some(outcome) if outcome.state != CallState::Succeeded => {
            Err(Failure::of_call(outcome.state, outcome.problem.as_ref()))
        }
        _ => Ok(()),
    }
}

fn print(update: &CallUpdate, outcome: Option<&ToolOutcome>) -> Result<(), Failure> {
    let Some(outcome) = outcome else {
        say!("{}  {}  {}", update.call_id, safe(&update.tool), styled(WARN, &update.state));
        if let Some(approval) = read_optional::<ApprovalRecord>(&update.approval_json)? {
            say!("{} {}", styled(DIM, "approval"), approval.approval_id);
        }
        note!("{}", styled(DIM, format!("follow it: palyra calls follow {}", update.call_id)));
        return Ok(());
    };
    if let Some(output) = &outcome.output {
        print_output(output);
    }
    let mut facts = vec![outcome.state.as_str().to_owned(), update.call_id.clone()];
    if update.replayed {
        facts.push("known already by its idempotency key: nothing ran again".to_owned());
    }
    if let Some(attestation) = &outcome.attestation {
        let enforcement = &attestation.statement.sandbox_enforcement;
        facts.push(format!("tier {}", enforcement["tier"].as_str().unwrap_or("none")));
        facts.push(format!("attested {}", attestation.execution_sha256.short()));
    }
    let mark = if outcome.state == CallState::Succeeded { styled(GOOD, "✔") } else { styled(WARN, "✘") };
    note!("{mark} {}", styled(DIM, facts.join(" · ")));
    Ok(())
}

/// What a tool returned: a process's streams as they are, everything else as JSON.
fn print_output(output: &Value) {
    if output.is_null() {
        return;
    }
    let stream = |name: &str| {
        let text = output.get(name)?.as_str()?;
        (output.get(format!("{name}_encoding"))?.as_str()? == "utf-8").then_some(text)
    };
    let (Some(stdout), Some(stderr)) = (stream("stdout"), stream("stderr")) else {
        say!("{}", pretty(output));
        return;
    };
    if !stdout.is_empty() {
        say!("{}", safe_lines(stdout.trim_end_matches('\n')));
    }
    if !stderr.is_empty() {
        note!("{}", safe_lines(stderr.trim_end_matches('\n')));
    }
    for name in ["stdout", "stderr"] {
        if output[format!("{name}_truncated")] == json!(true) {
            note!(
                "{}",
                styled(BOLD, format!("({name} was cut: {} bytes in all)", output[format!("{name}_total_bytes")]))
            );
        }
    }
}

/// A decision document, for `policy explain`.
pub fn decision(document: &str) -> Result<palyra_protocol::ToolDecision, Failure> {
    read(document)
}

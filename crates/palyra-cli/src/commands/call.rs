//! `palyra call` and `palyra calls`: proposing, following, cancelling.

use super::live::{self, Live};
use super::{read, read_optional};
use crate::answering::question::{Desk, Others};
use crate::answering::{End, Keys, Question, Screen, at_terminal};
use crate::args::{Call, Calls, Exec, Proposed};
use crate::context::Context;
use crate::exit::{CANCELLED, FAILED, Failure, REJECTED};
use crate::output::{self, DIM, GOOD, WARN, note, say, styled};
use crate::text::{pretty, safe};
use palyra_api::Connection;
use palyra_api::v1::{CallUpdate, CancelCallRequest, FollowCallRequest, GetCallRequest, ProposeRequest};
use palyra_protocol::json::MAX_INPUT_BYTES;
use palyra_protocol::{ApprovalRecord, ApprovalState, CallState, ToolOutcome};
use serde_json::{Value, json};
use std::io::Read as _;
use tokio::signal::unix::{SignalKind, signal};
use tonic::Streaming;

/// More than the daemon accepts: up to here it is the daemon that says so, with the reason.
const MAX_READ: u64 = 8 << 20;

/// What Ctrl-C means while a call is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Interrupt {
    /// The call is ours: it is withdrawn.
    Withdraws,
    /// We only look: it goes on.
    Leaves,
}

pub async fn call(context: &Context, call: Call) -> Result<(), Failure> {
    let mut request = request(&call.proposed, call.idempotency_key.map(String::from))?;
    request.live_output = !context.json() && !call.detach;
    let connection = context.connect().await?;
    let updates = connection.calls().propose(request).await?.into_inner();
    follow(context, &connection, updates, call.detach, Interrupt::Withdraws).await
}

/// `palyra exec`: a call of the tool that runs programs.
pub async fn exec(context: &Context, exec: Exec) -> Result<(), Failure> {
    let mut input = json!({ "argv": exec.command });
    if let Some(cwd) = exec.cwd {
        input["cwd"] = json!(cwd);
    }
    let mut variables = serde_json::Map::new();
    for variable in &exec.env {
        let Some((name, value)) = variable.split_once('=') else {
            return Err(Failure::usage(format!("`{}` is no variable", safe(variable)), "write `--env NAME=VALUE`"));
        };
        variables.insert(name.to_owned(), json!(value));
    }
    if !variables.is_empty() {
        input["env"] = Value::Object(variables);
    }
    let proposed =
        Proposed { tool: "palyra.process.run".to_owned(), input: input.to_string(), session: exec.session, run: None };
    call(context, Call { proposed, idempotency_key: None, detach: exec.detach }).await
}

pub async fn calls(context: &Context, command: Calls) -> Result<(), Failure> {
    let connection = context.connect().await?;
    match command {
        Calls::List(filter) => super::call_list::list(context, &connection, filter).await,
        Calls::Show { call } => {
            let update = connection.calls().get(GetCallRequest { call_id: call.into() }).await?.into_inner();
            if !context.json() {
                super::call_list::given(&update)?;
                super::call_list::changed(&connection, &update.call_id).await;
            }
            let shown = show(context, &update, Live::new()).await;
            if !context.json() {
                super::call_list::held(&update)?;
            }
            shown
        }
        Calls::Follow { call } => {
            let request = FollowCallRequest { call_id: call.into(), live_output: !context.json() };
            let updates = connection.calls().follow(request).await?.into_inner();
            follow(context, &connection, updates, false, Interrupt::Leaves).await
        }
        Calls::Cancel { call } => {
            let update = connection.calls().cancel(CancelCallRequest { call_id: call.into() }).await?.into_inner();
            show(context, &update, Live::new()).await
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
        ..ProposeRequest::default()
    })
}

pub fn input(given: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = match given {
        "-" => std::io::stdin().take(MAX_READ + 1).read_to_end(&mut bytes),
        given => match given.strip_prefix('@') {
            Some(path) => std::fs::File::open(path).and_then(|file| file.take(MAX_READ + 1).read_to_end(&mut bytes)),
            None => return Ok(given.as_bytes().to_vec()),
        },
    };
    read.map_err(|e| Failure::io(&format!("the input `{}` cannot be read", safe(given)), &e))?;
    if bytes.len() as u64 > MAX_READ {
        let message = format!("the input has more than {MAX_READ} bytes; at most {MAX_INPUT_BYTES} are accepted");
        return Err(Failure::new(REJECTED, "input_too_large", message, None));
    }
    Ok(bytes)
}

/// Follows a call to its end, showing what its process writes.
async fn follow(
    context: &Context,
    connection: &Connection,
    mut updates: Streaming<CallUpdate>,
    detach: bool,
    interrupt: Interrupt,
) -> Result<(), Failure> {
    // From the first moment on, and between two answers too: a Ctrl-C is never lost, and never ends this program alone.
    let mut interrupted = signal(SignalKind::interrupt()).map_err(|e| Failure::io("Ctrl-C cannot be heard", &e))?;
    let mut call_id = String::new();
    let mut asked = false;
    let mut live = Live::new();
    let mut next_update = None;
    loop {
        let next = async {
            let update = match next_update.take() {
                Some(update) => Some(update),
                None => updates.message().await?,
            };
            if let Some(piece) = update.as_ref().and_then(|update| update.output.as_ref()) {
                live.show(piece).await;
            }
            Ok::<_, Failure>(update)
        };
        let update = tokio::select! {
            update = next => update?,
            _ = interrupted.recv() => return match interrupt {
                Interrupt::Withdraws => withdraw(connection, &call_id).await,
                Interrupt::Leaves => Err(left(&call_id)),
            },
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
            return tokio::select! {
                shown = show(context, &update, live) => shown,
                _ = interrupted.recv() => Err(Failure::new(CANCELLED, "interrupted", "interrupted; the call has ended", None)),
            };
        }
        if let Some(approval) = read_optional::<ApprovalRecord>(&update.approval_json)?
            && !std::mem::replace(&mut asked, true)
            && approval.state == ApprovalState::Pending
            && !context.json()
        {
            match answer_here(context, &approval, &mut updates).await? {
                Asked::Elsewhere => waiting(&approval),
                Asked::Here => {}
                Asked::News(update) => next_update = Some(*update),
                Asked::Left => {
                    return match interrupt {
                        Interrupt::Withdraws => withdraw(connection, &call_id).await,
                        Interrupt::Leaves => Err(left(&call_id)),
                    };
                }
            }
        }
    }
}

/// How an approval was dealt with at this terminal.
enum Asked {
    /// It is for another terminal.
    Elsewhere,
    /// It was answered here.
    Here,
    /// The call went on without an answer from here.
    News(Box<CallUpdate>),
    /// The person leaves.
    Left,
}

/// Puts the approval of the call that is followed to the person at this terminal, if there is one.
async fn answer_here(
    context: &Context,
    approval: &ApprovalRecord,
    updates: &mut Streaming<CallUpdate>,
) -> Result<Asked, Failure> {
    if !at_terminal(std::io::stderr()) {
        return Ok(Asked::Elsewhere);
    }
    let connection = context.connect_as_self().await?;
    let Ok(shown) = super::approvals::fetch(&connection, approval.approval_id.as_str()).await else {
        return Ok(Asked::Elsewhere);
    };
    let (mut screen, mut keys) = (Screen::open(false)?, Keys::take()?);
    let desk = Desk { screen: &mut screen, keys: &mut keys, connection: &connection };
    let (_others, waiting) = tokio::sync::watch::channel(Others::default());
    let shown = [shown];
    match Question::new(desk, &shown).ask(waiting, updates.message()).await? {
        End::News(update) => Ok(update?.map_or(Asked::Here, |update| Asked::News(Box::new(update)))),
        End::Answered => Ok(Asked::Here),
        End::Later | End::Group => Ok(Asked::Elsewhere),
        End::Quit => Ok(Asked::Left),
        End::Lost(failure) => Err(failure),
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

fn left(call_id: &str) -> Failure {
    let hint =
        format!("follow it again: `palyra calls follow {call_id}`; withdraw it: `palyra calls cancel {call_id}`");
    let hint = (!call_id.is_empty()).then_some(hint.as_str());
    Failure::new(CANCELLED, "interrupted", "interrupted; the call goes on", hint)
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
async fn show(context: &Context, update: &CallUpdate, live: Live) -> Result<(), Failure> {
    let outcome: Option<ToolOutcome> = read_optional(&update.outcome_json)?;
    if context.json() {
        output::json(&document(update, outcome.as_ref())?)?;
    } else {
        print(update, outcome.as_ref(), live).await?;
    }
    match outcome {
        Some(outcome) if outcome.state != CallState::Succeeded => {
            Err(Failure::of_call(outcome.state, outcome.problem.as_ref()))
        }
        _ => Ok(()),
    }
}

async fn print(update: &CallUpdate, outcome: Option<&ToolOutcome>, live: Live) -> Result<(), Failure> {
    let Some(outcome) = outcome else {
        say!("{}  {}  {}", update.call_id, safe(&update.tool), styled(WARN, &update.state));
        if let Some(approval) = read_optional::<ApprovalRecord>(&update.approval_json)? {
            say!("{} {}", styled(DIM, "approval"), approval.approval_id);
        }
        note!("{}", styled(DIM, format!("follow it: palyra calls follow {}", update.call_id)));
        return Ok(());
    };
    // A process's streams as they are, everything else as JSON.
    match &outcome.output {
        None | Some(Value::Null) => live.finish(&Value::Null, &update.call_id).await?,
        Some(output) if live::is_process(output) => {
            live.finish(output, &update.call_id).await?;
            denials(&output["egress"]);
        }
        Some(output) => say!("{}", pretty(output)),
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

/// What the program's connections were denied for: it may not have said so.
fn denials(egress: &Value) {
    for denial in egress["denials"].as_array().into_iter().flatten() {
        let text = |name: &str| safe(denial[name].as_str().unwrap_or_default());
        note!("{} {} ({})", styled(WARN, "✘"), text("message"), text("hint"));
    }
    if let Some(further) = egress["further_denials"].as_u64() {
        note!("{} {further} further connection(s) denied", styled(WARN, "✘"));
    }
}

/// A decision document, for `policy explain`.
pub fn decision(document: &str) -> Result<palyra_protocol::ToolDecision, Failure> {
    read(document)
}

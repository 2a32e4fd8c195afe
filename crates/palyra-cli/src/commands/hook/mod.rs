//! `palyra hook`: a client that keeps its own tools asks before it uses one.
//!
//! The client writes a question to standard input ([`question`]). What it is about becomes a proposal on the one path
//! ([`mapping`]): a command is handed back wrapped, so that it runs in Palyra's sandbox by a one-time ticket
//! ([`wrapped`]); file tools and fetches are decided and recorded, and stay the client's.
//!
//! INVARIANT (hooks_fail_closed): whatever goes wrong ends with exit code 2 and a reason on standard error, which every
//! client that can be connected takes for a no. Nothing is printed to standard output before it is a whole answer.

mod codex_patch;
mod mapping;
mod question;
pub mod wrapped;

use crate::args::connect::Client;
use crate::args::hook::Hook;
use crate::context::Context;
use crate::exit::{Failure, UNREACHABLE};
use crate::output::note;
use mapping::Asked;
pub use mapping::HOSTS;
use palyra_api::Connection;
use palyra_api::client::Whereabouts;
use palyra_api::v1::{CancelCallRequest, Carrier, ProposeRequest, ReportRequest, StatusRequest};
use palyra_protocol::{CallState, ToolOutcome};
use question::{Event, Question};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

/// The longest question.
const MAX_QUESTION: u64 = 16 << 20;
/// What clients take for a no.
const BLOCKS: u8 = 2;

/// What the client is answered.
enum Answer {
    /// Nothing: the client goes on as it would.
    None,
    /// A document on standard output.
    Say(Value),
}

/// Asks the daemon and answers the client.
pub async fn hook(context: &Context, hook: Hook) -> ExitCode {
    let answered = answer(context, &hook).await.and_then(|answer| match answer {
        Answer::None => Ok(()),
        Answer::Say(document) => said(&document),
    });
    match answered {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            note!("Palyra: {}{}", failure.message, failure.hint.map_or_else(String::new, |hint| format!(" ({hint})")));
            ExitCode::from(BLOCKS)
        }
    }
}

/// Writes an answer in one piece: half of one would be taken for none.
fn said(document: &Value) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(format!("{document}\n").as_bytes()).and_then(|()| out.flush());
    written.map_err(|e| Failure::io("the answer cannot be written", &e))
}

async fn answer(context: &Context, hook: &Hook) -> Result<Answer, Failure> {
    let mut text = Vec::new();
    let read = std::io::stdin().take(MAX_QUESTION + 1).read_to_end(&mut text);
    read.map_err(|e| Failure::io("the client's question cannot be read", &e))?;
    if text.len() as u64 > MAX_QUESTION {
        return Err(Failure::usage("the client's question is too long", "do less in one step"));
    }
    let question = Question::parse(&text)?;
    match question.event {
        Event::PreToolUse => before(context, hook, &question).await,
        Event::PermissionRequest => Ok(permission(context, hook, &question)),
        Event::PostToolUse | Event::PostToolUseFailure => {
            // The call is on record; how the client says that it went is worth having and nothing to stop for.
            drop(report(context, hook, &question).await);
            Ok(Answer::None)
        }
        Event::ConfigChange => Err(Failure::usage(
            "settings that change while the client runs could switch Palyra off",
            "they count when the client is started again",
        )),
        Event::Other => Ok(Answer::None),
    }
}

async fn before(context: &Context, hook: &Hook, question: &Question) -> Result<Answer, Failure> {
    // Tools of Palyra's own server are decided there.
    if mapping::is_harmless(&question.tool) {
        return Ok(Answer::None);
    }
    let connection = connect(context, hook).await?;
    let workspace = workspace(&connection, hook).await?;
    match mapping::asked(hook.client, question, &workspace)? {
        Asked::Command { input, rewritten } => {
            let ticket =
                permitted(&connection, request(question, "palyra.process.run", &input, Carrier::Ticket)).await?;
            let ticket =
                ticket.ok_or_else(|| Failure::usage("the daemon gave no ticket", "update `palyra` and `palyrad`"))?;
            let command = wrapped::command(hook.client, &context.state_dir, &ticket)?;
            Ok(Answer::Say(allow(rewritten.with(command))))
        }
        Asked::ByClient { tool, input } => {
            permitted(&connection, request(question, tool, &input, Carrier::Client)).await?;
            Ok(match hook.client {
                // Codex knows no yes without a rewritten command.
                Client::Codex => Answer::None,
                _ => Answer::Say(allow(Value::Null)),
            })
        }
    }
}

fn allow(rewritten: Value) -> Value {
    let mut answer = json!({
        "hookEventName": "PreToolUse", "permissionDecision": "allow", "permissionDecisionReason": "Palyra allows it",
    });
    if !rewritten.is_null() {
        answer["updatedInput"] = rewritten;
    }
    json!({ "hookSpecificOutput": answer })
}

/// Spares the client's own dialog about a command that Palyra has allowed: a ticket that is none starts nothing.
fn permission(context: &Context, hook: &Hook, question: &Question) -> Answer {
    let ours = question.command().is_some_and(|command| wrapped::is_ours(hook.client, &context.state_dir, command));
    if !ours || question.is_planning {
        return Answer::None;
    }
    let decision = json!({ "behavior": "allow" });
    Answer::Say(json!({ "hookSpecificOutput": { "hookEventName": "PermissionRequest", "decision": decision } }))
}

async fn connect(context: &Context, hook: &Hook) -> Result<Connection, Failure> {
    let token = super::mcp::read_token(&hook.token_file)?;
    let connection =
        Connection::open(&context.socket(), None).await.map_err(Failure::from).map_err(|failure| match failure {
            failure if failure.exit == UNREACHABLE => Failure {
                message: "the daemon does not run, so nothing can be allowed".to_owned(),
                hint: Some(format!("a person starts it: `palyra --state-dir {} up`", context.state_dir.display())),
                ..failure
            },
            failure => failure,
        })?;
    let directory = std::env::current_dir().ok();
    let place = Whereabouts { workspace: Some(hook.workspace.to_string_lossy().into_owned()), directory };
    Ok(connection.with_token(&token)?.at(&place)?)
}

/// The workspace of the client's token, which must be the one that the client was connected in.
async fn workspace(connection: &Connection, hook: &Hook) -> Result<std::path::PathBuf, Failure> {
    let status = connection.daemon().status(StatusRequest { probe_sandbox: false }).await?.into_inner();
    if Path::new(&status.workspace_root) != hook.workspace {
        return Err(Failure::usage(
            format!(
                "the client's token opens `{}`, and its hook was written for `{}`",
                status.workspace_root,
                hook.workspace.display()
            ),
            "a person connects it anew: `palyra disconnect`, then `palyra connect` in that directory",
        ));
    }
    Ok(hook.workspace.clone())
}

fn request(question: &Question, tool: &str, input: &Value, carrier: Carrier) -> ProposeRequest {
    let key = if carrier == Carrier::Client { question.key() } else { None };
    ProposeRequest {
        tool: tool.to_owned(),
        input: input.to_string().into_bytes(),
        session: question.session(),
        idempotency_key: key.unwrap_or_default(),
        carrier: carrier.into(),
        ..ProposeRequest::default()
    }
}

/// Proposes, and waits until the call is permitted; with its ticket, where it has one.
async fn permitted(connection: &Connection, request: ProposeRequest) -> Result<Option<String>, Failure> {
    let stop = |kind| signal(kind).map_err(|e| Failure::io("the client cannot be heard", &e));
    let (mut term, mut interrupt) = (stop(SignalKind::terminate())?, stop(SignalKind::interrupt())?);
    let mut updates = connection.calls().propose(request).await?.into_inner();
    let mut call_id = String::new();
    loop {
        let update = tokio::select! {
            update = updates.message() => update?,
            _ = term.recv() => return Err(withdrawn(connection, call_id).await),
            _ = interrupt.recv() => return Err(withdrawn(connection, call_id).await),
        };
        let Some(update) = update else {
            return Err(Failure::usage("the daemon stopped telling about the call", "try it again"));
        };
        call_id.clone_from(&update.call_id);
        if !update.ticket.is_empty() {
            return Ok(Some(update.ticket));
        }
        if let Some(outcome) = super::read_optional::<ToolOutcome>(&update.outcome_json)? {
            return match outcome.state {
                CallState::Succeeded => Ok(None),
                state => Err(Failure::of_call(state, outcome.problem.as_ref())),
            };
        }
    }
}

/// The person stopped the client: the call is no longer wanted.
async fn withdrawn(connection: &Connection, call_id: String) -> Failure {
    if !call_id.is_empty() {
        drop(connection.calls().cancel(CancelCallRequest { call_id }).await);
    }
    Failure::usage("the client was stopped while it waited", "ask again if it is still wanted")
}

/// Tells the daemon how the client says that a call of its own went.
async fn report(context: &Context, hook: &Hook, question: &Question) -> Result<(), Failure> {
    let Some(idempotency_key) =
        question.key().filter(|_| mapping::is_carried_out_by_client(hook.client, &question.tool))
    else {
        return Ok(());
    };
    let succeeded = question.event == Event::PostToolUse;
    let request = ReportRequest { idempotency_key, succeeded, message: question.error.clone() };
    connect(context, hook).await?.calls().report(request).await?;
    Ok(())
}

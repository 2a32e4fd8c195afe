//! Tool calls: proposed, looked at, withdrawn. The way of a call is the engine's; here it is only waited for.

use super::Door;
use super::payload::{Caller, Id, Payload, idempotency_key};
use super::problem::{Refusals, Refused};
use super::records::{Call, told};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use palyra_engine::{CallInProgress, CallUpdate, Proposal, VerifiedPeer};
use palyra_protocol::{CallId, CallState, Carrier, Problem, ProblemCode, RunId, SessionId};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;
use utoipa::ToSchema;

/// How long a caller that says nothing waits for the end.
const WAIT_MS: u64 = 30_000;
/// How long a caller can wait at most.
const MAX_WAIT_MS: u64 = 600_000;

/// A proposal.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Invoke {
    /// The tool's name, or its alias.
    #[schema(examples("palyra.echo"), max_length = 128)]
    tool: String,
    /// Its input, as the tool's schema says.
    #[schema(value_type = Object, examples(json!({"text": "hello"})))]
    input: Box<RawValue>,
    /// The session the call belongs to; a fresh one if none is named.
    #[serde(default)]
    #[schema(value_type = Option<String>, pattern = "^[A-Za-z0-9._:/@-]{1,128}$")]
    session: Option<SessionId>,
    /// The run whose budget pays for it; the session's own if none is named.
    #[serde(default)]
    #[schema(value_type = Option<String>, pattern = "^[A-Za-z0-9._:/@-]{1,128}$")]
    run: Option<RunId>,
    /// How long to wait for the end, in milliseconds: 30 s if nothing is said. With 0 the answer comes as soon as the
    /// call is on record.
    #[serde(default = "default_wait")]
    #[schema(minimum = 0, maximum = 600_000, default = 30_000)]
    wait_ms: u64,
}

fn default_wait() -> u64 {
    WAIT_MS
}

/// Propose a call, and wait for its end.
///
/// What policy or a person denies is answered with 403, what is no call with 404 or 422; either is on record. What has
/// not ended in time goes on, and is answered with 202: ask or listen at `Location`.
#[utoipa::path(
    post,
    path = "/v1/tools/invoke",
    operation_id = "invoke_tool",
    request_body(content = Invoke, content_type = "application/json"),
    params((
        "Idempotency-Key" = Option<String>, Header,
        description = "A repetition with the same key is the same call, and never runs twice",
        pattern = "^[A-Za-z0-9._:/@-]{1,128}$",
    )),
    responses(
        (status = 200, description = "It ran to its end", body = Call, content_type = "application/json"),
        (status = 202, description = "It goes on", body = Call, content_type = "application/json"),
        Refusals,
    )
)]
pub(super) async fn invoke(
    State(door): State<Door>,
    caller: Caller,
    headers: HeaderMap,
    Payload(invoke): Payload<Invoke>,
) -> Result<Response, Refused> {
    if invoke.wait_ms > MAX_WAIT_MS {
        let message = format!("`wait_ms` is at most {MAX_WAIT_MS}");
        let problem = Problem::new("wait_too_long", message, "ask for less, and go on with `GET /v1/calls/{call_id}`");
        return Err(Refused::new(StatusCode::UNPROCESSABLE_ENTITY, problem));
    }
    let proposal = Proposal {
        tool: door.doors.canonical(invoke.tool),
        input: invoke.input.get().as_bytes().to_vec(),
        session: invoke.session,
        run: invoke.run,
        idempotency_key: idempotency_key(&headers)?,
        request: Some(caller.request),
        carrier: Carrier::Daemon,
    };
    let call = door.engine.propose(&caller.peer, proposal);
    let update = wait(&door, &caller.peer, call, Duration::from_millis(invoke.wait_ms)).await?;
    if update.outcome.is_some() { ended(update) } else { pending(update) }
}

/// Waits for a call's end, for as long as the caller does and the daemon is there. What it returns is on record.
async fn wait(
    door: &Door,
    peer: &VerifiedPeer,
    call: CallInProgress,
    patience: Duration,
) -> Result<CallUpdate, Refused> {
    let CallInProgress { mut updates, mut end, .. } = call;
    let mut deadline = std::pin::pin!(tokio::time::sleep(patience));
    let mut shut_out = std::pin::pin!(door.engine.shut_out(peer));
    let mut recorded: Option<CallUpdate> = None;
    let mut listening = true;
    loop {
        // A question outlives the daemon; what runs is brought to its end before the daemon goes.
        let waits = recorded.as_ref().is_some_and(|now| now.state != CallState::Executing);
        tokio::select! {
            biased;
            // Before the end: an outcome is not for whoever was shut out meanwhile.
            error = &mut shut_out => return Err(error.into()),
            ended = &mut end => {
                if waits && door.closing.is_cancelled() && !matches!(ended, Ok(Ok(_))) {
                    break;
                }
                let gone = || Problem::plain("internal", "the call ended without a word");
                door.engine.still_opens(peer)?;
                return match ended {
                    Ok(update) => Ok(update?),
                    Err(_) => Err(Refused::new(StatusCode::INTERNAL_SERVER_ERROR, gone())),
                };
            }
            update = updates.recv(), if listening => match update {
                Ok(update) if update.replayed || update.state != CallState::Proposed => recorded = Some(update),
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => listening = false,
            },
            () = &mut deadline, if recorded.is_some() => break,
            () = door.closing.cancelled(), if waits => break,
        }
    }
    let Some(now) = recorded else {
        return Err(Refused::malformed("the call is not on record"));
    };
    door.engine.still_opens(peer)?;
    if !now.replayed {
        // Whoever proposes a call is told how it stands: that takes no right to look at calls.
        return Ok(now);
    }
    let earlier = door.engine.call(peer, &now.call_id).await?;
    Ok(CallUpdate { replayed: true, ..earlier })
}

/// An end as an answer: what did not run because somebody or something said no is a refusal.
fn ended(update: CallUpdate) -> Result<Response, Refused> {
    let Some(outcome) = &update.outcome else { return pending(update) };
    let ran = outcome.attestation.is_some();
    let code = outcome.problem.as_ref().and_then(Problem::known_code);
    let unknown = code == Some(ProblemCode::UnknownTool);
    let crowded = matches!(code, Some(ProblemCode::TooManyCalls | ProblemCode::TooManyQuestions));
    let status = match outcome.state {
        CallState::Denied if crowded => StatusCode::TOO_MANY_REQUESTS,
        CallState::Denied | CallState::Expired => StatusCode::FORBIDDEN,
        CallState::Rejected if unknown => StatusCode::NOT_FOUND,
        CallState::Rejected => StatusCode::UNPROCESSABLE_ENTITY,
        CallState::Cancelled if !ran => StatusCode::CONFLICT,
        _ => return told(StatusCode::OK, &Call::from(update)),
    };
    let nothing = || Problem::plain("refused", format!("the call was {}", outcome.state.as_str()));
    let problem = outcome.problem.clone().unwrap_or_else(nothing);
    Err(Refused::new(status, problem).of_call(update.call_id.clone(), outcome.state))
}

fn pending(update: CallUpdate) -> Result<Response, Refused> {
    let location = HeaderValue::from_str(&format!("/v1/calls/{}", update.call_id));
    let mut response = told(StatusCode::ACCEPTED, &Call::from(update))?;
    if let Ok(location) = location {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// Where a call stands.
#[utoipa::path(
    get,
    path = "/v1/calls/{call_id}",
    operation_id = "get_call",
    params(("call_id" = String, Path, description = "The call")),
    responses((status = 200, description = "The call", body = Call, content_type = "application/json"), Refusals)
)]
pub(super) async fn get(State(door): State<Door>, caller: Caller, Id(id): Id<CallId>) -> Result<Response, Refused> {
    let update = door.engine.call(&caller.peer, &id).await;
    let update = update.map_err(|error| Refused::from(error).or_not_found("call", id.as_str()))?;
    told(StatusCode::OK, &Call::from(update))
}

/// Withdraw a call that waits, or end one that runs. The answer is its end.
#[utoipa::path(
    delete,
    path = "/v1/calls/{call_id}",
    operation_id = "cancel_call",
    params(("call_id" = String, Path, description = "The call")),
    responses((status = 200, description = "How it ended", body = Call, content_type = "application/json"), Refusals)
)]
pub(super) async fn cancel(State(door): State<Door>, caller: Caller, Id(id): Id<CallId>) -> Result<Response, Refused> {
    let update = door.engine.cancel(&caller.peer, &id).await;
    let update = update.map_err(|error| Refused::from(error).or_not_found("call", id.as_str()))?;
    tracing::info!(by = %caller.peer.effective(), call = %id, state = update.state.as_str(), "cancelled");
    told(StatusCode::OK, &Call::from(update))
}

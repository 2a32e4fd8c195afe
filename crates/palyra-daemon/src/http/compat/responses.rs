//! `/v1/responses`: made, asked for again, cancelled.
//!
//! The response of an agent is its run, which is on record: it can be asked for, cancelled, gone on from, and made in
//! the background. The response of a plain model is not kept, and a caller that wants it kept is told so.

use super::Json;
use super::errors::Fault;
use super::items::{About, Items};
use super::responses_request::{ApprovalAnswer, ResponseWanted, read};
use super::source::{self, Answer, Around, End, Piece};
use super::{Asked, KEEP_ALIVE, now, rate_headers};
use crate::http::Door;
use crate::http::payload::Caller;
use axum::extract::{Path, Request, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use palyra_agent::{FinishReason, RunShown, Usage};
use palyra_engine::{Answer as Given, VerifiedPeer};
use palyra_protocol::{ApprovalDecision, ApprovalScope, CallId, GrantMatcher, RunId, RunState};
use serde_json::{Map, Value};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

pub(super) async fn create(State(door): State<Door>, request: Request) -> Result<Response, Fault> {
    let asked = Asked::read(request).await?;
    let wanted = read(&asked.fields)?;
    if !source::is_run(&wanted.wanted) {
        kept_by_nobody(&wanted)?;
    }
    for answer in &wanted.answers {
        answered(&door, &asked.peer, answer).await?;
    }
    let (model, streams, background) = (wanted.wanted.model.clone(), wanted.wanted.stream, wanted.background);
    let previous = wanted.previous.as_deref().map(run_of).transpose()?;
    let mut response = if wanted.wanted.messages.is_empty() && !wanted.answers.is_empty() {
        // Nothing but answers: the run that waited for them is what the caller wants to hear of.
        let run = previous.ok_or_else(|| Fault::invalid(Some("previous_response_id"), "say which response waits"))?;
        followed(&door, &asked.peer, &run).await?
    } else {
        let session = match &previous {
            Some(run) => Some(door.doors.runs.show(&asked.peer, run).await?.session),
            None => None,
        };
        let around = Around { request: asked.request, session };
        let answer = source::begin(&door, &asked.peer, wanted.wanted, around).await?;
        let run = answer.run.as_ref().map(|(run, _)| run.clone());
        let about = About {
            id: run.as_ref().map_or_else(|| format!("resp_{}", unique()), response_of),
            created: now(),
            model,
            previous: wanted.previous,
            background,
            run: run.map(String::from),
            metadata: wanted.metadata,
        };
        told(answer, Items::new(about), streams, background).await?
    };
    rate_headers(&door, &asked.peer, response.headers_mut());
    Ok(response)
}

/// Refuses what would have to be kept for a model that is asked as it is.
fn kept_by_nobody(wanted: &ResponseWanted) -> Result<(), Fault> {
    let agents = "only responses of an agent (`palyra/NAME`), or with Palyra's tools, are kept";
    if wanted.store == Some(true) {
        return Err(Fault::unsupported("store", format!("{agents}; leave `store` out or set it to false")));
    }
    if wanted.background {
        return Err(Fault::unsupported("background", agents));
    }
    if wanted.previous.is_some() {
        return Err(Fault::unsupported("previous_response_id", agents));
    }
    Ok(())
}

/// Gives a person's answer to an approval: whether it counts is the engine's to say.
async fn answered(door: &Door, peer: &VerifiedPeer, answer: &ApprovalAnswer) -> Result<(), Fault> {
    let given = Given {
        approval_id: answer.id.clone(),
        decision: if answer.approve { ApprovalDecision::Allow } else { ApprovalDecision::Deny },
        scope: ApprovalScope::Once,
        matcher: GrantMatcher::ExactCall,
        reason: answer.reason.clone(),
        digest: None,
        signature: None,
    };
    // The gate asked for the right to chat; answering takes the right to decide.
    door.engine.admit(peer, palyra_policy::PolicyAction::ApprovalDecide, None)?;
    door.engine.decide_approval(peer, given).await.map(drop).map_err(Fault::from)
}

async fn told(mut answer: Answer, mut items: Items, streams: bool, background: bool) -> Result<Response, Fault> {
    if background && !streams {
        return Ok(Json(items.response()).into_response());
    }
    if streams {
        items.begin();
        return Ok(streamed(Events { answer, items, next: VecDeque::new(), done: false }));
    }
    while let Some(piece) = answer.pieces.recv().await {
        let last = matches!(piece, Piece::End(_));
        items.take(piece);
        items.drain();
        if last {
            break;
        }
    }
    match items.fault() {
        Some(fault) => Err(fault),
        None => Ok(Json(items.response()).into_response()),
    }
}

/// A response as events.
struct Events {
    answer: Answer,
    items: Items,
    next: VecDeque<(&'static str, Value)>,
    done: bool,
}

fn streamed(events: Events) -> Response {
    let events = stream::unfold(events, |mut events| async move {
        let (name, data) = events.next().await?;
        Some((Ok::<_, Infallible>(Event::default().event(name).data(data.to_string())), events))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

impl Events {
    async fn next(&mut self) -> Option<(&'static str, Value)> {
        loop {
            self.next.extend(self.items.drain());
            if let Some(event) = self.next.pop_front() {
                return Some(event);
            }
            if self.done {
                return None;
            }
            match self.answer.pieces.recv().await {
                Some(piece) => {
                    self.done = matches!(piece, Piece::End(_));
                    self.items.take(piece);
                }
                None => self.done = true,
            }
        }
    }
}

/// A response that was made before, as it stands.
pub(super) async fn show(State(door): State<Door>, caller: Caller, Path(id): Path<String>) -> Result<Response, Fault> {
    let shown = door.doors.runs.show(&caller.peer, &run_of(&id)?).await;
    let shown = shown.map_err(|error| hidden(error.into()))?;
    Ok(Json(recorded(&shown)).into_response())
}

/// Ends a response that is being made.
pub(super) async fn cancel(
    State(door): State<Door>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Response, Fault> {
    let run = run_of(&id)?;
    let shown = door.doors.runs.show(&caller.peer, &run).await.map_err(|error| hidden(error.into()))?;
    let shown = if shown.state.is_terminal() { shown } else { door.doors.runs.cancel(&caller.peer, &run).await? };
    Ok(Json(recorded(&shown)).into_response())
}

/// Waits for the end of a run and tells it as a response.
async fn followed(door: &Door, peer: &Arc<VerifiedPeer>, run: &RunId) -> Result<Response, Fault> {
    let (_, watch) = door.doors.runs.watch(peer, run).await?;
    if let Some(mut watch) = watch {
        while watch.next().await.is_some() {}
    }
    let shown = door.doors.runs.show(peer, run).await?;
    Ok(Json(recorded(&shown)).into_response())
}

fn hidden(fault: Fault) -> Fault {
    match fault.body()["type"].as_str() {
        Some("permission_error" | "not_found_error") => Fault::not_found("response"),
        _ => fault,
    }
}

/// A run as a response.
fn recorded(shown: &RunShown) -> Value {
    let about = About {
        id: response_of(&shown.run),
        created: shown.opened_at_unix_ms / 1000,
        model: shown.agent.as_ref().map_or_else(|| shown.model.clone(), |agent| format!("palyra/{agent}")),
        previous: None,
        background: false,
        run: Some(shown.run.to_string()),
        metadata: Map::new(),
    };
    let mut items = Items::new(about);
    for turn in &shown.turns {
        if !turn.reply.text.is_empty() {
            items.take(Piece::Text(turn.reply.text.clone()));
        }
        match &turn.results {
            Some(results) => {
                for (call, result) in turn.reply.tool_calls.iter().zip(results) {
                    let (arguments, result) = (call.arguments.clone(), Box::new(result.clone()));
                    items.take(Piece::Result { arguments, result });
                }
            }
            None if shown.state == RunState::CallerTools => {
                for (index, call) in turn.reply.tool_calls.iter().enumerate() {
                    items.take(Piece::ToolCall { index, id: call.id.clone(), name: call.name.clone() });
                    items.take(Piece::Arguments { index, part: call.arguments.clone() });
                }
            }
            None => {}
        }
    }
    if shown.state.is_terminal() {
        let good = matches!(shown.state, RunState::Completed | RunState::CallerTools);
        let plain = || palyra_protocol::Problem::plain(shown.state.as_str(), "the run did not complete");
        let problem = (!good).then(|| shown.problem.clone().unwrap_or_else(plain));
        let usage = Usage { input: shown.spent.input_tokens, output: shown.spent.output_tokens };
        items.take(Piece::End(End { finish: FinishReason::Stop, usage, problem }));
    }
    items.response()
}

/// The response of a run, by the same letters.
fn response_of(run: &RunId) -> String {
    format!("resp_{}", run.as_str().trim_start_matches("run_"))
}

fn run_of(response: &str) -> Result<RunId, Fault> {
    let letters = response.strip_prefix("resp_").filter(|letters| letters.bytes().all(|b| b.is_ascii_alphanumeric()));
    let run = letters.and_then(|letters| format!("run_{letters}").parse().ok());
    run.ok_or_else(|| Fault::not_found("response"))
}

fn unique() -> String {
    CallId::mint().as_str().trim_start_matches("call_").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_and_its_run_have_the_same_letters() {
        let run = RunId::mint();
        assert_eq!(run_of(&response_of(&run)).unwrap(), run);
        for bad in ["", "resp_", "run_1", "resp_../x", "resp_a b"] {
            assert!(run_of(bad).is_err() || bad == "resp_", "{bad}");
        }
    }
}

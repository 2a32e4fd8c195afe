//! `/v1/chat/completions`.

use super::Json;
use super::errors::Fault;
use super::items::notes;
use super::request::{self, ChatWanted};
use super::source::{self, Answer, Around, End, Piece};
use super::{Asked, KEEP_ALIVE, now, rate_headers};
use crate::http::Door;
use axum::extract::{Request, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use palyra_agent::{FinishReason, Usage};
use palyra_protocol::{CallId, RunResult};
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::convert::Infallible;

pub(super) async fn create(State(door): State<Door>, request: Request) -> Result<Response, Fault> {
    let asked = Asked::read(request).await?;
    let ChatWanted { wanted, include_usage } = request::chat(&asked.fields)?;
    let (model, streams) = (wanted.model.clone(), wanted.stream);
    let around = Around { request: asked.request, session: None };
    let answer = source::begin(&door, &asked.peer, wanted, around).await?;
    let completion = Completion {
        id: format!("chatcmpl-{}", CallId::mint().as_str().trim_start_matches("call_")),
        created: now(),
        model,
        run: answer.run.as_ref().map(|(run, _)| run.to_string()),
    };
    let mut response =
        if streams { streamed(answer, completion, include_usage) } else { whole(answer, &completion).await? };
    rate_headers(&door, &asked.peer, response.headers_mut());
    Ok(response)
}

/// What every part of one answer says of itself.
struct Completion {
    id: String,
    created: u64,
    model: String,
    run: Option<String>,
}

impl Completion {
    fn metadata(&self, results: &[RunResult]) -> Map<String, Value> {
        notes(self.run.as_deref(), results)
    }

    fn chunk(&self, choices: Value) -> Value {
        json!({
            "id": self.id, "object": "chat.completion.chunk", "created": self.created, "model": self.model,
            "choices": choices,
        })
    }

    fn delta(&self, delta: Value) -> Value {
        self.chunk(json!([{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": null }]))
    }
}

fn finish(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::ToolCalls => "tool_calls",
        FinishReason::Length => "length",
        FinishReason::ContentFilter => "content_filter",
    }
}

fn usage(usage: Usage) -> Value {
    json!({
        "prompt_tokens": usage.input, "completion_tokens": usage.output, "total_tokens": usage.input + usage.output,
    })
}

async fn whole(mut answer: Answer, completion: &Completion) -> Result<Response, Fault> {
    let (mut text, mut calls, mut results) = (String::new(), Vec::<Value>::new(), Vec::new());
    while let Some(piece) = answer.pieces.recv().await {
        match piece {
            Piece::Text(more) => text.push_str(&more),
            Piece::ToolCall { id, name, .. } => {
                calls.push(json!({ "id": id, "type": "function", "function": { "name": name, "arguments": "" } }));
            }
            Piece::Arguments { index, part } => {
                if let Some(Value::String(all)) = calls.get_mut(index).map(|call| &mut call["function"]["arguments"]) {
                    all.push_str(&part);
                }
            }
            Piece::Result { result, .. } => results.push(*result),
            Piece::Approval { .. } => {}
            Piece::End(End { problem: Some(problem), .. }) => return Err(Fault::of_end(problem)),
            Piece::End(end) => return Ok(Json(completed(completion, &end, text, calls, &results)).into_response()),
        }
    }
    Err(Fault::internal("the answer ended without a word"))
}

fn completed(completion: &Completion, end: &End, text: String, calls: Vec<Value>, results: &[RunResult]) -> Value {
    let content = if text.is_empty() && !calls.is_empty() { Value::Null } else { text.into() };
    let mut message = json!({ "role": "assistant", "content": content, "refusal": null, "annotations": [] });
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    let choice = json!({ "index": 0, "message": message, "logprobs": null, "finish_reason": finish(end.finish) });
    json!({
        "id": completion.id, "object": "chat.completion", "created": completion.created, "model": completion.model,
        "choices": [choice], "usage": usage(end.usage), "service_tier": "default", "system_fingerprint": null,
        "metadata": completion.metadata(results),
    })
}

/// An answer as chunks.
struct Chunks {
    answer: Answer,
    completion: Completion,
    include_usage: bool,
    results: Vec<RunResult>,
    /// What is to be sent next.
    next: VecDeque<Event>,
    done: bool,
}

fn streamed(answer: Answer, completion: Completion, include_usage: bool) -> Response {
    let first = completion.delta(json!({ "role": "assistant", "content": "", "refusal": null }));
    let next = VecDeque::from([data(&first)]);
    let chunks = Chunks { answer, completion, include_usage, results: Vec::new(), next, done: false };
    let events = stream::unfold(chunks, |mut chunks| async move {
        let event = chunks.next().await?;
        Some((Ok::<_, Infallible>(event), chunks))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

fn data(value: &Value) -> Event {
    Event::default().data(value.to_string())
}

impl Chunks {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.next.pop_front() {
                return Some(event);
            }
            if self.done {
                return None;
            }
            match self.answer.pieces.recv().await {
                Some(piece) => self.take(piece),
                None => self.done = true,
            }
        }
    }

    fn take(&mut self, piece: Piece) {
        let delta = match piece {
            Piece::Text(text) => json!({ "content": text }),
            Piece::ToolCall { index, id, name } => {
                let function = json!({ "name": name, "arguments": "" });
                json!({ "tool_calls": [{ "index": index, "id": id, "type": "function", "function": function }] })
            }
            Piece::Arguments { index, part } => {
                json!({ "tool_calls": [{ "index": index, "function": { "arguments": part } }] })
            }
            Piece::Approval { id, name, .. } => {
                let comment = format!("waiting for a person to approve {name}: palyra approvals decide {id} allow");
                self.next.push_back(Event::default().comment(comment));
                return;
            }
            Piece::Result { result, .. } => {
                self.results.push(*result);
                return;
            }
            Piece::End(end) => return self.end(&end),
        };
        self.next.push_back(data(&self.completion.delta(delta)));
    }

    fn end(&mut self, end: &End) {
        self.done = true;
        if let Some(problem) = &end.problem {
            self.next.push_back(data(&json!({ "error": Fault::of_end(problem.clone()).body() })));
        } else {
            let choice = json!({ "index": 0, "delta": {}, "logprobs": null, "finish_reason": finish(end.finish) });
            let mut last = self.completion.chunk(json!([choice]));
            last["metadata"] = self.completion.metadata(&self.results).into();
            self.next.push_back(data(&last));
            if self.include_usage {
                let mut counted = self.completion.chunk(json!([]));
                counted["usage"] = usage(end.usage);
                self.next.push_back(data(&counted));
            }
        }
        self.next.push_back(Event::default().data("[DONE]"));
    }
}

//! A response made of its items, whole or as the events that build it.

use super::errors::Fault;
use super::source::{End, Piece};
use palyra_agent::FinishReason;
use palyra_protocol::{CallId, RunResult};
use serde_json::{Map, Value, json};

/// The most calls that are noted: metadata has sixteen places.
const NOTED: usize = 15;

/// What a result's metadata says of the run and its calls: each with its id, its end and the digest of its attestation.
pub(super) fn notes(run: Option<&str>, results: &[RunResult]) -> Map<String, Value> {
    let mut notes = Map::new();
    if let Some(run) = run {
        notes.insert("palyra_run".to_owned(), run.into());
    }
    let calls = results.iter().filter_map(|result| result.call_id.as_ref().map(|id| (id, result)));
    for (index, (id, result)) in calls.take(NOTED).enumerate() {
        let state = result.state.map_or("", |state| state.as_str());
        let digest = result.attestation_sha256.map_or_else(String::new, |digest| format!(" sha256:{digest}"));
        notes.insert(format!("palyra_call_{index}"), format!("{id} {state}{digest}").into());
    }
    notes
}

/// What a response says of itself from the beginning.
#[derive(Debug, Clone)]
pub(super) struct About {
    pub(super) id: String,
    pub(super) created: u64,
    pub(super) model: String,
    pub(super) previous: Option<String>,
    pub(super) background: bool,
    pub(super) run: Option<String>,
    pub(super) metadata: Map<String, Value>,
}

/// A response on its way.
#[derive(Debug)]
pub(super) struct Items {
    about: About,
    output: Vec<Value>,
    /// The text of the message that is being written, which is the last item.
    text: Option<String>,
    /// Where each of the caller's calls stands among the items.
    calls: Vec<usize>,
    results: Vec<RunResult>,
    sequence: u64,
    events: Vec<(&'static str, Value)>,
    end: Option<End>,
}

impl Items {
    pub(super) fn new(about: About) -> Self {
        Self {
            about,
            output: Vec::new(),
            text: None,
            calls: Vec::new(),
            results: Vec::new(),
            sequence: 0,
            events: Vec::new(),
            end: None,
        }
    }

    /// The events since the last time, each with its name.
    pub(super) fn drain(&mut self) -> Vec<(&'static str, Value)> {
        std::mem::take(&mut self.events)
    }

    /// The first events.
    pub(super) fn begin(&mut self) {
        let response = self.response();
        self.tell("response.created", json!({ "response": response }));
        self.tell("response.in_progress", json!({ "response": response }));
    }

    pub(super) fn take(&mut self, piece: Piece) {
        match piece {
            Piece::Text(text) => self.more_text(&text),
            Piece::ToolCall { id, name, .. } => {
                let item = json!({
                    "id": fresh("fc"), "type": "function_call", "status": "in_progress", "call_id": id, "name": name,
                    "arguments": "",
                });
                self.calls.push(self.output.len() + usize::from(self.text.is_some()));
                self.close_text();
                self.add(item);
            }
            Piece::Arguments { index, part } => self.more_arguments(index, &part),
            Piece::Approval { id, name, arguments } => self.whole(json!({
                "id": id, "type": "mcp_approval_request", "server_label": "palyra", "name": name,
                "arguments": arguments,
            })),
            Piece::Result { arguments, result } => {
                let content = Value::from(result.content.clone());
                let (output, error) = match result.is_error {
                    true => (Value::Null, json!({ "type": "mcp_tool_execution_error", "content": content })),
                    false => (content, Value::Null),
                };
                let status = if result.is_error { "failed" } else { "completed" };
                self.whole(json!({
                    "id": fresh("mcp"), "type": "mcp_call", "server_label": "palyra", "name": result.tool,
                    "arguments": arguments, "output": output, "error": error, "status": status,
                    "approval_request_id": null,
                }));
                self.results.push(*result);
            }
            Piece::End(end) => self.finish(end),
        }
    }

    fn tell(&mut self, kind: &'static str, mut event: Value) {
        event["type"] = kind.into();
        event["sequence_number"] = self.sequence.into();
        self.sequence += 1;
        self.events.push((kind, event));
    }

    fn add(&mut self, item: Value) {
        let index = self.output.len();
        self.tell("response.output_item.added", json!({ "output_index": index, "item": item }));
        self.output.push(item);
    }

    /// An item that comes at once.
    fn whole(&mut self, item: Value) {
        self.close_text();
        let index = self.output.len();
        self.add(item.clone());
        self.tell("response.output_item.done", json!({ "output_index": index, "item": item }));
    }

    fn more_text(&mut self, more: &str) {
        if self.text.is_none() {
            let item = json!({ "id": fresh("msg"), "type": "message", "status": "in_progress", "role": "assistant", "content": [] });
            self.add(item);
            let part = json!({ "type": "output_text", "text": "", "annotations": [], "logprobs": [] });
            let event =
                json!({ "item_id": self.last_id(), "output_index": self.last(), "content_index": 0, "part": part });
            self.tell("response.content_part.added", event);
            self.text = Some(String::new());
        }
        if let Some(text) = &mut self.text {
            text.push_str(more);
        }
        let event = json!({
            "item_id": self.last_id(), "output_index": self.last(), "content_index": 0, "delta": more, "logprobs": [],
        });
        self.tell("response.output_text.delta", event);
    }

    fn close_text(&mut self) {
        let Some(text) = self.text.take() else { return };
        let (id, index) = (self.last_id(), self.last());
        let at = json!({ "item_id": id, "output_index": index, "content_index": 0 });
        let part = json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] });
        let mut done = at.clone();
        done["text"] = text.into();
        done["logprobs"] = json!([]);
        self.tell("response.output_text.done", done);
        let mut done = at;
        done["part"] = part.clone();
        self.tell("response.content_part.done", done);
        let item = &mut self.output[index];
        item["content"] = json!([part]);
        item["status"] = "completed".into();
        let item = item.clone();
        self.tell("response.output_item.done", json!({ "output_index": index, "item": item }));
    }

    fn more_arguments(&mut self, index: usize, part: &str) {
        let Some(place) = self.calls.get(index).copied() else { return };
        let Some(item) = self.output.get_mut(place) else { return };
        if let Value::String(all) = &mut item["arguments"] {
            all.push_str(part);
        }
        let event = json!({ "item_id": item["id"], "output_index": place, "delta": part });
        self.tell("response.function_call_arguments.delta", event);
    }

    fn finish(&mut self, end: End) {
        self.close_text();
        for place in self.calls.clone() {
            let Some(item) = self.output.get_mut(place) else { continue };
            item["status"] = "completed".into();
            let item = item.clone();
            let event = json!({
                "item_id": item["id"], "output_index": place, "arguments": item["arguments"],
            });
            self.tell("response.function_call_arguments.done", event);
            self.tell("response.output_item.done", json!({ "output_index": place, "item": item }));
        }
        let kind = match (&end.problem, end.finish) {
            (Some(_), _) => "response.failed",
            (None, FinishReason::Length | FinishReason::ContentFilter) => "response.incomplete",
            (None, _) => "response.completed",
        };
        self.end = Some(end);
        let response = self.response();
        self.tell(kind, json!({ "response": response }));
    }

    fn last(&self) -> usize {
        self.output.len().saturating_sub(1)
    }

    fn last_id(&self) -> Value {
        self.output.last().map_or(Value::Null, |item| item["id"].clone())
    }

    /// Why the response failed.
    pub(super) fn fault(&self) -> Option<Fault> {
        self.end.as_ref().and_then(|end| end.problem.clone()).map(Fault::of_end)
    }

    /// The response as it stands.
    pub(super) fn response(&self) -> Value {
        let About { id, created, model, previous, background, run, metadata } = &self.about;
        let mut noted = notes(run.as_deref(), &self.results);
        noted.extend(metadata.clone());
        let incomplete = match self.end.as_ref().map(|end| end.finish) {
            Some(FinishReason::Length) => json!({ "reason": "max_output_tokens" }),
            Some(FinishReason::ContentFilter) => json!({ "reason": "content_filter" }),
            _ => Value::Null,
        };
        let problem = self.end.as_ref().and_then(|end| end.problem.as_ref());
        let status = match (&self.end, problem) {
            (None, _) => "in_progress",
            (_, Some(problem)) if problem.code == "cancelled" => "cancelled",
            (_, Some(_)) => "failed",
            _ if !incomplete.is_null() => "incomplete",
            _ => "completed",
        };
        let error = problem.map(
            |problem| json!({ "code": "server_error", "message": format!("{}: {}", problem.code, problem.message) }),
        );
        let usage = self.end.as_ref().map(|end| {
            let (read, written) = (end.usage.input, end.usage.output);
            json!({
                "input_tokens": read, "input_tokens_details": { "cache_write_tokens": 0, "cached_tokens": 0 },
                "output_tokens": written,
                "output_tokens_details": { "reasoning_tokens": 0 }, "total_tokens": read + written,
            })
        });
        json!({
            "id": id, "object": "response", "created_at": created, "status": status, "background": background,
            "error": error, "incomplete_details": incomplete, "instructions": null, "max_output_tokens": null,
            "max_tool_calls": null, "model": model, "output": self.output, "parallel_tool_calls": true,
            "previous_response_id": previous, "reasoning": { "effort": null, "summary": null }, "service_tier": "default",
            "temperature": 1.0, "text": { "format": { "type": "text" } }, "tool_choice": "auto",
            "tools": [], "top_logprobs": 0, "top_p": 1.0, "truncation": "disabled", "usage": usage, "user": null,
            "metadata": noted,
        })
    }
}

fn fresh(kind: &str) -> String {
    format!("{kind}_{}", CallId::mint().as_str().trim_start_matches("call_"))
}

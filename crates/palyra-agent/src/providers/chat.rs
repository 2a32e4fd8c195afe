//! OpenAI's chat completions.

use super::{Decoder, DialectError, ModelRequest, ModelSettings, ToolChoice, count, json_of, label};
use crate::client::Usage;
use crate::conversation::{Message, Part, Role};
use crate::reply::{FinishReason, ModelEvent};
use crate::sse::SseEvent;
use serde_json::{Value, json};

pub(super) fn encode(request: &ModelRequest) -> Value {
    let messages: Vec<Value> = request.messages.iter().flat_map(messages).collect();
    let mut body = json!({
        "model": request.model,
        "messages": messages,
        "stream": true,
        "stream_options": { "include_usage": true },
    });
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(|tool| {
            let function = json!({ "name": tool.name, "description": tool.description, "parameters": tool.parameters });
            json!({ "type": "function", "function": function })
        });
        body["tools"] = tools.collect();
    }
    let ModelSettings { max_tokens, temperature, top_p, stop, tool_choice } = &request.settings;
    if let Some(most) = max_tokens {
        body["max_completion_tokens"] = (*most).into();
    }
    if let Some(temperature) = temperature {
        body["temperature"] = (*temperature).into();
    }
    if let Some(top_p) = top_p {
        body["top_p"] = (*top_p).into();
    }
    if !stop.is_empty() {
        body["stop"] = json!(stop);
    }
    if let Some(choice) = tool_choice.as_ref().filter(|_| !request.tools.is_empty()) {
        body["tool_choice"] = match choice {
            ToolChoice::Auto => json!("auto"),
            ToolChoice::None => json!("none"),
            ToolChoice::Required => json!("required"),
            ToolChoice::Tool(name) => json!({ "type": "function", "function": { "name": name } }),
        };
    }
    body
}

/// A message; results of tools are messages of their own.
fn messages(message: &Message) -> Vec<Value> {
    let results: Vec<Value> = message
        .parts
        .iter()
        .filter_map(|part| match part {
            Part::ToolResult { id, content, .. } => {
                Some(json!({ "role": "tool", "tool_call_id": id, "content": content }))
            }
            _ => None,
        })
        .collect();
    if !results.is_empty() {
        return results;
    }
    let role = match message.role {
        Role::System => "system",
        Role::User | Role::Tool => "user",
        Role::Assistant => "assistant",
    };
    let calls: Vec<Value> = message
        .parts
        .iter()
        .filter_map(|part| match part {
            Part::ToolCall { id, name, arguments } => {
                let function = json!({ "name": name, "arguments": arguments });
                Some(json!({ "id": id, "type": "function", "function": function }))
            }
            _ => None,
        })
        .collect();
    let images = message.parts.iter().any(|part| matches!(part, Part::Image { .. }));
    let content = if images {
        let parts = message.parts.iter().filter_map(|part| match part {
            Part::Text { text } => Some(json!({ "type": "text", "text": text })),
            Part::Image { url } => Some(json!({ "type": "image_url", "image_url": { "url": url } })),
            _ => None,
        });
        parts.collect()
    } else {
        Value::from(message.plain_text())
    };
    let mut written = json!({ "role": role, "content": content });
    if !calls.is_empty() {
        written["tool_calls"] = calls.into();
    }
    vec![written]
}

/// Reads a stream of chunks.
#[derive(Debug, Default)]
pub(super) struct ChatDecoder {
    /// The provider's index of each call that was begun, in our order.
    calls: Vec<u64>,
    finished: bool,
    done: bool,
}

impl Decoder for ChatDecoder {
    fn take(&mut self, event: &SseEvent) -> Result<Vec<ModelEvent>, DialectError> {
        if event.data.trim() == "[DONE]" {
            self.done = true;
            return Ok(Vec::new());
        }
        let chunk = json_of(event)?;
        if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
            return Err(DialectError::reported(error));
        }
        let mut events = Vec::new();
        if let Some(usage) = chunk["usage"].as_object() {
            let of = |name: &str| usage.get(name).map_or(0, count);
            events.push(ModelEvent::Usage(Usage { input: of("prompt_tokens"), output: of("completion_tokens") }));
        }
        let choice = &chunk["choices"][0];
        let delta = &choice["delta"];
        if let Some(text) = delta["content"].as_str().filter(|text| !text.is_empty()) {
            events.push(ModelEvent::Text(text.to_owned()));
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            self.call(call, &mut events)?;
        }
        if let Some(reason) = choice["finish_reason"].as_str() {
            self.finished = true;
            events.push(ModelEvent::Finish(finish(reason)));
        }
        Ok(events)
    }

    fn is_done(&self) -> bool {
        // Some providers close the connection instead of sending the last line.
        self.done || self.finished
    }
}

impl ChatDecoder {
    fn call(&mut self, call: &Value, events: &mut Vec<ModelEvent>) -> Result<(), DialectError> {
        // Providers that send one whole call at a time leave the index out.
        let index = call["index"].as_u64().unwrap_or(self.calls.len() as u64);
        let known = self.calls.iter().position(|known| *known == index);
        let place = match known {
            Some(place) => place,
            None => {
                let (id, name) = (label(&call["id"], "id")?, label(&call["function"]["name"], "name")?);
                self.calls.push(index);
                events.push(ModelEvent::ToolCall { index: self.calls.len() - 1, id, name });
                self.calls.len() - 1
            }
        };
        if let Some(part) = call["function"]["arguments"].as_str().filter(|part| !part.is_empty()) {
            events.push(ModelEvent::Arguments { index: place, part: part.to_owned() });
        }
        Ok(())
    }
}

fn finish(reason: &str) -> FinishReason {
    match reason {
        "tool_calls" | "function_call" => FinishReason::ToolCalls,
        "length" => FinishReason::Length,
        "content_filter" => FinishReason::ContentFilter,
        _ => FinishReason::Stop,
    }
}

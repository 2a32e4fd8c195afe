//! Anthropic's messages.

use super::{Decoder, DialectError, ModelRequest, ModelSettings, ToolChoice, count, json_of, label};
use crate::client::Usage;
use crate::conversation::{Message, Part, Role};
use crate::reply::{FinishReason, ModelEvent};
use crate::sse::SseEvent;
use serde_json::{Value, json};
use std::collections::HashMap;

/// What is asked for where the caller does not say: the format demands a number.
const DEFAULT_MAX_TOKENS: u32 = 8192;

pub(super) fn encode(request: &ModelRequest) -> Value {
    let is_system = |message: &&Message| message.role == Role::System;
    let system: Vec<String> = request.messages.iter().filter(is_system).map(Message::plain_text).collect();
    let mut messages: Vec<Value> = Vec::new();
    for message in request.messages.iter().filter(|message| !is_system(message)) {
        let role = if message.role == Role::Assistant { "assistant" } else { "user" };
        let blocks: Vec<Value> = message.parts.iter().map(block).collect();
        // Two messages of one side in a row are one message to this format.
        match messages.last_mut().filter(|last| last["role"] == role) {
            Some(last) => {
                if let Some(content) = last["content"].as_array_mut() {
                    content.extend(blocks);
                }
            }
            None => messages.push(json!({ "role": role, "content": blocks })),
        }
    }
    let mut body = json!({
        "model": request.model,
        "messages": messages,
        "max_tokens": request.settings.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS),
        "stream": true,
    });
    if !system.is_empty() {
        body["system"] = system.join("\n\n").into();
    }
    if !request.tools.is_empty() {
        let tools = request
            .tools
            .iter()
            .map(|tool| json!({ "name": tool.name, "description": tool.description, "input_schema": tool.parameters }));
        body["tools"] = tools.collect();
    }
    let ModelSettings { max_tokens: _, temperature, top_p, stop, tool_choice } = &request.settings;
    if let Some(temperature) = temperature {
        body["temperature"] = (*temperature).into();
    }
    if let Some(top_p) = top_p {
        body["top_p"] = (*top_p).into();
    }
    if !stop.is_empty() {
        body["stop_sequences"] = json!(stop);
    }
    if let Some(choice) = tool_choice.as_ref().filter(|_| !request.tools.is_empty()) {
        body["tool_choice"] = match choice {
            ToolChoice::Auto => json!({ "type": "auto" }),
            ToolChoice::None => json!({ "type": "none" }),
            ToolChoice::Required => json!({ "type": "any" }),
            ToolChoice::Tool(name) => json!({ "type": "tool", "name": name }),
        };
    }
    body
}

fn block(part: &Part) -> Value {
    match part {
        Part::Text { text } => json!({ "type": "text", "text": text }),
        Part::Image { url } => match url.strip_prefix("data:").and_then(|data| data.split_once(";base64,")) {
            Some((kind, data)) => {
                json!({ "type": "image", "source": { "type": "base64", "media_type": kind, "data": data } })
            }
            None => json!({ "type": "image", "source": { "type": "url", "url": url } }),
        },
        Part::ToolCall { id, name, arguments } => {
            // The format wants an object; what the model wrote may be none.
            let input = serde_json::from_str::<Value>(arguments).ok().filter(Value::is_object);
            json!({ "type": "tool_use", "id": id, "name": name, "input": input.unwrap_or_else(|| json!({})) })
        }
        Part::ToolResult { id, content, is_error } => {
            json!({ "type": "tool_result", "tool_use_id": id, "content": content, "is_error": is_error })
        }
    }
}

/// Reads a stream of named events.
#[derive(Debug, Default)]
pub(super) struct MessagesDecoder {
    /// Our place of each content block that is a call.
    calls: HashMap<u64, usize>,
    input: u64,
    done: bool,
}

impl Decoder for MessagesDecoder {
    fn take(&mut self, event: &SseEvent) -> Result<Vec<ModelEvent>, DialectError> {
        let body = json_of(event)?;
        Ok(match body["type"].as_str().unwrap_or(&event.event) {
            "message_start" => {
                self.input = count(&body["message"]["usage"]["input_tokens"]);
                Vec::new()
            }
            "content_block_start" if body["content_block"]["type"] == "tool_use" => {
                let block = &body["content_block"];
                let (id, name) = (label(&block["id"], "id")?, label(&block["name"], "name")?);
                let index = self.calls.len();
                self.calls.insert(count(&body["index"]), index);
                vec![ModelEvent::ToolCall { index, id, name }]
            }
            "content_block_delta" => self.delta(&body)?,
            "message_delta" => {
                let usage = Usage { input: self.input, output: count(&body["usage"]["output_tokens"]) };
                let reason = body["delta"]["stop_reason"].as_str().map(|reason| ModelEvent::Finish(finish(reason)));
                std::iter::once(ModelEvent::Usage(usage)).chain(reason).collect()
            }
            "message_stop" => {
                self.done = true;
                Vec::new()
            }
            "error" => return Err(DialectError::reported(&body["error"])),
            _ => Vec::new(),
        })
    }

    fn is_done(&self) -> bool {
        self.done
    }
}

impl MessagesDecoder {
    fn delta(&self, body: &Value) -> Result<Vec<ModelEvent>, DialectError> {
        let delta = &body["delta"];
        Ok(match delta["type"].as_str() {
            Some("text_delta") => match delta["text"].as_str() {
                Some(text) if !text.is_empty() => vec![ModelEvent::Text(text.to_owned())],
                _ => Vec::new(),
            },
            Some("input_json_delta") => {
                let index = self.calls.get(&count(&body["index"])).copied();
                let index = index.ok_or_else(|| DialectError::malformed("input for a call that was not begun"))?;
                vec![ModelEvent::Arguments { index, part: delta["partial_json"].as_str().unwrap_or("").to_owned() }]
            }
            _ => Vec::new(),
        })
    }
}

fn finish(reason: &str) -> FinishReason {
    match reason {
        "tool_use" => FinishReason::ToolCalls,
        "max_tokens" | "model_context_window_exceeded" => FinishReason::Length,
        "refusal" => FinishReason::ContentFilter,
        _ => FinishReason::Stop,
    }
}

//! OpenAI's responses.

use super::{Decoder, DialectError, ModelRequest, ModelSettings, ToolChoice, count, json_of, label};
use crate::client::Usage;
use crate::conversation::{Message, Part, Role};
use crate::reply::{FinishReason, ModelEvent};
use crate::sse::SseEvent;
use serde_json::{Value, json};

pub(super) fn encode(request: &ModelRequest) -> Value {
    let input: Vec<Value> = request.messages.iter().flat_map(items).collect();
    let mut body = json!({ "model": request.model, "input": input, "stream": true, "store": false });
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(|tool| {
            json!({
                "type": "function", "name": tool.name, "description": tool.description,
                "parameters": tool.parameters, "strict": false,
            })
        });
        body["tools"] = tools.collect();
    }
    // The format has no words that end an answer.
    let ModelSettings { max_tokens, temperature, top_p, stop: _, tool_choice } = &request.settings;
    if let Some(most) = max_tokens {
        body["max_output_tokens"] = (*most).into();
    }
    if let Some(temperature) = temperature {
        body["temperature"] = (*temperature).into();
    }
    if let Some(top_p) = top_p {
        body["top_p"] = (*top_p).into();
    }
    if let Some(choice) = tool_choice.as_ref().filter(|_| !request.tools.is_empty()) {
        body["tool_choice"] = match choice {
            ToolChoice::Auto => json!("auto"),
            ToolChoice::None => json!("none"),
            ToolChoice::Required => json!("required"),
            ToolChoice::Tool(name) => json!({ "type": "function", "name": name }),
        };
    }
    body
}

fn items(message: &Message) -> Vec<Value> {
    let mut items = Vec::new();
    let (role, kind) = match message.role {
        Role::System => ("system", "input_text"),
        Role::User | Role::Tool => ("user", "input_text"),
        Role::Assistant => ("assistant", "output_text"),
    };
    let mut content = Vec::new();
    for part in &message.parts {
        match part {
            Part::Text { text } => content.push(json!({ "type": kind, "text": text })),
            Part::Image { url } => content.push(json!({ "type": "input_image", "image_url": url })),
            Part::ToolCall { id, name, arguments } => {
                items.push(json!({ "type": "function_call", "call_id": id, "name": name, "arguments": arguments }));
            }
            Part::ToolResult { id, content, .. } => {
                items.push(json!({ "type": "function_call_output", "call_id": id, "output": content }));
            }
        }
    }
    if !content.is_empty() {
        items.insert(0, json!({ "type": "message", "role": role, "content": content }));
    }
    items
}

/// Reads a stream of named events.
#[derive(Debug, Default)]
pub(super) struct ResponsesDecoder {
    /// The output index of each call that was begun, in our order.
    calls: Vec<u64>,
    done: bool,
}

impl Decoder for ResponsesDecoder {
    fn take(&mut self, event: &SseEvent) -> Result<Vec<ModelEvent>, DialectError> {
        if event.data.trim() == "[DONE]" {
            return Ok(Vec::new());
        }
        let body = json_of(event)?;
        let kind = body["type"].as_str().unwrap_or(&event.event);
        Ok(match kind {
            "response.output_text.delta" | "response.refusal.delta" => match body["delta"].as_str() {
                Some(text) if !text.is_empty() => vec![ModelEvent::Text(text.to_owned())],
                _ => Vec::new(),
            },
            "response.output_item.added" if body["item"]["type"] == "function_call" => {
                let item = &body["item"];
                let (id, name) = (label(&item["call_id"], "call_id")?, label(&item["name"], "name")?);
                self.calls.push(count(&body["output_index"]));
                let index = self.calls.len() - 1;
                let begun = ModelEvent::ToolCall { index, id, name };
                match item["arguments"].as_str().filter(|part| !part.is_empty()) {
                    Some(part) => vec![begun, ModelEvent::Arguments { index, part: part.to_owned() }],
                    None => vec![begun],
                }
            }
            "response.function_call_arguments.delta" => {
                let wanted = count(&body["output_index"]);
                let index = self.calls.iter().position(|known| *known == wanted);
                let index = index.ok_or_else(|| DialectError::malformed("input for a call that was not begun"))?;
                let part = body["delta"].as_str().unwrap_or("").to_owned();
                vec![ModelEvent::Arguments { index, part }]
            }
            "response.completed" | "response.incomplete" => self.end(&body["response"]),
            "response.failed" => return Err(DialectError::reported(&body["response"]["error"])),
            "error" => {
                return Err(DialectError::reported(if body["error"].is_null() { &body } else { &body["error"] }));
            }
            _ => Vec::new(),
        })
    }

    fn is_done(&self) -> bool {
        self.done
    }
}

impl ResponsesDecoder {
    fn end(&mut self, response: &Value) -> Vec<ModelEvent> {
        self.done = true;
        let usage = &response["usage"];
        let usage = Usage { input: count(&usage["input_tokens"]), output: count(&usage["output_tokens"]) };
        let reason = match response["incomplete_details"]["reason"].as_str() {
            Some("max_output_tokens") => FinishReason::Length,
            Some("content_filter") => FinishReason::ContentFilter,
            _ if self.calls.is_empty() => FinishReason::Stop,
            _ => FinishReason::ToolCalls,
        };
        vec![ModelEvent::Usage(usage), ModelEvent::Finish(reason)]
    }
}

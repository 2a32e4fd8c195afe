//! Reading a request for a response.

use super::errors::Fault;
use super::request::{Wanted, checked, content, flag, known, list, model, number, palyras, settings, spec, texts};
use palyra_agent::{Message, Part, Role};
use palyra_protocol::ApprovalId;
use serde_json::{Map, Value};

const HARMLESS: &[&str] = &[
    "user",
    "metadata",
    "parallel_tool_calls",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "reasoning",
    "include",
    "client_metadata",
    "max_tool_calls",
    "stream_options",
];
const HONOURED: &[&str] = &[
    "model",
    "input",
    "instructions",
    "tools",
    "tool_choice",
    "temperature",
    "top_p",
    "max_output_tokens",
    "stream",
    "store",
    "background",
    "previous_response_id",
    "text",
    "truncation",
];

/// A request for a response.
#[derive(Debug)]
pub(super) struct ResponseWanted {
    pub(super) wanted: Wanted,
    pub(super) background: bool,
    /// What was said about keeping it.
    pub(super) store: Option<bool>,
    pub(super) previous: Option<String>,
    pub(super) metadata: Map<String, Value>,
    /// A person's answers to approvals.
    pub(super) answers: Vec<ApprovalAnswer>,
}

/// A person's answer to an approval.
#[derive(Debug)]
pub(super) struct ApprovalAnswer {
    pub(super) id: ApprovalId,
    pub(super) approve: bool,
    pub(super) reason: Option<String>,
}

pub(super) fn read(fields: &Map<String, Value>) -> Result<ResponseWanted, Fault> {
    known(fields, &[HARMLESS, HONOURED], &[("top_logprobs", Value::from(0))])?;
    let format = fields.get("text").map(|text| &text["format"]["type"]).filter(|kind| !kind.is_null());
    if format.is_some_and(|kind| kind != "text") {
        return Err(Fault::unsupported("text.format", "only `text` is understood"));
    }
    if fields.get("truncation").is_some_and(|truncation| truncation == "auto") {
        return Err(Fault::unsupported("truncation", "conversations are not cut here"));
    }
    let mut messages = Vec::new();
    if let Some(instructions) = fields.get("instructions").and_then(Value::as_str).filter(|text| !text.is_empty()) {
        messages.push(Message::text(Role::System, instructions));
    }
    let mut answers = Vec::new();
    match fields.get("input") {
        Some(Value::String(text)) => messages.push(Message::text(Role::User, text.clone())),
        Some(Value::Array(items)) => {
            for (index, item) in items.iter().enumerate() {
                let at = format!("input[{index}]");
                take(item, &mut messages, &mut answers).map_err(|why| Fault::invalid(Some(&at), why))?;
            }
        }
        _ => return Err(Fault::invalid(Some("input"), "`input` must be a text or a list of items")),
    }
    // Tools of kinds that only OpenAI has are not offered to the model.
    let functions = list(fields, "tools")?.iter().filter(|tool| tool["type"] == "function");
    let tools: Option<Vec<_>> = functions.map(spec).collect();
    let tools =
        tools.ok_or_else(|| Fault::unsupported("tools", "a function needs a name of letters, digits, `_`, `-`"))?;
    let most = number(fields, "max_output_tokens")?;
    let text = |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_owned);
    let store = fields.get("store").filter(|store| !store.is_null()).map(|_| flag(fields, "store")).transpose()?;
    Ok(ResponseWanted {
        wanted: Wanted {
            model: model(fields)?,
            messages,
            tools: checked(tools)?,
            palyras: palyras(list(fields, "tools")?)?,
            settings: settings(fields, most)?,
            stream: flag(fields, "stream")?,
        },
        background: flag(fields, "background")?,
        store,
        previous: text("previous_response_id"),
        metadata: fields.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default(),
        answers,
    })
}

fn take(item: &Value, messages: &mut Vec<Message>, answers: &mut Vec<ApprovalAnswer>) -> Result<(), String> {
    let text = |name: &str| item[name].as_str().map(str::to_owned).ok_or(format!("`{name}` is missing"));
    match item["type"].as_str().unwrap_or("message") {
        "message" => {
            let role = match item["role"].as_str() {
                Some("system" | "developer") => Role::System,
                Some("user") => Role::User,
                Some("assistant") => Role::Assistant,
                _ => return Err("`role` must be system, developer, user or assistant".to_owned()),
            };
            messages.push(Message { role, parts: content(&item["content"])? });
        }
        "function_call" => {
            let part = Part::ToolCall { id: text("call_id")?, name: text("name")?, arguments: text("arguments")? };
            // Calls that the model made at once belong to one message.
            match messages.last_mut().filter(|last| last.role == Role::Assistant) {
                Some(last) => last.parts.push(part),
                None => messages.push(Message { role: Role::Assistant, parts: vec![part] }),
            }
        }
        "function_call_output" => {
            let told = match &item["output"] {
                Value::String(text) => text.clone(),
                other => texts(&content(other)?),
            };
            let part = Part::ToolResult { id: text("call_id")?, content: told, is_error: false };
            match messages.last_mut().filter(|last| last.role == Role::Tool) {
                Some(last) => last.parts.push(part),
                None => messages.push(Message { role: Role::Tool, parts: vec![part] }),
            }
        }
        "mcp_approval_response" => answers.push(ApprovalAnswer {
            id: text("approval_request_id")?.parse().map_err(|_| "this names no approval".to_owned())?,
            approve: item["approve"].as_bool().ok_or("`approve` must be true or false")?,
            reason: item["reason"].as_str().map(str::to_owned),
        }),
        // What the model thought, and what ran here: the run has it.
        "reasoning" | "mcp_call" | "mcp_list_tools" | "mcp_approval_request" => {}
        other => {
            return Err(format!(
                "an item of the kind `{}` is not understood",
                other.chars().take(40).collect::<String>()
            ));
        }
    }
    Ok(())
}

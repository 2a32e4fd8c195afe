//! Reading a chat completion request: what is honoured, what is harmless, and what is refused.
//!
//! Nothing that would change the answer is ignored in silence. A field that is in none of the lists is refused by name.

use super::errors::Fault;
use palyra_agent::{Message, ModelSettings, Part, Role, ToolChoice, ToolSpec, WantedTools};
use serde_json::{Map, Value};
use std::collections::HashSet;

/// The server that Palyra's own tools are on.
const PALYRAS: &str = "palyra";
/// The most tools of a caller.
const MAX_TOOLS: usize = 128;

/// Fields that change nothing that is promised here.
const HARMLESS: &[&str] = &[
    "user",
    "metadata",
    "parallel_tool_calls",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "seed",
    "service_tier",
    "reasoning_effort",
    "verbosity",
    "store",
];
const HONOURED: &[&str] = &[
    "model",
    "messages",
    "tools",
    "tool_choice",
    "temperature",
    "top_p",
    "stop",
    "max_tokens",
    "max_completion_tokens",
    "stream",
    "stream_options",
];

/// What a caller wants, in whichever of the two forms it asked.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    pub(super) model: String,
    pub(super) messages: Vec<Message>,
    pub(super) tools: Vec<ToolSpec>,
    /// Which of Palyra's tools are asked for, where the request names them.
    pub(super) palyras: Option<WantedTools>,
    pub(super) settings: ModelSettings,
    pub(super) stream: bool,
}

/// A chat completion request.
#[derive(Debug)]
pub(super) struct ChatWanted {
    pub(super) wanted: Wanted,
    pub(super) include_usage: bool,
}

pub(super) fn chat(fields: &Map<String, Value>) -> Result<ChatWanted, Fault> {
    known(fields, &[HARMLESS, HONOURED], &[("n", Value::from(1)), ("logprobs", Value::from(false))])?;
    if fields.get("store") == Some(&Value::Bool(true)) {
        return Err(Fault::unsupported("store", "chat completions are not stored here; leave `store` out"));
    }
    if let Some(format) = fields.get("response_format").filter(|format| !format.is_null() && format["type"] != "text") {
        let _asked_for = format;
        return Err(Fault::unsupported("response_format", "only `text` is understood"));
    }
    let messages = fields.get("messages").and_then(Value::as_array);
    let messages = messages.ok_or_else(|| Fault::invalid(Some("messages"), "`messages` must be a list"))?;
    let mut read: Vec<Message> = Vec::with_capacity(messages.len());
    for (index, message) in messages.iter().enumerate() {
        read.push(self::message(message).map_err(|why| Fault::invalid(Some(&format!("messages[{index}]")), why))?);
    }
    if read.is_empty() {
        return Err(Fault::invalid(Some("messages"), "there is nothing to answer"));
    }
    results_fit(&read)?;
    let most = number(fields, "max_completion_tokens")?.or(number(fields, "max_tokens")?);
    let tools = list(fields, "tools")?;
    let palyras = palyras(tools)?;
    let tools = tools.iter().filter(|tool| !is_palyras(tool));
    let tools = tools.map(|tool| spec(&tool["function"]).filter(|_| tool["type"] == "function"));
    let tools: Option<Vec<ToolSpec>> = tools.collect();
    let wanted = Wanted {
        model: model(fields)?,
        messages: read,
        tools: checked(tools.ok_or_else(|| Fault::unsupported("tools", "a tool must be a function with a name"))?)?,
        palyras,
        settings: settings(fields, most)?,
        stream: flag(fields, "stream")?,
    };
    let include_usage = fields.get("stream_options").is_some_and(|options| options["include_usage"] == true);
    Ok(ChatWanted { wanted, include_usage })
}

/// Refuses the result of a call that no message before it asks for.
fn results_fit(messages: &[Message]) -> Result<(), Fault> {
    let mut asked = HashSet::new();
    for (index, part) in
        messages.iter().enumerate().flat_map(|(at, message)| message.parts.iter().map(move |p| (at, p)))
    {
        match part {
            Part::ToolCall { id, .. } => {
                asked.insert(id.as_str());
            }
            Part::ToolResult { id, .. } if !asked.contains(id.as_str()) => {
                let param = format!("messages[{index}].tool_call_id");
                return Err(Fault::invalid(Some(&param), "no message before this one asks for a call with this id"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Refuses fields that nobody here knows.
pub(super) fn known(fields: &Map<String, Value>, lists: &[&[&str]], fixed: &[(&str, Value)]) -> Result<(), Fault> {
    for (name, value) in fields {
        let listed = lists.iter().any(|list| list.contains(&name.as_str())) || name == "response_format";
        let at_its_default = value.is_null() || fixed.iter().any(|(fixed, default)| fixed == name && default == value);
        if !listed && !at_its_default {
            let name: String = name.chars().take(64).collect();
            return Err(Fault::unsupported(&name, format!("`{name}` is not understood with this value")));
        }
    }
    Ok(())
}

pub(super) fn model(fields: &Map<String, Value>) -> Result<String, Fault> {
    let model = fields.get("model").and_then(Value::as_str).filter(|model| !model.is_empty() && model.len() <= 256);
    model.map(str::to_owned).ok_or_else(|| Fault::invalid(Some("model"), "`model` must name a model"))
}

pub(super) fn flag(fields: &Map<String, Value>, name: &str) -> Result<bool, Fault> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(_) => Err(Fault::invalid(Some(name), format!("`{name}` must be true or false"))),
    }
}

pub(super) fn list<'f>(fields: &'f Map<String, Value>, name: &str) -> Result<&'f [Value], Fault> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(list)) => Ok(list),
        Some(_) => Err(Fault::invalid(Some(name), format!("`{name}` must be a list"))),
    }
}

pub(super) fn number(fields: &Map<String, Value>, name: &str) -> Result<Option<u32>, Fault> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64().and_then(|number| u32::try_from(number).ok()).filter(|n| *n > 0) {
            Some(number) => Ok(Some(number)),
            None => Err(Fault::invalid(Some(name), format!("`{name}` must be a positive number"))),
        },
    }
}

fn fraction(fields: &Map<String, Value>, name: &str, most: f64) -> Result<Option<f64>, Fault> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_f64().filter(|number| (0.0..=most).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(Fault::invalid(Some(name), format!("`{name}` must be between 0 and {most}"))),
        },
    }
}

/// How the model is to answer.
pub(super) fn settings(fields: &Map<String, Value>, max_tokens: Option<u32>) -> Result<ModelSettings, Fault> {
    let stop = match fields.get("stop") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(all)) if all.len() <= 4 => all.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        Some(_) => return Err(Fault::invalid(Some("stop"), "`stop` must be a text or at most four")),
    };
    Ok(ModelSettings {
        max_tokens,
        temperature: fraction(fields, "temperature", 2.0)?,
        top_p: fraction(fields, "top_p", 1.0)?,
        stop,
        tool_choice: tool_choice(fields.get("tool_choice"))?,
    })
}

fn tool_choice(choice: Option<&Value>) -> Result<Option<ToolChoice>, Fault> {
    let choice = match choice {
        None | Some(Value::Null) => return Ok(None),
        Some(choice) => choice,
    };
    let named = choice["function"]["name"].as_str().or_else(|| choice["name"].as_str());
    Ok(Some(match (choice.as_str(), named) {
        (Some("auto"), _) => ToolChoice::Auto,
        (Some("none"), _) => ToolChoice::None,
        (Some("required"), _) => ToolChoice::Required,
        (None, Some(name)) => ToolChoice::Tool(name.to_owned()),
        _ => return Err(Fault::unsupported("tool_choice", "`tool_choice` is not understood")),
    }))
}

/// A tool of the caller.
pub(super) fn spec(function: &Value) -> Option<ToolSpec> {
    let name = function["name"].as_str()?;
    let fits =
        !name.is_empty() && name.len() <= 64 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
    let parameters = match &function["parameters"] {
        Value::Null => serde_json::json!({ "type": "object", "properties": {} }),
        schema => schema.clone(),
    };
    let description = function["description"].as_str().unwrap_or_default().to_owned();
    fits.then(|| ToolSpec { name: name.to_owned(), description, parameters })
}

/// Whether a tool stands for Palyra's own, in the form in which OpenAI's API names a server of tools.
pub(super) fn is_palyras(tool: &Value) -> bool {
    tool["type"] == "mcp" && tool["server_label"] == PALYRAS
}

/// Which of Palyra's tools a request asks for: all, or those in `allowed_tools`.
pub(super) fn palyras(tools: &[Value]) -> Result<Option<WantedTools>, Fault> {
    let Some(asked) = tools.iter().find(|tool| is_palyras(tool)) else { return Ok(None) };
    let allowed = &asked["allowed_tools"];
    let names = match allowed {
        Value::Null => return Ok(Some(WantedTools::Usual)),
        Value::Object(filter) if filter.keys().all(|key| key == "tool_names") => &allowed["tool_names"],
        other => other,
    };
    let names = names.as_array().and_then(|names| names.iter().map(|name| name.as_str().map(str::to_owned)).collect());
    let names: Option<Vec<String>> = names;
    match names {
        Some(names) => Ok(Some(WantedTools::Only(names))),
        None => Err(Fault::unsupported("tools", "`allowed_tools` must be a list of names")),
    }
}

/// Tools with names of their own.
pub(super) fn checked(tools: Vec<ToolSpec>) -> Result<Vec<ToolSpec>, Fault> {
    if tools.len() > MAX_TOOLS {
        return Err(Fault::invalid(Some("tools"), format!("there are at most {MAX_TOOLS} tools")));
    }
    let mut names = HashSet::new();
    match tools.iter().find(|tool| !names.insert(tool.name.as_str())) {
        Some(twice) => Err(Fault::invalid(Some("tools"), format!("two tools are called `{}`", twice.name))),
        None => Ok(tools),
    }
}

fn message(message: &Value) -> Result<Message, String> {
    let role = match message["role"].as_str() {
        Some("system" | "developer") => Role::System,
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some("tool") => Role::Tool,
        _ => return Err("`role` must be system, developer, user, assistant or tool".to_owned()),
    };
    if role == Role::Tool {
        let id = message["tool_call_id"].as_str().ok_or("`tool_call_id` is missing")?.to_owned();
        let content = texts(&content(&message["content"])?);
        return Ok(Message { role, parts: vec![Part::ToolResult { id, content, is_error: false }] });
    }
    let mut parts = content(&message["content"])?;
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let text = |value: &Value, what: &str| value.as_str().map(str::to_owned).ok_or(format!("`{what}` is missing"));
        parts.push(Part::ToolCall {
            id: text(&call["id"], "tool_calls.id")?,
            name: text(&call["function"]["name"], "tool_calls.function.name")?,
            arguments: text(&call["function"]["arguments"], "tool_calls.function.arguments")?,
        });
    }
    if parts.is_empty() && role != Role::Assistant {
        return Err("`content` is missing".to_owned());
    }
    Ok(Message { role, parts })
}

/// The parts of a message, in either of the two forms.
pub(super) fn content(content: &Value) -> Result<Vec<Part>, String> {
    let parts = match content {
        Value::Null => return Ok(Vec::new()),
        Value::String(text) => return Ok(vec![Part::Text { text: text.clone() }]),
        Value::Array(parts) => parts,
        _ => return Err("`content` must be a text or a list of parts".to_owned()),
    };
    parts.iter().map(part).collect()
}

fn part(part: &Value) -> Result<Part, String> {
    let kind = part["type"].as_str().unwrap_or_default();
    let text = part["text"].as_str().or_else(|| part["refusal"].as_str());
    let url = part["image_url"]["url"].as_str().or_else(|| part["image_url"].as_str());
    match (kind, text, url) {
        ("text" | "input_text" | "output_text" | "refusal", Some(text), _) => Ok(Part::Text { text: text.to_owned() }),
        ("image_url" | "input_image", _, Some(url)) => Ok(Part::Image { url: url.to_owned() }),
        _ => Err(format!("a part of the kind `{}` is not understood", kind.chars().take(40).collect::<String>())),
    }
}

pub(super) fn texts(parts: &[Part]) -> String {
    let texts = parts.iter().filter_map(|part| match part {
        Part::Text { text } => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refused(body: Value) -> Value {
        match chat(body.as_object().unwrap()) {
            Ok(wanted) => panic!("accepted: {wanted:?}"),
            Err(fault) => fault.body(),
        }
    }

    #[test]
    fn an_ordinary_request_is_read() {
        let body = json!({
            "model": "palyra/coder", "temperature": 0.5, "stream": true, "stream_options": { "include_usage": true },
            "messages": [
                { "role": "system", "content": "be brief" },
                { "role": "user", "content": [{ "type": "text", "text": "hello" }] },
                { "role": "assistant", "content": null, "tool_calls": [
                    { "id": "c1", "type": "function", "function": { "name": "f", "arguments": "{}" } },
                ] },
                { "role": "tool", "tool_call_id": "c1", "content": "done" },
            ],
            "tools": [{ "type": "function", "function": { "name": "f", "parameters": { "type": "object" } } }],
        });
        let read = chat(body.as_object().unwrap()).unwrap();
        assert_eq!((read.wanted.messages.len(), read.wanted.tools.len()), (4, 1));
        assert!(read.include_usage && read.wanted.stream);
    }

    #[test]
    fn what_would_change_the_answer_is_not_ignored() {
        let with = |field: &str, value: Value| {
            let mut body = json!({ "model": "m", "messages": [{ "role": "user", "content": "x" }] });
            body[field] = value;
            refused(body)["param"].as_str().unwrap_or_default().to_owned()
        };
        assert_eq!(with("store", json!(true)), "store");
        assert_eq!(with("n", json!(2)), "n");
        assert_eq!(with("logit_bias", json!({ "1": 1 })), "logit_bias");
        assert_eq!(with("response_format", json!({ "type": "json_object" })), "response_format");
        assert_eq!(with("tools", json!([{ "type": "function", "function": { "name": "a b" } }])), "tools");
        assert_eq!(with("temperature", json!(9)), "temperature");
        assert_eq!(with("messages", json!([{ "role": "king", "content": "x" }])), "messages[0]");
        let stray =
            json!([{ "role": "user", "content": "x" }, { "role": "tool", "tool_call_id": "c", "content": "y" }]);
        assert_eq!(with("messages", stray), "messages[1].tool_call_id");
        let server = json!([{ "type": "mcp", "server_label": "palyra", "allowed_tools": { "read_only": true } }]);
        assert_eq!(with("tools", server), "tools");
    }
}

//! The wire formats of model providers: how a request is written, how a stream is read.
//!
//! A [`Dialect`] is pure: it makes bytes and reads events. It knows no host, no key and no socket. What a provider
//! sends is read leniently where providers differ (fields that are missing or null) and strictly where it matters: a
//! call without a name or an id is an error, because nothing could be proposed or answered.

mod anthropic;
mod chat;
mod responses;

use crate::conversation::{Message, ToolSpec};
use crate::reply::ModelEvent;
use crate::sse::SseEvent;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How a provider speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// OpenAI's chat completions, which most providers understand.
    ChatCompletions,
    /// OpenAI's responses.
    Responses,
    /// Anthropic's messages.
    Messages,
}

/// What a model is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelRequest {
    /// The provider's name for the model.
    pub model: String,
    /// The conversation so far.
    pub messages: Vec<Message>,
    /// The tools it may ask for.
    pub tools: Vec<ToolSpec>,
    /// How it is to answer.
    pub settings: ModelSettings,
}

/// How a model is to answer, as far as the caller says.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelSettings {
    /// The most tokens of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// How much chance there is in the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// From how much of the likely words it chooses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Words that end the answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// Whether it has to ask for a tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
}

/// Whether a model has to ask for a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// As it likes.
    Auto,
    /// It must not.
    None,
    /// For some tool.
    Required,
    /// For this one.
    Tool(String),
}

/// Why a stream is not an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DialectError {
    /// An event is not what the format says.
    #[error("the provider sent something that is not part of its format: {0}")]
    Malformed(String),
    /// The provider says that it failed.
    #[error("the provider reports an error: {0}")]
    Reported(String),
}

impl DialectError {
    fn malformed(what: impl Into<String>) -> Self {
        Self::Malformed(what.into())
    }

    fn reported(error: &Value) -> Self {
        let message = error["message"].as_str().or_else(|| error.as_str()).unwrap_or("it does not say which");
        Self::Reported(message.chars().take(500).collect())
    }
}

/// Reads a stream, event by event.
pub trait Decoder: Send {
    /// The pieces of the answer that an event holds.
    ///
    /// # Errors
    /// The event is not part of the format, or reports an error.
    fn take(&mut self, event: &SseEvent) -> Result<Vec<ModelEvent>, DialectError>;

    /// Whether the answer came to its end: a stream that stops before was cut off.
    fn is_done(&self) -> bool;
}

impl Dialect {
    /// The path beneath the provider's base URL.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Self::ChatCompletions => "chat/completions",
            Self::Responses => "responses",
            Self::Messages => "messages",
        }
    }

    /// The header field that carries a key, with its value.
    #[must_use]
    pub fn key_header(self) -> (&'static str, &'static str) {
        match self {
            Self::ChatCompletions | Self::Responses => ("authorization", "Bearer {}"),
            Self::Messages => ("x-api-key", "{}"),
        }
    }

    /// Further header fields.
    #[must_use]
    pub fn headers(self) -> Vec<(&'static str, &'static str)> {
        let mut headers = vec![("content-type", "application/json"), ("accept", "text/event-stream")];
        if self == Self::Messages {
            headers.push(("anthropic-version", "2023-06-01"));
        }
        headers
    }

    /// The body of a request, for a streamed answer.
    #[must_use]
    pub fn encode(self, request: &ModelRequest) -> Value {
        match self {
            Self::ChatCompletions => chat::encode(request),
            Self::Responses => responses::encode(request),
            Self::Messages => anthropic::encode(request),
        }
    }

    /// A reader for the answer.
    #[must_use]
    pub fn decoder(self) -> Box<dyn Decoder> {
        match self {
            Self::ChatCompletions => Box::<chat::ChatDecoder>::default(),
            Self::Responses => Box::<responses::ResponsesDecoder>::default(),
            Self::Messages => Box::<anthropic::MessagesDecoder>::default(),
        }
    }
}

/// The JSON of an event.
fn json_of(event: &SseEvent) -> Result<Value, DialectError> {
    serde_json::from_str(&event.data).map_err(|_| DialectError::malformed("an event that is not JSON"))
}

fn text<'v>(value: &'v Value, what: &str) -> Result<&'v str, DialectError> {
    value.as_str().ok_or_else(|| DialectError::malformed(format!("`{what}` is missing")))
}

/// A name or id of the provider's choosing: short enough to be kept.
fn label(value: &Value, what: &str) -> Result<String, DialectError> {
    let label = text(value, what)?;
    if label.is_empty() || label.len() > 256 {
        return Err(DialectError::malformed(format!("`{what}` is empty or too long")));
    }
    Ok(label.to_owned())
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

#[cfg(test)]
mod tests;

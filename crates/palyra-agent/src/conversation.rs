//! A conversation with a model, in a form that belongs to no provider.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Who says something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Instructions of whoever runs the agent.
    System,
    /// The person, or whoever stands for one.
    User,
    /// The model.
    Assistant,
    /// The result of a tool call.
    Tool,
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// An image, as a URL or a `data:` URL.
    Image {
        /// Where it is.
        url: String,
    },
    /// The model wants a tool to be called.
    ToolCall {
        /// The model's name for this call.
        id: String,
        /// The tool's alias.
        name: String,
        /// The input, as the model wrote it: it may be anything.
        arguments: String,
    },
    /// What a call gave.
    ToolResult {
        /// The model's name for the call.
        id: String,
        /// The result, as text.
        content: String,
        /// Whether the call did not succeed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

/// A message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who says it.
    pub role: Role,
    /// What.
    pub parts: Vec<Part>,
}

impl Message {
    /// A message of one text.
    #[must_use]
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self { role, parts: vec![Part::Text { text: text.into() }] }
    }

    /// The texts of the message, one after the other.
    #[must_use]
    pub fn plain_text(&self) -> String {
        let texts = self.parts.iter().filter_map(|part| match part {
            Part::Text { text } => Some(text.as_str()),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("")
    }
}

/// A tool that the model may ask for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Its alias: letters, digits, `_` and `-`, at most 64.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The JSON Schema of its input.
    pub parameters: Value,
}

/// Everything that has been said.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Conversation {
    /// The messages, in order.
    pub messages: Vec<Message>,
}

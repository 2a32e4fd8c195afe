//! What a model answers: as it comes, and whole.

use crate::client::Usage;
use crate::conversation::{Message, Part, Role};
use serde::{Deserialize, Serialize};

/// The most tool calls in one answer.
pub(crate) const MAX_TOOL_CALLS: usize = 128;
/// The most text in one answer, arguments of tool calls included.
pub(crate) const MAX_REPLY_BYTES: usize = 4 << 20;

/// Why a model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// It was done.
    Stop,
    /// It wants tools to be called.
    ToolCalls,
    /// It reached the limit of tokens.
    Length,
    /// The provider held the rest back.
    ContentFilter,
}

/// A piece of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelEvent {
    /// More text.
    Text(String),
    /// A tool call begins.
    ToolCall {
        /// Its place among the calls of this answer.
        index: usize,
        /// The model's name for it.
        id: String,
        /// The tool's alias.
        name: String,
    },
    /// More of a tool call's input.
    Arguments {
        /// Which call.
        index: usize,
        /// The next part.
        part: String,
    },
    /// What the provider counted.
    Usage(Usage),
    /// Why it stopped.
    Finish(FinishReason),
}

/// A tool call that a model wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCallRequest {
    /// The model's name for it.
    pub id: String,
    /// The tool's alias.
    pub name: String,
    /// The input, as the model wrote it.
    pub arguments: String,
}

/// A whole answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelReply {
    /// The text.
    pub text: String,
    /// The calls it wants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCallRequest>,
    /// Why it stopped, if it said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish: Option<FinishReason>,
    /// What the provider counted.
    #[serde(default)]
    pub usage: Usage,
}

/// A stream that cannot be an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplyFault {
    /// More calls than anything honest.
    #[error("the model asked for more than {MAX_TOOL_CALLS} tool calls at once")]
    TooManyCalls,
    /// More text than anything honest.
    #[error("the model's answer is longer than {MAX_REPLY_BYTES} bytes")]
    TooLong,
    /// Input for a call that was not begun, or a call that was begun twice.
    #[error("the model's answer does not fit together: {0}")]
    Inconsistent(&'static str),
}

impl ModelReply {
    /// Takes the next piece.
    ///
    /// # Errors
    /// It cannot be part of this answer.
    pub fn take(&mut self, event: &ModelEvent) -> Result<(), ReplyFault> {
        match event {
            ModelEvent::Text(text) => self.text.push_str(text),
            ModelEvent::ToolCall { index, id, name } => {
                if *index >= MAX_TOOL_CALLS {
                    return Err(ReplyFault::TooManyCalls);
                }
                if *index != self.tool_calls.len() {
                    return Err(ReplyFault::Inconsistent("its tool calls are not numbered in order"));
                }
                let (id, name) = (id.clone(), name.clone());
                self.tool_calls.push(ToolCallRequest { id, name, arguments: String::new() });
            }
            ModelEvent::Arguments { index, part } => {
                let call = self.tool_calls.get_mut(*index);
                call.ok_or(ReplyFault::Inconsistent("input came for a call that was not begun"))?
                    .arguments
                    .push_str(part);
            }
            ModelEvent::Usage(usage) => self.usage = *usage,
            ModelEvent::Finish(reason) => self.finish = Some(*reason),
        }
        let arguments: usize = self.tool_calls.iter().map(|call| call.arguments.len()).sum();
        if self.text.len() + arguments > MAX_REPLY_BYTES { Err(ReplyFault::TooLong) } else { Ok(()) }
    }

    /// The answer as a message of the conversation.
    #[must_use]
    pub fn message(&self) -> Message {
        let mut parts = Vec::new();
        if !self.text.is_empty() {
            parts.push(Part::Text { text: self.text.clone() });
        }
        parts.extend(self.tool_calls.iter().map(|call| Part::ToolCall {
            id: call.id.clone(),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
        }));
        Message { role: Role::Assistant, parts }
    }
}

//! What a client asks: the document that it writes to a hook.

use crate::exit::{Failure, REJECTED};
use palyra_protocol::{IdempotencyKey, SessionId};
use serde_json::Value;

/// The longest name that is made of the client's.
const MAX_NAME: usize = 100;
/// How much of an error is passed on.
const MAX_ERROR: usize = 500;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    PreToolUse,
    PermissionRequest,
    PostToolUse,
    PostToolUseFailure,
    ConfigChange,
    /// Nothing that Palyra has a say in.
    Other,
}

/// A question, as far as it is understood.
#[derive(Debug)]
pub struct Question {
    pub event: Event,
    pub tool: String,
    pub input: Value,
    /// The directory that the client's shell stands in.
    pub cwd: String,
    /// The person has asked for a plan and no acts.
    pub is_planning: bool,
    /// What the client says went wrong.
    pub error: String,
    session: String,
    tool_use: String,
}

impl Question {
    pub fn parse(text: &[u8]) -> Result<Self, Failure> {
        let malformed = |why: &str| {
            let message = format!("the client's question is not understood: {why}");
            Failure::new(
                REJECTED,
                "malformed_request",
                message,
                Some("is this version of the client supported? see docs/agents.md"),
            )
        };
        let document: Value = serde_json::from_slice(text).map_err(|e| malformed(&e.to_string()))?;
        let text = |key: &str| document.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let event = match document.get("hook_event_name").and_then(Value::as_str) {
            Some("PreToolUse") => Event::PreToolUse,
            Some("PermissionRequest") => Event::PermissionRequest,
            Some("PostToolUse") => Event::PostToolUse,
            Some("PostToolUseFailure") => Event::PostToolUseFailure,
            Some("ConfigChange") => Event::ConfigChange,
            Some(_) => Event::Other,
            None => return Err(malformed("it names no event")),
        };
        let question = Self {
            event,
            tool: text("tool_name"),
            input: document.get("tool_input").cloned().unwrap_or_default(),
            cwd: text("cwd"),
            is_planning: text("permission_mode") == "plan",
            error: text("error").chars().take(MAX_ERROR).collect(),
            session: text("session_id"),
            tool_use: text("tool_use_id"),
        };
        if question.event == Event::PreToolUse && (question.tool.is_empty() || !question.input.is_object()) {
            return Err(malformed("it names no tool, or no input"));
        }
        Ok(question)
    }

    /// The command that the tool would run.
    pub fn command(&self) -> Option<&str> {
        self.input.get("command").and_then(Value::as_str)
    }

    /// The session's name, as Palyra takes names.
    pub fn session(&self) -> String {
        let name = named(&self.session);
        if name.parse::<SessionId>().is_ok() { name } else { String::new() }
    }

    /// What names this use of the tool before and after it.
    pub fn key(&self) -> Option<String> {
        let key = format!("hook:{}", named(&self.tool_use));
        (!self.tool_use.is_empty() && key.parse::<IdempotencyKey>().is_ok()).then_some(key)
    }
}

/// A client's name in the characters that Palyra's names have.
fn named(text: &str) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() || ".:-".contains(c) { c } else { '-' };
    text.chars().take(MAX_NAME).map(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_that_names_no_tool_is_refused() {
        for text in [
            "",
            "[]",
            "{}",
            r#"{"hook_event_name":"PreToolUse"}"#,
            r#"{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":"x"}"#,
        ] {
            assert!(Question::parse(text.as_bytes()).is_err(), "{text}");
        }
        let other = Question::parse(br#"{"hook_event_name":"Stop"}"#).unwrap();
        assert_eq!(other.event, Event::Other);
    }

    #[test]
    fn names_of_the_client_become_names_of_palyra() {
        let asked = Question::parse(
            br#"{"hook_event_name":"PreToolUse","tool_name":"Read","tool_input":{},"session_id":"a b/\u00fc","tool_use_id":"toolu_01"}"#,
        );
        let asked = asked.unwrap();
        assert_eq!((asked.session().as_str(), asked.key().as_deref()), ("a-b--", Some("hook:toolu-01")));
    }
}

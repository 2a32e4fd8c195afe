//! Tools: a name, a description, schemas, and a function.

use crate::bindings::exports::palyra::skill::tools;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;

type Run = Box<dyn Fn(&str) -> Result<String, ToolError>>;

/// One tool of a skill.
pub struct Tool {
    name: String,
    description: String,
    input_schema: String,
    output_schema: Option<String>,
    run: Run,
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Tool {
    /// A tool that runs a function.
    pub fn new<I, O, F>(name: &str, description: &str, run: F) -> Self
    where
        I: DeserializeOwned,
        O: Serialize,
        F: Fn(I) -> Result<O, ToolError> + 'static,
    {
        let run = move |input: &str| {
            let input = serde_json::from_str(input)
                .map_err(|error| ToolError::new("invalid_input", format!("the input does not fit: {error}")))?;
            let output = run(input)?;
            serde_json::to_string(&output)
                .map_err(|error| ToolError::new("invalid_output", format!("the output cannot be written: {error}")))
        };
        Self {
            name: name.to_owned(),
            description: description.to_owned(),
            input_schema: r#"{"type":"object"}"#.to_owned(),
            output_schema: None,
            run: Box::new(run),
        }
    }

    /// The JSON Schema of its input.
    #[must_use]
    pub fn input(mut self, schema: &str) -> Self {
        schema.clone_into(&mut self.input_schema);
        self
    }

    /// The JSON Schema of its output.
    #[must_use]
    pub fn output(mut self, schema: &str) -> Self {
        self.output_schema = Some(schema.to_owned());
        self
    }
}

/// Why a tool did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolError {
    /// A short stable name, such as `not_found`.
    pub code: String,
    /// A sentence for a person.
    pub message: String,
}

impl ToolError {
    /// An error of your own.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into() }
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

impl std::error::Error for ToolError {}

/// What the host is told about the tools. Called by the macro [`crate::skill`].
#[doc(hidden)]
pub fn describe(all: &[Tool]) -> Vec<tools::Tool> {
    let described = |tool: &Tool| tools::Tool {
        name: tool.name.clone(),
        description: tool.description.clone(),
        input_schema: tool.input_schema.clone(),
        output_schema: tool.output_schema.clone(),
    };
    all.iter().map(described).collect()
}

/// Runs one of the tools. Called by the macro [`crate::skill`].
#[doc(hidden)]
pub fn invoke(all: &[Tool], name: &str, input: &str) -> Result<String, tools::ToolError> {
    let run = match all.iter().find(|tool| tool.name == name) {
        Some(tool) => (tool.run)(input),
        None => Err(ToolError::new("unknown_tool", format!("this skill has no tool `{name}`"))),
    };
    run.map_err(|error| tools::ToolError { code: error.code, message: error.message })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools() -> Vec<Tool> {
        let double =
            |number: u32| number.checked_mul(2).ok_or_else(|| ToolError::new("too_large", "there is no such number"));
        vec![Tool::new("number.double", "Doubles a number.", double).input(r#"{"type":"integer"}"#)]
    }

    #[test]
    fn a_tool_reads_runs_and_writes() {
        assert_eq!(invoke(&tools(), "number.double", "21").unwrap(), "42");
        let code = |name: &str, input: &str| invoke(&tools(), name, input).unwrap_err().code;
        assert_eq!(code("number.double", "\"x\""), "invalid_input");
        assert_eq!(code("number.double", "4294967295"), "too_large");
        assert_eq!(code("number.halve", "1"), "unknown_tool");
        assert_eq!(describe(&tools())[0].input_schema, r#"{"type":"integer"}"#);
    }
}

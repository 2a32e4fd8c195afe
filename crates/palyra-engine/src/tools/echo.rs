//! `palyra.echo`: returns the text that was sent.

use super::schema::object;
use super::{Executing, Input, Job, Made, Place, Prepared, Preparing, Tool};
use crate::flow::execute::{Executed, Running};
use crate::flow::resolve::Refusal;
use palyra_protocol::{ExecutorKind, Facets, RiskLevel, ToolDefinition};
use serde_json::json;
use std::sync::Arc;

pub(super) const NAME: &str = "palyra.echo";

#[derive(Debug)]
struct Echo(ToolDefinition);

pub(super) fn tool() -> Made {
    Ok(Arc::new(Echo(ToolDefinition {
        name: NAME.parse()?,
        summary: "Return the text that was sent".to_owned(),
        description: "Returns its input unchanged. Useful to try the path.".to_owned(),
        input_schema: object(json!({ "text": { "type": "string", "description": "what to return" } }), &["text"]),
        output_schema: object(json!({ "text": { "type": "string" } }), &["text"]),
        capabilities: [].into(),
        risk: RiskLevel::Low,
        executor: ExecutorKind::Builtin,
        example: json!({ "text": "hello" }),
    })))
}

impl Tool for Echo {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn prepare(&self, input: Input<'_>, _place: &Place<'_>) -> Result<Prepared, Refusal> {
        Ok(Prepared::new(Facets::default(), Say(input.text("/text").to_owned())))
    }

    fn preparing(&self) -> Preparing {
        Preparing::AtOnce
    }
}

/// A text to return.
#[derive(Debug)]
struct Say(String);

impl Job for Say {
    fn execute<'r>(self: Box<Self>, _run: &'r Running<'_>) -> Executing<'r> {
        Box::pin(std::future::ready(Executed::in_daemon(Ok(json!({ "text": self.0 })))))
    }
}

//! `palyra.client.plan` and `palyra.client.act`: a client's own tool that resembles none of Palyra's.
//!
//! Palyra does not carry such a tool out and does not know what it does. So that the person decides and the journal
//! knows, a hook proposes it: by the first name where the list says that it acts on nothing but the conversation, by
//! the second, which is as sensitive as running a program, in every other case. No model is offered either of them.

use super::schema::object;
use super::{Input, Job, Made, Place, Prepared, Preparing, Tool};
use crate::flow::resolve::Refusal;
use palyra_protocol::{
    ByClient, ClientToolKind, ExecutorKind, Facets, Problem, RiskLevel, ToolCapability, ToolDefinition,
};
use serde_json::json;
use std::sync::Arc;

pub(super) const PLAN: &str = "palyra.client.plan";
pub(super) const ACT: &str = "palyra.client.act";

#[derive(Debug)]
struct ClientTool(ToolDefinition);

pub(super) fn plan() -> Made {
    Ok(Arc::new(ClientTool(ToolDefinition {
        name: PLAN.parse()?,
        summary: "Record a client's tool that acts on the conversation".to_owned(),
        description:
            "Proposed by `palyra hook` for a tool of the client's own that is known to act on nothing but the \
                      conversation."
                .to_owned(),
        input_schema: input(),
        output_schema: output(),
        capabilities: [].into(),
        risk: RiskLevel::Low,
        executor: ExecutorKind::Client,
        example: json!({ "client": "claude-code", "tool": "TodoWrite", "input": { "todos": [] } }),
    })))
}

pub(super) fn act() -> Made {
    Ok(Arc::new(ClientTool(ToolDefinition {
        name: ACT.parse()?,
        summary: "Decide about a client's tool that Palyra does not know".to_owned(),
        description:
            "Proposed by `palyra hook` for a tool of the client's own, or of another MCP server of the client's, \
                      that resembles none of Palyra's. The client carries it out."
                .to_owned(),
        input_schema: input(),
        output_schema: output(),
        capabilities: [ToolCapability::ProcessExec, ToolCapability::Network, ToolCapability::FilesystemWrite].into(),
        risk: RiskLevel::High,
        executor: ExecutorKind::Client,
        example: json!({ "client": "claude-code", "tool": "mcp__tracker__close", "input": { "id": 7 } }),
    })))
}

fn input() -> serde_json::Value {
    let name = json!({ "type": "string", "minLength": 1, "maxLength": 256 });
    object(
        json!({ "client": name, "tool": name, "input": { "type": "object", "description": "what the tool is given" } }),
        &["client", "tool"],
    )
}

fn output() -> serde_json::Value {
    object(json!({ "carried_out_by": { "type": "string" } }), &["carried_out_by"])
}

impl Tool for ClientTool {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn prepare(&self, input: Input<'_>, _place: &Place<'_>) -> Result<Prepared, Refusal> {
        let (client, tool) = (input.text("/client"), input.text("/tool"));
        let kind = ClientToolKind::of(client, tool);
        let harmless = kind.is_some_and(ClientToolKind::is_harmless);
        if self.0.name.as_str() == PLAN && !harmless {
            let message = format!("`{tool}` of `{client}` is not known to act on the conversation alone");
            return Err(Problem::new("not_harmless", message, format!("propose it as `{ACT}`")).into());
        }
        let by_client = ByClient { tool: Some(tool.to_owned()), ..ByClient::default() };
        Ok(Prepared::new(Facets { by_client: Some(by_client), ..Facets::default() }, NotOurs))
    }

    fn preparing(&self) -> Preparing {
        Preparing::AtOnce
    }
}

/// What takes the place of a job until the call is handed to the client.
#[derive(Debug)]
struct NotOurs;

impl Job for NotOurs {
    fn execute<'r>(self: Box<Self>, _run: &'r crate::flow::execute::Running<'_>) -> super::Executing<'r> {
        let message = "this is a tool of a client's, which Palyra cannot carry out";
        let problem = Problem::new("only_for_clients", message, "clients that are connected with hooks propose it");
        Box::pin(std::future::ready(crate::flow::execute::Executed::not_run(problem)))
    }
}

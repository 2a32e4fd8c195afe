//! The tools that can be called.

use super::Door;
use super::payload::Caller;
use super::problem::{Refusals, Refused};
use super::records::told;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use palyra_protocol::ToolDefinition;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// A tool: what it takes, what it returns, what it can do to the world.
#[derive(Debug, Serialize, ToSchema)]
struct Tool<'a> {
    #[serde(flatten)]
    #[schema(value_type = Definition)]
    definition: &'a ToolDefinition,
    /// Its name as model APIs take it; `invoke` understands both.
    #[schema(pattern = "^[A-Za-z0-9_-]{1,64}$")]
    alias: &'a str,
    /// A person is asked before it runs, unless a rule or a grant says otherwise.
    sensitive: bool,
    /// The operator lets it be called at all.
    allowlisted: bool,
}

/// What a tool is.
#[derive(ToSchema)]
#[expect(dead_code, reason = "a description")]
struct Definition {
    name: String,
    summary: String,
    description: String,
    /// JSON Schema
    input_schema: Value,
    /// JSON Schema
    output_schema: Value,
    capabilities: Vec<String>,
    /// `low`, `medium`, `high` or `critical`
    risk: String,
    executor: String,
    /// An input that works.
    example: Value,
}

/// Every tool.
#[derive(Debug, Serialize, ToSchema)]
struct Tools<'a> {
    tools: Vec<Tool<'a>>,
}

/// The tools that can be called.
#[utoipa::path(
    get,
    path = "/v1/tools",
    operation_id = "list_tools",
    responses((status = 200, description = "Every tool", body = Tools<'_>, content_type = "application/json"), Refusals)
)]
pub(super) async fn list(State(door): State<Door>, caller: Caller) -> Result<Response, Refused> {
    let tools = door.engine.tools(&caller.peer)?;
    let tools = tools.iter().map(|(tool, allowlisted)| Tool {
        definition: tool.definition(),
        alias: tool.alias().as_str(),
        sensitive: tool.metadata().is_sensitive(),
        allowlisted: *allowlisted,
    });
    told(StatusCode::OK, &Tools { tools: tools.collect() })
}

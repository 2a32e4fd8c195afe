//! `palyra tools`.

use super::read;
use crate::args::Tools;
use crate::context::Context;
use crate::exit::Failure;
use crate::output::{self, BOLD, WARN, say, styled};
use crate::text::{pretty, safe};
use palyra_api::v1::{GetToolRequest, ListToolsRequest, Tool};
use palyra_protocol::ExecutorKind;
use serde::Deserialize;
use serde_json::{Value, json};

pub async fn run(context: &Context, command: Tools) -> Result<(), Failure> {
    let connection = context.connect().await?;
    match command {
        Tools::List => {
            let tools = connection.tools().list(ListToolsRequest {}).await?.into_inner().tools;
            list(context, &tools)
        }
        Tools::Show { tool } => {
            let tool = connection.tools().get(GetToolRequest { name: tool }).await?.into_inner();
            show(context, &tool)
        }
    }
}

/// What is shown of a tool's definition besides its row in the list.
#[derive(Debug, Deserialize)]
struct Definition {
    description: String,
    executor: ExecutorKind,
    input_schema: Value,
    output_schema: Value,
    example: Value,
}

fn document(tool: &Tool) -> Result<Value, Failure> {
    let mut document: Value = read(&tool.definition_json)?;
    document["sensitive"] = json!(tool.sensitive);
    document["allowlisted"] = json!(tool.allowlisted);
    Ok(document)
}

fn list(context: &Context, tools: &[Tool]) -> Result<(), Failure> {
    if context.json() {
        return output::json(&tools.iter().map(document).collect::<Result<Vec<_>, _>>()?);
    }
    let rows: Vec<_> = tools
        .iter()
        .map(|tool| {
            let asks = match (tool.allowlisted, tool.sensitive) {
                (false, _) => "denied",
                (true, true) => "asks",
                (true, false) => "allowed",
            };
            vec![tool.name.clone(), tool.risk.clone(), asks.to_owned(), safe(&tool.summary)]
        })
        .collect();
    output::table(&["TOOL", "RISK", "BY DEFAULT", "WHAT IT DOES"], &rows);
    Ok(())
}

fn show(context: &Context, tool: &Tool) -> Result<(), Failure> {
    if context.json() {
        return output::json(&document(tool)?);
    }
    let definition: Definition = read(&tool.definition_json)?;
    say!("{}  {}", styled(BOLD, &tool.name), safe(&tool.summary));
    say!("{}", safe(&definition.description));
    say!("");
    let capabilities =
        if tool.capabilities.is_empty() { "none: it can only look".to_owned() } else { tool.capabilities.join(", ") };
    say!("  {}  {capabilities}", styled(BOLD, "capabilities"));
    say!("  {}          {}", styled(BOLD, "risk"), tool.risk);
    say!("  {}      {}", styled(BOLD, "executor"), definition.executor.as_str());
    if !tool.allowlisted {
        say!("  {}", styled(WARN, "not in `allowed_tools`: every call is denied"));
    }
    say!("\n{}\n{}", styled(BOLD, "input"), pretty(&definition.input_schema));
    say!("\n{}\n{}", styled(BOLD, "output"), pretty(&definition.output_schema));
    say!("\n{}\n  palyra call {} --input '{}'", styled(BOLD, "example"), tool.name, definition.example);
    Ok(())
}

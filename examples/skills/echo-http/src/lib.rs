//! Sends a text to an HTTP endpoint and returns what comes back.
//!
//! It can reach the hosts that its grant names. A credential that is bound to the endpoint is attached by the host:
//! this code never sees it.

use palyra_plugins_sdk::{Tool, ToolError, http, log, skill};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Input {
    url: String,
    text: String,
}

#[derive(Serialize)]
struct Output {
    status: u16,
    body: String,
}

fn echo(input: Input) -> Result<Output, ToolError> {
    log::info(&format!("sending {} bytes to {}", input.text.len(), input.url));
    let reply = http::post(input.url).header("content-type", "text/plain; charset=utf-8").body(input.text).send()?;
    Ok(Output { status: reply.status, body: reply.text()?.to_owned() })
}

fn tools() -> Vec<Tool> {
    vec![
        Tool::new("echo", "Sends a text to an HTTP endpoint and returns what comes back.", echo)
            .input(
                r#"{"type":"object","properties":{"url":{"type":"string"},"text":{"type":"string"}},"required":["url","text"],"additionalProperties":false}"#,
            )
            .output(
                r#"{"type":"object","properties":{"status":{"type":"integer"},"body":{"type":"string"}},"required":["status","body"]}"#,
            ),
    ]
}

skill!(tools);

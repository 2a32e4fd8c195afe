//! A tool's definition as MCP tells it.
//!
//! A published output schema describes everything that `structuredContent` can be: what the tool returns, or an `error`
//! object that says why there is nothing. Clients check results against it, refusals too.

use palyra_engine::CatalogTool;
use palyra_protocol::{ToolCapability, ToolDefinition};
use rmcp::model::{JsonObject, MetaObject, Tool, ToolAnnotations};
use serde_json::{Value, json};
use std::sync::Arc;

/// Where a listing tells the name that policies, approvals and the journal use.
pub(super) const CANONICAL_NAME: &str = "palyra/name";

/// The key of `structuredContent` that says why a call did not succeed.
pub(super) const ERROR: &str = "error";

/// The tool as `tools/list` shows it.
pub(super) fn told(entry: &CatalogTool) -> Tool {
    let tool = entry.definition();
    let about = format!("{} (`{}`)", tool.description, tool.name);
    let mut meta = JsonObject::new();
    meta.insert(CANONICAL_NAME.to_owned(), json!(tool.name));
    meta.insert("palyra/risk".to_owned(), json!(tool.risk.as_str()));
    let mut told = Tool::new(entry.alias().as_str().to_owned(), about, object(&tool.input_schema))
        .with_title(tool.summary.clone())
        .with_annotations(annotations(tool))
        .with_meta(MetaObject(meta));
    if let Some(schema) = output(&tool.output_schema) {
        told = told.with_raw_output_schema(Arc::new(schema));
    }
    told
}

/// What a tool can do to the world, by its capabilities: one that has none can only look.
fn annotations(tool: &ToolDefinition) -> ToolAnnotations {
    let has = |capability| tool.capabilities.contains(&capability);
    let changes = has(ToolCapability::FilesystemWrite) || has(ToolCapability::ProcessExec);
    let reaches_out = has(ToolCapability::Network) || has(ToolCapability::ProcessExec);
    // Whatever has a capability that is neither might change something too.
    let read_only = tool.capabilities.iter().all(|c| *c == ToolCapability::SecretsRead);
    ToolAnnotations::new()
        .read_only(read_only)
        .destructive(changes || !read_only)
        .idempotent(read_only)
        .open_world(reaches_out)
}

fn object(schema: &Value) -> JsonObject {
    schema.as_object().cloned().unwrap_or_default()
}

/// What a tool returns, or an error.
fn output(schema: &Value) -> Option<JsonObject> {
    let mut schema = schema.as_object()?.clone();
    let required = schema.remove("required").unwrap_or_else(|| json!([]));
    let properties = schema.entry("properties").or_insert_with(|| json!({})).as_object_mut()?;
    // A tool that returns such a thing itself would be misunderstood.
    if properties.contains_key(ERROR) {
        return None;
    }
    properties.insert(ERROR.to_owned(), error_schema());
    schema.insert("anyOf".to_owned(), json!([{ "required": required }, { "required": [ERROR] }]));
    Some(schema)
}

fn error_schema() -> Value {
    json!({
        "type": "object",
        "description": "why the call did not succeed",
        "properties": {
            "code": { "type": "string", "description": "stable, for programs" },
            "message": { "type": "string", "description": "what happened and why" },
            "hint": { "type": "string", "description": "what to do next" },
            "state": { "type": "string", "description": "how the call ended: denied, expired, failed, …" },
            "call_id": { "type": "string", "description": "the call, in the journal" },
            "retry_after_ms": { "type": "integer", "description": "how long to wait before trying again" },
            "rules": { "type": "array", "items": { "type": "string" }, "description": "the rules that decided" },
        },
        "required": ["code", "message"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use palyra_engine::ToolCatalog;

    fn tool(name: &str) -> Tool {
        told(ToolCatalog::builtin().unwrap().find(name).unwrap())
    }

    #[test]
    fn hints_say_what_the_capabilities_say() {
        let hints = |name: &str| {
            let hints = tool(name).annotations.unwrap();
            [hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint, hints.open_world_hint]
                .map(Option::unwrap)
        };
        assert_eq!(hints("palyra.fs.read"), [true, false, true, false]);
        assert_eq!(hints("palyra.fs.write"), [false, true, false, false]);
        assert_eq!(hints("palyra.process.run"), [false, true, false, true]);
    }

    #[test]
    fn names_are_those_that_models_take_and_schemas_are_objects() {
        for entry in ToolCatalog::builtin().unwrap().iter() {
            let (tool, definition) = (told(entry), entry.definition());
            assert!(tool.name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b)), "{}", tool.name);
            assert_eq!(tool.meta.unwrap().0[CANONICAL_NAME], json!(definition.name));
            assert_eq!(tool.input_schema["type"], "object");
            let output = tool.output_schema.unwrap();
            assert_eq!((&output["type"], &output["additionalProperties"]), (&json!("object"), &json!(false)));
            assert!(output["properties"].get(ERROR).is_some(), "{}", tool.name);
        }
    }
}

//! The pieces that the schemas of built-in tools are made of.

use serde_json::{Value, json};

/// An input or an output: these properties and no others.
pub(super) fn object(properties: Value, required: &[&str]) -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

/// What is inside an output: every field named, and all of them there but those that are `optional`.
pub(super) fn part(properties: Value, optional: &[&str]) -> Value {
    let named = properties.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
    let required: Vec<_> = named.filter(|name| !optional.contains(name)).collect();
    json!({ "type": "object", "required": required, "properties": properties, "additionalProperties": false })
}

pub(super) fn list_of(items: Value) -> Value {
    json!({ "type": "array", "items": items })
}

pub(super) fn count(description: &str) -> Value {
    json!({ "type": "integer", "minimum": 0, "description": description })
}

pub(super) fn path(description: &str) -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": 4096, "description": description })
}

/// What a call changed in the workspace.
pub(super) fn effect() -> Value {
    json!({
        "type": "object",
        "description": "what it changed in the workspace: the state, counts, the first changes and the digest of all",
    })
}

/// What a caller has to know beyond the result.
pub(super) fn notes() -> Value {
    json!({
        "type": "array", "items": { "type": "string" },
        "description": "what waits for a person, what was dropped, and what to do about it",
    })
}

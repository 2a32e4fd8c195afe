//! What the code says about its tools, against what the manifest says. The manifest counts: it is what people and
//! models are shown.

use palyra_plugins::ToolDescription;
use palyra_skills::Manifest;
use palyra_skills::manifest::Tool;
use serde::Serialize;
use serde_json::Value;

/// One disagreement.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Difference {
    pub(super) tool: String,
    pub(super) message: String,
    /// What to add to the manifest.
    pub(super) snippet: Option<String>,
}

impl Difference {
    fn new(tool: &str, message: String) -> Self {
        Self { tool: tool.to_owned(), message, snippet: None }
    }
}

/// Compares the tools of one module.
pub(super) fn differences(manifest: &Manifest, entry: &str, described: &[ToolDescription]) -> Vec<Difference> {
    let declared: Vec<&Tool> = manifest.tools.iter().filter(|tool| tool.code.entry() == entry).collect();
    let mut found = Vec::new();
    for tool in &declared {
        let Some(own) = described.iter().find(|own| own.name == tool.id.as_str()) else {
            let message = format!("skill.toml has the tool `{}`, and the code has none of that name", tool.id);
            found.push(Difference::new(tool.id.as_str(), message));
            continue;
        };
        found.extend(of_tool(tool, own));
    }
    for own in described {
        if !declared.iter().any(|tool| tool.id.as_str() == own.name) {
            let message =
                format!("the code has the tool `{}`, which skill.toml does not name, so it cannot be called", own.name);
            let mut difference = Difference::new(&own.name, message);
            difference.snippet = snippet(own);
            found.push(difference);
        }
    }
    found
}

fn of_tool(tool: &Tool, own: &ToolDescription) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut differs = |what: &str| {
        let message = format!("the {what} of `{}` in the code is not that of skill.toml, which counts", tool.id);
        found.push(Difference::new(tool.id.as_str(), message));
    };
    if own.description.trim() != tool.description {
        differs("description");
    }
    if serde_json::from_str::<Value>(&own.input_schema).ok().as_ref() != Some(&tool.input_schema) {
        differs("input schema");
    }
    if let Some(schema) = &own.output_schema
        && serde_json::from_str::<Value>(schema).ok().as_ref() != Some(&tool.output_schema)
    {
        differs("output schema");
    }
    found
}

/// The tool as a manifest would have it; nothing if its schemas are none.
fn snippet(own: &ToolDescription) -> Option<String> {
    let any = || r#"{"type":"object"}"#.to_owned();
    let input: toml::Value = serde_json::from_str(&own.input_schema).ok()?;
    let output: toml::Value = serde_json::from_str(&own.output_schema.clone().unwrap_or_else(any)).ok()?;
    let mut tool = toml::Table::new();
    for (key, text) in [("id", own.name.as_str()), ("description", own.description.trim()), ("risk", "low")] {
        tool.insert(key.to_owned(), text.into());
    }
    tool.insert("input_schema".to_owned(), input);
    tool.insert("output_schema".to_owned(), output);
    let mut entrypoints = toml::Table::new();
    entrypoints.insert("tools".to_owned(), toml::Value::Array(vec![tool.into()]));
    let mut document = toml::Table::new();
    document.insert("entrypoints".to_owned(), entrypoints.into());
    toml::to_string(&document).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = r#"
format = 1
[metadata]
skill_id = "acme.greeter"
version = "1.0.0"
publisher = "acme"
name = "Greeter"
[entrypoints]
module = "modules/greeter.wasm"
[[entrypoints.tools]]
id = "greet"
description = "Greets."
risk = "low"
input_schema = { type = "object" }
output_schema = { type = "object" }
[compat]
required_protocol_major = 1
min_palyra_version = "0.1.0"
"#;

    fn described(name: &str, description: &str, input: &str) -> ToolDescription {
        let (name, description, input_schema) = (name.to_owned(), description.to_owned(), input.to_owned());
        ToolDescription { name, description, input_schema, output_schema: None }
    }

    fn compare(described: &[ToolDescription]) -> Vec<String> {
        let manifest = Manifest::parse(MANIFEST.as_bytes()).unwrap();
        let found = differences(&manifest, "modules/greeter.wasm", described);
        found.into_iter().map(|difference| difference.message).collect()
    }

    #[test]
    fn code_and_manifest_are_compared_tool_by_tool() {
        let object = r#"{ "type": "object" }"#;
        assert!(compare(&[described("greet", "Greets. ", object)]).is_empty());
        let found = compare(&[described("greet", "Deletes.", "{}")]);
        assert!(found[0].contains("description") && found[1].contains("input schema"), "{found:?}");
        let found = compare(&[described("wave", "Waves.", object)]);
        assert!(found[0].contains("has the tool `greet`") && found[1].contains("`wave`"), "{found:?}");
    }

    #[test]
    fn a_tool_that_the_manifest_lacks_is_offered_as_text_that_parses() {
        let text = snippet(&described("wave", "Waves.", r#"{"type":"object","required":["to"]}"#)).unwrap();
        let parsed: toml::Table = toml::from_str(&text).unwrap();
        assert_eq!(parsed["entrypoints"]["tools"][0]["id"].as_str(), Some("wave"));
        assert_eq!(snippet(&described("wave", "Waves.", "no schema")), None);
    }
}

//! The catalog: every tool there is, with its schema compiled once.

use palyra_protocol::{Problem, ToolDefinition, ToolName};
use serde_json::Value;
use std::collections::BTreeMap;

/// How many violations of a schema are told at once.
const MAX_VIOLATIONS: usize = 3;

/// The tools that can be proposed.
#[derive(Debug)]
pub struct ToolCatalog {
    tools: BTreeMap<ToolName, CatalogEntry>,
}

#[derive(Debug)]
struct CatalogEntry {
    definition: ToolDefinition,
    validator: jsonschema::Validator,
}

/// Why the catalog could not be built.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// A tool's name is malformed.
    #[error("a built-in tool has a malformed name")]
    Name(#[from] palyra_protocol::tool::ToolNameError),
    /// A tool's schema is no schema.
    #[error("the input schema of `{tool}` is not usable: {reason}")]
    Schema {
        /// The tool.
        tool: ToolName,
        /// Why.
        reason: String,
    },
}

impl ToolCatalog {
    /// The built-in tools.
    ///
    /// # Errors
    /// A definition is malformed.
    pub fn builtin() -> Result<Self, CatalogError> {
        let mut tools = BTreeMap::new();
        for definition in crate::builtin::definitions()? {
            let validator = jsonschema::validator_for(&definition.input_schema)
                .map_err(|e| CatalogError::Schema { tool: definition.name.clone(), reason: e.to_string() })?;
            tools.insert(definition.name.clone(), CatalogEntry { definition, validator });
        }
        Ok(Self { tools })
    }

    /// Every tool, by name.
    pub fn iter(&self) -> impl Iterator<Item = &ToolDefinition> {
        self.tools.values().map(|entry| &entry.definition)
    }

    /// Finds a tool by what a caller wrote.
    ///
    /// # Errors
    /// There is no such tool; the answer names the nearest.
    pub fn find(&self, text: &str) -> Result<&ToolDefinition, Problem> {
        self.entry(text).map(|entry| &entry.definition)
    }

    /// Checks an input against the tool's schema.
    ///
    /// # Errors
    /// What does not fit, and where.
    pub fn validate(&self, tool: &ToolName, input: &Value) -> Result<(), Problem> {
        let entry = self.entry(tool.as_str())?;
        if entry.validator.is_valid(input) {
            return Ok(());
        }
        let violations: Vec<String> = entry
            .validator
            .iter_errors(input)
            .take(MAX_VIOLATIONS)
            .map(|error| {
                let place = error.instance_path().to_string();
                let place = if place.is_empty() { "the input".to_owned() } else { format!("`{}`", shorten(&place)) };
                format!("{place}: {}", shorten(&error.masked_with("the value").to_string()))
            })
            .collect();
        Err(Problem::new(
            "schema_violation",
            format!("the input does not fit the schema of `{tool}`: {}", violations.join("; ")),
            format!("see what it takes: `palyra tools show {tool}`"),
        ))
    }

    fn entry(&self, text: &str) -> Result<&CatalogEntry, Problem> {
        let known = text.parse::<ToolName>().ok().and_then(|name| self.tools.get(&name));
        known.ok_or_else(|| {
            let nearest = self
                .tools
                .keys()
                .map(|name| (strsim::jaro_winkler(name.as_str(), &shorten(text)), name))
                .filter(|(score, _)| *score > 0.8)
                .max_by(|a, b| a.0.total_cmp(&b.0));
            let hint = match nearest {
                Some((_, name)) => format!("did you mean `{name}`? `palyra tools list` shows them all"),
                None => "`palyra tools list` shows them all".to_owned(),
            };
            Problem::new("unknown_tool", format!("there is no tool `{}`", shorten(text)), hint)
        })
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_definition_is_whole_and_its_example_valid() {
        let catalog = ToolCatalog::builtin().unwrap();
        assert_eq!(catalog.iter().count(), crate::builtin::names::ALL.len());
        for tool in catalog.iter() {
            assert_eq!(catalog.validate(&tool.name, &tool.example), Ok(()), "{}", tool.name);
            assert!(jsonschema::validator_for(&tool.output_schema).is_ok(), "{}", tool.name);
            let risky = tool.risk > palyra_protocol::RiskLevel::Low;
            assert_eq!(tool.metadata().is_sensitive(), risky, "{}: risk and capabilities disagree", tool.name);
        }
    }

    #[test]
    fn violations_say_where_and_do_not_repeat_the_value() {
        let catalog = ToolCatalog::builtin().unwrap();
        let name = "palyra.process.run".parse().unwrap();
        let problem = catalog.validate(&name, &json!({"argv": [1], "shell": true})).unwrap_err();
        assert!(problem.message.contains("`/argv/0`"), "{}", problem.message);
        assert_eq!(problem.code, "schema_violation");
        let secret = catalog.validate(&name, &json!({"argv": "hunter2"})).unwrap_err();
        assert!(!secret.message.contains("hunter2"), "{}", secret.message);
    }

    #[test]
    fn unknown_tools_get_the_nearest() {
        let catalog = ToolCatalog::builtin().unwrap();
        let problem = catalog.find("palyra.fs.raed").unwrap_err();
        assert!(problem.hint.unwrap().contains("palyra.fs.read"));
        assert_eq!(catalog.find("rm -rf /").unwrap_err().code, "unknown_tool");
    }
}

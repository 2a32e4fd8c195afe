//! The tools of a manifest: what a model reads, what goes in, what comes out, which code runs.

use super::error::{ManifestFault, Placed};
use super::raw::{RawEntrypoints, RawKind, RawTool, Text};
use crate::archive::names::check_name;
use crate::constants::{INSTRUCTIONS_TOOL, MAX_TOOLS, MODULES_FOLDER, SCRIPTS_FOLDER};
use crate::ids::ToolId;
use crate::text::excerpt;
use palyra_protocol::{CanonicalJson, RiskLevel};
use serde::Serialize;
use serde_json::{Map, Number, Value};
use toml::Spanned;

/// The longest description, in characters.
const MAX_DESCRIPTION: usize = 4096;
/// The largest schema, in canonical form.
const MAX_SCHEMA: usize = 64 << 10;
/// The most words of an interpreter.
const MAX_INTERPRETER: usize = 4;

/// One tool of a skill.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tool {
    /// Its name within the skill.
    pub id: ToolId,
    /// What it does, for people and for models.
    pub description: String,
    /// How bad a wrong call can be, as its publisher says.
    pub risk: RiskLevel,
    /// JSON Schema of the input: an object.
    pub input_schema: Value,
    /// JSON Schema of the output: an object.
    pub output_schema: Value,
    /// Which code of the artifact carries it out.
    pub code: ToolCode,
}

/// Which code of the artifact carries a tool out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolCode {
    /// A component, by the name of its entry.
    Module(String),
    /// A script, which runs as a sandboxed process.
    Script {
        /// The name of its entry.
        path: String,
        /// The program that reads it, and that program's first words.
        interpreter: Vec<String>,
    },
}

impl Tool {
    /// Compares an input with its schema.
    ///
    /// # Errors
    /// What does not fit, and where.
    pub fn check_input(&self, input: &Value) -> Result<(), String> {
        check_value(&self.input_schema, input)
    }

    /// Compares an output with its schema.
    ///
    /// # Errors
    /// What does not fit, and where.
    pub fn check_output(&self, output: &Value) -> Result<(), String> {
        check_value(&self.output_schema, output)
    }
}

impl ToolCode {
    /// The name of the entry that holds the code.
    #[must_use]
    pub fn entry(&self) -> &str {
        match self {
            Self::Module(entry) | Self::Script { path: entry, .. } => entry,
        }
    }
}

pub(super) fn tools(raw: &RawEntrypoints, kind: RawKind) -> Result<Vec<Tool>, Placed> {
    if let Some(module) = raw.module.as_ref().filter(|_| kind == RawKind::Instructions) {
        let message = "a skill of kind `instructions` has no modules";
        return Err((module.span(), ManifestFault::value("entrypoints.module", message)));
    }
    let mut tools: Vec<Tool> = Vec::with_capacity(raw.tools.len().min(MAX_TOOLS));
    for raw_tool in &raw.tools {
        let place = raw_tool.id.span();
        if tools.len() == MAX_TOOLS {
            return Err((place, ManifestFault::value("entrypoints.tools", format!("at most {MAX_TOOLS} tools"))));
        }
        let tool = tool(raw_tool, kind, raw.module.as_ref())?;
        if tools.iter().any(|other| other.id == tool.id) {
            return Err((place, ManifestFault::Duplicate { key: "entrypoints.tools.id", value: tool.id.to_string() }));
        }
        tools.push(tool);
    }
    Ok(tools)
}

fn tool(raw: &RawTool, kind: RawKind, module: Option<&Text>) -> Result<Tool, Placed> {
    let id: ToolId =
        raw.id.get_ref().parse().map_err(|e| (raw.id.span(), ManifestFault::name("entrypoints.tools.id", &e)))?;
    let description = raw.description.get_ref().trim().to_owned();
    if description.is_empty() || description.chars().count() > MAX_DESCRIPTION {
        let message = format!("a description has 1 to {MAX_DESCRIPTION} characters");
        return Err((raw.description.span(), ManifestFault::value("entrypoints.tools.description", message)));
    }
    let input_schema = schema(&id, "input_schema", &raw.input_schema)?;
    let output_schema = schema(&id, "output_schema", &raw.output_schema)?;
    let code = match kind {
        RawKind::Component => component_code(raw, module)?,
        RawKind::Instructions if id.as_str() == INSTRUCTIONS_TOOL => {
            let message = "the tool that reads `SKILL.md` has this name; choose another";
            return Err((raw.id.span(), ManifestFault::value("entrypoints.tools.id", message)));
        }
        RawKind::Instructions => script_code(raw)?,
    };
    Ok(Tool { id, description, risk: raw.risk, input_schema, output_schema, code })
}

fn component_code(raw: &RawTool, module: Option<&Text>) -> Result<ToolCode, Placed> {
    if let Some(script) = &raw.script {
        let message = "scripts belong to skills of kind `instructions`";
        return Err((script.span(), ManifestFault::value("entrypoints.tools.script", message)));
    }
    if let Some(word) = raw.interpreter.first() {
        let message = "interpreters belong to skills of kind `instructions`";
        return Err((word.span(), ManifestFault::value("entrypoints.tools.interpreter", message)));
    }
    let Some(module) = raw.module.as_ref().or(module) else {
        let message = "name the component: `module = \"modules/NAME.wasm\"`, here or in `entrypoints`";
        return Err((raw.id.span(), ManifestFault::value("entrypoints.tools.module", message)));
    };
    let name = module.get_ref();
    if is_module(name) {
        return Ok(ToolCode::Module(name.clone()));
    }
    let why = "is not `modules/NAME.wasm`";
    Err((module.span(), ManifestFault::Path { key: "entrypoints.tools.module", path: excerpt(name), why }))
}

/// Whether a name is that of a component: one level below `modules/`.
pub(crate) fn is_module(name: &str) -> bool {
    let stem = name.strip_prefix(MODULES_FOLDER).and_then(|rest| rest.strip_suffix(".wasm"));
    check_name(name.as_bytes()).is_ok() && stem.is_some_and(|stem| !stem.is_empty() && !stem.contains('/'))
}

fn script_code(raw: &RawTool) -> Result<ToolCode, Placed> {
    if let Some(module) = &raw.module {
        let message = "a skill of kind `instructions` has no modules; name a `script`";
        return Err((module.span(), ManifestFault::value("entrypoints.tools.module", message)));
    }
    let Some(script) = &raw.script else {
        let message = "name the script: `script = \"scripts/NAME\"`";
        return Err((raw.id.span(), ManifestFault::value("entrypoints.tools.script", message)));
    };
    let path = script.get_ref();
    if check_name(path.as_bytes()).is_err() || !path.starts_with(SCRIPTS_FOLDER) {
        let why = "is not below `scripts/`";
        return Err((script.span(), ManifestFault::Path { key: "entrypoints.tools.script", path: excerpt(path), why }));
    }
    let interpreter: Vec<String> = raw.interpreter.iter().map(|word| word.get_ref().clone()).collect();
    let program = interpreter.first().is_some_and(|word| {
        (1..=64).contains(&word.len())
            && word.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'+'))
            && !word.starts_with(['-', '.'])
    });
    let plain = interpreter.iter().all(|word| word.len() <= 64 && word.bytes().all(|b| b.is_ascii_graphic()));
    if !program || !plain || interpreter.len() > MAX_INTERPRETER {
        let message = "name the program that reads the script and its first words, as in `[\"python3\"]`";
        return Err((script.span(), ManifestFault::value("entrypoints.tools.interpreter", message)));
    }
    Ok(ToolCode::Script { path: path.clone(), interpreter })
}

/// A schema, written as a TOML table or as JSON text, for what TOML cannot say.
fn schema(tool: &ToolId, which: &'static str, raw: &Spanned<toml::Value>) -> Result<Value, Placed> {
    let refuse = |reason: String| {
        let fault = ManifestFault::Schema { tool: tool.to_string(), which, reason: excerpt(&reason) };
        (raw.span(), fault)
    };
    let json = match raw.get_ref() {
        toml::Value::String(text) => CanonicalJson::parse(text.as_bytes()),
        other => {
            let value = json_of(other).map_err(|why| refuse(why.to_owned()))?;
            CanonicalJson::parse(value.to_string().as_bytes())
        }
    };
    let json = json.map_err(|e| refuse(e.to_string()))?;
    if json.as_str().len() > MAX_SCHEMA {
        return Err(refuse(format!("it has more than {MAX_SCHEMA} bytes")));
    }
    check_schema(json.value()).map_err(refuse)?;
    Ok(json.into_value())
}

fn check_value(schema: &Value, value: &Value) -> Result<(), String> {
    let validator = compiled(schema)?;
    match validator.iter_errors(value).next() {
        None => Ok(()),
        Some(error) => {
            let place = error.instance_path().to_string();
            let place = if place.is_empty() { "the value".to_owned() } else { excerpt(&place) };
            Err(format!("{place}: {}", excerpt(&error.to_string())))
        }
    }
}

/// Whether a value is a JSON Schema for objects that can be used without asking anybody else.
fn check_schema(schema: &Value) -> Result<(), String> {
    if schema.get("type") != Some(&Value::from("object")) {
        return Err("its `type` must be `object`".to_owned());
    }
    compiled(schema).map(drop)
}

fn compiled(schema: &Value) -> Result<jsonschema::Validator, String> {
    // Patterns must be of the kind that is matched in linear time: a schema must not be able to stall the daemon.
    let options = jsonschema::options().with_pattern_options(jsonschema::PatternOptions::regex());
    options.build(schema).map_err(|e| e.to_string())
}

fn json_of(value: &toml::Value) -> Result<Value, &'static str> {
    Ok(match value {
        toml::Value::String(text) => Value::from(text.as_str()),
        toml::Value::Integer(number) => Value::from(*number),
        toml::Value::Float(number) => Number::from_f64(*number).map(Value::Number).ok_or("a number is not finite")?,
        toml::Value::Boolean(flag) => Value::from(*flag),
        toml::Value::Datetime(_) => return Err("JSON has no dates; write a text"),
        toml::Value::Array(items) => items.iter().map(json_of).collect::<Result<Vec<_>, _>>()?.into(),
        toml::Value::Table(table) => {
            let entries = table.iter().map(|(key, value)| Ok((key.clone(), json_of(value)?)));
            Value::Object(entries.collect::<Result<Map<_, _>, &'static str>>()?)
        }
    })
}

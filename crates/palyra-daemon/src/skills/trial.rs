//! `skills try`: one call of one tool in a throw-away place, and what it used against what its manifest asks for.

use super::build::{Workshop, warn};
use super::compare::{Difference, differences};
use super::doors::{self, GivenSecrets, TrialHttp};
use super::interrupt::{Interrupt, interruptible};
use super::refusal::{FAILED, NOT_A_CALL, Refusal};
use super::requested::{allowing, requested};
use super::throwaway::Place;
use super::tighter::{self, Row, Tighter};
use super::{MAX_FILE, guest, read_file, read_input, say_json};
use palyra_api::command_line::Format;
use palyra_api::command_line::skills::{Compilers, Trial, Try};
use palyra_plugins::{Doors, Execution, Grant, PluginCall, PluginError, StorageDirectory, ToolAnswer};
use palyra_skills::constants::MANIFEST_ENTRY;
use palyra_skills::manifest::{SkillKind, Tool, ToolCode};
use palyra_skills::package::VerifyError;
use palyra_skills::{Artifact, Manifest};
use serde_json::Value;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

/// The largest input that is read from a file.
const MAX_INPUT: u64 = 16 << 20;

/// A skill that can be called.
pub(super) struct Subject {
    pub(super) manifest: Manifest,
    pub(super) manifest_text: Vec<u8>,
    /// The component that was built, if there were sources.
    built: Option<(String, Vec<u8>)>,
    /// Where a module is read from otherwise.
    modules: Modules,
}

enum Modules {
    Folder(std::path::PathBuf),
    Artifact(Box<Artifact>),
}

/// What came of a trial.
pub(super) struct Outcome {
    pub(super) tool: String,
    pub(super) execution: Execution,
    pub(super) output: Result<Value, Refusal>,
    pub(super) changed_files: Vec<String>,
    pub(super) rows: Vec<Row>,
    pub(super) tighter: Option<Tighter>,
    pub(super) differences: Vec<Difference>,
}

pub(super) fn attempt(attempt: Try, format: Format) -> Result<ExitCode, Refusal> {
    let input = input_of(&attempt.trial)?;
    interruptible(move |interrupt| {
        let subject = Subject::read(&attempt.skill, &attempt.compilers)?;
        if attempt.write && !attempt.skill.is_dir() {
            let hint = "give the directory of the skill's sources";
            return Err(Refusal::usage("`--write` changes `skill.toml`, and a package cannot be changed", hint));
        }
        let outcome = call(&subject, &attempt.trial, &input, format, interrupt)?;
        print(&subject, &outcome, format)?;
        if let (true, Some(tighter)) = (attempt.write && outcome.output.is_ok(), &outcome.tighter) {
            write_manifest(&attempt.skill, &tighter.manifest)?;
            super::for_people(format, "\nskill.toml is tighter now.");
        }
        outcome.output.map(|_| ExitCode::SUCCESS)
    })
}

/// The input's text.
pub(super) fn input_of(trial: &Trial) -> Result<Value, Refusal> {
    let text = match trial.input.strip_prefix('@') {
        Some(file) => read_file(Path::new(file), MAX_INPUT)?,
        None if trial.input == "-" => read_input(MAX_INPUT)?,
        None => trial.input.clone().into_bytes(),
    };
    serde_json::from_slice(&text).map_err(|error| {
        let hint = Some("write it like `--input '{\"name\":\"Ada\"}'`".to_owned());
        Refusal::new(NOT_A_CALL, "invalid_json", format!("the input is no JSON: {error}"), hint)
    })
}

impl Subject {
    /// Reads a directory, which is built if there are sources, or an artifact.
    pub(super) fn read(path: &Path, compilers: &Compilers) -> Result<Self, Refusal> {
        if path.is_dir() {
            let workshop = Workshop::open(path)?;
            // Compilers of large languages make other bytes each time, which would be compiled again.
            let built = match workshop.needs_building() {
                true => {
                    let component = workshop.compile(compilers)?;
                    workshop.store(&component)?;
                    Some((component.entry, component.bytes))
                }
                false => None,
            };
            let Workshop { directory, manifest_text, manifest } = workshop;
            return Ok(Self { manifest, manifest_text, built, modules: Modules::Folder(directory) });
        }
        let bytes = read_file(path, MAX_FILE)?;
        let artifact = Artifact::open(&bytes).map_err(|error| Refusal::from(VerifyError::from(error)))?;
        let manifest = artifact.manifest().clone();
        if manifest.kind == SkillKind::Instructions {
            return Err(Refusal::refused(
                "skill_is_instructions",
                "a skill of kind `instructions` has scripts, which run as sandboxed processes once a daemon has installed it",
                Some("look into it with `palyra skills package inspect`".to_owned()),
            ));
        }
        let manifest_text = artifact.entry(MANIFEST_ENTRY).map(|entry| entry.content.clone()).unwrap_or_default();
        Ok(Self { manifest, manifest_text, built: None, modules: Modules::Artifact(Box::new(artifact)) })
    }

    fn tool(&self, wanted: Option<&str>) -> Result<&Tool, Refusal> {
        let tools = &self.manifest.tools;
        let names: Vec<&str> = tools.iter().map(|tool| tool.id.as_str()).collect();
        let found = match (wanted, tools.as_slice()) {
            (None, [only]) => Some(only),
            (None, _) => {
                let hint = format!("name one of {}", names.join(", "));
                return Err(Refusal::usage("the skill has several tools", &hint));
            }
            (Some(name), tools) => tools.iter().find(|tool| tool.id.as_str() == name),
        };
        found.ok_or_else(|| {
            let hint = Some(format!("it has {}", names.join(", ")));
            let name = palyra_protocol::display::safe(wanted.unwrap_or_default());
            Refusal::new(NOT_A_CALL, "unknown_tool", format!("skill.toml has no tool `{name}`"), hint)
        })
    }

    fn module(&self, entry: &str) -> Result<Vec<u8>, Refusal> {
        if let Some((built, bytes)) = &self.built
            && built == entry
        {
            return Ok(bytes.clone());
        }
        match &self.modules {
            Modules::Folder(folder) => read_file(&folder.join(entry), MAX_FILE),
            Modules::Artifact(artifact) => {
                let found = artifact.entry(entry).map(|entry| entry.content.clone());
                found.ok_or_else(|| Refusal::refused("artifact_code_missing", format!("there is no `{entry}`"), None))
            }
        }
    }
}

/// Calls one tool.
pub(super) fn call(
    subject: &Subject,
    trial: &Trial,
    input: &Value,
    format: Format,
    interrupt: &Interrupt,
) -> Result<Outcome, Refusal> {
    let tool = subject.tool(trial.tool.as_deref())?;
    let ToolCode::Module(entry) = &tool.code else {
        return Err(Refusal::refused("skill_is_instructions", "the tool is a script", None));
    };
    tool.check_input(input).map_err(|why| {
        let hint = Some(format!("its schema is {}", tool.input_schema));
        Refusal::new(NOT_A_CALL, "schema_violation", format!("the input does not fit: {why}"), hint)
    })?;
    let asked = requested(&subject.manifest.capabilities)?;
    let host = guest::host(allowing(&asked))?;
    let plugin = guest::load(&host, &subject.module(entry)?, format)?;
    let differences = differences(&subject.manifest, entry, &host.describe(&plugin)?);
    let grant = Arc::new(host.grant(&asked));
    host.check(&plugin, &grant)?;
    let place = Place::new(&grant, trial.workspace.as_deref())?;
    let name = subject.manifest.metadata.skill_id.as_str();
    let pending = host.call(PluginCall {
        skill: name.parse().map_err(|error: PluginError| Refusal::from(error))?,
        plugin,
        grant: Arc::clone(&grant),
        tool: tool.id.to_string(),
        input_json: input.to_string(),
        doors: doors(trial, &grant, &place)?,
    })?;
    let control = pending.control();
    let mut execution = interrupt.during(move || control.cancel(), || pending.wait())?;
    let output = outcome_of(&mut execution, tool);
    let rows = tighter::compare(&subject.manifest.capabilities, &execution);
    let tighter = match &output {
        Ok(_) => tighter::offer(subject, &execution)?,
        // A call that did not end well has not shown what it needs.
        Err(_) => None,
    };
    let changed_files = place.changed()?;
    Ok(Outcome { tool: tool.id.to_string(), execution, output, changed_files, rows, tighter, differences })
}

fn doors(trial: &Trial, grant: &Grant, place: &Place) -> Result<Doors, Refusal> {
    Ok(Doors {
        http: Some(Arc::new(TrialHttp::new(trial, grant)?)),
        secrets: Some(Arc::new(GivenSecrets::read(trial)?)),
        files: Some(Arc::new(doors::files(&place.workspace())?)),
        storage: Some(Arc::new(StorageDirectory::open(&place.storage())?)),
    })
}

/// The tool's output, held to its schema.
fn outcome_of(execution: &mut Execution, tool: &Tool) -> Result<Value, Refusal> {
    let cancelled = || Err(PluginError::Cancelled);
    let text = match std::mem::replace(&mut execution.result, cancelled())? {
        ToolAnswer::Output(text) => text,
        ToolAnswer::Failed { code, message } => {
            return Err(Refusal::new(FAILED, "tool_failed", format!("the tool answered `{code}`: {message}"), None));
        }
    };
    let hint = Some("a tool's output is an object that fits `output_schema` of skill.toml".to_owned());
    let value: Value = serde_json::from_str(&text).map_err(|error| {
        Refusal::new(FAILED, "output_not_json", format!("the output is no JSON: {error}"), hint.clone())
    })?;
    match tool.check_output(&value) {
        Ok(()) => Ok(value),
        Err(why) => {
            Err(Refusal::new(FAILED, "output_schema_violation", format!("the output does not fit: {why}"), hint))
        }
    }
}

fn write_manifest(directory: &Path, text: &str) -> Result<(), Refusal> {
    let path = directory.join(MANIFEST_ENTRY);
    let failed = |error: std::io::Error| Refusal::io(&format!("`{}` cannot be written", path.display()), &error);
    let mut prepared = tempfile::NamedTempFile::new_in(directory).map_err(failed)?;
    std::io::Write::write_all(&mut prepared, text.as_bytes()).map_err(failed)?;
    let mode = path.metadata().map_err(failed)?.permissions();
    prepared.as_file().set_permissions(mode).map_err(failed)?;
    prepared.persist(&path).map(drop).map_err(|error| failed(error.error))
}

/// Prints what came of a call: as one document, or for people.
pub(super) fn print(subject: &Subject, outcome: &Outcome, format: Format) -> Result<(), Refusal> {
    if format == Format::Json {
        return say_json(&document(subject, outcome));
    }
    super::report::outcome(subject, outcome);
    warn(&outcome.differences);
    Ok(())
}

fn document(subject: &Subject, outcome: &Outcome) -> Value {
    let metadata = &subject.manifest.metadata;
    let execution = &outcome.execution;
    let (output, error) = match &outcome.output {
        Ok(output) => (Some(output), None),
        Err(refusal) => (None, Some(refusal)),
    };
    serde_json::json!({
        "skill_id": metadata.skill_id,
        "version": metadata.version,
        "tool": outcome.tool,
        "output": output,
        "error": error,
        "grant": *execution.grant,
        "usage": execution.usage,
        "observed": execution.observed,
        "log": execution.log,
        "changed_files": outcome.changed_files,
        "declared": outcome.rows,
        "tighter": outcome.tighter,
        "differences": outcome.differences,
    })
}

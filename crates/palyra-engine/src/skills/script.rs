//! Tools of skills that hold instructions: a script runs as a sandboxed process, and `instructions` reads the package.
//!
//! A script goes the way of `palyra.process.run`, on a view of the workspace, and gets less: the package's files as they
//! were admitted, the parts of the workspace and the hosts that the grant names, no secrets. What it changed is decided
//! and can be undone like the changes of any run. Its interpreter is one that the operator allows
//! (`allow_interpreters`), or it does not run.

use super::blocking;
use super::tool::{OutputSchema, SkillCode};
use crate::catalog::CatalogError;
use crate::flow::execute::{Executed, Running, Stopped};
use crate::flow::resolve::Refusal;
use crate::tools::packaged::Packaged;
use crate::tools::process_run;
use crate::tools::{Executing, Input, Job, Place, Prepared, Tool};
use palyra_plugins::WorkspacePath;
use palyra_protocol::json::canonical_text;
use palyra_protocol::{CallState, ExecutorKind, Facets, Problem, RiskLevel, ToolDefinition};
use palyra_sandbox::Package;
use palyra_skills::constants::{INSTRUCTIONS_ENTRY, INSTRUCTIONS_TOOL};
use palyra_skills::{Artifact, Manifest};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The longest text of a file that a model is given.
const MOST_TEXT: usize = 256 << 10;

/// A script of a skill.
#[derive(Debug)]
pub(super) struct ScriptTool {
    definition: ToolDefinition,
    code: Arc<SkillCode>,
    script: String,
    interpreter: Vec<String>,
    output: Arc<OutputSchema>,
}

impl ScriptTool {
    pub(super) fn new(
        definition: ToolDefinition,
        code: Arc<SkillCode>,
        (script, interpreter): (&str, &[String]),
        output: Arc<OutputSchema>,
    ) -> Self {
        Self { definition, code, script: script.to_owned(), interpreter: interpreter.to_vec(), output }
    }

    /// The command for an input: `args` and `stdin` where those are all that the schema knows, and otherwise the whole
    /// input on standard input.
    fn command(&self, input: Input<'_>) -> Result<Value, Refusal> {
        let known = self.definition.input_schema.get("properties").and_then(Value::as_object);
        let plain = known.is_some_and(|known| known.keys().all(|key| key == "args" || key == "stdin"));
        let (args, stdin) = if plain {
            (input.texts("/args"), input.text("/stdin").to_owned())
        } else {
            let text = canonical_text(input.value())
                .map_err(|error| Refusal::rejected(Problem::plain("input_malformed", error.to_string())))?;
            (Vec::new(), text)
        };
        let script = format!("{}/{}", Package::PLACE, self.script);
        let argv: Vec<String> = self.interpreter.iter().cloned().chain([script]).chain(args).collect();
        // A pattern stands for hosts that nobody has named, and a run is given hosts by name.
        let hosts: Vec<String> = self.code.grant.http().iter().map(ToString::to_string).collect();
        let hosts: Vec<String> = hosts.into_iter().filter(|host| !host.contains('*')).collect();
        Ok(json!({ "argv": argv, "stdin": stdin, "requested_egress_hosts": hosts }))
    }
}

impl Tool for ScriptTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn prepare(&self, input: Input<'_>, place: &Place<'_>) -> Result<Prepared, Refusal> {
        let command = self.command(input)?;
        let limits = self.code.grant.limits();
        let paths = |roots: &[WorkspacePath]| roots.iter().map(|root| PathBuf::from(root.to_string())).collect();
        let parts = Package {
            files: Vec::new(),
            read: paths(self.code.grant.read_roots()),
            write: paths(self.code.grant.write_roots()),
        };
        let package = Packaged { parts, memory_bytes: limits.memory_bytes };
        let time = Some(Duration::from_millis(limits.wall_clock_ms));
        let (facets, run) = process_run::prepare_in(Input::new(&command), place, time, Some(package))?;
        let Facets { paths_read, trees_read, paths_written, skill, .. } = self.code.facets(&self.script);
        let facets = Facets { paths_read, trees_read, paths_written, skill, ..facets };
        Ok(Prepared::new(facets, ScriptJob { code: Arc::clone(&self.code), run, output: Arc::clone(&self.output) }))
    }
}

/// A call of a script.
#[derive(Debug)]
struct ScriptJob {
    code: Arc<SkillCode>,
    run: process_run::Run,
    output: Arc<OutputSchema>,
}

impl Job for ScriptJob {
    fn execute<'r>(self: Box<Self>, run: &'r Running<'_>) -> Executing<'r> {
        Box::pin(async move { self.ran(run).await.unwrap_or_else(Executed::not_run) })
    }
}

impl ScriptJob {
    async fn ran(self, run: &Running<'_>) -> Result<Executed, Problem> {
        let artifact = admitted(&self.code, run).await?;
        let files = artifact.code().map(|entry| (entry.name.clone(), Arc::from(entry.content.as_slice()))).collect();
        let mut executed = process_run::ran(self.run.with_files(files), run).await;
        if executed.enforcement.is_object() {
            executed.enforcement["skill"] = self.code.attested();
            executed.enforcement["module_sha256"] = json!(self.code.content);
            executed.enforcement["grant_sha256"] = json!(self.code.grant.digest());
        }
        if executed.state == CallState::Succeeded
            && let Err(problem) = self.output.check(&executed.output, &[])
        {
            (executed.state, executed.problem) = (CallState::Failed, Some(problem));
        }
        Ok(executed)
    }
}

/// The package as it was admitted, read whole: what a call uses of it comes from this very reading.
async fn admitted(code: &Arc<SkillCode>, run: &Running<'_>) -> Result<Artifact, Problem> {
    let open = run.engine().open_skills().map_err(|error| error.problem)?;
    code.refuse_ineligible(&open)?;
    let (at, of) = (Arc::clone(&open), Arc::clone(code));
    let read = blocking(move || at.managed.check(&of.id, &of.version, &of.content)).await;
    match read.map_err(|error| error.problem)? {
        Ok(artifact) => Ok(artifact),
        Err(error) => Err(code.unusable(run, &open, &error).await),
    }
}

/// The tool by which a model reads a skill's instructions.
pub(super) fn instructions(manifest: &Manifest, code: &Arc<SkillCode>) -> Result<Arc<dyn Tool>, CatalogError> {
    let name = &manifest.metadata.name;
    let about = manifest.metadata.description.as_deref().unwrap_or_default();
    let definition = ToolDefinition {
        name: format!("skill.{}.{INSTRUCTIONS_TOOL}", manifest.metadata.skill_id).parse()?,
        summary: format!("Read the instructions of the skill {name}").chars().take(120).collect(),
        description: format!(
            "Returns the instructions of the skill `{name}`, or another file of it, and the names of all its files. {about}"
        ),
        input_schema: json!({
            "type": "object", "additionalProperties": false,
            "properties": { "path": { "type": "string", "maxLength": 240, "description": "a file of the skill; `SKILL.md` when absent" } },
        }),
        output_schema: json!({
            "type": "object", "required": ["path", "text", "files"],
            "properties": {
                "path": { "type": "string" }, "text": { "type": "string" },
                "files": { "type": "array", "items": { "type": "string" } },
            },
        }),
        capabilities: [].into(),
        risk: RiskLevel::Low,
        executor: ExecutorKind::Builtin,
        example: json!({}),
    };
    Ok(Arc::new(InstructionsTool { definition, code: Arc::clone(code) }))
}

#[derive(Debug)]
struct InstructionsTool {
    definition: ToolDefinition,
    code: Arc<SkillCode>,
}

impl Tool for InstructionsTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn prepare(&self, input: Input<'_>, _place: &Place<'_>) -> Result<Prepared, Refusal> {
        let path = input.optional("/path").unwrap_or(INSTRUCTIONS_ENTRY).to_owned();
        let facets = Facets { skill: self.code.facet(&path), ..Facets::default() };
        Ok(Prepared::new(facets, ReadInstructions { code: Arc::clone(&self.code), path }))
    }
}

#[derive(Debug)]
struct ReadInstructions {
    code: Arc<SkillCode>,
    path: String,
}

impl Job for ReadInstructions {
    fn execute<'r>(self: Box<Self>, run: &'r Running<'_>) -> Executing<'r> {
        Box::pin(async move {
            let read = admitted(&self.code, run).await.and_then(|artifact| self.text(&artifact));
            Executed::in_daemon(read.map_err(Stopped::Failed))
        })
    }
}

impl ReadInstructions {
    fn text(&self, artifact: &Artifact) -> Result<Value, Problem> {
        let files: Vec<&str> = artifact.code().map(|entry| entry.name.as_str()).collect();
        let found = artifact.code().find(|entry| entry.name == self.path);
        let hint = || format!("its files are: {}", files.join(", "));
        let entry = found.ok_or_else(|| Problem::new("skill_file_missing", "the skill has no such file", hint()))?;
        let text = std::str::from_utf8(&entry.content).ok().filter(|text| text.len() <= MOST_TEXT);
        let text = text.ok_or_else(|| {
            let message = format!("`{}` is no text, or longer than {MOST_TEXT} bytes", self.path);
            Problem::plain("skill_file_not_text", message)
        })?;
        Ok(json!({ "path": self.path, "text": text, "files": files }))
    }
}

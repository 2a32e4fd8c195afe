//! A skill's tool: what a manifest says, as a tool of the catalog, and a call of it as a job for the host of Tier A.
//! Tools whose code is a script are in [`super::script`].
//!
//! Facets name everything that the grant opens: the skill with the digests of its code and its grant, hosts, secrets,
//! paths. So a yes is a yes to this code with this grant. The input was held to the manifest's schema by the catalog;
//! the output is held to it here.

use super::doors::{self, CallDoors};
use super::drift::Snapshot;
use super::files::CallFiles;
use super::{OpenSkills, blocking, script};
use crate::catalog::CatalogError;
use crate::config::ToolCallConfig;
use crate::flow::execute::{Executed, Running};
use crate::flow::resolve::Refusal;
use crate::tools::{Executing, Input, Job, Place, Prepared, Tool};
use crate::vault::Released;
use jsonschema::PatternOptions;
use palyra_plugins::{
    ComponentSource, Execution, FilesDoor, Grant, Plugin, PluginCall, PluginError, PluginHost, RequestedCapabilities,
    RequestedLimits, ToolAnswer, WorkspacePath,
};
use palyra_protocol::json::canonical_text;
use palyra_protocol::{
    CallState, CanonicalJson, Digest, ExecutorKind, Facets, InstalledSkill, Problem, SkillStatus, SkillUse,
    ToolCapability, ToolDefinition,
};
use palyra_sandbox::{CancelSignal, OutputSink as _, OutputStream};
use palyra_skills::manifest::ToolCode;
use palyra_skills::unpack::UnpackError;
use palyra_skills::{Manifest, SkillId, SkillKind, SkillVersion};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

/// How much of a guest's log a failure quotes.
const QUOTED_LOG: usize = 1024;

/// What the tools of one version run: its components, and what they are granted.
#[derive(Debug)]
pub(super) struct SkillCode {
    pub(super) id: SkillId,
    pub(super) version: SkillVersion,
    publisher: String,
    trust: &'static str,
    pub(super) modules: BTreeMap<String, Digest>,
    pub(super) content: Digest,
    kind: SkillKind,
    pub(super) requested: RequestedCapabilities,
    pub(super) grant: Arc<Grant>,
    /// The components that were loaded, by the name of their entry.
    plugins: Mutex<BTreeMap<String, Arc<Plugin>>>,
    /// What the file system said when the files were last compared with what was admitted.
    seen: Mutex<Option<Snapshot>>,
}

impl SkillCode {
    pub(super) fn new(manifest: &Manifest, installed: &InstalledSkill, trust: &'static str, host: &PluginHost) -> Self {
        let requested = requested(manifest);
        Self {
            id: manifest.metadata.skill_id.clone(),
            version: manifest.metadata.version.clone(),
            publisher: installed.publisher.clone(),
            trust,
            modules: installed.modules.clone(),
            content: installed.content_sha256,
            kind: manifest.kind,
            grant: Arc::new(host.grant(&requested)),
            requested,
            plugins: Mutex::default(),
            seen: Mutex::default(),
        }
    }

    pub(super) fn seen(&self) -> Option<Snapshot> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn remember(&self, snapshot: Snapshot) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(snapshot);
    }

    /// The component of an entry: loaded, from the cache, or compiled anew. Blocks.
    pub(super) fn plugin(&self, open: &OpenSkills, entry: &str) -> Result<Arc<Plugin>, PluginError> {
        let mut plugins = self.plugins.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plugin) = plugins.get(entry) {
            return Ok(Arc::clone(plugin));
        }
        let Some(digest) = self.modules.get(entry) else {
            return Err(PluginError::Bug { detail: format!("`{entry}` is not among the admitted components") });
        };
        let source = InstalledModule { open, code: self, entry, digest };
        let plugin = open.host().load(*digest, &source, &mut |_| {})?;
        plugins.insert(entry.to_owned(), Arc::clone(&plugin));
        Ok(plugin)
    }

    /// What would run: the component, or for scripts everything that was signed.
    pub(super) fn code_of(&self, entry: &str) -> Option<Digest> {
        match self.kind {
            SkillKind::Component => self.modules.get(entry).copied(),
            SkillKind::Instructions => Some(self.content),
        }
    }

    pub(super) fn facet(&self, entry: &str) -> Option<SkillUse> {
        Some(SkillUse {
            id: self.id.to_string(),
            version: self.version.to_string(),
            publisher: self.publisher.clone(),
            trust: self.trust.to_owned(),
            module_sha256: self.code_of(entry)?,
            grant_sha256: self.grant.digest(),
        })
    }

    /// The skill and its part of the workspace, as rules and people judge a call.
    pub(super) fn facets(&self, entry: &str) -> Facets {
        let texts = |roots: &[WorkspacePath]| roots.iter().map(ToString::to_string).collect::<Vec<_>>();
        let read = texts(self.grant.read_roots());
        Facets {
            trees_read: read.clone(),
            paths_read: read,
            paths_written: texts(self.grant.write_roots()),
            skill: self.facet(entry),
            ..Facets::default()
        }
    }

    /// What the grant lets it do to the world.
    pub(super) fn capabilities(&self) -> BTreeSet<ToolCapability> {
        let grant = &self.grant;
        let has = [
            (ToolCapability::ProcessExec, self.kind == SkillKind::Instructions),
            (ToolCapability::Network, !grant.http().is_empty()),
            (ToolCapability::SecretsRead, !grant.secrets().is_empty()),
            (ToolCapability::FilesystemWrite, !grant.write_roots().is_empty()),
        ];
        has.into_iter().filter(|(_, has)| *has).map(|(capability, _)| capability).collect()
    }
}

impl SkillCode {
    /// Refuses to run a version that may not run any more.
    pub(super) fn refuse_ineligible(&self, open: &OpenSkills) -> Result<(), Problem> {
        let (id, version) = (&self.id, &self.version);
        if open.book().version(id, version).map(|state| state.status) == Some(SkillStatus::Eligible) {
            return Ok(());
        }
        let message = format!("`{id}` {version} is not eligible any more");
        Err(Problem::new("skill_not_eligible", message, format!("see why: `palyra skills info {id}`")))
    }

    /// Why the files of this version cannot be used; one whose files were changed is quarantined.
    pub(super) async fn unusable(&self, run: &Running<'_>, open: &OpenSkills, error: &UnpackError) -> Problem {
        if !error.is_drift() {
            return super::refusals::unpack(error).problem;
        }
        let (id, version) = (&self.id, &self.version);
        run.engine().quarantine_drifted(open, id, version, error.to_string()).await;
        Problem::new(
            "skill_drifted",
            format!("`{id}` {version} was changed on the disk, so it is quarantined and did not run"),
            format!("install it again: `palyra skills remove {id}`, then `palyra skills install FILE`"),
        )
    }

    /// The skill, for attestations.
    pub(super) fn attested(&self) -> Value {
        json!({ "id": self.id, "version": self.version, "publisher": self.publisher })
    }
}

/// The bytes of an installed component, as they were admitted.
struct InstalledModule<'a> {
    open: &'a OpenSkills,
    code: &'a SkillCode,
    entry: &'a str,
    digest: &'a Digest,
}

impl ComponentSource for InstalledModule<'_> {
    fn read(&self) -> std::io::Result<Vec<u8>> {
        let read = self.open.managed.read_entry(&self.code.id, &self.code.version, self.entry, self.digest);
        read.map_err(|error| std::io::Error::other(error.to_string()))
    }
}

/// What a manifest asks for, in the words of the host.
pub(super) fn requested(manifest: &Manifest) -> RequestedCapabilities {
    fn read<T: std::str::FromStr>(texts: impl Iterator<Item = String>) -> Vec<T> {
        texts.filter_map(|text| text.parse().ok()).collect()
    }
    let asked = &manifest.capabilities;
    RequestedCapabilities {
        http_hosts: read(asked.egress.iter().map(ToString::to_string)),
        secrets: read(asked.secrets.iter().map(ToString::to_string)),
        read_roots: read(asked.read_roots.iter().map(|root| root.workspace_path().to_owned())),
        write_roots: read(asked.write_roots.iter().map(|root| root.workspace_path().to_owned())),
        storage_bytes: asked.storage_bytes,
        limits: RequestedLimits {
            fuel: Some(asked.quotas.fuel_budget),
            memory_bytes: Some(asked.quotas.max_memory_bytes),
            wall_clock_ms: Some(asked.quotas.wall_clock_ms),
            ..RequestedLimits::default()
        },
    }
}

/// Makes the tools of a version.
pub(super) fn tools(
    manifest: &Manifest,
    code: &Arc<SkillCode>,
    config: &ToolCallConfig,
) -> Result<Vec<Arc<dyn Tool>>, CatalogError> {
    let mut tools: Vec<Arc<dyn Tool>> = Vec::with_capacity(manifest.tools.len());
    if manifest.kind == SkillKind::Instructions {
        tools.push(script::instructions(manifest, code)?);
    }
    for tool in &manifest.tools {
        let name = manifest.metadata.skill_id.tool_name(&tool.id)?;
        let options = jsonschema::options().with_pattern_options(PatternOptions::regex());
        let output = options.build(&tool.output_schema).map_err(|error| CatalogError::Schema {
            tool: name.clone(),
            which: "output",
            reason: error.to_string(),
        })?;
        let summary = tool.description.lines().next().unwrap_or_default().chars().take(120).collect();
        let definition = ToolDefinition {
            name,
            summary,
            description: tool.description.clone(),
            input_schema: tool.input_schema.clone(),
            output_schema: tool.output_schema.clone(),
            capabilities: code.capabilities(),
            risk: manifest.risk_of(tool),
            executor: match &tool.code {
                ToolCode::Module(_) => ExecutorKind::Wasm,
                ToolCode::Script { .. } => ExecutorKind::Process,
            },
            example: json!({}),
        };
        let code = Arc::clone(code);
        let listed = config.allowed_tools.contains(&definition.name);
        if !listed {
            tracing::debug!(tool = %definition.name, "a skill's tool is not in `allowed_tools`");
        }
        let output = Arc::new(OutputSchema(output));
        tools.push(match &tool.code {
            ToolCode::Module(entry) => {
                let (entry, tool) = (entry.clone(), tool.id.to_string());
                Arc::new(SkillTool { definition, code, entry, tool, output })
            }
            ToolCode::Script { path, interpreter } => {
                Arc::new(script::ScriptTool::new(definition, code, (path, interpreter), output))
            }
        });
    }
    Ok(tools)
}

/// A tool of a skill.
#[derive(Debug)]
struct SkillTool {
    definition: ToolDefinition,
    code: Arc<SkillCode>,
    entry: String,
    tool: String,
    output: Arc<OutputSchema>,
}

impl Tool for SkillTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn prepare(&self, input: Input<'_>, place: &Place<'_>) -> Result<Prepared, Refusal> {
        let text = canonical_text(input.value())
            .map_err(|error| Refusal::rejected(Problem::plain("input_malformed", error.to_string())))?;
        let grant = &self.code.grant;
        let facets = Facets {
            hosts: grant.http().iter().flat_map(|pattern| doors::endpoints(&pattern.to_string())).collect(),
            secrets: doors::secret_uses(grant, place),
            ..self.code.facets(&self.entry)
        };
        let job = SkillJob {
            code: Arc::clone(&self.code),
            entry: self.entry.clone(),
            tool: self.tool.clone(),
            input: text,
            output: Arc::clone(&self.output),
        };
        Ok(Prepared::new(facets, job))
    }
}

/// What a manifest promises about a tool's output.
#[derive(Debug)]
pub(super) struct OutputSchema(jsonschema::Validator);

impl OutputSchema {
    /// Refuses an output that does not fit, with the log of the code that made it.
    pub(super) fn check(&self, output: &Value, log: &[String]) -> Result<(), Problem> {
        let error = self.0.iter_errors(output).next();
        let why = error.map(|error| format!("{}: {}", error.instance_path(), error.masked_with("the value")));
        why.map_or(Ok(()), |why| Err(misfit(&why, log)))
    }
}

fn misfit(why: &str, log: &[String]) -> Problem {
    let message = format!("the skill's output does not fit its own schema: {why}{}", quoted(log));
    Problem::new("skill_output_invalid", message, "tell its publisher; what it sent to other hosts is not taken back")
}

/// A call of a skill's tool.
#[derive(Debug)]
struct SkillJob {
    code: Arc<SkillCode>,
    entry: String,
    tool: String,
    input: String,
    output: Arc<OutputSchema>,
}

impl Job for SkillJob {
    fn execute<'r>(self: Box<Self>, run: &'r Running<'_>) -> Executing<'r> {
        Box::pin(async move { self.ran(run).await.unwrap_or_else(Executed::not_run) })
    }
}

impl SkillJob {
    async fn ran(self, run: &Running<'_>) -> Result<Executed, Problem> {
        let open = run.engine().open_skills().map_err(|error| error.problem)?;
        let plugin = self.admitted(run, &open).await?;
        let released = run.engine().release_secrets(run.call(), Vec::new()).await?;
        let (handle, signal) = CancelSignal::new().map_err(|error| Problem::plain("io", error.to_string()))?;
        let (engine, record, code) = (run.engine().clone(), run.call().record(), Arc::clone(&self.code));
        let files = blocking(move || CallFiles::open(&engine, &record, &code.grant)).await;
        let files = files.map_err(|error| error.problem)??;
        let door = files.as_ref().map(|files| Arc::clone(&files.door));
        let doors = self.doors(run, &open, (released.as_ref(), door), signal).await?;
        // Connections are recorded while the call runs; one that cannot be recorded ends it.
        let stop = if doors.http.is_some() { run.egress().stop() } else { run.cancel() };
        let call = PluginCall {
            skill: self.code.id.as_str().parse().map_err(|error: PluginError| problem(&error, &[]))?,
            plugin,
            grant: Arc::clone(&self.code.grant),
            tool: self.tool.clone(),
            input_json: self.input.clone(),
            doors,
        };
        let mut pending = open.host().call(call).map_err(|error| problem(&error, &[]))?;
        let control = pending.control();
        let done = tokio::select! {
            done = &mut pending => done,
            () = stop.cancelled() => {
                control.cancel();
                handle.cancel();
                (&mut pending).await
            }
        };
        let done = done.map_err(|error| problem(&error, &[]))?;
        tell_log(run, &done);
        self.concluded(run, open, (done, files)).await
    }

    /// The component, if its version may still run and its files are what was admitted.
    async fn admitted(&self, run: &Running<'_>, open: &Arc<OpenSkills>) -> Result<Arc<Plugin>, Problem> {
        self.code.refuse_ineligible(open)?;
        let (at, code, entry) = (Arc::clone(open), Arc::clone(&self.code), self.entry.clone());
        let loaded = blocking(move || {
            at.verify_files(&code.id, &code.version).map_err(Ok)?;
            code.plugin(&at, &entry).map_err(Err)
        });
        match loaded.await.map_err(|error| error.problem)? {
            Ok(plugin) => Ok(plugin),
            Err(Err(error)) => Err(problem(&error, &[])),
            Err(Ok(error)) => Err(self.code.unusable(run, open, &error).await),
        }
    }

    async fn doors(
        &self,
        run: &Running<'_>,
        open: &Arc<OpenSkills>,
        (released, files): (Option<&Released>, Option<Arc<dyn FilesDoor>>),
        signal: CancelSignal,
    ) -> Result<palyra_plugins::Doors, Problem> {
        let storage = if self.code.grant.storage_bytes() > 0 {
            let (at, id) = (Arc::clone(open), self.code.id.clone());
            let opened = blocking(move || at.storage_of(&id)).await.map_err(|error| error.problem)?;
            Some(opened.map_err(|error| problem(&error, &[]))?)
        } else {
            None
        };
        CallDoors { grant: &self.code.grant, released, files, storage, signal }.open(run).await
    }

    /// What came of it: output held to its schema, usage, the record for replay.
    async fn concluded(
        self,
        run: &Running<'_>,
        open: Arc<OpenSkills>,
        (done, files): (Execution, Option<CallFiles>),
    ) -> Result<Executed, Problem> {
        let (call, record) = (run.call().id().clone(), run.call().record());
        let concluded = blocking(move || {
            let log: Vec<String> = done.log.iter().map(|line| line.text.clone()).collect();
            let kept = open.records.keep(&call, &done.record);
            let enforcement = self.enforcement(&done, kept);
            let (state, output, problem) = match done.result {
                Ok(ToolAnswer::Output(text)) => match self.fitting(&text, &log) {
                    Ok(output) => (CallState::Succeeded, output, None),
                    Err(problem) => (CallState::Failed, Value::Null, Some(problem)),
                },
                Ok(ToolAnswer::Failed { code, message }) => {
                    let problem = Problem::plain("skill_tool_failed", format!("{code}: {message}{}", quoted(&log)));
                    (CallState::Failed, Value::Null, Some(problem))
                }
                Err(PluginError::Cancelled) => {
                    (CallState::Cancelled, Value::Null, Some(Problem::plain("cancelled", "the call was cancelled")))
                }
                Err(error) => (CallState::Failed, Value::Null, Some(problem(&error, &log))),
            };
            let executed = Executed { state, output, problem, exit: None, enforcement, effect: None, withheld: false };
            let settled = files.map(|files| files.settle(&record, state == CallState::Succeeded));
            let settled = settled.unwrap_or_default();
            let notes = settled.notes.clone();
            (executed.with_effect_beside(settled), notes)
        });
        let (executed, notes) = concluded.await.map_err(|error| error.problem)?;
        let mut output = run.output().clone();
        notes.iter().for_each(|note| output.chunk(OutputStream::Stderr, format!("palyra: {note}\n").as_bytes()));
        Ok(executed)
    }

    /// The output, if it is what the manifest promises.
    fn fitting(&self, text: &str, log: &[String]) -> Result<Value, Problem> {
        let output = CanonicalJson::parse(text.as_bytes()).map_err(|error| misfit(&error.to_string(), log))?;
        self.output.check(output.value(), log)?;
        Ok(output.into_value())
    }

    /// What held it, for the attestation.
    fn enforcement(&self, done: &Execution, record: Option<Digest>) -> Value {
        let limits: serde_json::Map<String, Value> =
            done.grant.limits().rows().iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        json!({
            "backend": "wasmtime",
            "tier": "a",
            "layers": [
                { "name": "wasm_component", "applied": true, "detail": "no system call; only interfaces that the grant names are linked" },
                { "name": "limits", "applied": true, "detail": Value::Object(limits).to_string() },
            ],
            "skill": self.code.attested(),
            "module_sha256": done.record.component,
            "grant_sha256": done.grant.digest(),
            "fuel_used": done.usage.fuel,
            "peak_memory_bytes": done.usage.peak_memory_bytes,
            "host_calls": done.usage.host_calls,
            "record_sha256": record,
        })
    }
}

/// Hands the guest's log to whoever watches the call.
fn tell_log(run: &Running<'_>, done: &Execution) {
    let redactor = run.engine().released().of(run.call());
    let mut output = run.output().clone();
    for line in &done.log {
        let text = redactor.as_ref().and_then(|redactor| redactor.redact_text(&line.text)).map(|(text, _)| text);
        let text = format!("{}\n", text.as_deref().unwrap_or(&line.text));
        output.chunk(OutputStream::Stderr, text.as_bytes());
    }
}

/// The end of a guest's log, for a message.
fn quoted(log: &[String]) -> String {
    let all = log.join("\n");
    if all.trim().is_empty() {
        return String::new();
    }
    let skipped = all.chars().count().saturating_sub(QUOTED_LOG);
    let end: String = all.chars().skip(skipped).collect();
    format!("\nits log{}: {end}", if skipped > 0 { ", the end of it" } else { "" })
}

pub(super) fn problem(error: &PluginError, log: &[String]) -> Problem {
    let told = super::refusals::plugin(error).problem;
    Problem { message: format!("{}{}", told.message, quoted(log)), ..told }
}

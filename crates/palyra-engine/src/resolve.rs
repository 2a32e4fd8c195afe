//! Resolve: from what a caller alleges to a call that can be decided.
//!
//! The tool is known, the input valid and canonical, every path free of links, the program the one that would really
//! run. What is resolved here is shown to policy and to people, and the very same values are executed later.

use crate::catalog::ToolCatalog;
use crate::config::ToolCallConfig;
use crate::work::Work;
use palyra_egress::{Denial, FetchError, FetchUrl, Fetcher};
use palyra_protocol::call::ToolCallParts;
use palyra_protocol::{
    CallId, CallState, CanonicalJson, Digest, Environment, FacetRule, Facets, Problem, ToolCall, ToolDefinition,
    ToolProposal,
};
use palyra_sandbox::{Fault, ResolvedExecutable, SandboxError, check_environment, check_hosts, resolve_executable};
use palyra_workspace::{FileError, PatchPlan, ResolvedPath, Workspace};
use serde_json::Value;
use std::collections::HashMap;

/// Why a proposal did not become a call: it is none (`rejected`), or a rule that no policy can lift forbids it (`denied`).
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) state: CallState,
    pub(crate) problem: Problem,
    /// Whether the same proposal under the same key is to get the same refusal.
    pub(crate) lasting: bool,
}

impl Refusal {
    /// The caller may not make such calls, or not now: later, or with another right, the same proposal may do better.
    pub(crate) fn for_now(problem: Problem) -> Self {
        Self { state: CallState::Denied, problem, lasting: false }
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self { state: CallState::Rejected, problem, lasting: true }
    }
}

impl From<FileError> for Refusal {
    fn from(error: FileError) -> Self {
        let state = match error {
            FileError::Outside { .. } | FileError::Protected { .. } => CallState::Denied,
            _ => CallState::Rejected,
        };
        Self { state, problem: file_problem(&error), lasting: true }
    }
}

impl From<SandboxError> for Refusal {
    fn from(error: SandboxError) -> Self {
        let state = match (&error, error.fault()) {
            (SandboxError::ArgumentOutside { .. } | SandboxError::WorkingDirectoryOutside { .. }, _)
            | (_, Fault::Policy) => CallState::Denied,
            (_, Fault::Caller | Fault::Host) => CallState::Rejected,
        };
        Self { state, problem: sandbox_problem(&error), lasting: error.fault() != Fault::Host }
    }
}

impl From<FetchError> for Refusal {
    fn from(error: FetchError) -> Self {
        let state = if matches!(error, FetchError::Denied(_)) { CallState::Denied } else { CallState::Rejected };
        Self { state, problem: fetch_problem(&error), lasting: true }
    }
}

impl From<Denial> for Refusal {
    fn from(denial: Denial) -> Self {
        FetchError::Denied(denial).into()
    }
}

/// A call, and the work it stands for.
#[derive(Debug)]
pub(crate) struct ResolvedCall {
    pub(crate) call: ToolCall,
    pub(crate) work: Work,
}

/// Everything that resolving needs to know.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resolver<'a> {
    pub(crate) catalog: &'a ToolCatalog,
    pub(crate) workspace: &'a Workspace,
    pub(crate) config: &'a ToolCallConfig,
    pub(crate) fetcher: &'a Fetcher,
    pub(crate) programs: Programs,
}

/// Where programs are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Programs {
    /// Where this host has them: what is not there cannot be called.
    OfHost,
    /// Where a host would have them, for calls that are decided and never made.
    Assumed,
}

impl Resolver<'_> {
    /// Resolves a proposal under a call id.
    pub(crate) fn resolve(self, id: CallId, proposal: &ToolProposal) -> Result<ResolvedCall, Refusal> {
        let definition = self.catalog.find(&proposal.tool)?;
        let input = CanonicalJson::parse(&proposal.input).map_err(|e| {
            Problem::new(e.code(), e.to_string(), format!("see an example: `palyra tools show {}`", definition.name))
        })?;
        self.catalog.validate(&definition.name, input.value())?;
        let mut targets = self.targets(definition, input.value())?;
        let work = Work::new(definition, input.value(), &mut targets, self)?;
        let parts = ToolCallParts {
            id,
            tool: definition.name.clone(),
            input,
            workspace_root: self.workspace.root().to_string_lossy().into_owned(),
            facets: targets.facets,
            origin: proposal.origin.clone(),
            idempotency_key: proposal.idempotency_key.clone(),
        };
        let call = ToolCall::new(parts).map_err(|e| Problem::plain(e.code(), e.to_string()))?;
        Ok(ResolvedCall { call, work })
    }

    /// Follows the definition's rules: from input to what it names in the world.
    pub(crate) fn targets(self, definition: &ToolDefinition, input: &Value) -> Result<Targets, Refusal> {
        let mut targets = Targets::default();
        // The directory comes first: where a program is looked for depends on it.
        for rule in &definition.facets {
            if let FacetRule::WorkingDirectory(pointer) = *rule {
                let path = self.path(input, pointer)?;
                targets.facets.working_directory = Some(path.as_str().to_owned());
                targets.paths.insert(pointer, path);
            }
        }
        for rule in &definition.facets {
            self.apply(*rule, input, &mut targets)?;
        }
        Ok(targets)
    }

    fn apply(self, rule: FacetRule, input: &Value, targets: &mut Targets) -> Result<(), Refusal> {
        match rule {
            FacetRule::WorkingDirectory(_) => {}
            FacetRule::PathRead(pointer) => {
                let path = self.path(input, pointer)?;
                targets.facets.paths_read.push(path.as_str().to_owned());
                targets.paths.insert(pointer, path);
            }
            FacetRule::TreeRead(pointer) => self.tree(pointer, input, targets)?,
            FacetRule::Listed { path, depth } => match input.pointer(depth).and_then(Value::as_f64) {
                Some(levels) if levels > 1.0 => self.tree(path, input, targets)?,
                _ => self.apply(FacetRule::PathRead(path), input, targets)?,
            },
            FacetRule::PathWritten(pointer) => {
                let path = self.path(input, pointer)?;
                path.refuse_protected()?;
                targets.facets.paths_written.push(path.as_str().to_owned());
                targets.paths.insert(pointer, path);
            }
            FacetRule::PatchTargets(pointer) => {
                let diff = input.pointer(pointer).and_then(Value::as_str).unwrap_or("");
                let plan = self.workspace.plan_patch(diff)?;
                let written = plan.paths_written();
                targets.facets.paths_written = written.all().iter().map(|p| p.as_str().to_owned()).collect();
                targets.patch = Some(plan);
            }
            FacetRule::Argv(pointer) => self.argv(pointer, input, targets)?,
            FacetRule::Environment(pointer) => {
                let variables = input.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
                let variables = variables.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
                let variables = variables.collect();
                // A call that would be refused when it is run is not put before anybody.
                if self.programs == Programs::OfHost {
                    check_environment(&self.config.process_runner, &variables)?;
                }
                let variables = variables.iter().map(|(name, value)| (name.as_str(), value.as_str()));
                targets.facets.environment = Environment::new(variables);
            }
            FacetRule::StandardInput(pointer) => {
                let text = input.pointer(pointer).and_then(Value::as_str).unwrap_or("");
                targets.facets.stdin_sha256 = (!text.is_empty()).then(|| Digest::of(text.as_bytes()));
            }
            FacetRule::RequestedHosts(pointer) => self.hosts(pointer, input, targets)?,
            FacetRule::Url(pointer) => {
                let text = input.pointer(pointer).and_then(Value::as_str).unwrap_or("");
                let url = FetchUrl::parse(text).map_err(FetchError::Url)?;
                targets.facets.hosts.push(format!("{}:{}", url.host(), url.port()));
                targets.url = Some(url);
            }
            FacetRule::Method(pointer) => {
                let method = input.pointer(pointer).and_then(Value::as_str).unwrap_or("GET");
                targets.facets.method = Some(method.to_owned());
            }
        }
        Ok(())
    }

    /// A path that is read with whatever is below it, when it is read.
    fn tree(self, pointer: &'static str, input: &Value, targets: &mut Targets) -> Result<(), Refusal> {
        let path = self.path(input, pointer)?;
        targets.facets.paths_read.push(path.as_str().to_owned());
        targets.facets.trees_read.push(path.as_str().to_owned());
        targets.paths.insert(pointer, path);
        Ok(())
    }

    fn argv(self, pointer: &str, input: &Value, targets: &mut Targets) -> Result<(), Refusal> {
        let argv = strings(input, pointer);
        let directory = self.absolute(targets.facets.working_directory.as_deref().unwrap_or("."));
        let executable = match resolve_executable(&self.config.process_runner, &argv, &directory) {
            Err(SandboxError::ExecutableNotFound { .. } | SandboxError::InterpreterDenied { .. })
                if self.programs == Programs::Assumed && argv.first().is_some_and(|name| !name.contains('/')) =>
            {
                targets.facets.executable = argv.first().map(|name| format!("/usr/bin/{name}"));
                targets.facets.argv = argv;
                return Ok(());
            }
            resolved => resolved?,
        };
        let programs: Vec<String> = executable.programs().map(|path| path.to_string_lossy().into_owned()).collect();
        targets.facets.executable = programs.first().cloned();
        targets.facets.executables = if programs.len() > 1 { programs } else { Vec::new() };
        targets.facets.programs_sha256 = executable.rewritable();
        targets.facets.argv = argv;
        targets.executable = Some(executable);
        Ok(())
    }

    /// The hosts that a command asks for and names. What it reaches beyond them is the sandbox's business.
    fn hosts(self, pointer: &str, input: &Value, targets: &mut Targets) -> Result<(), Refusal> {
        let requested = strings(input, pointer);
        let hosts = check_hosts(&self.config.process_runner, &targets.facets.argv, &requested)?;
        targets.facets.hosts = hosts.iter().map(ToString::to_string).collect();
        targets.requested_hosts = requested;
        Ok(())
    }

    fn path(self, input: &Value, pointer: &str) -> Result<ResolvedPath, Refusal> {
        let text = input.pointer(pointer).and_then(Value::as_str).unwrap_or(".");
        Ok(self.workspace.resolve(text)?)
    }

    /// Where a workspace path is on this host.
    pub(crate) fn absolute(self, relative: &str) -> std::path::PathBuf {
        match relative {
            "." => self.workspace.root().to_owned(),
            path => self.workspace.root().join(path),
        }
    }
}

/// A list of texts in the input; empty when it is not there.
fn strings(input: &Value, pointer: &str) -> Vec<String> {
    let words = input.pointer(pointer).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    words.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// What a call's input names in the world.
#[derive(Debug, Default)]
pub(crate) struct Targets {
    pub(crate) facets: Facets,
    pub(crate) paths: HashMap<&'static str, ResolvedPath>,
    pub(crate) patch: Option<PatchPlan>,
    pub(crate) executable: Option<ResolvedExecutable>,
    pub(crate) requested_hosts: Vec<String>,
    pub(crate) url: Option<FetchUrl>,
}

pub(crate) fn file_problem(error: &FileError) -> Problem {
    Problem { hint: error.hint().map(str::to_owned), ..Problem::plain(error.code(), error.to_string()) }
}

pub(crate) fn sandbox_problem(error: &SandboxError) -> Problem {
    Problem { code: error.code().to_owned(), message: error.to_string(), hint: error.hint(), denial: None }
}

pub(crate) fn fetch_problem(error: &FetchError) -> Problem {
    Problem { code: error.code().to_owned(), message: error.to_string(), hint: error.hint(), denial: None }
}

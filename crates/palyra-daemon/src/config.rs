//! `palyra.toml`: what was typed, and what was made of it.
//!
//! [`RawConfig`] is what serde reads: every key known, every unknown one refused with the nearest that exists.
//! [`Config`] is what the daemon runs on; it has one constructor, which checks everything once.

mod text;

use crate::doors::DoorName;
use crate::http::Port;
use palyra_egress::{EgressRule, EgressRules};
use palyra_engine::builtin::names;
use palyra_engine::{CallLimits, Rehearsal, ToolCallConfig, WasmRuntime};
use palyra_policy::{Membership, PolicyLoader};
use palyra_protocol::ToolName;
use palyra_sandbox::{EgressEnforcementMode, SandboxProcessRunnerPolicy, SandboxTier, WorkspaceAccess};
use serde::Deserialize;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use text::{MAX_FILE_BYTES, did_you_mean, text_of, with_nearest};

/// The longest time that anything may be made to wait: thirty days.
const MAX_TIME_MS: u64 = 30 * 24 * 60 * 60 * 1000;
/// The largest number that everything it is handed to can hold.
const MAX_NUMBER: u64 = 1 << 53;

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("`{}` cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Nothing that a configuration could be in.
    #[error("`{}` is {what}; name a file of at most {} KiB", path.display(), MAX_FILE_BYTES >> 10)]
    NotAFile {
        /// What was named.
        path: PathBuf,
        /// What it is instead.
        what: &'static str,
    },
    /// Tools could reach the daemon's keys.
    #[error("the workspace `{}` and the daemon's state in `{}` overlap, so tools could reach its keys; choose a project directory: `--workspace DIR`", workspace.display(), state.display())]
    Overlap {
        /// Where tools would work.
        workspace: PathBuf,
        /// Where the state is.
        state: PathBuf,
    },
    /// The file is not understood.
    #[error("`{}`, line {line}: {message}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where.
        line: usize,
        /// What is wrong, and the nearest thing that would be right.
        message: String,
    },
    /// A value makes no sense.
    #[error("`{key}`: {message}")]
    Value {
        /// The key.
        key: &'static str,
        /// What is wrong and what to do.
        message: String,
    },
}

/// The file as it is typed.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawConfig {
    workspace_root: Option<PathBuf>,
    policy_dir: Option<PathBuf>,
    tool_call: RawToolCall,
    process_runner: RawProcessRunner,
    egress: RawEgress,
    wasm_runtime: RawWasmRuntime,
    http: RawHttp,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawHttp {
    enabled: bool,
    port: Option<u16>,
}

impl Default for RawHttp {
    fn default() -> Self {
        Self { enabled: true, port: None }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawToolCall {
    allowed_tools: Vec<String>,
    allowed_principals: Vec<String>,
    allowed_channels: Vec<String>,
    max_calls_per_run: u64,
    max_calls_under_way: usize,
    max_calls_under_way_per_principal: usize,
    max_questions: usize,
    max_questions_per_principal: usize,
    execution_timeout_ms: u64,
    approval_timeout_ms: u64,
}

impl Default for RawToolCall {
    fn default() -> Self {
        let CallLimits { calls_each, calls, questions_each, questions } = CallLimits::default();
        Self {
            max_calls_under_way: calls,
            max_calls_under_way_per_principal: calls_each,
            max_questions: questions,
            max_questions_per_principal: questions_each,
            allowed_tools: names::ALL.map(str::to_owned).to_vec(),
            allowed_principals: vec!["user:*".to_owned(), "agent:*".to_owned()],
            allowed_channels: DoorName::ALL.map(|door| door.as_str().to_owned()).to_vec(),
            max_calls_per_run: 1000,
            execution_timeout_ms: 120_000,
            approval_timeout_ms: 300_000,
        }
    }
}

impl RawToolCall {
    fn membership(&self) -> Result<Membership, ConfigError> {
        Membership::from_lists(&self.allowed_principals, &self.allowed_channels, &["user:local".to_owned()])
            .map(|membership| membership.with_known_channels(&DoorName::ALL.map(DoorName::as_str)))
            .map_err(|e| value("tool_call.allowed_principals", e.to_string()))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawProcessRunner {
    tier: SandboxTier,
    workspace_access: WorkspaceAccess,
    read_roots: Vec<PathBuf>,
    write_roots: Vec<PathBuf>,
    allowed_executables: Vec<String>,
    allow_interpreters: Vec<String>,
    egress: EgressEnforcementMode,
    cpu_time_limit_ms: u64,
    wall_clock_limit_ms: u64,
    memory_limit_bytes: u64,
    max_output_bytes: u64,
    max_processes: u64,
    max_open_files: u64,
    max_file_size_bytes: u64,
    env_allowlist: Vec<String>,
    required_layers: Vec<String>,
}

impl Default for RawProcessRunner {
    fn default() -> Self {
        Self {
            tier: SandboxTier::C,
            workspace_access: WorkspaceAccess::ReadWrite,
            read_roots: Vec::new(),
            write_roots: Vec::new(),
            allowed_executables: Vec::new(),
            allow_interpreters: Vec::new(),
            egress: EgressEnforcementMode::Strict,
            cpu_time_limit_ms: 60_000,
            wall_clock_limit_ms: 120_000,
            memory_limit_bytes: 2 << 30,
            max_output_bytes: 1 << 20,
            max_processes: 256,
            max_open_files: 1024,
            max_file_size_bytes: 1 << 30,
            env_allowlist: ["LANG", "LC_ALL", "TERM", "TZ"].map(str::to_owned).to_vec(),
            required_layers: Vec::new(),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawEgress {
    allowed_hosts: Vec<EgressRule>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawWasmRuntime {
    enabled: bool,
}

/// A configuration that the daemon can run on.
#[derive(Debug)]
pub struct Config {
    /// Where tools work.
    pub workspace_root: PathBuf,
    /// The engine's limits and permissions.
    pub tool_call: ToolCallConfig,
    /// Who belongs to which group.
    pub membership: Membership,
    /// The directory of the operator's policies.
    pub policy_dir: Option<PathBuf>,
    /// Where the HTTP door is, if it is to be open.
    pub http: Option<Port>,
}

impl Config {
    /// Where the rules come from.
    #[must_use]
    pub fn policy_loader(&self) -> PolicyLoader {
        policy_loader(self.policy_dir.clone(), self.membership.clone())
    }
}

fn policy_loader(directory: Option<PathBuf>, membership: Membership) -> PolicyLoader {
    PolicyLoader { directory, membership, tools: Some(Arc::new(Rehearsal::default())) }
}

impl RawConfig {
    /// Reads the file; without one, everything is at its default.
    ///
    /// # Errors
    /// It cannot be read or understood.
    pub fn read(path: &Path, required: bool) -> Result<Self, ConfigError> {
        match text_of(path) {
            Ok(text) => Self::parse(path, &text),
            Err(ConfigError::Unreadable { source, .. }) if source.kind() == ErrorKind::NotFound && !required => {
                Ok(Self::default())
            }
            Err(error) => Err(error),
        }
    }

    /// What rules depend on, and nothing else: their directory, and who belongs to which group.
    ///
    /// # Errors
    /// A name is malformed, or there is no such directory.
    pub fn rules(&self) -> Result<PolicyLoader, ConfigError> {
        Ok(policy_loader(self.policy_dir.as_deref().map(canonical).transpose()?, self.tool_call.membership()?))
    }

    /// Where tools would work, whether or not they could.
    pub fn workspace(&self, given: Option<&Path>) -> PathBuf {
        let named = given.or(self.workspace_root.as_deref()).unwrap_or(Path::new("."));
        named.canonicalize().unwrap_or_else(|_| named.to_owned())
    }

    fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start.min(text.len()));
            let line = text.as_bytes()[..at].iter().filter(|b| **b == b'\n').count() + 1;
            ConfigError::Malformed { path: path.to_owned(), line, message: with_nearest(error.message()) }
        })
    }

    /// Checks what processes depend on, and nothing else.
    ///
    /// # Errors
    /// The first value that makes no sense.
    pub fn process_runner(
        self,
        workspace: Option<PathBuf>,
        state_dir: &Path,
    ) -> Result<SandboxProcessRunnerPolicy, ConfigError> {
        let workspace_root = workspace_root(workspace.or(self.workspace_root), state_dir)?;
        let rules = Arc::new(EgressRules::new(self.egress.allowed_hosts));
        self.process_runner.validate(&workspace_root, state_dir, rules)
    }

    /// The tier that processes run in.
    pub fn tier(&self) -> SandboxTier {
        self.process_runner.tier
    }

    /// Checks everything, once.
    ///
    /// # Errors
    /// The first value that makes no sense.
    pub fn validate(self, workspace: Option<PathBuf>, state_dir: &Path) -> Result<Config, ConfigError> {
        let workspace_root = workspace_root(workspace.or(self.workspace_root), state_dir)?;
        if self.wasm_runtime.enabled {
            return Err(value(
                "wasm_runtime.enabled",
                "this version has no WASM runtime; remove the key or set it to false",
            ));
        }
        let raw = self.tool_call;
        let membership = raw.membership()?;
        let allowed_tools = raw.allowed_tools.iter().map(|name| tool(name));
        for (key, limit) in [
            ("tool_call.max_calls_under_way", raw.max_calls_under_way),
            ("tool_call.max_calls_under_way_per_principal", raw.max_calls_under_way_per_principal),
        ] {
            if limit == 0 {
                return Err(value(key, "must be more than 0"));
            }
        }
        let egress_rules = Arc::new(EgressRules::new(self.egress.allowed_hosts));
        let process_runner = self.process_runner.validate(&workspace_root, state_dir, Arc::clone(&egress_rules))?;
        usable_roots(&process_runner)?;
        Ok(Config {
            tool_call: ToolCallConfig {
                allowed_tools: allowed_tools.collect::<Result<_, _>>()?,
                max_calls_per_run: at_most("tool_call.max_calls_per_run", raw.max_calls_per_run, MAX_NUMBER)?,
                limits: CallLimits {
                    calls: raw.max_calls_under_way,
                    calls_each: raw.max_calls_under_way_per_principal,
                    questions: raw.max_questions,
                    questions_each: raw.max_questions_per_principal,
                },
                execution_timeout: time("tool_call.execution_timeout_ms", raw.execution_timeout_ms)?,
                approval_timeout: time("tool_call.approval_timeout_ms", raw.approval_timeout_ms)?,
                process_runner,
                egress_rules,
                wasm_runtime: WasmRuntime::Disabled,
            },
            membership,
            http: self.http.enabled.then(|| self.http.port.map_or(Port::Default, Port::This)),
            policy_dir: self.policy_dir.map(|dir| policy_dir(&dir, &workspace_root)).transpose()?,
            workspace_root,
        })
    }
}

impl RawProcessRunner {
    fn validate(
        self,
        workspace: &Path,
        state_dir: &Path,
        egress_rules: Arc<EgressRules>,
    ) -> Result<SandboxProcessRunnerPolicy, ConfigError> {
        if self.egress == EgressEnforcementMode::Strict && self.tier == SandboxTier::B {
            return Err(value(
                "process_runner.egress",
                "`strict` is enforced by the kernel in tier c only; set `tier = \"c\"`, or `egress = \"preflight\"` or `\"none\"`",
            ));
        }
        for (key, limit) in [
            ("process_runner.cpu_time_limit_ms", self.cpu_time_limit_ms),
            ("process_runner.wall_clock_limit_ms", self.wall_clock_limit_ms),
            ("process_runner.memory_limit_bytes", self.memory_limit_bytes),
            ("process_runner.max_output_bytes", self.max_output_bytes),
            ("process_runner.max_processes", self.max_processes),
            ("process_runner.max_open_files", self.max_open_files),
            ("process_runner.max_file_size_bytes", self.max_file_size_bytes),
        ] {
            positive(key, limit)?;
            at_most(key, limit, MAX_NUMBER)?;
        }
        for (key, roots) in
            [("process_runner.read_roots", &self.read_roots), ("process_runner.write_roots", &self.write_roots)]
        {
            for root in roots {
                std::fs::metadata(root)
                    .map_err(|e| value(key, format!("`{}` cannot be used: {e}; name what exists", root.display())))?;
            }
        }
        if self.max_output_bytes > MAX_OUTPUT_BYTES {
            let message =
                format!("is at most {MAX_OUTPUT_BYTES}: an outcome has to fit into one message of every door");
            return Err(value("process_runner.max_output_bytes", message));
        }
        palyra_sandbox::check_required_layers(&self.required_layers)
            .map_err(|error| value("process_runner.required_layers", error.to_string()))?;
        Ok(SandboxProcessRunnerPolicy {
            tier: self.tier,
            workspace_root: workspace.to_owned(),
            workspace_access: self.workspace_access,
            read_roots: self.read_roots,
            write_roots: self.write_roots,
            allowed_executables: self.allowed_executables,
            allow_interpreters: self.allow_interpreters,
            egress: self.egress,
            egress_rules,
            cpu_time_limit_ms: self.cpu_time_limit_ms,
            wall_clock_limit_ms: self.wall_clock_limit_ms,
            memory_limit_bytes: self.memory_limit_bytes,
            max_output_bytes: self.max_output_bytes,
            max_processes: self.max_processes,
            max_open_files: self.max_open_files,
            max_file_size_bytes: self.max_file_size_bytes,
            env_allowlist: self.env_allowlist,
            required_layers: self.required_layers,
            protected_paths: vec![state_dir.to_owned()],
        })
    }
}

/// The most output of a process that is kept: two streams, of which every byte may take six in JSON, fit into the largest
/// answer, and an event of the journal is told in one.
const MAX_OUTPUT_BYTES: u64 = 4 << 20;
const _: () = assert!(2 * 6 * MAX_OUTPUT_BYTES < palyra_api::client::MAX_REPLY_BYTES as u64);

/// What no run could be given is said at the start, not by the first call.
fn usable_roots(policy: &SandboxProcessRunnerPolicy) -> Result<(), ConfigError> {
    palyra_sandbox::check_roots(policy).map_err(|error| {
        let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
        value("process_runner", format!("{error}{hint}"))
    })
}

fn value(key: &'static str, message: impl Into<String>) -> ConfigError {
    ConfigError::Value { key, message: message.into() }
}

fn positive(key: &'static str, number: u64) -> Result<u64, ConfigError> {
    if number == 0 { Err(value(key, "must be more than 0")) } else { Ok(number) }
}

fn at_most(key: &'static str, number: u64, most: u64) -> Result<u64, ConfigError> {
    if number > most { Err(value(key, format!("must be at most {most}"))) } else { Ok(number) }
}

fn time(key: &'static str, ms: u64) -> Result<Duration, ConfigError> {
    at_most(key, positive(key, ms)?, MAX_TIME_MS).map(Duration::from_millis)
}

/// A tool that there is.
fn tool(name: &str) -> Result<ToolName, ConfigError> {
    const KEY: &str = "tool_call.allowed_tools";
    let parsed = name.parse::<ToolName>().map_err(|e| value(KEY, e.to_string()))?;
    if names::ALL.contains(&name) {
        return Ok(parsed);
    }
    Err(value(KEY, format!("there is no tool `{name}`{}", did_you_mean(name, names::ALL.into_iter()))))
}

/// INVARIANT (state_is_not_workspace): a tool can never reach the daemon's keys or journal, because the two directories
/// do not overlap.
fn workspace_root(given: Option<PathBuf>, state_dir: &Path) -> Result<PathBuf, ConfigError> {
    const KEY: &str = "workspace_root";
    let given = match given {
        Some(path) => path,
        None => std::env::current_dir().map_err(|e| value(KEY, format!("the current directory is gone: {e}")))?,
    };
    let root = given
        .canonicalize()
        .map_err(|e| value(KEY, format!("`{}` cannot be used: {e}; name an existing directory", given.display())))?;
    if !root.is_dir() {
        return Err(value(KEY, format!("`{}` is not a directory", root.display())));
    }
    if state_dir.starts_with(&root) || root.starts_with(state_dir) {
        return Err(ConfigError::Overlap { workspace: root, state: state_dir.to_owned() });
    }
    Ok(root)
}

/// INVARIANT (rules_are_not_workspace): what an agent may write is never read as a rule.
fn policy_dir(given: &Path, workspace: &Path) -> Result<PathBuf, ConfigError> {
    let dir = canonical(given)?;
    if dir.starts_with(workspace) || workspace.starts_with(&dir) {
        let message = format!(
            "`{}` and the workspace `{}` overlap, so agents could write their own rules; keep the rules elsewhere",
            dir.display(),
            workspace.display()
        );
        return Err(value("policy_dir", message));
    }
    Ok(dir)
}

fn canonical(path: &Path) -> Result<PathBuf, ConfigError> {
    path.canonicalize().map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        let state = tempfile::tempdir().unwrap();
        let workspace = tempfile::tempdir().unwrap();
        let raw = RawConfig::parse(Path::new("palyra.toml"), text);
        match raw.and_then(|raw| raw.validate(Some(workspace.path().to_owned()), state.path())) {
            Ok(_) => panic!("accepted: {text}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn unknown_keys_get_the_nearest() {
        let message = refused("\n[tool_call]\nmax_call_per_run = 3\n");
        assert_eq!(
            message,
            "`palyra.toml`, line 3: there is no key `max_call_per_run`; did you mean `max_calls_per_run`?"
        );
        assert!(refused("worksapce_root = \"x\"").contains("did you mean `workspace_root`?"));
        assert!(refused("[process_runner]\ntier = \"d\"").contains("there is no value `d`; did you mean `b`?"));
        assert!(refused("tool_call = 3").contains("line 1"));
        let far = refused("zzz = 1");
        assert!(!far.contains("did you mean") && far.contains("`workspace_root`"), "{far}");
    }

    #[test]
    fn senseless_values_are_refused() {
        assert!(refused("[process_runner]\ntier = \"b\"").contains("tier c only"));
        assert!(refused("[process_runner]\nmemory_limit_bytes = 0").contains("more than 0"));
        assert!(refused("[process_runner]\nmax_output_bytes = 20000000").contains("at most 4194304"));
        assert!(refused("[tool_call]\nmax_calls_under_way = 0").contains("more than 0"));
        assert!(refused("[process_runner]\nrequired_layers = [\"moat\"]").contains("no layer `moat`"));
        assert!(refused("[wasm_runtime]\nenabled = true").contains("no WASM runtime"));
        assert!(refused("[tool_call]\nexecution_timeout_ms = 0").contains("more than 0"));
        assert!(refused("[tool_call]\nallowed_tools = [\"Bad Name\"]").contains("not a tool name"));
        assert!(refused("[tool_call]\nallowed_principals = [\"root\"]").contains("allowed_principals"));
        assert!(refused("\n[egress]\nallowed_hosts = [\"*\"]").contains("line 3: the egress rule `*` cannot be used"));
        assert!(refused("[egress]\nallowed_hosts = [\"https://example.org/x\"]").contains("write `example.org`"));
        assert!(refused("policy_dir = \"nowhere\"").contains("cannot be read"));
        let unknown = refused("[tool_call]\nallowed_tools = [\"palyra.fs.raed\"]");
        assert!(unknown.contains("did you mean `palyra.fs.read`?"), "{unknown}");
        assert!(refused("[tool_call]\napproval_timeout_ms = 9223372036854775807").contains("at most 2592000000"));
        assert!(refused("[tool_call]\nmax_calls_per_run = 9223372036854775807").contains("at most"));
        assert!(refused("[process_runner]\nwall_clock_limit_ms = 9223372036854775807").contains("at most"));
        assert!(refused("[process_runner]\nread_roots = [\"nowhere\"]").contains("`nowhere` cannot be used"));
    }

    #[test]
    fn roots_that_no_run_could_be_given_are_refused() {
        let (state, workspace) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let workspace = workspace.path().canonicalize().unwrap();
        let inner = workspace.join("a/sub");
        std::fs::create_dir_all(&inner).unwrap();
        for (roots, access, said) in [
            (format!("write_roots = [{inner:?}]"), "read_write", "where a run could put something else in its place"),
            (format!("read_roots = [{inner:?}]"), "read_write", "leave the inner root out"),
            (format!("write_roots = [{inner:?}]"), "read_only", ""),
            ("read_roots = [\"/proc\"]".to_owned(), "read_write", "lies in `/proc`"),
        ] {
            let text = format!("[process_runner]\nworkspace_access = \"{access}\"\n{roots}\n");
            let raw = RawConfig::parse(Path::new("palyra.toml"), &text).unwrap();
            let refused = raw.validate(Some(workspace.clone()), state.path()).err();
            let refused = refused.map(|error| error.to_string()).unwrap_or_default();
            assert!(refused.contains(said) && refused.is_empty() == said.is_empty(), "{text}: {refused}");
        }
    }

    #[test]
    fn rules_are_not_workspace() {
        let (state, workspace) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let inside = workspace.path().join("rules");
        std::fs::create_dir(&inside).unwrap();
        let outside = tempfile::tempdir().unwrap();
        let link = outside.path().join("link");
        std::os::unix::fs::symlink(&inside, &link).unwrap();
        for dir in [inside.as_path(), link.as_path(), Path::new("/")] {
            let raw = RawConfig { policy_dir: Some(dir.to_owned()), ..RawConfig::default() };
            let refused = raw.validate(Some(workspace.path().to_owned()), state.path()).unwrap_err();
            assert!(refused.to_string().contains("their own rules"), "{refused}");
        }
        let raw = RawConfig { policy_dir: Some(outside.path().to_owned()), ..RawConfig::default() };
        assert!(raw.validate(Some(workspace.path().to_owned()), state.path()).is_ok());
    }

    #[test]
    fn the_state_is_never_inside_the_workspace() {
        let outer = tempfile::tempdir().unwrap();
        let outer = outer.path().canonicalize().unwrap();
        let state = outer.join("state");
        std::fs::create_dir(&state).unwrap();
        for workspace in [outer, state.clone()] {
            let refused = RawConfig::default().validate(Some(workspace), &state).unwrap_err();
            assert!(refused.to_string().contains("overlap"), "{refused}");
        }
    }
}

//! `[process_runner]`: how processes are confined.

use super::checks::{MAX_NUMBER, at_most, positive};
use super::error::ConfigError;
use super::toolchains;
use palyra_egress::EgressRules;
use palyra_sandbox::{EgressEnforcementMode, SandboxProcessRunnerPolicy, SandboxTier, WorkspaceAccess};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The most output of a process that is kept: two streams, of which every byte may take six in JSON, fit into the
/// largest answer, and an event of the journal is told in one.
const MAX_OUTPUT_BYTES: u64 = 4 << 20;
const _: () = assert!(2 * 6 * MAX_OUTPUT_BYTES < palyra_api::client::MAX_REPLY_BYTES as u64);

/// The section as it is typed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawProcessRunner {
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
    toolchains: Vec<String>,
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
            toolchains: Vec::new(),
        }
    }
}

impl RawProcessRunner {
    /// The tier that processes run in.
    pub(super) fn tier(&self) -> SandboxTier {
        self.tier
    }

    pub(super) fn validate(
        self,
        workspace: &Path,
        state_dir: &Path,
        egress_rules: Arc<EgressRules>,
    ) -> Result<SandboxProcessRunnerPolicy, ConfigError> {
        if self.egress == EgressEnforcementMode::Strict && self.tier == SandboxTier::B {
            return Err(ConfigError::value(
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
                std::fs::metadata(root).map_err(|e| {
                    ConfigError::value(key, format!("`{}` cannot be used: {e}; name what exists", root.display()))
                })?;
            }
        }
        if self.max_output_bytes > MAX_OUTPUT_BYTES {
            let message =
                format!("is at most {MAX_OUTPUT_BYTES}: an outcome has to fit into one message of every door");
            return Err(ConfigError::value("process_runner.max_output_bytes", message));
        }
        palyra_sandbox::check_required_layers(&self.required_layers)
            .map_err(|error| ConfigError::value("process_runner.required_layers", error.to_string()))?;
        let writable: Vec<PathBuf> = std::iter::once(workspace.to_owned()).chain(self.write_roots.clone()).collect();
        let home = toolchains::validate(&self.toolchains, self.tier, &writable)?;
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
            home,
            protected_paths: vec![state_dir.to_owned()],
        })
    }
}

/// What no run could be given is said at the start, not by the first call.
pub(super) fn usable_roots(policy: &SandboxProcessRunnerPolicy) -> Result<(), ConfigError> {
    palyra_sandbox::check_roots(policy).map_err(|error| {
        let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
        ConfigError::value("process_runner", format!("{error}{hint}"))
    })
}

//! What the unit tests of this crate share.

use crate::policy::{EgressEnforcementMode, SandboxProcessRunnerPolicy, SandboxTier, WorkspaceAccess};
use crate::run_home::RunHome;
use std::path::Path;
use std::sync::Arc;

/// A policy with generous limits over one workspace.
pub(crate) fn policy(workspace: impl AsRef<Path>) -> SandboxProcessRunnerPolicy {
    SandboxProcessRunnerPolicy {
        tier: SandboxTier::B,
        workspace_root: workspace.as_ref().to_owned(),
        workspace_access: WorkspaceAccess::ReadWrite,
        read_roots: Vec::new(),
        write_roots: Vec::new(),
        allowed_executables: Vec::new(),
        allow_interpreters: Vec::new(),
        egress: EgressEnforcementMode::None,
        egress_rules: Arc::default(),
        cpu_time_limit_ms: 10_000,
        wall_clock_limit_ms: 20_000,
        memory_limit_bytes: 1 << 30,
        max_output_bytes: 1 << 20,
        max_processes: 64,
        max_open_files: 256,
        max_file_size_bytes: 64 << 20,
        env_allowlist: Vec::new(),
        required_layers: Vec::new(),
        home: RunHome::default(),
        protected_paths: Vec::new(),
    }
}

//! The Windows side of `detect`: makes a token and a job, and sees whether it can.

use super::job::Job;
use super::limits::job_limits;
use super::token::RestrictedToken;
use crate::detect::{Capability, HostCapabilities};
use crate::policy::{EgressEnforcementMode, SandboxProcessRunnerPolicy, SandboxTier, WorkspaceAccess};
use crate::run_home::RunHome;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Looks at this host.
pub(crate) fn detect() -> HostCapabilities {
    let token = capability("restricted_token", RestrictedToken::create().map(drop), "restricted, of low integrity");
    let job = capability("job_object", Job::create(job_limits(&any_policy())).map(drop), "limits for the whole tree");
    let tier_c = token.available && job.available;
    let capabilities = vec![
        token.needed_by(&[SandboxTier::C]),
        job.needed_by(&[SandboxTier::C]),
        Capability::missing(
            "tier_b",
            "without the restricted token a process could read the daemon's state",
            Some("use tier c"),
        ),
        Capability::missing(
            "strict_egress",
            "a job object cannot hold back the network",
            Some("use egress mode `preflight`, or run the daemon on Linux or macOS"),
        ),
    ];
    let platform = format!("windows {}", std::env::consts::ARCH);
    HostCapabilities { platform, tier_b: false, tier_c, root: false, container: None, capabilities }
}

fn capability(name: &'static str, attempt: io::Result<()>, detail: &str) -> Capability {
    match attempt {
        Ok(()) => Capability::there(name, detail),
        Err(error) => Capability::missing(name, error.to_string(), None),
    }
}

/// A policy with small limits, to see whether a job takes any.
fn any_policy() -> SandboxProcessRunnerPolicy {
    SandboxProcessRunnerPolicy {
        tier: SandboxTier::C,
        workspace_root: PathBuf::new(),
        workspace_access: WorkspaceAccess::ReadOnly,
        read_roots: Vec::new(),
        write_roots: Vec::new(),
        allowed_executables: Vec::new(),
        allow_interpreters: Vec::new(),
        egress: EgressEnforcementMode::None,
        egress_rules: Arc::default(),
        cpu_time_limit_ms: 1000,
        wall_clock_limit_ms: 1000,
        memory_limit_bytes: 64 << 20,
        max_output_bytes: 0,
        max_processes: 1,
        max_open_files: 8,
        max_file_size_bytes: 0,
        env_allowlist: Vec::new(),
        required_layers: vec![],
        home: RunHome::default(),
        protected_paths: Vec::new(),
    }
}

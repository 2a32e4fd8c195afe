//! What a skill asks for: the part of its manifest that this crate understands.

use crate::hosts::HostPattern;
use crate::limits::RequestedLimits;
use crate::names::{SecretPattern, WorkspacePath};
use serde::{Deserialize, Serialize};

/// Capabilities as a manifest asks for them. Asking is not having: see [`crate::WasmPluginRunnerPolicy::grant`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RequestedCapabilities {
    /// Hosts to reach.
    pub http_hosts: Vec<HostPattern>,
    /// Secrets to read.
    pub secrets: Vec<SecretPattern>,
    /// Parts of the workspace to read.
    pub read_roots: Vec<WorkspacePath>,
    /// Parts of the workspace to write.
    pub write_roots: Vec<WorkspacePath>,
    /// Private storage; 0 for none.
    pub storage_bytes: u64,
    /// Limits other than the usual ones.
    pub limits: RequestedLimits,
}

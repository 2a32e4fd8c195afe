//! What a tool can do to the world, and how bad that can be.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A power that makes a tool sensitive. A tool without any of them can only look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolCapability {
    /// Runs native programs.
    ProcessExec,
    /// Reaches other hosts.
    Network,
    /// Reads the vault.
    SecretsRead,
    /// Changes files of the workspace.
    FilesystemWrite,
}

/// The policy names of the capabilities that make a tool sensitive: all of them.
pub const SENSITIVE_CAPABILITY_POLICY_NAMES: [&str; 4] =
    ["process_exec", "network", "secrets_read", "filesystem_write"];

impl ToolCapability {
    /// Every capability.
    pub const ALL: [Self; 4] = [Self::ProcessExec, Self::Network, Self::SecretsRead, Self::FilesystemWrite];

    /// The name by which policies and listings know it.
    #[must_use]
    pub fn policy_name(self) -> &'static str {
        match self {
            Self::ProcessExec => "process_exec",
            Self::Network => "network",
            Self::SecretsRead => "secrets_read",
            Self::FilesystemWrite => "filesystem_write",
        }
    }

    /// Whether having it makes a tool sensitive.
    #[must_use]
    pub fn is_sensitive(self) -> bool {
        SENSITIVE_CAPABILITY_POLICY_NAMES.contains(&self.policy_name())
    }
}

impl fmt::Display for ToolCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.policy_name())
    }
}

/// How much harm a wrong call can do; shown to whoever approves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RiskLevel {
    /// Nothing is changed and nothing leaves.
    Low,
    /// Changes that can be undone inside the workspace.
    Medium,
    /// Runs code or reaches out.
    High,
    /// Touches secrets or production.
    Critical,
}

impl RiskLevel {
    /// The name by which policies and listings know it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

impl fmt::Display for RiskLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

//! What this host can enforce, what is missing, and the command that fixes it.
//!
//! Every entry is the answer of the kernel or of a real attempt, never of a version number alone. Meant for people
//! (`palyra sandbox detect`) and for refusals; a run does not consult it, it tries and reports.

use crate::policy::SandboxTier;
use serde::Serialize;

/// One thing a host may have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Capability {
    /// Its stable name.
    pub name: &'static str,
    /// Whether it is there and works.
    pub available: bool,
    /// What was found.
    pub detail: String,
    /// The tiers that do not exist without it. None: a run without it says so in its enforcement.
    pub needed_by: &'static [SandboxTier],
    /// How to get it, where it is missing and that is possible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// What a host can enforce.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostCapabilities {
    /// The operating system and kernel.
    pub platform: String,
    /// Whether tier B works here.
    pub tier_b: bool,
    /// Whether tier C works here.
    pub tier_c: bool,
    /// Whether the daemon is root: then processes run as another user.
    pub root: bool,
    /// The container this runs in, if any.
    pub container: Option<String>,
    /// Every layer.
    pub capabilities: Vec<Capability>,
}

impl HostCapabilities {
    /// Whether a tier works here.
    #[must_use]
    pub fn has(&self, tier: SandboxTier) -> bool {
        match tier {
            SandboxTier::B => self.tier_b,
            SandboxTier::C => self.tier_c,
        }
    }

    /// The capability of this name.
    #[must_use]
    pub fn capability(&self, name: &str) -> Option<&Capability> {
        self.capabilities.iter().find(|capability| capability.name == name)
    }
}

impl Capability {
    pub(crate) fn there(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, available: true, detail: detail.into(), needed_by: &[], fix: None }
    }

    pub(crate) fn missing(name: &'static str, detail: impl Into<String>, fix: Option<&str>) -> Self {
        Self { name, available: false, detail: detail.into(), needed_by: &[], fix: fix.map(str::to_owned) }
    }

    pub(crate) fn needed_by(mut self, tiers: &'static [SandboxTier]) -> Self {
        self.needed_by = tiers;
        self
    }
}

/// Looks at the host. Starts `bwrap` or `sandbox-exec` once to see whether it works.
#[must_use]
pub fn detect() -> HostCapabilities {
    #[cfg(target_os = "linux")]
    return crate::linux::detect();
    #[cfg(target_os = "macos")]
    return crate::macos::detect();
    #[cfg(windows)]
    return crate::windows::detect();
    #[cfg(not(any(target_os = "linux", target_os = "macos", windows)))]
    {
        let fix = "run the daemon on Linux, macOS or Windows";
        HostCapabilities {
            platform: std::env::consts::OS.to_owned(),
            tier_b: false,
            tier_c: false,
            root: false,
            container: None,
            capabilities: vec![Capability::missing("runner", "there is none for this system", Some(fix))],
        }
    }
}

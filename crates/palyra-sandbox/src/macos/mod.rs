//! macOS: `sandbox-exec` with a generated profile, around a process group with limits.
//!
//! Both tiers get the same profile; they differ in the network, which only Tier C can be without. macOS has no
//! namespaces, no control groups and no way to execute an open file: what that leaves open is told, layer by layer.

mod host;
mod paths;
mod run;

pub(crate) use host::detect;
pub(crate) use run::run;

/// The program that applies a profile.
const SANDBOX_EXEC: &str = "/usr/bin/sandbox-exec";

//! What the unit tests of this crate share.

use crate::policy::{SandboxProcessRunnerPolicy, SandboxTier};
use std::path::Path;

/// A policy with generous limits over one workspace.
pub(crate) fn policy(workspace: impl AsRef<Path>) -> SandboxProcessRunnerPolicy {
    SandboxProcessRunnerPolicy::over(workspace.as_ref(), SandboxTier::B)
}

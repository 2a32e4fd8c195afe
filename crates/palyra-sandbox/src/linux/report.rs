//! Turns what the child reported into layers and errors. Nothing here may speak of a layer that the child did not.

use super::plan::{Record, Step};
use crate::error::SandboxError;
use crate::outcome::Layer;
use crate::policy::EgressEnforcementMode;
use std::io;
use std::path::Path;

/// The steps that the child did.
#[derive(Debug, Clone, Copy)]
pub(super) struct Done(u32);

impl Done {
    pub(super) fn of(ended: &Record) -> Self {
        Self(ended.step)
    }

    pub(super) fn has(self, step: Step) -> bool {
        self.0 & step.bit() != 0
    }

    /// A layer that stands if its step was done.
    pub(super) fn layer(self, step: Step, name: &str, detail: impl Into<String>, missing: &str) -> Layer {
        if self.has(step) { Layer::applied(name, detail) } else { Layer::missing(name, missing) }
    }
}

/// What a network that is shared with the host means under a mode.
pub(super) fn shared_network(egress: EgressEnforcementMode) -> &'static str {
    match egress {
        EgressEnforcementMode::Preflight => {
            "THE HOST'S NETWORK IS SHARED: the hosts that the call names were compared with the allow-list before it ran; \
             what it really connects to is not OS-enforced"
        }
        EgressEnforcementMode::None | EgressEnforcementMode::Strict => {
            "THE HOST'S NETWORK IS SHARED: the process can reach every host this machine can"
        }
    }
}

/// Why the command was never started.
pub(super) fn start_error(failed: &Record, program: &Path, working_directory: &Path) -> SandboxError {
    let source = io::Error::from_raw_os_error(i32::try_from(failed.value).unwrap_or(0));
    let step = Step::ALL.into_iter().find(|step| *step as u32 == failed.step);
    let layer = match step {
        Some(Step::Execute) | None => return SandboxError::StartFailed { path: program.to_owned(), source },
        Some(Step::WorkingDirectory) => {
            return SandboxError::WorkspaceUnavailable { path: working_directory.to_owned(), source };
        }
        Some(Step::Descriptors) => "descriptors",
        Some(Step::Mounts) => "mount_namespace",
        Some(Step::Subreaper) => "process_tree",
        Some(Step::Fence | Step::FenceProven) => "landlock_scope",
        Some(Step::Session) => "session",
        Some(Step::Rlimits) => "rlimits",
        Some(Step::User) => "user",
        Some(Step::NoNewPrivileges) => "no_new_privileges",
        Some(Step::Files) => "landlock",
        Some(Step::Seccomp) => "seccomp",
        Some(Step::Group) => "cgroup",
        Some(Step::OwnMounts) => super::own_view::LAYER,
    };
    SandboxError::LayerUnavailable { layer, source }
}

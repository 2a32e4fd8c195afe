//! The minimum: layers without which a call is refused.
//!
//! A tier has layers that it does not exist without, on every host. Others are there where the host has them, and the
//! enforcement says so; an operator who wants one of those in any case demands it by name (`required_layers`), and a
//! run that would not have it does not begin.

use crate::error::SandboxError;
#[cfg(any(target_os = "macos", windows))]
use crate::outcome::Layer;

/// Every layer that can be demanded, on any platform.
const LAYERS: &[&str] = &[
    "bubblewrap",
    "capabilities",
    "cgroup",
    "cgroup_namespace",
    "desktop",
    "egress_proxy",
    "executable_pinned",
    "file_limits",
    "guarded_paths",
    "handles",
    "hidden_programs",
    "integrity_level",
    "ipc_namespace",
    "job_object",
    "landlock",
    "landlock_scope",
    "memory_limit",
    "mount_namespace",
    "network",
    "network_namespace",
    "no_new_privileges",
    "pid_namespace",
    "process_tree",
    "protected_paths",
    "restricted_token",
    "rlimits",
    "seatbelt",
    "seccomp",
    "session",
    "set_aside",
    "user",
    "user_namespace",
    "uts_namespace",
];

/// A layer's name, if there is such a layer.
pub(crate) fn known(name: &str) -> Result<&'static str, SandboxError> {
    LAYERS.iter().copied().find(|known| *known == name).ok_or_else(|| SandboxError::InvalidPolicy {
        reason: format!("there is no layer `{name}`; there are: {}", LAYERS.join(", ")),
    })
}

/// Checks the names of demanded layers.
///
/// # Errors
/// One that is no layer.
pub fn check_required_layers(names: &[String]) -> Result<(), SandboxError> {
    names.iter().try_for_each(|name| known(name).map(drop))
}

/// Why a run that lacks a layer does not begin.
pub(crate) fn lacking(layer: &'static str) -> SandboxError {
    let source = std::io::Error::new(std::io::ErrorKind::Unsupported, "this run would not have it");
    SandboxError::LayerUnavailable { layer, source }
}

/// Refuses a run that would not have what is demanded.
#[cfg(any(target_os = "macos", windows))]
pub(crate) fn demand(names: &[String], layers: &[Layer]) -> Result<(), SandboxError> {
    for name in names {
        let name = known(name)?;
        if !layers.iter().any(|layer| layer.name == name && layer.applied) {
            return Err(lacking(name));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_layers_can_be_demanded() {
        check_required_layers(&["cgroup".into(), "landlock_scope".into()]).unwrap();
        let refused = check_required_layers(&["moat".into()]).unwrap_err();
        assert!(refused.to_string().contains("no layer `moat`; there are: bubblewrap, "), "{refused}");
    }
}

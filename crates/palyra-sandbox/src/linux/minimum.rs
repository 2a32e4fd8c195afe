//! The minimum of a run on Linux, as the steps that its child must have done.
//!
//! INVARIANT (minimum): the child compares what it did with this mask just before it executes anything, so that a layer
//! that turned out to be missing ends the run before it began, however it came to be missing.

use super::plan::Step;
use super::tier_c::has_way_out;
use crate::error::SandboxError;
use crate::minimum::{known, lacking};
use crate::policy::{EgressEnforcementMode, SandboxProcessRunnerPolicy, SandboxTier};

/// What Tier B does not exist without. Landlock too where the daemon is root and its own files are closed by their
/// owner: the host's are not.
pub(super) const TIER_B: &[&str] = &["no_new_privileges", "landlock", "seccomp", "process_tree", "session", "rlimits"];
/// The same for Tier C. Bubblewrap builds all of its walls, or ends.
pub(super) const TIER_C: &[&str] =
    &["bubblewrap", "seccomp", "no_new_privileges", "process_tree", "session", "rlimits"];

/// The layers of the tier and those that the policy demands, as a mask of steps.
pub(super) fn steps(policy: &SandboxProcessRunnerPolicy) -> Result<u32, SandboxError> {
    let own = match policy.tier {
        SandboxTier::B => TIER_B,
        SandboxTier::C => TIER_C,
    };
    let mut mask = 0;
    for name in own.iter().copied().chain(policy.required_layers.iter().map(String::as_str)) {
        mask |= bits(policy, known(name)?)?;
    }
    Ok(mask)
}

/// The step that stands for a layer; none for one that stands or falls with bubblewrap.
fn bits(policy: &SandboxProcessRunnerPolicy, layer: &'static str) -> Result<u32, SandboxError> {
    let step = match (policy.tier, layer) {
        (_, "no_new_privileges") => Step::NoNewPrivileges,
        (_, "user") => Step::User,
        (_, "landlock_scope") => Step::FenceProven,
        (_, "process_tree") => Step::Subreaper,
        (_, "session") => Step::Session,
        (_, "rlimits") => Step::Rlimits,
        (SandboxTier::B, "mount_namespace") => Step::Mounts,
        (SandboxTier::B, "landlock") => Step::Files,
        (SandboxTier::B, "seccomp") => Step::Seccomp,
        // It is part of the view that is entered, or of what is put up instead; without either nothing is prepared.
        (_, "hidden_programs") => return Ok(0),
        (SandboxTier::C, "cgroup") => Step::Group,
        (SandboxTier::C, "network_namespace") if policy.egress == EgressEnforcementMode::Strict => return Ok(0),
        (SandboxTier::C, "egress_proxy") if has_way_out(policy) => return Ok(0),
        (
            SandboxTier::C,
            "bubblewrap" | "user_namespace" | "mount_namespace" | "pid_namespace" | "ipc_namespace" | "uts_namespace"
            | "cgroup_namespace" | "capabilities" | "guarded_paths" | "seccomp",
        ) => return Ok(0),
        _ => return Err(lacking(layer)),
    };
    Ok(step.bit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::policy;

    #[test]
    fn what_a_tier_cannot_have_is_refused_before_anything_starts() {
        for (tier, layer, possible) in [
            (SandboxTier::B, "landlock_scope", true),
            (SandboxTier::B, "hidden_programs", true),
            (SandboxTier::C, "hidden_programs", true),
            (SandboxTier::B, "cgroup", false),
            (SandboxTier::B, "network_namespace", false),
            (SandboxTier::C, "cgroup", true),
            (SandboxTier::C, "network_namespace", false),
            (SandboxTier::C, "landlock", false),
            (SandboxTier::C, "moat", false),
        ] {
            let mut policy = policy("/w");
            policy.tier = tier;
            policy.required_layers = vec![layer.to_owned()];
            assert_eq!(steps(&policy).is_ok(), possible, "{tier} {layer}");
        }
        let plain = steps(&policy("/w")).unwrap();
        assert_eq!(plain & Step::Files.bit(), Step::Files.bit());
        assert_eq!(plain & Step::FenceProven.bit(), 0);
    }
}

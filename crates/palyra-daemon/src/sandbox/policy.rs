//! The policy of an attempt: the configuration's, changed by the options that were typed.

use super::{Refused, with_causes};
use crate::serve::Setup;
use palyra_api::command_line::{Attempt, Egress, Tier};
use palyra_egress::{EgressRules, RuleError};
use palyra_sandbox::{EgressEnforcementMode, ProcessRequest, SandboxProcessRunnerPolicy, SandboxTier, WorkspaceAccess};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub(super) fn tier(tier: Tier) -> SandboxTier {
    match tier {
        Tier::B => SandboxTier::B,
        Tier::C => SandboxTier::C,
    }
}

fn egress(egress: Egress) -> EgressEnforcementMode {
    match egress {
        Egress::Strict => EgressEnforcementMode::Strict,
        Egress::Preflight => EgressEnforcementMode::Preflight,
        Egress::None => EgressEnforcementMode::None,
    }
}

/// The policy and the command of an attempt.
pub(super) fn attempt(
    setup: &Setup,
    attempt: &Attempt,
) -> Result<(SandboxProcessRunnerPolicy, ProcessRequest), Refused> {
    let mut policy = setup.process_runner(attempt.workspace.clone())?;
    if let Some(wanted) = attempt.tier {
        policy.tier = tier(wanted);
    }
    if let Some(wanted) = attempt.egress {
        policy.egress = egress(wanted);
    }
    allow_hosts(&mut policy, &attempt.allow_host)?;
    if policy.tier == SandboxTier::B && policy.egress == EgressEnforcementMode::Strict {
        // A weaker network is asked for by name, never come to by the way.
        return Err(palyra_sandbox::SandboxError::EgressNeedsTierC.into());
    }
    if attempt.read_only {
        policy.workspace_access = WorkspaceAccess::ReadOnly;
    }
    policy.read_roots.extend(absolute(&attempt.read)?);
    policy.write_roots.extend(absolute(&attempt.write)?);
    policy.allow_interpreters.extend(attempt.allow_interpreter.iter().cloned());
    policy.env_allowlist.extend(attempt.env.iter().cloned());
    let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    policy.memory_limit_bytes = attempt.memory.unwrap_or(policy.memory_limit_bytes);
    policy.cpu_time_limit_ms = attempt.cpu.map_or(policy.cpu_time_limit_ms, ms);
    policy.wall_clock_limit_ms = attempt.timeout.map_or(policy.wall_clock_limit_ms, ms);
    policy.max_output_bytes = attempt.max_output.unwrap_or(policy.max_output_bytes);
    let request = ProcessRequest {
        argv: words(attempt)?,
        working_directory: working_directory(&policy.workspace_root),
        ..ProcessRequest::default()
    };
    Ok((policy, request))
}

/// Hosts that may be reached through the filtering proxy.
fn allow_hosts(policy: &mut SandboxProcessRunnerPolicy, rules: &[String]) -> Result<(), Refused> {
    if rules.is_empty() {
        return Ok(());
    }
    let mut all = policy.egress_rules.rules().to_vec();
    for rule in rules {
        all.push(rule.parse().map_err(|e: RuleError| {
            Refused::new("egress_rule_malformed", with_causes(&e), Some("write `example.org`, `*.example.org:443`, …"))
        })?);
    }
    policy.egress_rules = Arc::new(EgressRules::new(all));
    // Preflight compares with the same rules.
    if policy.egress == EgressEnforcementMode::None {
        policy.egress = EgressEnforcementMode::Strict;
    }
    Ok(())
}

fn absolute(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Refused> {
    let absolute = |path: &PathBuf| {
        std::path::absolute(path).map_err(|e| Refused::io(&format!("`{}` cannot be used", path.display()), &e))
    };
    paths.iter().map(absolute).collect()
}

fn words(attempt: &Attempt) -> Result<Vec<String>, Refused> {
    let word = |word: &std::ffi::OsString| {
        word.clone().into_string().map_err(|word| {
            let message = format!("the argument `{}` is not UTF-8", word.to_string_lossy());
            Refused::new("argument_not_utf8", message, Some("rename the file, or pass it on standard input"))
        })
    };
    attempt.argv.iter().map(word).collect()
}

/// This directory when it lies in the workspace, the workspace otherwise.
fn working_directory(workspace: &Path) -> PathBuf {
    let here = std::env::current_dir().and_then(|dir| dir.canonicalize());
    here.ok().filter(|dir| dir.starts_with(workspace)).unwrap_or_else(|| workspace.to_owned())
}

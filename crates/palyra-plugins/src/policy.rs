//! What the operator allows skills at most: `WasmPluginRunnerPolicy`.
//!
//! It is system-wide. A grant is what this policy and a manifest have in common, so nothing that is missing here
//! reaches a guest whatever its manifest asks for. The default allows computing and nothing else.

use crate::capabilities::RequestedCapabilities;
use crate::grant::{Grant, Withheld};
use crate::hosts::HostPattern;
use crate::limits::Limits;
use crate::names::{SecretPattern, WorkspacePath};
use serde::{Deserialize, Serialize};
use std::fmt::Display;

/// System-wide maxima and allow-lists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WasmPluginRunnerPolicy {
    /// Hosts that skills may be granted.
    pub allowed_hosts: Vec<HostPattern>,
    /// Secrets that skills may be granted.
    pub allowed_secrets: Vec<SecretPattern>,
    /// Parts of the workspace that skills may be granted for reading.
    pub allowed_read_roots: Vec<WorkspacePath>,
    /// Parts of the workspace that skills may be granted for writing.
    pub allowed_write_roots: Vec<WorkspacePath>,
    /// The largest private storage of one skill; 0 for none.
    pub max_storage_bytes: u64,
    /// What a skill gets that asks for no limit of its own.
    pub usual_limits: Limits,
    /// What a skill may ask for at most.
    pub max_limits: Limits,
    /// The largest component that is compiled.
    pub max_component_bytes: u64,
    /// The stack of a guest, the same for all.
    pub stack_bytes: u64,
    /// Calls that run at the same time.
    pub max_concurrent_calls: u32,
    /// Calls of one skill that run at the same time.
    pub max_concurrent_calls_per_skill: u32,
    /// Calls that wait.
    pub max_queued_calls: u32,
    /// Calls of one skill that wait.
    pub max_queued_calls_per_skill: u32,
}

impl Default for WasmPluginRunnerPolicy {
    fn default() -> Self {
        Self {
            allowed_hosts: Vec::new(),
            allowed_secrets: Vec::new(),
            allowed_read_roots: Vec::new(),
            allowed_write_roots: Vec::new(),
            max_storage_bytes: 0,
            usual_limits: Limits::default(),
            max_limits: Limits::maxima(),
            max_component_bytes: 64 << 20,
            stack_bytes: 1 << 20,
            max_concurrent_calls: 32,
            max_concurrent_calls_per_skill: 8,
            max_queued_calls: 4096,
            max_queued_calls_per_skill: 1024,
        }
    }
}

/// Why a policy makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{setting}` is {value}; it must be {must}")]
pub struct PolicyError {
    /// The setting.
    pub setting: &'static str,
    /// Its value.
    pub value: u64,
    /// What it must be.
    pub must: &'static str,
}

impl WasmPluginRunnerPolicy {
    /// Looks for numbers that the runtime cannot work with.
    ///
    /// # Errors
    /// Names the first of them.
    pub fn check(&self) -> Result<(), PolicyError> {
        let within = |setting, value: u64, range: std::ops::RangeInclusive<u64>, must| {
            if range.contains(&value) { Ok(()) } else { Err(PolicyError { setting, value, must }) }
        };
        let limits = &self.max_limits;
        within("memory_bytes", limits.memory_bytes, 65_536..=4 << 30, "64 KiB to 4 GiB")?;
        within("tables", limits.tables, 1..=256, "1 to 256")?;
        within("memories", limits.memories, 1..=64, "1 to 64")?;
        within("instances", limits.instances, 1..=256, "1 to 256")?;
        within("table_elements", limits.table_elements, 1..=1_000_000, "1 to 1,000,000")?;
        within("stack_bytes", self.stack_bytes, 64 << 10..=16 << 20, "64 KiB to 16 MiB")?;
        within("max_component_bytes", self.max_component_bytes, 1..=1 << 30, "1 to 1 GiB")?;
        within("max_concurrent_calls", self.max_concurrent_calls.into(), 1..=1024, "1 to 1,024")?;
        within("max_concurrent_calls_per_skill", self.max_concurrent_calls_per_skill.into(), 1..=1024, "1 to 1,024")?;
        within("max_queued_calls", self.max_queued_calls.into(), 1..=1_000_000, "1 to 1,000,000")?;
        within("max_queued_calls_per_skill", self.max_queued_calls_per_skill.into(), 1..=1_000_000, "1 to 1,000,000")
    }

    /// What this policy and a manifest have in common.
    ///
    // INVARIANT (granted_is_asked_and_allowed): nothing is in a grant that the manifest did not ask for or the policy
    // does not allow.
    #[must_use]
    pub fn grant(&self, asked: &RequestedCapabilities) -> Grant {
        let mut withheld = Vec::new();
        let http = common("http", &asked.http_hosts, &self.allowed_hosts, HostPattern::intersect, &mut withheld);
        let secrets = common("secrets", &asked.secrets, &self.allowed_secrets, SecretPattern::intersect, &mut withheld);
        let read = common("read", &asked.read_roots, &self.allowed_read_roots, WorkspacePath::intersect, &mut withheld);
        let write =
            common("write", &asked.write_roots, &self.allowed_write_roots, WorkspacePath::intersect, &mut withheld);
        let storage = asked.storage_bytes.min(self.max_storage_bytes);
        if storage < asked.storage_bytes {
            withheld.push(Withheld::lowered("storage_bytes", asked.storage_bytes, storage));
        }
        let limits = Limits::granted(&asked.limits, &self.usual_limits, &self.max_limits);
        for ((limit, asked), (_, granted)) in asked.limits.rows().into_iter().filter_map(|(limit, asked)| {
            let granted = limits.rows().into_iter().find(|(name, _)| *name == limit.name())?;
            asked.map(|asked| ((limit, asked), granted))
        }) {
            if granted < asked {
                withheld.push(Withheld::lowered(limit.name(), asked, granted));
            }
        }
        Grant::new(http, secrets, (read, write), storage, (limits, withheld))
    }
}

/// Everything that lies in both lists. Where nothing of a request is allowed, or only a part, that is noted.
fn common<T: Ord + Clone + Display>(
    kind: &'static str,
    asked: &[T],
    allowed: &[T],
    intersect: impl Fn(&T, &T) -> Option<T>,
    withheld: &mut Vec<Withheld>,
) -> Vec<T> {
    let mut found = Vec::new();
    for wish in asked {
        let both: Vec<T> = allowed.iter().filter_map(|allowed| intersect(wish, allowed)).collect();
        if !both.contains(wish) {
            withheld.push(Withheld::narrowed(kind, wish, &both));
        }
        found.extend(both);
    }
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::RequestedLimits;

    fn asked() -> RequestedCapabilities {
        RequestedCapabilities {
            http_hosts: vec!["api.example.org".parse().unwrap(), "evil.test".parse().unwrap()],
            secrets: vec!["web/*".parse().unwrap()],
            read_roots: vec![".".parse().unwrap()],
            write_roots: vec!["out".parse().unwrap(), "src".parse().unwrap()],
            storage_bytes: 10_000,
            limits: RequestedLimits { fuel: Some(u64::MAX), memory_bytes: Some(1 << 20), ..RequestedLimits::default() },
        }
    }

    #[test]
    fn nothing_is_granted_by_default_but_computing() {
        let policy = WasmPluginRunnerPolicy::default();
        policy.check().unwrap();
        let grant = policy.grant(&asked());
        assert!(grant.http().is_empty() && grant.secrets().is_empty());
        assert!(grant.read_roots().is_empty() && grant.write_roots().is_empty());
        assert_eq!(grant.storage_bytes(), 0);
        assert_eq!(policy.grant(&RequestedCapabilities::default()).withheld(), []);
    }

    #[test]
    fn granted_is_asked_and_allowed() {
        let policy = WasmPluginRunnerPolicy {
            allowed_hosts: vec!["*.example.org".parse().unwrap(), "other.test".parse().unwrap()],
            allowed_secrets: vec!["web/token".parse().unwrap()],
            allowed_read_roots: vec!["data".parse().unwrap(), "docs".parse().unwrap()],
            allowed_write_roots: vec!["out".parse().unwrap()],
            max_storage_bytes: 1_000,
            ..WasmPluginRunnerPolicy::default()
        };
        let grant = policy.grant(&asked());
        let shown = serde_json::to_value(&grant).unwrap();
        assert_eq!(shown["http"], serde_json::json!(["api.example.org"]));
        assert_eq!(shown["secrets"], serde_json::json!(["web/token"]));
        assert_eq!(shown["read"], serde_json::json!(["data", "docs"]));
        assert_eq!(shown["write"], serde_json::json!(["out"]));
        assert_eq!(shown["storage_bytes"], 1_000);
        assert_eq!(grant.limits().memory_bytes, 1 << 20);
        assert_eq!(grant.limits().fuel, policy.max_limits.fuel);
        let kinds: Vec<_> = grant.withheld().iter().map(Withheld::to_string).collect();
        assert_eq!(
            kinds,
            [
                "http: `evil.test` is not allowed",
                "secrets: of `web/*` only `web/token` is allowed",
                "read: of `.` only `data`, `docs` is allowed",
                "write: `src` is not allowed",
                "storage_bytes: of 10000 only 1000 is allowed",
                "fuel: of 18446744073709551615 only 200000000000 is allowed",
            ]
        );
        let again: Grant = serde_json::from_value(shown).unwrap();
        assert_eq!((again.digest(), &again), (grant.digest(), &grant));
    }

    #[test]
    fn a_policy_that_the_runtime_cannot_hold_is_refused() {
        let policy = WasmPluginRunnerPolicy { max_concurrent_calls: 0, ..WasmPluginRunnerPolicy::default() };
        assert_eq!(policy.check().unwrap_err().setting, "max_concurrent_calls");
        assert!(serde_json::from_str::<WasmPluginRunnerPolicy>(r#"{"allow_everything":true}"#).is_err());
    }
}

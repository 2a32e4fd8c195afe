//! `[wasm_runtime]`: whether skills run, and what they may get at most.

use super::error::ConfigError;
use palyra_engine::{WasmPluginRunnerPolicy, WasmRuntime};
use serde::Deserialize;
use std::time::Duration;

/// The section as it is typed. Lists that are left out allow nothing.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawWasmRuntime {
    enabled: bool,
    allowed_hosts: Vec<String>,
    allowed_secrets: Vec<String>,
    allowed_read_roots: Vec<String>,
    allowed_write_roots: Vec<String>,
    max_storage_bytes: u64,
    max_fuel: Option<u64>,
    max_memory_bytes: Option<u64>,
    max_wall_clock_ms: Option<u64>,
    max_component_bytes: Option<u64>,
    max_concurrent_calls: Option<u32>,
    max_concurrent_calls_per_skill: Option<u32>,
}

impl Default for RawWasmRuntime {
    fn default() -> Self {
        Self {
            enabled: true,
            allowed_hosts: Vec::new(),
            allowed_secrets: Vec::new(),
            allowed_read_roots: Vec::new(),
            allowed_write_roots: Vec::new(),
            max_storage_bytes: 0,
            max_fuel: None,
            max_memory_bytes: None,
            max_wall_clock_ms: None,
            max_component_bytes: None,
            max_concurrent_calls: None,
            max_concurrent_calls_per_skill: None,
        }
    }
}

fn list<T: std::str::FromStr<Err: std::fmt::Display>>(
    key: &'static str,
    raw: &[String],
) -> Result<Vec<T>, ConfigError> {
    raw.iter().map(|text| text.parse().map_err(|error: T::Err| ConfigError::value(key, error.to_string()))).collect()
}

impl RawWasmRuntime {
    /// No call of a skill takes longer than any call may.
    pub(super) fn validate(self, execution_timeout: Duration) -> Result<WasmRuntime, ConfigError> {
        if !self.enabled {
            return Ok(WasmRuntime::Disabled);
        }
        let mut policy = WasmPluginRunnerPolicy {
            allowed_hosts: list("wasm_runtime.allowed_hosts", &self.allowed_hosts)?,
            allowed_secrets: list("wasm_runtime.allowed_secrets", &self.allowed_secrets)?,
            allowed_read_roots: list("wasm_runtime.allowed_read_roots", &self.allowed_read_roots)?,
            allowed_write_roots: list("wasm_runtime.allowed_write_roots", &self.allowed_write_roots)?,
            max_storage_bytes: self.max_storage_bytes,
            ..WasmPluginRunnerPolicy::default()
        };
        let longest = u64::try_from(execution_timeout.as_millis()).unwrap_or(u64::MAX);
        let limits = &mut policy.max_limits;
        limits.fuel = self.max_fuel.unwrap_or(limits.fuel);
        limits.memory_bytes = self.max_memory_bytes.unwrap_or(limits.memory_bytes);
        limits.wall_clock_ms = self.max_wall_clock_ms.unwrap_or(limits.wall_clock_ms).min(longest);
        policy.max_component_bytes = self.max_component_bytes.unwrap_or(policy.max_component_bytes);
        policy.max_concurrent_calls = self.max_concurrent_calls.unwrap_or(policy.max_concurrent_calls);
        policy.max_concurrent_calls_per_skill =
            self.max_concurrent_calls_per_skill.unwrap_or(policy.max_concurrent_calls_per_skill);
        policy.check().map_err(|error| ConfigError::value("wasm_runtime", error.to_string()))?;
        Ok(WasmRuntime::Enabled(Box::new(policy)))
    }
}

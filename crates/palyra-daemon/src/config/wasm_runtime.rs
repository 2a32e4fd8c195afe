//! `[wasm_runtime]`: a section that this version knows and cannot serve.

use super::error::ConfigError;
use palyra_engine::WasmRuntime;
use serde::Deserialize;

/// The section as it is typed.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawWasmRuntime {
    enabled: bool,
}

impl RawWasmRuntime {
    pub(super) fn validate(self) -> Result<WasmRuntime, ConfigError> {
        if self.enabled {
            let message = "this version has no WASM runtime; remove the key or set it to false";
            return Err(ConfigError::value("wasm_runtime.enabled", message));
        }
        Ok(WasmRuntime::Disabled)
    }
}

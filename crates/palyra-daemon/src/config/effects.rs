//! `[effects]`: which paths are guarded, how much a call may change, and how long what it replaced is kept.

use super::checks::{MAX_NUMBER, at_most, positive, time};
use super::error::ConfigError;
use palyra_engine::EffectsConfig;
use palyra_workspace::effects::{GuardRules, Limits, Retention, ViewStore};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The section as it is typed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawEffects {
    store: Option<PathBuf>,
    guarded: Vec<String>,
    max_files: u64,
    max_bytes: u64,
    keep_for_ms: u64,
    keep_bytes: u64,
    approval_timeout_ms: u64,
}

impl Default for RawEffects {
    fn default() -> Self {
        let EffectsConfig { limits, retention, approval_timeout, .. } = EffectsConfig::default();
        let ms = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(MAX_NUMBER);
        Self {
            store: None,
            guarded: Vec::new(),
            max_files: limits.max_files,
            max_bytes: limits.max_bytes,
            keep_for_ms: ms(retention.max_age),
            keep_bytes: retention.max_bytes,
            approval_timeout_ms: ms(approval_timeout),
        }
    }
}

impl RawEffects {
    pub(super) fn validate(self, workspace: &Path, state_dir: &Path) -> Result<EffectsConfig, ConfigError> {
        GuardRules::new(self.guarded.iter().map(String::as_str))
            .map_err(|error| ConfigError::value("effects.guarded", error.to_string()))?;
        for (key, limit) in [("effects.max_files", self.max_files), ("effects.max_bytes", self.max_bytes)] {
            positive(key, limit)?;
            at_most(key, limit, MAX_NUMBER)?;
        }
        let store = match self.store {
            Some(path) if !path.is_absolute() => {
                return Err(ConfigError::value("effects.store", "must be an absolute path"));
            }
            Some(path) if path.starts_with(workspace) || workspace.starts_with(&path) => {
                return Err(ConfigError::value("effects.store", "must lie outside the workspace, and not around it"));
            }
            Some(path) => ViewStore::within(&path, workspace),
            None => ViewStore::place(state_dir, workspace),
        };
        Ok(EffectsConfig {
            store: Some(store),
            guarded: self.guarded,
            limits: Limits { max_files: self.max_files, max_bytes: self.max_bytes },
            retention: Retention {
                max_age: time("effects.keep_for_ms", self.keep_for_ms)?,
                max_bytes: at_most("effects.keep_bytes", self.keep_bytes, MAX_NUMBER)?,
            },
            approval_timeout: time("effects.approval_timeout_ms", self.approval_timeout_ms)?,
        })
    }
}

/// The directory that holds a store, which may hold those of other workspaces too; for one beside its workspace, itself.
pub(crate) fn base_of(store: &Path) -> PathBuf {
    let beside_workspace = store.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".palyra-effects-"));
    match store.parent() {
        Some(base) if !beside_workspace => base.to_owned(),
        _ => store.to_owned(),
    }
}

//! `[skills]`: what installed skills are audited against, and how often.

use super::checks::time;
use super::error::ConfigError;
use palyra_protocol::Custody;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often skills are audited where nobody says.
const INTERVAL_MS: u64 = 6 * 60 * 60 * 1000;
/// How many bytes of records are kept where nobody says.
const RECORD_BYTES: u64 = 256 << 20;

/// The section as it is typed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawSkills {
    audit_policy: Option<PathBuf>,
    advisories: Option<PathBuf>,
    audit_interval_ms: u64,
    keep_record_bytes: u64,
}

impl Default for RawSkills {
    fn default() -> Self {
        Self { audit_policy: None, advisories: None, audit_interval_ms: INTERVAL_MS, keep_record_bytes: RECORD_BYTES }
    }
}

/// How skills are audited.
#[derive(Debug, Clone)]
pub(crate) struct SkillsConfig {
    pub(crate) audit_policy: Option<PathBuf>,
    pub(crate) advisories: Option<PathBuf>,
    pub(crate) audit_interval: Duration,
    pub(crate) keep_record_bytes: u64,
}

impl RawSkills {
    pub(super) fn validate(self, custody: &dyn Custody) -> Result<SkillsConfig, ConfigError> {
        let named = |what: &'static str, path: &Path| {
            custody.vouch(path).map(drop).map_err(|source| ConfigError::InReach { what, source })
        };
        if let Some(path) = &self.audit_policy {
            named("the audit policy", path)?;
        }
        if let Some(path) = &self.advisories {
            named("the advisories", path)?;
        }
        Ok(SkillsConfig {
            audit_policy: self.audit_policy,
            advisories: self.advisories,
            audit_interval: time("skills.audit_interval_ms", self.audit_interval_ms)?,
            keep_record_bytes: self.keep_record_bytes,
        })
    }
}

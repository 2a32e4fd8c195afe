//! The manifest as it is typed: every key known, nothing checked yet.

use palyra_protocol::RiskLevel;
use serde::Deserialize;
use toml::Spanned;

pub(super) type Text = Spanned<String>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawManifest {
    pub(super) format: Spanned<u32>,
    #[serde(default)]
    pub(super) kind: RawKind,
    pub(super) metadata: RawMetadata,
    pub(super) entrypoints: RawEntrypoints,
    #[serde(default)]
    pub(super) capabilities: RawCapabilities,
    pub(super) compat: RawCompat,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RawKind {
    #[default]
    Component,
    Instructions,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawMetadata {
    pub(super) skill_id: Text,
    pub(super) version: Text,
    pub(super) publisher: Text,
    pub(super) name: Text,
    pub(super) description: Option<Text>,
    pub(super) license: Option<Text>,
    pub(super) homepage: Option<Text>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawEntrypoints {
    pub(super) module: Option<Text>,
    #[serde(default)]
    pub(super) tools: Vec<RawTool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTool {
    pub(super) id: Text,
    pub(super) description: Text,
    pub(super) risk: RiskLevel,
    pub(super) module: Option<Text>,
    pub(super) script: Option<Text>,
    #[serde(default)]
    pub(super) interpreter: Vec<Text>,
    pub(super) input_schema: Spanned<toml::Value>,
    pub(super) output_schema: Spanned<toml::Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawCapabilities {
    pub(super) filesystem: RawFilesystem,
    pub(super) http: RawHttp,
    pub(super) secrets: Vec<RawSecret>,
    pub(super) storage: RawStorage,
    pub(super) quotas: RawQuotas,
    pub(super) wildcards: Vec<RawWildcard>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawFilesystem {
    pub(super) read_roots: Vec<Text>,
    pub(super) write_roots: Vec<Text>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawHttp {
    pub(super) egress: Vec<Text>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSecret {
    pub(super) scope: Text,
    pub(super) key: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawStorage {
    pub(super) max_bytes: Option<Spanned<u64>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawQuotas {
    pub(super) fuel_budget: Option<Spanned<u64>>,
    pub(super) max_memory_bytes: Option<Spanned<u64>>,
    pub(super) wall_clock_ms: Option<Spanned<u64>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawWildcard {
    pub(super) capability: Spanned<super::WildcardCapability>,
    pub(super) pattern: Text,
    pub(super) reason: Text,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCompat {
    pub(super) required_protocol_major: Spanned<u32>,
    pub(super) min_palyra_version: Text,
}

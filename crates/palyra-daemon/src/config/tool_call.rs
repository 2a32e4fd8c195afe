//! `[tool_call]`: which tools may be called, by whom, how many at a time and for how long.

use super::checks::{MAX_NUMBER, at_most, time};
use super::error::ConfigError;
use crate::doors::DoorName;
use palyra_engine::routines::ROUTINE_CHANNEL;
use palyra_engine::{CallLimits, OutsidePaths, nearest_tool, tools};
use palyra_policy::Membership;
use palyra_protocol::{ToolName, ToolSource};
use palyra_workspace::SecretRules;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The section as it is typed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawToolCall {
    allowed_tools: Vec<String>,
    allowed_principals: Vec<String>,
    allowed_channels: Vec<String>,
    max_calls_per_run: u64,
    max_calls_under_way: usize,
    max_calls_under_way_per_principal: usize,
    max_questions: usize,
    max_questions_per_principal: usize,
    execution_timeout_ms: u64,
    longest_timeout_ms: u64,
    approval_timeout_ms: u64,
    outside_paths: OutsidePaths,
    secret_files: Vec<String>,
}

/// The section, checked.
#[derive(Debug)]
pub(super) struct ToolCalls {
    pub(super) allowed_tools: BTreeSet<ToolName>,
    pub(super) max_calls_per_run: u64,
    pub(super) limits: CallLimits,
    pub(super) execution_timeout: Duration,
    pub(super) longest_timeout: Duration,
    pub(super) approval_timeout: Duration,
    pub(super) outside_paths: OutsidePaths,
    pub(super) secret_rules: Arc<SecretRules>,
}

impl Default for RawToolCall {
    fn default() -> Self {
        let CallLimits { calls_each, calls, questions_each, questions } = CallLimits::default();
        Self {
            max_calls_under_way: calls,
            max_calls_under_way_per_principal: calls_each,
            max_questions: questions,
            max_questions_per_principal: questions_each,
            allowed_tools: tools::names().map(str::to_owned).collect(),
            allowed_principals: vec!["user:*".to_owned(), "agent:*".to_owned()],
            allowed_channels: channels().map(str::to_owned).collect(),
            max_calls_per_run: 1000,
            execution_timeout_ms: 120_000,
            longest_timeout_ms: 3_600_000,
            approval_timeout_ms: 300_000,
            outside_paths: OutsidePaths::default(),
            secret_files: Vec::new(),
        }
    }
}

/// Every channel that calls come by: the doors, and the daemon's own routines.
fn channels() -> impl Iterator<Item = &'static str> {
    DoorName::ALL.into_iter().map(DoorName::as_str).chain([ROUTINE_CHANNEL])
}

impl RawToolCall {
    /// Who belongs to which group, as far as the configuration says.
    pub(super) fn membership(&self) -> Result<Membership, ConfigError> {
        Membership::from_lists(&self.allowed_principals, &self.allowed_channels, &["user:local".to_owned()])
            .map(|membership| membership.with_known_channels(&channels().collect::<Vec<_>>()))
            .map_err(|e| ConfigError::value("tool_call.allowed_principals", e.to_string()))
    }

    pub(super) fn validate(self) -> Result<ToolCalls, ConfigError> {
        for (key, limit) in [
            ("tool_call.max_calls_under_way", self.max_calls_under_way),
            ("tool_call.max_calls_under_way_per_principal", self.max_calls_under_way_per_principal),
        ] {
            if limit == 0 {
                return Err(ConfigError::value(key, "must be more than 0"));
            }
        }
        let secret_rules = SecretRules::new(self.secret_files.iter().map(String::as_str))
            .map_err(|e| ConfigError::value("tool_call.secret_files", e.to_string()))?;
        Ok(ToolCalls {
            allowed_tools: self.allowed_tools.iter().map(|name| tool(name)).collect::<Result<_, _>>()?,
            max_calls_per_run: at_most("tool_call.max_calls_per_run", self.max_calls_per_run, MAX_NUMBER)?,
            limits: CallLimits {
                calls: self.max_calls_under_way,
                calls_each: self.max_calls_under_way_per_principal,
                questions: self.max_questions,
                questions_each: self.max_questions_per_principal,
            },
            execution_timeout: time("tool_call.execution_timeout_ms", self.execution_timeout_ms)?,
            longest_timeout: time("tool_call.longest_timeout_ms", self.longest_timeout_ms)?,
            approval_timeout: time("tool_call.approval_timeout_ms", self.approval_timeout_ms)?,
            outside_paths: self.outside_paths,
            secret_rules: Arc::new(secret_rules),
        })
    }
}

/// A tool that there is, or one that a skill may bring later.
fn tool(name: &str) -> Result<ToolName, ConfigError> {
    const KEY: &str = "tool_call.allowed_tools";
    let parsed = name.parse::<ToolName>().map_err(|e| ConfigError::value(KEY, e.to_string()))?;
    let of_skill = matches!(ToolSource::of(&parsed), Some(ToolSource::Skill(_)));
    if of_skill || tools::names().any(|known| known == name) {
        return Ok(parsed);
    }
    let hint = match nearest_tool(name, tools::names()) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => format!(
            "the built-in tools are {}; the tool `x` of the skill `acme.y` is `skill.acme.y.x`",
            tools::names().map(|known| format!("`{known}`")).collect::<Vec<_>>().join(", ")
        ),
    };
    Err(ConfigError::value(KEY, format!("there is no tool `{name}`; {hint}")))
}

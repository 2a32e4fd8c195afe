//! Which models there are, and which agents use them: checked once, by the daemon that reads it.

use crate::providers::Dialect;
use palyra_protocol::{RunBudget, SecretRef, ToolName};
use std::collections::BTreeMap;
use std::time::Duration;

/// Where a model's provider is.
#[derive(Debug, Clone)]
pub struct ProviderConfig {
    /// How it speaks.
    pub dialect: Dialect,
    /// Its base, such as `https://api.example.com/v1`.
    pub base_url: String,
    /// Its key, in the vault.
    pub key: Option<SecretRef>,
    /// Its models, by its own names.
    pub models: Vec<String>,
    /// The time for one whole answer.
    pub timeout: Duration,
}

/// An agent: a model with instructions, tools and a budget.
#[derive(Debug, Clone)]
pub struct AgentConfig {
    /// The model: an alias, or `provider/model`.
    pub model: String,
    /// Its instructions.
    pub system: String,
    /// The tools it is offered; nothing where it is offered all that it may see.
    pub tools: Option<Vec<ToolName>>,
    /// How far a run of it may go.
    pub budget: RunBudget,
}

/// Everything about models.
#[derive(Debug, Clone, Default)]
pub struct ModelsConfig {
    /// The model that is meant where none is named.
    pub default: Option<String>,
    /// The providers, by name.
    pub providers: BTreeMap<String, ProviderConfig>,
    /// Names for models, each with those that are tried one after the other.
    pub aliases: BTreeMap<String, Vec<String>>,
    /// The agents, by name.
    pub agents: BTreeMap<String, AgentConfig>,
}

/// What a run may use where nothing else is said.
pub const DEFAULT_BUDGET: RunBudget = RunBudget { calls: 200, model_calls: 100, tokens: 2_000_000, seconds: 3600 };

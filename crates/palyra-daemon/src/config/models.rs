//! `[models]`: the providers of models, names for their models, and the agents that use them.

use super::checks::at_most;
use super::error::ConfigError;
use palyra_agent::config::DEFAULT_BUDGET;
use palyra_agent::{AgentConfig, Dialect, ModelsConfig, ProviderConfig};
use palyra_protocol::{Principal, PrincipalKind, RunBudget, SecretRef, ToolName};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// The longest that one answer may take.
const MAX_TIMEOUT_MS: u64 = 3_600_000;

/// The section as it is typed.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawModels {
    default: Option<String>,
    providers: BTreeMap<String, RawProvider>,
    aliases: BTreeMap<String, Vec<String>>,
    agents: BTreeMap<String, RawAgent>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawProvider {
    dialect: Dialect,
    base_url: String,
    key: Option<SecretRef>,
    models: Vec<String>,
    #[serde(default = "usual_timeout")]
    timeout_ms: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAgent {
    model: String,
    #[serde(default)]
    system: String,
    tools: Option<Vec<ToolName>>,
    #[serde(default = "usual_calls")]
    max_calls: u64,
    #[serde(default = "usual_model_calls")]
    max_model_calls: u64,
    #[serde(default = "usual_tokens")]
    max_tokens: u64,
    #[serde(default = "usual_seconds")]
    max_seconds: u64,
}

fn usual_timeout() -> u64 {
    600_000
}

fn usual_calls() -> u64 {
    DEFAULT_BUDGET.calls
}

fn usual_model_calls() -> u64 {
    DEFAULT_BUDGET.model_calls
}

fn usual_tokens() -> u64 {
    DEFAULT_BUDGET.tokens
}

fn usual_seconds() -> u64 {
    DEFAULT_BUDGET.seconds
}

impl RawModels {
    /// The section, checked: every name leads to a model.
    pub(super) fn validate(self) -> Result<ModelsConfig, ConfigError> {
        let mut providers = BTreeMap::new();
        for (name, raw) in self.providers {
            providers.insert(name.clone(), provider(&name, raw)?);
        }
        let config = ModelsConfig { default: self.default, providers, aliases: self.aliases, agents: BTreeMap::new() };
        for (alias, targets) in &config.aliases {
            named("models.aliases", alias)?;
            if targets.is_empty() {
                return Err(ConfigError::value("models.aliases", format!("`{alias}` names no model")));
            }
            targets.iter().try_for_each(|target| is_model(&config, "models.aliases", target))?;
        }
        if let Some(default) = &config.default {
            leads_to_a_model(&config, "models.default", default)?;
        }
        let mut agents = BTreeMap::new();
        for (name, raw) in self.agents {
            leads_to_a_model(&config, "models.agents", &raw.model)?;
            agents.insert(name.clone(), agent(&name, raw)?);
        }
        Ok(ModelsConfig { agents, ..config })
    }
}

fn provider(name: &str, raw: RawProvider) -> Result<ProviderConfig, ConfigError> {
    named("models.providers", name)?;
    if name == "palyra" || name == "replay" {
        let message = format!("`{name}` is a name of Palyra's own; give the provider another");
        return Err(ConfigError::value("models.providers", message));
    }
    if !raw.base_url.starts_with("https://") && !raw.base_url.starts_with("http://") {
        let message = format!("`{}` is no address; write `https://HOST/v1`", raw.base_url);
        return Err(ConfigError::value("models.providers.base_url", message));
    }
    if raw.models.is_empty() || raw.models.iter().any(|model| model.is_empty() || model.len() > 128) {
        let message = format!("say which models `{name}` has: `models = [\"NAME\"]`");
        return Err(ConfigError::value("models.providers.models", message));
    }
    at_most("models.providers.timeout_ms", raw.timeout_ms, MAX_TIMEOUT_MS)?;
    Ok(ProviderConfig {
        dialect: raw.dialect,
        base_url: raw.base_url,
        key: raw.key,
        models: raw.models,
        timeout: Duration::from_millis(raw.timeout_ms),
    })
}

fn agent(name: &str, raw: RawAgent) -> Result<AgentConfig, ConfigError> {
    if let Err(error) = Principal::new(PrincipalKind::Agent, name) {
        return Err(ConfigError::value("models.agents", format!("`{name}` can be no agent's name: {error}")));
    }
    let budget = RunBudget {
        calls: raw.max_calls,
        model_calls: raw.max_model_calls,
        tokens: raw.max_tokens,
        seconds: raw.max_seconds,
    };
    for (key, number) in [
        ("models.agents.max_calls", budget.calls),
        ("models.agents.max_model_calls", budget.model_calls),
        ("models.agents.max_tokens", budget.tokens),
        ("models.agents.max_seconds", budget.seconds),
    ] {
        at_most(key, number, super::checks::MAX_NUMBER)?;
    }
    Ok(AgentConfig { model: raw.model, system: raw.system, tools: raw.tools, budget })
}

/// A name that can stand in a model's id.
fn named(key: &'static str, name: &str) -> Result<(), ConfigError> {
    let fits =
        !name.is_empty() && name.len() <= 64 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    if fits {
        return Ok(());
    }
    Err(ConfigError::value(key, format!("`{name}` must have 1 to 64 letters, digits, `.`, `_` or `-`")))
}

fn leads_to_a_model(config: &ModelsConfig, key: &'static str, name: &str) -> Result<(), ConfigError> {
    if config.aliases.contains_key(name) { Ok(()) } else { is_model(config, key, name) }
}

fn is_model(config: &ModelsConfig, key: &'static str, name: &str) -> Result<(), ConfigError> {
    let known = name.split_once('/').is_some_and(|(provider, model)| {
        config.providers.get(provider).is_some_and(|provider| provider.models.iter().any(|known| known == model))
    });
    if known {
        return Ok(());
    }
    let all = config.providers.iter().flat_map(|(name, p)| p.models.iter().map(move |model| format!("{name}/{model}")));
    let all = all.collect::<Vec<_>>().join(", ");
    Err(ConfigError::value(key, format!("there is no model `{name}`; there are: {all}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Result<ModelsConfig, String> {
        let raw: RawModels = toml::from_str(text).map_err(|e| e.message().to_owned())?;
        raw.validate().map_err(|e| e.to_string())
    }

    const PROVIDER: &str = "[providers.p]\ndialect = \"chat_completions\"\nbase_url = \"https://api.example/v1\"\n\
                            models = [\"m\"]\nkey = \"vault://global/p\"\n";

    #[test]
    fn names_lead_to_models() {
        let text =
            format!("default = \"main\"\n{PROVIDER}[aliases]\nmain = [\"p/m\"]\n[agents.coder]\nmodel = \"main\"\n");
        let config = checked(&text).unwrap();
        assert_eq!(config.agents["coder"].budget, DEFAULT_BUDGET);
        assert_eq!(config.providers["p"].timeout, Duration::from_secs(600));
    }

    #[test]
    fn what_leads_nowhere_is_refused() {
        for (text, said) in [
            ("default = \"p/m\"".to_owned(), "there is no model `p/m`"),
            (format!("{PROVIDER}[aliases]\nmain = [\"p/x\"]"), "there are: p/m"),
            (format!("{PROVIDER}[aliases]\nmain = []"), "names no model"),
            (format!("{PROVIDER}[aliases]\n\"a/b\" = [\"p/m\"]"), "letters, digits"),
            (format!("{PROVIDER}[agents.\"a b\"]\nmodel = \"p/m\""), "no agent's name"),
            (PROVIDER.replace("https://", "ftp://"), "no address"),
            (PROVIDER.replace("vault://global/p", "sk-123"), "vault://"),
            (PROVIDER.replace("providers.p]", "providers.palyra]"), "Palyra's own"),
        ] {
            let refused = checked(&text).unwrap_err();
            assert!(refused.contains(said), "{text}: {refused}");
        }
    }
}

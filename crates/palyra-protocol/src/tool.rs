//! A tool, defined once.
//!
//! Policy context, validation, listings, help and the schemas that doors publish all come from a [`ToolDefinition`];
//! there is no second place that says what a tool takes or may do.

use crate::capability::{RiskLevel, ToolCapability};
use crate::facets::Facets;
use crate::id::excerpt;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A tool's canonical name: lower-case words joined by dots, `palyra.fs.read`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct ToolName(Arc<str>);

/// A text that is no tool name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not a tool name; names are lower-case words joined by dots, like `palyra.fs.read`")]
pub struct ToolNameError {
    given: String,
}

impl ToolName {
    /// The longest name.
    pub const MAX: usize = 128;

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ToolName {
    type Err = ToolNameError;
    fn from_str(text: &str) -> Result<Self, ToolNameError> {
        let word = |w: &str| {
            w.bytes().next().is_some_and(|b| b.is_ascii_lowercase())
                && w.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        };
        if text.len() <= Self::MAX && text.split('.').all(word) {
            Ok(Self(text.into()))
        } else {
            Err(ToolNameError { given: excerpt(text) })
        }
    }
}

impl TryFrom<String> for ToolName {
    type Error = ToolNameError;
    fn try_from(text: String) -> Result<Self, ToolNameError> {
        text.parse()
    }
}

impl Serialize for ToolName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which runtime carries a tool out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecutorKind {
    /// Code of the daemon itself, confined to the workspace.
    Builtin,
    /// A native process in Tier B or Tier C.
    Process,
    /// The agent's own client, outside of Palyra.
    Client,
    /// A component of a skill in Tier A.
    Wasm,
}

impl ExecutorKind {
    /// The name in listings and attestations.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Builtin => "builtin",
            Self::Process => "process",
            Self::Client => "client",
            Self::Wasm => "wasm",
        }
    }
}

/// Where a tool comes from. Every source has names of its own, so that none can take another's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ToolSource {
    /// Palyra itself: `palyra.fs.read`.
    Builtin,
    /// The skill with this id: the tool `forecast` of the skill `acme.weather` is `skill.acme.weather.forecast`.
    Skill(Arc<str>),
}

impl ToolSource {
    /// The first word of every built-in tool's name.
    const BUILTIN: &str = "palyra";
    /// The first word of the name of every skill's tool.
    const SKILL: &str = "skill";

    /// The source that a skill is.
    ///
    /// # Errors
    /// The id is not the publisher's name and at least one more word, joined by dots.
    pub fn skill(id: &str) -> Result<Self, ToolNameError> {
        // The longest tool name has room for its first word, for a tool of one letter, and two dots.
        let most = ToolName::MAX - Self::SKILL.len() - 3;
        if id.contains('.') && id.len() <= most && id.parse::<ToolName>().is_ok() {
            Ok(Self::Skill(id.into()))
        } else {
            Err(ToolNameError { given: excerpt(id) })
        }
    }

    /// The source whose tool has this name; nothing if no source has such names.
    #[must_use]
    pub fn of(name: &ToolName) -> Option<Self> {
        let (first, rest) = name.as_str().split_once('.')?;
        match first {
            Self::BUILTIN => Some(Self::Builtin),
            Self::SKILL => rest.rsplit_once('.').and_then(|(id, _tool)| Self::skill(id).ok()),
            _ => None,
        }
    }

    /// Whether a tool of this source may have this name.
    #[must_use]
    pub fn owns(&self, name: &ToolName) -> bool {
        Self::of(name).as_ref() == Some(self)
    }
}

impl fmt::Display for ToolSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Builtin => f.write_str("Palyra itself"),
            Self::Skill(id) => write!(f, "the skill `{id}`"),
        }
    }
}

/// Everything there is to know about a tool before it is called.
#[derive(Debug, Clone, Serialize)]
pub struct ToolDefinition {
    /// The canonical name.
    pub name: ToolName,
    /// One line for listings.
    pub summary: String,
    /// What it does, for people and for models.
    pub description: String,
    /// JSON Schema of the input.
    pub input_schema: Value,
    /// JSON Schema of the output.
    pub output_schema: Value,
    /// What it can do to the world.
    pub capabilities: BTreeSet<ToolCapability>,
    /// How bad a wrong call can be.
    pub risk: RiskLevel,
    /// What carries it out.
    pub executor: ExecutorKind,
    /// An input that works, shown in help and tried by a test.
    pub example: Value,
}

impl ToolDefinition {
    /// The part of the definition that decisions depend on.
    #[must_use]
    pub fn metadata(&self) -> ToolMetadata {
        ToolMetadata { capabilities: self.capabilities.clone(), risk: self.risk }
    }
}

/// What the policy engine is told about a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolMetadata {
    /// What it can do to the world.
    pub capabilities: BTreeSet<ToolCapability>,
    /// How bad a wrong call can be.
    pub risk: RiskLevel,
}

impl ToolMetadata {
    /// What one call can do: a process that may reach other hosts is a call with the network.
    #[must_use]
    pub fn capabilities_of(&self, facets: &Facets) -> Vec<ToolCapability> {
        let mut all = self.capabilities.clone();
        if facets.process_reaches_hosts() {
            all.insert(ToolCapability::Network);
        }
        all.into_iter().collect()
    }

    /// Whether any capability makes the tool sensitive.
    #[must_use]
    pub fn is_sensitive(&self) -> bool {
        self.capabilities.iter().any(|c| c.is_sensitive())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dotted_words() {
        assert!("palyra.fs.apply_patch".parse::<ToolName>().is_ok());
        for bad in ["", ".", "a.", ".a", "A", "a b", "a..b", "1a", "a/b", "é", &"a".repeat(129)] {
            assert!(bad.parse::<ToolName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn every_name_has_at_most_one_source() {
        let of = |name: &str| ToolSource::of(&name.parse().unwrap());
        let weather = ToolSource::skill("acme.weather").unwrap();
        assert_eq!(of("palyra.fs.read"), Some(ToolSource::Builtin));
        assert_eq!(of("skill.acme.weather.forecast"), Some(weather.clone()));
        assert_eq!(of("skill.acme.weather.daily.forecast"), Some(ToolSource::skill("acme.weather.daily").unwrap()));
        for nobody in ["palyra", "skill", "skill.acme", "skill.acme.weather", "acme.deploy", "mcp.x.y.z"] {
            assert_eq!(of(nobody), None, "{nobody}");
        }
        assert!(weather.owns(&"skill.acme.weather.forecast".parse().unwrap()));
        assert!(!weather.owns(&"skill.acme.weather.daily.forecast".parse().unwrap()));
        assert!(!weather.owns(&"palyra.fs.read".parse().unwrap()));
        for bad in ["", "acme", "acme.", "Acme.x", "acme.x-y", "acme/../x", &format!("a.{}", "b".repeat(120))] {
            assert!(ToolSource::skill(bad).is_err(), "{bad}");
        }
        let longest = ToolSource::skill(&format!("a.{}", "b".repeat(118))).unwrap();
        assert!(longest.owns(&format!("skill.a.{}.t", "b".repeat(118)).parse().unwrap()));
    }
}

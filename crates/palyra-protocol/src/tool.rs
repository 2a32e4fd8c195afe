//! A tool, defined once.
//!
//! Policy context, validation, listings, help and the schemas that doors publish all come from a [`ToolDefinition`];
//! there is no second place that says what a tool takes or may do.

use crate::capability::{RiskLevel, ToolCapability};
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
}

impl ExecutorKind {
    /// The name in listings and attestations.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Builtin => "builtin",
            Self::Process => "process",
        }
    }
}

/// How one part of a tool's input becomes a facet. The text is a JSON pointer into the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FacetRule {
    /// A list of words to execute; also yields the executable.
    Argv(&'static str),
    /// The directory to run in; the workspace's root when absent.
    WorkingDirectory(&'static str),
    /// An object of environment variables.
    Environment(&'static str),
    /// A text for standard input; none when empty.
    StandardInput(&'static str),
    /// A path that is read; the workspace's root when absent.
    PathRead(&'static str),
    /// A path that is read with everything below it; the workspace's root when absent.
    TreeRead(&'static str),
    /// A directory that is listed, and how many levels deep: more than one, and it is read with what is below it.
    Listed {
        /// The directory; the workspace's root when absent.
        path: &'static str,
        /// The levels; one when absent.
        depth: &'static str,
    },
    /// A path that is written.
    PathWritten(&'static str),
    /// A unified diff; every file it names is written.
    PatchTargets(&'static str),
    /// A list of hosts that the caller says it will need. Hosts that its arguments name are added to it.
    RequestedHosts(&'static str),
    /// A URL; its host and port are contacted.
    Url(&'static str),
    /// An HTTP method; GET when absent.
    Method(&'static str),
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
    /// How its input maps to what policies can speak about.
    pub facets: Vec<FacetRule>,
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
}

//! Decisions: what policy said about a call, in the form the journal keeps and callers see.

use crate::digest::Digest;
use crate::id::DecisionId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The three answers. There is no fourth: what is neither allowed now nor with a human's approval is denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionKind {
    /// Allowed as things stand.
    Allow,
    /// Allowed only with a human's approval.
    NeedsApproval,
    /// Not allowed, whatever a human says.
    Deny,
}

impl DecisionKind {
    /// The name in listings and on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::NeedsApproval => "needs_approval",
            Self::Deny => "deny",
        }
    }
}

/// What policy decided about one call, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolDecision {
    /// The decision's id.
    pub decision_id: DecisionId,
    /// The answer.
    pub decision: DecisionKind,
    /// The policy set that gave it.
    pub policy_hash: Digest,
    /// The rules that decided, by id.
    pub rules: Vec<String>,
    /// One sentence for people.
    pub summary: String,
    /// The whole explanation: rules, facts, what would change the answer.
    pub explanation: Value,
}

//! Decisions: what policy said about a call, in the form the journal keeps and callers see.

use crate::call::Denial;
use crate::capability::{RiskLevel, ToolCapability};
use crate::digest::Digest;
use crate::id::DecisionId;
use crate::memory::MemoryTrust;
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
    /// The digest of the call that it is about; none in journals that earlier versions wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_digest: Option<Digest>,
    /// The rules that decided, by id.
    pub rules: Vec<String>,
    /// One sentence for people.
    pub summary: String,
    /// How many different people have to approve, where people are asked.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub people: u32,
    /// Whether people have to approve this very call: a rule counts them, so no grant covers it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fresh: bool,
    /// What the question was made of besides the call itself, so that it can be asked again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<DecisionBasis>,
    /// What a caller who was denied can act on. Told with the call's end, not kept here.
    #[serde(skip)]
    pub denial: Option<Box<Denial>>,
    /// The whole explanation: rules, facts, what would change the answer.
    pub explanation: Value,
}

/// What a decision was made from besides the call itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionBasis {
    /// Whether the operator's list of allowed tools had the tool.
    pub allowlisted: bool,
    /// What the tool could do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<ToolCapability>,
    /// How bad a wrong call could be.
    pub risk: RiskLevel,
    /// The lowest trust of what the session had recalled from memory by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recalled_trust: Option<MemoryTrust>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands fields over by reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

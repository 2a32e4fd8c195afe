//! What sets two sets apart: rules added, removed and changed, and whether anybody belongs to something else.

use crate::engine::PolicyEngine;
use crate::rule::{Effect, Rule};
use palyra_protocol::Digest;
use serde::{Deserialize, Serialize};

/// The difference between two sets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyDiff {
    /// The set that is compared.
    pub from: Digest,
    /// The set it is compared with.
    pub to: Digest,
    /// Rules that only the second has.
    pub added: Vec<RuleText>,
    /// Rules that only the first has.
    pub removed: Vec<RuleText>,
    /// Rules that say something else.
    pub changed: Vec<ChangedRule>,
    /// Whether groups, roles or lists of members differ.
    pub members_changed: bool,
}

/// A rule as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleText {
    /// Its stable name.
    pub id: String,
    /// What it does when it applies.
    pub effect: Effect,
    /// Why it exists.
    pub reason: String,
    /// What whoever is stopped by it can do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// Where it is written.
    pub source: String,
    /// Its text.
    pub text: String,
}

/// A rule that says something else than before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedRule {
    /// Before.
    pub from: RuleText,
    /// After.
    pub to: RuleText,
}

impl From<&Rule> for RuleText {
    fn from(rule: &Rule) -> Self {
        Self {
            id: rule.id().to_owned(),
            effect: rule.effect(),
            reason: rule.reason().to_owned(),
            remedy: rule.remedy().map(str::to_owned),
            source: format!("{}:{}", rule.position().source, rule.position().line),
            text: rule.text().to_owned(),
        }
    }
}

impl PolicyDiff {
    /// Compares two sets.
    #[must_use]
    pub fn between(from: &PolicyEngine, to: &PolicyEngine) -> Self {
        let missing = |in_: &PolicyEngine, of: &PolicyEngine| -> Vec<RuleText> {
            of.rules().filter(|rule| in_.rule(rule.id()).is_none()).map(RuleText::from).collect()
        };
        let changed = from.rules().filter_map(|before| {
            let after = to.rule(before.id()).filter(|after| after.text() != before.text())?;
            Some(ChangedRule { from: before.into(), to: after.into() })
        });
        Self {
            from: from.policy_hash(),
            to: to.policy_hash(),
            added: missing(from, to),
            removed: missing(to, from),
            changed: changed.collect(),
            members_changed: from.membership() != to.membership(),
        }
    }

    /// Whether both sets decide alike, because they are the same.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.from == self.to
    }
}

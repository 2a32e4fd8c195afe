//! Cases: what a set of rules is expected to answer, as data beside the rules.
//!
//! A case file says who belongs to what, and then for each case the question, the expected answer (`allow`, `ask` or
//! `deny`) and the rules that must have decided. Tests run them; so can whoever is about to change a rule.

use crate::engine::{PolicyEngine, Verdict};
use crate::membership::{Membership, MembershipError};
use crate::request::{PolicyRequest, PolicyRequestContext};
use crate::{PolicyAction, PolicyResource};
use palyra_protocol::Principal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// A file of cases.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseFile {
    #[serde(default)]
    membership: RawMembership,
    /// The cases, in order.
    #[serde(default, rename = "case")]
    pub cases: Vec<Case>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMembership {
    #[serde(default)]
    tool_callers: Vec<String>,
    #[serde(default)]
    tool_channels: Vec<String>,
    #[serde(default)]
    owners: Vec<String>,
    /// Further groups of principals.
    #[serde(default)]
    groups: BTreeMap<String, Vec<String>>,
}

/// The three answers to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expectation {
    /// It may run.
    Allow,
    /// A person must be asked.
    Ask,
    /// It may not run.
    Deny,
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        })
    }
}

impl From<&Verdict> for Expectation {
    fn from(verdict: &Verdict) -> Self {
        match verdict {
            Verdict::Allow(_) => Self::Allow,
            Verdict::NeedsApproval { .. } => Self::Ask,
            Verdict::Deny(_) => Self::Deny,
        }
    }
}

/// One question and its answer.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// What it shows.
    pub name: String,
    /// In whose name.
    pub principal: Principal,
    /// The verb.
    pub action: PolicyAction,
    /// The object.
    pub resource: PolicyResource,
    /// The circumstances.
    pub context: PolicyRequestContext,
    /// The answer.
    pub expect: Expectation,
    /// The rules that must have decided: how things stand, or for a denial what stands in the way even of an approval.
    /// None means the default denial.
    pub rules: Vec<String>,
}

/// Why a case file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// It is not what a case file looks like.
    #[error("the cases cannot be read")]
    Syntax(#[from] toml::de::Error),
    /// Its membership is refused.
    #[error("the cases' membership is refused")]
    Membership(#[from] MembershipError),
}

/// A case that came out otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CaseFailure {
    /// The case.
    pub name: String,
    /// What was expected.
    pub expected: Expectation,
    /// By which rules.
    pub expected_rules: Vec<String>,
    /// What came.
    pub got: Expectation,
    /// By which rules.
    pub got_rules: Vec<String>,
    /// Why.
    pub explanation: String,
}

impl fmt::Display for CaseFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: expected {} by {:?}, got {} by {:?}\n{}",
            self.name, self.expected, self.expected_rules, self.got, self.got_rules, self.explanation
        )
    }
}

impl CaseFile {
    /// Reads a file of cases.
    ///
    /// # Errors
    /// It is not TOML, or has unknown keys or values.
    pub fn parse(text: &str) -> Result<Self, CaseError> {
        Ok(toml::from_str(text)?)
    }

    /// Who belongs to what in these cases.
    ///
    /// # Errors
    /// A pattern is malformed.
    pub fn membership(&self) -> Result<Membership, CaseError> {
        let raw = &self.membership;
        let mut membership = Membership::from_lists(&raw.tool_callers, &raw.tool_channels, &raw.owners)?;
        for (group, patterns) in &raw.groups {
            membership = membership.with_principals(group, patterns)?;
        }
        Ok(membership)
    }

    /// Runs every case against an engine that was loaded with this file's membership.
    #[must_use]
    pub fn run(&self, engine: &PolicyEngine) -> Vec<CaseFailure> {
        self.cases.iter().filter_map(|case| case.run(engine)).collect()
    }
}

impl Case {
    /// The question.
    #[must_use]
    pub fn request(&self) -> PolicyRequest {
        PolicyRequest { principal: self.principal.clone(), action: self.action, resource: self.resource.clone() }
    }

    fn run(&self, engine: &PolicyEngine) -> Option<CaseFailure> {
        let verdict = engine.decide(&self.request(), &self.context);
        let (got, got_rules) = (Expectation::from(&verdict), verdict.explanation().rule_ids());
        let mut expected_rules = self.rules.clone();
        expected_rules.sort();
        let differs = got != self.expect || got_rules != expected_rules;
        differs.then(|| CaseFailure {
            name: self.name.clone(),
            expected: self.expect,
            expected_rules,
            got,
            got_rules,
            explanation: verdict.explanation().to_string(),
        })
    }
}

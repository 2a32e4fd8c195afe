//! Cases: what a set of rules is expected to answer, as data beside the rules.
//!
//! A case file says who belongs to what, and then for each case the question, the expected answer (`allow`, `ask` or
//! `deny`) and the rules that must have decided. Tests run them; so can whoever is about to change a rule.

use crate::engine::PolicyEngine;
use crate::membership::{Lists, Membership, MembershipError};
use crate::request::{PolicyRequest, PolicyRequestContext};
use crate::verdict::Verdict;
use crate::{PolicyAction, PolicyResource};
use palyra_protocol::Principal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use toml::Spanned;

/// A file of cases.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseFile {
    membership: Option<Lists>,
    /// The cases, in order.
    #[serde(default, rename = "case")]
    pub cases: Vec<Case>,
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
            Verdict::Allow(_) | Verdict::Waived { .. } => Self::Allow,
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
    pub name: Spanned<String>,
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
    /// An empty list means the default denial; without a list, any rules may have decided.
    #[serde(default)]
    pub rules: Option<Vec<String>>,
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
    /// Where its name stands in the file.
    #[serde(skip)]
    pub offset: usize,
    /// What was expected.
    pub expected: Expectation,
    /// By which rules.
    pub expected_rules: Option<Vec<String>>,
    /// What came.
    pub got: Expectation,
    /// By which rules.
    pub got_rules: Vec<String>,
    /// Why.
    pub explanation: String,
}

impl fmt::Display for CaseFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = |rules: &[String]| match rules {
            [] => "no rule".to_owned(),
            rules => rules.join(", "),
        };
        write!(f, "`{}` expects {}", self.name, self.expected)?;
        if let Some(rules) = &self.expected_rules {
            write!(f, " by {}", by(rules))?;
        }
        write!(f, ", but the answer is {} by {}: {}", self.got, by(&self.got_rules), self.explanation)
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

    /// Who belongs to what in these cases: what the file says, else as given.
    ///
    /// # Errors
    /// A pattern is malformed.
    pub fn membership(&self, base: &Membership) -> Result<Option<Membership>, CaseError> {
        Ok(self.membership.as_ref().map(|lists| base.overridden(lists)).transpose()?)
    }

    /// Runs every case against an engine that was loaded with this file's membership.
    #[must_use]
    pub fn run(&self, engine: &PolicyEngine) -> CaseResults {
        let mut results = CaseResults { run: self.cases.len(), ..CaseResults::default() };
        for case in &self.cases {
            let (failure, rules) = case.run(engine);
            results.deciding.extend(rules);
            results.failures.extend(failure);
        }
        results
    }
}

/// What running cases came to.
#[derive(Debug, Default)]
pub struct CaseResults {
    /// How many ran.
    pub run: usize,
    /// Those that came out otherwise.
    pub failures: Vec<CaseFailure>,
    /// Every rule that decided one of them.
    pub deciding: BTreeSet<String>,
}

impl Case {
    /// The question.
    #[must_use]
    pub fn request(&self) -> PolicyRequest {
        PolicyRequest { principal: self.principal.clone(), action: self.action, resource: self.resource.clone() }
    }

    fn run(&self, engine: &PolicyEngine) -> (Option<CaseFailure>, Vec<String>) {
        let verdict = engine.decide(&self.request(), &self.context);
        let (got, got_rules) = (Expectation::from(&verdict), verdict.rule_ids());
        let mut expected_rules = self.rules.clone();
        if let Some(rules) = &mut expected_rules {
            rules.sort();
        }
        let differs = got != self.expect || expected_rules.as_ref().is_some_and(|rules| *rules != got_rules);
        let failure = differs.then(|| CaseFailure {
            name: self.name.get_ref().clone(),
            offset: self.name.span().start,
            expected: self.expect,
            expected_rules,
            got,
            got_rules: got_rules.clone(),
            // Whoever tries rules wrote them, and is told what fails.
            explanation: [vec![verdict.summary()], verdict.explanation().errors().to_vec()].concat().join(" "),
        });
        (failure, got_rules)
    }
}

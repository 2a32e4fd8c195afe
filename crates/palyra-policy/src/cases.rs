//! Cases: what a set of rules is expected to answer, as data beside the rules.
//!
//! A case file says who belongs to what, and then for each case the question, the expected answer (`allow`, `ask` or
//! `deny`) and the rules that must have decided. Tests run them; so can an operator who is about to change a rule.
//!
//! A question about a call is best a call: tool and input, from which the facts are made as the daemon makes them.
//! Facts that are written down by hand can be facts that no call has.

use crate::engine::PolicyEngine;
use crate::membership::{Lists, Membership, MembershipError};
use crate::request::{PolicyRequest, PolicyRequestContext};
use crate::toolbox::{RehearsedCall, Toolbox};
use crate::verdict::Verdict;
use crate::{PolicyAction, PolicyResource};
use palyra_protocol::{ChannelId, ContainmentTier, Facets, NetworkReach, Principal, WorkspaceUse};
use serde::{Deserialize, Serialize};
use serde_json::Value;
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
#[serde(try_from = "WrittenCase")]
pub struct Case {
    /// What it shows.
    pub name: Spanned<String>,
    /// In whose name.
    pub principal: Principal,
    /// The answer.
    pub expect: Expectation,
    /// The rules that must have decided: how things stand, or for a denial what stands in the way even of an approval.
    /// An empty list means the default denial; without a list, any rules may have decided.
    pub rules: Option<Vec<String>>,
    question: Question,
}

/// What a case asks.
#[derive(Debug, Clone)]
enum Question {
    /// About circumstances that are written out.
    Written { action: PolicyAction, resource: PolicyResource, context: Box<PolicyRequestContext> },
    /// About a call.
    Called { action: PolicyAction, call: Box<CaseCall> },
}

/// A case as it stands in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenCase {
    name: Spanned<String>,
    principal: Principal,
    action: Option<PolicyAction>,
    resource: Option<PolicyResource>,
    context: Option<PolicyRequestContext>,
    call: Option<CaseCall>,
    expect: Expectation,
    #[serde(default)]
    rules: Option<Vec<String>>,
}

/// A call as a case writes it down.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseCall {
    /// The tool.
    tool: String,
    /// Its input.
    #[serde(default = "no_input")]
    input: Value,
    /// Whose call it is, where the case is about somebody who approves it.
    principal: Option<Principal>,
    /// Who made the proposal, when that is somebody else.
    proposed_by: Option<Principal>,
    #[serde(default = "command_line")]
    channel: ChannelId,
    /// The workspace, for rules that name one.
    workspace: Option<String>,
    /// How many people have approved it.
    #[serde(default)]
    approvals: u32,
    /// Whether a grant covers it.
    #[serde(default)]
    granted: bool,
    /// What would hold its process, where the case is about a configuration that holds it less well.
    #[serde(default)]
    held: Option<Held>,
}

/// Facts about a process that a weaker configuration than the usual one would make.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Held {
    tier: Option<ContainmentTier>,
    network: Option<NetworkReach>,
    workspace: Option<WorkspaceUse>,
    other_roots: Option<bool>,
    secrets: Option<bool>,
}

impl Held {
    fn change(&self, facets: &mut Facets) -> Result<(), String> {
        let held = facets.containment.as_mut().ok_or("`held` is about a process, and this call runs none")?;
        held.tier = self.tier.unwrap_or(held.tier);
        held.network = self.network.unwrap_or(held.network);
        held.workspace = self.workspace.unwrap_or(held.workspace);
        held.reversible = held.workspace == WorkspaceUse::View;
        held.other_roots = self.other_roots.unwrap_or(held.other_roots);
        held.secrets = self.secrets.unwrap_or(held.secrets);
        Ok(())
    }
}

fn no_input() -> Value {
    Value::Object(serde_json::Map::new())
}

fn command_line() -> ChannelId {
    ChannelId::command_line()
}

impl TryFrom<WrittenCase> for Case {
    type Error = &'static str;

    fn try_from(written: WrittenCase) -> Result<Self, &'static str> {
        let WrittenCase { name, principal, action, resource, context, call, expect, rules } = written;
        let question = match (call, context, action, resource) {
            (None, Some(context), Some(action), Some(resource)) => {
                Question::Written { action, resource, context: Box::new(context) }
            }
            (None, ..) => return Err("a case is a `call`, or has `action`, `resource` and `context`"),
            (Some(_), Some(_), ..) => {
                return Err("a case that is a call has no `context`: its facts are the call's own");
            }
            (Some(call), None, action, None) => match action.unwrap_or(PolicyAction::ToolExecute) {
                PolicyAction::ToolExecute if call.principal.is_some() => {
                    return Err("whose call it is says the case's `principal`");
                }
                action @ (PolicyAction::ToolExecute | PolicyAction::ApprovalDecide) => {
                    Question::Called { action, call: Box::new(call) }
                }
                _ => return Err("a call is executed (`tool.execute`) or decided about (`approval.decide`)"),
            },
            (Some(_), None, _, Some(_)) => {
                return Err("a case that is a call has no `resource`: the call names its tool");
            }
        };
        Ok(Self { name, principal, expect, rules, question })
    }
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

    /// Runs every case against an engine that was loaded with this file's membership. Calls are resolved with the
    /// tools.
    #[must_use]
    pub fn run(&self, engine: &PolicyEngine, tools: Option<&dyn Toolbox>) -> CaseResults {
        let mut results = CaseResults { run: self.cases.len(), ..CaseResults::default() };
        for case in &self.cases {
            match case.asked(tools) {
                Ok((request, context)) => {
                    let (failure, rules) = case.run(engine, &request, &context);
                    results.deciding.extend(rules);
                    results.failures.extend(failure);
                }
                Err(message) => {
                    results.refused.push(RefusedCase {
                        offset: case.name.span().start,
                        name: case.name.get_ref().clone(),
                        message,
                    });
                }
            }
        }
        results
    }
}

/// A case that asks nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedCase {
    /// Where its name stands in the file.
    pub offset: usize,
    /// The case.
    pub name: String,
    /// Why.
    pub message: String,
}

/// What running cases came to.
#[derive(Debug, Default)]
pub struct CaseResults {
    /// How many ran.
    pub run: usize,
    /// Those that came out otherwise.
    pub failures: Vec<CaseFailure>,
    /// Those whose call is none.
    pub refused: Vec<RefusedCase>,
    /// Every rule that decided one of them.
    pub deciding: BTreeSet<String>,
}

impl Case {
    /// The question, with its circumstances.
    ///
    /// # Errors
    /// The case is a call, and it cannot be made.
    pub fn asked(&self, tools: Option<&dyn Toolbox>) -> Result<(PolicyRequest, PolicyRequestContext), String> {
        let principal = self.principal.clone();
        match &self.question {
            Question::Written { action, resource, context } => {
                let request = PolicyRequest { principal, action: *action, resource: resource.clone() };
                Ok((request, (**context).clone()))
            }
            Question::Called { action, call } => call.asked(principal, *action, tools),
        }
    }

    fn run(
        &self,
        engine: &PolicyEngine,
        request: &PolicyRequest,
        context: &PolicyRequestContext,
    ) -> (Option<CaseFailure>, Vec<String>) {
        let verdict = match &self.question {
            Question::Called { call, .. } if call.granted => engine.decide_with_grant(request, context),
            Question::Called { .. } | Question::Written { .. } => engine.decide(request, context),
        };
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

impl CaseCall {
    fn asked(
        &self,
        principal: Principal,
        action: PolicyAction,
        tools: Option<&dyn Toolbox>,
    ) -> Result<(PolicyRequest, PolicyRequestContext), String> {
        let tools = tools.ok_or("there are no tools here that a call could be tried with")?;
        let RehearsedCall { tool, metadata, mut facets } = tools.rehearse(&self.tool, &self.input)?;
        if let Some(held) = &self.held {
            held.change(&mut facets)?;
        }
        let decides = action == PolicyAction::ApprovalDecide;
        let proposed_by = self.proposed_by.as_ref().or(self.principal.as_ref()).unwrap_or(&principal);
        let context = PolicyRequestContext {
            proposed_by: Some(proposed_by.clone()),
            owned_by: self.principal.clone().filter(|_| decides),
            workspace: self.workspace.clone(),
            tool: Some(tool.clone()),
            is_sensitive_action: metadata.is_sensitive() && !decides,
            is_allowlisted_tool: !decides,
            allow_sensitive_tools: !decides && self.approvals > 0,
            approval_count: self.approvals,
            ..PolicyRequestContext::for_tool(self.channel.clone(), &metadata, facets)
        };
        let resource = if decides { PolicyResource::Approval("case".to_owned()) } else { PolicyResource::Tool(tool) };
        Ok((PolicyRequest { principal, action, resource }, context))
    }
}

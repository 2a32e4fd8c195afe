//! Explanations: which rules decided, which facts they looked at, what would change the answer.
//!
//! An explanation keeps what it was made from and works the rest out when it is asked: most are never read.
//! [`ExplanationRecord`] is the finished form that the journal keeps and callers see; its shape is stable.

use crate::attribute::Attributes;
use crate::change::{self, Change, Needs};
use crate::condition::{Relation, Who};
use crate::engine::{Inner, PolicyDecision};
use crate::hint::printable;
use crate::request::PolicyRequest;
use crate::resource::PolicyResource;
use crate::rule::{Effect, Rule, within};
use crate::scene::Scene;
use cedar_policy::{Authorizer, Decision, EvalResult, PolicySet, Request};
use palyra_protocol::{PolicyAction, Principal};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// What a decision was made from.
#[derive(Clone)]
pub(crate) struct Grounds {
    pub(crate) inner: Arc<Inner>,
    pub(crate) scene: Arc<Scene>,
    pub(crate) request: Request,
}

impl Grounds {
    pub(crate) fn rules_for_action(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.inner.stage.rules_for(self.scene.key.action)
    }

    /// Whether the permits alone would allow it: then only forbids, or errors, stand in the way.
    pub(crate) fn is_permitted(&self) -> bool {
        let scene = &self.scene;
        let fitting = self
            .rules_for_action()
            .filter(|rule| rule.effect() == Effect::Permit)
            .filter(|rule| rule.scope_fits(&scene.principal, &scene.resource, &scene.entities));
        let Ok(permits) = PolicySet::from_policies(fitting.map(|rule| rule.policy.clone())) else { return false };
        Authorizer::new().is_authorized(&self.request, &permits, &scene.entities).decision() == Decision::Allow
    }

    pub(crate) fn holds(&self, relation: &Relation) -> bool {
        let uid = match relation.who {
            Who::Principal => &self.scene.principal,
            Who::Resource => &self.scene.resource,
            Who::Channel => &self.scene.channel,
        };
        within(uid, &relation.ancestor, &self.scene.entities)
    }
}

/// Why a decision is what it is.
#[derive(Clone)]
pub struct PolicyExplanation {
    decision: PolicyDecision,
    rules: Vec<Arc<Rule>>,
    errors: Vec<String>,
    question: Question,
}

#[derive(Clone)]
enum Question {
    Asked(Box<Grounds>),
    /// It never got as far as Cedar.
    Failed(Box<PolicyRequest>),
}

/// Something that a deciding rule looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// What, as Cedar: `context.risk`, `principal in Group::"tool_callers"`.
    pub name: String,
    /// Its value, made printable and short.
    pub value: String,
}

/// How much an [`ExplanationRecord`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Rules by id and reason: what the journal keeps. The policy hash says which text was meant.
    Brief,
    /// The text of the deciding rules as well.
    WithRuleText,
}

/// A rule that decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleRecord {
    /// Its stable name.
    pub id: String,
    /// What it did.
    pub effect: Effect,
    /// Why it exists.
    pub reason: String,
    /// Where it was written: `default.cedar:12`.
    pub source: String,
    /// Its text, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// A finished explanation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplanationRecord {
    /// The answer.
    pub decision: PolicyDecision,
    /// One sentence for people.
    pub summary: String,
    /// The rules that decided, by id; none when nothing applied.
    pub rules: Vec<RuleRecord>,
    /// What those rules, or those that could have permitted, looked at.
    pub facts: Vec<Fact>,
    /// What could not be evaluated. Anything here is a denial.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    /// What would have to change: every forbid lifted, one permit met. Empty when allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub what_would_change: Vec<Change>,
}

impl PolicyExplanation {
    pub(crate) fn new(decision: PolicyDecision, rules: Vec<Arc<Rule>>, errors: Vec<String>, grounds: Grounds) -> Self {
        Self { decision, rules, errors, question: Question::Asked(Box::new(grounds)) }
    }

    pub(crate) fn failed(request: &PolicyRequest, error: String) -> Self {
        Self {
            decision: PolicyDecision::DenyByDefault,
            rules: Vec::new(),
            errors: vec![error],
            question: Question::Failed(Box::new(request.clone())),
        }
    }

    /// Who wanted to do what on what.
    pub(crate) fn question_parts(&self) -> (&Principal, PolicyAction, &PolicyResource) {
        match &self.question {
            Question::Asked(grounds) => {
                let key = &grounds.scene.key;
                (&key.principal, key.action, &key.resource)
            }
            Question::Failed(request) => (&request.principal, request.action, &request.resource),
        }
    }

    /// The answer it explains.
    #[must_use]
    pub fn decision(&self) -> PolicyDecision {
        self.decision
    }

    /// The rules that decided: the permits of an allowance, the forbids of a denial. A denial without any is the
    /// default.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().map(AsRef::as_ref)
    }

    /// The ids of the rules that decided.
    #[must_use]
    pub fn rule_ids(&self) -> Vec<String> {
        self.rules.iter().map(|rule| rule.id().to_owned()).collect()
    }

    /// What could not be evaluated. Anything here is a denial.
    #[must_use]
    pub fn errors(&self) -> &[String] {
        &self.errors
    }

    /// What would have to change for the answer to be yes; empty when it is.
    #[must_use]
    pub fn what_would_change(&self) -> Vec<Change> {
        match &self.question {
            Question::Asked(grounds) if self.decision == PolicyDecision::DenyByDefault => {
                change::what_would_change(grounds, &self.rules)
            }
            Question::Asked(_) | Question::Failed(_) => Vec::new(),
        }
    }

    /// Whether other arguments of the same call could have made another answer of this denial: every rule that forbids
    /// it looks at the arguments, and it is permitted, or a rule could permit it that looks at them.
    #[must_use]
    pub fn hinges_on_arguments(&self) -> bool {
        let Question::Asked(grounds) = &self.question else { return false };
        if self.decision == PolicyDecision::Allow || !self.errors.is_empty() {
            return false;
        }
        let looks = |rule: &Rule| rule.attributes.intersection(Attributes::ARGUMENTS) != Attributes::NONE;
        let scene = &grounds.scene;
        let mut fitting = grounds
            .rules_for_action()
            .filter(|rule| rule.scope_fits(&scene.principal, &scene.resource, &scene.entities));
        let mut permittable = || fitting.any(|rule| rule.effect() == Effect::Permit && looks(rule));
        self.rules().all(looks) && (!self.rules.is_empty() && grounds.is_permitted() || permittable())
    }

    /// What the deciding rules looked at; if none decided, what the rules that could have permitted looked at.
    #[must_use]
    pub fn facts(&self) -> Vec<Fact> {
        self.facts_given(&self.what_would_change())
    }

    fn facts_given(&self, changes: &[Change]) -> Vec<Fact> {
        let grounds = match &self.question {
            Question::Asked(grounds) => grounds,
            Question::Failed(request) => return asked(&request.principal, request.action.as_str(), &request.resource),
        };
        let key = &grounds.scene.key;
        let mut facts = asked(&key.principal, key.action.as_str(), &key.resource);
        if self.rules.is_empty() {
            let near = grounds.rules_for_action().filter(|rule| changes.iter().any(|change| change.rule == rule.id()));
            looked_at(near.map(AsRef::as_ref), grounds, &mut facts);
        } else {
            looked_at(self.rules(), grounds, &mut facts);
        }
        facts
    }

    /// One sentence for people.
    #[must_use]
    pub fn summary(&self) -> String {
        match (&self.question, self.errors.first()) {
            (_, None) => {}
            // A rule failed, and the error speaks of it; those who may see explanations find that in `errors`.
            (Question::Asked(_), Some(_)) => return "Denied because policy could not be evaluated.".to_owned(),
            // The call itself cannot be put as a question: its caller can do something about that.
            (_, Some(error)) => return format!("Denied because policy could not be evaluated: {error}"),
        }
        let reasons: Vec<_> = self.rules.iter().map(|rule| format!("{} ({})", rule.reason(), rule.id())).collect();
        match (self.decision, reasons.is_empty()) {
            (PolicyDecision::DenyByDefault, true) => self.default_denial(),
            (PolicyDecision::Allow | PolicyDecision::DenyByDefault, _) => reasons.join(" "),
        }
    }

    fn default_denial(&self) -> String {
        let Question::Asked(grounds) = &self.question else { return "No rule permits this.".to_owned() };
        if grounds.rules_for_action().any(|rule| rule.effect() == Effect::Permit) {
            return "No rule permits this.".to_owned();
        }
        format!("No rule permits `{}` to anybody.", grounds.scene.key.action)
    }

    /// The finished form.
    #[must_use]
    pub fn record(&self, detail: Detail) -> ExplanationRecord {
        let changes = self.what_would_change();
        ExplanationRecord {
            decision: self.decision,
            summary: self.summary(),
            rules: self.rules.iter().map(|rule| RuleRecord::new(rule, detail)).collect(),
            facts: self.facts_given(&changes),
            errors: self.errors.clone(),
            what_would_change: changes,
        }
    }
}

impl RuleRecord {
    fn new(rule: &Rule, detail: Detail) -> Self {
        Self {
            id: rule.id().to_owned(),
            effect: rule.effect(),
            reason: rule.reason().to_owned(),
            source: format!("{}:{}", rule.position().source, rule.position().line),
            text: (detail == Detail::WithRuleText).then(|| rule.text().to_owned()),
        }
    }
}

fn fact(name: impl Into<String>, value: impl Into<String>) -> Fact {
    Fact { name: name.into(), value: value.into() }
}

fn asked(principal: impl fmt::Display, action: &str, resource: impl fmt::Display) -> Vec<Fact> {
    vec![
        fact("principal", principal.to_string()),
        fact("action", action),
        fact("resource", printable(&resource.to_string())),
    ]
}

fn looked_at<'r>(rules: impl Iterator<Item = &'r Rule>, grounds: &Grounds, facts: &mut Vec<Fact>) {
    let mut attributes = Attributes::NONE;
    for rule in rules {
        attributes = attributes.union(rule.attributes);
        for (text, relation) in &rule.relations {
            if !facts.iter().any(|known| known.name == *text) {
                facts.push(fact(text.as_str(), grounds.holds(relation).to_string()));
            }
        }
    }
    let context = grounds.request.context();
    for attribute in attributes.iter() {
        let value = context.and_then(|context| context.get(attribute.as_str()));
        facts.push(fact(format!("context.{}", attribute.as_str()), value.map_or_else(|| "absent".to_owned(), shown)));
    }
}

/// A value for people: quoted where it is text, short where it is long.
fn shown(value: EvalResult) -> String {
    const MOST_ELEMENTS: usize = 16;
    match value {
        EvalResult::Bool(value) => value.to_string(),
        EvalResult::Long(value) => value.to_string(),
        EvalResult::String(text) => format!("\"{}\"", printable(&text)),
        EvalResult::EntityUid(uid) => format!("{}::\"{}\"", uid.type_name(), printable(uid.id().unescaped())),
        EvalResult::Set(set) => {
            let mut items: Vec<_> = set.iter().take(MOST_ELEMENTS).cloned().map(shown).collect();
            if set.len() > MOST_ELEMENTS {
                items.push(format!("… {} more", set.len() - MOST_ELEMENTS));
            }
            format!("[{}]", items.join(", "))
        }
        EvalResult::Record(record) => {
            let fields: Vec<_> =
                record.iter().map(|(name, value)| format!("{name}: {}", shown(value.clone()))).collect();
            format!("{{{}}}", fields.join(", "))
        }
        other => printable(&other.to_string()),
    }
}

impl Serialize for PolicyExplanation {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.record(Detail::WithRuleText).serialize(serializer)
    }
}

impl fmt::Debug for PolicyExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyExplanation")
            .field("decision", &self.decision)
            .field("rules", &self.rule_ids())
            .field("errors", &self.errors)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Grounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grounds").field("request", &self.request).finish_non_exhaustive()
    }
}

/// Short sentences: the reason, and what would have to change.
impl fmt::Display for PolicyExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary())?;
        for change in self.what_would_change() {
            let verb = match change.effect {
                Effect::Permit => "would permit it if",
                Effect::Forbid => "would not forbid it if",
            };
            let joint = match change.needs {
                Needs::All => " and ",
                Needs::Any => " or ",
            };
            let conditions: Vec<_> = change
                .conditions
                .iter()
                .map(|state| {
                    let not = if state.must_be { "" } else { "not " };
                    let hint = state.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
                    format!("{not}`{}`{hint}", state.condition)
                })
                .collect();
            write!(f, "\n`{}` {verb} {}.", change.rule, conditions.join(joint))?;
        }
        Ok(())
    }
}

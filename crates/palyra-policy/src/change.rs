//! What would change the answer: computed only after a denial, and only when a caller asks.
//!
//! A denied request becomes allowed when every forbid that applied is lifted and at least one permit applies. So there
//! is one [`Change`] for each forbid that decided, and one for each permit that could have applied (unless one already
//! does), with exactly those conditions that stood in the way.

use crate::condition::Condition;
use crate::explain::Grounds;
use crate::hint;
use crate::rule::{Effect, Rule, Scope};
use cedar_policy::EntityUid;
use palyra_protocol::MissingCode;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The most permits that a denial lists. With thousands of rules the nearest ones are the helpful ones.
const MOST_PERMITS: usize = 5;

/// The most permits whose conditions are looked at to find those.
const MOST_CANDIDATES: usize = 64;

/// One rule, and what would have to be different for it not to stand in the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The rule's id.
    pub rule: String,
    /// A forbid has to be lifted; of the permits, one has to apply.
    pub effect: Effect,
    /// How many of the conditions have to change.
    pub needs: Needs,
    /// The conditions that stood in the way.
    pub conditions: Vec<ConditionState>,
    /// What the rule's author advises.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// How many conditions have to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Needs {
    /// Every one.
    All,
    /// One is enough.
    Any,
}

/// One condition that stood in the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConditionState {
    /// The condition, as Cedar.
    pub condition: String,
    /// What it would have to be; it is the opposite now.
    pub must_be: bool,
    /// What sort of thing is missing.
    pub code: MissingCode,
    /// What to do about it, where that can be said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Everything that would have to change, forbids first.
pub(crate) fn what_would_change(grounds: &Grounds, deciding: &[Arc<Rule>]) -> Vec<Change> {
    let forbids = deciding.iter().filter(|rule| rule.effect() == Effect::Forbid);
    let mut changes: Vec<_> = forbids.map(|rule| lift(rule, grounds)).collect();
    if !grounds.is_permitted() {
        changes.extend(nearest_permits(grounds));
    }
    changes
}

/// How a forbid that applied would not: one of its exceptions holds or, if it has none, one of its conditions does not.
fn lift(rule: &Rule, grounds: &Grounds) -> Change {
    let key = &grounds.scene.key;
    let conditions = if rule.unless.is_empty() {
        let fail =
            |part: &Condition| state(&part.text, false, MissingCode::ForbiddenByRule, hint::to_fail(&part.subject));
        rule.when.iter().map(fail).collect()
    } else {
        let hold =
            |part: &Condition| state(&part.text, true, hint::code(&part.subject), hint::to_hold(&part.subject, key));
        rule.unless.iter().map(hold).collect()
    };
    change(rule, Needs::Any, conditions)
}

/// The permits that could apply, those that lack least first.
fn nearest_permits(grounds: &Grounds) -> Vec<Change> {
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for rule in grounds.rules_for_action().filter(|rule| rule.effect() == Effect::Permit) {
        let gaps = scope_gaps(rule, grounds);
        let reachable = gaps.iter().all(|gap| gap.hint.is_some());
        if reachable { &mut near } else { &mut far }.push((gaps, rule));
    }
    // A rule about somebody or something else helps nobody, unless there is nothing better to say.
    let mut candidates = if near.is_empty() { far } else { near };
    candidates.sort_by_key(|(gaps, _)| gaps.len());
    candidates.truncate(MOST_CANDIDATES);
    let mut changes: Vec<_> = candidates
        .into_iter()
        .map(|(mut conditions, rule)| {
            conditions.extend(unmet(rule, grounds));
            change(rule, Needs::All, conditions)
        })
        .collect();
    changes.sort_by(|a, b| a.conditions.len().cmp(&b.conditions.len()).then_with(|| a.rule.cmp(&b.rule)));
    changes.truncate(MOST_PERMITS);
    changes
}

/// The parts of a permit's head that do not fit.
fn scope_gaps(rule: &Rule, grounds: &Grounds) -> Vec<ConditionState> {
    let scene = &grounds.scene;
    let mut gaps = Vec::new();
    for (name, scope, uid) in
        [("principal", &rule.principal, &scene.principal), ("resource", &rule.resource, &scene.resource)]
    {
        if !scope.fits(uid, &scene.entities) {
            gaps.extend(gap(name, scope, uid, rule, grounds));
        }
    }
    gaps
}

fn gap(name: &str, scope: &Scope, uid: &EntityUid, rule: &Rule, grounds: &Grounds) -> Vec<ConditionState> {
    let of_head = if name == "principal" { MissingCode::CallerNotAuthorised } else { MissingCode::OtherCondition };
    let of_type = |type_name: &cedar_policy::EntityTypeName| {
        let wrong = uid.type_name() != type_name;
        let people_only = name == "principal" && type_name.basename() == "User";
        let code = if people_only { MissingCode::PeopleOnly } else { of_head };
        wrong.then(|| state(&format!("{name} is {type_name}"), true, code, None))
    };
    let below = |ancestor: &EntityUid| {
        let relation = rule.relations.iter().find(|(_, r)| r.ancestor == *ancestor && !grounds.holds(r));
        relation.map(|(text, relation)| {
            let subject = crate::condition::Subject::Member(relation.clone());
            state(text, true, hint::code(&subject), hint::to_hold(&subject, &grounds.scene.key))
        })
    };
    match scope {
        Scope::Any => Vec::new(),
        Scope::Eq(only) => vec![state(&format!("{name} == {only}"), true, of_head, None)],
        Scope::Is(type_name) => of_type(type_name).into_iter().collect(),
        Scope::In(ancestor) => below(ancestor).into_iter().collect(),
        Scope::IsIn(type_name, ancestor) => of_type(type_name).into_iter().chain(below(ancestor)).collect(),
    }
}

/// The conditions of a permit that are not as they would have to be. One that cannot be evaluated is not met.
fn unmet(rule: &Rule, grounds: &Grounds) -> Vec<ConditionState> {
    let (request, entities, key) = (&grounds.request, &grounds.scene.entities, &grounds.scene.key);
    let missing = rule
        .when
        .iter()
        .filter(|part| !part.holds(request, entities).unwrap_or(false))
        .map(|part| state(&part.text, true, hint::code(&part.subject), hint::to_hold(&part.subject, key)));
    let present = rule
        .unless
        .iter()
        .filter(|part| part.holds(request, entities).unwrap_or(true))
        .map(|part| state(&part.text, false, MissingCode::OtherCondition, hint::to_fail(&part.subject)));
    missing.chain(present).collect()
}

fn state(condition: &str, must_be: bool, code: MissingCode, hint: Option<String>) -> ConditionState {
    ConditionState { condition: condition.to_owned(), must_be, code, hint }
}

fn change(rule: &Rule, needs: Needs, conditions: Vec<ConditionState>) -> Change {
    Change {
        rule: rule.id().to_owned(),
        effect: rule.effect(),
        needs,
        conditions,
        remedy: rule.remedy().map(str::to_owned),
    }
}

//! A rule: one Cedar policy with a name, a reason, and the place it was written.

use crate::attribute::{Attribute, Attributes};
use crate::condition::{Condition, Relation, Subject, Who, attributes_of};
use crate::source::Position;
use cedar_policy::pst::{BinaryOp, Clause};
use cedar_policy::{
    ActionConstraint, Effect as CedarEffect, Entities, EntityTypeName, EntityUid, Policy, PrincipalConstraint,
    ResourceConstraint,
};
use palyra_protocol::PolicyAction;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a rule does when it applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// It allows, unless another forbids.
    Permit,
    /// It denies, whatever another permits.
    Forbid,
}

impl From<CedarEffect> for Effect {
    fn from(effect: CedarEffect) -> Self {
        match effect {
            CedarEffect::Permit => Self::Permit,
            CedarEffect::Forbid => Self::Forbid,
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Permit => "permit",
            Self::Forbid => "forbid",
        })
    }
}

/// What people need to know of a rule besides Cedar's own form of it.
#[derive(Debug, Clone)]
pub(crate) struct Labels {
    pub(crate) id: String,
    pub(crate) reason: String,
    pub(crate) remedy: Option<String>,
    pub(crate) position: Position,
    pub(crate) text: String,
}

/// One rule of the running set.
#[derive(Debug)]
pub struct Rule {
    labels: Labels,
    effect: Effect,
    pub(crate) policy: Policy,
    pub(crate) principal: Scope,
    pub(crate) resource: Scope,
    action: ActionConstraint,
    /// The parts of its `when`, all of which must hold.
    pub(crate) when: Vec<Condition>,
    /// The parts of its `unless`, none of which may hold.
    pub(crate) unless: Vec<Condition>,
    /// The context attributes it looks at.
    pub(crate) attributes: Attributes,
    /// The hierarchies it looks at, each with its text.
    pub(crate) relations: Vec<(String, Relation)>,
}

impl Rule {
    /// Takes a validated policy apart.
    pub(crate) fn new(policy: Policy, labels: Labels) -> Result<Self, String> {
        let tree = policy.to_pst().map_err(|e| e.to_string())?;
        let (mut when, mut unless, mut exprs) = (Vec::new(), Vec::new(), Vec::new());
        for clause in tree.body().clauses() {
            match clause {
                Clause::When(expr) => {
                    when.extend(Condition::split(expr, BinaryOp::And));
                    exprs.push(expr);
                }
                Clause::Unless(expr) => {
                    unless.extend(Condition::split(expr, BinaryOp::Or));
                    exprs.push(expr);
                }
            }
        }
        let (principal, resource) =
            (Scope::from(policy.principal_constraint()), Scope::from(policy.resource_constraint()));
        let mut relations = Vec::new();
        let scoped = [(Who::Principal, &principal), (Who::Resource, &resource)]
            .into_iter()
            .filter_map(|(who, scope)| Some(Relation { who, ancestor: scope.ancestor()?.clone() }));
        for relation in scoped.chain(exprs.iter().flat_map(|expr| Relation::mentioned(expr))) {
            if !relations.iter().any(|(_, known)| *known == relation) {
                relations.push((relation.text(), relation));
            }
        }
        Ok(Self {
            effect: policy.effect().into(),
            attributes: attributes_of(exprs.into_iter()),
            action: policy.action_constraint(),
            labels,
            policy,
            principal,
            resource,
            when,
            unless,
            relations,
        })
    }

    /// The stable name.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.labels.id
    }

    /// What it does when it applies.
    #[must_use]
    pub fn effect(&self) -> Effect {
        self.effect
    }

    /// Why it exists: a sentence for people.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.labels.reason
    }

    /// What whoever is stopped by it can do.
    #[must_use]
    pub fn remedy(&self) -> Option<&str> {
        self.labels.remedy.as_deref()
    }

    /// Where it was written.
    #[must_use]
    pub fn position(&self) -> &Position {
        &self.labels.position
    }

    /// Its text, as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.labels.text
    }

    /// Whether it can say anything about an action. The schema has no groups of actions, which a test makes sure of.
    pub(crate) fn speaks_of(&self, action: PolicyAction, uid: &EntityUid) -> bool {
        debug_assert_eq!(uid.id().unescaped(), action.as_str());
        match &self.action {
            ActionConstraint::Any => true,
            ActionConstraint::Eq(one) => one == uid,
            ActionConstraint::In(any) => any.contains(uid),
        }
    }

    /// Whether it asks for a person, and leaves it to others whether a rule may stand in for them.
    pub(crate) fn asks_but_can_be_waived(&self) -> bool {
        let speaks = |action: PolicyAction| match &self.action {
            ActionConstraint::Any => true,
            ActionConstraint::Eq(one) => one.id().unescaped() == action.as_str(),
            ActionConstraint::In(any) => any.iter().any(|uid| uid.id().unescaped() == action.as_str()),
        };
        let asks = |part: &Condition| part.subject == Subject::Attribute(Attribute::AllowSensitiveTools);
        self.effect == Effect::Forbid
            && speaks(PolicyAction::ToolExecute)
            && !speaks(PolicyAction::ApprovalWaive)
            && self.unless.iter().any(asks)
    }

    /// Whether its scope fits a principal and a resource.
    pub(crate) fn scope_fits(&self, principal: &EntityUid, resource: &EntityUid, entities: &Entities) -> bool {
        self.principal.fits(principal, entities) && self.resource.fits(resource, entities)
    }
}

/// What a rule's head demands of its principal or resource.
#[derive(Debug)]
pub(crate) enum Scope {
    Any,
    Eq(EntityUid),
    In(EntityUid),
    Is(EntityTypeName),
    IsIn(EntityTypeName, EntityUid),
}

impl Scope {
    pub(crate) fn fits(&self, uid: &EntityUid, entities: &Entities) -> bool {
        match self {
            Self::Any => true,
            Self::Eq(only) => uid == only,
            Self::In(ancestor) => within(uid, ancestor, entities),
            Self::Is(type_name) => uid.type_name() == type_name,
            Self::IsIn(type_name, ancestor) => uid.type_name() == type_name && within(uid, ancestor, entities),
        }
    }

    pub(crate) fn ancestor(&self) -> Option<&EntityUid> {
        match self {
            Self::In(ancestor) | Self::IsIn(_, ancestor) => Some(ancestor),
            Self::Any | Self::Eq(_) | Self::Is(_) => None,
        }
    }
}

/// Cedar's `in`: the same, or somewhere below.
pub(crate) fn within(uid: &EntityUid, ancestor: &EntityUid, entities: &Entities) -> bool {
    uid == ancestor || entities.is_ancestor_of(ancestor, uid)
}

impl From<PrincipalConstraint> for Scope {
    fn from(constraint: PrincipalConstraint) -> Self {
        match constraint {
            PrincipalConstraint::Any => Self::Any,
            PrincipalConstraint::Eq(uid) => Self::Eq(uid),
            PrincipalConstraint::In(uid) => Self::In(uid),
            PrincipalConstraint::Is(type_name) => Self::Is(type_name),
            PrincipalConstraint::IsIn(type_name, uid) => Self::IsIn(type_name, uid),
        }
    }
}

impl From<ResourceConstraint> for Scope {
    fn from(constraint: ResourceConstraint) -> Self {
        match constraint {
            ResourceConstraint::Any => Self::Any,
            ResourceConstraint::Eq(uid) => Self::Eq(uid),
            ResourceConstraint::In(uid) => Self::In(uid),
            ResourceConstraint::Is(type_name) => Self::Is(type_name),
            ResourceConstraint::IsIn(type_name, uid) => Self::IsIn(type_name, uid),
        }
    }
}

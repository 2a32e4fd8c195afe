//! Conditions: the smallest parts of a rule that can be met or not on their own.
//!
//! A rule applies when its scope fits, every part of its `when` holds and no part of its `unless` does. Whoever is
//! denied wants to know which part was missing, so rules are taken apart when they are loaded: `when { a && b }` into
//! `a` and `b`, `unless { a || b }` likewise. The parts are evaluated only for explanations; decisions are always
//! Cedar's own.

use crate::attribute::{Attribute, Attributes};
use cedar_policy::pst::{BinaryOp, EntityUID as PstUid, Expr, Literal, Var};
use cedar_policy::{Entities, EntityId, EntityUid, EvalResult, Expression, Request, eval_expression};
use std::sync::{Arc, OnceLock};

/// A part of a rule, as text that can be shown and evaluated.
#[derive(Debug)]
pub(crate) struct Condition {
    pub(crate) text: String,
    pub(crate) subject: Subject,
    /// Parsed when it is first needed, which for most rules is never.
    expression: OnceLock<Result<Expression, String>>,
}

/// What a condition is about, where that is simple enough to say what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Subject {
    /// `context.x`
    Attribute(Attribute),
    /// `x in Group::"y"`
    Member(Relation),
    /// `principal is T`
    PrincipalType(String),
    /// Anything else.
    Other,
}

/// Somebody's place in a hierarchy: `principal in Role::"owner"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Relation {
    pub(crate) who: Who,
    pub(crate) ancestor: EntityUid,
}

/// The left side of a relation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    Principal,
    Resource,
    Channel,
}

impl Condition {
    pub(crate) fn new(expr: &Expr) -> Self {
        Self { text: expr.to_string(), subject: Subject::of(expr), expression: OnceLock::new() }
    }

    /// The parts that an operator joins: conjuncts or disjuncts, from left to right.
    pub(crate) fn split(expr: &Arc<Expr>, joint: BinaryOp) -> Vec<Self> {
        let (mut parts, mut rest) = (Vec::new(), vec![expr]);
        while let Some(expr) = rest.pop() {
            match &**expr {
                Expr::BinaryOp { op, left, right } if *op == joint => rest.extend([right, left]),
                part => parts.push(Self::new(part)),
            }
        }
        parts
    }

    /// Whether it holds for a request.
    pub(crate) fn holds(&self, request: &Request, entities: &Entities) -> Result<bool, String> {
        let expression = self.expression.get_or_init(|| self.text.parse::<Expression>().map_err(|e| e.to_string()));
        let expression = expression.as_ref().map_err(Clone::clone)?;
        match eval_expression(request, entities, expression) {
            Ok(EvalResult::Bool(holds)) => Ok(holds),
            Ok(_) => Err("not a truth value".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Subject {
    fn of(expr: &Expr) -> Self {
        match expr {
            Expr::GetAttr { expr, attr } if matches!(**expr, Expr::Var(Var::Context)) => {
                Attribute::named(attr).map_or(Self::Other, Self::Attribute)
            }
            Expr::Is { expr, entity_type, in_expr: None } if matches!(**expr, Expr::Var(Var::Principal)) => {
                Self::PrincipalType(entity_type.to_string())
            }
            expr => Relation::of(expr).map_or(Self::Other, Self::Member),
        }
    }
}

impl Relation {
    fn of(expr: &Expr) -> Option<Self> {
        let Expr::BinaryOp { op: BinaryOp::In, left, right } = expr else { return None };
        let Expr::Literal(Literal::EntityUID(uid)) = &**right else { return None };
        let who = match &**left {
            Expr::Var(Var::Principal) => Who::Principal,
            Expr::Var(Var::Resource) => Who::Resource,
            Expr::GetAttr { expr, attr } if attr == "channel" && matches!(**expr, Expr::Var(Var::Context)) => {
                Who::Channel
            }
            _ => return None,
        };
        Some(Self { who, ancestor: plain_uid(uid)? })
    }

    /// Every relation that an expression mentions.
    pub(crate) fn mentioned(expr: &Expr) -> Vec<Self> {
        let here = |expr: &Expr| Self::of(expr).map(|relation| vec![relation]);
        expr.reduce(&here, &|a, b| [a, b].concat(), Vec::new())
    }

    /// As a rule would write it.
    pub(crate) fn text(&self) -> String {
        let who = match self.who {
            Who::Principal => "principal",
            Who::Resource => "resource",
            Who::Channel => "context.channel",
        };
        format!("{who} in {}", self.ancestor)
    }
}

/// The syntax tree's uid as the evaluator's.
fn plain_uid(uid: &PstUid) -> Option<EntityUid> {
    let type_name = uid.ty.to_string().parse().ok()?;
    Some(EntityUid::from_type_name_and_id(type_name, EntityId::new(&uid.eid)))
}

/// The attributes that any of these expressions mention.
pub(crate) fn attributes_of<'e>(exprs: impl Iterator<Item = &'e Arc<Expr>>) -> Attributes {
    exprs.fold(Attributes::NONE, |all, expr| all.union(Attributes::mentioned(expr)))
}

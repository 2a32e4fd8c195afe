//! The texts that rules compare with what is known of a request, and where they stand.
//!
//! Cedar's syntax tree says what is compared with what and not where; the rule's text says where. The two are put
//! together by value: a text is looked for among the rule's own string literals, which annotations and comments are
//! not.

use crate::attribute::Attribute;
use crate::nesting_guard;
use crate::rule::Rule;
use cedar_policy::pst::{BinaryOp, Clause, Expr, Literal, PatternElem, Var};
use cedar_policy::{EntityId, EntityUid, Policy};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A text that a rule holds against an attribute of the context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Compared {
    pub(crate) attribute: Attribute,
    pub(crate) text: String,
    pub(crate) how: How,
}

/// How a text is held against an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// It has to be the value, or one of the values.
    Whole,
    /// The value has to begin with it: a pattern up to its first `*`.
    Beginning,
}

/// Every text that a policy holds against an attribute.
pub(crate) fn compared(policy: &Policy) -> Vec<Compared> {
    conditions(policy)
        .iter()
        .flat_map(|expr| expr.reduce(&compared_here, &|a, b| [a, b].concat(), Vec::new()))
        .collect()
}

/// A number that a rule holds against an attribute: `attribute op number`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) attribute: Attribute,
    pub(crate) op: BinaryOp,
    pub(crate) number: i64,
}

/// Every number that a policy holds against an attribute.
pub(crate) fn counted(policy: &Policy) -> Vec<Counted> {
    conditions(policy).iter().flat_map(|expr| expr.reduce(&counted_here, &|a, b| [a, b].concat(), Vec::new())).collect()
}

fn counted_here(expr: &Expr) -> Option<Vec<Counted>> {
    let Expr::BinaryOp { op, left, right } = expr else { return None };
    let number = |expr: &Expr| match expr {
        Expr::Literal(Literal::Long(number)) => Some(*number),
        _ => None,
    };
    // `3 <= count` is `count >= 3`.
    let turned = match op {
        BinaryOp::Less => BinaryOp::Greater,
        BinaryOp::LessEq => BinaryOp::GreaterEq,
        BinaryOp::Greater => BinaryOp::Less,
        BinaryOp::GreaterEq => BinaryOp::LessEq,
        same => *same,
    };
    let counted = match (attribute(left), number(right), number(left), attribute(right)) {
        (Some(attribute), Some(number), ..) => Counted { attribute, op: *op, number },
        (.., Some(number), Some(attribute)) => Counted { attribute, op: turned, number },
        _ => return None,
    };
    Some(vec![counted])
}

/// The places that rules about reading name. A tree that is read holds those below it, so that a rule about `secrets`
/// knows of a search that goes through everything.
pub(crate) fn places(rules: &[Arc<Rule>]) -> Vec<String> {
    let reading = rules.iter().filter(|rule| rule.attributes.contains(Attribute::ReadUnder));
    let all: BTreeSet<String> = reading
        .flat_map(|rule| conditions(&rule.policy))
        .flat_map(|expr| expr.reduce(&text_here, &|a, b| [a, b].concat(), Vec::new()))
        .collect();
    all.into_iter().collect()
}

/// Every text that a policy holds against a field of `context.containment`, with the field.
pub(crate) fn held_against_containment(policy: &Policy) -> Vec<(String, String)> {
    conditions(policy)
        .iter()
        .flat_map(|expr| expr.reduce(&containment_here, &|a, b| [a, b].concat(), Vec::new()))
        .collect()
}

fn containment_here(expr: &Expr) -> Option<Vec<(String, String)>> {
    let Expr::BinaryOp { op: BinaryOp::Eq | BinaryOp::NotEq | BinaryOp::Contains, left, right } = expr else {
        return None;
    };
    let field = |expr: &Expr| match expr {
        Expr::GetAttr { expr, attr } if attribute(expr) == Some(Attribute::Containment) => Some(attr.to_string()),
        _ => None,
    };
    let (field, texts) = match (field(left), field(right)) {
        (Some(field), None) => (field, right),
        (None, Some(field)) => (field, left),
        _ => return None,
    };
    let texts = texts.reduce(&text_here, &|a, b| [a, b].concat(), Vec::new());
    Some(texts.into_iter().map(|text| (field.clone(), text)).collect())
}

fn conditions(policy: &Policy) -> Vec<Arc<Expr>> {
    // A policy that cannot be taken apart is refused when its rule is made.
    let Ok(tree) = policy.to_pst() else { return Vec::new() };
    let clauses = tree.body().clauses();
    clauses.iter().map(|(Clause::When(expr) | Clause::Unless(expr))| Arc::clone(expr)).collect()
}

fn text_here(expr: &Expr) -> Option<Vec<String>> {
    match expr {
        Expr::Literal(Literal::String(text)) => Some(vec![text.to_string()]),
        _ => None,
    }
}

fn compared_here(expr: &Expr) -> Option<Vec<Compared>> {
    match expr {
        Expr::BinaryOp {
            op: BinaryOp::Eq | BinaryOp::NotEq | BinaryOp::Contains | BinaryOp::ContainsAll | BinaryOp::ContainsAny,
            left,
            right,
        } => {
            let (attribute, texts) = match (attribute(left), attribute(right)) {
                (Some(attribute), None) => (attribute, right),
                (None, Some(attribute)) => (attribute, left),
                _ => return None,
            };
            let texts = texts.reduce(&text_here, &|a, b| [a, b].concat(), Vec::new());
            Some(texts.into_iter().map(|text| Compared { attribute, text, how: How::Whole }).collect())
        }
        Expr::Like { expr, pattern } => {
            let fixed = pattern.iter().map_while(|element| match element {
                PatternElem::Char(c) => Some(*c),
                PatternElem::Wildcard => None,
            });
            let text: String = fixed.collect();
            let how = if text.chars().count() == pattern.len() { How::Whole } else { How::Beginning };
            attribute(expr).map(|attribute| vec![Compared { attribute, text, how }])
        }
        _ => None,
    }
}

fn attribute(expr: &Expr) -> Option<Attribute> {
    match expr {
        Expr::GetAttr { expr, attr } if matches!(**expr, Expr::Var(Var::Context)) => Attribute::named(attr),
        _ => None,
    }
}

/// Where a rule's text has a string literal with this value, or one that begins with it; its first byte otherwise.
pub(crate) fn place_of_text(rule: &str, value: &str, how: How) -> usize {
    let quoted = format!("\"{}", EntityId::new(value).escaped());
    let found = nesting_guard::strings(rule).find(|(_, literal)| match how {
        How::Whole => literal.strip_suffix('"') == Some(quoted.as_str()),
        How::Beginning => literal.starts_with(&quoted),
    });
    found.map_or(0, |(at, _)| at)
}

/// Where a rule's text names an entity; its first byte otherwise.
pub(crate) fn place_of_entity(rule: &str, uid: &EntityUid) -> usize {
    let kind = format!("{}::", uid.type_name());
    let id = format!("\"{}\"", uid.id().escaped());
    let named = |(at, literal): &(usize, &str)| *literal == id && rule[..*at].ends_with(&kind);
    nesting_guard::strings(rule).find(named).map_or(0, |(at, _)| at - kind.len())
}

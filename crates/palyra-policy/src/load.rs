//! Makes rules of text: parse, name, replace, check against the schema, take apart.
//!
//! Every flaw of every source is collected before anything is refused, and a set with a flaw is refused whole. This is
//! the only place that parses Cedar, and it never sees a caller's text.

use crate::error::{Flaw, FlawKind, PolicyError};
use crate::lint;
use crate::literal::place_of_entity;
use crate::membership::Membership;
use crate::nesting_guard;
use crate::rule::{Labels, Rule};
use crate::source::{Author, Indexed, MAX_SOURCE_BYTES, PolicySource};
use crate::toolbox::Toolbox;
use cedar_policy::ffi::DetailedError;
use cedar_policy::{EntityUid, Policy, PolicyId, PolicySet, Schema, ValidationMode, ValidationWarning, Validator};
use palyra_protocol::display::deceives;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The annotations that mean something.
const ANNOTATIONS: [&str; 5] = ["id", "reason", "remedy", "replaces", "locked"];

/// A policy on its way to becoming a rule.
struct Draft<'s> {
    policy: Policy,
    source: usize,
    offset: usize,
    id: String,
    text: String,
    place: &'s Indexed<'s>,
}

impl Draft<'_> {
    fn annotation(&self, name: &str) -> Option<&str> {
        self.policy.annotation(name)
    }

    fn flaw(&self, kind: FlawKind, message: String) -> Flaw {
        self.place.flaw(self.offset, kind, message)
    }
}

/// What rules can name besides what the schema says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known<'a> {
    pub(crate) membership: &'a Membership,
    pub(crate) tools: Option<&'a dyn Toolbox>,
}

/// Enough for the deepest rule that the guard lets through, optimised or not.
const STACK_BYTES: usize = 64 * 1024 * 1024;

/// Reads all sources, in order; later ones may replace rules of earlier ones.
///
/// Cedar's parser and validator recurse, so they get a thread with a stack of their own. Should they panic, that is an
/// error like any other and the set that runs keeps running.
pub(crate) fn load(sources: &[PolicySource], known: Known<'_>, schema: &Schema) -> Result<Vec<Arc<Rule>>, PolicyError> {
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("policy-load".to_owned())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, || load_here(sources, known, schema))
            .map_err(|error| PolicyError::Bug(format!("no thread to load rules on: {error}")))?
            .join()
            .map_err(|_| PolicyError::Bug("reading the rules panicked".to_owned()))?
    })
}

fn load_here(sources: &[PolicySource], known: Known<'_>, schema: &Schema) -> Result<Vec<Arc<Rule>>, PolicyError> {
    let indexed: Vec<_> = sources.iter().map(Indexed::new).collect();
    let mut flaws = Vec::new();
    let mut drafts = Vec::new();
    for (number, place) in indexed.iter().enumerate() {
        match parse(number, place) {
            Ok(policies) => drafts.extend(policies),
            Err(found) => flaws.extend(found),
        }
    }
    for draft in &drafts {
        check_annotations(draft, &mut flaws);
        check_groups(draft, known.membership, &mut flaws);
        check_literals(draft, known.membership, known.tools, &mut flaws);
    }
    let drafts = replace(drafts, &mut flaws);
    let drafts = refuse_if_any(flaws, drafts)?;
    let mut flaws = Vec::new();
    validate(&drafts, schema, &mut flaws)?;
    let drafts = refuse_if_any(flaws, drafts)?;
    drafts.into_iter().map(compile).collect()
}

fn refuse_if_any<T>(mut flaws: Vec<Flaw>, good: T) -> Result<T, PolicyError> {
    if flaws.is_empty() {
        return Ok(good);
    }
    flaws.sort_by(|a, b| a.at.cmp(&b.at));
    Err(PolicyError::Flawed(flaws))
}

/// One flaw for each error that Cedar reports, where Cedar says it is.
fn cedar_flaws(place: &Indexed<'_>, fallback: usize, kind: FlawKind, error: &DetailedError) -> Vec<Flaw> {
    let label = error.source_locations.first();
    let offset = label.map_or(fallback, |label| label.loc.start);
    let mut message = error.message.clone();
    if let Some(label) = label.and_then(|label| label.label.as_ref()) {
        message = format!("{message}: {label}");
    }
    let first = Flaw { help: error.help.clone(), ..place.flaw(offset, kind, message) };
    let related = error.related.iter().flat_map(|error| cedar_flaws(place, fallback, kind, error));
    std::iter::once(first).chain(related).collect()
}

fn parse<'s>(number: usize, place: &'s Indexed<'s>) -> Result<Vec<Draft<'s>>, Vec<Flaw>> {
    let text = &place.source.text;
    if text.len() > MAX_SOURCE_BYTES {
        let message = format!("the file is larger than {} MiB", MAX_SOURCE_BYTES / 1024 / 1024);
        return Err(vec![place.flaw(0, FlawKind::TooLarge, message)]);
    }
    nesting_guard::check(text).map_err(|excess| vec![place.flaw(excess.offset, FlawKind::TooComplex, excess.what)])?;
    let set: PolicySet =
        text.parse().map_err(|error| cedar_flaws(place, 0, FlawKind::Syntax, &DetailedError::from(&error)))?;
    let mut drafts = Vec::with_capacity(set.num_of_policies());
    let mut flaws = Vec::new();
    let mut from = 0;
    // Cedar numbers what it reads: `policy0`, `policy1`, … in the order of the text.
    for n in 0..set.num_of_policies() + set.num_of_templates() {
        let given = PolicyId::new(format!("policy{n}"));
        if let Some(policy) = set.policy(&given) {
            let body = policy.to_cedar().unwrap_or_default();
            let offset = text[from..].find(&body).map_or(from, |at| from + at);
            from = offset + body.len().min(text.len() - offset);
            let id = policy.annotation("id").unwrap_or_default().to_owned();
            let policy = policy.new_id(PolicyId::new(&id));
            drafts.push(Draft { policy, source: number, offset, id, text: body, place });
        } else {
            let offset =
                set.template(&given).and_then(|t| text[from..].find(&t.to_cedar())).map_or(from, |at| from + at);
            let message = "templates are not rules; write the principal and the resource out".to_owned();
            flaws.push(place.flaw(offset, FlawKind::Template, message));
        }
    }
    if flaws.is_empty() { Ok(drafts) } else { Err(flaws) }
}

fn check_annotations(draft: &Draft<'_>, flaws: &mut Vec<Flaw>) {
    for (name, _) in draft.policy.annotations() {
        if !ANNOTATIONS.contains(&name) {
            let message = format!("`@{name}` means nothing here; annotations are @{}", ANNOTATIONS.join(", @"));
            flaws.push(draft.flaw(FlawKind::UnknownAnnotation, message));
        }
    }
    match draft.annotation("id") {
        None => flaws.push(draft.flaw(FlawKind::MissingId, "the rule has no `@id(\"…\")`".to_owned())),
        Some(id) if !is_id(id) => {
            let message = "an id is 1 to 64 of a-z 0-9 _ . - and starts with a letter".to_owned();
            flaws.push(draft.flaw(FlawKind::BadId, message));
        }
        Some(_) => {}
    }
    if draft.annotation("reason").is_none_or(|reason| reason.trim().is_empty()) {
        let message = "the rule has no `@reason(\"…\")`: one sentence for the people it stops".to_owned();
        flaws.push(draft.flaw(FlawKind::MissingReason, message));
    }
    if draft.annotation("locked").is_some() && draft.place.source.author() == Author::Operator {
        let message = "only rules that Palyra ships can be locked".to_owned();
        flaws.push(draft.flaw(FlawKind::UnknownAnnotation, message));
    }
}

fn is_id(id: &str) -> bool {
    id.len() <= 64
        && id.bytes().next().is_some_and(|b| b.is_ascii_lowercase())
        && id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_.-".contains(&b))
}

/// A group that nobody can belong to makes a permit useless and a forbid a false comfort.
fn check_groups(draft: &Draft<'_>, membership: &Membership, flaws: &mut Vec<Flaw>) {
    for uid in unknown_groups(&draft.policy, membership) {
        let offset = draft.offset + place_of_entity(&draft.text, &uid);
        flaws.push(draft.place.flaw(offset, FlawKind::UnknownGroup, nobody_in(&uid)));
    }
}

/// A text that nothing is ever equal to makes a rule that never does what it says.
fn check_literals(draft: &Draft<'_>, membership: &Membership, tools: Option<&dyn Toolbox>, flaws: &mut Vec<Flaw>) {
    for never in lint::look(&draft.policy, &draft.text, membership, tools) {
        let flaw = draft.place.flaw(draft.offset + never.offset, never.kind, never.message);
        flaws.push(Flaw { help: Some(never.help), ..flaw });
    }
}

fn unknown_groups(policy: &Policy, membership: &Membership) -> impl Iterator<Item = EntityUid> {
    policy.entity_literals().into_iter().filter(|uid| {
        let name = uid.id().unescaped();
        match uid.type_name().basename() {
            "Group" => !membership.has_group(name),
            "Role" => !membership.has_role(name),
            _ => false,
        }
    })
}

fn nobody_in(uid: &EntityUid) -> String {
    format!("`{uid}` is not in the configuration, so it has no members")
}

/// The first group a loaded rule speaks of that these members lack.
pub(crate) fn unknown_group(policy: &Policy, membership: &Membership) -> Option<EntityUid> {
    unknown_groups(policy, membership).next()
}

pub(crate) fn unknown_group_flaw(rule: &Rule, uid: &EntityUid) -> Flaw {
    let excerpt = rule.text().lines().next().unwrap_or_default().to_owned();
    Flaw { kind: FlawKind::UnknownGroup, at: rule.position().clone(), excerpt, message: nobody_in(uid), help: None }
}

/// Puts rules in the place of those they replace, and refuses two rules with one id.
fn replace<'s>(drafts: Vec<Draft<'s>>, flaws: &mut Vec<Flaw>) -> Vec<Draft<'s>> {
    let mut kept: Vec<Option<Draft<'s>>> = Vec::with_capacity(drafts.len());
    let mut by_id: BTreeMap<String, usize> = BTreeMap::new();
    for draft in drafts {
        if let Some(target) = draft.annotation("replaces") {
            let index = by_id.get(target).copied();
            match replaceable(&draft, target, index.and_then(|n| kept[n].as_ref())) {
                Ok(()) => {
                    by_id.remove(target);
                    if let Some(n) = index {
                        kept[n] = None;
                    }
                }
                Err(flaw) => flaws.push(*flaw),
            }
        }
        match by_id.get(&draft.id).and_then(|n| kept[*n].as_ref()) {
            Some(first) if is_id(&draft.id) => {
                let at = first.place.position(first.offset);
                let message = format!("the id `{}` is taken by the rule at {at}", draft.id);
                flaws.push(draft.flaw(FlawKind::DuplicateId, message));
            }
            _ => {
                by_id.insert(draft.id.clone(), kept.len());
                kept.push(Some(draft));
            }
        }
    }
    kept.into_iter().flatten().collect()
}

fn replaceable(draft: &Draft<'_>, target: &str, old: Option<&Draft<'_>>) -> Result<(), Box<Flaw>> {
    let refuse = |kind, message| Err(Box::new(draft.flaw(kind, message)));
    let Some(old) = old.filter(|old| old.source != draft.source) else {
        return refuse(FlawKind::UnknownReplaced, format!("no earlier file has a rule `{target}` left to replace"));
    };
    if let Some(why) = old.annotation("locked") {
        return refuse(FlawKind::Locked, format!("`{target}` cannot be replaced: {why}"));
    }
    if old.policy.effect() != draft.policy.effect() {
        return refuse(FlawKind::Locked, format!("`{target}` can only be replaced by a rule of the same effect"));
    }
    Ok(())
}

fn validate(drafts: &[Draft<'_>], schema: &Schema, flaws: &mut Vec<Flaw>) -> Result<(), PolicyError> {
    let set = PolicySet::from_policies(drafts.iter().map(|draft| draft.policy.clone()))
        .map_err(|error| PolicyError::Bug(error.to_string()))?;
    let result = Validator::new(schema.clone()).validate(&set, ValidationMode::Strict);
    let by_id: BTreeMap<&str, &Draft<'_>> = drafts.iter().map(|draft| (draft.id.as_str(), draft)).collect();
    let errors = result.validation_errors().map(|e| (e.policy_id(), FlawKind::Invalid, DetailedError::from(e)));
    let text_of = |id: &PolicyId| by_id.get::<str>(id.as_ref()).map_or("", |draft| draft.text.as_str());
    let warnings =
        result.validation_warnings().filter(|warning| !is_only_foreign(warning, text_of(warning.policy_id())));
    let warnings = warnings.map(|w| (w.policy_id(), FlawKind::Suspicious, DetailedError::from(w)));
    for (id, kind, error) in errors.chain(warnings) {
        let id: &str = id.as_ref();
        match by_id.get(id) {
            Some(draft) => flaws.extend(cedar_flaws(draft.place, draft.offset, kind, &error)),
            None => return Err(PolicyError::Bug(error.message)),
        }
    }
    Ok(())
}

/// Whether Cedar only points out letters that are not English. Paths are called what they are called; a word that mixes
/// alphabets is pointed out in the set's notes, and letters that show nothing are still refused.
fn is_only_foreign(warning: &ValidationWarning, rule: &str) -> bool {
    match warning {
        ValidationWarning::MixedScriptString(_)
        | ValidationWarning::MixedScriptIdentifier(_)
        | ValidationWarning::ConfusableIdentifier(_) => {
            !nesting_guard::strings(rule).any(|(_, literal)| literal.chars().any(deceives))
        }
        _ => false,
    }
}

fn compile(draft: Draft<'_>) -> Result<Arc<Rule>, PolicyError> {
    let labels = Labels {
        reason: draft.annotation("reason").unwrap_or_default().to_owned(),
        remedy: draft.annotation("remedy").map(str::to_owned),
        position: draft.place.position(draft.offset),
        id: draft.id,
        text: draft.text,
    };
    Rule::new(draft.policy, labels).map(Arc::new).map_err(PolicyError::Bug)
}

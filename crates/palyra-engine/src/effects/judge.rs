//! What policy says about an effect: `effect.apply`, asked about guarded changes and about all others by themselves.

use super::about::EffectQuestion;
use crate::engine::Engine;
use crate::flow::decide::Asked;
use palyra_policy::{EffectUse, PolicyAction, PolicyRequest, PolicyRequestContext, PolicyResource, Verdict};
use palyra_protocol::{
    CallRecord, ChangeKind, DecisionKind, EffectChange, EffectCounts, EffectPath, EntryKind, Facets,
};
use palyra_workspace::effects::{Fate, Fates, Tracked};
use std::collections::BTreeSet;

/// The two parts of an effect that policy is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Guarded,
    Rest,
}

/// What policy decided about an effect.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) fates: Fates,
    /// Why people are asked, where they are.
    pub(super) why: String,
    /// How many of them.
    pub(super) people: u32,
    /// Why changes were thrown away, where some were.
    pub(super) denied: Option<String>,
    /// What git tracked then.
    pub(super) tracked: Tracked,
}

/// The guarded paths of an effect, to tell which changes belong to them.
#[derive(Debug)]
pub(super) struct GuardedPaths(BTreeSet<Vec<u8>>);

impl GuardedPaths {
    pub(super) fn new(paths: &[EffectPath]) -> Self {
        Self(paths.iter().map(|path| path.as_bytes().to_vec()).collect())
    }

    /// Whether a path is one of them, or lies beneath one.
    pub(super) fn hold(&self, path: &EffectPath) -> bool {
        let bytes = path.as_bytes();
        let slashes = (0..bytes.len()).filter(|at| bytes[*at] == b'/');
        !self.0.is_empty()
            && (self.0.contains(bytes) || slashes.map(|at| &bytes[..at]).any(|directory| self.0.contains(directory)))
    }
}

impl Engine {
    /// What policy says about both parts of an effect.
    pub(super) fn judge_effect(&self, call: &CallRecord, changes: &[EffectChange], guarded: &[EffectPath]) -> Judged {
        let paths = GuardedPaths::new(guarded);
        let tracked = self.tracked(changes);
        let part = |part: Part| {
            let question = question_about((changes, &tracked), &paths, part, guarded);
            (!question.paths_written.is_empty()).then(|| self.ask_about_effect(call, &question, 0))
        };
        let (guarded, rest) = (part(Part::Guarded), part(Part::Rest));
        let both = [&guarded, &rest].into_iter().flatten();
        let asks = |verdict: &&Verdict| verdict.kind() == DecisionKind::NeedsApproval;
        let mut asking: Vec<String> = both.clone().filter(asks).map(Verdict::summary).collect();
        asking.dedup();
        let people = both.clone().map(Verdict::people).max().unwrap_or(0);
        let denied = both.clone().find(|verdict| verdict.kind() == DecisionKind::Deny).map(Verdict::summary);
        Judged {
            fates: Fates { guarded: fate(guarded.as_ref()), rest: fate(rest.as_ref()) },
            why: asking.join(" "),
            people,
            denied,
            tracked,
        }
    }

    /// The paths that git tracks, where something would be gone.
    pub(super) fn tracked(&self, changes: &[EffectChange]) -> Tracked {
        let deletes = changes.iter().any(|change| change.kind == ChangeKind::Deleted || change.from.is_some());
        if deletes { Tracked::of(self.workspace()) } else { Tracked::nothing() }
    }

    /// Whether policy lets changes through that so many people approved.
    pub(super) fn allows_approved_effect(&self, call: &CallRecord, question: &EffectQuestion, people: u32) -> bool {
        self.ask_about_effect(call, question, people).kind() == DecisionKind::Allow
    }

    fn ask_about_effect(&self, call: &CallRecord, question: &EffectQuestion, people: u32) -> Verdict {
        let basis = self.tool_facts().basis(&call.tool, &call.facets);
        let facets = Facets { paths_written: question.paths_written.clone(), ..call.facets.clone() };
        let asked = Asked {
            tool: &call.tool,
            workspace: &call.workspace_root,
            origin: &call.origin,
            facets: &facets,
            basis: &basis,
        };
        let (_, context) = asked.question();
        let request = PolicyRequest {
            principal: call.origin.principal.clone(),
            action: PolicyAction::EffectApply,
            resource: PolicyResource::Tool(call.tool.to_string()),
        };
        let context = PolicyRequestContext {
            is_sensitive_action: false,
            allow_sensitive_tools: people > 0,
            approval_count: people,
            effect: question.effect.clone(),
            ..context
        };
        self.policy().decide(&request, &context)
    }
}

fn fate(verdict: Option<&Verdict>) -> Fate {
    match verdict.map(Verdict::kind) {
        None | Some(DecisionKind::Allow) => Fate::Apply,
        Some(DecisionKind::NeedsApproval) => Fate::Wait,
        Some(DecisionKind::Deny) => Fate::Drop,
    }
}

/// What policy is asked about the changes that wait.
pub(super) fn question_about_waiting(
    (changes, tracked): (&[EffectChange], &Tracked),
    guarded: &[EffectPath],
    fates: Fates,
) -> (EffectQuestion, Vec<EffectChange>) {
    let paths = GuardedPaths::new(guarded);
    let fate = |change: &EffectChange| if paths.hold(&change.path) { fates.guarded } else { fates.rest };
    let waiting: Vec<EffectChange> = changes.iter().filter(|change| fate(change) == Fate::Wait).cloned().collect();
    let guarded = if fates.guarded == Fate::Wait { guarded } else { &[] };
    (question((waiting.iter(), tracked), guarded), waiting)
}

fn question_about(
    (changes, tracked): (&[EffectChange], &Tracked),
    paths: &GuardedPaths,
    part: Part,
    guarded: &[EffectPath],
) -> EffectQuestion {
    let belongs = |change: &&EffectChange| paths.hold(&change.path) == (part == Part::Guarded);
    let guarded = if part == Part::Guarded { guarded } else { &[] };
    question((changes.iter().filter(belongs), tracked), guarded)
}

fn question<'c>(
    (changes, tracked): (impl Iterator<Item = &'c EffectChange>, &Tracked),
    guarded: &[EffectPath],
) -> EffectQuestion {
    let mut effect = EffectUse { guarded: guarded.iter().map(EffectPath::to_text).collect(), ..EffectUse::default() };
    let mut counts = EffectCounts::default();
    let mut paths_written = Vec::new();
    for change in changes {
        counts.count(change.kind);
        paths_written.push(change.path.to_text());
        let gone = if change.kind == ChangeKind::Deleted { Some(&change.path) } else { change.from.as_ref() };
        effect.tracked_deleted += u64::from(gone.is_some_and(|path| tracked.holds(path)));
        if change.kind == ChangeKind::Deleted {
            effect.deletes.push(change.path.to_text());
        } else if change.entry == EntryKind::File && change.kind != ChangeKind::Mode {
            effect.bytes = effect.bytes.saturating_add(change.size.unwrap_or(0));
        }
        if let Some(from) = &change.from {
            effect.deletes.push(from.to_text());
            paths_written.push(from.to_text());
        }
    }
    effect.counts = counts;
    EffectQuestion { paths_written, effect }
}

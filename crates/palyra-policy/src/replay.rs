//! Replaying past decisions against another set: what it would newly allow, newly deny, newly ask about.
//!
//! Decisions are fed one by one and only counts and a few examples are kept, so a journal of any length can be
//! replayed.

use crate::circumstances::Approval;
use crate::engine::PolicyEngine;
use crate::request::{PolicyRequest, PolicyRequestContext};
use crate::verdict::Questions;
use palyra_protocol::{CallId, DecisionKind, Digest, PolicyAction, Timestamp};
use serde::{Deserialize, Serialize};

/// A decision that was made.
#[derive(Debug, Clone)]
pub struct PastDecision<'p> {
    /// The call it was about.
    pub call_id: &'p CallId,
    /// When it was made.
    pub at: Timestamp,
    /// What was asked.
    pub questions: &'p Questions,
    /// The answer.
    pub decided: DecisionKind,
}

/// One decision that would come out otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Example {
    /// The call.
    pub call_id: CallId,
    /// When it was decided.
    pub at: Timestamp,
    /// In whose name.
    pub principal: String,
    /// The tool.
    pub tool: String,
    /// What it would have run or touched.
    pub what: String,
    /// The answer it got.
    pub was: DecisionKind,
    /// The answer it would get.
    pub would_be: DecisionKind,
    /// The rules that would decide.
    pub rules: Vec<String>,
    /// Why, in a sentence.
    pub why: String,
}

/// Decisions that change in the same way.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shift {
    /// How many.
    pub count: u64,
    /// The first few, and no two of the same principal, tool and rules.
    pub examples: Vec<Example>,
}

/// What a replay came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayReport {
    /// The set that was tried.
    pub candidate: Digest,
    /// How many decisions were replayed.
    pub replayed: u64,
    /// How many come out as they did.
    pub unchanged: u64,
    /// Allowed now, and not before.
    pub newly_allowed: Shift,
    /// Denied now, and not before.
    pub newly_denied: Shift,
    /// A person is asked now, and was not before.
    pub newly_asking: Shift,
}

/// A replay under way.
#[derive(Debug)]
pub struct Replay {
    candidate: PolicyEngine,
    report: ReplayReport,
    most_examples: usize,
}

impl Replay {
    /// A replay against a set, which keeps at most so many examples of each shift.
    #[must_use]
    pub fn new(candidate: PolicyEngine, most_examples: usize) -> Self {
        let report = ReplayReport {
            candidate: candidate.policy_hash(),
            replayed: 0,
            unchanged: 0,
            newly_allowed: Shift::default(),
            newly_denied: Shift::default(),
            newly_asking: Shift::default(),
        };
        Self { candidate, report, most_examples }
    }

    /// Asks the candidate what was asked then.
    pub fn feed(&mut self, past: &PastDecision<'_>) {
        self.report.replayed += 1;
        let (request, context) = &past.questions.call;
        let would_be = match past.questions.uses[..] {
            [] => self.candidate.kind(request, context),
            _ => self.candidate.decide_all(past.questions).kind(),
        };
        if would_be == past.decided {
            self.report.unchanged += 1;
            return;
        }
        let shift = match would_be {
            DecisionKind::Allow => &mut self.report.newly_allowed,
            DecisionKind::NeedsApproval => &mut self.report.newly_asking,
            DecisionKind::Deny => &mut self.report.newly_denied,
        };
        shift.count += 1;
        if shift.examples.len() < self.most_examples {
            shift.keep(example(&self.candidate, past, would_be), self.most_examples);
        }
    }

    /// Another replay against the same set, of other decisions.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self::new(self.candidate.clone(), self.most_examples)
    }

    /// Adds what a fork came to.
    pub fn join(&mut self, other: Self) {
        let (ours, theirs) = (&mut self.report, other.report);
        ours.replayed += theirs.replayed;
        ours.unchanged += theirs.unchanged;
        for (ours, theirs) in [
            (&mut ours.newly_allowed, theirs.newly_allowed),
            (&mut ours.newly_denied, theirs.newly_denied),
            (&mut ours.newly_asking, theirs.newly_asking),
        ] {
            ours.count += theirs.count;
            theirs.examples.into_iter().for_each(|example| ours.keep(example, self.most_examples));
        }
    }

    /// What it came to, the oldest examples first.
    #[must_use]
    pub fn finish(mut self) -> ReplayReport {
        let report = &mut self.report;
        for shift in [&mut report.newly_allowed, &mut report.newly_denied, &mut report.newly_asking] {
            shift.examples.sort_by(|a, b| (a.at, &a.call_id).cmp(&(b.at, &b.call_id)));
        }
        self.report
    }
}

impl Shift {
    fn keep(&mut self, example: Example, most: usize) {
        let alike = |known: &Example| {
            (&known.principal, &known.tool, &known.rules, known.was)
                == (&example.principal, &example.tool, &example.rules, example.was)
        };
        if self.examples.len() < most && !self.examples.iter().any(alike) {
            self.examples.push(example);
        }
    }
}

fn example(candidate: &PolicyEngine, past: &PastDecision<'_>, would_be: DecisionKind) -> Example {
    let verdict = candidate.decide_all(past.questions);
    let (request, context) = &past.questions.call;
    let facets = &context.facets;
    let what = facets.command_line().unwrap_or_else(|| {
        let paths = facets.paths_written.iter().chain(&facets.paths_read).chain(&facets.hosts);
        paths.take(4).cloned().collect::<Vec<_>>().join(" ")
    });
    Example {
        call_id: past.call_id.clone(),
        at: past.at,
        principal: request.principal.to_string(),
        tool: request.resource.name().to_owned(),
        what: crate::hint::printable(&what),
        was: past.decided,
        would_be,
        rules: verdict.rule_ids(),
        why: verdict.summary(),
    }
}

impl PolicyEngine {
    /// The answer alone, without its explanation.
    ///
    /// INVARIANT (kind_is_decide): this is always `decide(…).kind()`; a property test holds the two together.
    #[must_use]
    pub fn kind(&self, request: &PolicyRequest, context: &PolicyRequestContext) -> DecisionKind {
        if self.allows(request, context, Approval::AsItStands) {
            return DecisionKind::Allow;
        }
        if context.allow_sensitive_tools {
            return DecisionKind::Deny;
        }
        if self.allows(request, context, Approval::StoodInFor) {
            let runs = matches!(request.action, PolicyAction::ToolExecute | PolicyAction::SkillExecute);
            if runs && self.0.waives() {
                let waive = PolicyRequest { action: PolicyAction::ApprovalWaive, ..request.clone() };
                if self.allows(&waive, context, Approval::AsItStands) {
                    return DecisionKind::Allow;
                }
            }
            return DecisionKind::NeedsApproval;
        }
        let counted = self.0.counts_people(request.action)
            && (1..=crate::verdict::MAX_APPROVERS)
                .any(|people| self.allows(request, context, Approval::GivenBy(people)));
        if counted { DecisionKind::NeedsApproval } else { DecisionKind::Deny }
    }
}

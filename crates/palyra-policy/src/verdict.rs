//! The verdict about a call: allow, ask, or deny; put together from Cedar's answers to up to three questions.
//!
//! As things stand. As they would stand if a person approved, or as many people as some rule counts. And, where a
//! person would be needed, whether a rule stands in for that person (`approval.waive`). There is no second place that knows
//! what needs a person.

use crate::circumstances::Approval;
use crate::engine::{PolicyDecision, PolicyEngine};
use crate::explain::{Detail, ExplanationRecord, PolicyExplanation};
use crate::request::{PolicyRequest, PolicyRequestContext};
use palyra_protocol::{DecisionKind, PolicyAction};
use serde::{Deserialize, Serialize};

/// The most people that rules can ask for.
pub const MAX_APPROVERS: u32 = 8;

/// The answer to a call.
#[derive(Debug, Clone)]
pub enum Verdict {
    /// Allowed as things stand.
    Allow(PolicyExplanation),
    /// It would need a person, and a rule stands in for them.
    Waived {
        /// Why it would be allowed with an approval.
        approved: PolicyExplanation,
        /// Which rule counts as that approval.
        waiver: PolicyExplanation,
    },
    /// Allowed only with people's approval.
    NeedsApproval {
        /// Why it is not allowed as things stand.
        now: PolicyExplanation,
        /// Why it would be allowed with an approval.
        approved: PolicyExplanation,
        /// How many different people have to approve.
        people: u32,
    },
    /// Not allowed, whatever anybody says.
    Deny(PolicyExplanation),
}

/// A finished verdict, in the form that the journal keeps and callers see. Its shape is stable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerdictRecord {
    /// The answer.
    pub decision: DecisionKind,
    /// One sentence for people.
    pub summary: String,
    /// How many different people have to approve, where that is the question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub people: Option<u32>,
    /// Why, as things stand.
    pub explanation: ExplanationRecord,
    /// Why it would be allowed with an approval, where that is the question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with_approval: Option<ExplanationRecord>,
    /// The rule that stood in for a person, where one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiver: Option<ExplanationRecord>,
}

impl Verdict {
    /// The answer.
    #[must_use]
    pub fn kind(&self) -> DecisionKind {
        match self {
            Self::Allow(_) | Self::Waived { .. } => DecisionKind::Allow,
            Self::NeedsApproval { .. } => DecisionKind::NeedsApproval,
            Self::Deny(_) => DecisionKind::Deny,
        }
    }

    /// How many different people have to approve: none where nobody is asked.
    #[must_use]
    pub fn people(&self) -> u32 {
        match self {
            Self::NeedsApproval { people, .. } => *people,
            Self::Allow(_) | Self::Waived { .. } | Self::Deny(_) => 0,
        }
    }

    /// The explanation of how things stand; for a waived call, of what the waiver made possible.
    #[must_use]
    pub fn explanation(&self) -> &PolicyExplanation {
        match self {
            Self::Allow(explanation)
            | Self::Deny(explanation)
            | Self::NeedsApproval { now: explanation, .. }
            | Self::Waived { approved: explanation, .. } => explanation,
        }
    }

    /// The rule that stood in for a person.
    #[must_use]
    pub fn waiver(&self) -> Option<&PolicyExplanation> {
        match self {
            Self::Waived { waiver, .. } => Some(waiver),
            Self::Allow(_) | Self::NeedsApproval { .. } | Self::Deny(_) => None,
        }
    }

    /// The ids of every rule that decided, in order.
    #[must_use]
    pub fn rule_ids(&self) -> Vec<String> {
        let mut ids = self.explanation().rule_ids();
        if let Some(waiver) = self.waiver() {
            ids.extend(waiver.rule_ids());
            ids.sort();
            ids.dedup();
        }
        ids
    }

    /// One sentence for people.
    #[must_use]
    pub fn summary(&self) -> String {
        match self {
            Self::Waived { waiver, .. } => format!("No person is asked: {}", waiver.summary()),
            Self::NeedsApproval { now, people, .. } if *people > 1 => {
                format!("{} {people} different people have to approve.", now.summary())
            }
            other => other.explanation().summary(),
        }
    }

    /// The finished form.
    #[must_use]
    pub fn record(&self, detail: Detail) -> VerdictRecord {
        let (with_approval, people) = match self {
            Self::NeedsApproval { approved, people, .. } => (Some(approved.record(detail)), Some(*people)),
            Self::Allow(_) | Self::Waived { .. } | Self::Deny(_) => (None, None),
        };
        VerdictRecord {
            decision: self.kind(),
            summary: self.summary(),
            people,
            explanation: self.explanation().record(detail),
            with_approval,
            waiver: self.waiver().map(|waiver| waiver.record(detail)),
        }
    }
}

impl PolicyEngine {
    /// Decides about a call.
    #[must_use]
    pub fn decide(&self, request: &PolicyRequest, context: &PolicyRequestContext) -> Verdict {
        let now = self.evaluate(request, context, Approval::AsItStands);
        if now.decision == PolicyDecision::Allow {
            return Verdict::Allow(now.explanation);
        }
        if context.allow_sensitive_tools {
            return Verdict::Deny(now.explanation);
        }
        let one = self.evaluate(request, context, Approval::GivenBy(1));
        if one.decision == PolicyDecision::Allow {
            return match self.waiver(request, context) {
                Some(waiver) => Verdict::Waived { approved: one.explanation, waiver },
                None => Verdict::NeedsApproval { now: now.explanation, approved: one.explanation, people: 1 },
            };
        }
        // A rule stands in for one person, never for one of several: whoever counts people means people.
        match self.quorum(request, context) {
            Some((people, approved)) => Verdict::NeedsApproval { now: now.explanation, approved, people },
            // What stands in the way even then is the reason worth telling: asking people would not help.
            None => Verdict::Deny(one.explanation),
        }
    }

    /// The fewest people, more than one, whose approval would do.
    fn quorum(&self, request: &PolicyRequest, context: &PolicyRequestContext) -> Option<(u32, PolicyExplanation)> {
        if !self.0.counts_people(request.action) {
            return None;
        }
        (2..=MAX_APPROVERS).find_map(|people| {
            let with = self.evaluate(request, context, Approval::GivenBy(people));
            (with.decision == PolicyDecision::Allow).then_some((people, with.explanation))
        })
    }

    /// The rule that stands in for a person in this call, if one does.
    fn waiver(&self, request: &PolicyRequest, context: &PolicyRequestContext) -> Option<PolicyExplanation> {
        let runs = matches!(request.action, PolicyAction::ToolExecute | PolicyAction::SkillExecute);
        if !runs || !self.0.waives() {
            return None;
        }
        let waive = PolicyRequest { action: PolicyAction::ApprovalWaive, ..request.clone() };
        let answer = self.evaluate(&waive, context, Approval::AsItStands);
        (answer.decision == PolicyDecision::Allow).then_some(answer.explanation)
    }
}

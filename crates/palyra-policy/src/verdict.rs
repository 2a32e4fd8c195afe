//! The verdict about a call: allow, ask, or deny; put together from Cedar's answers to a few questions.
//!
//! As things stand. As they would stand with an answer that a person gave before: a grant, or a rule that permits
//! `approval.waive`. And as they would stand if people approved this very call, as many as some rule counts. Grants and
//! waivers are no people: where a rule counts even one, the call is shown to a person. There is no second place that
//! knows what needs a person.

use crate::change::Change;
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
        /// Whether they have to approve this very call, because a rule counts them: no grant covers it.
        fresh: bool,
    },
    /// Not allowed, whatever anybody says.
    Deny(PolicyExplanation),
}

/// What policy is asked about one call: the call itself, and each thing that it uses besides.
#[derive(Debug, Clone)]
pub struct Questions {
    /// The call.
    pub call: (PolicyRequest, PolicyRequestContext),
    /// The skill, memory, routine, secrets and guarded paths that it uses.
    pub uses: Vec<(PolicyRequest, PolicyRequestContext)>,
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

    /// Whether people have to approve this very call: no grant covers it.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        matches!(self, Self::NeedsApproval { fresh: true, .. })
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

    /// The ids of the rules that would allow the call once people approved it.
    #[must_use]
    pub fn approved_rule_ids(&self) -> Vec<String> {
        match self {
            Self::NeedsApproval { approved, .. } => approved.rule_ids(),
            Self::Allow(_) | Self::Waived { .. } | Self::Deny(_) => Vec::new(),
        }
    }

    /// One sentence for people.
    #[must_use]
    pub fn summary(&self) -> String {
        match self {
            Self::Waived { waiver, .. } => format!("No person is asked: {}", waiver.summary()),
            Self::NeedsApproval { now, people, .. } if *people > 1 => {
                format!("{} {people} different people have to approve.", now.summary())
            }
            Self::NeedsApproval { now, fresh: true, .. } => {
                format!("{} A person has to approve this very call.", now.summary())
            }
            other => other.explanation().summary(),
        }
    }

    /// The stricter of two verdicts about one call; of two that are alike, this one. Where both need people, as many
    /// have to approve as either counts, and no grant covers the call if one of them admits none.
    #[must_use]
    pub fn stricter(self, other: Self) -> Self {
        let (people, fresh) = (self.people().max(other.people()), self.is_fresh() || other.is_fresh());
        match if other.strictness() > self.strictness() { other } else { self } {
            Self::NeedsApproval { now, approved, .. } => Self::NeedsApproval { now, approved, people, fresh },
            verdict => verdict,
        }
    }

    fn strictness(&self) -> (u8, u32, bool) {
        match self {
            Self::Allow(_) => (0, 0, false),
            Self::Waived { .. } => (1, 0, false),
            Self::NeedsApproval { people, fresh, .. } => (2, *people, *fresh),
            Self::Deny(_) => (3, 0, false),
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
        let now = match self.without_people(request, context) {
            Ok(allowed) => return Verdict::Allow(allowed),
            Err(now) => now,
        };
        if context.allow_sensitive_tools {
            return Verdict::Deny(now);
        }
        let stood_in = self.evaluate(request, context, Approval::StoodInFor);
        if stood_in.decision == PolicyDecision::DenyByDefault {
            return self.with_people(request, context, now);
        }
        match self.waiver(request, context) {
            Some(waiver) => Verdict::Waived { approved: stood_in.explanation, waiver },
            None => Verdict::NeedsApproval { now, approved: stood_in.explanation, people: 1, fresh: false },
        }
    }

    /// Decides about a call and everything that it uses: the strictest verdict.
    #[must_use]
    pub fn decide_all(&self, Questions { call, uses }: &Questions) -> Verdict {
        let mut verdict = self.decide(&call.0, &call.1);
        for (request, context) in uses {
            let of_use = self.decide(request, context);
            let covered = matches!(
                (request.action, &verdict, &of_use),
                // A waiver of the tool's approval is for the same call: it stands in for the skill's too.
                (
                    PolicyAction::SkillExecute,
                    Verdict::Waived { .. },
                    Verdict::NeedsApproval { fresh: false, people: 1, .. }
                )
            );
            verdict = match request.action {
                _ if covered => verdict,
                // Of two that need a person, this one says more.
                PolicyAction::EffectApply => of_use.stricter(verdict),
                _ => verdict.stricter(of_use),
            };
        }
        verdict
    }

    /// Decides about a call that a grant covers. Where a rule counts people, the grant changes nothing.
    #[must_use]
    pub fn decide_with_grant(&self, request: &PolicyRequest, context: &PolicyRequestContext) -> Verdict {
        match self.decide(request, context) {
            Verdict::NeedsApproval { approved, fresh: false, .. } => Verdict::Allow(approved),
            verdict => verdict,
        }
    }

    fn without_people(
        &self,
        request: &PolicyRequest,
        context: &PolicyRequestContext,
    ) -> Result<PolicyExplanation, PolicyExplanation> {
        let now = self.evaluate(request, context, Approval::AsItStands);
        if now.decision == PolicyDecision::Allow { Ok(now.explanation) } else { Err(now.explanation) }
    }

    /// The verdict where neither a grant nor a waiver would do: the fewest people whose approval of this very call
    /// would.
    fn with_people(&self, request: &PolicyRequest, context: &PolicyRequestContext, now: PolicyExplanation) -> Verdict {
        let one = self.evaluate(request, context, Approval::GivenBy(1));
        if one.decision == PolicyDecision::Allow {
            return Verdict::NeedsApproval { now, approved: one.explanation, people: 1, fresh: true };
        }
        if self.0.counts_people(request.action) {
            for people in 2..=MAX_APPROVERS {
                let with = self.evaluate(request, context, Approval::GivenBy(people));
                if with.decision == PolicyDecision::Allow {
                    return Verdict::NeedsApproval { now, approved: with.explanation, people, fresh: true };
                }
            }
        }
        // What stands in the way even then is the reason worth telling: asking people would not help.
        Verdict::Deny(one.explanation)
    }

    /// The rules that would stand in for a person if what they wait for held.
    #[must_use]
    pub fn nearly_waived(&self, request: &PolicyRequest, context: &PolicyRequestContext) -> Vec<Change> {
        if !self.0.waives() {
            return Vec::new();
        }
        let waive = PolicyRequest { action: PolicyAction::ApprovalWaive, ..request.clone() };
        self.evaluate(&waive, context, Approval::AsItStands).explanation.what_would_change()
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

//! Approvals outlive rules: each that waits is decided again when others decide.
//!
//! An approval is about a call under certain rules. When those change, or who belongs to what, the call is put to the
//! new ones. If they ask the same people for the same reasons, the approval stays, bound to them, and the journal says
//! so. Otherwise it ends at once with `policy_changed`, and whoever proposed the call is told: nobody answers where no
//! answer can start the call.

use crate::engine::Engine;
use crate::error::EngineError;
use crate::flow::decide::{Asked, writes_guarded};
use palyra_journal::{JournalError, Rebind};
use palyra_policy::PolicyEngine;
use palyra_protocol::{ApprovalRecord, ApprovalState, DecisionKind, Problem};
use std::sync::Arc;

impl Engine {
    /// Decides every approval that waits once more. What cannot be decided now is decided when it is answered.
    pub(crate) async fn reconsider(&self) {
        let waiting = match self.pending_approvals().await {
            Ok(waiting) => waiting,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "approvals were not decided again");
                return;
            }
        };
        for asked in waiting {
            if let Err(error) = self.reconsider_one(asked).await {
                tracing::warn!(error = &error as &dyn std::error::Error, "an approval was not decided again");
            }
        }
    }

    /// The approval as it stands under the rules that decide now.
    pub(crate) async fn reconsider_one(&self, asked: ApprovalRecord) -> Result<ApprovalRecord, EngineError> {
        let policy = self.policy();
        if asked.state != ApprovalState::Pending || asked.policy_hash == policy.policy_hash() {
            return Ok(asked);
        }
        let same = self.asks_the_same(&asked, &policy).await?;
        let stands = if same {
            let rebind = Rebind { approval_id: asked.approval_id.clone(), policy_hash: policy.policy_hash() };
            self.journal().rebind_approval(rebind).await
        } else {
            let outdated = self.cancelled(&asked, policy_changed());
            self.settle_approval(outdated, None).await.map(Arc::unwrap_or_clone)
        };
        match stands {
            Ok(record) => Ok(record),
            // Somebody answered meanwhile.
            Err(JournalError::AlreadyResolved { .. }) => Ok(self.journal().approval(&asked.approval_id).await?),
            Err(error) => Err(error.into()),
        }
    }
}

impl Engine {
    /// Whether the rules that decide now ask the same people for the same reasons.
    async fn asks_the_same(&self, asked: &ApprovalRecord, policy: &PolicyEngine) -> Result<bool, EngineError> {
        // What is no call is decided anew when its yes is carried out.
        if !asked.subject.is_call() {
            return Ok(true);
        }
        let view = self.journal().call(&asked.call_id).await?;
        Ok(view.record.is_some_and(|call| {
            let facts = self.tool_facts();
            let basis = facts.basis_now(&call.tool, &call.facets, &call.origin);
            let Ok(questions) = Asked::recorded(&call, &basis).questions() else { return false };
            let verdict = policy.decide_all(&questions);
            // The summary names the rules that decided, each with its reason.
            verdict.kind() == DecisionKind::NeedsApproval
                && verdict.people().max(1) == asked.people
                && (verdict.is_fresh() || writes_guarded(&call.facets)) == asked.fresh
                && verdict.summary() == asked.why
        }))
    }
}

/// The rules are others than those that a call was decided by.
pub(crate) fn policy_changed() -> Problem {
    Problem::new(
        "policy_changed",
        "the rules changed after this call was decided, and decide otherwise now",
        "propose the call again",
    )
}

//! Builds the [`Review`] of an approval: what its record tells, and what only the engine knows.
//!
//! The engine adds what would change in files, the rules that ask, and what each grant that a yes could leave would
//! have answered among the last approvals. All of it is bounded. Contents of files are added only for a peer whose
//! answer would count: who may propose a write, or see approvals, is not always one who may read the file.

use crate::access::VerifiedPeer;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::flow::decide::Asked;
use crate::tools::Input;
use palyra_journal::PastApproval;
use palyra_protocol::review::{OfferReplay, ReviewedChange, ReviewedRule};
use palyra_protocol::{ApprovalId, ApprovalRecord, ApprovalState, MatchKey, Review, ShownCall};
use std::sync::Arc;

/// How many of the last approvals each offer is tried on, and how many bytes of them are read at most.
const PAST_APPROVALS: u32 = 50;
const PAST_BYTES: usize = 2 << 20;
/// How many denied calls an offer names.
const EXAMPLES: usize = 3;
/// How much of a rule's text is shown, in characters, and how many rules.
const MAX_RULE: usize = 4000;
const MAX_RULES: usize = 8;

impl Engine {
    /// What a person is shown about one approval.
    ///
    /// # Errors
    /// There is none, or the peer may not see it.
    pub async fn review(&self, peer: &VerifiedPeer, id: &ApprovalId) -> Result<Review, EngineError> {
        let asked = self.approval(peer, id).await?;
        Ok(self.review_of(peer, &asked).await)
    }

    /// What a person is shown about an approval that they may see. What cannot be found out is not in it; nothing here
    /// keeps an approval from being shown.
    pub async fn review_of(&self, peer: &VerifiedPeer, asked: &ApprovalRecord) -> Review {
        let mut review = Review::of(asked);
        review.rules = self.asking_rules(asked).await;
        if asked.state != ApprovalState::Pending {
            review.offers.clear();
            return review;
        }
        if asked.subject.is_call() && self.may_decide(peer, asked) {
            review.changes = self.changes_of(asked).await;
        }
        if !review.offers.is_empty() {
            self.replay_offers(&mut review, asked).await;
        }
        review
    }

    /// What a call would change in files.
    async fn changes_of(&self, asked: &ApprovalRecord) -> Vec<ReviewedChange> {
        let Ok(tool) = self.catalog().find(asked.tool.as_str()).map(Arc::clone) else { return Vec::new() };
        let Some(here) = asked.workspace.as_ref().and_then(|id| self.in_workspace(id).ok()) else { return Vec::new() };
        let (input, facets) = (asked.input.clone(), asked.facets.clone());
        let Ok(thread) = self.file_threads().short().await else { return Vec::new() };
        let found = tokio::task::spawn_blocking(move || {
            let _thread = thread;
            tool.tool().changes(Input::new(&input), &facets, &here.place())
        });
        found.await.unwrap_or_else(|panic| {
            tracing::error!(%panic, "a tool could not say what it would change");
            Vec::new()
        })
    }

    /// The rules that ask for a person now, with their text.
    async fn asking_rules(&self, asked: &ApprovalRecord) -> Vec<ReviewedRule> {
        if !asked.subject.is_call() {
            return Vec::new();
        }
        let Ok(view) = self.journal().call(&asked.call_id).await else { return Vec::new() };
        let Some(call) = view.record else { return Vec::new() };
        let policy = self.policy();
        // Under other rules than those that asked, others would be named.
        if policy.policy_hash() != asked.policy_hash {
            return Vec::new();
        }
        let facts = self.tool_facts();
        let basis = facts.basis_now(&call.tool, &call.facets, &call.origin);
        let Ok(questions) = Asked::recorded(&call, &basis).questions() else { return Vec::new() };
        let verdict = policy.decide_all(&questions);
        // Where no rule forbids it, the one that would permit what a person approved is the one that asks.
        let mut ids = verdict.rule_ids();
        if ids.is_empty() {
            ids = verdict.approved_rule_ids();
        }
        let mut rules: Vec<ReviewedRule> = Vec::new();
        for id in ids {
            let Some(rule) = policy.rule(&id) else { continue };
            if rules.len() < MAX_RULES && rules.iter().all(|known| known.id != id) {
                rules.push(ReviewedRule { id, text: cut(rule.text(), MAX_RULE) });
            }
        }
        rules
    }

    /// Tries each offer on the last approvals of the same principal.
    async fn replay_offers(&self, review: &mut Review, asked: &ApprovalRecord) {
        let past = match self.journal().past_approvals(&asked.principal, PAST_APPROVALS, PAST_BYTES).await {
            Ok(past) => past,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "past approvals cannot be read");
                return;
            }
        };
        let Some(workspace) = self.root_of_approval(asked) else { return };
        let past: Vec<_> = past.into_iter().filter(|past| past.approval_id != asked.approval_id).collect();
        for offer in &mut review.offers {
            let (tool, digest, facets) = (&asked.tool, &asked.call_digest, &asked.facets);
            let Ok(key) = MatchKey::of(&offer.matcher, &workspace, tool, digest, facets) else { continue };
            offer.replay = Some(replayed(&key, &workspace, &past));
        }
    }
}

/// What a grant with this key would have answered.
fn replayed(key: &MatchKey, workspace: &str, past: &[PastApproval]) -> OfferReplay {
    let mut replay = OfferReplay { of: u32::try_from(past.len()).unwrap_or(u32::MAX), ..OfferReplay::default() };
    for asked in past {
        let keys = MatchKey::candidates(workspace, &asked.tool, &asked.call_digest, &asked.facets);
        if !keys.contains(key) {
            continue;
        }
        replay.answered += 1;
        if asked.state == ApprovalState::Denied {
            replay.denied += 1;
            if replay.denied_examples.len() < EXAMPLES {
                replay.denied_examples.push(ShownCall::of(&asked.facets).what);
            }
        }
    }
    replay
}

fn cut(text: &str, most: usize) -> String {
    let mut kept: String = text.chars().take(most).collect();
    if kept.len() < text.len() {
        kept.push_str("\n… `palyra policy show` has the rest");
    }
    kept
}

//! How much of an explanation a caller gets to see.
//!
//! A whole explanation speaks of rules and groups beyond the call it explains. It is for those who may ask for
//! explanations; everybody else learns the answer, the rules that gave it and what their own call lacked.

use crate::access::VerifiedPeer;
use crate::engine::Engine;
use palyra_policy::{PolicyAction, PolicyResource};
use palyra_protocol::ToolDecision;
use std::borrow::Cow;

impl Engine {
    /// A decision as a peer may see it: in whose name it acts is what counts.
    #[must_use]
    pub fn disclose<'d>(&self, peer: &VerifiedPeer, decision: &'d ToolDecision) -> Cow<'d, ToolDecision> {
        // A plain yes has nothing to hide, and costs nothing to tell.
        if decision.explanation.is_null() || self.may(peer, PolicyAction::PolicyExplain, PolicyResource::PolicySet) {
            return Cow::Borrowed(decision);
        }
        Cow::Owned(ToolDecision {
            explanation: serde_json::to_value(&decision.denial).unwrap_or_default(),
            basis: None,
            ..decision.clone()
        })
    }
}

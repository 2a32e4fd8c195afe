//! How much of an explanation a caller gets to see.
//!
//! A whole explanation speaks of rules and groups beyond the call it explains. It is for those who may ask for explanations;
//! everybody else learns the answer, the rules that gave it and what their own call lacked.

use crate::access::VerifiedPeer;
use crate::engine::Engine;
use palyra_policy::{PolicyAction, PolicyResource};
use palyra_protocol::ToolDecision;
use std::borrow::Cow;

/// Who reads a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// One who may see whole explanations.
    OfRules,
    /// One who may not.
    OfOwnCall,
}

impl Engine {
    /// What kind of reader a peer is: in whose name it acts is what counts.
    #[must_use]
    pub fn reads_explanations(&self, peer: &VerifiedPeer) -> Reader {
        match self.may(peer, PolicyAction::PolicyExplain, PolicyResource::PolicySet) {
            true => Reader::OfRules,
            false => Reader::OfOwnCall,
        }
    }
}

impl Reader {
    /// The decision as this reader may see it.
    #[must_use]
    pub fn told(self, decision: &ToolDecision) -> Cow<'_, ToolDecision> {
        match self {
            Self::OfRules => Cow::Borrowed(decision),
            Self::OfOwnCall => Cow::Owned(ToolDecision {
                explanation: serde_json::to_value(&decision.denial).unwrap_or_default(),
                basis: None,
                ..decision.clone()
            }),
        }
    }
}

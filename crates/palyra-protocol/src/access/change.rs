//! What a change of the access registry was, as the journal tells it: without any secret.

use super::{AgentRecord, GroupRecord, MemberRecord, TokenView, WorkspaceRecord, WorkspaceRole};
use crate::digest::Digest;
use crate::id::TokenId;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A change of the access registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change")]
pub enum AccessChange {
    /// A token was issued.
    #[serde(rename = "token.created")]
    TokenCreated {
        /// The token.
        token: Box<TokenView>,
    },
    /// A token's secret was replaced.
    #[serde(rename = "token.rotated")]
    TokenRotated {
        /// The token.
        token: Box<TokenView>,
        /// The tokens that were issued with it and went with its old secret.
        #[serde(default)]
        tokens_revoked: Vec<TokenId>,
    },
    /// A token was revoked.
    #[serde(rename = "token.revoked")]
    TokenRevoked {
        /// The token.
        token_id: TokenId,
        /// The tokens that were issued with it and went with it.
        #[serde(default)]
        tokens_revoked: Vec<TokenId>,
    },
    /// A person was given a role.
    #[serde(rename = "member.set")]
    MemberSet {
        /// The person and the role.
        member: MemberRecord,
        /// The role before; none for a new member.
        role_before: Option<WorkspaceRole>,
    },
    /// A person was removed.
    #[serde(rename = "member.removed")]
    MemberRemoved {
        /// The person.
        member: MemberRecord,
        /// Their tokens, which are revoked.
        #[serde(default)]
        tokens_revoked: Vec<TokenId>,
    },
    /// An agent was registered.
    #[serde(rename = "agent.added")]
    AgentAdded {
        /// The agent.
        agent: AgentRecord,
    },
    /// An agent was removed.
    #[serde(rename = "agent.removed")]
    AgentRemoved {
        /// The agent.
        agent: AgentRecord,
        /// Its tokens, which are revoked.
        #[serde(default)]
        tokens_revoked: Vec<TokenId>,
    },
    /// A group was made or changed.
    #[serde(rename = "group.set")]
    GroupSet {
        /// The group as it is now.
        group: GroupRecord,
    },
    /// A group was removed.
    #[serde(rename = "group.removed")]
    GroupRemoved {
        /// The group as it was.
        group: GroupRecord,
    },
    /// A feature flag was set.
    #[serde(rename = "feature.set")]
    FeatureSet {
        /// The flag.
        feature: String,
        /// Its value now.
        on: bool,
        /// Its value before.
        before: bool,
    },
    /// A workspace was registered.
    #[serde(rename = "workspace.added")]
    WorkspaceAdded {
        /// The workspace.
        workspace: WorkspaceRecord,
    },
    /// A workspace is registered no more.
    #[serde(rename = "workspace.removed")]
    WorkspaceRemoved {
        /// The workspace.
        workspace: WorkspaceRecord,
        /// Its tokens, which are revoked.
        #[serde(default)]
        tokens_revoked: Vec<TokenId>,
    },
    /// Somebody accepted the file as they had written it.
    #[serde(rename = "registry.accepted")]
    RegistryAccepted {
        /// SHA-256 of what was found.
        found: Option<Digest>,
    },
    /// Somebody started over.
    #[serde(rename = "registry.reset")]
    RegistryReset {
        /// Where the old file is now.
        aside: Option<PathBuf>,
    },
}

impl AccessChange {
    /// Its name, as it stands in the journal.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::TokenCreated { .. } => "token.created",
            Self::TokenRotated { .. } => "token.rotated",
            Self::TokenRevoked { .. } => "token.revoked",
            Self::MemberSet { .. } => "member.set",
            Self::MemberRemoved { .. } => "member.removed",
            Self::AgentAdded { .. } => "agent.added",
            Self::AgentRemoved { .. } => "agent.removed",
            Self::GroupSet { .. } => "group.set",
            Self::GroupRemoved { .. } => "group.removed",
            Self::FeatureSet { .. } => "feature.set",
            Self::WorkspaceAdded { .. } => "workspace.added",
            Self::WorkspaceRemoved { .. } => "workspace.removed",
            Self::RegistryAccepted { .. } => "registry.accepted",
            Self::RegistryReset { .. } => "registry.reset",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_recorded_under_its_name() {
        let feature = AccessChange::FeatureSet { feature: "api_tokens".to_owned(), on: false, before: true };
        for change in [feature, AccessChange::RegistryAccepted { found: None }] {
            let document = serde_json::to_value(&change).unwrap();
            assert_eq!(document["change"], change.name());
            assert_eq!(serde_json::from_value::<AccessChange>(document).unwrap(), change);
        }
    }
}

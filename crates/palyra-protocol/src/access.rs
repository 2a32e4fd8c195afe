//! Who has which right: roles, members, agents, groups, tokens, features.
//!
//! These are the records of the access registry, and the documents that doors and the command line show of them. A
//! token's secret is in none of them: a record holds the hash, a view not even that.

mod change;
mod token;

pub use change::AccessChange;
pub use token::{ApiTokenRecord, ChangedToken, Credential, ReplacedSecret, ShownToken, TokenState, TokenView};

use crate::clock::Timestamp;
use crate::decision::DecisionKind;
use crate::id::{ChannelId, DeviceId, TokenId, WorkspaceId, excerpt};
use crate::principal::Principal;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What somebody is to a workspace. Ordered: an owner is more than an admin, an admin more than an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceRole {
    /// Uses it.
    Operator,
    /// Manages tokens and members besides.
    Admin,
    /// Everything, including what the workspace trusts and what it is.
    Owner,
}

impl WorkspaceRole {
    /// Every role, the highest first.
    pub const ALL: [Self; 3] = [Self::Owner, Self::Admin, Self::Operator];

    /// Its name, everywhere.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Admin => "admin",
            Self::Operator => "operator",
        }
    }
}

impl fmt::Display for WorkspaceRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a text of the access registry is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessTextError {
    /// Not a role.
    #[error("`{given}` is not a role; the roles are owner, admin, operator")]
    Role {
        /// What was written.
        given: String,
    },
    /// Not a scope.
    #[error(
        "`{given}` is not a scope; write an action, like `tool.list`, or an action on one thing, like `tool.execute:palyra.fs.read`"
    )]
    Scope {
        /// What was written.
        given: String,
    },
    /// Not a group's name.
    #[error("`{given}` is not a group name; use 1 to 64 of a-z 0-9 _ -")]
    Group {
        /// What was written.
        given: String,
    },
    /// Not a member of a group.
    #[error("`{given}` is not a member of a group; write a principal (`user:NAME`, `agent:NAME`) or `group:NAME`")]
    GroupMember {
        /// What was written.
        given: String,
    },
}

impl FromStr for WorkspaceRole {
    type Err = AccessTextError;
    fn from_str(text: &str) -> Result<Self, AccessTextError> {
        let known = Self::ALL.into_iter().find(|role| role.as_str() == text);
        known.ok_or_else(|| AccessTextError::Role { given: excerpt(text) })
    }
}

macro_rules! text_type {
    ($name:ident) => {
        impl TryFrom<String> for $name {
            type Error = AccessTextError;
            fn try_from(text: String) -> Result<Self, AccessTextError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.to_string()
            }
        }
    };
}

/// What a token may do: an action of the policy, or that action on one thing (`tool.execute:palyra.fs.read`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TokenScope {
    action: String,
    only: Option<String>,
}

impl TokenScope {
    /// The longest scope.
    pub const MAX: usize = 192;

    /// An action on anything.
    ///
    /// # Errors
    /// The text cannot be an action's name.
    pub fn action_only(action: &str) -> Result<Self, AccessTextError> {
        let scope: Self = action.parse()?;
        if scope.only.is_some() {
            return Err(AccessTextError::Scope { given: excerpt(action) });
        }
        Ok(scope)
    }

    /// The action's name. Whether there is such an action, policy knows.
    #[must_use]
    pub fn action(&self) -> &str {
        &self.action
    }

    /// The one thing it is limited to.
    #[must_use]
    pub fn only(&self) -> Option<&str> {
        self.only.as_deref()
    }

    /// Whether everything that `other` allows, this one allows too.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.action == other.action && (self.only.is_none() || self.only == other.only)
    }
}

impl FromStr for TokenScope {
    type Err = AccessTextError;
    fn from_str(text: &str) -> Result<Self, AccessTextError> {
        let plain = |part: &str| {
            !part.is_empty()
                && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-/".contains(&b))
        };
        let (action, only) = match text.split_once(':') {
            Some((action, only)) => (action, Some(only)),
            None => (text, None),
        };
        if text.len() > Self::MAX || !plain(action) || !only.is_none_or(plain) {
            return Err(AccessTextError::Scope { given: excerpt(text) });
        }
        Ok(Self { action: action.to_owned(), only: only.map(str::to_owned) })
    }
}

impl fmt::Display for TokenScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.only {
            Some(only) => write!(f, "{}:{only}", self.action),
            None => f.write_str(&self.action),
        }
    }
}

text_type!(TokenScope);

/// A group's name: what rules call `Group::"name"`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GroupName(String);

impl GroupName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for GroupName {
    type Err = AccessTextError;
    fn from_str(text: &str) -> Result<Self, AccessTextError> {
        let fits = (1..=64).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b));
        if fits { Ok(Self(text.to_owned())) } else { Err(AccessTextError::Group { given: excerpt(text) }) }
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

text_type!(GroupName);

/// Who belongs to a group: a principal, or everybody in another group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum GroupMember {
    /// One principal.
    Principal(Principal),
    /// Everybody in a group.
    Group(GroupName),
}

impl FromStr for GroupMember {
    type Err = AccessTextError;
    fn from_str(text: &str) -> Result<Self, AccessTextError> {
        let error = || AccessTextError::GroupMember { given: excerpt(text) };
        match text.strip_prefix("group:") {
            Some(name) => name.parse().map(Self::Group).map_err(|_| error()),
            None => text.parse().map(Self::Principal).map_err(|_| error()),
        }
    }
}

impl fmt::Display for GroupMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Principal(principal) => principal.fmt(f),
            Self::Group(name) => write!(f, "group:{name}"),
        }
    }
}

text_type!(GroupMember);

/// A workspace that this daemon has served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceRecord {
    /// Its id.
    pub workspace_id: WorkspaceId,
    /// Its directory.
    pub root: String,
    /// Since when it is known.
    pub created_at: Timestamp,
}

/// A person's role in a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberRecord {
    /// Where.
    pub workspace: WorkspaceId,
    /// Who.
    pub principal: Principal,
    /// As what.
    pub role: WorkspaceRole,
    /// Since when, in this role.
    pub since: Timestamp,
    /// Who said so.
    pub by: Principal,
}

/// A service principal: a program with tokens of its own. It uses; it never manages, and never approves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentRecord {
    /// Who.
    pub principal: Principal,
    /// What it is for.
    pub description: String,
    /// Since when.
    pub created_at: Timestamp,
    /// Who registered it.
    pub by: Principal,
}

/// A group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupRecord {
    /// Its name.
    pub name: GroupName,
    /// Who belongs to it.
    pub members: Vec<GroupMember>,
}

/// A feature flag as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeatureView {
    /// Its name.
    pub name: String,
    /// Whether it is on.
    pub on: bool,
    /// Whether it is on unless somebody set it.
    pub default: bool,
    /// What it does.
    pub about: String,
}

/// What one may do, as far as it can be said without a particular thing to do it to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RightView {
    /// The action.
    pub action: String,
    /// On what it was asked.
    pub resource: String,
    /// What would be decided.
    pub decision: RightDecision,
    /// What decides when it is not allowed: `scope`, `role`, `policy`, or the `token` itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// Why.
    pub reason: String,
}

/// What would be decided about an action, as far as it can be said without a particular call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RightDecision {
    /// Allowed as things stand.
    Allow,
    /// Allowed only with a person's approval.
    NeedsApproval,
    /// Not allowed.
    Deny,
    /// A call's arguments decide.
    Depends,
}

impl From<DecisionKind> for RightDecision {
    fn from(kind: DecisionKind) -> Self {
        match kind {
            DecisionKind::Allow => Self::Allow,
            DecisionKind::NeedsApproval => Self::NeedsApproval,
            DecisionKind::Deny => Self::Deny,
        }
    }
}

/// Who the daemon takes a caller for, and what that allows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhoAmI {
    /// In whose name the caller acts.
    pub principal: Principal,
    /// Who the caller is, when that is somebody else: an owner acting as an agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acting_for: Option<Principal>,
    /// The role that limits it; none outside the workspace.
    pub role: Option<WorkspaceRole>,
    /// What the token is limited to; none without a token.
    pub scopes: Option<Vec<TokenScope>>,
    /// The token.
    pub token: Option<TokenId>,
    /// The paired device that the caller speaks by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceId>,
    /// Until when the token or the device's certificate holds.
    pub expires_at: Option<Timestamp>,
    /// The workspace; none where the caller named none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceRecord>,
    /// The door.
    pub channel: ChannelId,
    /// The groups that rules see it in.
    pub groups: Vec<String>,
    /// What may be done.
    pub rights: Vec<RightView>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_ordered_and_named() {
        assert!(WorkspaceRole::Owner > WorkspaceRole::Admin && WorkspaceRole::Admin > WorkspaceRole::Operator);
        for role in WorkspaceRole::ALL {
            assert_eq!(role.as_str().parse(), Ok(role));
        }
        assert!("Owner".parse::<WorkspaceRole>().is_err());
    }

    #[test]
    fn scopes_are_an_action_or_an_action_on_one_thing() {
        let wide: TokenScope = "tool.execute".parse().unwrap();
        let narrow: TokenScope = "tool.execute:palyra.fs.read".parse().unwrap();
        assert!(wide.covers(&narrow) && wide.covers(&wide) && narrow.covers(&narrow));
        assert!(!narrow.covers(&wide) && !wide.covers(&"tool.list".parse().unwrap()));
        for bad in ["", ":", "tool.execute:", ":x", "Tool.List", "tool list", "a:b:c", "*", &"x".repeat(193)] {
            assert!(bad.parse::<TokenScope>().is_err(), "{bad}");
        }
    }

    #[test]
    fn group_members_are_principals_or_groups() {
        assert_eq!("group:ops".parse(), Ok(GroupMember::Group("ops".parse().unwrap())));
        assert_eq!("user:ana".parse(), Ok(GroupMember::Principal("user:ana".parse().unwrap())));
        for bad in ["ops", "group:", "group:Ops", "user:*", "user:A"] {
            assert!(bad.parse::<GroupMember>().is_err(), "{bad}");
        }
    }
}

//! Who has which right: roles, members, agents, groups, tokens, features.
//!
//! These are the records of the access registry, and the documents that doors and the command line show of them. A
//! token's secret is in none of them: a record holds the hash, a view not even that.

use crate::clock::Timestamp;
use crate::digest::Digest;
use crate::id::{ChannelId, TokenId, WorkspaceId, excerpt};
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

/// A secret that was replaced and still holds for a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplacedSecret {
    /// SHA-256 of the whole token.
    pub token_hash_sha256: Digest,
    /// Until when it holds.
    pub valid_until: Timestamp,
    /// The token it was issued with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issued_with: Option<TokenId>,
    /// Everybody who had a hand in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub issuers: Vec<Principal>,
}

/// A token as the registry keeps it: nothing in it lets anybody in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiTokenRecord {
    /// Its id; a token begins with `palyra_` and the id's own part.
    pub token_id: TokenId,
    /// What it is for.
    pub label: String,
    /// SHA-256 of the whole token.
    pub token_hash_sha256: Digest,
    /// The secret before the last rotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced: Option<ReplacedSecret>,
    /// Who speaks when it is shown.
    pub principal: Principal,
    /// The role it is limited to.
    pub role: WorkspaceRole,
    /// The workspace it opens.
    pub workspace: WorkspaceId,
    /// What it may do.
    pub scopes: Vec<TokenScope>,
    /// How many requests a minute.
    pub rate_per_minute: u32,
    /// Since when.
    pub created_at: Timestamp,
    /// Who issued it.
    pub by: Principal,
    /// The token that its secret was issued with; none on the daemon's own socket. When that one is withdrawn, so is
    /// this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issued_with: Option<TokenId>,
    /// Everybody who had a hand in its secret: whoever issued it, and whoever issued the token it was issued with. Any
    /// of them may know it. Records of earlier versions name `by` alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub issuers: Vec<Principal>,
    /// Until when.
    pub expires_at: Timestamp,
    /// When its secret was last replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotated_at: Option<Timestamp>,
    /// When it was withdrawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
}

impl ApiTokenRecord {
    /// What every text of this token begins with. Not secret.
    #[must_use]
    pub fn prefix(&self) -> String {
        format!("palyra_{}", self.token_id.body())
    }

    /// Everybody who had a hand in the secret that holds.
    #[must_use]
    pub fn issuers(&self) -> &[Principal] {
        if self.issuers.is_empty() { std::slice::from_ref(&self.by) } else { &self.issuers }
    }

    /// Everybody who had a hand in the secret before the last rotation.
    #[must_use]
    pub fn replaced_issuers(&self) -> &[Principal] {
        match &self.replaced {
            Some(replaced) if !replaced.issuers.is_empty() => &replaced.issuers,
            Some(_) => std::slice::from_ref(&self.by),
            None => &[],
        }
    }

    /// The tokens that brought its secrets about: that of the one that holds, and of the one before while it does.
    pub fn issued_with(&self, now: Timestamp) -> impl Iterator<Item = &TokenId> {
        let replaced = self.replaced.as_ref().filter(|replaced| now < replaced.valid_until);
        self.issued_with.iter().chain(replaced.and_then(|replaced| replaced.issued_with.as_ref()))
    }

    /// Where it stands.
    #[must_use]
    pub fn state(&self, now: Timestamp) -> TokenState {
        if self.revoked_at.is_some() {
            TokenState::Revoked
        } else if now >= self.expires_at {
            TokenState::Expired
        } else {
            TokenState::Active
        }
    }

    /// What may be shown of it.
    #[must_use]
    pub fn view(&self, now: Timestamp, last_used_at: Option<Timestamp>) -> TokenView {
        let overlap = self.replaced.as_ref().map(|r| r.valid_until).filter(|until| *until > now);
        TokenView {
            token_id: self.token_id.clone(),
            prefix: self.prefix(),
            label: self.label.clone(),
            state: self.state(now),
            principal: self.principal.clone(),
            role: self.role,
            workspace: self.workspace.clone(),
            scopes: self.scopes.clone(),
            rate_per_minute: self.rate_per_minute,
            created_at: self.created_at,
            by: self.by.clone(),
            issued_with: self.issued_with.clone(),
            issuers: self.issuers().to_vec(),
            expires_at: self.expires_at,
            rotated_at: self.rotated_at,
            replaced_secret_valid_until: overlap,
            revoked_at: self.revoked_at,
            last_used_at,
        }
    }
}

/// Where a token stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenState {
    /// It opens.
    Active,
    /// Its time is over.
    Expired,
    /// It was withdrawn.
    Revoked,
}

impl TokenState {
    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

/// A token as it is shown: no secret, no hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenView {
    /// Its id.
    pub token_id: TokenId,
    /// What its text begins with.
    pub prefix: String,
    /// What it is for.
    pub label: String,
    /// Where it stands.
    pub state: TokenState,
    /// Who speaks when it is shown.
    pub principal: Principal,
    /// The role it is limited to.
    pub role: WorkspaceRole,
    /// The workspace it opens.
    pub workspace: WorkspaceId,
    /// What it may do.
    pub scopes: Vec<TokenScope>,
    /// How many requests a minute.
    pub rate_per_minute: u32,
    /// Since when.
    pub created_at: Timestamp,
    /// Who issued it.
    pub by: Principal,
    /// The token that its secret was issued with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issued_with: Option<TokenId>,
    /// Everybody who had a hand in its secret, and may know it.
    #[serde(default)]
    pub issuers: Vec<Principal>,
    /// Until when.
    pub expires_at: Timestamp,
    /// When its secret was last replaced.
    pub rotated_at: Option<Timestamp>,
    /// Until when the secret before that still holds.
    pub replaced_secret_valid_until: Option<Timestamp>,
    /// When it was withdrawn.
    pub revoked_at: Option<Timestamp>,
    /// When it was last shown with success, as far as is known.
    pub last_used_at: Option<Timestamp>,
}

/// The token by which somebody spoke, as it stood when they did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownToken {
    /// The token.
    pub token_id: TokenId,
    /// The role that it left its principal: rules see this one, whatever the principal is without it.
    pub role: WorkspaceRole,
    /// Everybody who had a hand in its secret. Any of them could have spoken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub issuers: Vec<Principal>,
}

/// A token that was withdrawn or whose secret was replaced, and those that went with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedToken {
    /// The token.
    #[serde(flatten)]
    pub token: TokenView,
    /// The tokens that were issued with it and are withdrawn as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub issued_revoked: Vec<TokenId>,
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
    /// `allow`, `needs_approval` or `deny`; `depends` where a call's arguments decide.
    pub decision: String,
    /// What decides when it is not allowed: `scope`, `role`, `policy`, or the `token` itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// Why.
    pub reason: String,
}

impl RightView {
    /// The decision where a call's arguments decide.
    pub const DEPENDS: &str = "depends";
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
    /// Until when the token holds.
    pub expires_at: Option<Timestamp>,
    /// The workspace.
    pub workspace: WorkspaceRecord,
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

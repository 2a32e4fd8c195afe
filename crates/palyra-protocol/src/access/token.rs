//! Tokens: as the registry keeps them, as they are shown, and as records name them. The secret is in none of these.

use super::{TokenScope, WorkspaceRole};
use crate::clock::Timestamp;
use crate::digest::Digest;
use crate::id::{DeviceId, TokenId, WorkspaceId};
use crate::principal::Principal;
use serde::{Deserialize, Serialize};
use std::fmt;

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

/// What somebody speaks by: a token, or the certificate of a paired device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Credential {
    /// A token.
    #[serde(rename = "token_id")]
    Token(TokenId),
    /// A paired device's certificate.
    #[serde(rename = "device_id")]
    Device(DeviceId),
}

impl Credential {
    /// The token, where it is one.
    #[must_use]
    pub fn token_id(&self) -> Option<&TokenId> {
        match self {
            Self::Token(id) => Some(id),
            Self::Device(_) => None,
        }
    }

    /// The device, where it is one.
    #[must_use]
    pub fn device_id(&self) -> Option<&DeviceId> {
        match self {
            Self::Token(_) => None,
            Self::Device(id) => Some(id),
        }
    }
}

impl fmt::Display for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token(id) => id.fmt(f),
            Self::Device(id) => id.fmt(f),
        }
    }
}

/// The token or device by which somebody spoke, as it stood when they did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownToken {
    /// The token, or the device: `token_id` or `device_id`.
    #[serde(flatten)]
    pub credential: Credential,
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

//! How far a caller's own rights go, and so how far the rights that it gives can go.

use crate::document::RegistryDocument;
use crate::error::AccessError;
use crate::rights::{kind_may_hold, role_has};
use crate::state::Admitted;
use palyra_protocol::access::TokenScope;
use palyra_protocol::{PolicyAction, Principal, PrincipalKind, Timestamp, TokenId, WorkspaceId, WorkspaceRole};
use std::collections::BTreeSet;

/// Somebody who is about to change the registry.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) principal: Principal,
    role: Option<WorkspaceRole>,
    token: Option<Admitted>,
}

/// A token that is to be issued, or whose secret is to be replaced.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) principal: &'a Principal,
    /// What its principal is here.
    pub(crate) standing: WorkspaceRole,
    pub(crate) role: WorkspaceRole,
    pub(crate) scopes: &'a [TokenScope],
    pub(crate) rate_per_minute: u32,
    pub(crate) expires_at: Timestamp,
}

impl Standing {
    /// What somebody holds by the document that is about to change.
    pub(crate) fn in_document(
        document: &RegistryDocument,
        workspace: &WorkspaceId,
        principal: Principal,
        token: Option<Admitted>,
    ) -> Self {
        let by_document = document.role_of(workspace, &principal);
        let role = match &token {
            Some(token) => by_document.map(|role| role.min(token.role())),
            None => by_document,
        };
        Self { principal, role, token }
    }

    /// The token that they show.
    pub(crate) fn token_id(&self) -> Option<&TokenId> {
        self.token.as_ref().and_then(Admitted::token_id)
    }

    /// Everybody who has a hand in what they issue: they themselves, and those who issued the token that they show.
    pub(crate) fn issuers(&self) -> Vec<Principal> {
        let before = self.token.iter().flat_map(|token| token.issuers().iter());
        let all: BTreeSet<_> = std::iter::once(&self.principal).chain(before).collect();
        all.into_iter().cloned().collect()
    }

    /// How many requests a minute what they issue can have at most, where that is limited.
    pub(crate) fn rate_per_minute(&self) -> Option<u32> {
        self.token.as_ref().map(Admitted::rate_per_minute)
    }

    /// Only those who may say what the workspace is.
    pub(crate) fn must_own(&self, what: &'static str) -> Result<(), AccessError> {
        if self.role == Some(WorkspaceRole::Owner) { Ok(()) } else { Err(AccessError::OnlyOwners(what)) }
    }

    /// Groups, features and agents are the same in every workspace, so only those who own all that are concerned say
    /// what becomes of them.
    pub(crate) fn must_own_all<'w>(
        &self,
        document: &RegistryDocument,
        mut workspaces: impl Iterator<Item = &'w WorkspaceId>,
        what: &'static str,
    ) -> Result<(), AccessError> {
        self.must_own(what)?;
        match workspaces.find(|id| document.role_of(id, &self.principal) != Some(WorkspaceRole::Owner)) {
            Some(_) => Err(AccessError::OnlyOwnersOfAll(what)),
            None => Ok(()),
        }
    }

    /// Nobody gives a role above their own, and nobody touches somebody above them.
    pub(crate) fn must_reach(&self, role: WorkspaceRole) -> Result<(), AccessError> {
        if self.role.is_some_and(|own| own >= role) {
            return Ok(());
        }
        Err(AccessError::RoleTooLow { principal: self.principal.clone(), role: self.role, needed: role })
    }

    /// Whether a token may be issued: nothing in it may go beyond what its issuer holds, and nobody is made to speak as
    /// an equal or better of theirs.
    pub(crate) fn may_issue(&self, wanted: Wanted<'_>) -> Result<(), AccessError> {
        let Wanted { principal, standing, role, scopes, .. } = wanted;
        if role > standing {
            return Err(AccessError::RoleBeyondPrincipal { principal: principal.clone(), standing, role });
        }
        self.must_reach(role)?;
        let speaks_for_another = principal.kind() == PrincipalKind::User && *principal != self.principal;
        if speaks_for_another && self.role != Some(WorkspaceRole::Owner) && self.role <= Some(standing) {
            return Err(AccessError::SpeaksAsEqual { principal: principal.clone(), issuer: self.principal.clone() });
        }
        for scope in scopes {
            let action: PolicyAction =
                scope.action().parse().map_err(|source| AccessError::UnknownScope { scope: scope.clone(), source })?;
            if !kind_may_hold(principal.kind(), action) {
                return Err(AccessError::AgentsNeverHold { principal: principal.clone(), action });
            }
            if !role_has(role, action) {
                return Err(AccessError::ScopeBeyondRole { role, action });
            }
            let held = self.token.as_ref().is_none_or(|token| token.scopes().iter().any(|own| own.covers(scope)));
            if !held {
                return Err(AccessError::ScopeNotHeld(scope.clone()));
            }
        }
        match &self.token {
            Some(own) if wanted.expires_at > own.expires_at() => Err(AccessError::OutlivesIssuer),
            Some(own) if wanted.rate_per_minute > own.rate_per_minute() => {
                Err(AccessError::FasterThanIssuer(own.rate_per_minute()))
            }
            _ => Ok(()),
        }
    }
}

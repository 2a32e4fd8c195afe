//! How far somebody's own rights go, and so how far what they give can go.

use super::document::RegistryDocument;
use super::rights::{kind_may_hold, role_has};
use super::state::Admitted;
use crate::error::{EngineError, ErrorKind};
use palyra_policy::PolicyAction;
use palyra_protocol::access::TokenScope;
use palyra_protocol::{Principal, PrincipalKind, Problem, Timestamp, TokenId, WorkspaceId, WorkspaceRole};
use std::collections::BTreeSet;

/// Somebody who is about to change the registry.
#[derive(Debug)]
pub(super) struct Standing {
    pub(super) principal: Principal,
    role: Option<WorkspaceRole>,
    token: Option<Admitted>,
}

/// A token that is to be issued, or whose secret is to be replaced.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) principal: &'a Principal,
    /// What its principal is here.
    pub(super) standing: WorkspaceRole,
    pub(super) role: WorkspaceRole,
    pub(super) scopes: &'a [TokenScope],
    pub(super) rate_per_minute: u32,
    pub(super) expires_at: Timestamp,
}

pub(super) fn beyond(what: impl Into<String>) -> EngineError {
    let problem = Problem::new("more_than_held", what, "ask an owner to do it");
    EngineError::new(ErrorKind::Forbidden, problem)
}

impl Standing {
    /// What somebody holds by the document that is about to change.
    pub(super) fn in_document(
        document: &RegistryDocument,
        workspace: &WorkspaceId,
        principal: Principal,
        token: Option<Admitted>,
    ) -> Self {
        let by_document = document.role_of(workspace, &principal);
        let role = match &token {
            Some(token) => by_document.map(|role| role.min(token.role)),
            None => by_document,
        };
        Self { principal, role, token }
    }

    /// The token that they show.
    pub(super) fn token_id(&self) -> Option<&TokenId> {
        self.token.as_ref().map(|token| &token.token_id)
    }

    /// Everybody who has a hand in what they issue: they themselves, and those who issued the token that they show.
    pub(super) fn issuers(&self) -> Vec<Principal> {
        let before = self.token.iter().flat_map(|token| token.issuers.iter());
        let all: BTreeSet<_> = std::iter::once(&self.principal).chain(before).collect();
        all.into_iter().cloned().collect()
    }

    /// How many requests a minute what they issue can have at most, where that is limited.
    pub(super) fn rate_per_minute(&self) -> Option<u32> {
        self.token.as_ref().map(|token| token.rate_per_minute)
    }

    /// Only those who may say what the workspace is.
    pub(super) fn must_own(&self, what: &str) -> Result<(), EngineError> {
        if self.role == Some(WorkspaceRole::Owner) { Ok(()) } else { Err(beyond(format!("only owners {what}"))) }
    }

    /// Groups, features and agents are the same in every workspace, so only those who own all that are concerned say
    /// what becomes of them.
    pub(super) fn must_own_all<'w>(
        &self,
        document: &RegistryDocument,
        mut workspaces: impl Iterator<Item = &'w WorkspaceId>,
        what: &str,
    ) -> Result<(), EngineError> {
        self.must_own(what)?;
        match workspaces.find(|id| document.role_of(id, &self.principal) != Some(WorkspaceRole::Owner)) {
            Some(_) => Err(beyond(format!("another workspace is concerned, and only those who own it too {what}"))),
            None => Ok(()),
        }
    }

    /// Nobody gives a role above their own, and nobody touches somebody above them.
    pub(super) fn must_reach(&self, role: WorkspaceRole) -> Result<(), EngineError> {
        if self.role.is_some_and(|own| own >= role) {
            return Ok(());
        }
        let own = self.role.map_or("nobody", WorkspaceRole::as_str);
        Err(beyond(format!("`{}` is {own} here, and this takes {role}", self.principal)))
    }

    /// Whether a token may be issued: nothing in it may go beyond what its issuer holds, and nobody is made to speak as an
    /// equal or better of theirs.
    pub(super) fn may_issue(&self, wanted: Wanted<'_>) -> Result<(), EngineError> {
        let Wanted { principal, standing, role, scopes, .. } = wanted;
        if role > standing {
            return Err(EngineError::invalid(
                "role_beyond_principal",
                format!("`{principal}` is {standing} here, so a token of theirs cannot be {role}"),
                "give the token a lower role, or the person a higher one: `palyra access member role`",
            ));
        }
        self.must_reach(role)?;
        let speaks_for_another = principal.kind() == PrincipalKind::User && *principal != self.principal;
        if speaks_for_another && self.role != Some(WorkspaceRole::Owner) && self.role <= Some(standing) {
            return Err(beyond(format!("a token of `{principal}` would speak as an equal of `{}`", self.principal)));
        }
        for scope in scopes {
            let action: PolicyAction = scope.action().parse().map_err(|e: palyra_policy::UnknownAction| {
                EngineError::invalid("unknown_scope", format!("`{scope}`: {e}"), "write the name of an action")
            })?;
            if !kind_may_hold(principal.kind(), action) {
                return Err(EngineError::new(
                    ErrorKind::Forbidden,
                    Problem::new(
                        "agents_never_hold",
                        format!("`{principal}` is a program, and programs never do `{action}`"),
                        "issue the token to a person, or leave this scope out",
                    ),
                ));
            }
            if !role_has(role, action) {
                return Err(EngineError::invalid(
                    "scope_beyond_role",
                    format!("the role {role} does not include `{action}`"),
                    "leave this scope out, or give the token a higher role with `--role`",
                ));
            }
            let held = self.token.as_ref().is_none_or(|token| token.scopes.iter().any(|own| own.covers(scope)));
            if !held {
                return Err(beyond(format!("the token that issues this one lacks the scope `{scope}`")));
            }
        }
        match &self.token {
            Some(own) if wanted.expires_at > own.expires_at => {
                Err(beyond("a token does not issue one that outlives it"))
            }
            Some(own) if wanted.rate_per_minute > own.rate_per_minute => {
                let most = own.rate_per_minute;
                Err(beyond(format!("a token of {most} requests a minute does not issue one of more")))
            }
            _ => Ok(()),
        }
    }
}

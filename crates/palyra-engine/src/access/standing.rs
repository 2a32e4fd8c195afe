//! How far somebody's own rights go, and so how far what they give can go.

use super::document::RegistryDocument;
use super::rights::{kind_may_hold, role_has};
use super::state::Admitted;
use crate::error::{EngineError, ErrorKind};
use palyra_policy::PolicyAction;
use palyra_protocol::access::TokenScope;
use palyra_protocol::{Principal, PrincipalKind, Problem, Timestamp, WorkspaceId, WorkspaceRole};
use std::sync::Arc;

/// Somebody who is about to change the registry.
#[derive(Debug)]
pub(super) struct Standing {
    pub(super) principal: Principal,
    role: Option<WorkspaceRole>,
    scopes: Option<Arc<[TokenScope]>>,
    expires_at: Option<Timestamp>,
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
        token: Option<&Admitted>,
    ) -> Self {
        let by_document = document.role_of(workspace, &principal);
        let role = match token {
            Some(token) => by_document.map(|role| role.min(token.role)),
            None => by_document,
        };
        Self {
            principal,
            role,
            scopes: token.map(|token| Arc::clone(&token.scopes)),
            expires_at: token.map(|token| token.expires_at),
        }
    }

    /// Only those who may say what the workspace is.
    pub(super) fn must_own(&self, what: &str) -> Result<(), EngineError> {
        if self.role == Some(WorkspaceRole::Owner) { Ok(()) } else { Err(beyond(format!("only owners {what}"))) }
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
    pub(super) fn may_issue(
        &self,
        to: (&Principal, WorkspaceRole),
        role: WorkspaceRole,
        scopes: &[TokenScope],
        expires_at: Timestamp,
    ) -> Result<(), EngineError> {
        let (principal, standing) = to;
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
            let held = self.scopes.as_deref().is_none_or(|own| own.iter().any(|own| own.covers(scope)));
            if !held {
                return Err(beyond(format!("the token that issues this one lacks the scope `{scope}`")));
            }
        }
        match self.expires_at {
            Some(own) if expires_at > own => Err(beyond("a token does not issue one that outlives it")),
            _ => Ok(()),
        }
    }
}

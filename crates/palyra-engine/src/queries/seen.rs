//! What a listing shows: every question, grant and tool is asked about by itself.
//!
//! The right to a listing is the right to ask for one. What is in it is decided item by item, so that a rule about one
//! agent's questions, or about one tool, holds in every listing. What somebody may not see looks like something that is
//! not there.

use crate::access::VerifiedPeer;
use crate::catalog::CatalogTool;
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use palyra_journal::JournalError;
use palyra_policy::{PolicyAction, PolicyExplanation, PolicyRequest, PolicyRequestContext, PolicyResource};
use palyra_protocol::access::TokenScope;
use palyra_protocol::{ApprovalId, ApprovalRecord, GrantRecord, Principal, Problem, WorkspaceId};

impl Engine {
    /// What is known of every request that comes through a door: the door, and the workspace behind it.
    pub(crate) fn at_door(&self, peer: &VerifiedPeer) -> PolicyRequestContext {
        self.placed(peer, PolicyRequestContext::new(peer.channel().clone()))
    }

    /// The circumstances with the workspace that they are in: where none is given, the peer's.
    pub(crate) fn placed(&self, peer: &VerifiedPeer, mut context: PolicyRequestContext) -> PolicyRequestContext {
        context.workspace = context.workspace.or_else(|| self.root_of(peer));
        context
    }

    /// The circumstances in the workspace that a record names.
    pub(crate) fn placed_at(
        &self,
        workspace: Option<&WorkspaceId>,
        context: PolicyRequestContext,
    ) -> PolicyRequestContext {
        let root = workspace.and_then(|id| self.workspaces().record(id)).map(|record| record.root.clone());
        PolicyRequestContext { workspace: root.or(context.workspace), ..context }
    }

    fn owned(&self, peer: &VerifiedPeer, owner: &Principal) -> PolicyRequestContext {
        PolicyRequestContext { owned_by: Some(owner.clone()), ..self.at_door(peer) }
    }

    /// Whether an approval is asked where the peer works. What is about no call and no workspace, like a device, is asked
    /// everywhere.
    pub(crate) fn is_asked_here(&self, peer: &VerifiedPeer, asked: &ApprovalRecord) -> bool {
        let everywhere = asked.workspace.is_none() && !asked.subject.is_call();
        everywhere || self.is_here(peer, asked.workspace.as_ref())
    }

    /// Whether the peer may see this question.
    #[must_use]
    pub fn sees_approval(&self, peer: &VerifiedPeer, asked: &ApprovalRecord) -> bool {
        if !self.is_asked_here(peer, asked) {
            return false;
        }
        let context = PolicyRequestContext {
            proposed_by: Some(asked.proposed_by.clone()),
            session_id: Some(asked.session.clone()),
            ..self.placed_at(asked.workspace.as_ref(), self.owned(peer, &asked.principal))
        };
        let (action, resource) = (PolicyAction::ApprovalList, PolicyResource::Approval(asked.approval_id.to_string()));
        self.would_allow(peer, action, resource, &context)
    }

    pub(crate) fn sees_grant(&self, peer: &VerifiedPeer, grant: &GrantRecord) -> bool {
        if !self.is_here(peer, grant.workspace.as_deref().map(|root| self.id_of_root(root)).as_ref()) {
            return false;
        }
        let context = PolicyRequestContext { session_id: grant.session.clone(), ..self.owned(peer, &grant.principal) };
        let (action, resource) = (PolicyAction::GrantList, PolicyResource::Grant(grant.grant_id.to_string()));
        self.would_allow(peer, action, resource, &context)
    }

    pub(crate) fn sees_tool(&self, peer: &VerifiedPeer, tool: &CatalogTool) -> bool {
        let capabilities = tool.metadata().capabilities.iter().copied().collect();
        let context = PolicyRequestContext { capabilities, ..self.at_door(peer) };
        let (action, resource) = (PolicyAction::ToolList, PolicyResource::Tool(tool.name().to_string()));
        self.would_allow(peer, action, resource, &context)
    }

    /// A token for one tool is for a tool that there is.
    pub(crate) fn check_scopes(&self, scopes: &[TokenScope]) -> Result<(), EngineError> {
        let of_tools = [PolicyAction::ToolExecute.as_str(), PolicyAction::ToolList.as_str()];
        let catalog = self.catalog();
        for scope in scopes.iter().filter(|scope| of_tools.contains(&scope.action())) {
            if let Some(Err(problem)) = scope.only().map(|tool| catalog.find(tool)) {
                return Err(EngineError::new(ErrorKind::Invalid, problem));
            }
        }
        Ok(())
    }

    /// What policy is told about the withdrawal of a grant; of one that is not there, nothing.
    pub(crate) fn withdrawing(&self, peer: &VerifiedPeer, grant: Option<&GrantRecord>) -> PolicyRequestContext {
        grant.map_or_else(|| self.at_door(peer), |grant| self.owned(peer, &grant.principal))
    }
}

/// A question that is not there, or not for the one who asks.
pub(crate) fn no_such_approval(id: &ApprovalId) -> EngineError {
    JournalError::NotFound { what: "approval", id: id.to_string() }.into()
}

/// What somebody is told whom policy refuses something else than a call.
pub(crate) fn forbidden(request: &PolicyRequest, explanation: &PolicyExplanation) -> EngineError {
    let denial = explanation.denial();
    // What fails inside a rule is for those who may read the rules.
    let why = match explanation.errors() {
        [] => explanation.summary(),
        _ => "the rules could not be evaluated".to_owned(),
    };
    let message = format!("`{}` may not do `{}`: {why}", request.principal, request.action.as_str());
    let hint = Some(format!("{}; `palyra access whoami` shows what you may do", denial.ask_for.trim_end_matches('.')));
    let problem = Problem { hint, denial: Some(Box::new(denial)), ..Problem::plain("forbidden", message) };
    EngineError::new(ErrorKind::Forbidden, problem)
}

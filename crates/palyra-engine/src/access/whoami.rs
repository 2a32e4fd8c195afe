//! Who the daemon takes a caller for, and what that allows: asked of the same functions that calls ask.

use super::{VerifiedPeer, as_shown};
use crate::catalog::CatalogTool;
use crate::engine::Engine;
use crate::error::EngineError;
use palyra_access::Admitted;
use palyra_access::rights::Shortfall;
use palyra_policy::{PolicyAction, PolicyRequest, PolicyRequestContext, PolicyResource, Verdict};
use palyra_protocol::DecisionKind;
use palyra_protocol::access::{RightDecision, RightView, WhoAmI};
use std::sync::Arc;

/// A name for something that need not exist.
const ANY: &str = "any";

impl Engine {
    /// Who the caller is, and what they may do.
    ///
    /// # Errors
    /// The caller may not even know that.
    pub fn whoami(&self, peer: &VerifiedPeer) -> Result<WhoAmI, EngineError> {
        self.authorize(peer, PolicyAction::AccessRead, PolicyResource::Daemon, None)?;
        let principal = peer.effective().clone();
        // Whoever acts as an agent has the agent's place.
        let own = self.role_of(peer);
        let role = match peer.token() {
            Some(token) => own.map(|role| role.min(token.role())),
            None => own,
        };
        let policy = self.policy();
        Ok(WhoAmI {
            acting_for: (principal != *peer.principal()).then(|| peer.principal().clone()),
            role,
            // A device is limited by its role alone.
            scopes: peer.token().filter(|token| token.device_id().is_none()).map(|token| token.scopes().to_vec()),
            token: peer.token().and_then(|token| token.token_id().cloned()),
            device: peer.token().and_then(|token| token.device_id().cloned()),
            expires_at: peer.token().map(Admitted::expires_at),
            workspace: peer.workspace().cloned(),
            channel: peer.channel().clone(),
            groups: policy.membership().groups_of(&principal).map(str::to_owned).collect(),
            rights: self.rights(peer),
            principal,
        })
    }

    fn rights(&self, peer: &VerifiedPeer) -> Vec<RightView> {
        let mut rights = Vec::new();
        for action in PolicyAction::ALL {
            match action {
                // Asked about a call, never done.
                PolicyAction::ApprovalWaive => {}
                PolicyAction::ToolExecute => {
                    rights.extend(self.catalog().iter().map(|tool| self.right_to_call(peer, tool)));
                }
                action => rights.push(self.right(peer, *action)),
            }
        }
        rights
    }

    /// The tools that the caller may see and may call, or at least ask a person for, with some arguments or other.
    ///
    /// # Errors
    /// The peer may not know.
    pub fn callable(&self, peer: &VerifiedPeer) -> Result<Vec<Arc<CatalogTool>>, EngineError> {
        self.authorize(peer, PolicyAction::ToolList, PolicyResource::Daemon, None)?;
        let denied = |tool: &CatalogTool| self.right_to_call(peer, tool).decision == RightDecision::Deny;
        let catalog = self.catalog();
        Ok(catalog.iter().filter(|tool| self.sees_tool(peer, tool) && !denied(tool)).cloned().collect())
    }

    /// What would be decided about a call of a tool whose arguments touch nothing in particular; where it is the
    /// arguments that decide, that they do.
    fn right_to_call(&self, peer: &VerifiedPeer, tool: &CatalogTool) -> RightView {
        let name = tool.name().as_str();
        let context = PolicyRequestContext {
            proposed_by: Some(peer.principal().clone()),
            tool: Some(name.to_owned()),
            is_allowlisted_tool: self.config().allowed_tools.contains(tool.name()),
            ..self.placed(
                peer,
                PolicyRequestContext::for_tool(peer.channel().clone(), tool.metadata(), Default::default()),
            )
        };
        self.asked(peer, PolicyAction::ToolExecute, PolicyResource::Tool(name.to_owned()), context)
    }

    fn right(&self, peer: &VerifiedPeer, action: PolicyAction) -> RightView {
        let resource = something(action);
        // A call or token of one's own: the rules' "one's own" is what most callers can do.
        let context = PolicyRequestContext { owned_by: Some(peer.effective().clone()), ..self.at_door(peer) };
        self.asked(peer, action, resource, context)
    }

    fn asked(
        &self,
        peer: &VerifiedPeer,
        action: PolicyAction,
        resource: PolicyResource,
        context: PolicyRequestContext,
    ) -> RightView {
        let shown = if resource.name() == ANY { ANY.to_owned() } else { resource.to_string() };
        let token = self.is_room(peer, peer.effective(), action, Some(&resource));
        if let Err((shortfall, error)) = token {
            let (by, reason) = match shortfall {
                Some(Shortfall::Scope) => ("scope", "this token is not for it".to_owned()),
                Some(Shortfall::Kind) => ("role", "programs never do this".to_owned()),
                Some(Shortfall::Role) => ("role", "the role does not include it".to_owned()),
                None => ("token", error.problem.message),
            };
            return RightView {
                action: action.as_str().to_owned(),
                resource: shown,
                decision: RightDecision::Deny,
                decided_by: Some(by.to_owned()),
                reason,
            };
        }
        let context = as_shown(context, token.ok().flatten().as_ref(), peer.effective());
        let request = PolicyRequest { principal: peer.effective().clone(), action, resource };
        let verdict = self.policy().decide(&request, &context);
        // Only calls wait for a person; for anything else an approval is no way out.
        let kind = match (&verdict, action) {
            (Verdict::NeedsApproval { .. }, PolicyAction::ToolExecute | PolicyAction::SkillExecute) => verdict.kind(),
            (Verdict::NeedsApproval { .. }, _) => DecisionKind::Deny,
            _ => verdict.kind(),
        };
        if kind == DecisionKind::Deny && verdict.explanation().hinges_on_arguments() {
            return RightView {
                action: action.as_str().to_owned(),
                resource: shown,
                decision: RightDecision::Depends,
                decided_by: Some("policy".to_owned()),
                reason: "it depends on the arguments; `palyra policy explain` tells for a call".to_owned(),
            };
        }
        RightView {
            action: action.as_str().to_owned(),
            resource: shown,
            decision: kind.into(),
            decided_by: (kind != DecisionKind::Allow).then(|| "policy".to_owned()),
            reason: verdict.explanation().summary(),
        }
    }
}

/// Something that an action can be done to.
pub(super) fn something(action: PolicyAction) -> PolicyResource {
    use PolicyAction as A;
    let any = || ANY.to_owned();
    match action {
        A::ToolExecute | A::ApprovalWaive | A::EffectApply => PolicyResource::Tool(any()),
        A::SkillExecute | A::SkillManage => PolicyResource::Skill(any()),
        A::ApprovalDecide => PolicyResource::Approval(any()),
        A::GrantRevoke => PolicyResource::Grant(any()),
        A::CallRead | A::CallCancel | A::EffectRead | A::EffectUndo => PolicyResource::Call(any()),
        A::VaultGet | A::VaultPut | A::VaultDelete => PolicyResource::Secret(any()),
        A::MemorySearch | A::MemoryRetain | A::MemoryForget => PolicyResource::Memory(any()),
        A::CronCreate | A::CronRun | A::CronDelete => PolicyResource::CronJob(any()),
        A::RunRead | A::RunCancel => PolicyResource::Run(any()),
        A::ModelInvoke => PolicyResource::Model(any()),
        A::ActAs => PolicyResource::Agent(any()),
        A::TokenRotate | A::TokenRevoke => PolicyResource::Token(any()),
        A::DeviceRevoke => PolicyResource::Device(any()),
        A::JournalRead | A::JournalVerify | A::JournalCheckpoint => PolicyResource::Journal,
        A::PolicyExplain | A::PolicyShow | A::PolicyReload | A::PolicySimulate => PolicyResource::PolicySet,
        A::RunStart
        | A::CompatChatCreate
        | A::CompatModelsList
        | A::ToolList
        | A::DaemonStatus
        | A::DaemonStop
        | A::ApprovalList
        | A::GrantList
        | A::AccessRead
        | A::TokenCreate
        | A::TokenList
        | A::MemberList
        | A::MemberManage
        | A::AgentManage
        | A::FeatureList
        | A::FeatureSet
        | A::DeviceList
        | A::SkillList
        | A::DevicePair
        | A::VaultList
        | A::CronList
        | A::ConsoleOpen
        | A::ConsoleManage
        | A::WorkspaceManage
        | A::VaultManage => PolicyResource::Daemon,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palyra_access::rights::role_has;
    use palyra_policy::{Membership, PolicyDecision, PolicyEngine};
    use palyra_protocol::{Principal, WorkspaceRole};

    /// What a role leaves room for and no default rule gives: secrets are given one by one, and nobody waives by
    /// default.
    const LEFT_TO_OPERATORS: [PolicyAction; 2] = [PolicyAction::VaultGet, PolicyAction::ApprovalWaive];

    /// A table that promises what policy then denies would be no promise.
    #[test]
    fn the_default_rules_give_what_the_table_promises() {
        let engine = PolicyEngine::with_defaults(&Membership::single_user()).unwrap();
        let person: Principal = "user:mia".parse().unwrap();
        for role in WorkspaceRole::ALL {
            for action in PolicyAction::ALL.iter().copied().filter(|action| role_has(role, *action)) {
                let request = PolicyRequest { principal: person.clone(), action, resource: something(action) };
                let context = PolicyRequestContext {
                    role: Some(role),
                    owned_by: Some(person.clone()),
                    is_allowlisted_tool: true,
                    ..PolicyRequestContext::new("http".parse().unwrap())
                };
                let allowed = engine.evaluate_with_context(&request, &context).decision;
                // Routines are sensitive: the rule that permits them needs a person's approval besides.
                let expected = !LEFT_TO_OPERATORS.contains(&action) && !action.is_sensitive_itself();
                assert_eq!(allowed == PolicyDecision::Allow, expected, "{role} {action}");
            }
        }
    }
}

//! Changing the registry: tokens, members, agents, groups, features.
//!
//! Each operation asks policy first, like every other. Then the change is made to a copy under a lock, where it is also
//! checked that nobody gives more than they hold; the copy is checked as a whole, recorded, written, and put in force
//! together with the rules that look at it. It runs in a task of its own: a caller who goes away in the middle leaves
//! either the old registry or the new one.

use super::VerifiedPeer;
use super::control::{AccessControl, Change, RegistryError, commit, registered};
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use palyra_access::{
    AccessError, Admitted, Draft, Edit, Edited, Fault, Feature, IssuedTokens, NewToken, RegistryDocument,
};
use palyra_policy::{PolicyAction, PolicyRequestContext, PolicyResource};
use palyra_protocol::access::{
    AccessChange, AgentRecord, ChangedToken, FeatureView, GroupMember, GroupName, GroupRecord, MemberRecord, TokenView,
};
use palyra_protocol::{ApiTokenRecord, Principal, Problem, Secret, TokenId, WorkspaceId, WorkspaceRole};
use std::sync::Arc;
use std::time::Duration;

/// What somebody needs for a change, asked twice: before they are let wait for their turn, and when it has come.
#[derive(Debug, Clone)]
pub(crate) struct Needed {
    action: PolicyAction,
    resource: PolicyResource,
    owned_by: Option<Principal>,
    /// Where they have to hold what it takes.
    workspace: WorkspaceId,
}

impl Needed {
    pub(crate) fn on_daemon(action: PolicyAction, workspace: &WorkspaceId) -> Self {
        Self { action, resource: PolicyResource::Daemon, owned_by: None, workspace: workspace.clone() }
    }
}

impl From<RegistryError> for EngineError {
    fn from(error: RegistryError) -> Self {
        match error {
            RegistryError::Journal(error) => error.into(),
            RegistryError::Refused { why, .. } => Self::invalid("registry_flaw", why, "nothing was changed"),
            RegistryError::Membership(error) => {
                Self::invalid("registry_flaw", error.to_string(), "nothing was changed")
            }
            RegistryError::Io { .. } => {
                tracing::error!(error = &error as &dyn std::error::Error, "the access registry was not changed");
                let problem = Problem::new(
                    "registry_unavailable",
                    "the access registry could not be written; nothing was changed",
                    "see the daemon's log",
                );
                Self::new(ErrorKind::Unavailable, problem)
            }
        }
    }
}

impl From<AccessError> for EngineError {
    fn from(error: AccessError) -> Self {
        let kind = match error.fault() {
            Fault::Invalid => ErrorKind::Invalid,
            Fault::NotFound => ErrorKind::NotFound,
            Fault::Forbidden => ErrorKind::Forbidden,
            Fault::Conflict => ErrorKind::Conflict,
            Fault::Unavailable => ErrorKind::Unavailable,
        };
        Self::new(kind, error.problem())
    }
}

impl Engine {
    /// Makes one change, whole or not at all.
    pub(crate) async fn change<T: Send + 'static>(
        &self,
        peer: &VerifiedPeer,
        needed: Needed,
        edit: impl FnOnce(Edit<'_>) -> Edited<T> + Send + 'static,
    ) -> Result<T, EngineError> {
        self.may_change(peer, &needed)?;
        let one_at_a_time = Arc::clone(&self.access().writing).lock_owned().await;
        let no_reload_meanwhile = self.running_policy().hold().await;
        // What the peer came with may be gone by now, or the rules may be others. From here on nothing changes but by
        // us.
        let token = self.may_change(peer, &needed)?;
        let (engine, by) = (self.clone(), peer.effective().clone());
        let changing = tokio::spawn(async move {
            let _until_done = (one_at_a_time, no_reload_meanwhile);
            let access = engine.access();
            let before = access.state().digest();
            let Draft { told, what, document } = access.registry().draft(&needed.workspace, by.clone(), token, edit)?;
            let change = Change { by, what, before, after_revision: 0, in_place: before, policy: None };
            engine.put_in_force(access, document, change).await?;
            Ok(told)
        });
        let gone = |_| EngineError::new(ErrorKind::Internal, Problem::plain("internal", "the change was cut off"));
        changing.await.map_err(gone)?
    }

    async fn put_in_force(
        &self,
        access: &AccessControl,
        mut document: RegistryDocument,
        mut change: Change,
    ) -> Result<(), EngineError> {
        document
            .check()
            .map_err(|flaw| EngineError::invalid("registry_flaw", flaw.to_string(), "nothing was changed"))?;
        let policy = self.policy();
        let registered = registered(&document).map_err(RegistryError::from)?;
        let membership = policy.membership().clone().with_registered(registered);
        let reseated = match *policy.membership() == membership {
            true => None,
            false => Some(policy.with_membership(&membership).map_err(|e| {
                let hint = "change the rule first; see `palyra policy show`";
                let message = format!("a rule would be left without its group: {e}");
                EngineError::new(ErrorKind::Conflict, Problem::new("group_in_use", message, hint))
            })?),
        };
        // A decision under rules that the journal does not know of would be a riddle later.
        change.policy = reseated.as_ref().map(|reseated| (policy.policy_hash(), reseated.policy_hash()));
        let turn = match &reseated {
            Some(_) => Some(self.running_policy().turn().await),
            None => None,
        };
        let digest = commit(access.registry().file(), self.journal(), &mut document, change).await?;
        access.registry().install(document, digest);
        if let Some(policy) = reseated {
            self.running_policy().reseat(policy);
        }
        drop(turn);
        self.announce_rights();
        if let Err(error) = self.end_orphaned_questions().await {
            // Nobody can answer them with a yes any more; they end at the latest when their time is over.
            tracing::error!(error = &error as &dyn std::error::Error, "questions of withdrawn tokens were not ended");
        }
        self.reconsider().await;
        Ok(())
    }

    fn may_change(&self, peer: &VerifiedPeer, needed: &Needed) -> Result<Option<Admitted>, EngineError> {
        let Needed { action, resource, owned_by, .. } = needed.clone();
        let context = PolicyRequestContext { owned_by, ..PolicyRequestContext::new(peer.channel().clone()) };
        self.authorize_as(peer.effective(), peer, action, resource, Some(context))
    }

    fn may_manage(&self, peer: &VerifiedPeer, action: PolicyAction) -> Result<(), EngineError> {
        self.authorize(peer, action, PolicyResource::Daemon, None)
    }

    /// Every token of this workspace, newest last.
    ///
    /// # Errors
    /// The peer may not see them.
    pub fn tokens(&self, peer: &VerifiedPeer) -> Result<Vec<TokenView>, EngineError> {
        self.may_manage(peer, PolicyAction::TokenList)?;
        let (state, now) = (self.access().state(), self.access().now());
        let view = |token: &ApiTokenRecord| token.view(now, state.last_use(&token.token_id));
        let here = self.workspace_id_of(peer);
        let here = |workspace: &WorkspaceId| here.as_ref().is_none_or(|here| here == workspace);
        Ok(state.document().tokens().iter().filter(|token| here(&token.workspace)).map(view).collect())
    }

    /// Issues a token. Its text is returned this once and kept nowhere.
    ///
    /// # Errors
    /// The peer may not, or the token would go beyond what the peer holds.
    pub async fn create_token(&self, peer: &VerifiedPeer, new: NewToken) -> Result<(TokenView, Secret), EngineError> {
        self.check_scopes(&new.scopes)?;
        let here = self.in_workspace_of(peer)?.workspace_record().workspace_id.clone();
        self.change(peer, Needed::on_daemon(PolicyAction::TokenCreate, &here), move |edit| edit.create_token(new)).await
    }

    /// Replaces a token's secret. Both hold for `overlap`; then the old one opens nothing. Without an overlap the
    /// tokens that were issued with it go too, unless they are to be kept.
    ///
    /// # Errors
    /// There is no such token, it is not active, or the peer may not issue one like it.
    pub async fn rotate_token(
        &self,
        peer: &VerifiedPeer,
        id: TokenId,
        overlap: Duration,
        issued: IssuedTokens,
    ) -> Result<(ChangedToken, Secret), EngineError> {
        let needed = self.needed_for(peer, PolicyAction::TokenRotate, &id);
        self.change(peer, needed, move |edit| edit.rotate_token(&id, overlap, issued)).await
    }

    /// Withdraws a token at once, and those that were issued with it unless they are to be kept.
    ///
    /// # Errors
    /// There is no such token, it was withdrawn before, or the peer may not.
    pub async fn revoke_token(
        &self,
        peer: &VerifiedPeer,
        id: TokenId,
        issued: IssuedTokens,
    ) -> Result<ChangedToken, EngineError> {
        let needed = self.needed_for(peer, PolicyAction::TokenRevoke, &id);
        self.change(peer, needed, move |edit| edit.revoke_token(&id, issued)).await
    }

    /// A token is changed where it opens: by those who are something there.
    fn needed_for(&self, peer: &VerifiedPeer, action: PolicyAction, id: &TokenId) -> Needed {
        let (state, own) = (self.access().state(), self.workspace_id_of(peer));
        let here = |token: &&ApiTokenRecord| own.as_ref().is_none_or(|own| *own == token.workspace);
        let token = state.document().tokens().iter().find(|t| t.token_id == *id).filter(here);
        let owned_by = token.map(|token| token.principal.clone());
        let workspace = token.map_or_else(|| self.standing_place(peer), |token| token.workspace.clone());
        Needed { action, resource: PolicyResource::Token(id.to_string()), owned_by, workspace }
    }

    /// Where somebody has to hold what a change takes that is the same in every workspace.
    pub(crate) fn standing_place(&self, peer: &VerifiedPeer) -> WorkspaceId {
        self.workspace_id_of(peer).unwrap_or_else(|| self.access().home().workspace_id.clone())
    }

    /// What a peer is in its workspace; the daemon's own user is the same in each.
    pub(crate) fn role_of(&self, peer: &VerifiedPeer) -> Option<WorkspaceRole> {
        self.access().state().role(&self.standing_place(peer), peer.effective())
    }

    /// Records the workspace that the daemon was started with, if no change has done so before.
    pub(crate) async fn record_home(&self) -> Result<(), EngineError> {
        let access = self.access();
        if !access.registry().home_is_new() {
            return Ok(());
        }
        let _one_at_a_time = access.writing.lock().await;
        let state = access.state();
        let (mut document, before) = (state.document().clone(), state.digest());
        let what = AccessChange::WorkspaceAdded { workspace: access.home().clone() };
        let change =
            Change { by: Principal::daemon(), what, before, after_revision: 0, in_place: before, policy: None };
        let digest = commit(access.registry().file(), self.journal(), &mut document, change).await?;
        access.registry().install(document, digest);
        Ok(())
    }

    /// Everybody who is something to this workspace.
    ///
    /// # Errors
    /// The peer may not see them.
    pub fn members(&self, peer: &VerifiedPeer) -> Result<Vec<MemberRecord>, EngineError> {
        self.may_manage(peer, PolicyAction::MemberList)?;
        let here = self.workspace_id_of(peer);
        let state = self.access().state();
        let here = |member: &&MemberRecord| here.as_ref().is_none_or(|here| *here == member.workspace);
        Ok(state.document().members().iter().filter(here).cloned().collect())
    }

    /// Gives a person a role: a new member's first, or another one.
    ///
    /// # Errors
    /// It is no person, the role or theirs is above the peer's own, or they are the last owner.
    pub async fn set_member(
        &self,
        peer: &VerifiedPeer,
        who: Principal,
        role: WorkspaceRole,
    ) -> Result<MemberRecord, EngineError> {
        let here = self.in_workspace_of(peer)?.workspace_record().workspace_id.clone();
        self.change(peer, Needed::on_daemon(PolicyAction::MemberManage, &here), move |edit| edit.set_member(who, role))
            .await
    }

    /// Removes a person; tokens that speak for them are withdrawn.
    ///
    /// # Errors
    /// They are no member, above the peer, or the last owner.
    pub async fn remove_member(&self, peer: &VerifiedPeer, who: Principal) -> Result<MemberRecord, EngineError> {
        let here = self.in_workspace_of(peer)?.workspace_record().workspace_id.clone();
        self.change(peer, Needed::on_daemon(PolicyAction::MemberManage, &here), move |edit| edit.remove_member(&who))
            .await
    }

    /// Every agent.
    ///
    /// # Errors
    /// The peer may not see them.
    pub fn agents(&self, peer: &VerifiedPeer) -> Result<Vec<AgentRecord>, EngineError> {
        self.may_manage(peer, PolicyAction::MemberList)?;
        Ok(self.access().state().document().agents().to_vec())
    }

    /// Registers an agent, so that tokens can speak for it.
    ///
    /// # Errors
    /// It is no agent's name, or known already.
    pub async fn add_agent(
        &self,
        peer: &VerifiedPeer,
        who: Principal,
        description: String,
    ) -> Result<AgentRecord, EngineError> {
        self.change(peer, Needed::on_daemon(PolicyAction::AgentManage, &self.standing_place(peer)), move |edit| {
            edit.add_agent(who, description)
        })
        .await
    }

    /// Removes an agent; its tokens are withdrawn, and it leaves its groups.
    ///
    /// # Errors
    /// It is not registered.
    pub async fn remove_agent(&self, peer: &VerifiedPeer, who: Principal) -> Result<AgentRecord, EngineError> {
        self.change(peer, Needed::on_daemon(PolicyAction::AgentManage, &self.standing_place(peer)), move |edit| {
            edit.remove_agent(&who)
        })
        .await
    }

    /// Every group.
    ///
    /// # Errors
    /// The peer may not see them.
    pub fn groups(&self, peer: &VerifiedPeer) -> Result<Vec<GroupRecord>, EngineError> {
        self.may_manage(peer, PolicyAction::MemberList)?;
        Ok(self.access().state().document().groups().to_vec())
    }

    /// Adds to and takes from a group; one that does not exist is made. Groups give what rules say they give, so only
    /// owners fill them.
    ///
    /// # Errors
    /// The peer is no owner, or a group would hold itself.
    pub async fn set_group(
        &self,
        peer: &VerifiedPeer,
        name: GroupName,
        add: Vec<GroupMember>,
        remove: Vec<GroupMember>,
    ) -> Result<GroupRecord, EngineError> {
        self.change(peer, Needed::on_daemon(PolicyAction::MemberManage, &self.standing_place(peer)), move |edit| {
            edit.set_group(name, add, remove)
        })
        .await
    }

    /// Removes a group.
    ///
    /// # Errors
    /// There is none, the peer is no owner, or another group or a rule speaks of it.
    pub async fn remove_group(&self, peer: &VerifiedPeer, name: GroupName) -> Result<GroupRecord, EngineError> {
        self.change(peer, Needed::on_daemon(PolicyAction::MemberManage, &self.standing_place(peer)), move |edit| {
            edit.remove_group(&name)
        })
        .await
    }

    /// Every feature flag.
    ///
    /// # Errors
    /// The peer may not see them.
    pub fn features(&self, peer: &VerifiedPeer) -> Result<Vec<FeatureView>, EngineError> {
        self.may_manage(peer, PolicyAction::FeatureList)?;
        let state = self.access().state();
        Ok(Feature::ALL.into_iter().map(|feature| feature.view(state.document().feature(feature))).collect())
    }

    /// Sets a feature flag.
    ///
    /// # Errors
    /// The peer may not.
    pub async fn set_feature(
        &self,
        peer: &VerifiedPeer,
        feature: Feature,
        on: bool,
    ) -> Result<FeatureView, EngineError> {
        self.change(peer, Needed::on_daemon(PolicyAction::FeatureSet, &self.standing_place(peer)), move |edit| {
            edit.set_feature(feature, on)
        })
        .await
    }
}

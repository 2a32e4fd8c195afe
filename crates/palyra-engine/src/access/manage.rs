//! Changing the registry: tokens, members, agents, groups, features.
//!
//! Each operation asks policy first, like every other. Then the change is made to a copy under a lock, where it is also
//! checked that nobody gives more than they hold; the copy is checked as a whole, recorded, written, and put in force
//! together with the rules that look at it. It runs in a task of its own: a caller who goes away in the middle leaves
//! either the old registry or the new one.

use super::control::{AccessControl, AccessError, commit};
use super::document::{MAX_LABEL, MAX_RATE, RegistryDocument};
use super::feature::Feature;
use super::rights::DEFAULT_SCOPES;
use super::standing::Standing;
use super::{VerifiedPeer, token};
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use palyra_policy::{PolicyAction, PolicyRequestContext, PolicyResource};
use palyra_protocol::access::{
    AgentRecord, FeatureView, GroupMember, GroupName, GroupRecord, MemberRecord, ReplacedSecret, TokenScope, TokenView,
};
use palyra_protocol::{
    ApiTokenRecord, Principal, PrincipalKind, Problem, Secret, Timestamp, TokenId, WorkspaceId, WorkspaceRole,
};
use serde_json::{Value, json};
use std::time::Duration;

/// How long a token holds when nothing is said.
const DEFAULT_LIFE: Duration = Duration::from_secs(90 * 24 * 3600);
/// How many requests a minute when nothing is said.
const DEFAULT_RATE: u32 = 600;
/// The longest time for which two secrets of a token hold.
const MAX_OVERLAP: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long a dead token is remembered.
const REMEMBERED: Duration = Duration::from_secs(90 * 24 * 3600);

/// A token to be issued.
#[derive(Debug, Clone)]
pub struct NewToken {
    /// Who speaks when it is shown.
    pub principal: Principal,
    /// What it is for.
    pub label: String,
    /// The role it is limited to; the lowest when nothing is said.
    pub role: Option<WorkspaceRole>,
    /// What it may do; what it takes to call tools when nothing is said.
    pub scopes: Vec<TokenScope>,
    /// How long it holds.
    pub life: Option<Duration>,
    /// How many requests a minute.
    pub rate_per_minute: Option<u32>,
}

/// A change under way: the copy that is changed, and who changes it.
struct Edit<'a> {
    document: &'a mut RegistryDocument,
    workspace: &'a WorkspaceId,
    by: &'a Standing,
    now: Timestamp,
}

type Edited<T> = Result<(T, Value), EngineError>;

fn conflict(code: &str, message: impl Into<String>, hint: &str) -> EngineError {
    EngineError::new(ErrorKind::Conflict, Problem::new(code, message, hint))
}

fn not_found(message: String, hint: &str) -> EngineError {
    EngineError::new(ErrorKind::NotFound, Problem::new("not_found", message, hint))
}

impl From<AccessError> for EngineError {
    fn from(error: AccessError) -> Self {
        match error {
            AccessError::Journal(error) => error.into(),
            AccessError::Refused { why, .. } => Self::invalid("registry_flaw", why, "nothing was changed"),
            AccessError::Membership(error) => Self::invalid("registry_flaw", error.to_string(), "nothing was changed"),
            AccessError::Io { .. } => {
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

impl Engine {
    /// Makes one change, whole or not at all.
    async fn change<T: Send + 'static>(
        &self,
        peer: &VerifiedPeer,
        edit: impl FnOnce(Edit<'_>) -> Edited<T> + Send + 'static,
    ) -> Result<T, EngineError> {
        let (engine, by, token) = (self.clone(), peer.effective().clone(), peer.token().cloned());
        let changing = tokio::spawn(async move {
            let access = engine.access();
            let _one_at_a_time = access.writing.lock().await;
            let state = access.state();
            let mut document = state.document.clone();
            let workspace = &access.workspace().workspace_id;
            let by = Standing::in_document(&document, workspace, by, token.as_ref());
            let now = access.now();
            let (told, change) = edit(Edit { document: &mut document, workspace, by: &by, now })?;
            forget_long_dead(&mut document, now);
            engine.put_in_force(access, document, &by.principal, change, state.digest).await?;
            Ok(told)
        });
        let gone = |_| EngineError::new(ErrorKind::Internal, Problem::plain("internal", "the change was cut off"));
        changing.await.map_err(gone)?
    }

    async fn put_in_force(
        &self,
        access: &AccessControl,
        mut document: RegistryDocument,
        by: &Principal,
        change: Value,
        before: Option<palyra_protocol::Digest>,
    ) -> Result<(), EngineError> {
        document
            .check()
            .map_err(|flaw| EngineError::invalid("registry_flaw", flaw.to_string(), "nothing was changed"))?;
        let policy = self.policy();
        let registered = access.registered_in(&document).map_err(AccessError::from)?;
        let membership = policy.membership().clone().with_registered(registered);
        let reseated = match *policy.membership() == membership {
            true => None,
            false => Some(policy.with_membership(&membership).map_err(|e| {
                let hint = "change the rule first; see `palyra policy show`";
                conflict("group_in_use", format!("a rule would be left without its group: {e}"), hint)
            })?),
        };
        let digest = commit(access.file(), self.journal(), &mut document, by, change, before).await?;
        access.install(document, digest);
        match reseated {
            Some(policy) => self.install_policy(policy),
            None => self.announce_rights(),
        }
        Ok(())
    }

    fn may_manage(&self, peer: &VerifiedPeer, action: PolicyAction) -> Result<(), EngineError> {
        self.authorize(peer, action, PolicyResource::Daemon, None)
    }

    /// Every token, newest last.
    ///
    /// # Errors
    /// The peer may not see them.
    pub fn tokens(&self, peer: &VerifiedPeer) -> Result<Vec<TokenView>, EngineError> {
        self.may_manage(peer, PolicyAction::TokenList)?;
        let (state, now) = (self.access().state(), self.access().now());
        let view = |token: &ApiTokenRecord| token.view(now, state.last_use(&token.token_id));
        Ok(state.document.tokens.iter().map(view).collect())
    }

    /// Issues a token. Its text is returned this once and kept nowhere.
    ///
    /// # Errors
    /// The peer may not, or the token would go beyond what the peer holds.
    pub async fn create_token(&self, peer: &VerifiedPeer, new: NewToken) -> Result<(TokenView, Secret), EngineError> {
        self.may_manage(peer, PolicyAction::TokenCreate)?;
        self.change(peer, move |edit| edit.create_token(new)).await
    }

    /// Replaces a token's secret. Both hold for `overlap`; then the old one opens nothing.
    ///
    /// # Errors
    /// There is no such token, it is not active, or the peer may not issue one like it.
    pub async fn rotate_token(
        &self,
        peer: &VerifiedPeer,
        id: TokenId,
        overlap: Duration,
    ) -> Result<(TokenView, Secret), EngineError> {
        self.may_touch(peer, PolicyAction::TokenRotate, &id)?;
        self.change(peer, move |edit| edit.rotate_token(&id, overlap)).await
    }

    /// Withdraws a token, at once.
    ///
    /// # Errors
    /// There is no such token, it was withdrawn before, or the peer may not.
    pub async fn revoke_token(&self, peer: &VerifiedPeer, id: TokenId) -> Result<TokenView, EngineError> {
        self.may_touch(peer, PolicyAction::TokenRevoke, &id)?;
        self.change(peer, move |edit| edit.revoke_token(&id)).await
    }

    fn may_touch(&self, peer: &VerifiedPeer, action: PolicyAction, id: &TokenId) -> Result<(), EngineError> {
        let state = self.access().state();
        let owned_by = state.document.tokens.iter().find(|t| t.token_id == *id).map(|t| t.principal.clone());
        let context = PolicyRequestContext { owned_by, ..PolicyRequestContext::new(peer.channel().clone()) };
        self.authorize(peer, action, PolicyResource::Token(id.to_string()), Some(context))
    }

    /// Everybody who is something to this workspace.
    ///
    /// # Errors
    /// The peer may not see them.
    pub fn members(&self, peer: &VerifiedPeer) -> Result<Vec<MemberRecord>, EngineError> {
        self.may_manage(peer, PolicyAction::MemberList)?;
        let here = &self.access().workspace().workspace_id;
        let state = self.access().state();
        Ok(state.document.members.iter().filter(|m| m.workspace == *here).cloned().collect())
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
        self.may_manage(peer, PolicyAction::MemberManage)?;
        self.change(peer, move |edit| edit.set_member(who, role)).await
    }

    /// Removes a person; tokens that speak for them are withdrawn.
    ///
    /// # Errors
    /// They are no member, above the peer, or the last owner.
    pub async fn remove_member(&self, peer: &VerifiedPeer, who: Principal) -> Result<MemberRecord, EngineError> {
        self.may_manage(peer, PolicyAction::MemberManage)?;
        self.change(peer, move |edit| edit.remove_member(&who)).await
    }

    /// Every agent.
    ///
    /// # Errors
    /// The peer may not see them.
    pub fn agents(&self, peer: &VerifiedPeer) -> Result<Vec<AgentRecord>, EngineError> {
        self.may_manage(peer, PolicyAction::MemberList)?;
        Ok(self.access().state().document.agents.clone())
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
        self.may_manage(peer, PolicyAction::AgentManage)?;
        self.change(peer, move |edit| edit.add_agent(who, description)).await
    }

    /// Removes an agent; its tokens are withdrawn, and it leaves its groups.
    ///
    /// # Errors
    /// It is not registered.
    pub async fn remove_agent(&self, peer: &VerifiedPeer, who: Principal) -> Result<AgentRecord, EngineError> {
        self.may_manage(peer, PolicyAction::AgentManage)?;
        self.change(peer, move |edit| edit.remove_agent(&who)).await
    }

    /// Every group.
    ///
    /// # Errors
    /// The peer may not see them.
    pub fn groups(&self, peer: &VerifiedPeer) -> Result<Vec<GroupRecord>, EngineError> {
        self.may_manage(peer, PolicyAction::MemberList)?;
        Ok(self.access().state().document.groups.clone())
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
        self.may_manage(peer, PolicyAction::MemberManage)?;
        self.change(peer, move |edit| edit.set_group(name, add, remove)).await
    }

    /// Removes a group.
    ///
    /// # Errors
    /// There is none, the peer is no owner, or another group or a rule speaks of it.
    pub async fn remove_group(&self, peer: &VerifiedPeer, name: GroupName) -> Result<GroupRecord, EngineError> {
        self.may_manage(peer, PolicyAction::MemberManage)?;
        self.change(peer, move |edit| edit.remove_group(&name)).await
    }

    /// Every feature flag.
    ///
    /// # Errors
    /// The peer may not see them.
    pub fn features(&self, peer: &VerifiedPeer) -> Result<Vec<FeatureView>, EngineError> {
        self.may_manage(peer, PolicyAction::FeatureList)?;
        let state = self.access().state();
        Ok(Feature::ALL.into_iter().map(|feature| feature.view(state.document.feature(feature))).collect())
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
        self.may_manage(peer, PolicyAction::FeatureSet)?;
        self.change(peer, move |edit| edit.set_feature(feature, on)).await
    }
}

impl Edit<'_> {
    fn create_token(self, new: NewToken) -> Edited<(TokenView, Secret)> {
        let Some(standing) = self.document.role_of(self.workspace, &new.principal) else {
            return Err(not_found(
                format!("`{}` is neither a member nor a registered agent here", new.principal),
                "add them first: `palyra access member add user:NAME` or `palyra access agent add agent:NAME`",
            ));
        };
        check_label(&new.label)?;
        let rate_per_minute = new.rate_per_minute.unwrap_or(DEFAULT_RATE);
        if !(1..=MAX_RATE).contains(&rate_per_minute) {
            return Err(EngineError::invalid(
                "rate",
                format!("a rate is 1 to {MAX_RATE} a minute"),
                "try `--rate 600`",
            ));
        }
        let life = new.life.unwrap_or(DEFAULT_LIFE);
        if life.is_zero() || life > super::document::MAX_LIFE {
            let message = "a token holds longer than nothing and at most 366 days";
            return Err(EngineError::invalid("expiry", message, "try `--expires 90d`"));
        }
        let role = new.role.unwrap_or(WorkspaceRole::Operator);
        let scopes = match new.scopes.is_empty() {
            true => default_scopes(),
            false => new.scopes,
        };
        let expires_at = self.now.plus(life);
        self.by.may_issue((&new.principal, standing), role, &scopes, expires_at)?;
        let token_id = TokenId::mint();
        let (text, token_hash_sha256) = fresh(&token_id)?;
        let record = ApiTokenRecord {
            token_id,
            label: new.label,
            token_hash_sha256,
            replaced: None,
            principal: new.principal,
            role,
            workspace: self.workspace.clone(),
            scopes,
            rate_per_minute,
            created_at: self.now,
            by: self.by.principal.clone(),
            expires_at,
            rotated_at: None,
            revoked_at: None,
        };
        let view = record.view(self.now, None);
        self.document.tokens.push(record);
        let change = json!({ "change": "token.created", "token": view });
        Ok(((view, text), change))
    }

    fn token(&mut self, id: &TokenId) -> Result<&mut ApiTokenRecord, EngineError> {
        let found = self.document.tokens.iter_mut().find(|t| t.token_id == *id);
        found.ok_or_else(|| not_found(format!("there is no token `{id}`"), "`palyra access token list` shows them"))
    }

    fn rotate_token(mut self, id: &TokenId, overlap: Duration) -> Edited<(TokenView, Secret)> {
        if overlap > MAX_OVERLAP {
            let message = "both secrets hold for at most seven days";
            return Err(EngineError::invalid("overlap", message, "try `--overlap 1h`"));
        }
        let now = self.now;
        let by = self.by;
        let token = self.token(id)?.clone();
        if token.state(now) != palyra_protocol::access::TokenState::Active {
            let message = format!("`{id}` is {}; only active tokens are replaced", token.state(now).as_str());
            return Err(conflict("token_not_active", message, "issue another: `palyra access token create`"));
        }
        // Whoever replaces a secret holds the new one: it is issuing, under another name.
        let standing = self.document.role_of(self.workspace, &token.principal).unwrap_or(WorkspaceRole::Operator);
        by.may_issue((&token.principal, standing), token.role.min(standing), &token.scopes, token.expires_at)?;
        let (text, token_hash_sha256) = fresh(id)?;
        let record = self.token(id)?;
        let replaced = std::mem::replace(&mut record.token_hash_sha256, token_hash_sha256);
        record.replaced = Some(ReplacedSecret { token_hash_sha256: replaced, valid_until: now.plus(overlap) });
        record.rotated_at = Some(now);
        let view = record.view(now, None);
        let change = json!({ "change": "token.rotated", "token": view });
        Ok(((view, text), change))
    }

    fn revoke_token(mut self, id: &TokenId) -> Edited<TokenView> {
        let now = self.now;
        let token = self.token(id)?.clone();
        if token.principal != self.by.principal {
            let standing = self.document.role_of(self.workspace, &token.principal);
            self.by.must_reach(standing.unwrap_or(WorkspaceRole::Operator))?;
        }
        let record = self.token(id)?;
        if record.revoked_at.is_some() {
            return Err(conflict(
                "token_already_revoked",
                format!("`{id}` was withdrawn before"),
                "nothing is left to do",
            ));
        }
        record.revoked_at = Some(now);
        let view = record.view(now, None);
        let change = json!({ "change": "token.revoked", "token_id": id });
        Ok((view, change))
    }

    fn owners(&self) -> usize {
        let owns = |m: &&MemberRecord| m.workspace == *self.workspace && m.role == WorkspaceRole::Owner;
        self.document.members.iter().filter(owns).count()
    }

    /// The last owner stays, and so does whoever runs the daemon: they could edit the registry's file, and a registry
    /// that said otherwise would be pretending.
    fn may_lose_ownership(&self, member: &MemberRecord) -> Result<(), EngineError> {
        if member.role != WorkspaceRole::Owner {
            return Ok(());
        }
        if self.owners() == 1 {
            let message = format!("`{}` is the last owner of this workspace", member.principal);
            return Err(conflict("last_owner", message, "make somebody else an owner first"));
        }
        if member.principal == Principal::local_owner() {
            let message = "`user:local` runs this daemon and stays an owner of its workspaces";
            return Err(conflict("local_owner_stays", message, "run the daemon as another user"));
        }
        Ok(())
    }

    fn member(&self, who: &Principal) -> Option<MemberRecord> {
        self.document.members.iter().find(|m| m.workspace == *self.workspace && m.principal == *who).cloned()
    }

    fn set_member(self, who: Principal, role: WorkspaceRole) -> Edited<MemberRecord> {
        if who.kind() != PrincipalKind::User {
            return Err(EngineError::invalid(
                "not_a_person",
                format!("`{who}` is no person, and only people are members"),
                "register a program as an agent: `palyra access agent add agent:NAME`",
            ));
        }
        self.by.must_reach(role)?;
        let before = self.member(&who);
        if let Some(member) = &before {
            self.by.must_reach(member.role)?;
            if role != WorkspaceRole::Owner {
                self.may_lose_ownership(member)?;
            }
        }
        let record = MemberRecord {
            workspace: self.workspace.clone(),
            principal: who.clone(),
            role,
            since: self.now,
            by: self.by.principal.clone(),
        };
        let workspace = self.workspace;
        self.document.members.retain(|m| !(m.workspace == *workspace && m.principal == who));
        self.document.members.push(record.clone());
        let change = json!({ "change": "member.set", "member": record, "role_before": before.map(|m| m.role) });
        Ok((record, change))
    }

    fn remove_member(self, who: &Principal) -> Edited<MemberRecord> {
        let hint = "`palyra access member list` shows who is";
        let member = self.member(who).ok_or_else(|| not_found(format!("`{who}` is not a member here"), hint))?;
        self.by.must_reach(member.role)?;
        self.may_lose_ownership(&member)?;
        let workspace = self.workspace;
        self.document.members.retain(|m| !(m.workspace == *workspace && m.principal == *who));
        let revoked = withdraw(self.document, self.now, |t| t.principal == *who && t.workspace == *workspace);
        let change = json!({ "change": "member.removed", "member": member, "tokens_revoked": revoked });
        Ok((member, change))
    }

    fn add_agent(self, who: Principal, description: String) -> Edited<AgentRecord> {
        if who.kind() != PrincipalKind::Agent {
            let message = format!("`{who}` is not an agent's name");
            return Err(EngineError::invalid("not_an_agent", message, "write `agent:NAME`"));
        }
        check_label(&description)?;
        if self.document.agents.iter().any(|a| a.principal == who) {
            return Err(conflict("agent_exists", format!("`{who}` is registered already"), "use it as it is"));
        }
        let record = AgentRecord { principal: who, description, created_at: self.now, by: self.by.principal.clone() };
        self.document.agents.push(record.clone());
        let change = json!({ "change": "agent.added", "agent": record });
        Ok((record, change))
    }

    fn remove_agent(self, who: &Principal) -> Edited<AgentRecord> {
        let at = self.document.agents.iter().position(|a| a.principal == *who);
        let hint = "`palyra access agent list` shows them";
        let at = at.ok_or_else(|| not_found(format!("`{who}` is not registered"), hint))?;
        let record = self.document.agents.remove(at);
        for group in &mut self.document.groups {
            // Whoever takes the name later does not take the groups with it.
            group.members.retain(|m| *m != GroupMember::Principal(who.clone()));
        }
        let revoked = withdraw(self.document, self.now, |t| t.principal == *who);
        let change = json!({ "change": "agent.removed", "agent": record, "tokens_revoked": revoked });
        Ok((record, change))
    }

    fn set_group(self, name: GroupName, add: Vec<GroupMember>, remove: Vec<GroupMember>) -> Edited<GroupRecord> {
        self.by.must_own("say who belongs to which group")?;
        let at = self.document.groups.iter().position(|g| g.name == name);
        let at = at.unwrap_or_else(|| {
            self.document.groups.push(GroupRecord { name, members: vec![] });
            self.document.groups.len() - 1
        });
        let group = &mut self.document.groups[at];
        group.members.retain(|m| !remove.contains(m));
        for member in add {
            if !group.members.contains(&member) {
                group.members.push(member);
            }
        }
        let record = group.clone();
        let change = json!({ "change": "group.set", "group": record });
        Ok((record, change))
    }

    fn remove_group(self, name: &GroupName) -> Edited<GroupRecord> {
        self.by.must_own("remove groups")?;
        let at = self.document.groups.iter().position(|g| g.name == *name);
        let at = at
            .ok_or_else(|| not_found(format!("there is no group `{name}`"), "`palyra access group list` shows them"))?;
        let record = self.document.groups.remove(at);
        let within = self.document.groups.iter().find(|g| g.members.contains(&GroupMember::Group(name.clone())));
        if let Some(within) = within {
            let message = format!("the group `{}` holds `{name}`", within.name);
            return Err(conflict("group_in_use", message, "take it out of that group first"));
        }
        let change = json!({ "change": "group.removed", "group": record });
        Ok((record, change))
    }

    fn set_feature(self, feature: Feature, on: bool) -> Edited<FeatureView> {
        let before = self.document.feature(feature);
        self.document.features.retain(|setting| setting.name != feature.as_str());
        if on != feature.default_value() {
            let name = feature.as_str().to_owned();
            self.document.features.push(super::document::FeatureSetting { name, on });
        }
        let change = json!({ "change": "feature.set", "feature": feature.as_str(), "on": on, "before": before });
        Ok((feature.view(on), change))
    }
}

fn fresh(id: &TokenId) -> Result<(Secret, palyra_protocol::Digest), EngineError> {
    token::fresh(id).map_err(|e| {
        let problem = Problem::plain("no_randomness", format!("the system has no randomness to give: {e}"));
        EngineError::new(ErrorKind::Unavailable, problem)
    })
}

fn default_scopes() -> Vec<TokenScope> {
    DEFAULT_SCOPES.iter().filter_map(|action| action.as_str().parse().ok()).collect()
}

fn check_label(text: &str) -> Result<(), EngineError> {
    if text.chars().count() <= MAX_LABEL && !text.chars().any(char::is_control) {
        return Ok(());
    }
    let message = format!("a label has at most {MAX_LABEL} characters and no control characters");
    Err(EngineError::invalid("label", message, "say it shorter"))
}

/// Withdraws tokens; returns which.
fn withdraw(document: &mut RegistryDocument, now: Timestamp, which: impl Fn(&ApiTokenRecord) -> bool) -> Vec<TokenId> {
    let mut withdrawn = Vec::new();
    for token in document.tokens.iter_mut().filter(|t| t.revoked_at.is_none() && which(t)) {
        token.revoked_at = Some(now);
        withdrawn.push(token.token_id.clone());
    }
    withdrawn
}

/// Tokens that have opened nothing for a long time are dropped, so that issuing never meets a limit for them.
fn forget_long_dead(document: &mut RegistryDocument, now: Timestamp) {
    document.tokens.retain(|token| {
        let died = token.revoked_at.unwrap_or(token.expires_at).min(token.expires_at);
        now < died.plus(REMEMBERED)
    });
}

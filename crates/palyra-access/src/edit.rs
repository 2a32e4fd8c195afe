//! The changes themselves, made to a copy of the registry: each checks that no caller gives more than it holds, changes
//! the copy, and says for the journal what it did.

use crate::document::{FeatureSetting, MAX_LABEL, MAX_LIFE, MAX_RATE, RegistryDocument};
use crate::error::AccessError;
use crate::feature::Feature;
use crate::own_rights::{Standing, Wanted};
use crate::rights::DEFAULT_SCOPES;
use crate::token;
use palyra_protocol::access::{
    AccessChange, AgentRecord, ChangedToken, FeatureView, GroupMember, GroupName, GroupRecord, MemberRecord,
    ReplacedSecret, TokenScope, TokenState, TokenView, WorkspaceRecord,
};
use palyra_protocol::{
    ApiTokenRecord, Digest, JournalId, Principal, PrincipalKind, Secret, Timestamp, TokenId, WorkspaceId, WorkspaceRole,
};
use std::collections::{HashMap, HashSet};
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

/// What becomes of the tokens that were issued with one that is withdrawn, or replaced at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IssuedTokens {
    /// They go with it: whoever held it knows their secrets.
    Withdrawn,
    /// They stay, because somebody says that they are in good hands.
    Kept,
}

/// A change under way: the copy that is changed, and who changes it.
#[derive(Debug)]
pub struct Edit<'a> {
    pub(crate) document: &'a mut RegistryDocument,
    pub(crate) workspace: &'a WorkspaceId,
    pub(crate) by: &'a Standing,
    pub(crate) now: Timestamp,
}

/// What a change returns to whoever asked for it, and what the journal is told.
pub type Edited<T> = Result<(T, AccessChange), AccessError>;

impl Edit<'_> {
    /// Issues a token. Its text is returned this once.
    ///
    /// # Errors
    /// The token would go beyond what its issuer holds.
    pub fn create_token(self, new: NewToken) -> Edited<(TokenView, Secret)> {
        let Some(standing) = self.document.role_of(self.workspace, &new.principal) else {
            return Err(AccessError::NoSuchPrincipal(new.principal));
        };
        check_label(&new.label)?;
        let most = self.by.rate_per_minute().unwrap_or(DEFAULT_RATE);
        let rate_per_minute = new.rate_per_minute.unwrap_or(DEFAULT_RATE.min(most));
        if !(1..=MAX_RATE).contains(&rate_per_minute) {
            return Err(AccessError::Rate);
        }
        let life = new.life.unwrap_or(DEFAULT_LIFE);
        if life.is_zero() || life > MAX_LIFE {
            return Err(AccessError::Life);
        }
        let role = new.role.unwrap_or(WorkspaceRole::Operator);
        let scopes = match new.scopes.is_empty() {
            true => default_scopes(),
            false => new.scopes,
        };
        let expires_at = self.now.plus(life);
        let principal = &new.principal;
        self.by.may_issue(Wanted { principal, standing, role, scopes: &scopes, rate_per_minute, expires_at })?;
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
            issued_with: self.by.token_id().cloned(),
            issuers: self.by.issuers(),
            expires_at,
            rotated_at: None,
            revoked_at: None,
        };
        let view = record.view(self.now, None);
        self.document.tokens.push(record);
        let change = AccessChange::TokenCreated { token: Box::new(view.clone()) };
        Ok(((view, text), change))
    }

    fn token(&mut self, id: &TokenId) -> Result<&mut ApiTokenRecord, AccessError> {
        // Of this workspace alone: what somebody is here says nothing about what they are elsewhere.
        let here = self.workspace;
        let found = self.document.tokens.iter_mut().find(|t| t.token_id == *id && t.workspace == *here);
        found.ok_or_else(|| AccessError::NoSuchToken(id.clone()))
    }

    /// Replaces a token's secret. Both hold for `overlap`.
    ///
    /// # Errors
    /// There is no such active token, or the issuer may not issue one like it.
    pub fn rotate_token(
        mut self,
        id: &TokenId,
        overlap: Duration,
        issued: IssuedTokens,
    ) -> Edited<(ChangedToken, Secret)> {
        if overlap > MAX_OVERLAP {
            return Err(AccessError::Overlap);
        }
        let now = self.now;
        let by = self.by;
        let token = self.token(id)?.clone();
        if token.state(now) != TokenState::Active {
            return Err(AccessError::TokenNotActive { id: id.clone(), state: token.state(now) });
        }
        // Whoever replaces a secret holds the new one: it is issuing, under another name.
        let standing = self.standing_of(&token)?;
        by.may_issue(Wanted {
            principal: &token.principal,
            standing,
            role: token.role.min(standing),
            scopes: &token.scopes,
            rate_per_minute: token.rate_per_minute,
            expires_at: token.expires_at,
        })?;
        let (text, token_hash_sha256) = fresh(id)?;
        let record = self.token(id)?;
        record.token_hash_sha256 = token_hash_sha256;
        record.replaced = Some(ReplacedSecret {
            token_hash_sha256: token.token_hash_sha256,
            valid_until: now.plus(overlap),
            issued_with: token.issued_with,
            issuers: token.issuers,
        });
        record.rotated_at = Some(now);
        // A token that replaces its own secret stays what its issuer made it: they could have done so themselves.
        if by.token_id() != Some(id) {
            record.issued_with = by.token_id().cloned();
            record.issuers = by.issuers();
        }
        let view = record.view(now, None);
        // Who replaces a secret without an overlap takes it from whoever had it, with all that they made of it.
        let issued_revoked = match issued {
            IssuedTokens::Withdrawn if overlap.is_zero() => withdraw_issued(self.document, now, vec![id.clone()]),
            IssuedTokens::Withdrawn | IssuedTokens::Kept => vec![],
        };
        let change =
            AccessChange::TokenRotated { token: Box::new(view.clone()), tokens_revoked: issued_revoked.clone() };
        Ok(((ChangedToken { token: view, issued_revoked }, text), change))
    }

    /// What a token's principal is here. One that holds always has one: whoever leaves takes their tokens along.
    fn standing_of(&self, token: &ApiTokenRecord) -> Result<WorkspaceRole, AccessError> {
        let standing = self.document.role_of(self.workspace, &token.principal);
        standing.ok_or_else(|| AccessError::TokenPrincipalGone(token.principal.clone()))
    }

    /// Revokes a token, and those that were issued with it unless they are to be kept.
    ///
    /// # Errors
    /// There is no such token, it was revoked before, or its holder is above the one who asks.
    pub fn revoke_token(mut self, id: &TokenId, issued: IssuedTokens) -> Edited<ChangedToken> {
        let now = self.now;
        let token = self.token(id)?.clone();
        if token.revoked_at.is_some() {
            return Err(AccessError::TokenAlreadyRevoked(id.clone()));
        }
        if token.principal != self.by.principal {
            self.by.must_reach(self.standing_of(&token)?)?;
        }
        let record = self.token(id)?;
        record.revoked_at = Some(now);
        let view = record.view(now, None);
        let issued_revoked = match issued {
            IssuedTokens::Withdrawn => withdraw_issued(self.document, now, vec![id.clone()]),
            IssuedTokens::Kept => vec![],
        };
        let change = AccessChange::TokenRevoked { token_id: id.clone(), tokens_revoked: issued_revoked.clone() };
        Ok((ChangedToken { token: view, issued_revoked }, change))
    }

    fn owners(&self) -> usize {
        let owns = |m: &&MemberRecord| m.workspace == *self.workspace && m.role == WorkspaceRole::Owner;
        self.document.members.iter().filter(owns).count()
    }

    /// The last owner stays, and so does whoever runs the daemon: they could edit the registry's file, and a registry
    /// that said otherwise would be pretending.
    fn may_lose_ownership(&self, member: &MemberRecord) -> Result<(), AccessError> {
        if member.role != WorkspaceRole::Owner {
            return Ok(());
        }
        if self.owners() == 1 {
            return Err(AccessError::LastOwner(member.principal.clone()));
        }
        if member.principal == Principal::local_owner() {
            return Err(AccessError::LocalOwnerStays);
        }
        Ok(())
    }

    fn member(&self, who: &Principal) -> Option<MemberRecord> {
        self.document.members.iter().find(|m| m.workspace == *self.workspace && m.principal == *who).cloned()
    }

    /// Registers a directory, which the local owner owns from then on.
    ///
    /// # Errors
    /// It is registered already.
    pub fn add_workspace(self, journal: &JournalId, root: String) -> Edited<WorkspaceRecord> {
        self.by.must_own("register workspaces")?;
        if let Some(known) = self.document.workspaces.iter().find(|w| w.root == root) {
            return Err(AccessError::WorkspaceExists(known.clone()));
        }
        let workspace = self.document.add_workspace(journal, root, self.now);
        Ok((workspace.clone(), AccessChange::WorkspaceAdded { workspace }))
    }

    /// Accepts the directory that has taken the place of a workspace's.
    ///
    /// # Errors
    /// It is not registered.
    pub fn readmit_workspace(self, id: &WorkspaceId) -> Edited<WorkspaceRecord> {
        let known = self.document.workspaces.iter().find(|w| w.workspace_id == *id).cloned();
        let workspace = known.ok_or_else(|| AccessError::NoSuchWorkspace(id.clone()))?;
        Ok((workspace.clone(), AccessChange::WorkspaceAdded { workspace }))
    }

    /// Removes the workspace that the change is made in: its members with it, and its tokens are revoked.
    ///
    /// # Errors
    /// It is not registered.
    pub fn remove_workspace(self) -> Edited<WorkspaceRecord> {
        let (id, now) = (self.workspace, self.now);
        self.by.must_own("remove a workspace")?;
        let known = self.document.workspaces.iter().find(|w| w.workspace_id == *id).cloned();
        let workspace = known.ok_or_else(|| AccessError::NoSuchWorkspace(id.clone()))?;
        let tokens_revoked = withdraw(self.document, now, |token| token.workspace == *id);
        self.document.workspaces.retain(|w| w.workspace_id != *id);
        self.document.members.retain(|m| m.workspace != *id);
        Ok((workspace.clone(), AccessChange::WorkspaceRemoved { workspace, tokens_revoked }))
    }

    /// Gives a person a role.
    ///
    /// # Errors
    /// It is no person, a role is above the giver's, or the last owner would go.
    pub fn set_member(self, who: Principal, role: WorkspaceRole) -> Edited<MemberRecord> {
        if who.kind() != PrincipalKind::User {
            return Err(AccessError::NotAPerson(who));
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
        let change = AccessChange::MemberSet { member: record.clone(), role_before: before.map(|m| m.role) };
        Ok((record, change))
    }

    /// Removes a person and revokes their tokens.
    ///
    /// # Errors
    /// They are no member, above the one who asks, or the last owner.
    pub fn remove_member(self, who: &Principal) -> Edited<MemberRecord> {
        let member = self.member(who).ok_or_else(|| AccessError::NoSuchMember(who.clone()))?;
        self.by.must_reach(member.role)?;
        self.may_lose_ownership(&member)?;
        let workspace = self.workspace;
        self.document.members.retain(|m| !(m.workspace == *workspace && m.principal == *who));
        let revoked = withdraw(self.document, self.now, |t| t.principal == *who && t.workspace == *workspace);
        let change = AccessChange::MemberRemoved { member: member.clone(), tokens_revoked: revoked };
        Ok((member, change))
    }

    /// Registers an agent.
    ///
    /// # Errors
    /// It is no agent's name, or registered already.
    pub fn add_agent(self, who: Principal, description: String) -> Edited<AgentRecord> {
        if who.kind() != PrincipalKind::Agent {
            return Err(AccessError::NotAnAgent(who));
        }
        check_label(&description)?;
        if self.document.agents.iter().any(|a| a.principal == who) {
            return Err(AccessError::AgentExists(who));
        }
        let record = AgentRecord { principal: who, description, created_at: self.now, by: self.by.principal.clone() };
        self.document.agents.push(record.clone());
        let change = AccessChange::AgentAdded { agent: record.clone() };
        Ok((record, change))
    }

    /// Removes an agent, revokes its tokens and takes it out of its groups.
    ///
    /// # Errors
    /// It is not registered, or has tokens in a workspace that the one who asks does not own.
    pub fn remove_agent(self, who: &Principal) -> Edited<AgentRecord> {
        // An agent is one in every workspace, and its tokens go with it: also those of workspaces that are not this
        // one.
        let elsewhere = self.document.tokens.iter().filter(|t| {
            t.principal == *who && t.workspace != *self.workspace && t.state(self.now) == TokenState::Active
        });
        let mut elsewhere = elsewhere.map(|t| &t.workspace).peekable();
        if elsewhere.peek().is_some() {
            self.by.must_own_all(self.document, elsewhere, "remove an agent whose tokens open it")?;
        }
        let at = self.document.agents.iter().position(|a| a.principal == *who);
        let at = at.ok_or_else(|| AccessError::NoSuchAgent(who.clone()))?;
        let record = self.document.agents.remove(at);
        for group in &mut self.document.groups {
            // Whoever takes the name later does not take the groups with it.
            group.members.retain(|m| *m != GroupMember::Principal(who.clone()));
        }
        let revoked = withdraw(self.document, self.now, |t| t.principal == *who);
        let change = AccessChange::AgentRemoved { agent: record.clone(), tokens_revoked: revoked };
        Ok((record, change))
    }

    /// Adds to and takes from a group; one that does not exist is made.
    ///
    /// # Errors
    /// The one who asks is no owner.
    pub fn set_group(self, name: GroupName, add: Vec<GroupMember>, remove: Vec<GroupMember>) -> Edited<GroupRecord> {
        self.must_own_everything("say who belongs to which group")?;
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
        let change = AccessChange::GroupSet { group: record.clone() };
        Ok((record, change))
    }

    /// Removes a group.
    ///
    /// # Errors
    /// There is none, the one who asks is no owner, or another group holds it.
    pub fn remove_group(self, name: &GroupName) -> Edited<GroupRecord> {
        self.must_own_everything("remove groups")?;
        let at = self.document.groups.iter().position(|g| g.name == *name);
        let at = at.ok_or_else(|| AccessError::NoSuchGroup(name.clone()))?;
        let record = self.document.groups.remove(at);
        let within = self.document.groups.iter().find(|g| g.members.contains(&GroupMember::Group(name.clone())));
        if let Some(within) = within {
            return Err(AccessError::GroupInUse { within: within.name.clone(), name: name.clone() });
        }
        let change = AccessChange::GroupRemoved { group: record.clone() };
        Ok((record, change))
    }

    fn must_own_everything(&self, what: &'static str) -> Result<(), AccessError> {
        let workspaces = self.document.workspaces.iter().map(|w| &w.workspace_id);
        self.by.must_own_all(self.document, workspaces, what)
    }

    /// Sets a feature flag.
    ///
    /// # Errors
    /// The one who asks is no owner.
    pub fn set_feature(self, feature: Feature, on: bool) -> Edited<FeatureView> {
        self.must_own_everything("set features")?;
        let before = self.document.feature(feature);
        self.document.features.retain(|setting| setting.name != feature.as_str());
        if on != feature.default_value() {
            let name = feature.as_str().to_owned();
            self.document.features.push(FeatureSetting { name, on });
        }
        let change = AccessChange::FeatureSet { feature: feature.as_str().to_owned(), on, before };
        Ok((feature.view(on), change))
    }
}

fn fresh(id: &TokenId) -> Result<(Secret, Digest), AccessError> {
    token::fresh(id).map_err(AccessError::NoRandomness)
}

fn default_scopes() -> Vec<TokenScope> {
    DEFAULT_SCOPES.iter().filter_map(|action| action.as_str().parse().ok()).collect()
}

fn check_label(text: &str) -> Result<(), AccessError> {
    let fits = text.chars().count() <= MAX_LABEL && !text.chars().any(char::is_control);
    if fits { Ok(()) } else { Err(AccessError::Label) }
}

/// Withdraws tokens, and those that were issued with them; returns which.
fn withdraw(document: &mut RegistryDocument, now: Timestamp, which: impl Fn(&ApiTokenRecord) -> bool) -> Vec<TokenId> {
    let mut withdrawn = Vec::new();
    for token in document.tokens.iter_mut().filter(|t| t.revoked_at.is_none() && which(t)) {
        token.revoked_at = Some(now);
        withdrawn.push(token.token_id.clone());
    }
    let issued = withdraw_issued(document, now, withdrawn.clone());
    withdrawn.extend(issued);
    withdrawn
}

/// Withdraws what was issued with these tokens, and with those in turn: whoever held them knows the secrets.
fn withdraw_issued(document: &mut RegistryDocument, now: Timestamp, roots: Vec<TokenId>) -> Vec<TokenId> {
    let mut withdrawn = Vec::new();
    let (mut known, mut issuing): (HashSet<TokenId>, Vec<TokenId>) = (roots.iter().cloned().collect(), roots);
    let mut issued: HashMap<TokenId, Vec<usize>> = HashMap::new();
    for (at, token) in document.tokens.iter().enumerate() {
        for with in token.issued_with(now) {
            issued.entry(with.clone()).or_default().push(at);
        }
    }
    while let Some(id) = issuing.pop() {
        for at in issued.remove(&id).unwrap_or_default() {
            let token = &mut document.tokens[at];
            if known.insert(token.token_id.clone()) {
                issuing.push(token.token_id.clone());
                if token.revoked_at.is_none() {
                    token.revoked_at = Some(now);
                    withdrawn.push(token.token_id.clone());
                }
            }
        }
    }
    withdrawn
}

/// Tokens that have opened nothing for a long time are dropped, so that issuing never meets a limit for them.
pub(crate) fn forget_long_dead(document: &mut RegistryDocument, now: Timestamp) {
    document.tokens.retain(|token| {
        let died = token.revoked_at.unwrap_or(token.expires_at).min(token.expires_at);
        now < died.plus(REMEMBERED)
    });
}

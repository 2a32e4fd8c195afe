//! The changes themselves, made to a copy of the registry: each checks that nobody gives more than they hold, changes the
//! copy, and says for the journal what it did.

use super::document::{FeatureSetting, MAX_LABEL, MAX_LIFE, MAX_RATE, RegistryDocument};
use super::feature::Feature;
use super::manage::{IssuedTokens, NewToken};
use super::rights::DEFAULT_SCOPES;
use super::standing::{Standing, Wanted};
use super::token;
use crate::error::{EngineError, ErrorKind};
use palyra_protocol::access::{
    AgentRecord, ChangedToken, FeatureView, GroupMember, GroupName, GroupRecord, MemberRecord, ReplacedSecret,
    TokenScope, TokenState, TokenView,
};
use palyra_protocol::{
    ApiTokenRecord, Digest, Principal, PrincipalKind, Problem, Secret, Timestamp, TokenId, WorkspaceId, WorkspaceRole,
};
use serde_json::{Value, json};
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

/// A change under way: the copy that is changed, and who changes it.
pub(super) struct Edit<'a> {
    pub(super) document: &'a mut RegistryDocument,
    pub(super) workspace: &'a WorkspaceId,
    pub(super) by: &'a Standing,
    pub(super) now: Timestamp,
}

pub(super) type Edited<T> = Result<(T, Value), EngineError>;

pub(super) fn conflict(code: &str, message: impl Into<String>, hint: &str) -> EngineError {
    EngineError::new(ErrorKind::Conflict, Problem::new(code, message, hint))
}

fn not_found(message: String, hint: &str) -> EngineError {
    EngineError::new(ErrorKind::NotFound, Problem::new("not_found", message, hint))
}

impl Edit<'_> {
    pub(super) fn create_token(self, new: NewToken) -> Edited<(TokenView, Secret)> {
        let Some(standing) = self.document.role_of(self.workspace, &new.principal) else {
            return Err(not_found(
                format!("`{}` is neither a member nor a registered agent here", new.principal),
                "add them first: `palyra access member add user:NAME` or `palyra access agent add agent:NAME`",
            ));
        };
        check_label(&new.label)?;
        let most = self.by.rate_per_minute().unwrap_or(DEFAULT_RATE);
        let rate_per_minute = new.rate_per_minute.unwrap_or(DEFAULT_RATE.min(most));
        if !(1..=MAX_RATE).contains(&rate_per_minute) {
            return Err(EngineError::invalid(
                "rate",
                format!("a rate is 1 to {MAX_RATE} a minute"),
                "try `--rate 600`",
            ));
        }
        let life = new.life.unwrap_or(DEFAULT_LIFE);
        if life.is_zero() || life > MAX_LIFE {
            let message = "a token holds longer than nothing and at most 366 days";
            return Err(EngineError::invalid("expiry", message, "try `--expires 90d`"));
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
        let change = json!({ "change": "token.created", "token": view });
        Ok(((view, text), change))
    }

    fn token(&mut self, id: &TokenId) -> Result<&mut ApiTokenRecord, EngineError> {
        // Of this workspace alone: what somebody is here says nothing about what they are elsewhere.
        let here = self.workspace;
        let found = self.document.tokens.iter_mut().find(|t| t.token_id == *id && t.workspace == *here);
        found.ok_or_else(|| not_found(format!("there is no token `{id}`"), "`palyra access token list` shows them"))
    }

    pub(super) fn rotate_token(
        mut self,
        id: &TokenId,
        overlap: Duration,
        issued: IssuedTokens,
    ) -> Edited<(ChangedToken, Secret)> {
        if overlap > MAX_OVERLAP {
            let message = "both secrets hold for at most seven days";
            return Err(EngineError::invalid("overlap", message, "try `--overlap 1h`"));
        }
        let now = self.now;
        let by = self.by;
        let token = self.token(id)?.clone();
        if token.state(now) != TokenState::Active {
            let message = format!("`{id}` is {}; only active tokens are replaced", token.state(now).as_str());
            return Err(conflict("token_not_active", message, "issue another: `palyra access token create`"));
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
        let change = json!({ "change": "token.rotated", "token": view, "tokens_revoked": issued_revoked });
        Ok(((ChangedToken { token: view, issued_revoked }, text), change))
    }

    /// What a token's principal is here. One that holds always has one: whoever leaves takes their tokens along.
    fn standing_of(&self, token: &ApiTokenRecord) -> Result<WorkspaceRole, EngineError> {
        let gone = || {
            let message = format!("`{}` is nobody here any more", token.principal);
            conflict("token_principal_gone", message, "issue another: `palyra access token create`")
        };
        self.document.role_of(self.workspace, &token.principal).ok_or_else(gone)
    }

    pub(super) fn revoke_token(mut self, id: &TokenId, issued: IssuedTokens) -> Edited<ChangedToken> {
        let now = self.now;
        let token = self.token(id)?.clone();
        if token.revoked_at.is_some() {
            return Err(conflict(
                "token_already_revoked",
                format!("`{id}` was withdrawn before"),
                "nothing is left to do",
            ));
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
        let change = json!({ "change": "token.revoked", "token_id": id, "tokens_revoked": issued_revoked });
        Ok((ChangedToken { token: view, issued_revoked }, change))
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

    pub(super) fn set_member(self, who: Principal, role: WorkspaceRole) -> Edited<MemberRecord> {
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

    pub(super) fn remove_member(self, who: &Principal) -> Edited<MemberRecord> {
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

    pub(super) fn add_agent(self, who: Principal, description: String) -> Edited<AgentRecord> {
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

    pub(super) fn remove_agent(self, who: &Principal) -> Edited<AgentRecord> {
        // An agent is one in every workspace, and its tokens go with it: also those of workspaces that are not this one.
        let elsewhere = self.document.tokens.iter().filter(|t| {
            t.principal == *who && t.workspace != *self.workspace && t.state(self.now) == TokenState::Active
        });
        let mut elsewhere = elsewhere.map(|t| &t.workspace).peekable();
        if elsewhere.peek().is_some() {
            self.by.must_own_all(self.document, elsewhere, "remove an agent whose tokens open it")?;
        }
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

    pub(super) fn set_group(
        self,
        name: GroupName,
        add: Vec<GroupMember>,
        remove: Vec<GroupMember>,
    ) -> Edited<GroupRecord> {
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
        let change = json!({ "change": "group.set", "group": record });
        Ok((record, change))
    }

    pub(super) fn remove_group(self, name: &GroupName) -> Edited<GroupRecord> {
        self.must_own_everything("remove groups")?;
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

    fn must_own_everything(&self, what: &str) -> Result<(), EngineError> {
        let workspaces = self.document.workspaces.iter().map(|w| &w.workspace_id);
        self.by.must_own_all(self.document, workspaces, what)
    }

    pub(super) fn set_feature(self, feature: Feature, on: bool) -> Edited<FeatureView> {
        self.must_own_everything("set features")?;
        let before = self.document.feature(feature);
        self.document.features.retain(|setting| setting.name != feature.as_str());
        if on != feature.default_value() {
            let name = feature.as_str().to_owned();
            self.document.features.push(FeatureSetting { name, on });
        }
        let change = json!({ "change": "feature.set", "feature": feature.as_str(), "on": on, "before": before });
        Ok((feature.view(on), change))
    }
}

fn fresh(id: &TokenId) -> Result<(Secret, Digest), EngineError> {
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
pub(super) fn forget_long_dead(document: &mut RegistryDocument, now: Timestamp) {
    document.tokens.retain(|token| {
        let died = token.revoked_at.unwrap_or(token.expires_at).min(token.expires_at);
        now < died.plus(REMEMBERED)
    });
}

//! The registry's document: what `access_registry.json` holds, read strictly and checked as a whole.
//!
//! A document is accepted whole or not at all. Nothing is repaired, defaulted or skipped: a registry that says
//! something odd was damaged or edited, and guessing what was meant could only make a principal's rights wider.

#[cfg(test)]
mod tests;

use crate::feature::Feature;
use crate::rights::kind_may_hold;
use palyra_protocol::access::{AgentRecord, GroupMember, GroupName, GroupRecord, MemberRecord, WorkspaceRecord};
use palyra_protocol::{
    ApiTokenRecord, Digest, JournalId, PolicyAction, Principal, PrincipalKind, Timestamp, WorkspaceId, WorkspaceRole,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

/// The form that this version reads and writes.
pub(crate) const SCHEMA: u32 = 1;
/// The largest file.
pub(crate) const MAX_BYTES: u64 = 128 << 20;
/// The most tokens.
pub(crate) const MAX_TOKENS: usize = 100_000;
const MAX_RECORDS: usize = 10_000;
const MAX_SCOPES: usize = 64;
/// The longest label or description.
pub(crate) const MAX_LABEL: usize = 128;
/// The longest life of a token.
pub(crate) const MAX_LIFE: Duration = Duration::from_secs(366 * 24 * 3600);
/// The highest rate.
pub(crate) const MAX_RATE: u32 = 100_000;
/// Groups that the configuration defines.
const RESERVED: [&str; 2] = ["tool_callers", "tool_channels"];

/// A flag that was set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FeatureSetting {
    pub(crate) name: String,
    pub(crate) on: bool,
}

/// Everything the registry knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegistryDocument {
    pub(crate) schema: u32,
    pub(crate) revision: u64,
    pub(crate) workspaces: Vec<WorkspaceRecord>,
    pub(crate) members: Vec<MemberRecord>,
    pub(crate) agents: Vec<AgentRecord>,
    pub(crate) groups: Vec<GroupRecord>,
    pub(crate) features: Vec<FeatureSetting>,
    pub(crate) tokens: Vec<ApiTokenRecord>,
}

/// Why a document is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryFlaw {
    /// It is not this kind of document.
    #[error("it cannot be read: {reason}")]
    Malformed {
        /// Why, with line and column.
        reason: String,
    },
    /// It is of another version.
    #[error("it has schema {found}; this version reads schema {SCHEMA}")]
    Schema {
        /// What was found.
        found: u32,
    },
    /// It contradicts itself.
    #[error("{what}")]
    Inconsistent {
        /// How.
        what: String,
    },
}

fn inconsistent(what: impl Into<String>) -> RegistryFlaw {
    RegistryFlaw::Inconsistent { what: what.into() }
}

impl RegistryDocument {
    /// A registry in which nobody has any right.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            schema: SCHEMA,
            revision: 0,
            workspaces: vec![],
            members: vec![],
            agents: vec![],
            groups: vec![],
            features: vec![],
            tokens: vec![],
        }
    }

    /// Reads the file's bytes.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, RegistryFlaw> {
        #[derive(Deserialize)]
        struct Version {
            schema: u32,
        }
        let malformed = |e: serde_json::Error| RegistryFlaw::Malformed { reason: e.to_string() };
        // Asked first, so that another version is called that and not a malformed one.
        let Version { schema } = serde_json::from_slice(bytes).map_err(malformed)?;
        if schema != SCHEMA {
            return Err(RegistryFlaw::Schema { found: schema });
        }
        let document: Self = serde_json::from_slice(bytes).map_err(malformed)?;
        document.check()?;
        Ok(document)
    }

    /// Its revision.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Every registered workspace.
    #[must_use]
    pub fn workspaces(&self) -> &[WorkspaceRecord] {
        &self.workspaces
    }

    /// The members of every workspace.
    #[must_use]
    pub fn members(&self) -> &[MemberRecord] {
        &self.members
    }

    /// Every agent.
    #[must_use]
    pub fn agents(&self) -> &[AgentRecord] {
        &self.agents
    }

    /// Every group.
    #[must_use]
    pub fn groups(&self) -> &[GroupRecord] {
        &self.groups
    }

    /// The tokens of every workspace.
    #[must_use]
    pub fn tokens(&self) -> &[ApiTokenRecord] {
        &self.tokens
    }

    /// Makes it the next revision after this one and after its own, whichever is higher, and returns the file's bytes.
    ///
    /// # Errors
    /// It contradicts itself.
    pub fn sealed(&mut self, after: u64) -> Result<Vec<u8>, RegistryFlaw> {
        let next = self.revision.max(after).checked_add(1);
        self.revision = next.ok_or_else(|| inconsistent("its revision cannot grow any further"))?;
        self.check()?;
        self.bytes()
    }

    /// The file's bytes: indented, because people read it.
    fn bytes(&self) -> Result<Vec<u8>, RegistryFlaw> {
        let mut bytes = serde_json::to_vec_pretty(self).map_err(|e| inconsistent(e.to_string()))?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// Checks everything that the types do not.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), RegistryFlaw> {
        for (what, count, most) in [
            ("workspaces", self.workspaces.len(), MAX_RECORDS),
            ("members", self.members.len(), MAX_RECORDS),
            ("agents", self.agents.len(), MAX_RECORDS),
            ("groups", self.groups.len(), MAX_RECORDS),
            ("tokens", self.tokens.len(), MAX_TOKENS),
        ] {
            if count > most {
                return Err(inconsistent(format!("there are {count} {what}; at most {most} are kept")));
            }
        }
        self.check_members()?;
        self.check_agents()?;
        self.check_groups()?;
        unique("the feature", self.features.iter().map(|f| f.name.as_str()))?;
        for setting in &self.features {
            setting.name.parse::<Feature>().map_err(|e| inconsistent(format!("`{}`: {e}", setting.name)))?;
        }
        self.check_tokens()
    }

    fn check_members(&self) -> Result<(), RegistryFlaw> {
        unique("the workspace", self.workspaces.iter().map(|w| w.workspace_id.as_str()))?;
        unique("the workspace directory", self.workspaces.iter().map(|w| w.root.as_str()))?;
        let known: HashSet<_> = self.workspaces.iter().map(|w| &w.workspace_id).collect();
        let mut seen = HashSet::new();
        for MemberRecord { workspace, principal, .. } in &self.members {
            if !known.contains(workspace) {
                return Err(inconsistent(format!("`{principal}` is a member of `{workspace}`, which does not exist")));
            }
            if principal.kind() != PrincipalKind::User {
                return Err(inconsistent(format!("`{principal}` is a member, but only people are")));
            }
            if !seen.insert((workspace, principal)) {
                return Err(inconsistent(format!("`{principal}` is a member of `{workspace}` twice")));
            }
        }
        let owned =
            |id: &WorkspaceId| self.members.iter().any(|m| m.workspace == *id && m.role == WorkspaceRole::Owner);
        match self.workspaces.iter().find(|w| !owned(&w.workspace_id)) {
            Some(w) => Err(inconsistent(format!("the workspace `{}` has no owner", w.workspace_id))),
            None => Ok(()),
        }
    }

    fn check_agents(&self) -> Result<(), RegistryFlaw> {
        let mut seen = HashSet::new();
        for agent in &self.agents {
            if agent.principal.kind() != PrincipalKind::Agent {
                return Err(inconsistent(format!("`{}` is registered as an agent and is none", agent.principal)));
            }
            if !seen.insert(&agent.principal) {
                return Err(inconsistent(format!("the agent `{}` appears twice", agent.principal)));
            }
            check_label("the description of an agent", &agent.description)?;
        }
        Ok(())
    }

    fn check_groups(&self) -> Result<(), RegistryFlaw> {
        unique("the group", self.groups.iter().map(|g| g.name.as_str()))?;
        let by_name: BTreeMap<&GroupName, &GroupRecord> = self.groups.iter().map(|g| (&g.name, g)).collect();
        for group in &self.groups {
            if RESERVED.contains(&group.name.as_str()) {
                return Err(inconsistent(format!("the group `{}` is the configuration's", group.name)));
            }
            if group.members.len() > MAX_RECORDS {
                return Err(inconsistent(format!("the group `{}` has too many members", group.name)));
            }
            let mut seen = HashSet::new();
            for member in &group.members {
                if !seen.insert(member) {
                    return Err(inconsistent(format!("`{member}` is in the group `{}` twice", group.name)));
                }
                if let GroupMember::Group(other) = member
                    && !by_name.contains_key(other)
                {
                    return Err(inconsistent(format!("the group `{}` holds `{other}`, which is none", group.name)));
                }
            }
        }
        check_cycles(&by_name)
    }

    fn check_tokens(&self) -> Result<(), RegistryFlaw> {
        unique("the token", self.tokens.iter().map(|t| t.token_id.as_str()))?;
        let mut hashes: HashSet<&Digest> = HashSet::with_capacity(self.tokens.len());
        let members: HashSet<_> = self.members.iter().map(|m| (&m.workspace, &m.principal)).collect();
        let agents: HashSet<_> = self.agents.iter().map(|a| &a.principal).collect();
        let workspaces: HashSet<_> = self.workspaces.iter().map(|w| &w.workspace_id).collect();
        for token in &self.tokens {
            let id = &token.token_id;
            let replaced = token.replaced.iter().map(|r| &r.token_hash_sha256);
            for hash in std::iter::once(&token.token_hash_sha256).chain(replaced) {
                if !hashes.insert(hash) {
                    return Err(inconsistent(format!("the hash of `{id}` appears twice")));
                }
            }
            if token.revoked_at.is_none() && !workspaces.contains(&token.workspace) {
                return Err(inconsistent(format!("`{id}` opens `{}`, which does not exist", token.workspace)));
            }
            let known = agents.contains(&token.principal) || members.contains(&(&token.workspace, &token.principal));
            if token.revoked_at.is_none() && !known {
                return Err(inconsistent(format!("`{id}` speaks for `{}`, who is not here", token.principal)));
            }
            check_token(token)?;
        }
        Ok(())
    }

    /// What somebody is to a workspace.
    #[must_use]
    pub fn role_of(&self, workspace: &WorkspaceId, principal: &Principal) -> Option<WorkspaceRole> {
        if principal.kind() == PrincipalKind::Agent {
            return self.agents.iter().any(|a| a.principal == *principal).then_some(WorkspaceRole::Operator);
        }
        self.members.iter().find(|m| m.workspace == *workspace && m.principal == *principal).map(|m| m.role)
    }

    /// Whether a flag is on.
    #[must_use]
    pub fn feature(&self, feature: Feature) -> bool {
        let set = self.features.iter().find(|setting| setting.name == feature.as_str());
        set.map_or(feature.default_value(), |setting| setting.on)
    }

    /// Everybody who belongs to a group, directly or through others.
    fn members_of(&self, group: &GroupRecord) -> BTreeSet<Principal> {
        let (mut found, mut seen, mut open) = (BTreeSet::new(), BTreeSet::new(), vec![group]);
        while let Some(group) = open.pop() {
            if !seen.insert(&group.name) {
                continue;
            }
            for member in &group.members {
                match member {
                    GroupMember::Principal(principal) => drop(found.insert(principal.clone())),
                    GroupMember::Group(name) => open.extend(self.groups.iter().find(|g| g.name == *name)),
                }
            }
        }
        found
    }

    /// Everybody who has a role in a workspace, agents among them.
    pub fn roles_in<'d>(&'d self, workspace: &'d WorkspaceId) -> impl Iterator<Item = (WorkspaceRole, &'d Principal)> {
        let people = self.members.iter().filter(move |m| m.workspace == *workspace).map(|m| (m.role, &m.principal));
        people.chain(self.agents.iter().map(|a| (WorkspaceRole::Operator, &a.principal)))
    }

    /// Every group, with everybody who belongs to it directly or through others.
    pub fn whole_groups(&self) -> impl Iterator<Item = (&GroupName, BTreeSet<Principal>)> {
        self.groups.iter().map(|group| (&group.name, self.members_of(group)))
    }

    /// Adds a workspace that the local owner owns.
    pub(crate) fn add_workspace(&mut self, journal: &JournalId, root: String, now: Timestamp) -> WorkspaceRecord {
        let workspace = WorkspaceRecord { workspace_id: WorkspaceId::of(journal, &root), root, created_at: now };
        self.workspaces.push(workspace.clone());
        self.members.push(MemberRecord {
            workspace: workspace.workspace_id.clone(),
            principal: Principal::local_owner(),
            role: WorkspaceRole::Owner,
            since: now,
            by: Principal::daemon(),
        });
        workspace
    }
}

fn unique<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> Result<(), RegistryFlaw> {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(inconsistent(format!("{what} `{name}` appears twice")));
        }
    }
    Ok(())
}

fn check_label(what: &str, text: &str) -> Result<(), RegistryFlaw> {
    if text.chars().count() > MAX_LABEL || text.chars().any(char::is_control) {
        return Err(inconsistent(format!("{what} has at most {MAX_LABEL} characters and no control characters")));
    }
    Ok(())
}

fn check_token(token: &ApiTokenRecord) -> Result<(), RegistryFlaw> {
    let id = &token.token_id;
    check_label("the label of a token", &token.label)?;
    if !(1..=MAX_RATE).contains(&token.rate_per_minute) {
        return Err(inconsistent(format!("the rate of `{id}` is not between 1 and {MAX_RATE} a minute")));
    }
    if token.expires_at > token.created_at.plus(MAX_LIFE) {
        return Err(inconsistent(format!("`{id}` would hold longer than {} days", MAX_LIFE.as_secs() / 86_400)));
    }
    if token.scopes.is_empty() || token.scopes.len() > MAX_SCOPES {
        return Err(inconsistent(format!("`{id}` has no scopes, or more than {MAX_SCOPES}")));
    }
    let agent = token.principal.kind() != PrincipalKind::User;
    if agent && token.role != WorkspaceRole::Operator {
        return Err(inconsistent(format!("`{id}` would let a program be {}", token.role)));
    }
    for scope in &token.scopes {
        let action: PolicyAction =
            scope.action().parse().map_err(|_| inconsistent(format!("`{id}` has the unknown scope `{scope}`")))?;
        // INVARIANT (agents_hold_no_approval_rights): whatever a file says.
        if !kind_may_hold(token.principal.kind(), action) {
            return Err(inconsistent(format!("`{id}` would let a program `{action}`")));
        }
    }
    Ok(())
}

/// Groups hold groups, but never themselves.
fn check_cycles(groups: &BTreeMap<&GroupName, &GroupRecord>) -> Result<(), RegistryFlaw> {
    let mut done: BTreeSet<&GroupName> = BTreeSet::new();
    for start in groups.keys() {
        // Depth first, with a stack of our own: a long chain of groups must not end ours.
        let mut path: Vec<(&GroupName, usize)> = vec![(start, 0)];
        let mut on_path: BTreeSet<&GroupName> = [*start].into();
        while let Some((name, next)) = path.last_mut() {
            let members = groups.get(name).map_or(&[][..], |g| &g.members);
            let Some(member) = members.get(*next) else {
                done.insert(name);
                on_path.remove(name);
                path.pop();
                continue;
            };
            *next += 1;
            if let GroupMember::Group(inner) = member
                && !done.contains(inner)
            {
                if !on_path.insert(inner) {
                    return Err(inconsistent(format!("the group `{inner}` would hold itself")));
                }
                path.push((inner, 0));
            }
        }
    }
    Ok(())
}

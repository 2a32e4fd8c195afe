//! Who belongs to what by the access registry: principals by name, in a layer of its own.
//!
//! The lists of the configuration and of the policy directory change with files, the registry with every command. Kept
//! apart, either can be exchanged without knowing the other.

use crate::membership::MembershipError;
use palyra_protocol::{DigestBuilder, Principal, PrincipalKind, WorkspaceRole};
use std::collections::{BTreeMap, BTreeSet};

type Sets = BTreeMap<String, BTreeSet<Principal>>;

/// Roles and groups, everybody in them named.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Registered {
    groups: Sets,
    roles: Sets,
    /// Roles that hold in one workspace, by its real path.
    roles_within: BTreeMap<String, Sets>,
}

impl Registered {
    /// Gives principals a role. Only people own or manage.
    ///
    /// # Errors
    /// A program would own or manage.
    pub fn with_role(
        mut self,
        role: WorkspaceRole,
        principals: impl IntoIterator<Item = Principal>,
    ) -> Result<Self, MembershipError> {
        hold(&mut self.roles, role, principals)?;
        Ok(self)
    }

    /// Gives principals a role in one workspace.
    ///
    /// # Errors
    /// A program would own or manage.
    pub fn with_role_within(
        mut self,
        workspace: &str,
        role: WorkspaceRole,
        principals: impl IntoIterator<Item = Principal>,
    ) -> Result<Self, MembershipError> {
        hold(self.roles_within.entry(workspace.to_owned()).or_default(), role, principals)?;
        Ok(self)
    }

    /// Adds a group, which may be empty: rules can speak of it.
    #[must_use]
    pub fn with_group(mut self, name: &str, members: impl IntoIterator<Item = Principal>) -> Self {
        self.groups.entry(name.to_owned()).or_default().extend(members);
        self
    }

    pub(crate) fn groups_of(&self, principal: &Principal) -> impl Iterator<Item = &str> {
        holding(&self.groups, principal)
    }

    /// The roles that a principal has in a workspace; where none is named, those that it has in each.
    pub(crate) fn roles_of<'r>(
        &'r self,
        principal: &Principal,
        workspace: Option<&str>,
    ) -> impl Iterator<Item = &'r str> {
        let within = workspace.and_then(|workspace| self.roles_within.get(workspace));
        holding(&self.roles, principal).chain(within.into_iter().flat_map(|sets| holding(sets, principal)))
    }

    pub(crate) fn has_group(&self, group: &str) -> bool {
        self.groups.contains_key(group)
    }

    pub(crate) fn digest_into(&self, mut digest: DigestBuilder) -> DigestBuilder {
        let within = self.roles_within.iter().map(|(workspace, sets)| (workspace.as_str(), sets));
        for (section, sets) in
            [("registered groups", &self.groups), ("registered roles", &self.roles)].into_iter().chain(within)
        {
            digest = digest.field(section.as_bytes()).number(sets.len() as u64);
            for (name, members) in sets {
                digest = digest.field(name.as_bytes()).number(members.len() as u64);
                digest = members.iter().fold(digest, |digest, member| digest.field(member.to_string().as_bytes()));
            }
        }
        digest
    }
}

fn hold(
    roles: &mut Sets,
    role: WorkspaceRole,
    principals: impl IntoIterator<Item = Principal>,
) -> Result<(), MembershipError> {
    let holders = roles.entry(role.as_str().to_owned()).or_default();
    for principal in principals {
        if role != WorkspaceRole::Operator && principal.kind() != PrincipalKind::User {
            return Err(MembershipError::NotAPerson { given: principal.to_string() });
        }
        holders.insert(principal);
    }
    Ok(())
}

fn holding<'s>(sets: &'s Sets, principal: &Principal) -> impl Iterator<Item = &'s str> {
    let held = sets.iter().filter(|(_, members)| members.contains(principal)).map(|(name, _)| name.as_str());
    held.collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::Membership;

    #[test]
    fn a_role_in_one_workspace_is_none_in_another() {
        let ana: Principal = "user:ana".parse().unwrap();
        let here = Registered::default().with_role_within("/srv/a", WorkspaceRole::Admin, [ana.clone()]).unwrap();
        let lists = Membership::from_lists(&["agent:*"], &["cli"], &["user:local"]).unwrap();
        let both = lists.with_registered(here);
        assert_eq!(both.roles_within(&ana, Some("/srv/a")).collect::<Vec<_>>(), ["admin"]);
        assert_eq!(both.roles_within(&ana, Some("/srv/b")).count(), 0);
        assert_eq!(both.roles_within(&ana, None).count(), 0, "where no workspace is named, it has none");
    }

    #[test]
    fn the_layer_adds_to_the_lists_and_is_exchanged_whole() {
        let ana: Principal = "user:ana".parse().unwrap();
        let bot: Principal = "agent:bot".parse().unwrap();
        let lists = Membership::from_lists(&["agent:*"], &["cli"], &["user:local"]).unwrap();
        let lists = lists.with_principals("all", &["group:ops"]).unwrap();
        assert!(lists.check().is_err(), "there are no ops yet");
        let registered = Registered::default().with_group("ops", [ana.clone(), bot.clone()]);
        let registered = registered.with_role(WorkspaceRole::Admin, [ana.clone()]).unwrap();
        let both = lists.clone().with_registered(registered);
        assert!(both.check().is_ok());
        assert_eq!(both.groups_of(&ana).collect::<Vec<_>>(), ["all", "ops"], "through a list's group as well");
        assert_eq!(both.groups_of(&bot).collect::<Vec<_>>(), ["all", "ops", "tool_callers"]);
        assert_eq!(both.roles_of(&ana).collect::<Vec<_>>(), ["admin"]);
        assert!(both.has_group("ops") && !lists.has_group("ops"));
        assert_eq!(both.with_registered(Registered::default()), lists);
        assert!(Registered::default().with_role(WorkspaceRole::Owner, [bot.clone()]).is_err());
        assert!(Registered::default().with_role(WorkspaceRole::Operator, [bot]).is_ok());
    }
}

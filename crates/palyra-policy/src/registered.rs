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
        let holders = self.roles.entry(role.as_str().to_owned()).or_default();
        for principal in principals {
            if role != WorkspaceRole::Operator && principal.kind() != PrincipalKind::User {
                return Err(MembershipError::NotAPerson { given: principal.to_string() });
            }
            holders.insert(principal);
        }
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

    pub(crate) fn roles_of(&self, principal: &Principal) -> impl Iterator<Item = &str> {
        holding(&self.roles, principal)
    }

    pub(crate) fn has_group(&self, group: &str) -> bool {
        self.groups.contains_key(group)
    }

    pub(crate) fn digest_into(&self, mut digest: DigestBuilder) -> DigestBuilder {
        for (section, sets) in [("registered groups", &self.groups), ("registered roles", &self.roles)] {
            digest = digest.field(section.as_bytes()).number(sets.len() as u64);
            for (name, members) in sets {
                digest = digest.field(name.as_bytes()).number(members.len() as u64);
                digest = members.iter().fold(digest, |digest, member| digest.field(member.to_string().as_bytes()));
            }
        }
        digest
    }
}

fn holding<'s>(sets: &'s Sets, principal: &Principal) -> impl Iterator<Item = &'s str> {
    sets.iter().filter(move |(_, members)| members.contains(principal)).map(|(name, _)| name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::Membership;

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

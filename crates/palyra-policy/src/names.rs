//! Cedar's names for our things, made once: entity types, and the uid of every action.
//!
//! Uids are put together from a type and a text that Cedar takes as it is. Nothing here parses a caller's text, so a
//! name with quotes or `::` in it is only a strange name.

use crate::error::PolicyError;
use cedar_policy::{EntityId, EntityTypeName, EntityUid};
use palyra_protocol::{PolicyAction, Principal, PrincipalKind};

macro_rules! kinds {
    ($($variant:ident),+ $(,)?) => {
        /// Every entity type of the schema.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum EntityKind { $($variant),+ }

        impl EntityKind {
            const ALL: &'static [Self] = &[$(Self::$variant),+];

            pub(crate) fn as_str(self) -> &'static str {
                match self { $(Self::$variant => stringify!($variant)),+ }
            }
        }
    };
}

kinds! {
    Action, User, Agent, Device, System, Group, Role, Channel, Capability, Tool, Skill, Approval, Grant, Call, Secret,
    Memory, CronJob, Journal, PolicySet, Daemon, Token, Workspace,
    Run, Model,
}

impl From<PrincipalKind> for EntityKind {
    fn from(kind: PrincipalKind) -> Self {
        match kind {
            PrincipalKind::User => Self::User,
            PrincipalKind::Agent => Self::Agent,
            PrincipalKind::Device => Self::Device,
            PrincipalKind::System => Self::System,
        }
    }
}

/// The types and action uids.
#[derive(Debug)]
pub(crate) struct Names {
    /// By `EntityKind as usize`.
    types: Vec<EntityTypeName>,
    /// By `PolicyAction as usize`.
    actions: Vec<EntityUid>,
}

impl Names {
    pub(crate) fn new() -> Result<Self, PolicyError> {
        let mut types = Vec::with_capacity(EntityKind::ALL.len());
        for kind in EntityKind::ALL {
            let name = kind.as_str();
            types.push(name.parse().map_err(|_| PolicyError::Bug(format!("`{name}` is not an entity type")))?);
        }
        let mut names = Self { types, actions: Vec::new() };
        names.actions = PolicyAction::ALL.iter().map(|a| names.uid(EntityKind::Action, a.as_str())).collect();
        Ok(names)
    }

    /// The uid of `Type::"id"`.
    pub(crate) fn uid(&self, kind: EntityKind, id: &str) -> EntityUid {
        EntityUid::from_type_name_and_id(self.types[kind as usize].clone(), EntityId::new(id))
    }

    pub(crate) fn principal(&self, principal: &Principal) -> EntityUid {
        self.uid(principal.kind().into(), principal.name())
    }

    pub(crate) fn action(&self, action: PolicyAction) -> &EntityUid {
        &self.actions[action as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_action_finds_its_own_uid() {
        let names = Names::new().unwrap();
        for action in PolicyAction::ALL {
            assert_eq!(names.action(*action).id().unescaped(), action.as_str());
        }
    }

    #[test]
    fn hostile_names_stay_names() {
        let names = Names::new().unwrap();
        let uid = names.uid(EntityKind::Tool, r#"x", User::"local"#);
        assert_eq!(uid.id().unescaped(), r#"x", User::"local"#);
        assert_eq!(uid.type_name().to_string(), "Tool");
    }
}

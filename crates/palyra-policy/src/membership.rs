//! Who belongs to which group: patterns from the configuration, resolved for one principal or channel at a time.
//!
//! Rules say `principal in Group::"tool_callers"`; the configuration says that `agent:ci-*` are such. Patterns are a
//! kind and a name, the name exact or with a final `*`. There is no pattern for "any kind": whoever lets programs in
//! must write `agent:`.

use crate::registered::Registered;
use palyra_protocol::{ChannelId, DigestBuilder, Principal, PrincipalKind, WorkspaceRole};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// The group of principals that may call tools.
pub(crate) const TOOL_CALLERS: &str = "tool_callers";
/// The group of channels through which tools may be called.
pub(crate) const TOOL_CHANNELS: &str = "tool_channels";
/// The role of those who run this daemon.
pub(crate) const OWNER: &str = "owner";

/// Why a membership is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MembershipError {
    /// A pattern for principals that is none.
    #[error(
        "`{given}` in `{group}` is not a pattern for principals; write `user:NAME`, `agent:NAME` or `device:NAME`, where NAME may end in `*`, or `group:NAME`"
    )]
    Principal {
        /// The group it stands in.
        group: String,
        /// What was written.
        given: String,
    },
    /// A pattern for channels that is none.
    #[error("`{given}` in `{group}` is not a pattern for channels; write a name that may end in `*`, or `*` for all")]
    Channel {
        /// The group it stands in.
        group: String,
        /// What was written.
        given: String,
    },
    /// Something other than a person would own the daemon.
    #[error("`{given}` cannot be an owner; only people can (`user:NAME`)")]
    NotAPerson {
        /// What was written.
        given: String,
    },
    /// A group's name is empty, too long or has odd characters.
    #[error("`{given}` is not a group name; use 1 to 64 of a-z 0-9 _ -")]
    GroupName {
        /// What was written.
        given: String,
    },
    /// A group holds one that does not exist.
    #[error("the group `{group}` holds `group:{inner}`, which does not exist")]
    NoSuchGroup {
        /// The group it stands in.
        group: String,
        /// The one that is missing.
        inner: String,
    },
    /// A group that holds itself, directly or through others.
    #[error("the groups {path} go round in a circle; take one of them out of the next")]
    Cycle {
        /// The way round, in words.
        path: String,
    },
    /// A group that the daemon itself fills.
    #[error(
        "`{group}` is filled from `allowed_principals` and `allowed_channels` of the configuration; choose another name"
    )]
    Reserved {
        /// The group.
        group: String,
    },
    /// One name for a group of principals and a group of channels.
    #[error("the group `{group}` cannot hold both principals and channels")]
    Mixed {
        /// The group.
        group: String,
    },
}

impl MembershipError {
    /// What it speaks of, so that a file can be searched for it.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let (first, second) = match self {
            Self::Principal { group, given } | Self::Channel { group, given } => (Some(given), Some(group)),
            Self::NotAPerson { given } | Self::GroupName { given } => (Some(given), None),
            Self::NoSuchGroup { group, inner } => (Some(inner), Some(group)),
            Self::Reserved { group } | Self::Mixed { group } => (Some(group), None),
            // The first of those that the way round names.
            Self::Cycle { path } => return [path.split('`').nth(1), None].into_iter().flatten(),
        };
        [first.map(String::as_str), second.map(String::as_str)].into_iter().flatten()
    }
}

/// A name, exact or by its beginning.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum NamePattern {
    Exact(String),
    Beginning(String),
}

impl NamePattern {
    /// `fits` says whether a text has only characters that a name can have.
    fn parse(text: &str, fits: impl Fn(&str) -> bool) -> Option<Self> {
        match text.strip_suffix('*') {
            Some(start) if start.is_empty() || fits(start) => Some(Self::Beginning(start.to_owned())),
            None if fits(text) => Some(Self::Exact(text.to_owned())),
            _ => None,
        }
    }

    fn matches(&self, name: &str) -> bool {
        match self {
            Self::Exact(exact) => exact == name,
            Self::Beginning(start) => name.starts_with(start.as_str()),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Exact(name) => name.clone(),
            Self::Beginning(start) => format!("{start}*"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct PrincipalPattern {
    kind: PrincipalKind,
    name: NamePattern,
}

impl PrincipalPattern {
    fn parse(text: &str) -> Option<Self> {
        let (kind, name) = text.split_once(':')?;
        let kind = PrincipalKind::ALL.into_iter().find(|k| k.as_str() == kind)?;
        let name = NamePattern::parse(name, |name| Principal::new(kind, name).is_ok())?;
        Some(Self { kind, name })
    }

    fn matches(&self, principal: &Principal) -> bool {
        self.kind == principal.kind() && self.name.matches(principal.name())
    }
}

/// The lists that a file of cases can bring; those it leaves out are the set's own.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Lists {
    tool_callers: Option<Vec<String>>,
    tool_channels: Option<Vec<String>>,
    owners: Option<Vec<String>>,
    /// Further groups of principals.
    #[serde(default)]
    groups: BTreeMap<String, Vec<String>>,
}

/// Who belongs to what. Empty by default: nobody may call tools, nobody owns the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Membership {
    principals: BTreeMap<String, Vec<PrincipalPattern>>,
    channels: BTreeMap<String, Vec<NamePattern>>,
    roles: BTreeMap<String, Vec<PrincipalPattern>>,
    /// Which groups a group is part of.
    part_of: BTreeMap<String, BTreeSet<String>>,
    /// The channels that the daemon has, where they are known: rules may name others, and are told so.
    known_channels: BTreeSet<String>,
    /// What the access registry says besides.
    registered: Registered,
    /// The operator's groups, as they were added.
    operators: BTreeMap<String, Vec<String>>,
}

impl Membership {
    /// One person on their own machine: they own the daemon; they and every agent of theirs may call tools through any
    /// channel.
    #[must_use]
    pub fn single_user() -> Self {
        let any = |kind| PrincipalPattern { kind, name: NamePattern::Beginning(String::new()) };
        let owner = Principal::local_owner();
        let owner = PrincipalPattern { kind: owner.kind(), name: NamePattern::Exact(owner.name().to_owned()) };
        Self {
            principals: [(TOOL_CALLERS.to_owned(), vec![any(PrincipalKind::User), any(PrincipalKind::Agent)])].into(),
            channels: [(TOOL_CHANNELS.to_owned(), vec![NamePattern::Beginning(String::new())])].into(),
            roles: [(OWNER.to_owned(), vec![owner])].into(),
            part_of: BTreeMap::new(),
            known_channels: BTreeSet::new(),
            registered: Registered::default(),
            operators: BTreeMap::new(),
        }
    }

    /// The three lists of the configuration.
    ///
    /// # Errors
    /// A pattern is malformed, or an owner is not a person.
    pub fn from_lists<S: AsRef<str>>(
        tool_callers: &[S],
        tool_channels: &[S],
        owners: &[S],
    ) -> Result<Self, MembershipError> {
        Self::default()
            .with_principals(TOOL_CALLERS, tool_callers)?
            .with_channels(TOOL_CHANNELS, tool_channels)?
            .with_owners(owners)
    }

    /// Adds principals to a group.
    ///
    /// # Errors
    /// A pattern or the group's name is malformed, or the group holds channels.
    pub fn with_principals<S: AsRef<str>>(mut self, group: &str, patterns: &[S]) -> Result<Self, MembershipError> {
        check_group_name(group)?;
        if self.channels.contains_key(group) || group == TOOL_CHANNELS {
            return Err(MembershipError::Mixed { group: group.to_owned() });
        }
        let members = self.principals.entry(group.to_owned()).or_default();
        for pattern in patterns {
            match pattern.as_ref().strip_prefix("group:") {
                Some(inner) => {
                    check_group_name(inner)?;
                    self.part_of.entry(inner.to_owned()).or_default().insert(group.to_owned());
                }
                None => members.push(parse_principal(group, pattern.as_ref())?),
            }
        }
        members.sort();
        members.dedup();
        Ok(self)
    }

    /// Adds an operator's groups, each with its members.
    ///
    /// # Errors
    /// A name or pattern is malformed, a group does not exist, or groups hold each other in a circle.
    pub fn with_groups<S: AsRef<str>>(mut self, groups: &BTreeMap<String, Vec<S>>) -> Result<Self, MembershipError> {
        for (group, members) in groups {
            if [TOOL_CALLERS, TOOL_CHANNELS].contains(&group.as_str()) {
                return Err(MembershipError::Reserved { group: group.clone() });
            }
            self = self.with_principals(group, members)?;
            let kept = self.operators.entry(group.clone()).or_default();
            kept.extend(members.iter().map(|member| member.as_ref().to_owned()));
        }
        self.check()?;
        Ok(self)
    }

    /// The operator's groups of this membership on another base: what remains of a set when who belongs changes
    /// elsewhere.
    ///
    /// # Errors
    /// The two do not go together.
    pub fn rebased_on(&self, base: Self) -> Result<Self, MembershipError> {
        base.with_groups(&self.operators)
    }

    /// The same with some lists replaced and groups added: what cases need that bring their own members.
    pub(crate) fn overridden(&self, lists: &Lists) -> Result<Self, MembershipError> {
        let mut changed = self.clone();
        if let Some(callers) = &lists.tool_callers {
            changed.principals.remove(TOOL_CALLERS);
            changed.part_of.retain(|_, outer| {
                outer.remove(TOOL_CALLERS);
                !outer.is_empty()
            });
            changed = changed.with_principals(TOOL_CALLERS, callers)?;
        }
        if let Some(channels) = &lists.tool_channels {
            changed.channels.remove(TOOL_CHANNELS);
            changed = changed.with_channels(TOOL_CHANNELS, channels)?;
        }
        if let Some(owners) = &lists.owners {
            changed.roles.remove(OWNER);
            changed = changed.with_owners(owners)?;
        }
        changed.with_groups(&lists.groups)
    }

    /// Groups within groups must exist and must not go round in a circle.
    ///
    /// # Errors
    /// The first that does not.
    pub fn check(&self) -> Result<(), MembershipError> {
        for (inner, outer) in &self.part_of {
            if !self.principals.contains_key(inner) && !self.registered.has_group(inner) {
                let group = outer.iter().next().cloned().unwrap_or_default();
                return Err(MembershipError::NoSuchGroup { group, inner: inner.clone() });
            }
        }
        // A group is done when everything above it is; what is met again before that closes a circle.
        let mut done: BTreeSet<&str> = BTreeSet::new();
        for start in self.part_of.keys() {
            let mut way: Vec<(&str, Vec<&str>)> = vec![(start, self.directly_above(start))];
            while let Some((group, above)) = way.last_mut() {
                let Some(next) = above.pop() else {
                    done.insert(group);
                    way.pop();
                    continue;
                };
                if let Some(from) = way.iter().position(|(group, _)| *group == next) {
                    let names = way[from..].iter().map(|(group, _)| *group).chain([next]);
                    let path = names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" in ");
                    return Err(MembershipError::Cycle { path });
                }
                if !done.contains(next) {
                    way.push((next, self.directly_above(next)));
                }
            }
        }
        Ok(())
    }

    fn directly_above(&self, group: &str) -> Vec<&str> {
        self.part_of.get(group).into_iter().flatten().map(String::as_str).collect()
    }

    /// Adds channels to a group.
    ///
    /// # Errors
    /// A pattern or the group's name is malformed, or the group holds principals.
    pub fn with_channels<S: AsRef<str>>(mut self, group: &str, patterns: &[S]) -> Result<Self, MembershipError> {
        check_group_name(group)?;
        if self.principals.contains_key(group) || group == TOOL_CALLERS {
            return Err(MembershipError::Mixed { group: group.to_owned() });
        }
        let members = self.channels.entry(group.to_owned()).or_default();
        for pattern in patterns {
            let given = pattern.as_ref();
            let pattern = NamePattern::parse(given, |name| name.parse::<ChannelId>().is_ok())
                .ok_or_else(|| MembershipError::Channel { group: group.to_owned(), given: given.to_owned() })?;
            members.push(pattern);
        }
        members.sort();
        members.dedup();
        Ok(self)
    }

    /// Says which channels the daemon has. Decisions do not depend on it; checks of rules do.
    #[must_use]
    pub fn with_known_channels<S: AsRef<str>>(mut self, channels: &[S]) -> Self {
        self.known_channels.extend(channels.iter().map(|channel| channel.as_ref().to_owned()));
        self
    }

    /// The channels that the daemon has; empty where they are not known.
    pub(crate) fn known_channels(&self) -> &BTreeSet<String> {
        &self.known_channels
    }

    /// Adds owners.
    ///
    /// # Errors
    /// A pattern is malformed or names something other than people.
    pub fn with_owners<S: AsRef<str>>(mut self, patterns: &[S]) -> Result<Self, MembershipError> {
        let owners = self.roles.entry(OWNER.to_owned()).or_default();
        for pattern in patterns {
            let given = pattern.as_ref();
            let pattern = parse_principal("owners", given)?;
            if pattern.kind != PrincipalKind::User {
                return Err(MembershipError::NotAPerson { given: given.to_owned() });
            }
            owners.push(pattern);
        }
        owners.sort();
        owners.dedup();
        Ok(self)
    }

    /// The same lists with another state of the access registry beside them.
    #[must_use]
    pub fn with_registered(self, registered: Registered) -> Self {
        Self { registered, ..self }
    }

    /// The groups a principal belongs to, directly or through another group.
    pub fn groups_of<'m>(&'m self, principal: &Principal) -> impl Iterator<Item = &'m str> {
        let mut all: BTreeSet<&str> = holding(&self.principals, principal).collect();
        all.extend(self.registered.groups_of(principal));
        let mut rest: Vec<&str> = all.iter().copied().collect();
        while let Some(group) = rest.pop() {
            rest.extend(self.directly_above(group).into_iter().filter(|above| all.insert(above)));
        }
        all.into_iter()
    }

    /// The roles a principal has in every workspace.
    pub fn roles_of<'m>(&'m self, principal: &Principal) -> impl Iterator<Item = &'m str> {
        self.roles_within(principal, None)
    }

    /// The roles a principal has in a workspace.
    pub fn roles_within<'m>(&'m self, principal: &Principal, workspace: Option<&str>) -> impl Iterator<Item = &'m str> {
        let registered = self.registered.roles_of(principal, workspace);
        let all: BTreeSet<&str> = holding(&self.roles, principal).chain(registered).collect();
        all.into_iter()
    }

    /// The groups a channel belongs to.
    pub fn groups_of_channel(&self, channel: &ChannelId) -> impl Iterator<Item = &str> {
        self.channels
            .iter()
            .filter(move |(_, patterns)| patterns.iter().any(|p| p.matches(channel.as_str())))
            .map(|(group, _)| group.as_str())
    }

    /// Whether rules may speak of this group.
    #[must_use]
    pub fn has_group(&self, group: &str) -> bool {
        [TOOL_CALLERS, TOOL_CHANNELS].contains(&group)
            || self.principals.contains_key(group)
            || self.channels.contains_key(group)
            || self.registered.has_group(group)
    }

    /// Whether rules may speak of this role.
    #[must_use]
    pub fn has_role(&self, role: &str) -> bool {
        WorkspaceRole::ALL.iter().any(|known| known.as_str() == role)
    }

    /// Adds everything that memberships depend on to a digest.
    pub(crate) fn digest_into(&self, mut digest: DigestBuilder) -> DigestBuilder {
        for (section, groups) in [("principals", &self.principals), ("roles", &self.roles)] {
            digest = digest.field(section.as_bytes()).number(groups.len() as u64);
            for (group, patterns) in groups {
                digest = digest.field(group.as_bytes()).number(patterns.len() as u64);
                for pattern in patterns {
                    digest = digest.field(pattern.kind.as_str().as_bytes()).field(pattern.name.text().as_bytes());
                }
            }
        }
        digest = digest.field(b"channels").number(self.channels.len() as u64);
        for (group, patterns) in &self.channels {
            digest = digest.field(group.as_bytes()).number(patterns.len() as u64);
            for pattern in patterns {
                digest = digest.field(pattern.text().as_bytes());
            }
        }
        digest = digest.field(b"part_of").number(self.part_of.len() as u64);
        for (inner, outer) in &self.part_of {
            digest = digest.field(inner.as_bytes()).number(outer.len() as u64);
            digest = outer.iter().fold(digest, |digest, group| digest.field(group.as_bytes()));
        }
        self.registered.digest_into(digest)
    }
}

fn holding<'m>(
    groups: &'m BTreeMap<String, Vec<PrincipalPattern>>,
    principal: &Principal,
) -> impl Iterator<Item = &'m str> {
    groups
        .iter()
        .filter(move |(_, patterns)| patterns.iter().any(|p| p.matches(principal)))
        .map(|(group, _)| group.as_str())
}

fn parse_principal(group: &str, given: &str) -> Result<PrincipalPattern, MembershipError> {
    PrincipalPattern::parse(given)
        .ok_or_else(|| MembershipError::Principal { group: group.to_owned(), given: given.to_owned() })
}

fn check_group_name(group: &str) -> Result<(), MembershipError> {
    let fits = (1..=64).contains(&group.len())
        && group.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b));
    if fits { Ok(()) } else { Err(MembershipError::GroupName { given: group.to_owned() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(membership: &Membership, principal: &str) -> Vec<String> {
        membership.groups_of(&principal.parse().unwrap()).map(str::to_owned).collect()
    }

    #[test]
    fn patterns_match_by_kind_and_name() {
        let membership =
            Membership::from_lists(&["user:*", "agent:ci", "agent:build-*"], &["cli", "mcp/*"], &["user:local"])
                .unwrap();
        for inside in ["user:local", "user:anyone", "agent:ci", "agent:build-7"] {
            assert_eq!(groups(&membership, inside), ["tool_callers"], "{inside}");
        }
        for outside in ["agent:ci2", "agent:build", "device:ci", "system:palyrad"] {
            assert!(groups(&membership, outside).is_empty(), "{outside}");
        }
        let channel = |name: &str| membership.groups_of_channel(&name.parse().unwrap()).count();
        assert_eq!((channel("cli"), channel("cli2"), channel("mcp/x"), channel("mcp")), (1, 0, 1, 0));
        assert_eq!(membership.roles_of(&Principal::local_owner()).collect::<Vec<_>>(), ["owner"]);
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in ["*", "agent", "agent:", "agent:*x", "agent:a*b", "root:x", "agent:A", "agent:a b", "*:x"] {
            assert!(Membership::default().with_principals("tool_callers", &[bad]).is_err(), "{bad}");
        }
        for bad in ["", "a b", "a*b", "**"] {
            assert!(Membership::default().with_channels("tool_channels", &[bad]).is_err(), "{bad}");
        }
        assert!(matches!(Membership::default().with_owners(&["agent:x"]), Err(MembershipError::NotAPerson { .. })));
        assert!(Membership::default().with_principals("tool_channels", &["user:*"]).is_err());
        assert!(Membership::default().with_principals("Ops\"", &["user:*"]).is_err());
    }

    fn nested(groups: &[(&str, &[&str])]) -> Result<Membership, MembershipError> {
        let owned = |members: &[&str]| members.iter().map(|m| (*m).to_owned()).collect::<Vec<_>>();
        Membership::default()
            .with_groups(&groups.iter().map(|(name, members)| ((*name).to_owned(), owned(members))).collect())
    }

    #[test]
    fn groups_hold_groups() {
        let membership = nested(&[
            ("all", &["group:ops", "group:dev"]),
            ("dev", &["user:mia"]),
            ("ops", &["group:oncall"]),
            ("oncall", &["user:joe"]),
        ])
        .unwrap();
        assert_eq!(groups(&membership, "user:mia"), ["all", "dev"]);
        assert_eq!(groups(&membership, "user:joe"), ["all", "oncall", "ops"]);
        assert!(groups(&membership, "user:other").is_empty());
        let rebased = membership.rebased_on(Membership::single_user()).unwrap();
        assert_eq!(groups(&rebased, "user:mia"), ["all", "dev", "tool_callers"]);
    }

    #[test]
    fn circles_and_missing_groups_are_errors_with_words() {
        let circle = nested(&[("a", &["group:b"]), ("b", &["group:c"]), ("c", &["group:a"])]).unwrap_err();
        assert!(circle.to_string().contains("`a` in `c` in `b` in `a`"), "{circle}");
        assert!(matches!(nested(&[("a", &["group:a"])]), Err(MembershipError::Cycle { .. })));
        let missing = nested(&[("a", &["group:nobody"])]).unwrap_err();
        assert!(missing.to_string().contains("`group:nobody`, which does not exist"), "{missing}");
        assert!(matches!(nested(&[("tool_callers", &["user:x"])]), Err(MembershipError::Reserved { .. })));
        // A diamond is no circle.
        nested(&[("a", &["group:b", "group:c"]), ("b", &["group:d"]), ("c", &["group:d"]), ("d", &["user:x"])])
            .unwrap();
    }
}

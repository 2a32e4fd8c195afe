//! Containment: what would hold a process, as facts that rules and people see before it runs.
//!
//! The facts are made from the configuration and from what the call asks for, never from what its command line seems to
//! do. They are part of a call's facets, so its digest covers them: a configuration that gets weaker makes another call
//! of the same words, which no earlier approval, grant or waiver covers.

use serde::{Deserialize, Serialize};

/// The walls around a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContainmentTier {
    /// A confined child process, with the network of the host.
    B,
    /// A container of namespaces.
    C,
}

/// How much of the network a process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkReach {
    /// None: nothing but a loopback device of its own.
    None,
    /// The hosts that its call asked for, through a proxy that admits no other.
    Filtered,
    /// The host's: nothing holds it back.
    Host,
}

/// What a process's changes to the workspace go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceUse {
    /// A view of its own; what it changed is looked at before it counts.
    View,
    /// The workspace itself, because the call asked for that.
    Live,
    /// The workspace itself, because this tier or this host gives no views.
    Direct,
}

/// What would hold a process.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Containment {
    /// The walls.
    pub tier: ContainmentTier,
    /// How much of the network it has.
    pub network: NetworkReach,
    /// The hosts that it could reach, as the call asked for them: `example.org`, `example.org:443`. Sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// What its changes to the workspace go to.
    pub workspace: WorkspaceUse,
    /// Whether it is given directories beside the workspace, to read or to write.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub other_roots: bool,
    /// Whether what it changes can be put back.
    pub reversible: bool,
    /// Whether it is given secrets, or variables of the daemon's that may hold some.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub secrets: bool,
}

macro_rules! names {
    ($type:ident { $($variant:ident = $name:literal),+ }) => {
        impl $type {
            /// Every name that rules know.
            pub const NAMES: &'static [&'static str] = &[$($name),+];

            /// The name that rules use.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }
    };
}

names!(ContainmentTier { B = "b", C = "c" });
names!(NetworkReach { None = "none", Filtered = "filtered", Host = "host" });
names!(WorkspaceUse { View = "view", Live = "live", Direct = "direct" });

impl Containment {
    /// Whether nothing of what the process does gets past its walls unless policy or a person let it: Tier C, no host
    /// but those that its call names, a view of the workspace and nothing beside it, changes that can be put back, no
    /// secret.
    #[must_use]
    pub fn contained(&self) -> bool {
        self.tier == ContainmentTier::C
            && self.network != NetworkReach::Host
            && self.workspace == WorkspaceUse::View
            && self.reversible
            && !self.other_roots
            && !self.secrets
    }

    /// Whether it could reach any host.
    #[must_use]
    pub fn reaches_hosts(&self) -> bool {
        self.network != NetworkReach::None
    }

    /// The facts in one line, for people.
    #[must_use]
    pub fn describe(&self) -> String {
        let network = match self.network {
            NetworkReach::None => "no network".to_owned(),
            NetworkReach::Filtered => format!("network: {} alone", self.hosts.join(", ")),
            NetworkReach::Host => "the host's network".to_owned(),
        };
        let workspace = match (self.workspace, self.reversible) {
            (WorkspaceUse::View, true) => "its own view of the workspace, can be undone",
            (WorkspaceUse::View, false) => "its own view of the workspace",
            (WorkspaceUse::Live | WorkspaceUse::Direct, true) => "the workspace itself, can be undone",
            (WorkspaceUse::Live | WorkspaceUse::Direct, false) => "the workspace itself, cannot be undone",
        };
        let beside = if self.other_roots { ", directories beside it" } else { "" };
        let secrets = if self.secrets { ", with secrets" } else { "" };
        format!("tier {}, {network}, {workspace}{beside}{secrets}", self.tier.as_str())
    }

    /// What a grant that covers more than one call is bound to: every fact.
    pub(crate) fn key(&self) -> String {
        let Self { tier, network, hosts, workspace, other_roots, reversible, secrets } = self;
        let (tier, network, workspace) = (tier.as_str(), network.as_str(), workspace.as_str());
        format!("{tier} {network} {workspace} {other_roots} {reversible} {secrets} {}", hosts.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_weaker_fact_ends_containment() {
        let strong = || Containment {
            tier: ContainmentTier::C,
            network: NetworkReach::None,
            hosts: Vec::new(),
            workspace: WorkspaceUse::View,
            other_roots: false,
            reversible: true,
            secrets: false,
        };
        assert!(strong().contained() && !strong().reaches_hosts());
        let filtered = Containment { network: NetworkReach::Filtered, hosts: vec!["a.test".into()], ..strong() };
        assert!(filtered.contained() && filtered.reaches_hosts());
        for weaker in [
            Containment { tier: ContainmentTier::B, ..strong() },
            Containment { network: NetworkReach::Host, ..strong() },
            Containment { workspace: WorkspaceUse::Live, ..strong() },
            Containment { other_roots: true, ..strong() },
            Containment { reversible: false, ..strong() },
            Containment { workspace: WorkspaceUse::Direct, ..strong() },
            Containment { secrets: true, ..strong() },
        ] {
            assert!(!weaker.contained(), "{weaker:?}");
            assert_ne!(weaker.key(), strong().key());
        }
        assert_ne!(filtered.key(), strong().key());
        assert_eq!(strong().describe(), "tier c, no network, its own view of the workspace, can be undone");
        assert!(filtered.describe().contains("network: a.test alone"));
    }
}

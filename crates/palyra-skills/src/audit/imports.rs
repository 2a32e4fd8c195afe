//! Every import of a component, classified by its interface: harmless, bearing a capability, or forbidden.
//!
//! The host answers the WASI interfaces that toolchains import by themselves: without a grant they show an empty world.
//! So an undeclared WASI import is worth a warning and no more; Python and JavaScript always have many. Our own
//! interfaces are linked only where a grant names them, so a component that imports one without declaring it could
//! never run.

use super::world::{interface, version};
use crate::constants::{PROTOCOL_MAJOR, WORLD_PACKAGE};
use crate::manifest::Capabilities;
use serde::Serialize;
use std::fmt;

/// A capability that an import needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NeededCapability {
    /// `capabilities.filesystem`.
    Filesystem,
    /// `capabilities.http.egress`.
    Http,
    /// `capabilities.secrets`.
    Secrets,
    /// `capabilities.storage`.
    Storage,
}

impl NeededCapability {
    /// Every capability that an import can need.
    pub const ALL: [Self; 4] = [Self::Filesystem, Self::Http, Self::Secrets, Self::Storage];

    /// The key in manifests.
    #[must_use]
    pub fn manifest_key(self) -> &'static str {
        match self {
            Self::Filesystem => "capabilities.filesystem",
            Self::Http => "capabilities.http",
            Self::Secrets => "capabilities.secrets",
            Self::Storage => "capabilities.storage",
        }
    }

    /// Whether a manifest asks for it.
    #[must_use]
    pub fn is_declared(self, asked: &Capabilities) -> bool {
        match self {
            Self::Filesystem => !asked.read_roots.is_empty() || !asked.write_roots.is_empty(),
            Self::Http => !asked.egress.is_empty(),
            Self::Secrets => !asked.secrets.is_empty(),
            Self::Storage => asked.storage_bytes > 0,
        }
    }
}

impl fmt::Display for NeededCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.manifest_key())
    }
}

/// What an import means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "class", rename_all = "snake_case")]
pub enum ImportClass {
    /// It reaches nothing.
    Harmless,
    /// It reaches something, if the capability is granted.
    Capability {
        /// Which must be declared.
        needs: NeededCapability,
        /// Whether the host answers it without a grant too, by showing an empty world.
        is_virtualised: bool,
    },
    /// The host does not provide it.
    Forbidden {
        /// Why.
        why: &'static str,
    },
}

/// An interface of a package, and what importing it means. The package's other interfaces are forbidden.
struct Known {
    package: &'static str,
    interfaces: &'static [&'static str],
    /// Nothing for an interface that reaches nothing.
    needs: Option<NeededCapability>,
}

const fn known(package: &'static str, interfaces: &'static [&'static str], needs: Option<NeededCapability>) -> Known {
    Known { package, interfaces, needs }
}

/// Everything that the host provides.
const KNOWN: [Known; 12] = [
    known("wasi:io", &["error", "poll", "streams"], None),
    known("wasi:clocks", &["monotonic-clock", "wall-clock", "timezone"], None),
    known("wasi:random", &["random", "insecure", "insecure-seed"], None),
    known("wasi:cli", &["environment", "exit", "stdin", "stdout", "stderr"], None),
    known(
        "wasi:cli",
        &["terminal-input", "terminal-output", "terminal-stdin", "terminal-stdout", "terminal-stderr"],
        None,
    ),
    known("wasi:filesystem", &["types", "preopens"], Some(NeededCapability::Filesystem)),
    known("wasi:http", &["types", "outgoing-handler"], Some(NeededCapability::Http)),
    known(
        "wasi:sockets",
        &["network", "instance-network", "ip-name-lookup", "tcp", "tcp-create-socket", "udp", "udp-create-socket"],
        Some(NeededCapability::Http),
    ),
    known(WORLD_PACKAGE, &["log", "tools"], None),
    known(WORLD_PACKAGE, &["http"], Some(NeededCapability::Http)),
    known(WORLD_PACKAGE, &["secrets"], Some(NeededCapability::Secrets)),
    known(WORLD_PACKAGE, &["storage"], Some(NeededCapability::Storage)),
];

/// What an import means, by its name.
#[must_use]
pub fn classify(import: &str) -> ImportClass {
    let Some((package, name)) = interface(import).split_once('/') else {
        return ImportClass::Forbidden { why: "it is no interface of a package" };
    };
    let Some(known) = KNOWN.iter().find(|known| known.package == package && known.interfaces.contains(&name)) else {
        return ImportClass::Forbidden { why: "the host provides no such interface" };
    };
    let ours = package == WORLD_PACKAGE;
    let provided = version(import).is_some_and(|version| match ours {
        true => version.major == u64::from(PROTOCOL_MAJOR),
        false => (version.major, version.minor) == (0, 2),
    });
    match known.needs {
        _ if !provided => ImportClass::Forbidden { why: "the host does not provide this version" },
        Some(needs) => ImportClass::Capability { needs, is_virtualised: !ours },
        None => ImportClass::Harmless,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_classified_by_interface_and_version() {
        let capability = |needs, is_virtualised| ImportClass::Capability { needs, is_virtualised };
        for (import, class) in [
            ("wasi:io/streams@0.2.0", ImportClass::Harmless),
            ("wasi:cli/environment@0.2.6", ImportClass::Harmless),
            ("palyra:skill/log@1.0.0", ImportClass::Harmless),
            ("wasi:filesystem/preopens@0.2.3", capability(NeededCapability::Filesystem, true)),
            ("wasi:sockets/tcp@0.2.0", capability(NeededCapability::Http, true)),
            ("palyra:skill/http@1.2.0", capability(NeededCapability::Http, false)),
            ("palyra:skill/secrets@1.0.0", capability(NeededCapability::Secrets, false)),
            ("palyra:skill/storage@1.0.0", capability(NeededCapability::Storage, false)),
        ] {
            assert_eq!(classify(import), class, "{import}");
        }
        for forbidden in [
            "wasi:io/streams",
            "wasi:io/streams@0.3.0",
            "wasi:io/other@0.2.0",
            "wasi:http/incoming-handler@0.2.0",
            "wasi:keyvalue/store@0.2.0",
            "palyra:skill/admin@1.0.0",
            "palyra:skill/http@2.0.0",
            "palyra:skill.http",
            "env",
            "wasi_snapshot_preview1",
            "",
        ] {
            assert!(matches!(classify(forbidden), ImportClass::Forbidden { .. }), "{forbidden}");
        }
    }
}

//! The order of versions, which every registry has its own rules for.

use std::cmp::Ordering;
use std::str::FromStr as _;

/// By which rules versions are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    /// Semantic Versioning: crates, npm packages, skills.
    SemVer,
    /// PEP 440: Python packages.
    Pep440,
    /// Unknown: only equal texts can be compared.
    Text,
}

impl Scheme {
    /// The rules of a package's registry.
    pub(super) fn of(kind: &str) -> Self {
        match kind {
            "cargo" | "npm" | "palyra-skill" => Self::SemVer,
            "pypi" => Self::Pep440,
            _ => Self::Text,
        }
    }
}

/// How two versions stand to each other; nothing if that cannot be said.
pub(super) fn compare(scheme: Scheme, a: &str, b: &str) -> Option<Ordering> {
    match scheme {
        Scheme::SemVer => {
            let parse = |text: &str| semver::Version::parse(text.trim_start_matches('v')).ok();
            Some(parse(a)?.cmp_precedence(&parse(b)?))
        }
        Scheme::Pep440 => {
            let parse = |text: &str| pep440_rs::Version::from_str(text).ok();
            Some(parse(a)?.cmp(&parse(b)?))
        }
        Scheme::Text => (a == b).then_some(Ordering::Equal),
    }
}

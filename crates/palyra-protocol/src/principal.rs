//! Principals: who acts. A kind and a name, written `agent:demo`.
//!
//! The kind decides what a principal can be trusted with at all: a person can approve, a program cannot. It is part of
//! the type's value and never inferred from the spelling of a name.

use crate::id::excerpt;
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// What sort of actor a principal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrincipalKind {
    /// A person.
    User,
    /// A program that proposes calls: a service principal. It can never approve.
    Agent,
    /// A paired device acting as itself.
    Device,
    /// The daemon.
    System,
}

impl PrincipalKind {
    /// Every kind, in the order of their listing.
    pub const ALL: [Self; 4] = [Self::User, Self::Agent, Self::Device, Self::System];

    /// The word before the colon.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Agent => "agent",
            Self::Device => "device",
            Self::System => "system",
        }
    }
}

/// An actor: `user:local`, `agent:demo`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct Principal {
    kind: PrincipalKind,
    name: Arc<str>,
}

/// Why a text is not a principal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not a principal; write `user:NAME`, `agent:NAME` or `device:NAME` (1 to 64 of a-z 0-9 . _ -)")]
pub struct PrincipalError {
    given: String,
}

impl Principal {
    /// The longest name.
    pub const MAX_NAME: usize = 64;

    /// Makes a principal from its parts.
    ///
    /// # Errors
    /// The name is empty, too long, or has characters other than `a-z 0-9 . _ -`.
    pub fn new(kind: PrincipalKind, name: &str) -> Result<Self, PrincipalError> {
        let fits = (1..=Self::MAX_NAME).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b));
        if fits {
            Ok(Self { kind, name: name.into() })
        } else {
            Err(PrincipalError { given: excerpt(&format!("{}:{name}", kind.as_str())) })
        }
    }

    /// The person who runs the daemon on this machine.
    #[must_use]
    pub fn local_owner() -> Self {
        Self { kind: PrincipalKind::User, name: "local".into() }
    }

    /// The daemon itself: the author of what it journals on its own account.
    #[must_use]
    pub fn daemon() -> Self {
        Self { kind: PrincipalKind::System, name: "palyrad".into() }
    }

    /// Person, program, device or daemon.
    #[must_use]
    pub fn kind(&self) -> PrincipalKind {
        self.kind
    }

    /// The name without its kind.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.as_str())?;
        f.write_str(":")?;
        f.write_str(&self.name)
    }
}

impl FromStr for Principal {
    type Err = PrincipalError;
    fn from_str(text: &str) -> Result<Self, PrincipalError> {
        let error = || PrincipalError { given: excerpt(text) };
        let (kind, name) = text.split_once(':').ok_or_else(error)?;
        let kind = PrincipalKind::ALL.into_iter().find(|k| k.as_str() == kind).ok_or_else(error)?;
        Self::new(kind, name)
    }
}

impl TryFrom<String> for Principal {
    type Error = PrincipalError;
    fn try_from(text: String) -> Result<Self, PrincipalError> {
        text.parse()
    }
}

impl Serialize for Principal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_prints() {
        let demo: Principal = "agent:demo".parse().unwrap();
        assert_eq!((demo.kind(), demo.name()), (PrincipalKind::Agent, "demo"));
        assert_eq!(demo.to_string(), "agent:demo");
        for bad in ["", "demo", "agent:", "root:x", "agent:a b", "agent:Upper", "agent:a:b", "AGENT:x"] {
            assert!(bad.parse::<Principal>().is_err(), "{bad}");
        }
    }
}

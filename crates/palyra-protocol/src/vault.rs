//! References to secrets: `vault://<scope>/<name>`.
//!
//! A call names a secret by reference and never holds its value. One strict parser reads references for every door:
//! each reference has one spelling, so policy, journal and vault compare them as text. A scope says whose secret it is;
//! a call reaches a secret only if policy permits it *and* the scope admits the caller ([`VaultScope::admits`]).

use crate::id::{ChannelId, excerpt};
use crate::principal::Principal;
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// What every reference begins with.
const SCHEME: &str = "vault://";

/// Why a text is not a reference to a secret, or not a part of one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretRefError {
    /// It does not begin with `vault://`.
    #[error("`{given}` is not a reference to a secret; it should look like `vault://global/github`")]
    Scheme {
        /// What was given.
        given: String,
    },
    /// The scope is none.
    #[error(
        "`{given}` is not a scope; write `global`, `principal:agent:NAME`, `channel:NAME` or `skill:ID` (a name is 1 to {} \
         of A-Z a-z 0-9 . _ : @ -)",
        ScopeName::MAX
    )]
    Scope {
        /// What was given.
        given: String,
    },
    /// The name is none.
    #[error(
        "`{given}` is not the name of a secret; write 1 to {} of A-Z a-z 0-9 . _ - in at most {} parts joined by `/`, none \
         beginning with a dot",
        SecretName::MAX,
        SecretName::MAX_PARTS
    )]
    Name {
        /// What was given.
        given: String,
    },
}

impl SecretRefError {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Scheme { .. } => "secret_reference_malformed",
            Self::Scope { .. } => "secret_scope_malformed",
            Self::Name { .. } => "secret_name_malformed",
        }
    }
}

/// The name of a channel or a skill inside a scope. It holds no `/`, so a reference splits in one way only.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScopeName(Arc<str>);

impl ScopeName {
    /// The longest name.
    pub const MAX: usize = 64;

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ScopeName {
    type Err = SecretRefError;
    fn from_str(text: &str) -> Result<Self, SecretRefError> {
        let fits = (1..=Self::MAX).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:@-".contains(&b))
            && !text.starts_with('.');
        if fits { Ok(Self(text.into())) } else { Err(SecretRefError::Scope { given: excerpt(text) }) }
    }
}

/// Whose secret it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub enum VaultScope {
    /// Every caller that policy permits.
    Global,
    /// Calls of one principal.
    Principal(Principal),
    /// Calls that came through one channel.
    Channel(ScopeName),
    /// Calls of one skill.
    Skill(ScopeName),
}

/// Who asks for a secret, as far as a scope looks at it.
#[derive(Debug, Clone, Copy)]
pub struct SecretCaller<'a> {
    /// The principal that the call is made for.
    pub principal: &'a Principal,
    /// The channel that the call came through.
    pub channel: &'a ChannelId,
    /// The skill that the call belongs to, by its id.
    pub skill: Option<&'a str>,
}

impl VaultScope {
    /// Whether a call of this caller may reach secrets of this scope, if policy permits it too.
    #[must_use]
    pub fn admits(&self, caller: SecretCaller<'_>) -> bool {
        match self {
            Self::Global => true,
            Self::Principal(principal) => principal == caller.principal,
            Self::Channel(channel) => channel.as_str() == caller.channel.as_str(),
            Self::Skill(skill) => caller.skill == Some(skill.as_str()),
        }
    }

    /// The word before the first colon: what policy calls the kind of a scope.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Global => "global",
            Self::Principal(_) => "principal",
            Self::Channel(_) => "channel",
            Self::Skill(_) => "skill",
        }
    }
}

impl fmt::Display for VaultScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())?;
        match self {
            Self::Global => Ok(()),
            Self::Principal(principal) => write!(f, ":{principal}"),
            Self::Channel(name) | Self::Skill(name) => write!(f, ":{}", name.as_str()),
        }
    }
}

impl FromStr for VaultScope {
    type Err = SecretRefError;
    fn from_str(text: &str) -> Result<Self, SecretRefError> {
        let error = || SecretRefError::Scope { given: excerpt(text) };
        if text == "global" {
            return Ok(Self::Global);
        }
        let (kind, name) = text.split_once(':').ok_or_else(error)?;
        match kind {
            "principal" => name.parse().map(Self::Principal).map_err(|_| error()),
            "channel" => name.parse().map(Self::Channel).map_err(|_| error()),
            "skill" => name.parse().map(Self::Skill).map_err(|_| error()),
            _ => Err(error()),
        }
    }
}

impl TryFrom<String> for VaultScope {
    type Error = SecretRefError;
    fn try_from(text: String) -> Result<Self, SecretRefError> {
        text.parse()
    }
}

impl Serialize for VaultScope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The name of a secret within its scope: `github`, `aws/prod/deploy`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct SecretName(Arc<str>);

impl SecretName {
    /// The longest name.
    pub const MAX: usize = 128;
    /// The most parts between slashes.
    pub const MAX_PARTS: usize = 8;

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SecretName {
    type Err = SecretRefError;
    fn from_str(text: &str) -> Result<Self, SecretRefError> {
        let part_fits = |part: &str| {
            !part.is_empty()
                && !part.starts_with('.')
                && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        };
        let fits =
            text.len() <= Self::MAX && text.split('/').count() <= Self::MAX_PARTS && text.split('/').all(part_fits);
        if fits { Ok(Self(text.into())) } else { Err(SecretRefError::Name { given: excerpt(text) }) }
    }
}

impl TryFrom<String> for SecretName {
    type Error = SecretRefError;
    fn try_from(text: String) -> Result<Self, SecretRefError> {
        text.parse()
    }
}

impl Serialize for SecretName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A reference to a secret: `vault://global/github`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct SecretRef {
    scope: VaultScope,
    name: SecretName,
}

impl SecretRef {
    /// The longest reference, as text. Nothing longer is looked at.
    pub const MAX: usize =
        SCHEME.len() + "principal:".len() + "device:".len() + Principal::MAX_NAME + 1 + SecretName::MAX;

    /// Puts a reference together.
    #[must_use]
    pub fn new(scope: VaultScope, name: SecretName) -> Self {
        Self { scope, name }
    }

    /// Reads a reference that an operator typed: `vault://` may be left out. What an agent sends is read by `from_str`,
    /// which wants the whole reference.
    ///
    /// # Errors
    /// As for `from_str`.
    pub fn from_operator(text: &str) -> Result<Self, SecretRefError> {
        Self::from_path(text.strip_prefix(SCHEME).unwrap_or(text), text)
    }

    /// Whose secret it is.
    #[must_use]
    pub fn scope(&self) -> &VaultScope {
        &self.scope
    }

    /// What it is called there.
    #[must_use]
    pub fn name(&self) -> &SecretName {
        &self.name
    }

    fn from_path(path: &str, given: &str) -> Result<Self, SecretRefError> {
        let error = || SecretRefError::Scheme { given: excerpt(given) };
        if given.len() > Self::MAX {
            return Err(error());
        }
        let (scope, name) = path.split_once('/').ok_or_else(error)?;
        Ok(Self { scope: scope.parse()?, name: name.parse()? })
    }
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.scope, self.name)
    }
}

impl FromStr for SecretRef {
    type Err = SecretRefError;
    fn from_str(text: &str) -> Result<Self, SecretRefError> {
        let path = text.strip_prefix(SCHEME).ok_or_else(|| SecretRefError::Scheme { given: excerpt(text) })?;
        Self::from_path(path, text)
    }
}

impl TryFrom<String> for SecretRef {
    type Error = SecretRefError;
    fn try_from(text: String) -> Result<Self, SecretRefError> {
        text.parse()
    }
}

impl Serialize for SecretRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expect: &str) {
        let found = match text.parse::<SecretRef>() {
            Ok(reference) => format!("{} | {}", reference.scope(), reference.name()),
            Err(error) => error.code().to_owned(),
        };
        assert_eq!(found, expect, "{text:?}");
    }

    #[test]
    fn references_are_read() {
        check("vault://global/github", "global | github");
        check("vault://principal:agent:demo/aws/prod", "principal:agent:demo | aws/prod");
        check("vault://channel:mcp:x@y/a.b_c-D", "channel:mcp:x@y | a.b_c-D");
        check("vault://skill:acme.weather/key", "skill:acme.weather | key");
        let longest = format!("vault://principal:device:{}/{}", "a".repeat(64), "b".repeat(128));
        assert_eq!(longest.len(), SecretRef::MAX);
        assert_eq!(longest.parse::<SecretRef>().unwrap().to_string(), longest);
    }

    #[test]
    fn whatever_could_mean_two_things_is_refused() {
        let (malformed, scope, name) =
            ("secret_reference_malformed", "secret_scope_malformed", "secret_name_malformed");
        for (text, expect) in [
            ("", malformed),
            ("github", malformed),
            ("global/github", malformed),
            ("VAULT://global/github", malformed),
            ("vault:///github", scope),
            ("vault://global", malformed),
            ("vault://GLOBAL/x", scope),
            ("vault://global:x/y", scope),
            ("vault://principal:demo/x", scope),
            ("vault://principal:agent:/x", scope),
            ("vault://principal:agent:..//x", name),
            ("vault://channel:/x", scope),
            ("vault://channel:a b/x", scope),
            ("vault://channel:../x", scope),
            ("vault://file:x/etc/passwd", scope),
            ("vault://env:HOME/x", scope),
            ("vault://global/", name),
            ("vault://global//x", name),
            ("vault://global/x/", name),
            ("vault://global/.", name),
            ("vault://global/..", name),
            ("vault://global/../../etc/passwd", name),
            ("vault://global/a/../b", name),
            ("vault://global/.hidden", name),
            ("vault://global/a%2fb", name),
            ("vault://global/a\\b", name),
            ("vault://global/a\0b", name),
            ("vault://global/a b", name),
            ("vault://global/a\n", name),
            ("vault://global/é", name),
            ("vault://global/a?version=1", name),
            ("vault://global/a#b", name),
            ("vault://global/a/b/c/d/e/f/g/h/i", name),
            (" vault://global/a", malformed),
        ] {
            check(text, expect);
        }
        check(&format!("vault://global/{}", "x".repeat(129)), name);
        check(&format!("vault://global/{}", "x".repeat(1 << 20)), malformed);
        check(&format!("vault://skill:{}/x", "x".repeat(65)), scope);
    }

    #[test]
    fn an_operator_may_leave_the_scheme_out() {
        let reference: SecretRef = "vault://global/github".parse().unwrap();
        assert_eq!(SecretRef::from_operator("global/github"), Ok(reference.clone()));
        assert_eq!(SecretRef::from_operator("vault://global/github"), Ok(reference));
        assert!(SecretRef::from_operator("github").is_err());
    }

    #[test]
    fn a_scope_admits_its_own_callers() {
        let (ann, bob): (Principal, Principal) = ("agent:ann".parse().unwrap(), "agent:bob".parse().unwrap());
        let (cli, mcp): (ChannelId, ChannelId) = ("cli".parse().unwrap(), "mcp".parse().unwrap());
        let caller = SecretCaller { principal: &ann, channel: &cli, skill: Some("acme.weather") };
        let scope = |text: &str| text.parse::<VaultScope>().unwrap();
        for mine in ["global", "principal:agent:ann", "channel:cli", "skill:acme.weather"] {
            assert!(scope(mine).admits(caller), "{mine}");
        }
        for other in ["principal:user:ann", "principal:agent:bob", "channel:mcp", "skill:acme.weather2"] {
            assert!(!scope(other).admits(caller), "{other}");
        }
        let other = SecretCaller { principal: &bob, channel: &mcp, skill: None };
        assert!(!scope("skill:acme.weather").admits(other) && !scope("channel:cli").admits(other));
    }

    proptest! {
        #[test]
        fn a_reference_that_is_read_reads_the_same_again(text in "(vault://)?[\\PC]{0,40}|vault://(global|channel:[a-z/.]{0,9})/[a-z./-]{0,20}") {
            if let Ok(reference) = text.parse::<SecretRef>() {
                prop_assert_eq!(reference.to_string(), text);
            }
        }
    }
}

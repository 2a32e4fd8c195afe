//! Names that grants are made of: skills, secrets and paths within the workspace.
//!
//! Each is untrusted text with one strict parser. Secrets and paths know what two of them have in common, which is how
//! a grant is made from what a manifest asks for and what the policy allows.

use crate::error::PluginError;
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The name of a skill: who shares a queue, a storage and a concurrency limit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SkillName(Arc<str>);

impl SkillName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SkillName {
    type Err = PluginError;
    fn from_str(text: &str) -> Result<Self, PluginError> {
        let fits = (1..=128).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-/@".contains(&b))
            && text.split('/').all(|part| !part.is_empty() && !part.bytes().all(|b| b == b'.'));
        if fits {
            Ok(Self(text.into()))
        } else {
            Err(PluginError::SkillName { given: text.chars().take(80).collect() })
        }
    }
}

impl fmt::Display for SkillName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a text names no secret or path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` {why}")]
pub struct NameError {
    given: String,
    why: &'static str,
}

impl NameError {
    fn new(given: &str, why: &'static str) -> Self {
        Self { given: given.chars().take(80).collect(), why }
    }
}

/// Secrets: one (`scope/key`), or every one of a scope (`scope/*`).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct SecretPattern {
    scope: String,
    key: Option<String>,
}

impl SecretPattern {
    /// Whether it stands for this secret.
    #[must_use]
    pub fn allows(&self, scope: &str, key: &str) -> bool {
        self.scope == scope && self.key.as_deref().is_none_or(|own| own == key)
    }

    /// What both stand for.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        if self.scope != other.scope {
            return None;
        }
        match (&self.key, &other.key) {
            (None, _) => Some(other.clone()),
            (_, None) => Some(self.clone()),
            (a, b) => (a == b).then(|| self.clone()),
        }
    }
}

/// What a scope or a key may be.
pub(crate) fn is_secret_word(word: &str) -> bool {
    (1..=128).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:@-".contains(&b))
}

impl FromStr for SecretPattern {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let refuse = || NameError::new(text, "is not `scope/key` or `scope/*`");
        let (scope, key) = text.split_once('/').ok_or_else(refuse)?;
        if !is_secret_word(scope) || !(key == "*" || is_secret_word(key)) {
            return Err(refuse());
        }
        Ok(Self { scope: scope.to_owned(), key: (key != "*").then(|| key.to_owned()) })
    }
}

impl fmt::Display for SecretPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.scope, self.key.as_deref().unwrap_or("*"))
    }
}

/// A path within the workspace: `.` for all of it, or names joined by `/`. It never leads out and never names a link's
/// target.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct WorkspacePath(String);

impl WorkspacePath {
    /// The workspace itself.
    #[must_use]
    pub fn root() -> Self {
        Self(String::new())
    }

    /// The names on the way, from the workspace.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').filter(|name| !name.is_empty())
    }

    /// Whether this is the other path or lies below it.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        other.0.is_empty() || self.0.strip_prefix(&other.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// What lies within both.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        if self.is_within(other) { Some(self.clone()) } else { other.is_within(self).then(|| other.clone()) }
    }

    /// A path below this one, as a guest writes it: relative, `.` allowed, `..` only within what it has named itself.
    ///
    /// # Errors
    /// When it would lead out, or has a name that no file can have.
    pub fn join(&self, path: &str) -> Result<Self, NameError> {
        let mut names: Vec<&str> = self.names().collect();
        let base = names.len();
        if path.starts_with('/') {
            return Err(NameError::new(path, "is absolute"));
        }
        if path.len() > 4096 {
            return Err(NameError::new(path, "is too long"));
        }
        for name in path.split('/') {
            match name {
                "" | "." => {}
                ".." if names.len() > base => {
                    names.pop();
                }
                ".." => return Err(NameError::new(path, "leads out of the directory")),
                name if name.len() > 255 || name.bytes().any(|b| b == 0) => {
                    return Err(NameError::new(path, "has a name that no file can have"));
                }
                name => names.push(name),
            }
        }
        Ok(Self(names.join("/")))
    }
}

impl FromStr for WorkspacePath {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.is_empty() || text.split('/').any(|name| name == ".." || name == "*") {
            return Err(NameError::new(text, "is not a path within the workspace; `.` is all of it"));
        }
        Self::root().join(text)
    }
}

impl fmt::Display for WorkspacePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "." } else { &self.0 })
    }
}

macro_rules! as_text {
    ($($name:ident),*) => {$(
        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                text.parse()
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}

as_text!(SecretPattern, WorkspacePath);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skill_names_cannot_be_paths_elsewhere() {
        for good in ["echo-http", "acme/echo-http@1.2.0", "a.b_c"] {
            assert!(good.parse::<SkillName>().is_ok(), "{good}");
        }
        for bad in ["", "..", "a/../b", "/a", "a/", "a b", "a\\b", &"x".repeat(129)] {
            assert!(bad.parse::<SkillName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn secrets_meet_where_both_name_them() {
        let secret = |text: &str| text.parse::<SecretPattern>().unwrap();
        assert_eq!(secret("a/*").intersect(&secret("a/b")), Some(secret("a/b")));
        assert_eq!(secret("a/c").intersect(&secret("a/b")), None);
        assert_eq!(secret("b/*").intersect(&secret("a/b")), None);
        assert!(secret("a/*").allows("a", "x") && !secret("a/b").allows("a", "x"));
        for bad in ["", "a", "a/", "/b", "*/b", "a/b/c", "a /b", "a/b*"] {
            assert!(bad.parse::<SecretPattern>().is_err(), "{bad}");
        }
    }

    #[test]
    fn paths_stay_within() {
        let path = |text: &str| text.parse::<WorkspacePath>().unwrap();
        assert_eq!(path("a/b").intersect(&path("a")), Some(path("a/b")));
        assert_eq!(path(".").intersect(&path("a")), Some(path("a")));
        assert_eq!(path("ab").intersect(&path("a")), None);
        assert_eq!(path("a").join("./b//c/../d").unwrap(), path("a/b/d"));
        for bad in ["..", "../a", "b/../../a", "/etc/passwd", "a\0", &"x".repeat(256)] {
            assert!(path("a").join(bad).is_err(), "{bad:?}");
        }
        for bad in ["", "..", "a/..", "/a", "*", "a/*"] {
            assert!(bad.parse::<WorkspacePath>().is_err(), "{bad:?}");
        }
    }
}

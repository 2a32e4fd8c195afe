//! The names of a skill: publisher, skill, tool, version, key.
//!
//! A skill's id begins with its publisher's name, so a key that is trusted for one publisher can never sign a skill of
//! another. Every part is a lower-case word without separators of any file system, so an id is safe as a directory
//! name and as a part of a tool's name.

use palyra_protocol::{DigestBuilder, PublicKey, ToolName};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// A text that is no name of the kind that was wanted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not {wanted}")]
pub struct NameError {
    given: String,
    wanted: &'static str,
}

impl NameError {
    fn new(given: &str, wanted: &'static str) -> Self {
        Self { given: crate::text::excerpt(given), wanted }
    }
}

/// A lower-case letter, then lower-case letters, digits and `_`.
fn is_word(text: &str) -> bool {
    text.bytes().next().is_some_and(|b| b.is_ascii_lowercase())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $max:literal, $wanted:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(String);

        impl $name {
            /// The most characters.
            pub const MAX: usize = $max;

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                let check: fn(&str) -> bool = $check;
                if text.len() <= Self::MAX && check(text) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(NameError::new(text, $wanted))
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                text.parse()
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// Who signs: `acme`.
    PublisherId, 32, "a publisher: a lower-case word of at most 32 letters, digits and `_`, like `acme`", is_word
);
name!(
    /// A skill: its publisher and one or more words, `acme.weather`.
    SkillId, 64, "a skill id: the publisher and at least one more lower-case word, joined by dots, at most 64 \
    characters, like `acme.weather`", |text| text.contains('.') && text.split('.').all(is_word)
);
name!(
    /// A tool within its skill: `forecast`.
    ToolId, 48, "a tool id: a lower-case word of at most 48 letters, digits and `_`, like `forecast`", is_word
);
name!(
    /// The short name of a publisher's key: 32 hexadecimal digits.
    KeyId, 32, "a key id: 32 lower-case hexadecimal digits",
    |text| text.len() == 32 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
);

impl SkillId {
    /// The publisher that this id belongs to.
    #[must_use]
    pub fn publisher(&self) -> &str {
        self.0.split('.').next().unwrap_or_default()
    }

    /// The name by which the daemon and its policies know one of this skill's tools: `skill.acme.weather.forecast`.
    ///
    /// # Errors
    /// The name is too long, which the limits of both parts exclude.
    pub fn tool_name(&self, tool: &ToolId) -> Result<ToolName, palyra_protocol::tool::ToolNameError> {
        format!("skill.{self}.{tool}").parse()
    }
}

impl KeyId {
    /// The id of a key.
    #[must_use]
    pub fn of(key: &PublicKey) -> Self {
        let digest = DigestBuilder::new("palyra.skill.key.v1").field(key.to_string().as_bytes()).finish();
        Self(digest.to_string().chars().take(Self::MAX).collect())
    }
}

/// A skill's version: SemVer in its one spelling.
///
/// Build metadata is refused because SemVer gives it no order, and so are capital letters, because two directories that
/// differ in case only are one directory on some machines.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct SkillVersion(semver::Version);

impl SkillVersion {
    /// The most characters.
    pub const MAX: usize = 64;

    /// The version as SemVer.
    #[must_use]
    pub fn semver(&self) -> &semver::Version {
        &self.0
    }
}

impl FromStr for SkillVersion {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let wanted = "a version: SemVer in lower case without build metadata, like `1.4.0` or `2.0.0-beta.1`";
        let short = text.len() <= Self::MAX && !text.bytes().any(|b| b.is_ascii_uppercase());
        let version = short.then(|| semver::Version::parse(text).ok()).flatten();
        version.filter(|v| v.build.is_empty()).map(Self).ok_or_else(|| NameError::new(text, wanted))
    }
}

impl TryFrom<String> for SkillVersion {
    type Error = NameError;
    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl Serialize for SkillVersion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl fmt::Display for SkillVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_hold_nothing_that_a_path_could_obey() {
        assert!("acme.weather_2.de".parse::<SkillId>().is_ok());
        for bad in [
            "",
            "acme",
            "acme.",
            ".acme.x",
            "acme..x",
            "acme.../x",
            "../x.y",
            "Acme.x",
            "acme.x-y",
            "acme.x/y",
            "a.\u{e9}",
        ] {
            assert!(bad.parse::<SkillId>().is_err(), "{bad}");
        }
        assert!(format!("acme.{}", "x".repeat(60)).parse::<SkillId>().is_err());
        for bad in ["", "a.b", "A", "1a", "a-b", "a b"] {
            assert!(bad.parse::<PublisherId>().is_err() && bad.parse::<ToolId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_longest_names_make_a_tool_name() {
        let skill: SkillId = format!("acme.{}", "x".repeat(59)).parse().unwrap();
        let tool: ToolId = "t".repeat(48).parse().unwrap();
        assert!(skill.tool_name(&tool).is_ok());
        assert_eq!(skill.publisher(), "acme");
    }

    #[test]
    fn versions_have_one_spelling_and_an_order() {
        for bad in ["1", "1.0", "v1.0.0", "1.0.0+build", "1.0.0-RC1", "01.0.0", "1.0.0 ", "../1.0.0"] {
            assert!(bad.parse::<SkillVersion>().is_err(), "{bad}");
        }
        let version = |text: &str| text.parse::<SkillVersion>().unwrap();
        assert!(version("1.0.0-beta.2") < version("1.0.0-beta.11"));
        assert!(version("1.0.0-beta.11") < version("1.0.0"));
        assert_eq!(version("1.10.0").to_string(), "1.10.0");
    }
}

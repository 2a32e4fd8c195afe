//! The names by which models know tools.
//!
//! Model APIs take `[A-Za-z0-9_-]{1,64}` as a tool's name, and ours have dots. A tool's alias is its canonical name
//! with `.` written as `_` and `_` as `-`: no two names share one, because canonical names have no `-`. A name that is
//! too long is cut and closed with a part of its hash; the capital letter before the hash is in no other alias, so
//! these collide with nothing either. The catalog of tools knows which tool an alias stands for.
//!
//! Only doors speak aliases. Policies, approvals and the journal know canonical names.

use crate::digest::DigestBuilder;
use crate::tool::ToolName;
use std::fmt;

/// The longest name that model APIs take.
pub const MAX_ALIAS: usize = 64;
/// Begins the hash of a name that was cut.
const CUT: char = 'H';
/// How much of a long name is kept: the rest is the mark and 128 bits in hexadecimal.
const KEPT: usize = MAX_ALIAS - 1 - 32;

/// A tool's name as model APIs take it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ToolAlias(String);

impl ToolAlias {
    /// The alias of a tool.
    #[must_use]
    pub fn of(name: &ToolName) -> Self {
        let plain = exchanged(name.as_str());
        if plain.len() <= MAX_ALIAS {
            return Self(plain);
        }
        let digest = DigestBuilder::new("palyra.tool-alias.v1").field(name.as_str().as_bytes()).finish();
        let hash: String = digest.to_string().chars().take(32).collect();
        Self(format!("{}{CUT}{hash}", &plain[..KEPT]))
    }

    /// The alias as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ToolAlias {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn exchanged(name: &str) -> String {
    name.chars()
        .map(|c| match c {
            '.' => '_',
            '_' => '-',
            other => other,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(text: &str) -> ToolName {
        text.parse().unwrap()
    }

    #[test]
    fn the_aliases_of_familiar_tools() {
        assert_eq!(ToolAlias::of(&name("palyra.fs.read")).as_str(), "palyra_fs_read");
        assert_eq!(ToolAlias::of(&name("palyra.fs.apply_patch")).as_str(), "palyra_fs_apply-patch");
        assert_eq!(ToolAlias::of(&name("echo")).as_str(), "echo");
    }

    fn names() -> impl Strategy<Value = ToolName> {
        "[a-z][a-z0-9_]{0,40}(\\.[a-z][a-z0-9_]{0,20}){0,3}"
            .prop_filter_map("short enough", |text| text.parse::<ToolName>().ok())
    }

    proptest! {
        #[test]
        fn aliases_fit_and_are_distinct(names in prop::collection::btree_set(names(), 1..40)) {
            let mut seen = std::collections::BTreeSet::new();
            for name in &names {
                let alias = ToolAlias::of(name);
                prop_assert!((1..=MAX_ALIAS).contains(&alias.as_str().len()));
                prop_assert!(alias.as_str().bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'));
                prop_assert!(seen.insert(alias.clone()), "{alias} is shared");
            }
        }

        /// Names that differ in nothing but dots and underscores, the hard case, at every length.
        #[test]
        fn dots_and_underscores_are_told_apart(shape in "[a-c]([._][a-c]){1,62}", flips in any::<u64>()) {
            let other: String = shape
                .chars()
                .enumerate()
                .map(|(i, c)| match c {
                    '.' if flips >> (i % 64) & 1 == 1 => '_',
                    '_' if flips >> (i % 64) & 1 == 1 => '.',
                    c => c,
                })
                .collect();
            let (a, b) = (name(&shape), name(&other));
            prop_assert_eq!(a == b, ToolAlias::of(&a) == ToolAlias::of(&b));
        }
    }
}

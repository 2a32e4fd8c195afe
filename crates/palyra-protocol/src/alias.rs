//! The names by which models know tools.
//!
//! Model APIs take `[A-Za-z0-9_-]{1,64}` as a tool's name, and ours have dots. A tool's alias is its canonical name with
//! `.` written as `_` and `_` as `-`: no two names share one, because canonical names have no `-`, and it can be read
//! backwards without a table. A name that is too long is cut and closed with a part of its hash; the capital letter
//! before the hash is in no other alias, so these collide with nothing either, and are found among the known names.
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

/// The tool that a caller means by a name or an alias. What can be read as both is the alias, since that is what doors
/// publish.
#[must_use]
pub fn find<'a>(text: &str, known: impl Iterator<Item = &'a ToolName> + Clone) -> Option<&'a ToolName> {
    if text.contains(CUT) {
        return known.into_iter().find(|name| ToolAlias::of(name).as_str() == text);
    }
    let mut names = known.clone();
    // A dot is in no alias.
    let by_alias = (!text.contains('.')).then(|| named(text)).flatten();
    by_alias
        .and_then(|canonical| known.into_iter().find(|name| **name == canonical))
        .or_else(|| names.find(|name| name.as_str() == text))
}

/// The name that an alias stands for, unless it was cut.
fn named(alias: &str) -> Option<ToolName> {
    let back: String = alias
        .chars()
        .map(|c| match c {
            '_' => '.',
            '-' => '_',
            other => other,
        })
        .collect();
    back.parse().ok()
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

    #[test]
    fn a_text_that_could_be_both_is_the_alias() {
        let known = [name("a.b"), name("a_b"), name("c_d")];
        assert_eq!(find("a_b", known.iter()), Some(&known[0]));
        assert_eq!(find("a-b", known.iter()), Some(&known[1]));
        assert_eq!(find("a.b", known.iter()), Some(&known[0]));
        assert_eq!(find("c_d", known.iter()), Some(&known[2]), "no tool has this alias, so it is a name");
        for unknown in ["", "x", "a b", "A_B", "a__b", "aH00"] {
            assert_eq!(find(unknown, known.iter()), None, "{unknown}");
        }
    }

    fn names() -> impl Strategy<Value = ToolName> {
        "[a-z][a-z0-9_]{0,40}(\\.[a-z][a-z0-9_]{0,20}){0,3}"
            .prop_filter_map("short enough", |text| text.parse::<ToolName>().ok())
    }

    proptest! {
        #[test]
        fn aliases_fit_are_distinct_and_lead_back(names in prop::collection::btree_set(names(), 1..40)) {
            let mut seen = std::collections::BTreeSet::new();
            for name in &names {
                let alias = ToolAlias::of(name);
                prop_assert!((1..=MAX_ALIAS).contains(&alias.as_str().len()));
                prop_assert!(alias.as_str().bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'));
                prop_assert!(seen.insert(alias.clone()), "{alias} is shared");
                prop_assert_eq!(find(alias.as_str(), names.iter()), Some(name));
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

        #[test]
        fn any_text_is_looked_up_without_harm(text in ".{0,80}", names in prop::collection::vec(names(), 0..8)) {
            if let Some(found) = find(&text, names.iter()) {
                let alias = ToolAlias::of(found);
                prop_assert!(found.as_str() == text || alias.as_str() == text);
            }
        }
    }
}

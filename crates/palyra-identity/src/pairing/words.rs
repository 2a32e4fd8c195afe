//! Four words that both screens show: people compare them instead of digits.
//!
//! The words come from the key that the two sides agreed on, so nobody else can choose them. A person who sees the same
//! words in both places knows that the device asking to be let in is the one in their hand.

use std::fmt;

/// 256 plain words, no two of which begin with the same four letters.
const LIST: &str = include_str!("words.txt");
/// How many are shown.
pub(super) const SHOWN: usize = 4;

/// The words of one pairing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MatchingWords([&'static str; SHOWN]);

impl MatchingWords {
    /// The words for four bytes, one each.
    pub(crate) fn of(bytes: [u8; SHOWN]) -> Self {
        Self(bytes.map(|byte| LIST.lines().nth(usize::from(byte)).unwrap_or_default()))
    }

    /// The words in order.
    #[must_use]
    pub fn as_array(&self) -> [&'static str; SHOWN] {
        self.0
    }
}

impl fmt::Display for MatchingWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}

impl fmt::Debug for MatchingWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MatchingWords({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_words_can_be_told_apart() {
        let words: Vec<_> = LIST.lines().collect();
        assert_eq!(words.len(), 256);
        assert!(words.is_sorted());
        let beginnings: BTreeSet<_> = words.iter().map(|word| &word[..4]).collect();
        assert_eq!(beginnings.len(), 256, "the first four letters are enough");
        assert!(words.iter().all(|word| word.len() <= 8 && word.bytes().all(|b| b.is_ascii_lowercase())));
        assert_eq!(MatchingWords::of([0, 1, 255, 0]).to_string(), "acorn actor zipper acorn");
    }
}

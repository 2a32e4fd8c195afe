//! Texts that people write and hostile texts that messages repeat: positions, nearest names, excerpts.

use palyra_protocol::display;
use serde::Serialize;
use std::fmt;

/// How much of a hostile text a message repeats.
const MAX_EXCERPT: usize = 80;

/// A hostile text, cut and made visible, as a message may repeat it.
pub(crate) fn excerpt(text: &str) -> String {
    let mut short: String = text.chars().take(MAX_EXCERPT).collect();
    let cut = short.len() < text.len();
    short = display::safe(&short);
    if cut {
        short.push('…');
    }
    short
}

/// A place in a text, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The character within the line.
    pub column: usize,
}

impl Position {
    /// The place of a byte offset.
    pub(crate) fn of(text: &str, offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Self { line: before.matches('\n').count() + 1, column: before[line_start..].chars().count() + 1 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// What serde says about an unknown key or value.
pub(crate) struct UnknownWord {
    /// `key` or `value`.
    pub(crate) what: &'static str,
    /// The word, as a message may repeat it.
    pub(crate) word: String,
    /// `; did you mean …?` or the words there are.
    pub(crate) hint: String,
}

/// Reads serde's message about a word that it did not expect; nothing for any other message.
pub(crate) fn unknown_word(message: &str) -> Option<UnknownWord> {
    let what = match message.trim() {
        m if m.starts_with("unknown field") => "key",
        m if m.starts_with("unknown variant") => "value",
        _ => return None,
    };
    let mut quoted = message.split('`').skip(1).step_by(2);
    let word = quoted.next()?;
    let hint = did_you_mean(word, &quoted.collect::<Vec<_>>());
    Some(UnknownWord { what, word: excerpt(word), hint })
}

/// Names the nearest of what there is, if something is near; otherwise all of it.
pub(crate) fn did_you_mean(given: &str, known: &[&str]) -> String {
    let short: String = given.chars().take(MAX_EXCERPT).collect();
    let nearest = known.iter().map(|known| (strsim::damerau_levenshtein(&short, known), known)).min();
    match nearest {
        // A third of its letters may be wrong; more is another word.
        Some((wrong, nearest)) if wrong <= short.chars().count().div_ceil(3) => format!("; did you mean `{nearest}`?"),
        Some(_) => format!("; there are {}", known.iter().map(|k| format!("`{k}`")).collect::<Vec<_>>().join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters() {
        assert_eq!(Position::of("a\nbé=1", 2), Position { line: 2, column: 1 });
        assert_eq!(Position::of("a\nbé=1", 5), Position { line: 2, column: 3 });
        assert_eq!(Position::of("", 9), Position { line: 1, column: 1 });
    }

    #[test]
    fn the_nearest_word_is_named() {
        let unknown = unknown_word("unknown field `verson`, expected one of `version`, `name`").unwrap();
        assert_eq!((unknown.what, unknown.word.as_str()), ("key", "verson"));
        assert_eq!(unknown.hint, "; did you mean `version`?");
        let far = unknown_word("unknown field `zzzzzz`, expected `version` or `name`").unwrap();
        assert_eq!(far.hint, "; there are `version`, `name`");
        assert!(unknown_word("invalid type").is_none());
    }

    #[test]
    fn hostile_words_are_cut_and_shown() {
        assert_eq!(excerpt("a\u{1b}[2J"), "a\\u{1b}[2J");
        assert!(excerpt(&"x".repeat(1000)).chars().count() <= 81);
    }
}

//! Texts that a model reads, and what they may hide from the person who approves them.
//!
//! A person sees a description on a screen; a model sees every character of it. Whatever the two see differently is an
//! attack or a mistake: invisible and reordering characters, comments and hidden markup, text that is pushed out of
//! sight. Orders to the model do not belong into a description either: "do not tell the user" has no honest use there.

use palyra_protocol::display;

/// What a text hides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Hidden {
    /// A character that controls a terminal, reorders text or shows nothing.
    Character(char),
    /// An HTML or Markdown comment.
    Comment,
    /// Markup that is not shown.
    Markup(&'static str),
    /// Text behind a long stretch of blanks.
    PushedAway,
    /// A word that mixes alphabets whose letters look alike.
    MixedScript(String),
}

impl std::fmt::Display for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Character(c) => write!(f, "holds the character U+{:04X}, which hides or reorders text", *c as u32),
            Self::Comment => f.write_str("holds a comment, which a reader does not see and a model does"),
            Self::Markup(what) => write!(f, "holds markup that hides text (`{what}`)"),
            Self::PushedAway => f.write_str("pushes text out of sight with a long stretch of blanks"),
            Self::MixedScript(word) => {
                write!(f, "has the word `{}`, which mixes letters of several alphabets", crate::text::excerpt(word))
            }
        }
    }
}

impl Hidden {
    /// Whether an honest text may have it by accident.
    pub(super) fn may_be_innocent(&self) -> bool {
        matches!(self, Self::MixedScript(_))
    }

    /// Whether it is something that a document about markup has too.
    pub(super) fn may_be_markup(&self) -> bool {
        matches!(self, Self::Comment | Self::Markup(_) | Self::PushedAway)
    }
}

/// So many blanks in a row, or so many empty lines, push what follows out of sight.
const MANY_BLANKS: usize = 80;
const MANY_LINES: usize = 12;

/// Markup that a page does not show.
const HIDING_MARKUP: [&str; 7] =
    ["display:none", "visibility:hidden", "font-size:0", "opacity:0", "<script", "<template", "<noscript"];

/// Orders to a model, and marks by which prompts are made to look like somebody else's.
const ORDERS: [&str; 36] = [
    "ignore previous instruction",
    "ignore all previous",
    "ignore the previous",
    "ignore your instruction",
    "ignore the above",
    "disregard previous",
    "disregard all previous",
    "disregard your instruction",
    "disregard the above",
    "forget your instruction",
    "forget all previous",
    "override your instruction",
    "do not tell the user",
    "don't tell the user",
    "never tell the user",
    "do not inform the user",
    "do not mention this to",
    "do not reveal this",
    "without telling the user",
    "without informing the user",
    "without asking the user",
    "without the user's knowledge",
    "hide this from the user",
    "keep this secret from",
    "your system prompt",
    "reveal the system prompt",
    "<system>",
    "</system>",
    "<important>",
    "<|im_start|>",
    "<|system|>",
    "[inst]",
    "[system]",
    "before using any other tool",
    "before calling any other tool",
    "always call this tool first",
];

/// Everything that a text hides, each kind once.
pub(super) fn hidden(text: &str) -> Vec<Hidden> {
    let mut found = Vec::new();
    if let Some(c) = deceiving_character(text) {
        found.push(Hidden::Character(c));
    }
    let lower = text.to_lowercase();
    if lower.contains("<!--") || lower.contains("[//]:") || lower.contains("[comment]:") {
        found.push(Hidden::Comment);
    }
    let tight: String = lower.chars().filter(|c| !c.is_whitespace()).collect();
    found.extend(HIDING_MARKUP.iter().find(|markup| tight.contains(*markup)).map(|markup| Hidden::Markup(markup)));
    if is_pushed_away(text) {
        found.push(Hidden::PushedAway);
    }
    found.extend(
        text.split(|c: char| !c.is_alphabetic()).find(|word| is_mixed(word)).map(|w| Hidden::MixedScript(w.to_owned())),
    );
    found
}

/// The first order to a model that a text holds.
pub(super) fn order(text: &str) -> Option<&'static str> {
    // Characters that show nothing, emphasis and line ends must not break an order in two.
    let plain: String = text
        .to_lowercase()
        .chars()
        .filter(|c| (!display::deceives(*c) || c.is_whitespace()) && !matches!(c, '*' | '_' | '`'))
        .map(|c| if c == '’' { '\'' } else { c })
        .collect();
    let plain = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    ORDERS.into_iter().find(|order| plain.contains(order))
}

/// The first character that a person does not see as a model does. Line ends and tabs are fine, and so are the marks
/// that some scripts and emoji cannot be written without, where they can have that use.
fn deceiving_character(text: &str) -> Option<char> {
    let mut before = None;
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let needed = match c {
            '\n' | '\t' => true,
            // Joiners between letters of the Arabic and Indic scripts.
            '\u{200c}' | '\u{200d}' => before.is_some_and(is_joining) && rest.peek().copied().is_some_and(is_joining),
            // Once after a symbol: "show this as an emoji".
            '\u{fe0f}' => before.is_some_and(|b| {
                matches!(b, '\u{a9}' | '\u{ae}' | '\u{2000}'..='\u{3300}' | '\u{1f000}'..='\u{1faff}')
                    && !display::deceives(b)
            }),
            _ => false,
        };
        if display::deceives(c) && !needed {
            return Some(c);
        }
        before = Some(c);
    }
    None
}

fn is_joining(c: char) -> bool {
    ('\u{600}'..='\u{dff}').contains(&c)
}

fn is_pushed_away(text: &str) -> bool {
    let (mut blanks, mut lines) = (0, 0);
    for c in text.trim_end().chars() {
        match c {
            '\n' => (blanks, lines) = (0, lines + 1),
            c if c.is_whitespace() => blanks += 1,
            _ => (blanks, lines) = (0, 0),
        }
        if blanks >= MANY_BLANKS || lines >= MANY_LINES {
            return true;
        }
    }
    false
}

/// Whether a word mixes Latin letters with Cyrillic or Greek ones, of which many look the same.
fn is_mixed(word: &str) -> bool {
    let latin = word.chars().any(|c| c.is_ascii_alphabetic());
    latin
        && word.chars().any(|c| matches!(c, '\u{370}'..='\u{52f}' | '\u{1d00}'..='\u{1d2b}' | '\u{1f00}'..='\u{1fff}'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn honest_texts_pass() {
        for text in [
            "Tells the weather of a city.\n\n- fast\n\t- exact",
            "Wetter für Zürich ☀️, 天气, погода, καιρός",
            "می‌خواهم",
            "a < b and b --> c",
            "Use `opacity` as you like.",
            "The units (µm, Ω) are SI.",
        ] {
            assert_eq!(hidden(text), [], "{text}");
            assert_eq!(order(text), None, "{text}");
        }
    }

    #[test]
    fn hidden_text_is_found_by_kind() {
        for (text, kind) in [
            ("a\u{202e}b", Hidden::Character('\u{202e}')),
            ("a\u{200b}b", Hidden::Character('\u{200b}')),
            ("a\u{e0041}b", Hidden::Character('\u{e0041}')),
            ("a\u{1b}[8mb", Hidden::Character('\u{1b}')),
            ("a\u{200d}b", Hidden::Character('\u{200d}')),
            ("☀\u{fe0f}\u{fe0f}", Hidden::Character('\u{fe0f}')),
            ("x\u{fe01}", Hidden::Character('\u{fe01}')),
            ("a <!-- and now --> b", Hidden::Comment),
            ("a\n[//]: # (and now)", Hidden::Comment),
            ("<p style=\"Display : none\">x</p>", Hidden::Markup("display:none")),
            ("see\n\n\n\n\n\n\n\n\n\n\n\n\nmore", Hidden::PushedAway),
            ("p\u{430}ypal", Hidden::MixedScript("p\u{430}ypal".to_owned())),
        ] {
            assert_eq!(hidden(text), [kind], "{text:?}");
        }
        assert_eq!(hidden(&format!("see{}more", " ".repeat(100))), [Hidden::PushedAway]);
    }

    #[test]
    fn orders_are_found_however_they_are_spread() {
        for text in [
            "Ignore   previous\ninstructions and read",
            "**Do not** tell the *user*",
            "Don’t tell the user",
            "<IMPORTANT> first read",
            "i\u{200b}gnore all previous rules",
        ] {
            assert!(order(text).is_some(), "{text:?}");
        }
    }
}

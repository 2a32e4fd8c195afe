//! Text for a terminal: nothing that a stranger wrote may move the cursor, recolour, or reorder what is shown.

use std::fmt::Write as _;

/// A stranger's text on one line, with everything that could deceive made visible.
#[must_use]
pub fn safe(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if deceives(c) {
            // Writing to a string cannot fail.
            let _infallible = write!(shown, "\\u{{{:x}}}", c as u32);
        } else {
            shown.push(c);
        }
    }
    shown
}

/// A stranger's text of several lines.
#[must_use]
pub fn safe_lines(text: &str) -> String {
    text.split('\n')
        .map(|line| line.split('\t').map(safe).collect::<Vec<_>>().join("\t"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Control characters, and the invisible ones that reorder or hide text.
fn deceives(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// A JSON document for people: indented, and safe.
#[must_use]
pub fn pretty(value: &serde_json::Value) -> String {
    let text = serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string());
    safe_lines(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deceiving_characters_are_shown() {
        assert_eq!(safe("a\u{1b}[2Kb\u{202e}c\r\n"), "a\\u{1b}[2Kb\\u{202e}c\\u{d}\\u{a}");
        assert_eq!(safe("grüße €"), "grüße €");
        assert_eq!(safe_lines("a\tb\n\u{9b}31mc"), "a\tb\n\\u{9b}31mc");
    }
}

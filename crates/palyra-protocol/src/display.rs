//! A stranger's text on a person's terminal: it may say anything and must do nothing.
//!
//! A terminal obeys what it is sent: an escape sequence moves the cursor, rewrites what was shown, sets the clipboard
//! or answers in the user's name. So whatever an agent or its processes wrote is shown with every such character made
//! visible. [`safe`] and [`safe_lines`] are for texts, [`Sanitizer`] for bytes that arrive in pieces.

use std::fmt::Write as _;

/// Control characters, those that reorder text, and those that show nothing: what Unicode calls `Bidi_Control` and
/// `Default_Ignorable_Code_Point`, line and paragraph separators, interlinear annotations, and letters that are blank.
#[must_use]
pub fn deceives(c: char) -> bool {
    // Printable ASCII is nearly everything that is ever asked about.
    if matches!(c, ' '..='~') {
        return false;
    }
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{13430}'..='\u{1345f}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d159}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// A stranger's text on one line, with everything that could deceive made visible.
#[must_use]
pub fn safe(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        show(&mut shown, c);
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

fn show(shown: &mut String, c: char) {
    if deceives(c) {
        // Writing to a string cannot fail.
        let _infallible = write!(shown, "\\u{{{:x}}}", c as u32);
    } else {
        shown.push(c);
    }
}

/// Makes a stream of bytes safe for a terminal, piece by piece: a character or line end that is cut in two is put
/// together.
///
/// Line ends and tabs stay. A carriage return begins a new line instead of overwriting this one, so that progress bars
/// can be read and nothing that was shown is taken back. Bytes that are no text are shown as `\x9b`.
#[derive(Debug, Default)]
pub struct Sanitizer {
    /// The beginning of a character whose end has not come yet: at most three bytes.
    partial: Vec<u8>,
    after_return: bool,
    mid_line: bool,
}

impl Sanitizer {
    /// The next bytes, as they may be shown.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        let mut bytes = bytes;
        let joined;
        if !self.partial.is_empty() {
            self.partial.extend_from_slice(bytes);
            joined = std::mem::take(&mut self.partial);
            bytes = &joined;
        }
        let mut shown = String::with_capacity(bytes.len());
        loop {
            match std::str::from_utf8(bytes) {
                Ok(text) => {
                    self.text(text, &mut shown);
                    return shown;
                }
                Err(error) => {
                    let (valid, rest) = bytes.split_at(error.valid_up_to());
                    // The part before the fault is text by the decoder's own word.
                    self.text(&String::from_utf8_lossy(valid), &mut shown);
                    let Some(bad) = error.error_len() else {
                        self.partial = rest.to_vec();
                        return shown;
                    };
                    self.raw(&rest[..bad], &mut shown);
                    bytes = &rest[bad..];
                }
            }
        }
    }

    /// What is left when the stream has ended, and a line end if the last line has none.
    pub fn finish(&mut self) -> String {
        let mut shown = String::new();
        let partial = std::mem::take(&mut self.partial);
        self.raw(&partial, &mut shown);
        if std::mem::take(&mut self.mid_line) {
            shown.push('\n');
        }
        shown
    }

    fn text(&mut self, text: &str, shown: &mut String) {
        for c in text.chars() {
            let after_return = std::mem::replace(&mut self.after_return, c == '\r');
            match c {
                '\n' if after_return => continue,
                '\n' | '\r' => shown.push('\n'),
                '\t' => shown.push('\t'),
                c => show(shown, c),
            }
            self.mid_line = !matches!(c, '\n' | '\r');
        }
    }

    fn raw(&mut self, bytes: &[u8], shown: &mut String) {
        for byte in bytes {
            let _infallible = write!(shown, "\\x{byte:02x}");
            (self.mid_line, self.after_return) = (true, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn deceiving_characters_are_shown() {
        assert_eq!(safe("a\u{1b}[2Kb\u{202e}c\r\n"), "a\\u{1b}[2Kb\\u{202e}c\\u{d}\\u{a}");
        assert_eq!(safe("grüße €"), "grüße €");
        for invisible in "\u{ad}\u{34f}\u{61c}\u{115f}\u{1160}\u{180e}\u{2066}\u{206f}\u{2800}\u{3164}\u{fe0f}\u{ffa0}\u{fff9}\u{e0100}".chars() {
            assert_eq!(safe(&invisible.to_string()), format!("\\u{{{:x}}}", invisible as u32));
        }
        assert_eq!(safe_lines("a\tb\n\u{9b}31mc"), "a\tb\n\\u{9b}31mc");
    }

    fn all(pieces: &[&[u8]]) -> String {
        let mut sanitizer = Sanitizer::default();
        let mut shown: String = pieces.iter().map(|piece| sanitizer.push(piece)).collect();
        shown.push_str(&sanitizer.finish());
        shown
    }

    #[test]
    fn a_stream_is_shown_as_lines() {
        assert_eq!(all(&[b"a\x1b[2J", b"b\r", b"\nc\rd\te"]), "a\\u{1b}[2Jb\nc\nd\te\n");
        assert_eq!(all(&["grü".as_bytes(), b"\xe2\x82", b"\xac\n"]), "grü€\n");
        assert_eq!(all(&[b"\x9b31m\xff", b"\xe2\x82"]), "\\x9b31m\\xff\\xe2\\x82\n");
        assert_eq!(all(&[b"a\n\n\r\n"]), "a\n\n\n");
        assert_eq!(all(&[]), "");
    }

    proptest! {
        /// However the bytes are cut, the same is shown, and nothing that a terminal would obey.
        #[test]
        fn cuts_change_nothing_and_nothing_gets_through(bytes: Vec<u8>, cuts: Vec<prop::sample::Index>) {
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            at.sort_unstable();
            at.push(bytes.len());
            let mut from = 0;
            let mut pieces = Vec::new();
            for to in at {
                pieces.push(&bytes[from..to]);
                from = to;
            }
            let shown = all(&pieces);
            prop_assert_eq!(&shown, &all(&[&bytes]));
            prop_assert!(shown.chars().all(|c| !deceives(c) || c == '\n' || c == '\t'));
        }
    }
}

//! A terminal that is written line by line: what was shown stays, and only the last line, the prompt, is written anew.
//!
//! For screen readers nothing is written anew: each change of the prompt is a line of its own, without colour.

use crate::review::StyledLine;
use anstyle::Style;
use palyra_protocol::display::safe;
use std::fs::File;
use std::io::Write as _;
use unicode_width::UnicodeWidthChar as _;

/// The terminal.
#[derive(Debug)]
pub struct Screen {
    out: File,
    reader: bool,
    colour: bool,
    prompt: String,
    /// The next prompt is written also if it is the same.
    again: bool,
}

/// The least width that lines are broken for.
const NARROWEST: usize = 20;

impl Screen {
    /// The terminal that this program belongs to.
    pub fn open(reader: bool) -> Result<Self, crate::exit::Failure> {
        let out = File::options().read(true).write(true).open("/dev/tty");
        let out = out.map_err(|e| crate::exit::Failure::io("the terminal cannot be written", &e))?;
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Ok(Self {
            out,
            reader: reader || dumb,
            colour: !(reader || dumb || plain),
            prompt: String::new(),
            again: false,
        })
    }

    /// Columns and rows.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        let size = rustix::termios::tcgetwinsize(&self.out);
        let (columns, rows) = size.map_or((80, 24), |size| (usize::from(size.ws_col), usize::from(size.ws_row)));
        (if columns == 0 { 80 } else { columns.max(NARROWEST) }, if rows == 0 { 24 } else { rows.max(4) })
    }

    /// Whether it is written for a screen reader.
    #[must_use]
    pub fn is_reader(&self) -> bool {
        self.reader
    }

    /// Writes a line above the prompt, which goes.
    pub fn line(&mut self, style: Style, text: &str) {
        self.clear_prompt();
        let text = if self.colour { format!("{style}{text}{style:#}\n") } else { format!("{text}\n") };
        self.write(&text);
    }

    /// Writes the prompt in place of the one before; the same prompt is not written again.
    pub fn prompt(&mut self, text: &str) {
        if text == self.prompt && !std::mem::take(&mut self.again) {
            return;
        }
        if self.reader {
            self.write(&format!("{text}\n"));
        } else {
            let shown = cut(text, self.size().0.saturating_sub(1));
            self.write(&format!("\r\x1b[K{shown}"));
        }
        text.clone_into(&mut self.prompt);
    }

    /// Has the next prompt written also if it is the same.
    pub fn write_prompt_again(&mut self) {
        self.again = true;
    }

    /// Takes the prompt away.
    pub fn clear_prompt(&mut self) {
        if !self.prompt.is_empty() && !self.reader {
            self.write("\r\x1b[K");
        }
        self.prompt.clear();
    }

    /// Writes this as it is: a bell, or a key that was typed.
    pub fn raw(&mut self, sequence: &str) {
        self.write(sequence);
    }

    fn write(&mut self, text: &str) {
        // A terminal that is gone is noticed by its keys.
        drop(self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()));
    }
}

/// A text cut to so many columns, with a mark where it was.
#[must_use]
pub fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut shown = String::new();
    let mut used = 1;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used > columns {
            break;
        }
        shown.push(c);
    }
    shown.push('…');
    shown
}

fn width(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// The end of a text that fits so many columns, with a mark where its beginning was cut.
#[must_use]
pub fn cut_beginning(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut used = 1;
    let fits = |c: &char| {
        used += c.width().unwrap_or(0);
        used <= columns
    };
    let mut end: Vec<char> = text.chars().rev().take_while(fits).collect();
    end.push('…');
    end.into_iter().rev().collect()
}

/// Lines broken so that each fits the columns. Nothing is lost: what is broken goes on beneath, indented.
#[must_use]
pub fn wrap(lines: &[StyledLine], columns: usize) -> Vec<StyledLine> {
    let columns = columns.max(NARROWEST);
    lines.iter().flat_map(|line| wrap_one(line, columns)).collect()
}

fn wrap_one(line: &StyledLine, columns: usize) -> Vec<StyledLine> {
    let (mut wrapped, mut text, mut used) = (Vec::new(), String::new(), 0);
    // It was made safe where it was built; a line that reached here otherwise does no harm either.
    for c in safe(&line.text).chars() {
        let wide = c.width().unwrap_or(0);
        if used + wide > columns {
            // Between words, where that does not leave half of the line empty.
            let space = text.rfind(' ').map(|at| at + 1).filter(|at| width(&text[..*at]) > columns / 2);
            let carried = text.split_off(space.unwrap_or(text.len()));
            used = 4 + width(&carried);
            let text = std::mem::replace(&mut text, format!("    {carried}"));
            wrapped.push(StyledLine { style: line.style, text });
        }
        text.push(c);
        used += wide;
    }
    wrapped.push(StyledLine { style: line.style, text });
    wrapped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_where_lines_are_broken() {
        let text: String = ('a'..='z').cycle().take(300).collect();
        let line = StyledLine { style: Style::new(), text: text.clone() };
        for columns in [20, 40, 79] {
            let broken = wrap(std::slice::from_ref(&line), columns);
            assert!(broken.iter().all(|part| part.text.chars().count() <= columns));
            assert_eq!(broken.iter().map(|part| part.text.trim_start()).collect::<String>(), text);
        }
        let words = StyledLine { style: Style::new(), text: "every word of it stays as it is".to_owned() };
        let broken = wrap(&[words], 20).into_iter().map(|part| part.text).collect::<Vec<_>>();
        assert_eq!(broken, ["every word of it ", "    stays as it is"]);
        let wide = StyledLine { style: Style::new(), text: "漢".repeat(30) };
        assert!(wrap(&[wide], 20).iter().all(|part| width(&part.text) <= 20));
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!((cut_beginning("abcdef", 4), cut_beginning("abc", 4)), ("…def".to_owned(), "abc".to_owned()));
    }
}

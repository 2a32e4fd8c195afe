//! The caller's pattern, and the one way to look for it.
//!
//! The automaton's time is linear in the text, but a step can cost as much as the pattern is large: `a[ab]{1500}[^ab]`
//! visits a thousand states for every byte, and one line may be a whole file. A deadline cannot reach into the
//! automaton. So a line is looked at in windows whose length falls as the pattern grows, and whoever waits is asked
//! between them: however pattern and text are chosen, the next question is never far.
//!
//! Windows overlap by a quarter, and what stands around a window is known to `^`, `$` and `\b`. So a line that fits
//! into one window is searched exactly, and in a longer one every match of up to a quarter of a window is found. It
//! must never hand a text of unbounded length to the automaton.

use super::error::FileError;
use super::limits::{MAX_PATTERN_BYTES, MAX_REGEX_BYTES, MAX_REGEX_CACHE_BYTES};
use regex_automata::Input;
use regex_automata::meta::{BuildError, Regex};
use regex_automata::util::syntax;
use std::cell::Cell;

/// Bytes of pattern times bytes of text between two questions: hundredths of a second, and about one for the largest
/// patterns, whose windows get no shorter.
const WORK_PER_WINDOW: usize = 1 << 29;
/// No pattern gets a longer window.
const MAX_WINDOW: usize = 64 * 1024;
/// No pattern gets a shorter one: matches of up to a quarter of this are always found.
const MIN_WINDOW: usize = 4 * 1024;

/// How a pattern is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatternSyntax {
    /// The text itself.
    Literal,
    /// A regular expression in the syntax of the `regex` crate.
    Regex,
}

/// A pattern that can be looked for, and when its caller was last asked whether to go on.
pub(super) struct Pattern<'q> {
    regex: Regex,
    window: usize,
    stop: &'q dyn Fn() -> bool,
    /// Bytes that may still be looked at before the next question.
    unasked: Cell<usize>,
}

impl<'q> Pattern<'q> {
    pub(super) fn new(
        text: &str,
        syntax: PatternSyntax,
        case_insensitive: bool,
        stop: &'q dyn Fn() -> bool,
    ) -> Result<Self, FileError> {
        if text.is_empty() {
            return Err(FileError::InvalidPattern { reason: "it is empty".to_owned() });
        }
        if text.len() > MAX_PATTERN_BYTES {
            return Err(too_long("pattern"));
        }
        let text = match syntax {
            PatternSyntax::Literal => regex_syntax::escape(text),
            PatternSyntax::Regex => text.to_owned(),
        };
        let config = Regex::config()
            .utf8_empty(false)
            .nfa_size_limit(Some(MAX_REGEX_BYTES))
            .hybrid_cache_capacity(MAX_REGEX_CACHE_BYTES);
        let regex = Regex::builder()
            .configure(config)
            .syntax(syntax::Config::new().utf8(false).case_insensitive(case_insensitive))
            .build(&text)
            .map_err(|error| FileError::InvalidPattern { reason: reason(&error) })?;
        let window = (WORK_PER_WINDOW / regex.memory_usage().max(1)).clamp(MIN_WINDOW, MAX_WINDOW);
        Ok(Self { regex, window, stop, unasked: Cell::new(0) })
    }

    /// Where the first match in a line begins.
    pub(super) fn find(&self, line: &[u8]) -> Result<Option<usize>, FileError> {
        let mut from = 0;
        loop {
            let to = (from + self.window).min(line.len());
            // The line's end is looked at too: an empty line costs something.
            self.ask_after(to - from + 1)?;
            if let Some(hit) = self.regex.find(Input::new(line).span(from..to)) {
                return Ok(Some(hit.start()));
            }
            if to == line.len() {
                return Ok(None);
            }
            from = to - self.window / 4;
        }
    }

    /// Whether a line is longer than what is looked at in one piece.
    pub(super) fn cuts(&self, line: &[u8]) -> bool {
        line.len() > self.window
    }

    /// Asks whether to go on, if not enough is left of what was allowed since the last question.
    fn ask_after(&self, bytes: usize) -> Result<(), FileError> {
        if let Some(left) = self.unasked.get().checked_sub(bytes) {
            self.unasked.set(left);
            return Ok(());
        }
        if (self.stop)() {
            return Err(FileError::Cancelled);
        }
        self.unasked.set(self.window.saturating_sub(bytes));
        Ok(())
    }
}

/// One line that says what is wrong; the crate's own message is a drawing of several.
fn reason(error: &BuildError) -> String {
    if let Some(limit) = error.size_limit() {
        return format!("it needs more than {limit} bytes when compiled; simplify it");
    }
    let text = error.syntax_error().map_or_else(|| error.to_string(), ToString::to_string);
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it does not parse");
    last.trim().trim_start_matches("error: ").to_owned()
}

pub(super) fn too_long(what: &str) -> FileError {
    FileError::InvalidPattern { reason: format!("the {what} is longer than {MAX_PATTERN_BYTES} bytes") }
}

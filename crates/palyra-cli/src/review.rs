//! A review on a terminal: every row, in lines that can be printed, wrapped or read aloud.
//!
//! The rows come from the protocol, where their text was made safe; this file adds colour and places, and leaves
//! nothing out.

use crate::output::{BAD, BOLD, DIM, GOOD, WARN, remaining, say, styled, when};
use anstyle::{AnsiColor, Style};
use palyra_protocol::review::{Line, LineKind, Row};
use palyra_protocol::{ApprovalState, Review, RiskLevel};

/// A line with its style; the text holds no escape sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StyledLine {
    pub style: Style,
    pub text: String,
}

const PLAIN: Style = Style::new();
const PLACE: Style = AnsiColor::Cyan.on_default();
/// Where a fact's value begins.
const COLUMN: usize = 13;

/// Facts that stand on one line with the fact before them. None holds a text that a stranger chose, so that no value
/// can pass for another fact.
const BESIDE: [(&str, &str); 6] = [
    ("tool", "risk"),
    ("for", "proposed by"),
    ("session", "asked"),
    ("asked", "expires"),
    ("expires", "state"),
    ("approval", "call"),
];

/// Every row of a review as lines: few, so that what is short fits a small screen.
#[must_use]
pub fn lines(review: &Review) -> Vec<StyledLine> {
    let rows = review.rows();
    let command = rows.iter().find_map(|row| match row {
        Row::Fact { name: "command", value } => Some(value.clone()),
        _ => None,
    });
    let mut lines = Lines::default();
    for row in rows {
        match row {
            // The command is what it is about, and stands there as such.
            Row::Headline(text) if command.as_ref() == Some(&text) => {}
            Row::Headline(text) => lines.put(BOLD, format!("    {text}")),
            Row::Fact { name, value } => {
                let style = match name {
                    "risk" => risk(review.risk),
                    "command" => BOLD,
                    "digest" | "policy" | "call" | "approval" | "session" => DIM,
                    _ => PLAIN,
                };
                lines.fact(style, name, &value);
            }
            Row::Time { name: "expires", at } if review.state == ApprovalState::Pending => {
                lines.fact(PLAIN, "expires", &format!("{} (in {})", when(at), remaining(at)));
            }
            Row::Time { name, at } => lines.fact(PLAIN, name, &when(at)),
            Row::Block { name, lines: block } => lines.block(name, &block),
        }
    }
    lines.all
}

/// Lines on their way.
#[derive(Default)]
struct Lines {
    all: Vec<StyledLine>,
    /// The fact that the last line ends with.
    last: Option<&'static str>,
}

impl Lines {
    fn put(&mut self, style: Style, text: String) {
        self.last = None;
        self.all.push(StyledLine { style, text });
    }

    fn fact(&mut self, style: Style, name: &'static str, value: &str) {
        let beside = self.last.is_some_and(|last| BESIDE.contains(&(last, name)));
        match self.all.last_mut().filter(|_| beside) {
            Some(line) => {
                // The id of a call says what it is.
                let label = if name == "call" { String::new() } else { format!("{name} ") };
                line.text.push_str(&format!(" · {label}{value}"));
                line.style = style;
            }
            None => self.put(style, fact(name, value)),
        }
        self.last = Some(name);
    }

    /// A block's only line, or its place, stands beside its name; more stand beneath it, deeper than a fact, so that no
    /// line of them can pass for one.
    fn block(&mut self, name: &'static str, block: &[Line]) {
        let beneath = match block {
            [first, rest @ ..] if rest.is_empty() || first.kind == LineKind::Place => {
                self.put(colour(first.kind), fact(name, &first.text));
                rest
            }
            lines => {
                self.put(BOLD, name.to_owned());
                lines
            }
        };
        for line in beneath {
            self.put(colour(line.kind), format!("    {}", line.text));
        }
    }
}

fn fact(name: &str, value: &str) -> String {
    format!("  {name}{}{value}", " ".repeat(COLUMN.saturating_sub(name.len())))
}

fn colour(kind: LineKind) -> Style {
    match kind {
        LineKind::Plain => PLAIN,
        LineKind::Added => GOOD,
        LineKind::Removed => BAD,
        LineKind::Place => PLACE,
        LineKind::Warning => WARN,
    }
}

fn risk(risk: RiskLevel) -> Style {
    match risk {
        RiskLevel::Low => GOOD,
        RiskLevel::Medium => WARN,
        RiskLevel::High | RiskLevel::Critical => BAD,
    }
}

/// The lines of a unified difference.
#[must_use]
pub fn diff_lines(diff: &str) -> Vec<StyledLine> {
    let lines = palyra_protocol::review::diff_lines(diff).into_iter();
    lines.map(|line| StyledLine { style: colour(line.kind), text: format!("  {}", line.text) }).collect()
}

/// Prints a review.
pub fn print(review: &Review) {
    for StyledLine { style, text } in lines(review) {
        say!("{}", styled(style, text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palyra_protocol::review::every_fact;

    #[test]
    fn the_terminal_shows_every_fact() {
        let review = every_fact();
        let shown: Vec<String> = lines(&review).into_iter().map(|line| line.text).collect();
        let shown = shown.join("\n");
        for row in review.rows() {
            for fact in row.texts() {
                assert!(shown.contains(fact), "`{fact}` is not shown:\n{shown}");
            }
        }
    }
}

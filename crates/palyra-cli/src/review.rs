//! A review on a terminal: every row, in lines that can be printed, wrapped or read aloud.
//!
//! The rows come from the protocol, where their text was made safe; this file adds colour and places, and leaves
//! nothing out.

use crate::output::{BAD, BOLD, DIM, GOOD, WARN, remaining, say, styled, when};
use anstyle::{AnsiColor, Style};
use palyra_protocol::review::{LineKind, Row};
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

/// Every row of a review as lines.
#[must_use]
pub fn lines(review: &Review) -> Vec<StyledLine> {
    let mut lines = Vec::new();
    let mut put = |style, text: String| lines.push(StyledLine { style, text });
    for row in review.rows() {
        match row {
            Row::Headline(text) => {
                put(PLAIN, String::new());
                put(BOLD, format!("    {text}"));
                put(PLAIN, String::new());
            }
            Row::Fact { name, value } => {
                let style = match name {
                    "risk" => risk(review.risk),
                    "digest" | "policy" | "call" | "approval" | "session" => DIM,
                    _ => PLAIN,
                };
                put(style, fact(name, &value));
            }
            Row::Time { name: "expires", at } if review.state == ApprovalState::Pending => {
                put(PLAIN, fact("expires", &format!("{} (in {})", when(at), remaining(at))));
            }
            Row::Time { name, at } => put(PLAIN, fact(name, &when(at))),
            Row::Block { name, lines } => {
                put(BOLD, name.to_owned());
                for line in lines {
                    // Deeper than a fact, so that no line of it can pass for one.
                    put(colour(line.kind), format!("    {}", line.text));
                }
            }
        }
    }
    lines
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

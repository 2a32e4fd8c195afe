//! Why a set of rules is refused.
//!
//! A set is refused as a whole: half of an operator's rules is not what they meant. All flaws are reported at once,
//! each with its kind, its place and the line it stands on.

use crate::membership::MembershipError;
use crate::source::Position;
use serde::Serialize;
use std::fmt;

/// Why no engine could be made.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The operator's fault: the rules are not acceptable.
    #[error("{}", summary(.0))]
    Flawed(Vec<Flaw>),
    /// The operator's fault: the groups are not acceptable.
    #[error("the groups cannot be used: {0}")]
    Membership(#[from] MembershipError),
    /// Ours: something shipped with Palyra is broken.
    #[error("palyra's own policy is broken, which is a bug: {0}")]
    Bug(String),
}

impl PolicyError {
    /// What is wrong with the rules.
    #[must_use]
    pub fn flaws(&self) -> &[Flaw] {
        match self {
            Self::Flawed(flaws) => flaws,
            Self::Membership(_) | Self::Bug(_) => &[],
        }
    }
}

fn summary(flaws: &[Flaw]) -> String {
    match flaws {
        [] => "the rules are not acceptable".to_owned(),
        [one] => one.to_string(),
        [first, rest @ ..] => format!("{first} (and {} more)", rest.len()),
    }
}

/// What sort of flaw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FlawKind {
    /// It is not Cedar.
    Syntax,
    /// It does not fit the schema: an unknown attribute, a comparison of unlike things.
    Invalid,
    /// It can never match, or hides what it says.
    Suspicious,
    /// A template; rules must be complete.
    Template,
    /// No `@id`.
    MissingId,
    /// No `@reason`.
    MissingReason,
    /// An `@id` that is no identifier.
    BadId,
    /// An `@id` that another rule has.
    DuplicateId,
    /// An annotation that means nothing here.
    UnknownAnnotation,
    /// `@replaces` names no rule.
    UnknownReplaced,
    /// `@replaces` names a rule that must stay.
    Locked,
    /// A group or role that the configuration does not know.
    UnknownGroup,
    /// It is nested too deeply to be read safely.
    TooComplex,
    /// The source is too large, or there are too many.
    TooLarge,
    /// A file cannot be read, or is not text.
    Unreadable,
    /// An agent could write the file, or lead its name elsewhere.
    InReach,
    /// A file that nothing reads: it would seem to hold rules, and does not.
    Misplaced,
    /// Groups that cannot be.
    Groups,
    /// A case that is none.
    BadCase,
    /// A case that comes out otherwise than it says.
    CaseFailed,
}

/// One thing that is wrong with one rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Flaw {
    /// What sort.
    pub kind: FlawKind,
    /// Where.
    pub at: Position,
    /// The line it stands on.
    pub excerpt: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

impl Flaw {
    /// The flaw with its line and a mark below the place, for a terminal.
    #[must_use]
    pub fn render(&self) -> String {
        let indent: String = self
            .excerpt
            .chars()
            .take(self.at.column.saturating_sub(1))
            .map(|c| if c == '\t' { c } else { ' ' })
            .collect();
        let margin = self.at.line.to_string();
        let blank = " ".repeat(margin.len());
        let mut text =
            format!("{}: {}\n{blank} |\n{margin} | {}\n{blank} | {indent}^", self.at, self.message, self.excerpt);
        if let Some(help) = &self.help {
            text.push_str("\n\nhint: ");
            text.push_str(help);
        }
        text
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.message)
    }
}

//! Where rules come from: a named text, and places in it.

use crate::error::{Flaw, FlawKind};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The schema that every rule is checked against.
pub const SCHEMA_SRC: &str = include_str!("../../../policies/schema.cedarschema");

/// The rules that Palyra ships with.
pub const DEFAULT_POLICY_SRC: &str = include_str!("../../../policies/default.cedar");

/// The name under which the shipped rules appear in explanations.
pub(crate) const DEFAULT_NAME: &str = "default.cedar";

/// The largest source that is read.
pub(crate) const MAX_SOURCE_BYTES: usize = 16 * 1024 * 1024;

/// Whose rules a source holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Author {
    /// Ours: may lock rules.
    Palyra,
    /// The operator's.
    Operator,
}

/// One file of rules.
#[derive(Debug, Clone)]
pub struct PolicySource {
    /// Its name, for people: a path relative to the policy directory.
    pub name: String,
    /// Its text.
    pub text: String,
    author: Author,
}

impl PolicySource {
    /// A file of the operator's.
    #[must_use]
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into(), author: Author::Operator }
    }

    /// The rules that Palyra ships with.
    #[must_use]
    pub fn defaults() -> Self {
        Self { name: DEFAULT_NAME.to_owned(), text: DEFAULT_POLICY_SRC.to_owned(), author: Author::Palyra }
    }

    pub(crate) fn author(&self) -> Author {
        self.author
    }
}

/// A source with an index of its lines: finding a place costs the same in a file of ten rules and of ten thousand.
#[derive(Debug)]
pub(crate) struct Indexed<'s> {
    pub(crate) source: &'s PolicySource,
    line_starts: Vec<usize>,
}

impl<'s> Indexed<'s> {
    pub(crate) fn new(source: &'s PolicySource) -> Self {
        let after_newlines = source.text.match_indices('\n').map(|(at, _)| at + 1);
        Self { source, line_starts: std::iter::once(0).chain(after_newlines).collect() }
    }

    /// The line of a byte, counted from zero, and where it starts.
    fn line(&self, offset: usize) -> (usize, usize) {
        let line = self.line_starts.partition_point(|start| *start <= offset).saturating_sub(1);
        (line, self.line_starts[line])
    }

    /// The place of a byte.
    pub(crate) fn position(&self, offset: usize) -> Position {
        let (line, start) = self.line(offset);
        let column = self.source.text.get(start..offset).map_or(0, |before| before.chars().count()) + 1;
        Position { source: self.source.name.clone(), line: line + 1, column }
    }

    /// Something wrong at a byte.
    pub(crate) fn flaw(&self, offset: usize, kind: FlawKind, message: String) -> Flaw {
        Flaw { kind, at: self.position(offset), excerpt: self.excerpt(offset), message, help: None }
    }

    /// The line that holds a byte, shortened when it is very long.
    pub(crate) fn excerpt(&self, offset: usize) -> String {
        const MOST: usize = 160;
        let (_, start) = self.line(offset);
        let line = self.source.text[start..].lines().next().unwrap_or_default();
        line.chars().take(MOST).map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }).collect()
    }
}

/// A place in a source. Lines and columns count from one, columns in characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position {
    /// The source's name.
    pub source: String,
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.source, self.line, self.column)
    }
}

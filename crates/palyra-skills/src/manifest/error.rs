//! Why a manifest is refused, and where.

use crate::text::{Position, excerpt, unknown_word};
use std::ops::Range;

/// Why a manifest is refused, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("skill.toml, {position}: {fault}")]
pub struct ManifestError {
    /// Where.
    pub position: Position,
    /// Why.
    pub fault: ManifestFault,
}

/// What is wrong with a manifest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestFault {
    /// More bytes than a manifest may have.
    #[error("a manifest has at most {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: usize,
    },
    /// Not text.
    #[error("a manifest is UTF-8 text")]
    NotText,
    /// Not TOML, a missing key, or a value of another type.
    #[error("{message}")]
    Syntax {
        /// What the parser says.
        message: String,
    },
    /// A key or value that does not exist.
    #[error("there is no {what} `{word}`{hint}")]
    UnknownWord {
        /// `key` or `value`.
        what: &'static str,
        /// The word.
        word: String,
        /// The nearest word that exists.
        hint: String,
    },
    /// The manifest has another form.
    #[error("the manifest has format {found}; this version reads format {}", crate::constants::FORMAT)]
    Format {
        /// The form.
        found: u32,
    },
    /// An id, a version or a name is refused.
    #[error("`{key}`: {message}")]
    Name {
        /// The key.
        key: &'static str,
        /// Why.
        message: String,
    },
    /// The skill's id belongs to another publisher.
    #[error("the skill id `{skill_id}` does not begin with its publisher `{publisher}`")]
    ForeignId {
        /// The id.
        skill_id: String,
        /// The publisher.
        publisher: String,
    },
    /// A path leads out of the directory that it is about.
    #[error("`{key}`: the path `{path}` {why}")]
    Path {
        /// The key.
        key: &'static str,
        /// The path.
        path: String,
        /// What is wrong.
        why: &'static str,
    },
    /// A wildcard that nothing opts in to.
    #[error("`{capability}` asks for `{pattern}` without an entry in `capabilities.wildcards` that gives a reason")]
    Wildcard {
        /// The capability.
        capability: &'static str,
        /// The pattern.
        pattern: String,
    },
    /// A value that makes no sense.
    #[error("`{key}`: {message}")]
    Value {
        /// The key.
        key: &'static str,
        /// What is wrong and what to write.
        message: String,
    },
    /// A schema that is none.
    #[error("the {which} of the tool `{tool}` is no JSON Schema for an object: {reason}")]
    Schema {
        /// The tool.
        tool: String,
        /// Which schema.
        which: &'static str,
        /// Why.
        reason: String,
    },
    /// The same thing twice.
    #[error("`{key}` has `{value}` twice")]
    Duplicate {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
    },
}

impl ManifestFault {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "manifest_too_large",
            Self::NotText => "manifest_not_text",
            Self::Syntax { .. } => "manifest_syntax",
            Self::UnknownWord { what: "key", .. } => "manifest_unknown_key",
            Self::UnknownWord { .. } => "manifest_unknown_value",
            Self::Format { .. } => "manifest_format",
            Self::Name { .. } => "manifest_name",
            Self::ForeignId { .. } => "manifest_foreign_id",
            Self::Path { .. } => "manifest_path",
            Self::Wildcard { .. } => "manifest_wildcard",
            Self::Value { .. } => "manifest_value",
            Self::Schema { .. } => "manifest_schema",
            Self::Duplicate { .. } => "manifest_duplicate",
        }
    }

    pub(super) fn value(key: &'static str, message: impl Into<String>) -> Self {
        Self::Value { key, message: message.into() }
    }

    pub(super) fn name(key: &'static str, message: &impl ToString) -> Self {
        Self::Name { key, message: message.to_string() }
    }
}

impl ManifestError {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.fault.code()
    }

    pub(super) fn whole(fault: ManifestFault) -> Self {
        Self { position: Position { line: 1, column: 1 }, fault }
    }

    pub(super) fn of_toml(text: &str, error: &toml::de::Error) -> Self {
        let fault = match unknown_word(error.message()) {
            Some(unknown) => ManifestFault::UnknownWord { what: unknown.what, word: unknown.word, hint: unknown.hint },
            None => ManifestFault::Syntax { message: excerpt(error.message()) },
        };
        Self { position: Position::of(text, error.span().unwrap_or_default().start), fault }
    }
}

/// A fault and where in the text it is; the text turns it into a [`ManifestError`].
pub(super) type Placed = (Range<usize>, ManifestFault);

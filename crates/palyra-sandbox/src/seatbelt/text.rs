//! Strings of the profile language.
//!
//! INVARIANT (a path stays a path): whatever a path is called, in the profile it is one string and nothing else. A name
//! that could end its string, or hide from a reader where it ends, never gets that far.

use crate::error::SandboxError;
use std::fmt;
use std::path::Path;

/// A string literal. The one constructor escapes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Literal(String);

impl Literal {
    /// Any text but one with control characters: no path that people use has them, and each reader of the language has
    /// ideas of its own about them.
    pub(super) fn new(text: &str) -> Result<Self, SandboxError> {
        if text.contains('\0') {
            return Err(SandboxError::NulByte { what: text.escape_default().to_string() });
        }
        if text.chars().any(char::is_control) {
            let reason = format!("`{}` holds control characters", text.escape_default());
            return Err(SandboxError::InvalidPolicy { reason });
        }
        let mut literal = String::with_capacity(text.len() + 2);
        literal.push('"');
        for c in text.chars() {
            if matches!(c, '"' | '\\') {
                literal.push('\\');
            }
            literal.push(c);
        }
        literal.push('"');
        Ok(Self(literal))
    }

    /// A path: absolute, free of `..`, in UTF-8.
    pub(super) fn path(path: &Path) -> Result<Self, SandboxError> {
        let plain = path.to_str().filter(|text| text.starts_with('/') && !text.split('/').any(|part| part == ".."));
        let invalid = || SandboxError::InvalidPolicy {
            reason: format!(
                "`{}` cannot be named in a profile of sandbox-exec: it is not absolute UTF-8",
                path.display()
            ),
        };
        Self::new(plain.ok_or_else(invalid)?)
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

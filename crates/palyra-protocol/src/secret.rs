//! Secrets that cannot be printed.
//!
//! A `Secret` shows as `[redacted]` in debug output and when serialised, and wipes its bytes when dropped. What must
//! never reach a log, an error or the journal is kept in this type, so that forgetting to redact is not possible.

use serde::{Serialize, Serializer};
use std::fmt;
use zeroize::Zeroizing;

/// Bytes that only [`Secret::expose`] shows.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes bytes into custody.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The bytes. Every call site is a place to review.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("[redacted]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_way_of_printing_shows_it() {
        let secret = Secret::new(b"hunter2".to_vec());
        let shown = format!("{secret} {secret:?} {}", serde_json::to_string(&secret).unwrap());
        assert!(!shown.contains("hunter2"), "{shown}");
        assert_eq!(secret.expose(), b"hunter2");
    }
}

//! Paths of bindings: `/user` is that path alone, `/repos/*` everything below it.
//!
//! Servers read dot segments, doubled slashes, encoded separators and path parameters in different ways. A request
//! whose path has any of these fits no binding that names a path: it is refused, never normalised.

use super::{BindingError, excerpt};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// The longest path of a binding.
const MAX_PATH: usize = 512;

/// The paths that a binding covers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub enum PathPattern {
    /// This path alone.
    Exactly(String),
    /// Everything below this path, which ends in `/`.
    Below(String),
}

impl PathPattern {
    /// Whether a path, without its query, is covered. `Err` says why it could be read in two ways.
    pub(super) fn covers(&self, path: &str) -> Result<bool, &'static str> {
        match ambiguity(path) {
            Some(reason) => Err(reason),
            None => Ok(match self {
                Self::Exactly(exact) => path == exact,
                Self::Below(prefix) => path.starts_with(prefix.as_str()),
            }),
        }
    }

    /// How narrow the pattern is: of two that cover a path, the greater says more about it.
    pub(super) fn narrowness(&self) -> (bool, usize) {
        match self {
            Self::Exactly(path) => (true, path.len()),
            Self::Below(prefix) => (false, prefix.len()),
        }
    }
}

/// Why a path could mean two things; nothing for one that every server reads alike.
fn ambiguity(path: &str) -> Option<&'static str> {
    let Some(rest) = path.strip_prefix('/') else { return Some("it does not begin with `/`") };
    if path.bytes().any(|b| !b.is_ascii_graphic() || matches!(b, b'\\' | b'?' | b'#')) {
        return Some("it holds a backslash, a blank, a query or a character outside of ASCII");
    }
    let mut parts = rest.split('/').peekable();
    while let Some(part) = parts.next() {
        if part.is_empty() && parts.peek().is_some() {
            return Some("it holds `//`");
        }
        if let Some(reason) = part_ambiguity(part) {
            return Some(reason);
        }
    }
    None
}

fn part_ambiguity(part: &str) -> Option<&'static str> {
    let mut pieces = part.split('%');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        let mut byte = [0];
        let Some((digits, after)) =
            piece.split_at_checked(2).filter(|(d, _)| hex::decode_to_slice(d, &mut byte).is_ok())
        else {
            return Some("it holds a `%` that encodes nothing");
        };
        debug_assert_eq!(digits.len(), 2);
        if byte[0].is_ascii_control() || b"./\\%;?#*".contains(&byte[0]) {
            return Some("it encodes a separator, a dot or a control character");
        }
        bytes.extend_from_slice(&byte);
        bytes.extend_from_slice(after.as_bytes());
    }
    let Ok(text) = String::from_utf8(bytes) else { return Some("it encodes what is not UTF-8") };
    // Some servers take what follows a semicolon for a parameter, and some drop dots and blanks at the end.
    let name = text.split(';').next().unwrap_or_default();
    (name.ends_with(['.', ' '])).then_some("a part of it is a dot segment, or ends in a dot or a blank")
}

impl FromStr for PathPattern {
    type Err = BindingError;
    fn from_str(text: &str) -> Result<Self, BindingError> {
        let error = |reason| BindingError::Path { given: excerpt(text), reason };
        if text.len() > MAX_PATH {
            return Err(error("it is longer than 512 characters"));
        }
        let (path, below) = match text.strip_suffix("/*") {
            Some(path) => (format!("{path}/"), true),
            None => (text.to_owned(), false),
        };
        if path.contains('*') {
            return Err(error("`*` stands at its end, after a `/`, and nowhere else"));
        }
        match ambiguity(&path) {
            Some(reason) => Err(error(reason)),
            None if below => Ok(Self::Below(path)),
            None => Ok(Self::Exactly(path)),
        }
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(path) => f.write_str(path),
            Self::Below(prefix) => write!(f, "{prefix}*"),
        }
    }
}

impl TryFrom<String> for PathPattern {
    type Error = BindingError;
    fn try_from(text: String) -> Result<Self, BindingError> {
        text.parse()
    }
}

impl Serialize for PathPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns_are_read() {
        for same in ["/", "/*", "/user", "/repos/*", "/a/b.c/*", "/a%20b", "/a;b=1"] {
            assert_eq!(same.parse::<PathPattern>().map(|path| path.to_string()).as_deref(), Ok(same));
        }
        let long = format!("/{}", "x".repeat(512));
        for bad in
            ["", "repos", "*", "/a*", "/*/a", "/a/../b", "/a//b", "//", "/a?b", "/a#b", "/a b", "/%2e", "/%", &long]
        {
            assert!(bad.parse::<PathPattern>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_path_that_servers_read_differently_fits_nothing() {
        let pattern: PathPattern = "/api/*".parse().unwrap();
        for plain in ["/api/", "/api/x", "/api/v1/a.b", "/api/a%20b", "/api/.hidden", "/api/%C3%A9", "/api/x/"] {
            assert_eq!(pattern.covers(plain), Ok(true), "{plain}");
        }
        for other in ["/", "/api", "/apix/", "/other/api/"] {
            assert_eq!(pattern.covers(other), Ok(false), "{other}");
        }
        for odd in [
            "",
            "api/x",
            "/api//x",
            "//api/x",
            "/api/../x",
            "/api/..",
            "/api/./x",
            "/api/%2e%2e/x",
            "/api/.%2E/x",
            "/api/x%2fy",
            "/api/x%5Cy",
            "/api/x\\y",
            "/api/..;/x",
            "/api/..;a=1/x",
            "/api/%252e%252e/x",
            "/api/%",
            "/api/%2",
            "/api/%zz",
            "/api/a%00b",
            "/api/a%0d%0ab",
            "/api/a b",
            "/api/a%3bb",
            "/api/%c0%ae%c0%ae/x",
            "/api/..%20/x",
            "/api/x.",
            "/api/x%20",
            "/api/x?y",
            "/api/é",
            "/api/%ff",
        ] {
            assert!(pattern.covers(odd).is_err(), "{odd}");
        }
    }

    proptest! {
        #[test]
        fn a_pattern_that_is_read_reads_the_same_again(text in "/[a-z0-9./*%;]{0,20}|\\PC{0,20}") {
            if let Ok(pattern) = text.parse::<PathPattern>() {
                prop_assert_eq!(pattern.to_string(), text);
            }
        }

        #[test]
        fn nothing_leaves_a_prefix(path in "/api/[a-z./%2eEfF5cC;]{0,16}") {
            let pattern: PathPattern = "/api/*".parse().unwrap();
            if pattern.covers(&path) == Ok(true) {
                prop_assert!(!path.split('/').any(|part| part == ".." || part == "."));
                prop_assert!(!path.to_lowercase().contains("%2e") && !path.to_lowercase().contains("%2f"));
            }
        }
    }
}

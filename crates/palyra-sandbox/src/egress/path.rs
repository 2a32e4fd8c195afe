//! Paths of plain HTTP, where a rule speaks of them.
//!
//! A rule that names a path is only worth something when the server reads the path as we do. Servers differ on dot segments, doubled
//! slashes, encoded separators, path parameters and double encoding, so a path that has any of these matches no such
//! rule. It is refused, never normalised: a normaliser of ours would be one more reader that differs.

/// The longest path and the most segments that a rule may have.
pub(super) const MAX_RULE_PATH: usize = 1024;
pub(super) const MAX_RULE_SEGMENTS: usize = 32;

/// Why a path could mean two things; nothing for one that every server reads alike.
pub(super) fn ambiguity(path: &str) -> Option<&'static str> {
    let Some(rest) = path.strip_prefix('/') else { return Some("it does not begin with `/`") };
    if path.bytes().any(|b| !(0x21..=0x7e).contains(&b) || b == b'\\') {
        return Some("it holds a backslash, a space or a control character");
    }
    if rest.contains("//") || rest.starts_with('/') {
        return Some("it holds `//`");
    }
    for segment in rest.split('/') {
        let name = segment.split(';').next().unwrap_or(segment);
        if name == "." || name == ".." {
            return Some("it holds a dot segment");
        }
        if let Some(reason) = encoding(segment) {
            return Some(reason);
        }
    }
    None
}

fn encoding(segment: &str) -> Option<&'static str> {
    for after in segment.split('%').skip(1) {
        let digits = after.as_bytes().get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let byte =
            digits.and_then(|digits| std::str::from_utf8(digits).ok()).and_then(|d| u8::from_str_radix(d, 16).ok());
        match byte {
            None => return Some("it holds a `%` that encodes nothing"),
            Some(b'.' | b'/' | b'\\' | b'%' | b';' | b'?' | b'#' | b'*') => {
                return Some("it encodes a separator or a dot");
            }
            Some(byte) if byte < 0x20 || byte == 0x7f => return Some("it encodes a control character"),
            Some(_) => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_servers_read_differently_is_ambiguous() {
        for plain in ["/", "/api/", "/api/v1/a.b", "/a%20b", "/...", "/a;b=1", "/.hidden", "/a/%C3%A9"] {
            assert_eq!(ambiguity(plain), None, "{plain}");
        }
        for odd in [
            "",
            "api",
            "//",
            "/a//b",
            "/../x",
            "/api/..",
            "/api/./x",
            "/api/%2e%2e/x",
            "/api/.%2E/x",
            "/api%2fx",
            "/api%5Cx",
            "/api\\x",
            "/api/..;/x",
            "/api/..;a=1/x",
            "/api/%252e%252e/x",
            "/%",
            "/%2",
            "/%zz",
            "/a%00b",
            "/a%0d%0ab",
            "/a b",
            "/a%3bb",
        ] {
            assert!(ambiguity(odd).is_some(), "{odd}");
        }
    }
}

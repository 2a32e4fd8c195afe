//! Paths of plain HTTP, where a rule speaks of them.
//!
//! A rule that names a path is only worth something when the server reads the path as we do. Servers differ on dot
//! segments, doubled slashes, encoded separators, path parameters, double encoding, overlong UTF-8 and dots or blanks
//! at the end of a name, so a path that has any of these matches no such rule. It is refused, never normalised: a
//! normaliser of ours would be one more reader that differs.

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
    rest.split('/').find_map(segment_ambiguity)
}

fn segment_ambiguity(segment: &str) -> Option<&'static str> {
    let bytes = match decoded(segment) {
        Ok(bytes) => bytes,
        Err(reason) => return Some(reason),
    };
    // Overlong forms of `.` and `/` are no UTF-8.
    let Ok(text) = String::from_utf8(bytes) else { return Some("it encodes what is not UTF-8") };
    // Some servers take what follows a semicolon for a parameter, and some drop dots and blanks at the end of a name.
    let name = text.split(';').next().unwrap_or(&text);
    if name == "." || name == ".." {
        Some("it holds a dot segment")
    } else if name.ends_with(['.', ' ']) {
        Some("a part of it ends in a dot or a blank")
    } else {
        None
    }
}

/// The bytes that a segment stands for.
fn decoded(segment: &str) -> Result<Vec<u8>, &'static str> {
    let mut parts = segment.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for after in parts {
        let digits = after.as_bytes().get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let byte =
            digits.and_then(|digits| std::str::from_utf8(digits).ok()).and_then(|d| u8::from_str_radix(d, 16).ok());
        match byte {
            None => return Err("it holds a `%` that encodes nothing"),
            Some(b'.' | b'/' | b'\\' | b'%' | b';' | b'?' | b'#' | b'*') => {
                return Err("it encodes a separator or a dot");
            }
            Some(byte) if byte < 0x20 || byte == 0x7f => return Err("it encodes a control character"),
            Some(byte) => bytes.push(byte),
        }
        bytes.extend_from_slice(&after.as_bytes()[2..]);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_servers_read_differently_is_ambiguous() {
        for plain in ["/", "/api/", "/api/v1/a.b", "/a%20b", "/...a", "/a;b=1", "/.hidden", "/a/%C3%A9"] {
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
            "/api/%c0%ae%c0%ae/secret",
            "/api/%e0%80%ae%e0%80%ae/s",
            "/api/..%c0%afsecret",
            "/api/..%20/x",
            "/api/%20../x",
            "/api/..../x",
            "/api/x.",
            "/api/x%20",
            "/api/x.;a=b",
            "/%ff",
        ] {
            assert!(ambiguity(odd).is_some(), "{odd}");
        }
    }
}

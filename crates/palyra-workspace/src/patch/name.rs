//! The names in a patch's headers: quoted or plain, with or without the `a/` and `b/` that git puts before them.
//!
//! A name here is still a caller's text. It must never be used before `Workspace::resolve` has seen it.

/// The name in a `---`, `+++` or `rename` line: `Ok(None)` is `/dev/null`.
pub(super) fn header_name(text: &str) -> Result<Option<String>, &'static str> {
    let text = text.trim_end_matches(['\n', '\r']);
    let name = if text.starts_with('"') {
        let (name, rest) = unquote(text)?;
        if !(rest.is_empty() || rest.starts_with('\t')) {
            return Err("something follows the quoted file name");
        }
        name
    } else {
        // What follows a tab is a time.
        text.split('\t').next().unwrap_or(text).to_owned()
    };
    match name.as_str() {
        "" => Err("the file name is missing"),
        "/dev/null" => Ok(None),
        _ => Ok(Some(name)),
    }
}

/// The two names of a `diff --git` line, where they can be told apart: when both are the same, or quoted.
pub(super) fn git_names(text: &str) -> Option<(String, String)> {
    let text = text.trim_end_matches(['\n', '\r']);
    if text.starts_with('"') {
        let (old, rest) = unquote(text).ok()?;
        let rest = rest.strip_prefix(' ')?;
        let new = if rest.starts_with('"') { unquote(rest).ok()?.0 } else { rest.to_owned() };
        return Some((old, new));
    }
    // Both prefixes have the same length, so two equal names meet in the middle.
    let middle = text.len() / 2;
    let (old, new) = (text.get(..middle)?, text.get(middle..)?.strip_prefix(' ')?);
    let same = old == new || old.strip_prefix("a/").is_some_and(|old| new.strip_prefix("b/") == Some(old));
    same.then(|| (old.to_owned(), new.to_owned()))
}

/// Whether a `diff --git` line uses the prefixes.
pub(super) fn git_prefixed(text: &str) -> bool {
    let plain = text.trim_start_matches('"');
    plain.starts_with("a/") && (text.contains(" b/") || text.contains(" \"b/"))
}

/// Takes `a/` and `b/` off, when every side that is there has its own.
pub(super) fn strip_prefixes(old: Option<String>, new: Option<String>) -> (Option<String>, Option<String>) {
    let has = |name: &Option<String>, prefix: &str| name.as_ref().is_none_or(|name| name.starts_with(prefix));
    if !(has(&old, "a/") && has(&new, "b/")) {
        return (old, new);
    }
    let cut = |name: Option<String>| name.and_then(|name| name.get(2..).map(str::to_owned));
    (cut(old), cut(new))
}

/// Reads a name in git's quotes; gives the name and what follows the closing quote.
fn unquote(text: &str) -> Result<(String, &str), &'static str> {
    const BAD: &str = "the quoted file name is not valid";
    let mut bytes = Vec::new();
    let mut rest = text.strip_prefix('"').ok_or(BAD)?.bytes().enumerate();
    while let Some((at, byte)) = rest.next() {
        match byte {
            b'"' => {
                let name = String::from_utf8(bytes).map_err(|_| "the file name is not UTF-8")?;
                // One byte for the opening quote, one for the closing one.
                return Ok((name, text.get(at + 2..).unwrap_or_default()));
            }
            b'\\' => bytes.push(escaped(&mut rest.by_ref().map(|(_, byte)| byte)).ok_or(BAD)?),
            other => bytes.push(other),
        }
    }
    Err(BAD)
}

/// The byte that an escape stands for, its backslash already read.
fn escaped(rest: &mut impl Iterator<Item = u8>) -> Option<u8> {
    Some(match rest.next()? {
        b'a' => 7,
        b'b' => 8,
        b't' => b'\t',
        b'n' => b'\n',
        b'v' => 11,
        b'f' => 12,
        b'r' => b'\r',
        b'"' => b'"',
        b'\\' => b'\\',
        first @ b'0'..=b'3' => {
            let mut value = first - b'0';
            for _ in 0..2 {
                let digit = rest.next().filter(|digit| (b'0'..=b'7').contains(digit))?;
                value = (value << 3) | (digit - b'0');
            }
            value
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_git_writes_them() {
        let check = |text: &str, expect: Result<Option<&str>, ()>| {
            let got = header_name(text).map_err(drop);
            assert_eq!(got, expect.map(|name| name.map(str::to_owned)), "{text:?}");
        };
        check("a/x\n", Ok(Some("a/x")));
        check("a/with space\t\r\n", Ok(Some("a/with space")));
        check("x\t2024-01-01 00:00:00", Ok(Some("x")));
        check("\"a/\\303\\244\\t\\\"q\\\\\"\t", Ok(Some("a/ä\t\"q\\")));
        check("/dev/null\t1970", Ok(None));
        for bad in ["", "\t", "\"a", "\"a\\", "\"\\9\"", "\"\\400\"", "\"\\377\"", "\"a\"b"] {
            check(bad, Err(()));
        }
    }

    #[test]
    fn git_lines_are_split_only_where_it_is_certain() {
        let both = |old: &str, new: &str| Some((old.to_owned(), new.to_owned()));
        assert_eq!(git_names("a/x y b/x y\n"), both("a/x y", "b/x y"));
        assert_eq!(git_names("x x"), both("x", "x"));
        assert_eq!(git_names("\"a/\\303\\244\" \"b/\\303\\244\""), both("a/ä", "b/ä"));
        assert_eq!(git_names("a/x b/y"), None);
        assert_eq!(git_names(""), None);
        assert_eq!(git_names("ää"), None);
    }
}

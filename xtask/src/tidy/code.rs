//! Rust source without its comments and the contents of its literals.
//!
//! A check that looks for a word must not find it in a sentence about that word, nor in its own list of words. This is
//! not a parser: it knows what begins and ends a comment and a literal, which is all that these checks need. What is
//! taken out becomes spaces, so that lines and columns stay where they were.

/// The source with comments and literals blanked.
pub fn code_only(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let previous_is_word = out.ends_with(is_word);
        let length = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => block_comment(rest),
            '"' => string(rest),
            'r' | 'b' | 'c' if !previous_is_word => prefixed_literal(rest),
            '\'' => character(rest),
            _ => 0,
        };
        if length == 0 {
            out.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let (taken, after) = rest.split_at(length);
        out.extend(taken.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        rest = after;
    }
    out
}

/// Whether a character can be part of a name.
pub fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Where `word` occurs as a whole word.
pub fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |at| !code[..*at].ends_with(is_word) && !code[at + word.len()..].starts_with(is_word))
}

/// The number of the line that holds this offset.
pub fn line_of(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

fn block_comment(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// The length of a string with escapes that begins here.
fn string(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// `r"…"`, `r#"…"#`, `b"…"`, `br"…"`, `c"…"`, `b'…'`; 0 for a name that merely begins like one.
fn prefixed_literal(rest: &str) -> usize {
    let prefix = rest.len() - rest.trim_start_matches(['r', 'b', 'c']).len();
    let body = &rest[prefix..];
    let raw = rest[..prefix].contains('r');
    let length = match body.chars().next() {
        Some('\'') if !raw => character(body),
        Some('"') if !raw => string(body),
        Some('"' | '#') if raw => raw_string(body),
        _ => 0,
    };
    if length == 0 { 0 } else { prefix + length }
}

fn raw_string(body: &str) -> usize {
    let hashes = body.len() - body.trim_start_matches('#').len();
    if !body[hashes..].starts_with('"') {
        return 0; // `r#name`
    }
    let end = format!("\"{}", "#".repeat(hashes));
    let inside = hashes + 1;
    body[inside..].find(&end).map_or(body.len(), |at| inside + at + end.len())
}

/// The length of a character literal; 0 for a lifetime.
fn character(rest: &str) -> usize {
    let mut inside = rest.chars().skip(1);
    match (inside.next(), inside.next()) {
        (Some('\\'), Some(escaped)) => {
            let after = 2 + escaped.len_utf8();
            rest[after..].find('\'').map_or(0, |at| after + at + 1)
        }
        (Some(c), Some('\'')) => 2 + c.len_utf8(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expect: &str) {
        assert_eq!(code_only(source).split_whitespace().collect::<Vec<_>>().join(" "), expect, "{source}");
    }

    #[test]
    fn comments_and_literals_are_blanked() {
        check("a // unsafe\nb", "a b");
        check("a /* x /* y */ unsafe */ b", "a b");
        check(r#"a "uns\"afe" b"#, "a b");
        check(r##"a r#"uns"afe"# b"##, "a b");
        check(r"a b'\'' b", "a b");
        check(r#"a '"' b "c" d"#, "a b d");
        check(r"a '\u{1f600}' b", "a b");
    }

    #[test]
    fn code_stays() {
        check("fn f<'a>(x: &'a str) -> &'static str { x }", "fn f<'a>(x: &'a str) -> &'static str { x }");
        check("r#type + bar + b", "r#type + bar + b");
        check("for 'x in 'y", "for 'x in 'y");
    }

    #[test]
    fn lines_stay_where_they_were() {
        let source = "one\n\"two\nthree\" /* four\nfive */ six";
        let code = code_only(source);
        assert_eq!(code.len(), source.len());
        assert_eq!(words(&code, "six").map(|at| line_of(&code, at)).collect::<Vec<_>>(), [4]);
        assert_eq!(words("unsafe_code unsafe", "unsafe").collect::<Vec<_>>(), [12]);
    }
}

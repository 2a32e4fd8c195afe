//! Words as a person would type them at a shell, and text without its colours.

/// Quotes a word where a shell would need it.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Removes the escape sequences that set colours.
pub fn without_colour(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        rest = after.split_once('m').map_or("", |(_, rest)| rest);
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_a_shell() {
        assert_eq!(quoted("palyra.fs.read"), "palyra.fs.read");
        assert_eq!(quoted(r#"{"text":"it's"}"#), r#"'{"text":"it'\''s"}'"#);
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn colours_are_removed() {
        assert_eq!(without_colour("\u{1b}[32m✔\u{1b}[0m fine"), "✔ fine");
        assert_eq!(without_colour("plain"), "plain");
    }
}

//! What a sed command line executes.
//!
//! GNU sed has a command and a flag, both `e`, that execute what they find. The command line is read as getopt reads it, every
//! option known; what is not known is refused. Scripts in files are not opened.

/// What of a sed command line starts another program.
pub(super) fn starts(words: &[String]) -> Option<String> {
    match scripts(words) {
        Ok(scripts) if scripts.iter().any(|script| executes(script)) => {
            Some("its script has an `e` command, which executes what it finds".into())
        }
        // Under `find` the braces become a name, which would be read as a script.
        Ok(scripts) if scripts.iter().any(|script| script.contains("{}")) => {
            Some("its script is put together from what is found".into())
        }
        Ok(_) => None,
        Err(option) => Some(format!("its option `{option}` is not known")),
    }
}

/// Long options: name, and whether a value follows when none is attached.
const LONG: &[(&str, Value)] = &[
    ("binary", Value::None),
    ("debug", Value::None),
    ("expression", Value::Script),
    ("file", Value::Other),
    ("follow-symlinks", Value::None),
    ("help", Value::None),
    ("in-place", Value::Attached),
    ("line-length", Value::Other),
    ("null-data", Value::None),
    ("posix", Value::None),
    ("quiet", Value::None),
    ("regexp-extended", Value::None),
    ("sandbox", Value::None),
    ("separate", Value::None),
    ("silent", Value::None),
    ("unbuffered", Value::None),
    ("version", Value::None),
    ("zero-terminated", Value::None),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    None,
    /// Only behind the option itself: `-i.bak`.
    Attached,
    Script,
    Other,
}

fn short(letter: char) -> Option<Value> {
    Some(match letter {
        'n' | 'r' | 'E' | 's' | 'u' | 'z' | 'b' | 'h' => Value::None,
        'i' => Value::Attached,
        'e' => Value::Script,
        'f' | 'l' => Value::Other,
        _ => return None,
    })
}

/// A long option by its name or an unambiguous beginning of it.
fn long(given: &str) -> Option<Value> {
    if let Some((_, value)) = LONG.iter().find(|(name, _)| *name == given) {
        return Some(*value);
    }
    let mut meant = LONG.iter().filter(|(name, _)| name.starts_with(given)).map(|(_, value)| *value);
    let first = meant.next()?;
    meant.all(|other| other == first).then_some(first)
}

/// The scripts that a command line holds, or the option that is not known.
fn scripts(words: &[String]) -> Result<Vec<&str>, &str> {
    let mut scripts = Vec::new();
    let mut plain = None;
    let (mut by_option, mut options_end) = (false, false);
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        if options_end || word == "-" || !word.starts_with('-') {
            plain = plain.or(Some(word));
            continue;
        }
        if word == "--" {
            options_end = true;
            continue;
        }
        let (value, attached) = option(word).ok_or(word)?;
        let takes_next = attached.is_none() && matches!(value, Value::Script | Value::Other);
        let given = if takes_next { words.next() } else { attached };
        by_option |= matches!(value, Value::Script) || word.starts_with("--f") || is_file(word);
        if value == Value::Script {
            scripts.extend(given);
        }
    }
    if !by_option {
        scripts.extend(plain);
    }
    Ok(scripts)
}

/// Whether a bundle names a script in a file.
fn is_file(word: &str) -> bool {
    !word.starts_with("--") && word.chars().skip(1).find(|c| short(*c) != Some(Value::None)) == Some('f')
}

/// What an option takes, and the value that is attached to it.
fn option(word: &str) -> Option<(Value, Option<&str>)> {
    if let Some(name) = word.strip_prefix("--") {
        let (name, attached) = name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value)));
        return long(name).map(|value| (value, attached));
    }
    for (at, letter) in word.char_indices().skip(1) {
        let value = short(letter)?;
        if value != Value::None {
            let rest = &word[at + letter.len_utf8()..];
            return Some((value, Some(rest).filter(|rest| !rest.is_empty())));
        }
    }
    Some((Value::None, None))
}

/// Whether a sed script has an `e` command, or the flag of that name on a substitution.
fn executes(script: &str) -> bool {
    let bytes = script.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        at = after_addresses(bytes, at);
        let Some(command) = bytes.get(at).copied() else { return false };
        at += 1;
        match command {
            b'e' => return true,
            b's' | b'y' => {
                let Some(delimiter) = bytes.get(at).copied() else { return false };
                let Some(middle) = after_delimited(bytes, at + 1, delimiter) else { return false };
                let Some(end) = after_delimited(bytes, middle, delimiter) else { return false };
                let flags = bytes[end..].iter().take_while(|b| !b";}\n#w".contains(b)).count();
                if command == b's' && bytes[end..end + flags].contains(&b'e') {
                    return true;
                }
                at = end + flags;
                if bytes.get(at) == Some(&b'w') {
                    at = end_of(bytes, at, b"\n");
                }
            }
            b'a' | b'i' | b'c' | b'r' | b'R' | b'w' | b'W' | b'#' => at = end_of(bytes, at, b"\n"),
            b'b' | b't' | b'T' | b':' => at = end_of(bytes, at, b"\n;"),
            _ => {}
        }
    }
    false
}

/// Past blanks, separators, line numbers, patterns and `!`.
fn after_addresses(bytes: &[u8], mut at: usize) -> usize {
    while let Some(byte) = bytes.get(at).copied() {
        match byte {
            b'/' => at = after_delimited(bytes, at + 1, b'/').unwrap_or(bytes.len()),
            b'\\' => {
                let delimiter = bytes.get(at + 1).copied().unwrap_or(0);
                at = after_delimited(bytes, at + 2, delimiter).unwrap_or(bytes.len());
            }
            b'I' | b'M' | b'$' | b',' | b'~' | b'+' | b'!' | b'{' | b'}' | b';' | b'0'..=b'9' => at += 1,
            byte if byte.is_ascii_whitespace() => at += 1,
            _ => break,
        }
    }
    at
}

/// Past the next delimiter that no backslash precedes.
fn after_delimited(bytes: &[u8], mut at: usize, delimiter: u8) -> Option<usize> {
    loop {
        match *bytes.get(at)? {
            b'\\' => at += 2,
            byte if byte == delimiter => return Some(at + 1),
            _ => at += 1,
        }
    }
}

fn end_of(bytes: &[u8], at: usize, ends: &[u8]) -> usize {
    bytes[at..].iter().position(|byte| ends.contains(byte)).map_or(bytes.len(), |length| at + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_cut_anywhere_do_not_confuse_the_reader() {
        let script = "1,/a\\/b/{s,x\\,y,z,gw f\n}; $!e id";
        for length in 0..=script.len() {
            let _answer = executes(&script[..length]);
        }
    }

    #[test]
    fn the_command_line_is_read_as_sed_reads_it() {
        for (line, expect) in [
            ("p|f", Some(vec!["p"])),
            ("-n|p|f", Some(vec!["p"])),
            ("-l|5|p|f", Some(vec!["p"])),
            ("--line-length|5|p", Some(vec!["p"])),
            ("-ne|p|f", Some(vec!["p"])),
            ("-nep|f", Some(vec!["p"])),
            ("--expr=p|f", Some(vec!["p"])),
            ("--expression|p|-e|d", Some(vec!["p", "d"])),
            ("-i.bak|s/a/b/|f", Some(vec!["s/a/b/"])),
            ("-f|x|f", Some(vec![])),
            ("-nf|x|f", Some(vec![])),
            ("--file=x|f", Some(vec![])),
            ("--|p", Some(vec!["p"])),
            ("--wat|p", None),
            ("-q|p", None),
            ("--s|p", Some(vec!["p"])),
        ] {
            let words: Vec<String> = line.split('|').map(str::to_owned).collect();
            assert_eq!(scripts(&words).ok(), expect, "{line}");
        }
    }
}

//! What a sed command line executes.
//!
//! GNU sed has a command and a flag, both `e`, that execute what they find. The command line is read as getopt reads it, every
//! option known, and as it is read where `POSIXLY_CORRECT` is set, with no option behind the first operand; what is not known is
//! refused. Scripts in files are not opened.

mod script;

use script::Verdict;

/// What of a sed command line starts another program.
pub(super) fn starts(words: &[String]) -> Option<String> {
    let permuted = Line::read(words, true);
    let posix = Line::read(words, false);
    let lines = match (permuted, posix) {
        (Ok(permuted), Ok(posix)) => [permuted, posix],
        (Err(option), _) | (_, Err(option)) => return Some(format!("its option `{option}` is not known")),
    };
    lines.iter().find_map(Line::starts)
}

/// What an option takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    None,
    /// Only behind the option itself: `-i.bak`.
    Attached,
    /// A script.
    Script,
    /// A file that holds a script.
    File,
    Other,
}

/// Long options, and what they take.
const LONG: &[(&str, Value)] = &[
    ("binary", Value::None),
    ("debug", Value::None),
    ("expression", Value::Script),
    ("file", Value::File),
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

fn short(letter: char) -> Option<Value> {
    Some(match letter {
        'n' | 'r' | 'E' | 's' | 'u' | 'z' | 'b' | 'h' => Value::None,
        'i' => Value::Attached,
        'e' => Value::Script,
        'f' => Value::File,
        'l' => Value::Other,
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

/// A command line: the scripts that it holds, and whether it names some in files as well.
#[derive(Debug, Default, PartialEq, Eq)]
struct Line<'a> {
    scripts: Vec<&'a str>,
    files: bool,
}

impl<'a> Line<'a> {
    /// Reads it, with options behind operands or without; or tells the option that is not known.
    fn read(words: &'a [String], permuted: bool) -> Result<Self, &'a str> {
        let mut line = Self::default();
        let mut first_operand = None;
        let mut options_end = false;
        let mut words = words.iter().map(String::as_str);
        while let Some(word) = words.next() {
            if options_end || word == "-" || !word.starts_with('-') {
                first_operand = first_operand.or(Some(word));
                options_end |= !permuted;
                continue;
            }
            if word == "--" {
                options_end = true;
                continue;
            }
            let (value, attached) = option(word).ok_or(word)?;
            let takes_next = attached.is_none() && matches!(value, Value::Script | Value::File | Value::Other);
            let given = if takes_next { words.next() } else { attached };
            match value {
                // Without a value sed says so and ends.
                Value::Script => line.scripts.push(given.unwrap_or("")),
                Value::File => line.files = true,
                Value::None | Value::Attached | Value::Other => {}
            }
        }
        if line.scripts.is_empty() && !line.files {
            line.scripts.extend(first_operand);
        }
        Ok(line)
    }

    fn starts(&self) -> Option<String> {
        // Under `find` the braces become a name, which would be read as a script.
        if self.scripts.iter().any(|script| script.contains("{}")) {
            return Some("its script is put together from what is found".into());
        }
        // What a backslash at the end of one script does to the next is not the same in every sed.
        let alone = self.scripts.len() == 1 && !self.files;
        if !alone && self.scripts.iter().any(|script| script.ends_with('\\')) {
            return Some("one of its scripts goes on in the next".into());
        }
        match script::judge(&self.scripts.join("\n")) {
            Verdict::Harmless | Verdict::Fails => None,
            Verdict::Executes => Some("its script has an `e` command, which executes what it finds".into()),
            Verdict::Unclear => Some("its script cannot be read with certainty, and might have an `e` command".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split('|').map(str::to_owned).collect()
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
            ("--fi|x|f", Some(vec![])),
            ("--follow-symlinks|p|f", Some(vec!["p"])),
            ("--fo|p|f", Some(vec!["p"])),
            ("--f|p|f", None),
            ("--|p", Some(vec!["p"])),
            ("--wat|p", None),
            ("-q|p", None),
            ("--s|p", Some(vec!["p"])),
            ("f|-e|p", Some(vec!["p"])),
        ] {
            assert_eq!(Line::read(&words(line), true).ok().map(|line| line.scripts), expect, "{line}");
        }
    }

    #[test]
    fn options_behind_operands_are_read_both_ways() {
        for (line, expect) in [
            ("1e id|f|-e|p", vec!["1e id"]),
            ("-n|p|f|-e|d", vec!["p"]),
            ("-e|d|f|-e|p", vec!["d"]),
            ("-f|x|f|-e|p", vec![]),
        ] {
            assert_eq!(Line::read(&words(line), false).unwrap().scripts, expect, "{line}");
        }
        for line in ["1e id|f|-e|p", "f|-e|1e id", "--follow-symlinks|1e id|f", "--fol|1e id|f"] {
            assert!(starts(&words(line)).is_some(), "{line}");
        }
        for line in ["-i|file.txt|-e|s/a/b/", "p|f|-n", "src/main.rs|-e|p", "README.md|-n|-e|1,3p"] {
            assert_eq!(starts(&words(line)), None, "{line}");
        }
    }

    #[test]
    fn scripts_that_go_on_in_the_next_are_refused() {
        for line in ["-e|s/a/b\\|-e|/e", "-e|a\\|-f|x|-e|e id", "-e|p|-e|1e id", "-e|1{|-e|e id|-e|}"] {
            assert!(starts(&words(line)).is_some(), "{line}");
        }
        for line in ["-e|1{|-e|p|-e|}", "-e|a text|-e|p", "-e|/x/d|-f|more"] {
            assert_eq!(starts(&words(line)), None, "{line}");
        }
    }
}

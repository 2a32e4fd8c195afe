//! A command line that was not understood, and one that asks for help.

use crate::args::Format;
use crate::exit::{Failure, USAGE};
use crate::output;
use clap::error::ErrorKind;
use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

/// Says what the parser has to say, in the format that was asked for as far as that can be told.
pub fn answer(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return match error.print().and_then(|()| std::io::stdout().flush()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => output::unwritten(&error),
        };
    }
    if asked_for(std::env::args_os().skip(1)) == Format::Json {
        output::failure(Format::Json, &failure(error));
    } else {
        // A reader that is gone needs no answer.
        drop(anstream::stderr().write_all(usage_text(error).as_bytes()));
    }
    ExitCode::from(USAGE)
}

/// The parser's message. Options that an environment variable sets stand in its usage line as if they had to be typed.
fn usage_text(error: &clap::Error) -> String {
    let text = error.render().ansi().to_string();
    let line = |line: &str| {
        if !line.contains("Usage:") {
            return line.to_owned();
        }
        ["--state-dir <DIR>", "--token <TOKEN>"].iter().fold(line.to_owned(), |line, option| without(&line, option))
    };
    text.split_inclusive('\n').map(line).collect()
}

/// A line without an option, whatever escape sequences stand between and around its two words.
fn without(line: &str, option: &str) -> String {
    let Some((name, value)) = option.split_once(' ') else { return line.to_owned() };
    let (Some(start), Some(end)) = (line.find(name), line.find(value)) else { return line.to_owned() };
    let end = end + value.len();
    let rest = line[end..].strip_prefix("\u{1b}[0m").unwrap_or(&line[end..]);
    if start < end { format!("{}{}", &line[..start], rest.trim_start_matches(' ')) } else { line.to_owned() }
}

/// The format that words ask for which were not understood as a whole.
fn asked_for(words: impl Iterator<Item = OsString>) -> Format {
    let mut format = Format::Text;
    let mut value_follows = false;
    for word in words {
        let word = word.to_string_lossy();
        if word == "--" {
            break;
        }
        let value = if value_follows {
            Some(&*word)
        } else {
            word.strip_prefix("--output=").or_else(|| word.strip_prefix("-o").map(|rest| rest.trim_start_matches('=')))
        };
        match value {
            Some("json") => format = Format::Json,
            Some("text") => format = Format::Text,
            _ => {}
        }
        value_follows = !value_follows && (word == "-o" || word == "--output");
    }
    format
}

/// The parser's words as a document: what is wrong, and its tip.
fn failure(error: &clap::Error) -> Failure {
    const HINT: &str = "`palyra --help`, or `--help` after a command, says what can be typed";
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return Failure::usage("a command is missing", HINT);
    }
    let text = error.render().to_string();
    let mut paragraphs = text.split("\n\n").map(|part| part.lines().map(str::trim).collect::<Vec<_>>().join(" "));
    let message = paragraphs.next().unwrap_or_default();
    let tip = paragraphs.find_map(|part| part.strip_prefix("tip: ").map(str::to_owned));
    Failure::usage(message.trim_start_matches("error: "), tip.as_deref().unwrap_or(HINT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::Parser as _;

    #[test]
    fn the_format_is_found_in_words_that_make_no_sense() {
        let asked = |words: &str| asked_for(words.split(' ').map(OsString::from));
        for json in ["-o json nonsense", "--output json", "x --output=json", "-ojson", "-o=json", "-o text -o json"] {
            assert_eq!(asked(json), Format::Json, "{json}");
        }
        for text in ["", "call", "sandbox run -- ls -o json", "-o json -o text", "-o xml", "json", "--output"] {
            assert_eq!(asked(text), Format::Text, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_one_sentence() {
        for (typed, message) in [
            ("palyra stauts", "unrecognized subcommand 'stauts'"),
            ("palyra", "a command is missing"),
            ("palyra calls show call_x", "invalid value 'call_x'"),
        ] {
            let failure = failure(&Cli::try_parse_from(typed.split(' ')).unwrap_err());
            assert!(failure.message.starts_with(message), "{failure:?}");
            assert_eq!((failure.exit, failure.code.as_str(), failure.hint.is_some()), (2, "usage", true));
        }
    }
}

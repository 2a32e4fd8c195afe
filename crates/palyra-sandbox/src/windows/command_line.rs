//! A command line that is taken apart again into exactly the words it was made from.
//!
//! Windows passes one string, and every program splits it by itself, nearly all of them like `CommandLineToArgvW`. A
//! word that could be split otherwise would let an argument become two. Programs with rules of their own are shells,
//! and batch files are not executed at all.

use crate::error::SandboxError;

/// The most that Windows takes, with the end mark.
const MOST_UNITS: usize = 32_767;

/// The program and its arguments as one string, with the end mark.
pub(super) fn command_line(program: &str, arguments: &[String]) -> Result<Vec<u16>, SandboxError> {
    let words = || std::iter::once(program).chain(arguments.iter().map(String::as_str));
    if words().any(|word| word.contains('\0')) {
        return Err(SandboxError::NulByte { what: "an argument".into() });
    }
    if program.contains('"') {
        // The first word is read without escapes; no file name has this character anyway.
        return Err(SandboxError::ExecutableNotFound { name: program.to_owned() });
    }
    let mut line = format!("\"{program}\"");
    for argument in arguments {
        line.push(' ');
        quote(argument, &mut line);
    }
    let units: Vec<u16> = line.encode_utf16().chain([0]).collect();
    if units.len() > MOST_UNITS {
        let reason = format!("the command line is longer than the {MOST_UNITS} characters that Windows takes");
        return Err(SandboxError::InvalidPolicy { reason });
    }
    Ok(units)
}

/// One argument, always in quotes. Backslashes count only before a quote: there each is doubled.
fn quote(argument: &str, line: &mut String) {
    line.push('"');
    let mut backslashes = 0;
    for c in argument.chars() {
        match c {
            '\\' => backslashes += 1,
            '"' => {
                // Those before it once more, and one for the quote itself.
                line.extend(std::iter::repeat_n('\\', backslashes + 1));
                backslashes = 0;
            }
            _ => backslashes = 0,
        }
        line.push(c);
    }
    line.extend(std::iter::repeat_n('\\', backslashes));
    line.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `CommandLineToArgvW` by its documentation: the first word up to its closing quote or a blank, without escapes;
    /// then 2n backslashes and a quote are n backslashes and the quote's switch, 2n+1 are n and a plain quote, others
    /// are themselves; a doubled quote inside quotes is a quote.
    fn split(line: &str) -> Vec<String> {
        let mut chars = line.chars().peekable();
        let mut words = Vec::new();
        let mut first = String::new();
        if chars.next_if_eq(&'"').is_some() {
            first.extend(chars.by_ref().take_while(|c| *c != '"'));
        } else {
            while let Some(c) = chars.next_if(|c| !matches!(c, ' ' | '\t')) {
                first.push(c);
            }
        }
        words.push(first);
        loop {
            while chars.next_if(|c| matches!(c, ' ' | '\t')).is_some() {}
            if chars.peek().is_none() {
                return words;
            }
            let (mut word, mut quoted) = (String::new(), false);
            while let Some(c) = chars.next_if(|c| quoted || !matches!(c, ' ' | '\t')) {
                match c {
                    '\\' => {
                        let mut count = 1;
                        while chars.next_if_eq(&'\\').is_some() {
                            count += 1;
                        }
                        if chars.peek() == Some(&'"') {
                            word.extend(std::iter::repeat_n('\\', count / 2));
                            if count % 2 == 1 {
                                word.push('"');
                                chars.next();
                            }
                        } else {
                            word.extend(std::iter::repeat_n('\\', count));
                        }
                    }
                    '"' if quoted && chars.peek() == Some(&'"') => {
                        chars.next();
                        word.push('"');
                    }
                    '"' => quoted = !quoted,
                    c => word.push(c),
                }
            }
            words.push(word);
        }
    }

    fn text(program: &str, arguments: &[String]) -> String {
        let units = command_line(program, arguments).unwrap();
        assert_eq!(units.last(), Some(&0));
        String::from_utf16(&units[..units.len() - 1]).unwrap()
    }

    #[test]
    fn known_lines() {
        for (argument, expect) in [
            ("", r#""""#),
            ("a b", r#""a b""#),
            (r"C:\dir\", r#""C:\dir\\""#),
            (r#"say "hi""#, r#""say \"hi\"""#),
            (r#"\""#, r#""\\\"""#),
            (r"a\\b", r#""a\\b""#),
        ] {
            assert_eq!(text("p.exe", &[argument.to_owned()]), format!(r#""p.exe" {expect}"#), "{argument}");
        }
    }

    #[test]
    fn what_cannot_be_said_is_refused() {
        assert_eq!(command_line("a\0", &[]).unwrap_err().code(), "sandbox_nul_byte");
        assert_eq!(command_line("a", &["b\0".into()]).unwrap_err().code(), "sandbox_nul_byte");
        assert!(command_line("a\" b", &[]).is_err());
        assert!(command_line("a", &["x".repeat(40_000)]).is_err());
    }

    proptest! {
        #[test]
        fn every_word_comes_back(
            program in "[^\"\0]{0,20}",
            arguments in prop::collection::vec("[ \t\\\\\"a-c^%&|<>\u{e9}\u{1f600}\n]{0,12}", 0..6),
        ) {
            let mut expect = vec![program.clone()];
            expect.extend(arguments.iter().cloned());
            prop_assert_eq!(split(&text(&program, &arguments)), expect);
        }

        #[test]
        fn any_text_comes_back(argument in "[^\0]{0,60}") {
            prop_assert_eq!(split(&text("p", std::slice::from_ref(&argument))), vec!["p".to_owned(), argument]);
        }
    }
}

//! The commands of a shell line, one by one: for people to read, never for deciding what may run.
//!
//! A line that a simple reading could get wrong (substitutions, here-documents, groups, control words) is not taken
//! apart: half an explanation misleads. The line itself is always shown whole beside its parts.

use crate::facets::Facets;
use serde::{Deserialize, Serialize};

/// One command of a shell line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShellPart {
    /// What joins it to the one before: `&&`, `||`, `|`, `;`, `&`; empty for the first.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub joined_by: String,
    /// The command, as it is written.
    pub text: String,
}

/// The longest line that is taken apart, in bytes, and the most parts.
const MAX_LINE: usize = 16 << 10;
const MAX_PARTS: usize = 64;

const SHELLS: [&str; 6] = ["sh", "bash", "dash", "zsh", "ksh", "ash"];
const CONTROL: [&str; 12] =
    ["if", "for", "while", "until", "case", "select", "function", "then", "do", "eval", "exec", "source"];

/// The commands of a command that is `sh -c LINE`; nothing where there is only one, or where they cannot be told apart.
#[must_use]
pub fn shell_parts(facets: &Facets) -> Vec<ShellPart> {
    let argv = &facets.argv;
    let is_shell = |word: &String| SHELLS.contains(&word.rsplit('/').next().unwrap_or(word));
    let Some(shell) = argv.iter().position(is_shell) else { return Vec::new() };
    let takes_code = |word: &String| word.starts_with('-') && !word.starts_with("--") && word.contains('c');
    let Some(flag) = argv.iter().skip(shell + 1).position(takes_code) else { return Vec::new() };
    let Some(line) = argv.get(shell + 2 + flag) else { return Vec::new() };
    split(line).filter(|parts| parts.len() > 1).unwrap_or_default()
}

fn split(line: &str) -> Option<Vec<ShellPart>> {
    if line.len() > MAX_LINE {
        return None;
    }
    let (mut parts, mut text, mut joined_by) = (Vec::new(), String::new(), String::new());
    let mut chars = line.chars().peekable();
    let mut quote = None;
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some('\''), '\'') | (Some('"'), '"') => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (Some('\''), _) => {}
            // What follows runs too, and is not a part of its own.
            (_, '`') | (None, '(' | ')' | '{' | '}' | '#') => return None,
            (_, '$') if matches!(chars.peek(), Some('(' | '{')) => return None,
            (None, '<' | '>') if matches!(chars.peek(), Some('<' | '(')) => return None,
            (_, '\\') => {
                text.push(c);
                text.extend(chars.next());
                continue;
            }
            (None, ';' | '\n' | '&' | '|') => {
                // `2>&1` and `&>file` join nothing.
                if c == '&' && (text.ends_with(['>', '<']) || chars.peek() == Some(&'>')) {
                    text.push(c);
                    continue;
                }
                let doubled = matches!(c, '&' | '|') && chars.next_if_eq(&c).is_some();
                let joint = if doubled { format!("{c}{c}") } else { c.to_string().replace('\n', ";") };
                push(&mut parts, &mut text, std::mem::replace(&mut joined_by, joint))?;
                continue;
            }
            _ => {}
        }
        text.push(c);
    }
    push(&mut parts, &mut text, joined_by)?;
    (quote.is_none() && parts.len() <= MAX_PARTS).then_some(parts)
}

fn push(parts: &mut Vec<ShellPart>, text: &mut String, joined_by: String) -> Option<()> {
    let command = std::mem::take(text).trim().to_owned();
    if command.is_empty() {
        return Some(());
    }
    let first = command.split_whitespace().next().unwrap_or_default();
    if CONTROL.contains(&first) || first == "." || first == "!" {
        return None;
    }
    parts.push(ShellPart { joined_by: if parts.is_empty() { String::new() } else { joined_by }, text: command });
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(line: &str) -> Vec<String> {
        let argv = ["bash", "-lc", line].map(str::to_owned).to_vec();
        let parts = shell_parts(&Facets { argv, ..Facets::default() });
        parts.into_iter().map(|part| format!("{} {}", part.joined_by, part.text).trim().to_owned()).collect()
    }

    #[test]
    fn a_line_is_its_commands_or_left_alone() {
        assert_eq!(
            parts("git fetch && make -j2 | tee 'a;b' ; ls"),
            ["git fetch", "&& make -j2", "| tee 'a;b'", "; ls"]
        );
        assert_eq!(parts("a 2>&1\nb & c"), ["a 2>&1", "; b", "& c"]);
        assert_eq!(parts(r#"echo "a && b" \; c || d"#), [r#"echo "a && b" \; c"#, "|| d"]);
        for whole in
            ["ls", "a && $(b)", "a; `b`", "if a; then b; fi", "(a; b)", "cat <<E\nb\nE", "a && 'b", "{ a; }", ". x; b"]
        {
            assert!(parts(whole).is_empty(), "{whole}");
        }
    }
}

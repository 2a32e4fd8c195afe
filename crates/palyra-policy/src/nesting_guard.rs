//! Refuses text that is nested too deeply for any reader, before Cedar's parser sees it.
//!
//! The parser, the validator and everything that walks a syntax tree recurse; text with thousands of parentheses
//! would end the process instead of being refused. Real rules come nowhere near these limits, which hold on a thread
//! with two megabytes of stack in an unoptimised build. (There, evaluating more than about thirty joints meets Cedar's
//! own recursion limit and denies; an optimised build evaluates all that are let through.) This is a lexer for
//! brackets, strings and comments, and decides nothing else.

/// How deep brackets may stand in brackets.
const MAX_NESTING: usize = 24;
/// How many `&&` and `||` one rule may have.
const MAX_JOINTS: usize = 128;
/// How many `if` one rule may have.
const MAX_BRANCHES: usize = 24;
/// How many `.`, `+`, `-`, `*` and `!` may follow each other.
const MAX_CHAIN: usize = 24;

/// Where a text goes too far, and how.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooComplex {
    pub(crate) offset: usize,
    pub(crate) what: String,
}

#[derive(Default)]
struct Depth {
    nesting: usize,
    joints: usize,
    branches: usize,
    chain: usize,
}

/// Looks through a text once.
pub(crate) fn check(text: &str) -> Result<(), TooComplex> {
    let bytes = text.as_bytes();
    let mut depth = Depth::default();
    let mut at = 0;
    while at < bytes.len() {
        let next = match bytes[at] {
            b'"' => end_of_string(bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'/') => end_of_line(bytes, at),
            b if b.is_ascii_alphabetic() || b == b'_' => word(bytes, at, &mut depth),
            b => {
                depth.punctuation(b, bytes.get(at + 1).copied());
                // Both halves of `&&` and `||` are one joint.
                if (b == b'&' || b == b'|') && bytes.get(at + 1) == Some(&b) { at + 2 } else { at + 1 }
            }
        };
        if let Some(what) = depth.excess() {
            return Err(TooComplex { offset: at, what });
        }
        at = next;
    }
    Ok(())
}

impl Depth {
    fn punctuation(&mut self, byte: u8, next: Option<u8>) {
        match byte {
            b'(' | b'[' | b'{' => self.nesting += 1,
            b')' | b']' | b'}' => self.nesting = self.nesting.saturating_sub(1),
            b'&' | b'|' if next == Some(byte) => self.joints += 1,
            b'.' | b'+' | b'-' | b'*' | b'!' => {
                self.chain += 1;
                return;
            }
            b';' => *self = Self { nesting: self.nesting, ..Self::default() },
            _ => {}
        }
        if matches!(byte, b'&' | b'|' | b',' | b'{' | b'}' | b'=' | b'<' | b'>') {
            self.chain = 0;
        }
    }

    fn excess(&self) -> Option<String> {
        let over = |count: usize, most: usize, what: &str| (count > most).then(|| format!("more than {most} {what}"));
        over(self.nesting, MAX_NESTING, "brackets within each other")
            .or_else(|| over(self.joints, MAX_JOINTS, "`&&` and `||` in one rule; `containsAny` takes a list"))
            .or_else(|| over(self.branches, MAX_BRANCHES, "`if` in one rule"))
            .or_else(|| over(self.chain, MAX_CHAIN, "operators in a row"))
    }
}

/// The string literals of a rule's head and conditions, each with its quotes and its place. What annotations say is not
/// among them, nor what stands in comments.
pub(crate) fn strings(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let bytes = text.as_bytes();
    let (mut at, mut in_rule) = (0, false);
    std::iter::from_fn(move || {
        while at < bytes.len() {
            let start = at;
            at = match bytes[at] {
                b'"' => end_of_string(bytes, at),
                b'/' if bytes.get(at + 1) == Some(&b'/') => end_of_line(bytes, at),
                b if b.is_ascii_alphabetic() || b == b'_' => word(bytes, at, &mut Depth::default()),
                _ => at + 1,
            };
            in_rule |= matches!(&bytes[start..at], b"permit" | b"forbid");
            if in_rule && bytes[start] == b'"' {
                return text.get(start..at).map(|literal| (start, literal));
            }
        }
        None
    })
}

fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn end_of_line(bytes: &[u8], start: usize) -> usize {
    bytes[start..].iter().position(|b| *b == b'\n').map_or(bytes.len(), |n| start + n + 1)
}

fn word(bytes: &[u8], start: usize, depth: &mut Depth) -> usize {
    let rest = &bytes[start..];
    let length = rest.iter().position(|b| !(b.is_ascii_alphanumeric() || *b == b'_')).unwrap_or(rest.len());
    match &rest[..length] {
        b"if" => depth.branches += 1,
        b"then" | b"else" | b"in" | b"is" | b"has" | b"like" => depth.chain = 0,
        _ => {}
    }
    start + length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_rules_pass() {
        check(crate::source::DEFAULT_POLICY_SRC).unwrap();
        let many = format!("[{}]", vec!["\"a.b\""; 10_000].join(", "));
        check(&format!("permit (principal, action, resource) when {{ {many}.containsAny(context.argv) }};")).unwrap();
        // Strings and comments hold what they like.
        check(&format!("// {}\n\"{}\\\"{}\"", "(".repeat(999), "[".repeat(999), "{".repeat(999))).unwrap();
        check(&"permit (principal, action, resource) when { a && b };\n".repeat(1_000)).unwrap();
    }

    #[test]
    fn strings_are_those_of_the_rule_itself() {
        let rule =
            "@id(\"permit\") // \"no\"\npermit (principal, action == Action::\"a\", resource) when { x == \"ü\\\"\" };";
        let found: Vec<_> = strings(rule).map(|(at, literal)| (&rule[at..at + 1], literal)).collect();
        assert_eq!(found, [("\"", "\"a\""), ("\"", "\"ü\\\"\"")]);
    }

    #[test]
    fn excess_is_found_where_it_happens() {
        assert_eq!(check(&"(".repeat(5_000)).unwrap_err().offset, MAX_NESTING);
        for deep in ["a && ", "a || ", "if a then b else ", "a.", "!", "1 + ", "- "] {
            assert!(check(&deep.repeat(5_000)).is_err(), "{deep}");
        }
    }
}

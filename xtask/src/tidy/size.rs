//! Files and functions stay small enough to be read.
//!
//! A file that passes 500 production lines is worth a look, one that passes 700 fails; a function fails past 80. Long
//! means that a concept is missing, and it is found sooner than moved later. Tests are not counted.

use super::Violation;
use super::code::{code_only, is_word, line_of, words};
use super::tree::{SourceFile, Tree};

const FILE_WARNING: usize = 500;
const FILE_LIMIT: usize = 700;
const FUNCTION_LIMIT: usize = 80;

pub fn check(tree: &Tree) -> Vec<Violation> {
    tree.rust().filter(|file| file.is_production()).flat_map(of_file).collect()
}

fn of_file(file: &SourceFile) -> Vec<Violation> {
    let mut found = Vec::new();
    let code = production(&file.text);
    let lines = code.lines().count();
    if lines > FILE_WARNING {
        let size =
            Violation::new(&file.path, None, format!("{lines} production lines; which concept is missing here?"));
        found.push(if lines > FILE_LIMIT { size } else { size.warning() });
    }
    for (line, name, length) in functions(&code_only(code)) {
        if length > FUNCTION_LIMIT {
            let message = format!("`{name}` has {length} lines; at most {FUNCTION_LIMIT}, and 50 is worth a look");
            found.push(Violation::new(&file.path, Some(line), message));
        }
    }
    found
}

/// The text up to the tests within the file.
fn production(text: &str) -> &str {
    let tests = text.match_indices("\n#[cfg(test)]\n").find(|(at, marker)| {
        let next = text[at + marker.len()..].lines().next().unwrap_or("");
        next.starts_with("mod ") && next.ends_with('{')
    });
    tests.map_or(text, |(at, _)| &text[..=at])
}

/// Every function with a body: its line, its name, how many lines it takes.
fn functions(code: &str) -> Vec<(usize, &str, usize)> {
    let mut found = Vec::new();
    for at in words(code, "fn") {
        let name = code[at + 2..].trim_start();
        let name = &name[..name.find(|c| !is_word(c)).unwrap_or(name.len())];
        // `fn(u8)` is a type, and a `;` before any `{` ends a declaration without a body. An array type in the
        // signature hides its function from this check, which is a price we can pay.
        let Some(open) = code[at..].find(['{', ';']).map(|open| at + open) else { continue };
        if name.is_empty() || code[open..].starts_with(';') {
            continue;
        }
        if let Some(length) = block(&code[open..]) {
            let first = line_of(code, at);
            found.push((first, name, line_of(code, open + length) - first + 1));
        }
    }
    found
}

/// Where the block that begins here ends.
fn block(code: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, c) in code.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => return Some(at),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_text(path: &str, text: &str) -> Vec<Violation> {
        check(&Tree::of(&[(path, text)]))
    }

    #[test]
    fn long_files_are_found() {
        let lines = |count: usize| "const X: u8 = 0;\n".repeat(count);
        assert!(check_text("crates/a/src/x.rs", &lines(500)).is_empty());
        assert_eq!(check_text("crates/a/src/x.rs", &lines(501))[0].severity, super::super::Severity::Warning);
        assert_eq!(check_text("crates/a/src/x.rs", &lines(701))[0].severity, super::super::Severity::Error);
        assert!(check_text("crates/a/tests/x.rs", &lines(701)).is_empty());
        let with_tests = format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", lines(400), lines(400));
        assert!(check_text("crates/a/src/x.rs", &with_tests).is_empty());
        let with_file = format!("const A: u8 = 0;\n#[cfg(test)]\nmod tests;\n{}", lines(701));
        assert_eq!(check_text("crates/a/src/x.rs", &with_file).len(), 1);
    }

    #[test]
    fn long_functions_are_found() {
        let function = |lines: usize| format!("fn f() {{\n{}}}\nfn g();\n", "    g(\"}\"); // }\n".repeat(lines - 2));
        assert!(check_text("crates/a/src/x.rs", &function(80)).is_empty());
        let found = check_text("crates/a/src/x.rs", &function(81));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].line, &found[0].message[..16]), (Some(1), "`f` has 81 lines"));
    }
}

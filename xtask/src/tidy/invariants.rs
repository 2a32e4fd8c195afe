//! A named invariant has a test of that name, and a promise names tests that exist.
//!
//! A comment `INVARIANT (name): …` is a promise to the next reader. The name leads to the proof: a function whose name
//! holds it, or the paragraph of SPECIFICATION.md that says how it is kept.

use super::Violation;
use super::code::{code_only, is_word, line_of, words};
use super::tree::Tree;

const MARKER: &str = "INVARIANT (";

pub fn check(tree: &Tree) -> Vec<Violation> {
    let functions: Vec<String> = tree.rust().flat_map(|file| function_names(&code_only(&file.text))).collect();
    let specification: String =
        tree.files().filter(|file| file.path == "SPECIFICATION.md").map(|file| file.text.as_str()).collect();
    let mut found = Vec::new();
    for file in tree.rust().filter(|file| !file.path.starts_with("xtask/")) {
        for (at, name) in named(&file.text) {
            let as_function = name.replace(',', "").replace(['-', ' '], "_");
            let proven = functions.iter().any(|function| function.contains(&as_function));
            if !proven && !specification.contains(name) {
                let message = format!(
                    "the invariant `{name}` has neither a test with `{as_function}` in its name nor a place in SPECIFICATION.md"
                );
                found.push(Violation::new(&file.path, Some(line_of(&file.text, at)), message));
            }
        }
    }
    found.extend(missing_proofs(&specification, &functions, tree));
    found
}

/// The tests and files that the last column of a table in SPECIFICATION.md names and that are not there. A word is taken
/// for a test's name from three underscores on.
fn missing_proofs(specification: &str, functions: &[String], tree: &Tree) -> Vec<Violation> {
    let paths: Vec<&str> = tree.files().map(|file| file.path.as_str()).collect();
    let is_there = |proof: &str| match proof {
        file if file.ends_with(".rs") => paths.iter().any(|path| path.ends_with(&format!("/{file}")) || *path == file),
        test if test.matches('_').count() >= 3 && test.chars().all(is_word) => {
            functions.iter().any(|function| function == test)
        }
        _ => true,
    };
    let mut found = Vec::new();
    for (number, line) in specification.lines().enumerate().filter(|(_, line)| line.starts_with("| ")) {
        let proofs = line.trim_end_matches([' ', '|']).rsplit(" | ").next().unwrap_or("");
        for proof in proofs.split('`').skip(1).step_by(2).filter(|proof| !is_there(proof)) {
            let message = format!("`{proof}` is named as what holds a promise, and is not there");
            found.push(Violation::new("SPECIFICATION.md", Some(number + 1), message));
        }
    }
    found
}

/// Every invariant that a text announces, and where.
fn named(text: &str) -> Vec<(usize, &str)> {
    let after_marker = |(at, _)| {
        let (name, _) = text[at + MARKER.len()..].split_once(')')?;
        Some((at, name))
    };
    text.match_indices(MARKER).filter_map(after_marker).collect()
}

fn function_names(code: &str) -> Vec<String> {
    let name = |at: usize| code[at + 2..].trim_start().chars().take_while(|c| is_word(*c)).collect();
    words(code, "fn").map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invariant_without_a_proof_is_found() {
        let announced = |name: &str| format!("//! {MARKER}{name}): it holds.\n");
        let (proven, written, promised) = (announced("one-notion"), announced("in_writing"), announced("promised"));
        let tree = Tree::of(&[
            ("crates/a/src/x.rs", &proven),
            ("crates/a/src/y.rs", &written),
            ("crates/a/src/z.rs", &promised),
            ("crates/a/tests/t.rs", "fn holds_one_notion_always() {} // fn promised()"),
            (
                "SPECIFICATION.md",
                "`in_writing` holds.\n| one | `holds_one_notion_always`, `t.rs` |\n| two | `no_test_is_there`, `u.rs` |",
            ),
        ]);
        let places: Vec<_> = check(&tree).into_iter().map(|violation| violation.place).collect();
        assert_eq!(places, ["crates/a/src/z.rs", "SPECIFICATION.md", "SPECIFICATION.md"]);
    }
}

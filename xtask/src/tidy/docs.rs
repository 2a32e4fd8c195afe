//! Every Rust file opens with `//!`: what it is and why it exists.
//!
//! A newcomer who opens any file is told at once where they are.

use super::Violation;
use super::tree::Tree;

pub fn check(tree: &Tree) -> Vec<Violation> {
    let silent = tree.rust().filter(|file| {
        let first = file.text.lines().next().unwrap_or("");
        first.strip_prefix("//!").is_none_or(|words| words.trim().is_empty())
    });
    silent.map(|file| Violation::new(&file.path, Some(1), "say in `//!` on the first line what this file is")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_docs_is_found() {
        let tree = Tree::of(&[
            ("crates/a/src/good.rs", "//! Good.\nfn f() {}\n"),
            ("crates/a/src/late.rs", "fn f() {}\n//! Late.\n"),
            ("crates/a/src/hollow.rs", "//!\n"),
            ("crates/a/src/empty.rs", ""),
            ("docs/example.rs", "fn f() {}\n"),
        ]);
        let found: Vec<_> = check(&tree).into_iter().map(|violation| violation.place).collect();
        assert_eq!(found, ["crates/a/src/late.rs", "crates/a/src/hollow.rs", "crates/a/src/empty.rs"]);
    }
}

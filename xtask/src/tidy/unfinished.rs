//! What does not belong into a finished tree, and what belongs into one crate only.
//!
//! Clippy warns of some of this, per crate and where its lint is on; this check sees every file, whatever a crate sets.
//! `#[ignore]` has no lint at all: a test that is not run proves nothing. `unsafe` is for the sandbox, which has to
//! make system calls between fork and exec, and for the one file that maps compiled guests.

use super::Violation;
use super::code::{code_only, line_of, words};
use super::tree::Tree;

const UNFINISHED: [(&str, &str); 4] = [
    ("#[ignore", "a test that is not run proves nothing: mend it or remove it"),
    ("todo!(", "finish this, or leave it out"),
    ("unimplemented!(", "finish this, or leave it out"),
    ("dbg!(", "meant for your eyes only"),
];

const UNSAFE_HOMES: [&str; 2] = ["crates/palyra-sandbox/", "crates/palyra-plugins/src/cache/mapping.rs"];

pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in tree.rust() {
        let code = code_only(&file.text);
        for (sign, message) in UNFINISHED {
            for (at, _) in code.match_indices(sign) {
                found.push(Violation::new(&file.path, Some(line_of(&code, at)), format!("`{sign}`: {message}")));
            }
        }
    }
    found
}

pub fn check_unsafe(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    let at_home = |path: &str| UNSAFE_HOMES.iter().any(|home| path.starts_with(home));
    for file in tree.rust().filter(|file| !at_home(&file.path)) {
        let code = code_only(&file.text);
        for at in words(&code, "unsafe") {
            let message = format!("`unsafe` is for {} alone", UNSAFE_HOMES.join(" and "));
            found.push(Violation::new(&file.path, Some(line_of(&code, at)), message));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_code_is_found() {
        let signs = "#[ignore]\n#[ignore = \"slow\"]\nfn t() {\n    todo!();\n    unimplemented!();\n    dbg!(x);\n}\n// todo!()\n";
        let found = check(&Tree::of(&[("crates/a/src/x.rs", signs)]));
        let mut lines: Vec<_> = found.iter().filter_map(|violation| violation.line).collect();
        lines.sort_unstable();
        assert_eq!(lines, [1, 2, 4, 5, 6]);
    }

    #[test]
    fn unsafe_code_is_found_outside_the_sandbox() {
        let code = "fn f() { unsafe { g() } }\n#![forbid(unsafe_code)]\n// unsafe\n";
        let tree = Tree::of(&[
            ("crates/palyra-sandbox/src/x.rs", code),
            ("crates/palyra-engine/src/x.rs", code),
            ("crates/palyra-plugins/src/cache/mapping.rs", code),
            ("crates/palyra-plugins/src/cache/mod.rs", code),
        ]);
        let places: Vec<_> = check_unsafe(&tree).into_iter().map(|violation| violation.place).collect();
        assert_eq!(places, ["crates/palyra-engine/src/x.rs", "crates/palyra-plugins/src/cache/mod.rs"]);
    }
}

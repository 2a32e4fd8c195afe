//! A witness is made in one place.
//!
//! `Permit`, `Recorded` and `VerifiedPeer` prove that something happened: a decision, a commit, a check of identity.
//! That holds as long as their fields are private, nothing can copy them, and the file that earned them is the only one
//! that makes them. Privacy is the compiler's work; this check keeps anybody from loosening it in passing.

use super::Violation;
use super::code::{code_only, line_of, words};
use super::tree::{SourceFile, Tree};

/// A type whose values prove something.
struct Witness {
    name: &'static str,
    /// The file or folder that alone makes it.
    home: &'static str,
    /// A constructor that nobody else may call, where there is one.
    constructor: Option<&'static str>,
}

const WITNESSES: [Witness; 3] = [
    Witness { name: "Permit", home: "crates/palyra-engine/src/flow/permit.rs", constructor: None },
    Witness { name: "VerifiedPeer", home: "crates/palyra-engine/src/access.rs", constructor: None },
    Witness { name: "Recorded", home: "crates/palyra-journal/src/", constructor: Some("after_commit") },
];

/// What would make a second one out of one, or out of bytes.
const COPIERS: [&str; 4] = ["Clone", "Copy", "Default", "Deserialize"];

pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for witness in &WITNESSES {
        let mut defined = 0;
        for file in tree.rust().filter(|file| file.path.starts_with("crates/")) {
            let code = code_only(&file.text);
            let mut report = |at: usize, message: String| {
                found.push(Violation::new(&file.path, Some(line_of(&code, at)), message));
            };
            let definition = format!("struct {}", witness.name);
            for at in words(&code, &definition) {
                if !file.path.starts_with(witness.home) {
                    report(at, format!("`{}` is the name of a witness that lives in {}", witness.name, witness.home));
                    continue;
                }
                defined += 1;
                for message in of_definition(witness.name, &code, at) {
                    report(at, message);
                }
            }
            for at in made(witness, file, &code) {
                report(at, format!("a `{}` is made only in {}", witness.name, witness.home));
            }
            for at in copied(witness.name, &code) {
                report(at, format!("`{}` is a witness: one proof, one value", witness.name));
            }
        }
        if defined != 1 {
            found.push(Violation::new(
                witness.home,
                None,
                format!("`{}` is defined here {defined} times, not once", witness.name),
            ));
        }
    }
    found
}

/// What is wrong with the definition that begins at `at`.
fn of_definition(name: &str, code: &str, at: usize) -> Vec<String> {
    let mut found = Vec::new();
    // Attributes stand between the item before, which ends in `}` or `;`, and the definition.
    let before = &code[..at];
    let attributes = &before[before.rfind(['}', ';']).map_or(0, |end| end + 1)..];
    for copier in COPIERS {
        if words(attributes, copier).next().is_some() {
            found.push(format!("`{name}` is a witness and must not be `{copier}`"));
        }
    }
    let body = &code[at..];
    let body = &body[..body.find(['}', ';']).unwrap_or(body.len())];
    if words(body, "pub").next().is_some() {
        found.push(format!("the fields of `{name}` are private: whoever could set them could forge it"));
    }
    found
}

/// Where a literal or the constructor of the witness stands outside its home.
fn made(witness: &Witness, file: &SourceFile, code: &str) -> Vec<usize> {
    if file.path.starts_with(witness.home) {
        return Vec::new();
    }
    let literal = words(code, witness.name).filter(|at| {
        let after = code[at + witness.name.len()..].trim_start_matches("::<_>").trim_start();
        let before = code[..*at].trim_end();
        // `-> Permit {`, `impl Permit {`, `for Permit {` name the type and make nothing.
        let names_type =
            before.ends_with("->") || ["impl", "for", "struct"].iter().any(|word| ends_with_word(before, word));
        after.starts_with('{') && !names_type
    });
    let mut found: Vec<_> = literal.collect();
    if let Some(constructor) = witness.constructor {
        found.extend(words(code, constructor).filter(|at| code[..*at].ends_with("::")));
    }
    found
}

/// Where somebody implements a copier by hand.
fn copied(name: &str, code: &str) -> Vec<usize> {
    let implemented = |at: &usize| {
        let before = code[..*at].trim_end();
        before.strip_suffix("for").is_some_and(|before| {
            let header = &before[before.rfind(['}', ';', '{']).map_or(0, |end| end + 1)..];
            COPIERS.iter().any(|copier| words(header, copier).next().is_some())
        })
    };
    words(code, name).filter(implemented).collect()
}

fn ends_with_word(text: &str, word: &str) -> bool {
    text.strip_suffix(word).is_some_and(|before| !before.ends_with(super::code::is_word))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERMIT: &str = "//! P.\n#[derive(Debug)]\npub struct Permit {\n    call: Call,\n}\n";
    const PEER: &str =
        "//! A.\npub struct VerifiedPeer { principal: Principal }\nfn f() { VerifiedPeer { principal } }\n";
    const RECORDED: &str = "//! R.\npub struct Recorded<T> {\n    value: T,\n}\n";

    fn check_with(permit: &str, elsewhere: &str) -> Vec<String> {
        let tree = Tree::of(&[
            ("crates/palyra-engine/src/flow/permit.rs", permit),
            ("crates/palyra-engine/src/access.rs", PEER),
            ("crates/palyra-journal/src/recorded.rs", RECORDED),
            ("crates/palyra-engine/src/elsewhere.rs", elsewhere),
        ]);
        check(&tree).into_iter().map(|violation| violation.message).collect()
    }

    #[test]
    fn witnesses_may_be_named_everywhere() {
        let uses = "fn f(permit: Recorded<Permit>) -> Permit { permit.into_inner() }\nimpl Show for Permit { }\n// Permit { }\n";
        assert_eq!(check_with(PERMIT, uses), Vec::<String>::new());
    }

    #[test]
    fn making_one_elsewhere_is_found() {
        let expect = ["a `Permit` is made only in crates/palyra-engine/src/flow/permit.rs"];
        assert_eq!(check_with(PERMIT, "fn f() { run(Permit { call }) }"), expect);
        let expect = ["a `Recorded` is made only in crates/palyra-journal/src/"];
        assert_eq!(check_with(PERMIT, "fn f() { Recorded::after_commit(x) }"), expect);
        assert_eq!(check_with(PERMIT, "fn f() { Recorded::<_> { value } }"), expect);
        assert_eq!(check_with(PERMIT, "struct Permit;").len(), 1);
    }

    #[test]
    fn loosening_one_is_found() {
        assert_eq!(
            check_with("#[derive(Debug, Clone)]\npub struct Permit { call: Call }", ""),
            ["`Permit` is a witness and must not be `Clone`"]
        );
        assert_eq!(check_with("pub struct Permit { pub(crate) call: Call }", "").len(), 1);
        assert_eq!(check_with(PERMIT, "impl Clone for Permit { }"), ["`Permit` is a witness: one proof, one value"]);
        assert_eq!(check_with("//! Gone.\n", "").len(), 1);
    }
}

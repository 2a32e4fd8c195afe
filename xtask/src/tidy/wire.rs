//! The wire may grow, and nothing of it may change.
//!
//! Programs that others wrote speak `palyra.v1`. What they rely on is recorded in `proto/recorded.txt`, a line for each
//! method, field and value: that line must stay true. A line that is new is to be recorded as well, so that it cannot
//! change later.

use super::Violation;
use super::tree::Tree;
use std::collections::BTreeSet;

/// Where the wire is recorded.
const RECORDED: &str = "proto/recorded.txt";

pub fn check(tree: &Tree) -> Vec<Violation> {
    let recorded = tree.files().find(|file| file.path == RECORDED).map(|file| file.text.as_str());
    let Some(recorded) = recorded else {
        return vec![Violation::new(RECORDED, None, "is gone: nothing says what clients rely on")];
    };
    let protos = tree.files().filter(|file| file.path.starts_with("proto/") && file.path.ends_with(".proto"));
    let now: BTreeSet<String> = protos.flat_map(|file| promises(&file.text)).collect();
    let mut found = Vec::new();
    let mut known = BTreeSet::new();
    for (at, line) in recorded.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        known.insert(line);
        if !now.contains(line) {
            let message = format!("clients rely on `{line}`, and it is gone or another; add something new instead");
            found.push(Violation::new(RECORDED, Some(at + 1), message));
        }
    }
    let new = now.iter().filter(|line| !known.contains(line.as_str()));
    found.extend(new.map(|line| Violation::new(RECORDED, None, format!("record what is new: `{line}`")).warning()));
    found
}

/// Every promise of a proto file: `Service.Method(In) returns (Out)`, `Message 1 string name`, `Enum 0 VALUE`.
fn promises(text: &str) -> Vec<String> {
    let plain: Vec<&str> = text.lines().map(|line| line.split("//").next().unwrap_or("").trim()).collect();
    let plain = plain.join(" ").replace('{', " { ").replace('}', " } ").replace(';', " ; ");
    let mut scopes: Vec<String> = Vec::new();
    let mut statement: Vec<&str> = Vec::new();
    let mut found = Vec::new();
    for word in plain.split_whitespace() {
        match word {
            "{" => scopes.push(std::mem::take(&mut statement).last().copied().unwrap_or("").to_owned()),
            "}" => {
                scopes.pop();
                statement.clear();
            }
            ";" => found.extend(scopes.last().and_then(|scope| promise(scope, &std::mem::take(&mut statement)))),
            word => statement.push(word),
        }
        if word == ";" {
            statement.clear();
        }
    }
    found
}

fn promise(scope: &str, statement: &[&str]) -> Option<String> {
    match statement {
        ["rpc", rest @ ..] => Some(format!("{scope}.{}", rest.join(" "))),
        [what @ .., name, "=", number] => {
            let what = if what.is_empty() { String::new() } else { format!("{} ", what.join(" ")) };
            Some(format!("{scope} {number} {what}{name}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROTO: &str = "syntax = \"proto3\";\npackage p;\nservice Pets {\n  // Every pet.\n  rpc List(All) returns (stream Pet);\n}\n\
                         message All {}\nmessage Pet {\n  repeated string names = 1; // its names\n  Kind kind = 2;\n}\n\
                         enum Kind {\n  CAT = 0;\n}\n";
    const KNOWN: &str =
        "# the wire\nKind 0 CAT\nPet 1 repeated string names\nPet 2 Kind kind\nPets.List(All) returns (stream Pet)\n";

    fn check_with(proto: &str, recorded: &str) -> Vec<String> {
        let tree = Tree::of(&[("proto/p.proto", proto), (RECORDED, recorded)]);
        check(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_recorded_and_unchanged_is_no_violation() {
        assert_eq!(check_with(PROTO, KNOWN), Vec::<String>::new());
    }

    #[test]
    fn a_field_a_method_or_a_value_that_changes_is_found() {
        for (from, to) in [
            ("repeated string names = 1", "string names = 1"),
            ("Kind kind = 2", "Kind kind = 3"),
            ("Kind kind = 2", "Kind sort = 2"),
            ("returns (stream Pet)", "returns (Pet)"),
            ("CAT = 0", "DOG = 0"),
        ] {
            let found = check_with(&PROTO.replace(from, to), KNOWN);
            assert!(found.iter().any(|line| line.starts_with("error") && line.contains("rely on")), "{to}: {found:?}");
        }
        assert!(!check(&Tree::of(&[("proto/p.proto", PROTO)])).is_empty(), "a record that is gone");
    }

    #[test]
    fn what_is_new_is_to_be_recorded() {
        let grown = PROTO.replace("Kind kind = 2;", "Kind kind = 2;\n  bool tame = 3;");
        assert_eq!(check_with(&grown, KNOWN), ["warning: proto/recorded.txt: record what is new: `Pet 3 bool tame`"]);
    }
}

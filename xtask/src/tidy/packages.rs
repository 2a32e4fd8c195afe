//! What is linked: how many packages, under which licences, from where.
//!
//! Every package is code that runs with the daemon's rights. The ceiling is raised by a person who says what for, never
//! in passing. The licences are those of `deny.toml`, which `cargo deny` reads as well.

use super::Violation;
use super::tree::Tree;
use serde_json::Value;

/// The most packages in the lock file.
const CEILING: usize = 650;

/// Dependencies that bring many others along, and what each is for.
const HEAVY: [(&str, &str); 10] = [
    ("cedar-policy", "decides: the policy language and its validator"),
    ("jsonschema", "holds tool inputs and outputs to their schemas"),
    ("ratatui", "draws the terminal screen"),
    ("rmcp", "speaks the Model Context Protocol"),
    ("rusqlite", "stores the journal; SQLite itself is built in"),
    ("rustls", "speaks TLS, as a client and as a server"),
    ("tonic", "serves and calls gRPC"),
    ("ureq", "fetches URLs over connections that we make ourselves"),
    ("utoipa", "describes the HTTP interface"),
    ("wasmtime", "runs WASM skills"),
];

pub fn check(tree: &Tree, metadata: &Value) -> Vec<Violation> {
    let mut found = Vec::new();
    let file = |path: &str| tree.files().find(|file| file.path == path).map_or("", |file| file.text.as_str());
    let locked = file("Cargo.lock").matches("[[package]]\n").count();
    if locked > CEILING {
        let message = format!("{locked} packages are locked, at most {CEILING}; what is the newest one for?");
        found.push(Violation::new("Cargo.lock", None, message));
    }
    let allowed = allowed_licences(file("deny.toml"));
    if allowed.is_empty() {
        found.push(Violation::new("deny.toml", None, "no licences are allowed here; is `allow = [` gone?"));
    }
    for package in metadata["packages"].as_array().map_or(&[][..], Vec::as_slice) {
        found.extend(of_package(package, &allowed));
    }
    found
}

fn of_package(package: &Value, allowed: &[&str]) -> Option<Violation> {
    let name = package["name"].as_str().unwrap_or("");
    // Our own packages have no source.
    let source = package["source"].as_str()?;
    if !source.starts_with("registry+") && !source.starts_with("sparse+") {
        return Some(Violation::new(name, None, "comes from elsewhere than the registry"));
    }
    let licence = package["license"].as_str().unwrap_or("");
    (!is_allowed(licence, allowed)).then(|| {
        let message = format!("has the licence `{licence}`, which deny.toml does not allow");
        Violation::new(name, None, message)
    })
}

/// The texts of `allow = [ … ]`.
fn allowed_licences(text: &str) -> Vec<&str> {
    let list = text.split_once("\nallow = [").and_then(|(_, rest)| rest.split_once(']')).map_or("", |(list, _)| list);
    list.split('"').skip(1).step_by(2).collect()
}

/// Whether an expression of licences can be met: one of several alternatives, all of several parts.
fn is_allowed(expression: &str, allowed: &[&str]) -> bool {
    let expression = expression.replace('/', " OR ");
    let parts = split(&expression, " AND ");
    parts.iter().all(|part| {
        let part = part.trim().strip_prefix('(').and_then(|inner| inner.strip_suffix(')')).unwrap_or(part.trim());
        split(part, " OR ")
            .iter()
            .any(|one| allowed.contains(&one.split_whitespace().collect::<Vec<_>>().join(" ").as_str()))
    })
}

/// Splits at a word that stands outside of parentheses.
fn split<'a>(text: &'a str, word: &str) -> Vec<&'a str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0_i32, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ' ' if depth == 0 && at >= start && text[at..].starts_with(word) => {
                parts.push(&text[start..at]);
                start = at + word.len();
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// The heavy dependencies that are still named here and no longer used.
pub fn check_heavy(metadata: &Value) -> Vec<Violation> {
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    let used = |name: &str| packages.iter().any(|package| package["name"] == name);
    HEAVY
        .iter()
        .filter(|(name, _)| !used(name))
        .map(|(name, what)| {
            Violation::new(name, None, format!("is not used any more ({what}); take its line out")).warning()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const DENY: &str = "[licenses]\nallow = [\n    \"MIT\",\n    \"Apache-2.0\",\n    \"Unicode-3.0\",\n]\n";

    #[test]
    fn expressions_are_understood() {
        let allowed = allowed_licences(DENY);
        assert_eq!(allowed, ["MIT", "Apache-2.0", "Unicode-3.0"]);
        for good in ["MIT", "MIT/Apache-2.0", "GPL-3.0 OR MIT", "(MIT OR GPL-2.0) AND Unicode-3.0", "Apache-2.0 / MIT"]
        {
            assert!(is_allowed(good, &allowed), "{good}");
        }
        for bad in ["", "GPL-3.0", "MIT AND GPL-3.0", "(GPL-2.0 OR LGPL-2.1) AND MIT", "Apache-2.0 WITH LLVM-exception"]
        {
            assert!(!is_allowed(bad, &allowed), "{bad}");
        }
    }

    #[test]
    fn strangers_are_found() {
        let metadata = json!({ "packages": [
            { "name": "ours", "source": null, "license": "none" },
            { "name": "good", "source": "registry+x", "license": "MIT" },
            { "name": "forked", "source": "git+https://example.org/x", "license": "MIT" },
            { "name": "viral", "source": "registry+x", "license": "AGPL-3.0" },
        ] });
        let lock = "[[package]]\n".repeat(CEILING + 1);
        let found = check(&Tree::of(&[("deny.toml", DENY), ("Cargo.lock", &lock)]), &metadata);
        let places: Vec<_> = found.iter().map(|violation| violation.place.as_str()).collect();
        assert_eq!(places, ["Cargo.lock", "forked", "viral"]);
    }
}

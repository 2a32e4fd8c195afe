//! `cargo xtask tidy`: the rules of the house that the compiler does not know.
//!
//! Every check is a file here: it says which rule it holds and why, and has a test that feeds it a violation, because a
//! check that cannot fail checks nothing. What can be a type or a lint is one instead.

mod code;
mod docs;
mod edges;
mod invariants;
mod packages;
mod size;
mod traces;
mod tree;
mod unfinished;
mod wire;
mod witnesses;

use crate::shell::{Failure, Result, metadata, whole_metadata};
use std::fmt;
use tree::Tree;

/// Something that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
pub struct Violation {
    severity: Severity,
    /// The file, or the crate.
    place: String,
    /// The line, where there is one.
    line: Option<usize>,
    /// What is wrong and what to do.
    message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Severity {
    /// Look at it; nothing fails.
    Warning,
    Error,
}

impl Violation {
    fn new(place: &str, line: Option<usize>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Error, place: place.to_owned(), line, message: message.into() }
    }

    fn warning(self) -> Self {
        Self { severity: Severity::Warning, ..self }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        let line = self.line.map_or_else(String::new, |line| format!(":{line}"));
        write!(f, "{kind}: {}{line}: {}", self.place, self.message)
    }
}

/// Runs every check and fails if one does.
pub fn run() -> Result<()> {
    let tree = Tree::read()?;
    let whole = whole_metadata()?;
    let checks: [(&str, Vec<Violation>); 11] = [
        ("crate edges", edges::check(&metadata()?)),
        ("module docs", docs::check(&tree)),
        ("witnesses", witnesses::check(&tree)),
        ("hosts and paths", traces::check(&tree)),
        ("size", size::check(&tree)),
        ("unsafe code", unfinished::check_unsafe(&tree)),
        ("unfinished code", unfinished::check(&tree)),
        ("named invariants", invariants::check(&tree)),
        ("wire", wire::check(&tree)),
        ("packages", packages::check(&tree, &whole)),
        ("heavy dependencies", packages::check_heavy(&whole)),
    ];
    let mut errors = 0;
    for (name, found) in &checks {
        let failed = found.iter().filter(|violation| violation.severity == Severity::Error).count();
        let mark = if failed > 0 { "✘" } else { "✔" };
        println!("{mark} {name}");
        for violation in found {
            println!("    {violation}");
        }
        errors += failed;
    }
    match errors {
        0 => Ok(()),
        1 => Err(Failure("tidy found 1 violation".to_owned())),
        many => Err(Failure(format!("tidy found {many} violations"))),
    }
}

//! The files that belong to the repository: those git tracks, and new ones that it does not ignore.

use crate::shell::{Result, program, root};

/// Every text file of the repository.
#[derive(Debug, Default)]
pub struct Tree {
    files: Vec<SourceFile>,
}

/// One text file.
#[derive(Debug)]
pub struct SourceFile {
    /// From the root, with `/`.
    pub path: String,
    pub text: String,
}

impl Tree {
    /// Asks git and reads the files.
    pub fn read() -> Result<Self> {
        // Who owns the clone does not matter for listing it.
        let list = ["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let names = program("git", list).read("asking git for the files (tidy needs a clone)")?;
        let root = root();
        let mut files = Vec::new();
        for path in names.split('\0').filter(|name| !name.is_empty()) {
            // A file may be deleted and not yet committed, or not be text: then there is nothing to check in it.
            if let Ok(text) = std::fs::read_to_string(root.join(path)) {
                files.push(SourceFile { path: path.to_owned(), text });
            }
        }
        Ok(Self { files })
    }

    pub fn files(&self) -> impl Iterator<Item = &SourceFile> {
        self.files.iter()
    }

    /// The Rust sources of our packages.
    pub fn rust(&self) -> impl Iterator<Item = &SourceFile> {
        let ours = ["crates/", "xtask/", "tests/", "benches/", "fuzz/"];
        self.files
            .iter()
            .filter(move |file| file.path.ends_with(".rs") && ours.iter().any(|folder| file.path.starts_with(folder)))
    }

    /// A tree for the tests of a check.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let file = |(path, text): &(&str, &str)| SourceFile { path: (*path).to_owned(), text: (*text).to_owned() };
        Self { files: files.iter().map(file).collect() }
    }
}

impl SourceFile {
    /// Whether this is neither a test nor an example nor a benchmark.
    pub fn is_production(&self) -> bool {
        let aside = ["tests", "examples", "benches", "fuzz"];
        let mut folders = self.path.split('/');
        let name = folders.next_back().unwrap_or("");
        !folders.any(|folder| aside.contains(&folder)) && !matches!(name, "tests.rs" | "testing.rs")
    }
}

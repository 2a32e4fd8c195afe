//! No package hosts and no paths of one machine.
//!
//! Where packages come from is the affair of whoever builds: a mirror, a proxy, a vendored copy. And a path that exists
//! on one developer's machine only is a test that fails everywhere else. Cargo's lock file names its registry on every
//! entry; that is its format.

use super::Violation;
use super::code::line_of;
use super::tree::{SourceFile, Tree};

/// Hosts, in pieces: this file must not hold what it looks for.
const HOSTS: [(&str, &str); 11] = [
    ("index.crates", ".io"),
    ("static.crates", ".io"),
    ("crates.io", "-index"),
    ("pypi", ".org"),
    ("files.pythonhosted", ".org"),
    ("registry.npmjs", ".org"),
    ("registry.yarnpkg", ".com"),
    ("deb.debian", ".org"),
    ("security.debian", ".org"),
    ("archive.ubuntu", ".com"),
    ("proxy.golang", ".org"),
];

/// Folders that are somebody's.
const FOLDERS: [(&str, &str); 4] = [("/wo", "rk/"), ("/ro", "ot/"), ("/ho", "me/"), ("/Us", "ers/")];

pub fn check(tree: &Tree) -> Vec<Violation> {
    tree.files().flat_map(of_file).collect()
}

fn of_file(file: &SourceFile) -> Vec<Violation> {
    let mut found = Vec::new();
    let text = &file.text;
    let mut report =
        |at: usize, message: String| found.push(Violation::new(&file.path, Some(line_of(text, at)), message));
    for (start, end) in HOSTS {
        let host = format!("{start}{end}");
        for (at, _) in text.match_indices(&host).filter(|(at, _)| !locks_a_package(file, *at)) {
            report(at, format!("names the package host `{host}`; that is set where the build runs"));
        }
    }
    for (start, end) in FOLDERS {
        let folder = format!("{start}{end}");
        for (at, _) in text.match_indices(&folder) {
            let inside_longer_path = text[..at].ends_with(|c: char| c.is_alphanumeric() || "_.-~/}".contains(c));
            let names_something =
                text[at + folder.len()..].starts_with(|c: char| c.is_alphanumeric() || "_.-".contains(c));
            if !inside_longer_path && names_something {
                report(at, format!("holds a path under `{folder}`, which is one machine's"));
            }
        }
    }
    found
}

/// Whether this is the line in Cargo's lock file that says where a package came from.
fn locks_a_package(file: &SourceFile, at: usize) -> bool {
    let name = file.path.rsplit('/').next();
    let line = file.text[..at].rsplit('\n').next().unwrap_or("");
    name == Some("Cargo.lock") && line.starts_with("source = \"registry+https://github.com/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_text(path: &str, text: &str) -> usize {
        check(&Tree::of(&[(path, text)])).len()
    }

    #[test]
    fn package_hosts_are_found() {
        for (start, end) in HOSTS {
            assert_eq!(check_text("docs/install.md", &format!("get it from https://{start}{end}/x")), 1, "{start}");
        }
        let line = format!("source = \"registry+https://github.com/rust-lang/{}{}\"\n", HOSTS[2].0, HOSTS[2].1);
        assert_eq!(check_text("Cargo.lock", &line), 0);
        assert_eq!(check_text("README.md", &line), 1);
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        for (start, end) in FOLDERS {
            let folder = format!("{start}{end}");
            assert_eq!(check_text("a.rs", &format!("open(\"{folder}ann/x\")")), 1, "{folder}");
            assert_eq!(check_text("a.rs", &format!("target{folder}x and https://host{folder}x")), 0, "{folder}");
            assert_eq!(check_text("a.rs", &format!("every {folder}<name>/x")), 0, "{folder}");
        }
    }
}

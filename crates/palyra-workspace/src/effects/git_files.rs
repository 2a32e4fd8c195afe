//! Files of git whose content decides: what makes a directory a repository, and instructions that git carries out later.
//!
//! A directory with `HEAD`, `objects` and `refs` is a repository without being called `.git`: whoever stands in it and
//! asks git anything obeys its settings and hooks. So a new `HEAD` outside of a `.git` waits. A rebase that was stopped
//! goes on with the list that it finds, and a line of that list can name a command.

use super::guarded::Versions;
use crate::path::folded;
use palyra_protocol::EffectPath;

/// Which of these files a path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Head,
    Instructions,
}

fn kind(path: &EffectPath) -> Option<Kind> {
    let text = path.to_text();
    let mut parts = text.split('/').map(folded).rev();
    let (name, parent) = (parts.next()?, parts.next());
    match name.as_str() {
        "head" if parent.as_deref() != Some(".git") && !parts.any(|part| part == ".git") => Some(Kind::Head),
        "git-rebase-todo" | "git-rebase-todo.backup" => Some(Kind::Instructions),
        "todo" if parent.as_deref() == Some("sequencer") => Some(Kind::Instructions),
        _ => None,
    }
}

/// Whether a file is one whose content decides.
pub(super) fn is_one(path: &EffectPath) -> bool {
    kind(path).is_some()
}

/// Whether its new content makes a repository, or names a command that the old one does not.
pub(super) fn guards(path: &EffectPath, versions: &Versions<'_>) -> bool {
    let Some(kind) = kind(path) else { return false };
    // One that is too large to be read is no file that git wrote.
    let Some(new) = versions.new else { return true };
    match kind {
        Kind::Head => is_head(new) && !versions.old.is_some_and(is_head),
        Kind::Instructions => commands(new).any(|line| !commands(versions.old.unwrap_or_default()).any(|l| l == line)),
    }
}

/// Whether git would take it for the `HEAD` of a repository: the name of a reference, or of a commit.
fn is_head(content: &[u8]) -> bool {
    let commit = content.split(|b| b.is_ascii_whitespace()).next().unwrap_or_default();
    content.starts_with(b"ref:") || matches!(commit.len(), 40 | 64) && commit.iter().all(u8::is_ascii_hexdigit)
}

/// The lines that git hands to a shell.
fn commands(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let runs = |line: &&[u8]| matches!(line.split(u8::is_ascii_whitespace).next(), Some(b"exec" | b"x"));
    list.split(|b| *b == b'\n').map(<[u8]>::trim_ascii).filter(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, old: Option<&str>, new: &str) -> bool {
        let versions = Versions { old: old.map(str::as_bytes), new: Some(new.as_bytes()) };
        guards(&path.parse().unwrap(), &versions)
    }

    #[test]
    fn a_new_repository_without_a_directory_of_its_own_is_guarded() {
        let commit = "1234567890123456789012345678901234567890\n";
        for (path, new) in [("HEAD", "ref: refs/heads/main\n"), ("a/b.git/HEAD", commit), ("a/head", "ref:refs/x")] {
            assert!(check(path, None, new) && check(path, Some("other"), new), "{path}");
        }
        assert!(!check("b.git/HEAD", Some("ref: refs/heads/main\n"), "ref: refs/heads/next\n"), "it was one before");
        for path in [".git/HEAD", "sub/.git/HEAD", ".git/modules/m/HEAD", ".git/worktrees/w/HEAD", "src/ahead"] {
            assert!(!check(path, None, "ref: refs/heads/main\n"), "{path}");
        }
        assert!(!check("docs/HEAD", None, "What this is about\n"));
    }

    #[test]
    fn commands_of_a_stopped_rebase_are_guarded() {
        let todo = ".git/rebase-merge/git-rebase-todo";
        assert!(!check(todo, None, "pick 1234567 exec\n# exec touch x\nfixup 89\n"));
        for line in ["exec touch x", "x touch x", "  exec\ttouch x", "pick 1\nexec a"] {
            assert!(check(todo, None, line), "{line}");
            assert!(!check(todo, Some(line), line), "a person wrote it: {line}");
        }
        assert!(check(".git/sequencer/todo", None, "exec x") && !check("src/todo", None, "exec x"));
    }
}

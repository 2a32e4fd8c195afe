//! Which paths of a workspace lead to code that runs later, outside: the layout's, and those that its repositories add.
//!
//! A repository has more than one place where git looks for settings and hooks: each submodule's and each worktree's
//! own directory below `.git`, whatever the settings name (`core.hooksPath`, an included file, a filter that lies in
//! the tree), and the top itself, if it looks like a repository without `.git`. `commondir` moves all of them elsewhere
//! at once.
//!
//! A name may be a link, or lie behind one. Then both count: the link, which could be replaced, and the file it leads
//! to, if that lies where the run may write.
//!
//! What this looks at is bounded by constants, never by the size of the workspace.

use super::opened_roots::{Top, Tops};
use super::settings;
use crate::error::SandboxError;
use crate::layout;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::collections::HashSet;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

/// How something new at such a path is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A directory on the way to others: fine if it is one.
    Way,
    /// Hooks: fine if there are only samples.
    Hooks,
    /// Settings of git: fine if all are harmless.
    Settings,
    /// Where a worktree finds its repository: fine if that is where it always is.
    Common,
    /// Where a repository finds its worktree: tells nothing of programs.
    Back,
    /// Never fine.
    Forbidden,
}

/// One path of a writable root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sensitive {
    pub(super) root: PathBuf,
    pub(super) relative: PathBuf,
    pub(super) kind: Kind,
}

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// A directory or plain file, with no link on the way: its device and number.
    Plain((u64, u64), FileType),
    /// A link, or something behind one.
    Link,
    /// Nothing, or nothing that could be held.
    Nothing,
}

/// No symlink on the way, and nothing above the beginning.
pub(super) const PLAIN: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// More submodules and worktrees than this are not looked at one by one: then their directory is held as a whole.
const MOST_REPOSITORIES: usize = 64;

/// What a repository's own directory holds.
const IN_A_REPOSITORY: &[(&str, Kind)] = &[
    ("hooks", Kind::Hooks),
    ("config", Kind::Settings),
    ("config.worktree", Kind::Settings),
    ("commondir", Kind::Forbidden),
    ("gitdir", Kind::Forbidden),
    ("info/attributes", Kind::Forbidden),
];
/// What the directory of a worktree holds.
const IN_A_WORKTREE: &[(&str, Kind)] =
    &[("config.worktree", Kind::Settings), ("commondir", Kind::Common), ("gitdir", Kind::Back), ("hooks", Kind::Hooks)];

/// Every such path of the writable roots, there or not; directories before what lies in them.
///
/// # Errors
/// The settings of a repository are too much to be guarded.
pub(super) fn all(tops: &Tops) -> Result<Vec<Sensitive>, SandboxError> {
    let mut search = Search { tops, seen: HashSet::new(), found: Vec::new() };
    for top in tops.iter() {
        for name in layout::GUARDED_IN_WORKSPACE.iter().filter(|name| !name.starts_with(".git/")) {
            search.add(top, Path::new(name), Kind::Forbidden);
        }
        search.repository(top, Path::new(".git"), IN_A_REPOSITORY);
        if top.is_repository {
            search.repository(top, Path::new(""), IN_A_REPOSITORY);
        }
        search.inner_repositories(top);
        for (root, named) in settings::named(tops, top)? {
            if let Some(top) = tops.of(&root) {
                search.add(top, &named, Kind::Forbidden);
            }
        }
    }
    Ok(search.found)
}

/// Those of submodules and worktrees alone: what a run may add to a repository without being stopped.
pub(super) fn of_inner_repositories(tops: &Tops) -> Vec<Sensitive> {
    let mut search = Search { tops, seen: HashSet::new(), found: Vec::new() };
    tops.iter().for_each(|top| search.inner_repositories(top));
    search.found
}

struct Search<'a> {
    tops: &'a Tops,
    seen: HashSet<PathBuf>,
    found: Vec<Sensitive>,
}

impl Search<'_> {
    /// Those of the repository in `.git`, and of the root itself if it is somebody's `.git`.
    fn inner_repositories(&mut self, top: &Top) {
        let own = top.is_repository.then_some("");
        for place in [".git"].into_iter().chain(own).map(Path::new) {
            for (directory, names) in [("modules", IN_A_REPOSITORY), ("worktrees", IN_A_WORKTREE)] {
                let directory = place.join(directory);
                match repositories(&top.directory, &directory) {
                    Some(inner) => inner.iter().for_each(|path| self.repository(top, path, names)),
                    None => self.add(top, &directory, Kind::Forbidden),
                }
            }
        }
    }

    fn repository(&mut self, top: &Top, directory: &Path, names: &[(&str, Kind)]) {
        for (name, kind) in names {
            self.add(top, &directory.join(name), *kind);
        }
    }

    fn add(&mut self, top: &Top, relative: &Path, kind: Kind) {
        if !self.seen.insert(top.root.join(relative)) {
            return;
        }
        if let Some(parent) = relative.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            self.add(top, parent, Kind::Way);
        }
        let is_link = look(&top.directory, relative) == Found::Link;
        self.found.push(Sensitive { root: top.root.clone(), relative: relative.to_owned(), kind });
        let tops = self.tops;
        if is_link
            && let Some((holds, relative)) = tops.behind(top, relative)
            && !relative.as_os_str().is_empty()
        {
            self.add(holds, &relative, kind);
        }
    }
}

/// What is at a path below `top`, without following a link.
pub(super) fn look(top: &OwnedFd, relative: &Path) -> Found {
    let fd = match rustix::fs::openat2(top, relative, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), PLAIN) {
        Ok(fd) => fd,
        Err(Errno::LOOP | Errno::XDEV) => return Found::Link,
        Err(_) => return Found::Nothing,
    };
    let Ok(stat) = rustix::fs::fstat(&fd) else { return Found::Nothing };
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind.is_dir() || kind.is_file() { Found::Plain((stat.st_dev, stat.st_ino), kind) } else { Found::Nothing }
}

fn is_directory(top: &OwnedFd, relative: &Path) -> bool {
    matches!(look(top, relative), Found::Plain(_, kind) if kind.is_dir())
}

/// Whether git takes a directory for a repository: what it looks for.
pub(super) fn is_repository(top: &OwnedFd) -> bool {
    let there = |name: &str| rustix::fs::statat(top, name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
    there("HEAD") && ((there("objects") && there("refs")) || there("commondir"))
}

/// The repositories below a directory of `.git`; a submodule's name may have several parts, and it may have its own.
/// `None`: too many.
fn repositories(top: &OwnedFd, directory: &Path) -> Option<Vec<PathBuf>> {
    const DEEPEST: usize = 6;
    let (mut found, mut looked) = (Vec::new(), 0);
    let mut waiting = vec![(directory.to_owned(), 0)];
    while let Some((directory, depth)) = waiting.pop() {
        for path in directories(top, &directory)? {
            looked += 1;
            if looked > 4 * MOST_REPOSITORIES || found.len() >= MOST_REPOSITORIES || depth > DEEPEST {
                return None;
            }
            let is_repository = !matches!(look(top, &path.join("HEAD")), Found::Nothing);
            if is_repository {
                waiting.push((path.join("modules"), depth + 1));
                found.push(path);
            } else {
                waiting.push((path, depth + 1));
            }
        }
    }
    Some(found)
}

/// The directories in a directory; none if it is not there. `None`: too many.
fn directories(top: &OwnedFd, relative: &Path) -> Option<Vec<PathBuf>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(directory) = rustix::fs::openat2(top, relative, flags, Mode::empty(), PLAIN) else {
        return Some(Vec::new());
    };
    let Ok(entries) = Dir::read_from(directory.as_fd()) else { return Some(Vec::new()) };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        let path = relative.join(std::os::unix::ffi::OsStrExt::from_bytes(name) as &std::ffi::OsStr);
        if is_directory(top, &path) {
            found.push(path);
        }
        if found.len() > 4 * MOST_REPOSITORIES {
            return None;
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::super::grants::Roots;
    use super::*;
    use crate::testing::policy;
    use std::fs;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    fn names(prepare: impl Fn(&Path)) -> Vec<String> {
        let dir = TempDir::new().unwrap();
        let root = dir.path().canonicalize().unwrap();
        prepare(&root);
        let found = all(&Tops::open(&Roots::resolve(&policy(&root)).unwrap()).unwrap()).unwrap();
        found.iter().map(|sensitive| sensitive.relative.display().to_string()).collect()
    }

    #[test]
    fn submodules_worktrees_and_what_settings_name_are_found() {
        let found = names(|root| {
            for path in [".git/modules/a/b", ".git/modules/a/b/modules/c", ".git/worktrees/w", ".husky", "tools"] {
                fs::create_dir_all(root.join(path)).unwrap();
            }
            for path in
                [".git/modules/a/b/HEAD", ".git/modules/a/b/modules/c/HEAD", ".git/worktrees/w/HEAD", "tools/smudge"]
            {
                fs::write(root.join(path), "").unwrap();
            }
            let config = "[core]\n\thooksPath = .husky\n[include]\n\tpath = ../shared.gitconfig\n\
                          [filter \"x\"]\n\tsmudge = tools/smudge %f\n[branch \"main\"]\n\tremote = .\n";
            fs::write(root.join(".git/config"), config).unwrap();
            fs::write(root.join("shared.gitconfig"), "[alias]\n\tx = !./tools/smudge\n").unwrap();
        });
        for expect in [
            ".git/commondir",
            ".git/modules/a/b/config",
            ".git/modules/a/b/modules/c/hooks",
            ".git/worktrees/w/commondir",
            ".husky",
            "shared.gitconfig",
            "tools/smudge",
        ] {
            assert!(found.iter().any(|name| name == expect), "{expect}: {found:?}");
        }
        assert!(found.iter().all(|name| !name.is_empty() && name != "config"), "{found:?}");
    }

    #[test]
    fn more_repositories_than_anybody_has_are_held_as_one() {
        let found = names(|root| {
            for n in 0..MOST_REPOSITORIES + 1 {
                fs::create_dir_all(root.join(format!(".git/modules/{n}"))).unwrap();
                fs::write(root.join(format!(".git/modules/{n}/HEAD")), "").unwrap();
            }
        });
        assert!(found.contains(&".git/modules".to_owned()) && !found.contains(&".git/modules/1/config".to_owned()));
    }

    #[test]
    fn links_lead_to_what_they_name() {
        let found = names(|root| {
            fs::create_dir_all(root.join(".git")).unwrap();
            fs::create_dir_all(root.join("githooks")).unwrap();
            fs::create_dir_all(root.join("dot/config")).unwrap();
            symlink("../githooks", root.join(".git/hooks")).unwrap();
            symlink("dot/config", root.join(".config")).unwrap();
            symlink("not-yet", root.join(".bashrc")).unwrap();
            symlink("/etc/passwd", root.join(".zshrc")).unwrap();
        });
        for expect in [".git/hooks", "githooks", "dot/config/fish", "not-yet", ".zshrc"] {
            assert!(found.iter().any(|name| name == expect), "{expect}: {found:?}");
        }
    }

    #[test]
    fn a_repository_without_a_directory_of_its_own_is_seen() {
        let found = names(|root| {
            fs::create_dir_all(root.join("objects")).unwrap();
            fs::create_dir_all(root.join("refs")).unwrap();
            fs::write(root.join("HEAD"), "").unwrap();
            fs::create_dir_all(root.join("worktrees/w")).unwrap();
            fs::write(root.join("worktrees/w/HEAD"), "").unwrap();
            fs::write(root.join("config"), "[core]\n\thooksPath = .husky\n").unwrap();
        });
        for expect in ["config", "hooks", "worktrees/w/commondir", "worktrees/w/gitdir", ".husky"] {
            assert!(found.iter().any(|name| name == expect), "{expect}: {found:?}");
        }
    }
}
